//! Every flipped byte of the metadata is found, or changes nothing.

use std::path::Path;

use remanent_pmem::{
    ErrorCode, Heap, Layout, MIN_FILE_BYTES, Media, MediaFile, OpenMode, PartOptions, Pool, RedoBatch, RegionSpec,
    Severity, check,
};

const LAYOUT: Layout = Layout { name: "flips", version: 1 };

fn path() -> &'static Path {
    Path::new("/pools/flips")
}

/// What a user can see: every name with its description.
fn contents(pool: &Pool<Heap>) -> Vec<(String, Vec<u8>)> {
    let regions = pool.regions("").expect("the process has not forked");
    regions.iter().map(|region| (region.name().to_owned(), region.info().meta.clone())).collect()
}

fn commit(pool: &Pool<Heap>, name: &str, meta: &[u8]) {
    let add = vec![pool.reserve(100).expect("there is room")];
    let mut batch = RedoBatch::new();
    batch.put(name, RegionSpec { kind: 1, meta: meta.to_vec(), add, ..RegionSpec::default() });
    pool.commit(batch).expect("there is room");
}

/// A pool with a checkpoint, some commits after it, and a second part.
fn fill(media: &Heap) -> Pool<Heap> {
    fill_striped(media, &[])
}

/// The same with a first part that lies on further files too.
fn fill_striped(media: &Heap, more_files: &[&Path]) -> Pool<Heap> {
    let more_files = more_files.iter().map(|file| file.to_path_buf()).collect();
    let options = PartOptions { more_files, ..PartOptions::single(MIN_FILE_BYTES) };
    let pool = Pool::create(media.clone(), path(), LAYOUT, &options).expect("a new pool");
    for i in 0..5u8 {
        commit(&pool, &format!("name {i}"), &[i; 20]);
    }
    pool.compact().expect("there is room");
    pool.grow(None, &PartOptions::single(MIN_FILE_BYTES)).expect("a new part");
    for i in 0..4u8 {
        commit(&pool, &format!("name {}", i + 3), &[i + 100; 30]);
    }
    pool
}

/// Bytes of the first part that may hold metadata: head and data up to the last log byte that is not zero.
fn metadata(image: &[u8]) -> Vec<usize> {
    let spans = [0..4096 + 256, 8192..8200, (1 << 20)..(1 << 20) + 4096 + 256, (2 << 20)..(2 << 20) + (256 << 10)];
    spans.into_iter().flatten().filter(|&at| image[at] != 0 || at % 64 < 8).collect()
}

fn flip_everything(media: &Heap, file: &Path) -> (usize, usize) {
    let before = contents(&Pool::open(media.clone(), path(), Some(LAYOUT), OpenMode::Inspect).expect("it is whole"));
    let image = media.get(file).expect("the file is there");
    let handle = media.open(file, OpenMode::Writer).expect("the file is there");
    let (mut found, mut harmless) = (0, 0);
    for at in metadata(&image) {
        for flip in [0x01, 0x80, 0xFF] {
            handle.pwrite(at as u64, &[image[at] ^ flip]).expect("a byte of the file");
            match Pool::open(media.clone(), path(), Some(LAYOUT), OpenMode::Inspect) {
                Ok(pool) => {
                    assert_eq!(
                        contents(&pool),
                        before,
                        "byte {at} ^ {flip:#x} changed what is seen and nobody noticed"
                    );
                    harmless += 1;
                }
                Err(error) => {
                    assert_ne!(error.code(), ErrorCode::Io, "byte {at} ^ {flip:#x}: {error}");
                    found += 1;
                }
            }
            handle.pwrite(at as u64, &[image[at]]).expect("a byte of the file");
        }
    }
    (found, harmless)
}

#[test]
fn a_flipped_byte_of_a_closed_pool_is_found_or_changes_nothing() {
    let media = Heap::new();
    fill(&media).close().expect("it can be marked clean");
    let (found, harmless) = flip_everything(&media, path());
    println!("first part: {found} found, {harmless} harmless");
    assert!(found > 1000 && harmless > 1000);
    let (found, harmless) = flip_everything(&media, Path::new("/pools/flips.1"));
    println!("second part: {found} found, {harmless} harmless");
    assert_eq!(found, 0, "each superblock of a part is kept twice");
    assert!(harmless > 1000);
}

/// The tail hint proves the last commit, which nothing else proves in a pool that was not closed.
#[test]
fn a_flipped_byte_of_a_pool_in_use_is_found_or_changes_nothing() {
    let media = Heap::new();
    let pool = fill(&media);
    let (found, harmless) = flip_everything(&media, path());
    println!("in use: {found} found, {harmless} harmless");
    assert!(found > 1000 && harmless > 1000);
    drop(pool);
}

/// A writer repairs what one flip has damaged, or refuses and changes nothing.
#[test]
fn a_writer_repairs_a_superblock_or_refuses() {
    let media = Heap::new();
    fill(&media).close().expect("it can be marked clean");
    let image = media.get(path()).expect("the file is there");
    for at in (0..4352).step_by(61).chain((2 << 20..(2 << 20) + 600).step_by(17)) {
        let mut damaged = image.clone();
        damaged[at] ^= 0x10;
        media.put(path(), &damaged);
        match Pool::open(media.clone(), path(), Some(LAYOUT), OpenMode::Writer) {
            Ok(pool) => pool.close().expect("it can be marked clean"),
            Err(_) => assert_eq!(media.get(path()).as_deref(), Some(&damaged[..]), "byte {at}: refused, but changed"),
        }
        media.put(path(), &image);
    }
}

/// Each copy of a further member's superblock is covered by the other one, and the next writer makes both whole.
#[test]
fn a_writer_mends_the_superblocks_of_every_member_of_a_stripe() {
    let media = Heap::new();
    let member = Path::new("/other/member");
    fill_striped(&media, &[member]).close().expect("it can be marked clean");
    let (found, harmless) = flip_everything(&media, member);
    assert_eq!(found, 0, "a member's superblock is kept twice");
    assert!(harmless > 1000);
    let image = media.get(member).expect("the file is there");
    for copy in [0, 1 << 20] {
        let mut damaged = image.clone();
        damaged[copy + 40] ^= 0x10;
        media.put(member, &damaged);
        let report = check(&media, path(), |_| {}).expect("there is a pool");
        assert_eq!(report.worst(), Some(Severity::Repairable), "{:?}", report.findings);
        let pool = Pool::open(media.clone(), path(), Some(LAYOUT), OpenMode::Writer).expect("one copy is whole");
        pool.close().expect("it can be marked clean");
        assert!(media.get(member).as_deref() == Some(&image[..]), "the copy at byte {copy} is not mended");
        let report = check(&media, path(), |_| {}).expect("there is a pool");
        assert!(report.worst().is_none(), "{:?}", report.findings);
    }
}
