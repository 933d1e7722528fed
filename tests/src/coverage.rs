//! Whether the campaigns reach every call of the seam in the source.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crash::Report;

/// A line of the source: file, from the workspace's root, and number.
pub type Line = (String, usize);

/// Where the durable protocols are. The product crates come in with their campaigns.
const FOLDERS: [&str; 3] = ["crates/bench/src/join", "crates/pmem/src", "crates/store/src"];

/// What implements the seam or hands it on: sites are those of its callers.
const THE_SEAM_ITSELF: [&str; 5] = ["heap.rs", "mapped.rs", "media.rs", "modelled.rs", "set.rs"];

/// What no campaign can reach, by the text of the line, and why.
const OUT_OF_REACH: [(&str, &str); 4] = [
    (
        "media.fence(); // its own stores, which the caller's fence does not order",
        "a campaign has no copies by several threads: no seed would say which of them copies what",
    ),
    (
        "media.remove(path)?; // a pool that nobody opens again",
        "a measured join's pool, of which nothing is to be left",
    ),
    ("media.create(path, len_bytes)?;", "on devices, which a simulated machine has none of"),
    ("member.fence(&mut pending)?;", "mends a damaged copy, which is no crash's work; tests of flipped bytes reach it"),
];

/// Calls on a pool's address space, a mapping or a file.
const CALLS: [&str; 11] = [
    ".cas_u64(",
    ".flush(",
    ".flush_adopted(",
    ".fsync(",
    ".nt_copy(",
    ".pwrite(",
    ".store_bytes(",
    ".store_u64(",
    ".sync_dir(",
    ".sync_range(",
    "set.persist(",
];

/// Calls whose names others have too, with what they are called on.
const NAMED: [&str; 6] =
    ["media.create(", "media.remove(", "media.rename(", "media.fence(", "set.fence(", "member.fence("];

/// The lines that a campaign has reached.
pub fn reached(report: &Report) -> impl Iterator<Item = Line> + '_ {
    report.sites().into_iter().map(|(_, site)| (site.file().to_owned(), site.line() as usize))
}

/// Every line of the source with a call of the seam.
///
/// # Panics
/// If the source cannot be read.
pub fn seam_calls() -> BTreeSet<Line> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(root.join(folder)).expect("a folder of the source") {
            let name = entry.expect("an entry").file_name().into_string().expect("a plain name");
            if name.ends_with(".rs") && !THE_SEAM_ITSELF.contains(&&*name) {
                let file = format!("{folder}/{name}");
                let text = fs::read_to_string(root.join(&file)).expect("a source file");
                found.extend(calls_in(&text).map(|number| (file.clone(), number)));
            }
        }
    }
    found
}

/// The numbers of the lines, outside unit tests, that call.
fn calls_in(text: &str) -> impl Iterator<Item = usize> + '_ {
    let product = text.lines().take_while(|line| *line != "#[cfg(test)]");
    let is_call = |line: &str| {
        let line = line.trim();
        let is_code = !line.starts_with("//") && !OUT_OF_REACH.iter().any(|(text, _)| line == *text);
        is_code && CALLS.iter().chain(&NAMED).any(|call| line.contains(call))
    };
    (1..).zip(product).filter(move |(_, line)| is_call(line)).map(|(number, _)| number)
}

/// The text of a line.
///
/// # Panics
/// If there is none.
pub fn text_of((file, number): &Line) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let text = fs::read_to_string(path).expect("a file of this workspace");
    text.lines().nth(number - 1).expect("a line of the file").trim().to_owned()
}
