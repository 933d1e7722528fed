//! A hostile description of an object: whatever stands in the catalogue, the store lists it, reads it or refuses it, and
//! what it reads it would write in the same bytes.

use std::path::Path;

use pmem::{Heap, PartOptions, RedoBatch, RegionSpec};
use store::{Buffer, Checksum, Object, ObjectKind, ObjectView, PersistOptions, Store};

/// Bytes that a hostile object may claim at most: the rest of the file is free for what it is copied to.
const EXTENT_BYTES: [u64; 4] = [0, 64, 256, 4096];

thread_local! {
    static STORE: Store<Heap> = {
        let options = PartOptions::single(8 << 20);
        Store::create(Heap::new(), Path::new("/pools/fuzz"), &options).expect("a new store")
    };
}

/// The first bytes are kind, flags, the size of the extent, and how many times 8 bytes of it follow, where the head of a
/// value or a redo extent may be looked for; the rest is the description.
pub(crate) fn run(input: &[u8]) {
    let [kind, flags, extent, eights, rest @ ..] = input else { return };
    STORE.with(|store| {
        let extent_bytes = EXTENT_BYTES[usize::from(*extent) % EXTENT_BYTES.len()];
        let (content, meta) = rest.split_at(rest.len().min(8 * usize::from(*eights)).min(extent_bytes as usize));
        let (mut content, mut meta) = (content.to_vec(), meta.to_vec());
        if *flags & 2 != 0 {
            reseal_redo(&mut content);
        }
        if *kind == ObjectKind::Value as u8 {
            reseal_value(&mut meta, &content);
        }
        let mut add = Vec::new();
        if *flags & 2 != 0 {
            // A redo extent has others before it.
            add.push(store.pool().reserve(4096).expect("the last object is gone"));
        }
        if extent_bytes > 0 {
            let space = store.pool().reserve(extent_bytes).expect("the last object is gone");
            store.pool().set().store_bytes(space.extent().offset, &content);
            add.push(space);
        }
        let mut batch = RedoBatch::new();
        let spec = RegionSpec { kind: (*kind).into(), flags: (*flags).into(), meta: meta.clone(), add, keep: vec![] };
        batch.put("hostile", spec);
        store.pool().commit(batch).expect("there is room");
        look(store, &meta);
        store.remove("hostile").expect("it is there, whatever it is");
    });
}

/// Makes the checksum of a redo extent's ranges right.
fn reseal_redo(content: &mut [u8]) {
    let [a, b, c, d, ..] = *content else { return };
    let end = (u32::from_le_bytes([a, b, c, d]) as usize).saturating_mul(24).saturating_add(8);
    if let Some(ranges) = content.get(8..end) {
        let crc = crc32c::crc32c(ranges).to_le_bytes();
        content[4..8].copy_from_slice(&crc);
    }
}

/// Makes the checksum of a value's head right, wherever it lies.
fn reseal_value(meta: &mut [u8], content: &[u8]) {
    let Some((fields, inline)) = meta.split_at_checked(24) else { return };
    let head_bytes = u64::from_le_bytes(fields[16..24].try_into().expect("eight bytes")) as usize;
    let head = if fields[2] == 0 { Some(inline) } else { content.get(..head_bytes) };
    if let Some(crc) = head.map(crc32c::crc32c) {
        meta[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

fn look(store: &Store<Heap>, meta: &[u8]) {
    let listed = store.ls().expect("the process has not forked");
    store.rename("hostile", "moved").expect("it need not be understood");
    store.rename("moved", "hostile").expect("the same");
    let Ok(view) = store.get("hostile") else { return };
    assert!(listed[0].descriptor.as_ref() == Some(view.descriptor()), "what can be read is listed");
    let _ = (view.verify(), view.to_vec::<f64>(), view.to_vec::<u8>());
    if view.descriptor().kind() == ObjectKind::Value {
        return look_at_value(store, &view);
    }
    let bytes = view.to_bytes().expect("it lies in memory");
    assert_eq!(bytes.len() as u64, view.descriptor().payload_bytes());
    let object = Object::described(view.descriptor().clone(), &bytes).expect("as many bytes as it says");
    store.persist(&[("again", object)], &PersistOptions::default()).expect("there is room");
    let again = store.pool().region("again").expect("it was persisted").info().meta.clone();
    if view.descriptor().checksum() == Checksum::None {
        assert_eq!(again, meta, "one description has one form");
    }
    store.remove("again").expect("it is there");
}

/// A value that can be read is the same when it is persisted anew, wherever its parts lay.
fn look_at_value(store: &Store<Heap>, view: &ObjectView<Heap>) {
    let Ok(value) = view.value() else { return };
    let buffers: Vec<Vec<u8>> =
        (0..value.buffers()).map(|number| value.to_bytes(Buffer(number)).expect("it lies in memory")).collect();
    let sources = buffers.iter().map(|buffer| buffer[..].into()).collect();
    let object = Object::value(value.tree().clone(), sources).expect("its parts fit");
    store.persist(&[("again", object)], &PersistOptions::default()).expect("there is room");
    let again = store.get("again").and_then(|view| view.value()).expect("it was persisted");
    // Not by ==, for which a NaN is another one.
    assert_eq!(format!("{:?}", again.tree()), format!("{:?}", value.tree()));
    for (number, buffer) in (0..).zip(&buffers) {
        assert_eq!(again.to_bytes(Buffer(number)).expect("it lies in memory"), *buffer);
    }
    drop(again);
    store.remove("again").expect("it is there");
}
