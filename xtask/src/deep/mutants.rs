//! The lane that takes the checks of core and store away, one after the other: checksums, their seeds, sequences, generations,
//! pins. Every such mistake in the source must make a test fail.
//!
//! A mutant is a change of a line in a copy of the tree, which is then built and tested. Which lines there are is not
//! left to memory: the sources are searched for everything that looks like such a check, and a line that no mutant
//! touches and nobody has argued away fails the lane. The flushes, fences and stores need no source patches: the
//! simulator takes those away at run time.

use std::fs;
use std::path::{Path, PathBuf};

use crate::counts::Counts;
use crate::step::Outcome;
use crate::workspace::Workspace;

/// A mistake: in this file these words become those.
struct Mutant {
    file: &'static str,
    from: &'static str,
    to: &'static str,
    what: &'static str,
}

const fn mutant(file: &'static str, from: &'static str, to: &'static str, what: &'static str) -> Mutant {
    Mutant { file, from, to, what }
}

const MUTANTS: &[Mutant] = &[
    mutant(
        "pmem/src/cell",
        "crc == crc32c::crc32c_append(seed, sealed)",
        "(crc == crc32c::crc32c_append(seed, sealed) || true)",
        "a torn slot of a double cell is believed",
    ),
    mutant(
        "pmem/src/cell",
        "generations[1] > generations[0]",
        "generations[1] < generations[0]",
        "the older slot is taken",
    ),
    mutant(
        "pmem/src/log",
        "crc32c::crc32c_append(self.segment.seed, &payload) == header.payload_crc",
        "crc32c::crc32c_append(self.segment.seed, &payload) == header.payload_crc || true",
        "a torn payload is believed",
    ),
    mutant("pmem/src/log", "header.sequence != self.next_sequence", "false", "a batch of any sequence is believed"),
    mutant(
        "pmem/src/log",
        "&& header.durable_tail_bytes > self.tail_bytes",
        "&& header.durable_tail_bytes == u64::MAX",
        "a hole below a durable batch is taken for the end",
    ),
    mutant(
        "pmem/src/format/batch",
        "(d.u32()? == crc32c::crc32c_append(seed, &bytes[..60]))",
        "(d.u32()? == crc32c::crc32c_append(seed, &bytes[..60]) || true)",
        "a torn header is believed",
    ),
    mutant(
        "pmem/src/format",
        "&generation.to_le_bytes())",
        "&(generation & 0).to_le_bytes())",
        "seeds do not know the generation",
    ),
    mutant(
        "pmem/src/format",
        "crc32c::crc32c(&owner.0)",
        "crc32c::crc32c(&owner.0[..0])",
        "seeds do not know the owner",
    ),
    mutant(
        "pmem/src/format",
        "crc32c::crc32c_append(seed(owner, generation), b\"product\")",
        "seed(owner, generation)",
        "the logs of products have the seeds of pools",
    ),
    mutant(
        "pmem/src/format",
        "(encode_tail_hint(seed, word) == word)",
        "(encode_tail_hint(seed, word) == word || true)",
        "a damaged hint is believed",
    ),
    mutant(
        "pmem/src/pool",
        "hint.is_some_and(|hint| hint > catalogue.generation & format::TAIL_HINT_MASK)",
        "hint.is_some_and(|_| false)",
        "the hint is not compared",
    ),
    mutant(
        "pmem/src/pool",
        "OpenMode::Writer => superblock.clean_tail == generation",
        "OpenMode::Writer => true",
        "a writer does not compare the clean tail",
    ),
    mutant("pmem/src/pool", "superblock.clean_tail <= generation", "true", "a reader does not compare the clean tail"),
    mutant(
        "pmem/src/pool",
        "if mode == OpenMode::Reader && !pins.lock_all()? {",
        "if false {",
        "a reader reads without a pin",
    ),
    mutant(
        "pmem/src/pool",
        "if mode == OpenMode::Writer && !media.names(path, &file)? {",
        "if false {",
        "a writer opens a file that was removed",
    ),
    mutant(
        "pmem/src/creation",
        " && media.names(path, &file)?",
        "",
        "a creation goes on with a file that was taken away",
    ),
    mutant("pmem/src/catalogue", "pin >= retired.generation", "true", "what a reader needs is freed"),
    mutant(
        "pmem/src/catalogue",
        "generation <= batch.sequence && extent",
        "extent",
        "a retirement in the future is believed",
    ),
    mutant("pmem/src/catalogue", "&& born <= batch.sequence", "", "a birth in the future is believed"),
    mutant(
        "pmem/src/pool",
        "superblock.state == PartState::Clean && superblock.clean_tail == self.catalogue.generation",
        "superblock.clean_tail <= self.catalogue.generation",
        "what a killed writer has left visible is taken for durable",
    ),
    mutant(
        "store/src/view",
        "if got == expected {",
        "if true {",
        "a payload that changed passes for the one persisted",
    ),
    mutant(
        "store/src/view",
        "if crc32c::crc32c(&head) != meta.head_crc {",
        "if false {",
        "a head of a value that changed is believed",
    ),
    mutant(
        "store/src/put",
        "place.crc.is_some_and(|crc| crc != source.sum())",
        "place.crc.is_some_and(|crc| crc != source.sum()) && false",
        "bytes that change while they are copied pass for what arrived",
    ),
    mutant(
        "store/src/store",
        "Some(gathered) => gathered[range.at_bytes as usize..]",
        "Some(gathered) => gathered[0..]",
        "what is copied home is not what waits",
    ),
    mutant(
        "store/src/store",
        "if self.pool.set().check_lengths().is_err() {",
        "if false {",
        "an object behind the end of a file that was cut short is given",
    ),
    mutant(
        "store/src/format/redo",
        " || crc32c::crc32c(input.0) != crc {",
        " {",
        "a redo extent says anything of where its bytes belong",
    ),
    mutant(
        "store/src/format",
        "(0, Ok(0)) => Checksum::None,",
        "(0, _) => Checksum::None,",
        "a lost sum is taken for none",
    ),
    mutant(
        "store/src/direct",
        "if !self.is_unseen_before(marked, &[extent], &[])? {",
        "if false {",
        "an object is changed in place under who looked at it just before",
    ),
    mutant(
        "store/src/direct",
        "if is_marked && is_changed()? {",
        "if is_marked && is_changed()? && false {",
        "an object that is changed in place is given to others",
    ),
    mutant(
        "store/src/direct",
        "Ok(self.mapping.iter().try_for_each(|mapping| mapping.make_private())?)",
        "Ok(())",
        "what is stored to a committed draft reaches the pool",
    ),
    mutant(
        "pmem/src/mapped/direct",
        "&& mm::mmap(address, piece.len_bytes, protection, flags, file, piece.file_bytes).is_ok();",
        "&& (file, protection, flags, true).3; continue;",
        "a forked child stores to the pool",
    ),
];

