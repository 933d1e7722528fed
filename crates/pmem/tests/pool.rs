//! Pools through the public API, on the heap.

use std::path::{Path, PathBuf};

use remanent_pmem::{
    Error, Extent, Heap, Layout, MIN_FILE_BYTES, OpenMode, PartOptions, Pool, RedoBatch, RegionSpec, Touch,
};

const LAYOUT: Layout = Layout { name: "test", version: 1 };

fn path() -> PathBuf {
    PathBuf::from("/pools/a")
}

fn create(media: &Heap) -> Pool<Heap> {
    Pool::create(media.clone(), &path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).unwrap()
}

fn open(media: &Heap, mode: OpenMode) -> Pool<Heap> {
    Pool::open(media.clone(), &path(), Some(LAYOUT), mode).unwrap()
}

/// Reserves, fills and commits one name.
fn put(pool: &Pool<Heap>, name: &str, content: &[u8]) -> Result<u64, Error> {
    let reservation = pool.reserve(content.len() as u64)?;
    let at = reservation.extent().offset;
    pool.set().guard(at, content.len() as u64, Touch::Store)?;
    pool.set().store_bytes(at, content);
    pool.set().persist(at, content.len() as u64)?;
    let mut batch = RedoBatch::new();
    let meta = (content.len() as u64).to_le_bytes().to_vec();
    batch.put(name, RegionSpec { kind: 7, meta, add: vec![reservation], ..RegionSpec::default() });
    Ok(pool.commit(batch)?.generation)
}

fn get(pool: &Pool<Heap>, name: &str) -> Vec<u8> {
    let region = pool.region(name).unwrap();
    let mut content = vec![0; u64::from_le_bytes(region.info().meta[..].try_into().unwrap()) as usize];
    region.load_bytes(0, 0, &mut content);
    content
}

fn remove(pool: &Pool<Heap>, name: &str) {
    let mut batch = RedoBatch::new();
    batch.remove(name);
    pool.commit(batch).unwrap();
}

#[test]
fn what_was_committed_is_there_after_reopening() {
    let media = Heap::new();
    let pool = create(&media);
    put(&pool, "a", b"first").unwrap();
    put(&pool, "b", &[7; 5000]).unwrap();
    put(&pool, "a", b"second").unwrap();
    pool.close().unwrap();
    for mode in [OpenMode::Reader, OpenMode::Inspect, OpenMode::Writer] {
        let pool = open(&media, mode);
        assert_eq!(get(&pool, "a"), b"second");
        assert_eq!(get(&pool, "b"), [7; 5000]);
        assert_eq!(pool.generation(), 4);
        assert_eq!(pool.regions("").unwrap().len(), 2);
    }
}

#[test]
fn thousands_of_commits_compact_the_log_and_leak_nothing() {
    let media = Heap::new();
    let pool = create(&media);
    let before = pool.info().free_bytes;
    for round in 0..3000u32 {
        put(&pool, &format!("name {}", round % 50), &round.to_le_bytes()).unwrap();
    }
    for round in 2950..3000u32 {
        assert_eq!(get(&pool, &format!("name {}", round % 50)), round.to_le_bytes());
        remove(&pool, &format!("name {}", round % 50));
    }
    drop(pool);
    let pool = open(&media, OpenMode::Writer);
    assert_eq!(pool.info().names, 0);
    assert_eq!(pool.info().free_bytes, before);
}

#[test]
fn a_full_pool_says_so_and_can_still_remove() {
    let media = Heap::new();
    let pool = create(&media);
    let mut names = 0;
    let error = loop {
        match put(&pool, &format!("n{names:05}"), &[1; 64]) {
            Ok(_) => names += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::PoolFull { .. }), "{error}");
    assert!(names > 6_000, "{names} names of 64 bytes in 2 MiB");
    for name in 0..names {
        remove(&pool, &format!("n{name:05}"));
    }
    put(&pool, "again", &[2; 1 << 20]).unwrap();
}

#[test]
fn a_reader_keeps_its_generation_and_its_bytes_until_it_refreshes() {
    let media = Heap::new();
    let writer = create(&media);
    put(&writer, "a", &[1; 1 << 20]).unwrap();
    let reader = open(&media, OpenMode::Reader);
    let view = reader.region("a").unwrap();
    remove(&writer, "a");
    // The megabyte is retired, not free: two do not fit.
    assert!(matches!(put(&writer, "b", &[2; 3 << 19]), Err(Error::PoolFull { .. })));
    assert_eq!(get(&reader, "a"), [1; 1 << 20]);
    reader.refresh().unwrap();
    assert!(matches!(reader.region("a"), Err(Error::NoSuchName { .. })));
    assert!(matches!(put(&writer, "b", &[2; 3 << 19]), Err(Error::PoolFull { .. })), "the view still pins");
    drop(view);
    drop(reader);
    put(&writer, "b", &[2; 3 << 19]).unwrap();
}

