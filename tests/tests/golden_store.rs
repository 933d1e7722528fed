//! Stores of every released format version still open, and this version writes what its golden file says.

use std::path::Path;

use pmem::{Heap, MIN_FILE_BYTES, OpenMode, PartOptions};
use remanent_tests::golden;
use store::{
    ByteOrder, Checksums, DType, Descriptor, Field, Flags, FloatFormat, Object, ObjectKind, Order, PersistOptions,
    Store, TimeStep, TimeUnit, TypeClass,
};

fn dtype(class: TypeClass, order: ByteOrder, item_bytes: u64) -> DType {
    DType::new(class, order, item_bytes).expect("a type of the table")
}

/// A structure as a C compiler would lay it out: a time, a big-endian number and a small grid.
fn structure() -> DType {
    let time = dtype(TypeClass::DateTime(TimeStep { unit: TimeUnit::Seconds, multiple: 1 }), ByteOrder::Little, 8);
    let base = Box::new(dtype(TypeClass::Int, ByteOrder::Big, 2));
    let grid = dtype(TypeClass::SubArray { shape: vec![2, 3], base }, ByteOrder::None, 12);
    let field = |name: &str, offset_bytes, dtype| Field { name: name.into(), offset_bytes, dtype };
    let fields = vec![
        field("time", 0, time),
        field("größe", 8, dtype(TypeClass::Uint, ByteOrder::Big, 4)),
        field("grid", 12, grid),
    ];
    dtype(TypeClass::Struct { fields, aligned: true }, ByteOrder::None, 24)
}

/// An array of every class of items: name, type, shape.
fn arrays() -> Vec<(&'static str, DType, Vec<u64>, Order)> {
    use ByteOrder::{Big, Little, None};
    use FloatFormat::{Ieee, X87};
    use Order::{ColumnMajor, RowMajor};
    let days = TimeStep { unit: TimeUnit::Days, multiple: 1 };
    let ticks = TimeStep { unit: TimeUnit::Nanoseconds, multiple: 25 };
    vec![
        ("bool", dtype(TypeClass::Bool, None, 1), vec![5], RowMajor),
        ("bytes of text", dtype(TypeClass::Bytes, None, 7), vec![3], RowMajor),
        ("complex", dtype(TypeClass::Complex(Ieee), Little, 16), vec![2, 2], ColumnMajor),
        ("complex, extended", dtype(TypeClass::Complex(X87), Little, 32), vec![1], RowMajor),
        ("float", dtype(TypeClass::Float(Ieee), Little, 8), vec![3, 4], ColumnMajor),
        ("float, extended", dtype(TypeClass::Float(X87), Little, 16), vec![2], RowMajor),
        ("float, half", dtype(TypeClass::Float(Ieee), Big, 2), vec![9], RowMajor),
        ("int", dtype(TypeClass::Int, Little, 4), vec![2, 3, 4], RowMajor),
        ("no items", dtype(TypeClass::Uint, Little, 2), vec![4, 0, 2], RowMajor),
        ("single", dtype(TypeClass::Int, None, 1), vec![], RowMajor),
        ("span", dtype(TypeClass::TimeDelta(ticks), Little, 8), vec![4], RowMajor),
        ("struct", structure(), vec![3], RowMajor),
        ("time", dtype(TypeClass::DateTime(days), Big, 8), vec![4], RowMajor),
        ("uint", dtype(TypeClass::Uint, Big, 8), vec![6], RowMajor),
        ("unicode", dtype(TypeClass::Unicode, Little, 12), vec![2], RowMajor),
        ("void", dtype(TypeClass::Void, None, 10), vec![3], RowMajor),
    ]
}

/// Bytes that depend on the name.
fn payload(name: &str, len: usize) -> Vec<u8> {
    let first = name.bytes().fold(17u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    (0..len).map(|index| first.wrapping_add((index * 7) as u8)).collect()
}

fn create(media: &Heap) {
    let store = Store::create(media.clone(), Path::new("/store"), &PartOptions::single(MIN_FILE_BYTES)).unwrap();
    let summed = PersistOptions { checksums: Checksums::Crc32c, ..PersistOptions::default() };
    let described: Vec<_> = arrays()
        .into_iter()
        .map(|(name, dtype, shape, order)| {
            let descriptor = Descriptor::array(dtype, &shape, order).expect("a small array");
            let bytes = payload(name, descriptor.payload_bytes() as usize);
            (name, descriptor, bytes)
        })
        .collect();
    for (name, descriptor, bytes) in &described {
        store.persist(&[(name, Object::described(descriptor.clone(), bytes).unwrap())], &summed).unwrap();
    }
    let plain = PersistOptions::default();
    store.persist(&[("raw", Object::bytes(b"\0\xff raw")), ("text", Object::text("größer"))], &plain).unwrap();
    store.persist(&[("hundred", Object::bytes(&[3; 100])), ("nothing", Object::text(""))], &plain).unwrap();
    store.rename("text", "renamed").unwrap();
    store.close().unwrap();
}

#[test]
fn this_version_writes_the_bytes_of_its_golden_file() {
    let media = Heap::new();
    create(&media);
    golden::check("store", &media.get(Path::new("/store")).expect("the file of the store"));
}

#[test]
fn a_store_of_version_1_opens_and_holds_every_type() {
    let golden = golden::read(1, "store");
    for mode in [OpenMode::Inspect, OpenMode::Reader, OpenMode::Writer] {
        let media = Heap::new();
        media.put(Path::new("/store"), &golden);
        let store = Store::open(media, Path::new("/store"), mode).expect("version 1 opens");
        for (name, dtype, shape, order) in arrays() {
            let view = store.get(name).unwrap();
            let descriptor = view.descriptor();
            assert_eq!(
                (descriptor.dtype(), descriptor.shape(), descriptor.order()),
                (&dtype, &shape[..], order),
                "{name}"
            );
            assert_eq!(view.to_bytes().unwrap(), payload(name, descriptor.payload_bytes() as usize), "{name}");
            assert!(view.verify().unwrap(), "{name} has a checksum");
        }
        for (name, kind, bytes) in [
            ("raw", ObjectKind::Bytes, &b"\0\xff raw"[..]),
            ("renamed", ObjectKind::Text, "größer".as_bytes()),
            ("hundred", ObjectKind::Bytes, &[3; 100]),
            ("nothing", ObjectKind::Text, b""),
        ] {
            let view = store.get(name).unwrap();
            assert_eq!((view.descriptor().kind(), &view.to_bytes().unwrap()[..]), (kind, bytes), "{name}");
            assert_eq!(view.descriptor().flags(), Flags::default(), "{name}");
        }
        assert_eq!(store.names().unwrap().len(), arrays().len() + 4);
    }
}

/// The golden file has every class that the format knows.
#[test]
fn no_class_is_missing() {
    let mut classes: Vec<_> = arrays().iter().map(|(_, dtype, ..)| std::mem::discriminant(dtype.class())).collect();
    classes.sort_by_key(|class| format!("{class:?}"));
    classes.dedup();
    // Sub-arrays stand in structures only.
    assert_eq!(classes.len(), 11);
}