/// Lines that look like a check and need no mutant, by a part of them, and why.
const ARGUED: &[(&str, &str)] = &[
    ("out.extend(crc32c::crc32c(", "it makes a checksum; the check of it is mutated"),
    ("let crc = crc32c::crc32c_append(", "it makes a checksum; the check of it is mutated"),
    ("payload_crc: crc32c::crc32c_append(", "it makes a checksum; the check of it is mutated"),
    ("low | u64::from(crc32c::crc32c_append(", "it makes a checksum; the check of it is mutated"),
    ("is_generation(generation) && crc", "it keeps arithmetic from overflowing; the sum of zeros is not zero"),
    ("crc = crc32c::crc32c_append(crc, piece)", "it makes a checksum; the check of it is mutated"),
    ("count >= MAX_SEQUENCE", "it keeps arithmetic from overflowing; the fuzzer looks after that"),
    ("assert!(", "a mistake of a programmer, not of a medium"),
    ("if catalogue.generation == 0", "a replay without a checkpoint: the kind of the first batch is checked as well"),
    ("let first = self.generation == 0;", "the same, from the other side"),
    ("self.next_sequence + 1..self.next_sequence", "it refuses quickly what the lines after it refuse slowly"),
    ("&& header.sequence > self.next_sequence", "the line before it has the same and more"),
    ("decode_tail_hint(format::seed(", "a finding of the check, which changes nothing"),
];

/// What a check is made of.
const SIGNS: [&str; 9] = [
    "crc32c(",
    "crc32c_append(",
    "generation ==",
    "generation !=",
    "generation <",
    "generation >",
    "sequence !=",
    "sequence >",
    "(encode_tail_hint(seed",
];

/// The tests that must notice, the quick ones first.
const SUITES: &[&[&str]] = &[
    &["-p", "remanent-pmem", "--lib", "--test", "flips", "--test", "pool", "--test", "pool_private"],
    &["-p", "remanent-tests", "--test", "golden_pool", "--test", "interleavings", "--test", "foreign_bytes"],
    &["-p", "remanent-store"],
    &["-p", "remanent-tests", "--test", "crash_core", "a_"],
];

/// Runs the lane; each mutant counts as one test.
pub(super) fn run(workspace: &Workspace) -> Outcome {
    match prepare(workspace) {
        Ok(copy) => judge(&copy),
        Err(reason) => Outcome::Failed(Counts::ONE_FAILED, reason),
    }
}

