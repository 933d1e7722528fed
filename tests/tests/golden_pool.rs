//! Pools of every released format version still open, and this version writes what its golden file says.

use std::path::Path;

use pmem::{Heap, Layout, MIN_FILE_BYTES, OpenMode, PartOptions, Pool, RedoBatch, RegionSpec};
use remanent_tests::golden;

const LAYOUT: Layout = Layout { name: "golden", version: 1 };

/// Two parts, a compaction, a replaced and a removed name.
fn make(media: &Heap) {
    let path = Path::new("/golden");
    let pool = Pool::create(media.clone(), path, LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).expect("a new pool");
    let put = |name: &str, content: &[u8]| {
        let reservation = pool.reserve(content.len() as u64).expect("there is room");
        pool.set().store_bytes(reservation.extent().offset, content);
        let mut batch = RedoBatch::new();
        let meta = content.len().to_le_bytes().to_vec();
        batch.put(name, RegionSpec { kind: 9, flags: 5, meta, add: vec![reservation], ..RegionSpec::default() });
        pool.commit(batch).expect("there is room");
    };
    put("replaced", b"old");
    put("removed", b"gone");
    pool.grow(None, &PartOptions::single(MIN_FILE_BYTES)).expect("a new part");
    pool.compact().expect("there is room");
    put("replaced", b"new");
    put("größe \u{1F9F2}", &[0xEE; 5000]);
    let mut batch = RedoBatch::new();
    batch.remove("removed");
    pool.commit(batch).expect("the name is there");
    pool.close().expect("it can be marked clean");
}

const FILES: [&str; 2] = ["golden", "golden.1"];

#[test]
fn this_version_writes_the_bytes_of_its_golden_files() {
    let media = Heap::new();
    make(&media);
    for name in FILES {
        golden::check(name, &media.get(&Path::new("/").join(name)).expect("a file of the pool"));
    }
}

#[test]
fn pools_of_version_1_open_and_hold_what_was_put_in() {
    let media = Heap::new();
    for name in FILES {
        media.put(&Path::new("/").join(name), &golden::read(1, name));
    }
    for mode in [OpenMode::Inspect, OpenMode::Reader, OpenMode::Writer] {
        let pool = Pool::open(media.clone(), Path::new("/golden"), Some(LAYOUT), mode).expect("version 1 opens");
        let regions = pool.regions("").expect("the process has not forked");
        let names: Vec<&str> = regions.iter().map(|region| region.name()).collect();
        assert_eq!(names, ["größe \u{1F9F2}", "replaced"]);
        let mut content = [0; 3];
        regions[1].load_bytes(0, 0, &mut content);
        assert_eq!(&content, b"new");
        let mut content = vec![0; 5000];
        regions[0].load_bytes(0, 0, &mut content);
        assert_eq!(content, [0xEE; 5000]);
        assert_eq!((regions[0].info().kind, regions[0].info().flags), (9, 5));
        assert_eq!(pool.info().parts.len(), 2);
    }
}
