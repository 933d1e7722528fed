//! Checking and removing pools, damaged byte by byte, on the heap.

use std::path::{Path, PathBuf};

use remanent_pmem::{
    CheckReport, Error, ErrorCode, Heap, Layout, MIN_FILE_BYTES, Media, MediaFile, OpenMode, PartOptions, Pool,
    RedoBatch, RegionSpec, Removal, Severity, check, remove_pool,
};

const LAYOUT: Layout = Layout { name: "test", version: 1 };
/// Where the format has its copies: the table in `format.rs`.
const SUPERBLOCK_AT: [u64; 2] = [0, 1 << 20];
const ROOT_AT: [u64; 2] = [4096, (1 << 20) + 4096];
const TAIL_HINT_AT: u64 = 8192;
const LOG_AT: u64 = 2 << 20;

fn path() -> PathBuf {
    PathBuf::from("/pools/a")
}

fn put(pool: &Pool<Heap>, name: &str, content: &[u8]) {
    let reservation = pool.reserve(content.len() as u64).unwrap();
    let at = reservation.extent().offset;
    pool.set().store_bytes(at, content);
    pool.set().persist(at, content.len() as u64).unwrap();
    let mut batch = RedoBatch::new();
    batch.put(name, RegionSpec { kind: 7, add: vec![reservation], ..RegionSpec::default() });
    pool.commit(batch).unwrap();
}

/// A pool with some names, closed in order.
fn pool_with_names() -> Heap {
    let media = Heap::new();
    let pool = Pool::create(media.clone(), &path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).unwrap();
    put(&pool, "a", &[1; 100]);
    put(&pool, "b", &[2; 5000]);
    pool.close().unwrap();
    media
}

/// A pool of three parts, the last one striped.
fn pool_of_parts() -> Heap {
    let media = pool_with_names();
    let pool = Pool::open(media.clone(), &path(), Some(LAYOUT), OpenMode::Writer).unwrap();
    pool.grow(None, &PartOptions::single(MIN_FILE_BYTES)).unwrap();
    let striped =
        PartOptions { file_bytes: MIN_FILE_BYTES, more_files: vec!["/other/device".into()], chunk_bytes: 2 << 20 };
    pool.grow(Some(Path::new("/pools/striped")), &striped).unwrap();
    put(&pool, "large", &[3; 3 << 20]);
    pool.close().unwrap();
    media
}

fn report(media: &Heap) -> CheckReport {
    check(media, &path(), |_| {}).unwrap()
}

fn flip(media: &Heap, path: &Path, at: u64) {
    let file = media.open(path, OpenMode::Writer).unwrap();
    let mut byte = [0];
    file.pread(at, &mut byte).unwrap();
    file.pwrite(at, &[byte[0] ^ 0x10]).unwrap();
}

fn opens(media: &Heap) -> Result<(), Error> {
    Pool::open(media.clone(), &path(), Some(LAYOUT), OpenMode::Inspect).map(drop)
}

#[test]
fn a_whole_pool_has_no_findings() {
    let media = pool_of_parts();
    let mut last = None;
    let report = check(&media, &path(), |progress| last = Some(progress)).unwrap();
    assert_eq!(report.findings, []);
    assert_eq!((report.names, report.files.len(), report.is_clean), (Some(3), 4, true));
    let last = last.unwrap();
    assert_eq!((last.done_bytes, report.read_bytes), (last.total_bytes, last.total_bytes));
}

/// Every byte that a checksum covers, in both copies: found, judged as the opener judges, and the file left alone.
#[test]
fn every_flipped_byte_of_the_metadata_is_found() {
    let media = pool_with_names();
    let before = media.get(&path()).unwrap();
    let log_bytes = 3 * 256;
    let places = SUPERBLOCK_AT.map(|at| (at, 4092)).into_iter().chain(ROOT_AT.map(|at| (at, 252)));
    let places = places.chain([(TAIL_HINT_AT, 8), (LOG_AT, log_bytes)]);
    let mut damaged = 0;
    for at in places.flat_map(|(start, len)| start..start + len) {
        flip(&media, &path(), at);
        let report = report(&media);
        let opened = opens(&media);
        match report.worst() {
            Some(Severity::Damage) => {
                damaged += 1;
                assert_eq!(report.findings.last().unwrap().error, opened.err().map(|e| e.code()), "byte {at}");
            }
            Some(Severity::Repairable) => assert!(opened.is_ok(), "byte {at}: {opened:?}"),
            // Padding between batches belongs to nobody.
            worst => assert!(worst.is_none() && at > LOG_AT && opened.is_ok(), "byte {at}: {:?}", report.findings),
        }
        flip(&media, &path(), at);
    }
    assert!(damaged > 200, "only {damaged} flips were damage");
    assert_eq!(media.get(&path()).unwrap(), before);
}

