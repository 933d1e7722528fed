//! Pools of every released format version still open, and this version writes what its golden file says.

use std::path::{Path, PathBuf};

use remanent_pmem::{Heap, Layout, MIN_FILE_BYTES, OpenMode, PartOptions, Pool, RedoBatch, RegionSpec};

const LAYOUT: Layout = Layout { name: "golden", version: 1 };
const PAGE: usize = 4096;
fn folder(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../testdata/pools/v{version}"))
}

/// A file as text: each 16 bytes that are not all zero, with their offset, both in hexadecimal.
fn to_text(content: &[u8]) -> String {
    let mut text = format!("{:x}\n", content.len());
    for (number, row) in content.chunks(16).enumerate().filter(|(_, row)| row.iter().any(|&byte| byte != 0)) {
        let hex: String = row.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("{:x} {hex}\n", number * 16);
    }
    text
}

fn from_text(text: &str) -> Vec<u8> {
    let number = |text: &str| usize::from_str_radix(text, 16).expect("a hexadecimal number");
    let (len, rows) = text.split_once('\n').expect("a first line");
    let mut content = vec![0; number(len)];
    for row in rows.lines() {
        let (offset, hex) = row.split_once(' ').expect("an offset and bytes");
        for (i, byte) in hex.as_bytes().chunks(2).enumerate() {
            content[number(offset) + i] = number(std::str::from_utf8(byte).expect("text")) as u8;
        }
    }
    content
}

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
        let content = media.get(&Path::new("/").join(name)).expect("a file of the pool");
        let golden = folder(1).join(format!("{name}.hex"));
        if std::env::var_os("REMANENT_WRITE_GOLDEN").is_some() {
            std::fs::create_dir_all(folder(1)).expect("a folder of the tree");
            std::fs::write(&golden, to_text(&content)).expect("a file of the tree");
        }
        let golden = from_text(&std::fs::read_to_string(&golden).expect("the golden file"));
        assert_eq!(golden.len(), content.len());
        let differs = golden.chunks(PAGE).zip(content.chunks(PAGE)).position(|(golden, content)| golden != content);
        assert_eq!(differs, None, "{name}: the first page that differs; a changed format needs a new version");
    }
}

#[test]
fn pools_of_version_1_open_and_hold_what_was_put_in() {
    let media = Heap::new();
    for name in FILES {
        let golden = std::fs::read_to_string(folder(1).join(format!("{name}.hex"))).expect("the golden file");
        media.put(&Path::new("/").join(name), &from_text(&golden));
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