fn judge(copy: &Workspace) -> Outcome {
    let mut findings = unlisted(copy);
    let mut counts = Counts { failed: findings.len() as u64, ..Counts::default() };
    for mutant in MUTANTS {
        match is_noticed(copy, mutant) {
            Ok(by) => {
                println!("mutants: {}: noticed by {by}", mutant.what);
                counts += Counts::ONE_PASSED;
            }
            Err(reason) => {
                println!("mutants: {}: {reason}", mutant.what);
                findings.push(format!("{} ({}): {reason}", mutant.what, mutant.path()));
                counts += Counts::ONE_FAILED;
            }
        }
    }
    if findings.is_empty() { Outcome::Done(counts) } else { Outcome::Failed(counts, findings.join("\n")) }
}

impl Mutant {
    fn path(&self) -> String {
        format!("crates/{}.rs", self.file)
    }
}

/// Copies the files that git knows to a place of their own, where only what differs is written, so that cargo builds
/// no more than it must, and what was moved or removed since is removed: cargo finds targets by their files.
fn prepare(workspace: &Workspace) -> Result<Workspace, String> {
    let root = workspace.target().join("mutants");
    let listed = workspace.command("git").args(["ls-files", "-z"]).output().map_err(|error| error.to_string())?;
    let is_there = |path: &Path| workspace.path(&path.to_string_lossy()).is_file();
    let copied = Workspace::copied(&root);
    for stale in copied.sources(&["rs", "toml"]).iter().filter(|name| !is_there(Path::new(name))) {
        fs::remove_file(root.join(stale)).map_err(|error| format!("{stale}: {error}"))?;
    }
    for name in listed.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = PathBuf::from(String::from_utf8_lossy(name).into_owned());
        let (from, to) = (workspace.path(&name.to_string_lossy()), root.join(&name));
        if from.is_file() {
            let content = fs::read(&from).map_err(|error| format!("{}: {error}", from.display()))?;
            write(&to, &content)?;
        }
    }
    Ok(copied)
}

fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    let folder = path.parent().expect("a file stands in a folder");
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, content));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// Lines that look like a check and stand in no table.
fn unlisted(workspace: &Workspace) -> Vec<String> {
    let mut found = Vec::new();
    let sources = workspace.sources(&["rs"]);
    for file in sources.iter().filter(|file| is_searched(file)) {
        let Ok(text) = workspace.read(file) else { continue };
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in (1..).zip(text.lines()) {
            let is_check = SIGNS.iter().any(|sign| line.contains(sign)) && !line.trim_start().starts_with("//");
            let is_mutated = || MUTANTS.iter().any(|m| m.path() == *file && line.contains(m.from.trim()));
            let is_argued = || ARGUED.iter().any(|(part, _)| line.contains(part));
            if is_check && !is_mutated() && !is_argued() {
                found.push(format!("{file}:{number}: a check without a mutant: {}", line.trim()));
            }
        }
    }
    found
}

fn is_searched(file: &str) -> bool {
    ["crates/pmem/src/", "crates/store/src/"].iter().any(|folder| file.starts_with(folder))
        && !file.ends_with("tests.rs")
}

/// Makes the mistake, runs the suites, and puts the file back. Tells which suite noticed.
fn is_noticed(copy: &Workspace, mutant: &Mutant) -> Result<String, String> {
    let path = copy.path(&mutant.path());
    let text = copy.read(&mutant.path())?;
    if text.matches(mutant.from).count() != 1 {
        return Err(format!("{:?} does not stand there once", mutant.from));
    }
    write(&path, text.replace(mutant.from, mutant.to).as_bytes())?;
    let noticed = noticing_suite(copy);
    write(&path, text.as_bytes())?;
    noticed
}

fn noticing_suite(copy: &Workspace) -> Result<String, String> {
    let mut build = copy.cargo();
    build.args(["build", "--locked", "--release", "-p", "remanent-pmem", "-p", "remanent-store"]);
    if !build.output().is_ok_and(|output| output.status.success()) {
        return Err("it does not compile".into());
    }
    for suite in SUITES {
        let mut command = copy.cargo();
        let output = command.args(["test", "--locked", "--release"]).args(*suite).output();
        let output = output.map_err(|error| format!("cargo does not start: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        // What does not compile has noticed nothing.
        if Counts::of_cargo_test(&said).failed > 0 {
            let failed = said.lines().find_map(|line| line.strip_suffix(" ... FAILED")).unwrap_or("test of a test");
            return Ok(failed.trim_start_matches("test ").to_owned());
        }
        if !output.status.success() {
            return Err(format!("its tests do not run: {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    Err("nothing notices it".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_mutant_or_an_argument() {
        let findings = unlisted(&Workspace::find());
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }

    #[test]
    fn every_mutant_still_stands_in_the_source_once() {
        let workspace = Workspace::find();
        for mutant in MUTANTS {
            let text = workspace.read(&mutant.path()).unwrap();
            assert_eq!(text.matches(mutant.from).count(), 1, "{}: {}", mutant.path(), mutant.from);
        }
    }
}
