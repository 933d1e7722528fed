//! A hostile table of the join: whatever its region says, it is opened or refused; what is opened can be searched, takes a row,
//! and is the same when it is opened again.

use std::path::Path;

use bench::join::{Durable, DurableTable, Row};
use pmem::{Heap, Layout, MIN_FILE_BYTES, PartOptions, Pool, RedoBatch, RegionSpec};

const LAYOUT: Layout = Layout { name: "join", version: 1 };
const WORDS: usize = 2;
/// Bytes of the meta data, after which those of the extent follow.
const META_BYTES: usize = 24;
/// Room for heads and blocks of a small table.
const EXTENT_BYTES: u64 = 4096;

thread_local! {
    static POOL: Pool<Heap> = Pool::create(
        Heap::new(), Path::new("/pools/join"), LAYOUT, &PartOptions::single(MIN_FILE_BYTES)
    ).expect("a new pool");
}

pub(crate) fn run(input: &[u8]) {
    let (meta, content) = input.split_at(input.len().min(META_BYTES));
    let content = &content[..content.len().min(EXTENT_BYTES as usize)];
    POOL.with(|pool| {
        let space = pool.reserve(EXTENT_BYTES).expect("the last table is gone");
        let mut bytes = content.to_vec();
        bytes.resize(EXTENT_BYTES as usize, 0);
        pool.set().store_bytes(space.extent().offset, &bytes);
        let mut batch = RedoBatch::new();
        batch.put("table", RegionSpec { kind: 1, meta: meta.to_vec(), add: vec![space], ..RegionSpec::default() });
        pool.commit(batch).expect("there is room");
        look(pool);
        let mut batch = RedoBatch::new();
        batch.remove("table");
        pool.commit(batch).expect("it is there");
    });
}

fn look(pool: &Pool<Heap>) {
    let Ok(table) = DurableTable::<_, WORDS>::open(pool, "table") else { return };
    let mut keys = table.keys();
    for &key in &keys {
        assert_eq!(table.find(key).map(|row| row.key), Some(key), "a key of the table is found");
    }
    let new = (1..).find(|key| !keys.contains(key)).expect("there are more keys than entries");
    let row = Row { key: new, value: [new, !new] };
    for durable in [Durable::EachRow, Durable::Blocks] {
        // A full table refuses.
        if table.inserter(durable).insert(&[row], |_| ()).is_ok() {
            assert_eq!(table.find(new), Some(row));
            keys.push(new);
            break;
        }
    }
    let mut again = DurableTable::<_, WORDS>::open(pool, "table").expect("it was opened before").keys();
    keys.sort_unstable();
    again.sort_unstable();
    assert_eq!(keys, again, "it holds what it held, and the row");
}
