//! The journal of the deep lanes: one JSON object a line, appended when a slice of work ends.
//!
//! A sum takes in the entries whose protocol is the tree's of now. It names the commit that the first of them ran on;
//! when the protocol changes, the sum starts again at zero, for old crash images say nothing about new code.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::cache;
use crate::step::Outcome;
use crate::workspace::Workspace;

/// All entries, and the file that new ones go to.
pub(super) struct Journal {
    path: PathBuf,
    entries: Vec<Entry>,
}

/// One slice of work.
pub(super) struct Entry(Value);

/// What the entries of one lane and protocol add up to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sum {
    began_on: Option<String>,
    slices: u64,
    failed: u64,
    seconds: f64,
    counters: Map<String, Value>,
}

impl Journal {
    pub(super) fn open(workspace: &Workspace) -> Result<Journal, String> {
        let path = cache::folder(workspace).join("journal/deep.jsonl");
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            other => other.map_err(|error| format!("the journal {} cannot be read: {error}", path.display()))?,
        };
        Ok(Journal { path, entries: entries(&text) })
    }

    /// Adds an entry, in one write, so that two runs never mix their lines.
    pub(super) fn append(&mut self, entry: Entry) -> Result<(), String> {
        let failed = |error| format!("the journal {} cannot be written: {error}", self.path.display());
        fs::create_dir_all(self.path.parent().expect("the journal has a folder")).map_err(failed)?;
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path).map_err(failed)?;
        // A torn line of a killed run ends here, and only that line is lost.
        file.write_all(format!("\n{}", entry.0).as_bytes()).map_err(failed)?;
        self.entries.push(entry);
        Ok(())
    }

    /// A seed that no slice of the lane has had.
    pub(super) fn next_seed(&self, lane: &str) -> u64 {
        let seeds = self.entries.iter().filter(|entry| entry.0["lane"] == lane).map(|entry| &entry.0["seed"]);
        seeds.filter_map(Value::as_u64).max().map_or(1, |seed| seed + 1)
    }

    pub(super) fn sum(&self, lane: &str, protocol: &str) -> Sum {
        let mut sum = Sum::default();
        for Entry(entry) in &self.entries {
            if entry["lane"] == lane && entry["protocol"] == protocol {
                sum.add(entry);
            }
        }
        sum
    }
}

/// Lines that are no entries are passed over: a killed run can leave half a line.
fn entries(text: &str) -> Vec<Entry> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).map(Entry).collect()
}

impl Entry {
    pub(super) fn new(
        workspace: &Workspace,
        lane: &str,
        protocol: &str,
        seed: u64,
        elapsed: Duration,
        outcome: &Outcome,
        counters: Map<String, Value>,
    ) -> Entry {
        Entry(json!({
            "lane": lane,
            "protocol": protocol,
            "commit": commit(workspace),
            "ended_unix_s": SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            "seconds": elapsed.as_secs_f64(),
            "seed": seed,
            "failed": matches!(outcome, Outcome::Failed(..)),
            "counters": counters,
        }))
    }
}

fn commit(workspace: &Workspace) -> String {
    let output = workspace.command("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".into(),
    }
}

/// A hash over the names and contents of files and folders (FNV-1a, 64 bits; it guards against forgetting, not
/// against anybody).
pub(super) fn fingerprint(workspace: &Workspace, paths: &[&str]) -> String {
    let inside = |file: &str| paths.iter().any(|path| file == *path || file.starts_with(&format!("{path}/")));
    let files = workspace.sources(&["rs", "py", "toml", "lock", "txt", "run", "c", "h"]).into_iter();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for file in files.filter(|file| inside(file)) {
        let content = fs::read(workspace.path(&file)).unwrap_or_default();
        for byte in file.bytes().chain([0]).chain(content).chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

impl Sum {
    fn add(&mut self, entry: &Value) {
        if self.began_on.is_none() {
            self.began_on = entry["commit"].as_str().map(str::to_owned);
        }
        self.slices += 1;
        self.failed += u64::from(entry["failed"] == true);
        self.seconds += entry["seconds"].as_f64().unwrap_or_default();
        for (name, value) in entry["counters"].as_object().into_iter().flatten() {
            let old = self.counters.get(name).and_then(Value::as_u64).unwrap_or_default();
            self.counters.insert(name.clone(), json!(old.saturating_add(value.as_u64().unwrap_or_default())));
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(began_on) = &self.began_on else { return f.write_str("nothing yet") };
        write!(f, "{} slices, {} failed, {:.0} s since {began_on}", self.slices, self.failed, self.seconds)?;
        for (name, value) in &self.counters {
            write!(f, ", {name} {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(path: PathBuf, text: &str) -> Journal {
        Journal { path, entries: entries(text) }
    }

    fn entry(lane: &str, protocol: &str, seed: u64, images: u64) -> Entry {
        Entry(json!({"lane": lane, "protocol": protocol, "commit": format!("c{seed}"), "seconds": 2.5, "seed": seed,
            "failed": seed == 3, "counters": {"images": images}}))
    }

    #[test]
    fn sums_take_one_protocol_and_name_the_commit_they_began_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal/deep.jsonl");
        let mut written = journal(path.clone(), "");
        let all = [("crash", "old", 1), ("crash", "new", 2), ("kill", "new", 9), ("crash", "new", 3)];
        for (lane, protocol, seed) in all {
            written.append(entry(lane, protocol, seed, 10 * seed)).unwrap();
        }
        let read = journal(path.clone(), &fs::read_to_string(&path).unwrap());
        assert_eq!(read.sum("crash", "new").to_string(), "2 slices, 1 failed, 5 s since c2, images 50");
        assert_eq!(read.sum("crash", "newer").to_string(), "nothing yet");
        assert_eq!((read.next_seed("crash"), read.next_seed("fuzz")), (4, 1));
    }

    #[test]
    fn a_torn_line_costs_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep.jsonl");
        fs::write(&path, format!("\n{}\n{{\"lane\": \"cra", entry("crash", "p", 1, 5).0)).unwrap();
        journal(path.clone(), "").append(entry("crash", "p", 2, 6)).unwrap();
        let read = journal(path.clone(), &fs::read_to_string(&path).unwrap());
        assert_eq!(read.sum("crash", "p").counters["images"], 11);
    }

    #[test]
    fn the_fingerprint_follows_content_and_names() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(folder.path());
        fs::create_dir(folder.path().join("a")).unwrap();
        let mut seen = std::collections::BTreeSet::from([fingerprint(&workspace, &["a"])]);
        for (name, content) in [("a/x.rs", "1"), ("a/x.rs", "2"), ("a/y.rs", "")] {
            fs::write(folder.path().join(name), content).unwrap();
            assert!(seen.insert(fingerprint(&workspace, &["a"])), "{name} {content}");
        }
        fs::write(folder.path().join("b.rs"), "").unwrap();
        assert!(seen.contains(&fingerprint(&workspace, &["a"])));
    }
}
