//! A hostile description of an object: whatever stands in the catalogue, the store lists it, reads it or refuses it, and
//! what it reads it would write in the same bytes.

use std::path::Path;

use pmem::{Heap, PartOptions, RedoBatch, RegionSpec};
use store::{Object, PersistOptions, Store};

/// Bytes that a hostile object may claim at most: the rest of the file is free for what it is copied to.
const EXTENT_BYTES: [u64; 4] = [0, 64, 256, 4096];

thread_local! {
    static STORE: Store<Heap> = {
        let options = PartOptions::single(8 << 20);
        Store::create(Heap::new(), Path::new("/pools/fuzz"), &options).expect("a new store")
    };
}

/// The first bytes are kind, flags and the size of the extent, the rest is the description.
pub(crate) fn run(input: &[u8]) {
    let [kind, flags, extent, meta @ ..] = input else { return };
    STORE.with(|store| {
        let mut add = Vec::new();
        match EXTENT_BYTES[usize::from(*extent) % EXTENT_BYTES.len()] {
            0 => {}
            len_bytes => add.push(store.pool().reserve(len_bytes).expect("the last object is gone")),
        }
        let mut batch = RedoBatch::new();
        let spec = RegionSpec { kind: (*kind).into(), flags: (*flags).into(), meta: meta.to_vec(), add, keep: vec![] };
        batch.put("hostile", spec);
        store.pool().commit(batch).expect("there is room");
        look(store, meta);
        store.remove("hostile").expect("it is there, whatever it is");
    });
}

fn look(store: &Store<Heap>, meta: &[u8]) {
    let listed = store.ls().expect("the process has not forked");
    store.rename("hostile", "moved").expect("it need not be understood");
    store.rename("moved", "hostile").expect("the same");
    let Ok(view) = store.get("hostile") else { return };
    assert!(listed[0].descriptor.as_ref() == Some(view.descriptor()), "what can be read is listed");
    let bytes = view.to_bytes().expect("it lies in memory");
    assert_eq!(bytes.len() as u64, view.descriptor().payload_bytes());
    let _ = (view.verify(), view.to_vec::<f64>(), view.to_vec::<u8>());
    let object = Object::described(view.descriptor().clone(), &bytes).expect("as many bytes as it says");
    store.persist(&[("again", object)], &PersistOptions::default()).expect("there is room");
    let again = store.pool().region("again").expect("it was persisted").info().meta.clone();
    assert_eq!(again, meta, "one description has one form");
    store.remove("again").expect("it is there");
}