#[test]
fn a_view_that_outlives_its_writer_holds_off_the_next_one() {
    let media = Heap::new();
    let writer = create(&media);
    put(&writer, "a", &[1; 1 << 20]).unwrap();
    let view = writer.region("a").unwrap();
    writer.close().unwrap();
    let next = open(&media, OpenMode::Writer);
    remove(&next, "a");
    assert!(matches!(put(&next, "b", &[2; 3 << 19]), Err(Error::PoolFull { .. })));
    // Also across a restart of the writer, whose memory of what it retired is gone.
    drop(next);
    let next = open(&media, OpenMode::Writer);
    assert!(matches!(put(&next, "b", &[2; 3 << 19]), Err(Error::PoolFull { .. })));
    let mut content = vec![0; 1 << 20];
    view.load_bytes(0, 0, &mut content);
    assert_eq!(content, [1; 1 << 20]);
    drop(view);
    put(&next, "b", &[2; 3 << 19]).unwrap();
}

#[test]
fn a_second_writer_is_refused_and_readers_cannot_write() {
    let media = Heap::new();
    let writer = create(&media);
    let second = Pool::open(media.clone(), &path(), Some(LAYOUT), OpenMode::Writer);
    assert!(matches!(second.err(), Some(Error::PoolBusy { .. })));
    let reader = open(&media, OpenMode::Reader);
    assert!(matches!(reader.reserve(64), Err(Error::NotWritable { .. })));
    writer.close().unwrap();
    open(&media, OpenMode::Writer);
}

#[test]
fn bad_edits_change_nothing_and_give_their_space_back() {
    let media = Heap::new();
    let pool = create(&media);
    put(&pool, "a", b"kept").unwrap();
    let (generation, free) = (pool.generation(), pool.info().free_bytes);
    let long = "x".repeat(1025);
    for name in ["", "tab\t", &long] {
        assert!(matches!(put(&pool, name, b"x"), Err(Error::BadName { .. })), "{name:?}");
    }
    let mut batch = RedoBatch::new();
    batch.put("b", RegionSpec::default()).remove("missing");
    assert!(matches!(pool.commit(batch), Err(Error::NoSuchName { .. })));
    let mut batch = RedoBatch::new();
    batch.put("b", RegionSpec::default()).remove("b");
    assert!(matches!(pool.commit(batch), Err(Error::BadName { .. })));
    let mut batch = RedoBatch::new();
    batch.put("b", RegionSpec { meta: vec![0; (1 << 20) + 1], ..RegionSpec::default() });
    assert!(matches!(pool.commit(batch), Err(Error::TooLarge { .. })));
    assert!(matches!(pool.commit(RedoBatch::new()), Err(Error::BadName { .. })));
    assert_eq!((pool.generation(), pool.info().free_bytes), (generation, free));
}

#[test]
fn a_pool_grows_by_linked_files_and_opens_again() {
    let media = Heap::new();
    let pool = create(&media);
    let reader = open(&media, OpenMode::Reader);
    assert!(put(&pool, "large", &[3; 3 << 20]).is_err());
    pool.grow(None, &PartOptions::single(8 << 20)).unwrap();
    let striped = PartOptions { file_bytes: 8 << 20, more_files: vec!["/other/device".into()], chunk_bytes: 2 << 20 };
    pool.grow(Some(Path::new("/pools/striped")), &striped).unwrap();
    put(&pool, "large", &[3; 3 << 20]).unwrap();
    put(&pool, "larger", &[4; 9 << 20]).unwrap();
    reader.refresh().unwrap();
    assert_eq!(get(&reader, "larger"), vec![4; 9 << 20]);
    drop(pool);
    let pool = open(&media, OpenMode::Writer);
    assert_eq!(get(&pool, "large"), vec![3; 3 << 20]);
    assert_eq!(get(&pool, "larger"), vec![4; 9 << 20]);
    let files: Vec<usize> = pool.info().parts.iter().map(|part| part.files.len()).collect();
    assert_eq!(files, [1, 1, 2]);
    assert_eq!(pool.info().total_bytes, (4 + 8 + 2 + 12) << 20);
}