#[test]
fn a_damaged_copy_is_mended_by_the_next_writer() {
    for at in [SUPERBLOCK_AT[0], SUPERBLOCK_AT[1], ROOT_AT[0], ROOT_AT[1]] {
        let media = pool_with_names();
        flip(&media, &path(), at + 17);
        let found = report(&media).findings;
        assert_eq!((found.len(), found[0].severity, found[0].offset_bytes), (1, Severity::Repairable, Some(at)));
        Pool::open(media.clone(), &path(), Some(LAYOUT), OpenMode::Writer).unwrap().close().unwrap();
        assert_eq!(report(&media).findings, [], "byte {at}");
    }
}

#[test]
fn a_damaged_copy_in_a_stripe_member_loses_nothing() {
    let (media, member) = (pool_of_parts(), PathBuf::from("/other/device"));
    flip(&media, &member, SUPERBLOCK_AT[1] + 17);
    let found = report(&media).findings;
    let got = (found.len(), found[0].severity, &found[0].path, found[0].offset_bytes);
    assert_eq!(got, (1, Severity::Repairable, &member, Some(SUPERBLOCK_AT[1])));
    opens(&media).unwrap();
    flip(&media, &member, SUPERBLOCK_AT[0] + 17);
    let found = report(&media).findings;
    assert_eq!((found[0].severity, found[0].error), (Severity::Damage, Some(ErrorCode::SuperblockLost)));
    assert_eq!(opens(&media).unwrap_err().code(), ErrorCode::SuperblockLost);
}

#[test]
fn both_copies_damaged_is_damage() {
    for (places, code) in [(SUPERBLOCK_AT, ErrorCode::SuperblockLost), (ROOT_AT, ErrorCode::Corrupt)] {
        let media = pool_with_names();
        places.iter().for_each(|at| flip(&media, &path(), at + 17));
        let found = report(&media).findings;
        assert_eq!((found[0].severity, found[0].error), (Severity::Damage, Some(code)));
    }
}

#[test]
fn parts_that_are_missing_foreign_or_short_are_damage() {
    let part = PathBuf::from("/pools/a.1");
    let (whole, other) = (pool_of_parts(), pool_of_parts());
    let short = whole.get(&part).unwrap()[..(2 << 20)].to_vec();
    type Deed = Box<dyn Fn(&Heap)>;
    let deeds: [(Deed, ErrorCode); 4] = [
        (Box::new(|m| m.remove(Path::new("/pools/a.1")).unwrap()), ErrorCode::MissingPart),
        (Box::new(|m| m.remove(Path::new("/other/device")).unwrap()), ErrorCode::MissingPart),
        (Box::new(move |m| m.put(Path::new("/pools/a.1"), &other_head(&other))), ErrorCode::ForeignPart),
        (Box::new(move |m| m.put(Path::new("/pools/a.1"), &short)), ErrorCode::Truncated),
    ];
    for (deed, code) in deeds {
        let media = pool_of_parts();
        deed(&media);
        let report = report(&media);
        let damage: Vec<_> = report.findings.iter().filter(|f| f.severity == Severity::Damage).collect();
        assert_eq!(damage.iter().map(|f| f.error).collect::<Vec<_>>(), [Some(code)], "{:?}", report.findings);
        assert_eq!(opens(&media).unwrap_err().code(), code);
    }
}

/// The first file of another pool.
fn other_head(other: &Heap) -> Vec<u8> {
    let fresh = Heap::new();
    fresh.new_uuid();
    Pool::create(fresh.clone(), &path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).unwrap();
    assert_ne!(fresh.get(&path()), other.get(&path()));
    fresh.get(&path()).unwrap()
}

