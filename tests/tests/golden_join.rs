//! The join's tables of every version still open, and this version writes what its golden file says.

use std::path::Path;

use bench::join::{Durable, DurableTable, Row};
use pmem::{Heap, Layout, MIN_FILE_BYTES, OpenMode, PartOptions, Pool};
use remanent_tests::golden;

const LAYOUT: Layout = Layout { name: "join", version: 1 };
const WORDS: usize = 3;

fn rows() -> [Row<WORDS>; 7] {
    [1, 2, 3, 40, 500, 6000, u64::MAX].map(|key| Row { key, value: [!key, 0x5555, key << 1] })
}

/// Rows inserted one by one and in blocks.
fn make(media: &Heap) {
    let path = Path::new("/join");
    let pool = Pool::create(media.clone(), path, LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).expect("a new pool");
    let table = DurableTable::<_, WORDS>::create(&pool, "table", 8, 2).expect("there is room");
    let rows = rows();
    table.inserter(Durable::EachRow).insert(&rows[..2], |_| ()).expect("there is room");
    table.inserter(Durable::Blocks).insert(&rows[2..], |_| ()).expect("there is room");
    drop(table);
    pool.close().expect("it can be marked clean");
}

#[test]
fn this_version_writes_the_bytes_of_its_golden_file() {
    let media = Heap::new();
    make(&media);
    golden::check("join", &media.get(Path::new("/join")).expect("the file of the pool"));
}

#[test]
fn tables_of_version_1_open_and_hold_their_rows() {
    let media = Heap::new();
    media.put(Path::new("/join"), &golden::read(1, "join"));
    let pool = Pool::open(media, Path::new("/join"), Some(LAYOUT), OpenMode::Writer).expect("version 1 opens");
    let table = DurableTable::<_, WORDS>::open(&pool, "table").expect("version 1 opens");
    assert_eq!(table.keys().len(), rows().len());
    for row in rows() {
        assert_eq!(table.find(row.key), Some(row));
    }
}