#[test]
fn extents_can_be_kept_and_added_to() {
    let media = Heap::new();
    let pool = create(&media);
    put(&pool, "log", &[1; 64]).unwrap();
    let first = pool.region("log").unwrap().info().extents[0];
    let more = pool.reserve(64).unwrap();
    let mut batch = RedoBatch::new();
    batch.put("log", RegionSpec { keep: vec![first], add: vec![more], ..RegionSpec::default() });
    let committed = pool.commit(batch).unwrap();
    let extents = pool.region("log").unwrap().info().extents.clone();
    assert_eq!(extents, [first, committed.published[0].extent()]);
    assert_eq!(pool.info().retired_bytes, 0);
    let mut batch = RedoBatch::new();
    let stray = Extent { offset: first.offset.plus(4096), len_bytes: 64 };
    batch.put("log", RegionSpec { keep: vec![stray], ..RegionSpec::default() });
    assert!(pool.commit(batch).is_err());
}

#[test]
fn an_extent_moves_once_and_only_from_a_name_that_goes() {
    let media = Heap::new();
    let pool = create(&media);
    put(&pool, "a", b"moves").unwrap();
    let (info, free) = (pool.region("a").unwrap().info().clone(), pool.info().free_bytes);
    let spec = || RegionSpec { kind: 7, meta: info.meta.clone(), keep: info.extents.clone(), ..RegionSpec::default() };
    let mut stays = RedoBatch::new();
    stays.put("b", spec());
    let mut twice = RedoBatch::new();
    twice.remove("a").put("b", spec()).put("c", spec());
    for refused in [stays, twice] {
        assert!(matches!(pool.commit(refused), Err(Error::BadName { .. })));
    }
    let mut batch = RedoBatch::new();
    batch.remove("a").put("b", spec());
    pool.commit(batch).unwrap();
    let holds = |pool: &Pool<Heap>| {
        assert_eq!((get(pool, "b"), pool.info().free_bytes, pool.info().retired_bytes), (b"moves".to_vec(), free, 0));
        assert_eq!(pool.region("b").unwrap().info().extents, info.extents);
    };
    holds(&pool);
    pool.close().unwrap();
    holds(&open(&media, OpenMode::Writer));
}

#[test]
fn an_extent_kept_twice_and_space_of_another_pool_are_refused_and_change_nothing() {
    let media = Heap::new();
    let pool = create(&media);
    put(&pool, "a", b"here").unwrap();
    let other = Pool::create(Heap::new(), &path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).unwrap();
    let first = pool.region("a").unwrap().info().extents[0];
    let twice = RegionSpec { keep: vec![first, first], ..RegionSpec::default() };
    let foreign = RegionSpec { add: vec![other.reserve(64).unwrap()], ..RegionSpec::default() };
    let before = (media.get(&path()), pool.info().free_bytes, other.info().free_bytes);
    for spec in [twice, foreign] {
        let mut batch = RedoBatch::new();
        batch.put("a", spec);
        assert!(matches!(pool.commit(batch), Err(Error::BadName { .. })));
    }
    assert!((media.get(&path()), pool.info().free_bytes) == (before.0, before.1));
    // The other pool got its space back.
    assert_eq!(other.info().free_bytes, before.2 + 64);
}

/// A view that was held across a move to the next generation, and is dropped, holds nothing back after another move.
#[test]
fn a_reader_that_moves_on_lets_go_of_what_it_pins_no_more() {
    let media = Heap::new();
    let writer = create(&media);
    put(&writer, "a", b"first").unwrap();
    let reader = open(&media, OpenMode::Reader);
    let held = reader.region("a").unwrap();
    put(&writer, "a", b"second").unwrap();
    reader.refresh().unwrap();
    assert_eq!(writer.reclaim().unwrap(), 0, "the view still needs it");
    drop(held);
    reader.refresh().unwrap();
    assert_eq!(writer.reclaim().unwrap(), 64);
}

/// Bytes that somebody has added to a file are never given out: they may be cut off again.
#[test]
fn what_was_added_to_a_file_is_none_of_the_pools() {
    let media = Heap::new();
    let pool = create(&media);
    put(&pool, "a", b"here").unwrap();
    let (free, total) = (pool.info().free_bytes, pool.info().total_bytes);
    pool.close().unwrap();
    let mut longer = media.get(&path()).unwrap();
    longer.resize(longer.len() + (4 << 20), 0);
    media.put(&path(), &longer);
    let pool = open(&media, OpenMode::Writer);
    assert_eq!((pool.info().free_bytes, pool.info().total_bytes), (free, total));
    assert_eq!(get(&pool, "a"), b"here");
}