#[test]
fn what_is_no_pool_is_an_error_and_not_a_report() {
    let media = Heap::new();
    assert!(matches!(check(&media, &path(), |_| {}), Err(Error::NotFound { .. })));
    media.put(&path(), &[7; 8192]);
    assert!(matches!(check(&media, &path(), |_| {}), Err(Error::NotAPool { .. })));
    let media = pool_of_parts();
    assert!(matches!(check(&media, Path::new("/pools/a.1"), |_| {}), Err(Error::NotFirstPart { index: 1, .. })));
}

#[test]
fn a_pool_in_use_can_be_checked_and_says_so() {
    let media = pool_with_names();
    let writer = Pool::open(media.clone(), &path(), Some(LAYOUT), OpenMode::Writer).unwrap();
    put(&writer, "c", &[3; 64]);
    let report = report(&media);
    assert!(report.has_writer && !report.is_clean);
    assert_eq!((report.worst(), report.names), (Some(Severity::Note), Some(3)));
    assert!(writer.info().has_writer && !writer.info().is_clean);
}

#[test]
fn leftovers_beside_a_pool_are_named() {
    let media = pool_with_names();
    let head = media.get(&path()).unwrap();
    media.put(Path::new("/pools/a.remanent-creating"), &head);
    media.put(Path::new("/pools/a.1.remanent-creating"), b"anything");
    media.put(Path::new("/pools/a.1"), &head);
    let found = report(&media).findings;
    let severities: Vec<_> = found.iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [Severity::Note, Severity::Repairable, Severity::Note], "{found:?}");
}

#[test]
fn removal_takes_every_file_of_the_set_and_no_other() {
    let media = pool_of_parts();
    let bystander = Path::new("/pools/a.3");
    media.put(bystander, &[1; 64]);
    let removed = remove_pool(media.clone(), &path()).unwrap();
    assert_eq!(removed, ["/pools/a", "/pools/a.1", "/pools/striped", "/other/device"].map(PathBuf::from));
    assert!(removed.iter().all(|file| media.get(file).is_none()));
    assert!(media.get(bystander).is_some());
}

#[test]
fn removal_spares_what_is_not_the_pools() {
    let media = pool_of_parts();
    media.put(Path::new("/pools/striped"), &[9; 8192]);
    let removal = Removal::plan(media.clone(), &path()).unwrap();
    assert_eq!(removal.spared().iter().map(Error::code).collect::<Vec<_>>(), [ErrorCode::NotAPool]);
    assert_eq!(removal.run().unwrap().len(), 2);
    assert!(media.get(Path::new("/pools/striped")).is_some());
}

#[test]
fn removal_is_refused_while_a_writer_or_nothing_is_there() {
    let media = pool_with_names();
    let writer = Pool::open(media.clone(), &path(), Some(LAYOUT), OpenMode::Writer).unwrap();
    assert!(matches!(remove_pool(media.clone(), &path()), Err(Error::PoolBusy { .. })));
    drop(writer);
    media.put(Path::new("/pools/text"), &[b'x'; 8192]);
    assert!(matches!(remove_pool(media.clone(), Path::new("/pools/text")), Err(Error::NotAPool { .. })));
    assert!(media.get(Path::new("/pools/text")).is_some() && media.get(&path()).is_some());
}

#[test]
fn a_planned_removal_keeps_writers_out_and_does_nothing_when_dropped() {
    let media = pool_with_names();
    let removal = Removal::plan(media.clone(), &path()).unwrap();
    let writer = Pool::open(media.clone(), &path(), Some(LAYOUT), OpenMode::Writer);
    assert!(matches!(writer.err(), Some(Error::PoolBusy { .. })));
    assert_eq!(removal.files().collect::<Vec<_>>(), [path()]);
    drop(removal);
    assert_eq!(report(&media).findings, []);
}

#[test]
fn a_file_that_was_exchanged_after_planning_is_not_removed() {
    let media = pool_of_parts();
    let removal = Removal::plan(media.clone(), &path()).unwrap();
    media.put(Path::new("/pools/striped"), &[9; 8192]);
    assert!(removal.run().is_err());
    assert!(media.get(Path::new("/pools/striped")).is_some() && media.get(&path()).is_some());
}
