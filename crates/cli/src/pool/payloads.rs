//! The objects of a store beside their checksums.
//!
//! The pool is only inspected: no lock keeps a writer from reusing the space of an object that it has replaced
//! meanwhile. So bytes that differ are damage only if the newest catalogue still has the same version of the object;
//! otherwise the newer version is looked at.

use std::path::Path;

use pmem::{CheckReport, ErrorCode, Mapped, Media, OpenMode, Severity};
use store::{Error, LAYOUT, ObjectView, Store};

use crate::failure::Failure;

/// A writer may replace an object during each look at it, but hardly during three.
const LOOKS_BESIDE_A_WRITER: usize = 3;

/// What became of all objects.
#[derive(Debug, Default)]
pub(super) struct Payloads {
    /// Objects whose bytes are what their checksums say.
    pub(super) matching: usize,
    pub(super) without_checksum: usize,
    /// Objects that a writer replaced, renamed or removed while they were looked at.
    pub(super) changed_meanwhile: usize,
    pub(super) findings: Vec<ObjectFinding>,
}

impl Payloads {
    /// How many objects were compared with their checksums, whatever came of it.
    pub(super) fn compared(&self) -> usize {
        let differing = self.findings.iter().filter(|finding| finding.error == ErrorCode::ChecksumMismatch).count();
        self.matching + differing
    }
}

/// Something about one object.
#[derive(Debug)]
pub(super) struct ObjectFinding {
    pub(super) severity: Severity,
    pub(super) name: String,
    pub(super) error: ErrorCode,
    pub(super) message: String,
}

/// What became of one object.
enum Compared {
    Matching,
    WithoutChecksum,
    ChangedMeanwhile,
}

/// Compares the objects of a pool that the core has checked. None when it is no store of this version, or so damaged
/// that it cannot be opened; the core's report says which.
pub(super) fn compare_pool(path: &Path, report: &CheckReport) -> Result<Option<Payloads>, Failure> {
    let layout = (report.layout.0.as_str(), report.layout.1);
    if layout != (LAYOUT.name, LAYOUT.version) || report.names.is_none() {
        return Ok(None);
    }
    match Store::open(Mapped::new(), path, OpenMode::Inspect) {
        Err(_) if report.worst() == Some(Severity::Damage) => Ok(None),
        store => Ok(Some(compare_all(&store?, report)?)),
    }
}

fn compare_all<M: Media>(store: &Store<M>, report: &CheckReport) -> store::Result<Payloads> {
    let mut payloads = Payloads::default();
    for name in store.names()? {
        match compare(store, &name) {
            Ok(Compared::Matching) => payloads.matching += 1,
            Ok(Compared::WithoutChecksum) => payloads.without_checksum += 1,
            Ok(Compared::ChangedMeanwhile) => payloads.changed_meanwhile += 1,
            Err(error) if is_known(report, error.code()) => {}
            Err(error) => payloads.findings.push(finding(name, &error)),
        }
    }
    Ok(payloads)
}

/// The core has read every byte in use before; what it could not read is in its report.
fn is_known(report: &CheckReport, code: ErrorCode) -> bool {
    matches!(code, ErrorCode::BadBlock | ErrorCode::Truncated)
        && report.findings.iter().any(|finding| finding.error == Some(code))
}

fn finding(name: String, error: &Error) -> ObjectFinding {
    // What only a newer version understands is no damage.
    let severity = if error.code() == ErrorCode::UnknownType { Severity::Note } else { Severity::Damage };
    ObjectFinding { severity, name, error: error.code(), message: error.to_string() }
}

fn compare<M: Media>(store: &Store<M>, name: &str) -> store::Result<Compared> {
    for _ in 0..LOOKS_BESIDE_A_WRITER {
        let Some(view) = find(store, name)? else { break };
        match view.verify() {
            Ok(true) => return Ok(Compared::Matching),
            Ok(false) => return Ok(Compared::WithoutChecksum),
            Err(error) => {
                store.refresh()?;
                if find(store, name)?.is_some_and(|now| now.born() == view.born()) {
                    return Err(error);
                }
            }
        }
    }
    Ok(Compared::ChangedMeanwhile)
}

fn find<M: Media>(store: &Store<M>, name: &str) -> store::Result<Option<ObjectView<M>>> {
    match store.get(name) {
        Err(error) if error.code() == ErrorCode::NoSuchName => Ok(None),
        view => view.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use pmem::{Heap, PartOptions};
    use store::{Checksums, Object, PersistOptions};

    use super::*;

    const LEN: usize = 3 << 20;

    /// A store with room for two versions of its object, and somebody who inspects it.
    fn store_and_inspector() -> (Store<Heap>, Store<Heap>) {
        let (heap, path) = (Heap::new(), Path::new("/p"));
        let store = Store::create(heap.clone(), path, &PartOptions::single(12 << 20)).unwrap();
        persist(&store, 1);
        let inspector = Store::open(heap, path, OpenMode::Inspect).unwrap();
        (store, inspector)
    }

    fn persist(store: &Store<Heap>, value: u8) {
        let options = PersistOptions { checksums: Checksums::Crc32c, ..PersistOptions::default() };
        store.persist(&[("a", Object::bytes(&vec![value; LEN]))], &options).unwrap();
    }

    #[test]
    fn space_that_was_reused_meanwhile_is_no_damage() {
        let (store, inspector) = store_and_inspector();
        let old = inspector.get("a").unwrap();
        for value in 2..6 {
            persist(&store, value);
        }
        assert!(old.verify().is_err(), "its bytes were not replaced, and the test shows nothing");
        assert!(matches!(compare(&inspector, "a"), Ok(Compared::Matching)));
    }

    #[test]
    fn an_object_that_was_removed_meanwhile_is_no_damage() {
        let (store, inspector) = store_and_inspector();
        store.remove("a").unwrap();
        let other = vec![9; LEN];
        for _ in 0..4 {
            store.persist(&[("b", Object::bytes(&other))], &PersistOptions::default()).unwrap();
        }
        assert!(inspector.get("a").unwrap().verify().is_err(), "its bytes were not replaced");
        assert!(matches!(compare(&inspector, "a"), Ok(Compared::ChangedMeanwhile)));
    }

    #[test]
    fn bytes_that_differ_are_damage() {
        let (store, inspector) = store_and_inspector();
        let region = store.pool().region("a").unwrap();
        let at = region.info().extents[0].offset;
        store.pool().set().store_bytes(at.plus(1000), &[77]);
        let error = compare(&inspector, "a").err().unwrap();
        assert_eq!(error.code(), ErrorCode::ChecksumMismatch);
        assert_eq!(finding("a".into(), &error).severity, Severity::Damage);
    }
}
