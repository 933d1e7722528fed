//! The files of a run and of a calibration: nobody else's is written over, and each is whole or not there.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use bench::results;
use serde_json::Value;

use crate::failure::Failure;

/// Refuses a folder in which somebody else has a file where results go.
pub(super) fn results_are_ours(folder: &Path) -> Result<(), Failure> {
    let results = folder.join("results.json");
    if results.exists() && schema_of(&results).is_none_or(|schema| schema != results::SCHEMA) {
        return Err(foreign(&results));
    }
    let csv = folder.join("results.csv");
    if csv.exists() && !starts_with(&csv, "measure,") {
        return Err(foreign(&csv));
    }
    page_is_ours(&folder.join("report.html"))
}

/// What a file of JSON says of its form.
fn schema_of(path: &Path) -> Option<Value> {
    let value: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    value.get("schema").cloned()
}

/// Refuses a file that is no page of a run.
pub(super) fn page_is_ours(path: &Path) -> Result<(), Failure> {
    if path.exists() && !starts_with(path, bench::page::START) { Err(foreign(path)) } else { Ok(()) }
}

fn starts_with(path: &Path, start: &str) -> bool {
    let mut found = vec![0; start.len()];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut found)).is_ok() && found == start.as_bytes()
}

fn foreign(path: &Path) -> Failure {
    Failure::Usage(format!("{} is there, and no file of a run: it is not written over", path.display()))
}

/// Writes a file whole or not at all, in place of one that is there.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = written_beside(path, text)?.persist(path);
    written.map(drop).map_err(|error| Failure::io("write", path, error.error))
}

/// The same of a file that must not be there.
pub(super) fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let written = written_beside(path, text)?.persist_noclobber(path);
    written.map(drop).map_err(|error| Failure::io("write", path, error.error))
}

/// Refuses a new file that is there, or whose folder takes none: before minutes of measuring, at whose end it is written.
pub(super) fn can_be_made(path: &Path) -> Result<(), Failure> {
    match path.symlink_metadata() {
        Ok(_) => Err(Failure::io("create", path, std::io::ErrorKind::AlreadyExists.into())),
        Err(_) => written_beside(path, "").map(drop),
    }
}

/// A file that is not at its place yet, and goes away where it never comes there.
fn written_beside(path: &Path, text: &str) -> Result<tempfile::NamedTempFile, Failure> {
    let failed = |error| Failure::io("write", path, error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file =
        tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o644)).tempfile_in(folder).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_replaces_none_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.json");
        can_be_made(&path).ok().unwrap();
        fs::write(&path, "mine").unwrap();
        for refused in [can_be_made(&path), write_new(&path, "ours")] {
            assert_eq!(refused.err().unwrap().code(), "already-exists");
        }
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        fs::remove_file(&path).unwrap();
        write_new(&path, "ours").ok().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ours");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let nowhere = folder.path().join("none/p.json");
        assert_eq!(can_be_made(&nowhere).err().unwrap().code(), "not-found");
    }
}
