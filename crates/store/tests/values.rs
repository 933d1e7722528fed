//! Values of several parts: what goes in comes out, from the catalogue or from an extent, and damage is told.

use std::path::Path;

use pmem::{Heap, OpenMode, PartOptions, RedoBatch, RegionSpec};
use remanent_store::{
    Array, Buffer, Checksums, DType, Error, ErrorCode, Node, Object, ObjectKind, Order, PersistOptions, Source, Store,
};

const SUMMED: PersistOptions<'static> = PersistOptions {
    threads: std::num::NonZeroUsize::MIN,
    checksums: Checksums::Crc32c,
    progress: None,
    gather_bytes: 0,
};

fn create(media: &Heap) -> Store<Heap> {
    Store::create(media.clone(), Path::new("/p"), &PartOptions::single(16 << 20)).unwrap()
}

fn bytes(first: u8, len: usize) -> Vec<u8> {
    (0..len).map(|index| first.wrapping_add((index * 7) as u8)).collect()
}

fn array(len: usize, buffer: u32) -> Node {
    Node::Array(Array { dtype: DType::U8, shape: vec![len as u64], order: Order::RowMajor, buffer: Buffer(buffer) })
}

/// A table whose columns are these buffers.
fn table(buffers: &[Vec<u8>]) -> Node {
    let column = |(number, buffer): (usize, &Vec<u8>)| (Node::Int(number as i64), array(buffer.len(), number as u32));
    Node::List(vec![Node::Mapping(buffers.iter().enumerate().map(column).collect()), Node::Text("größe".into())])
}

fn object<'a>(tree: &Node, buffers: &'a [Vec<u8>]) -> Object<'a> {
    Object::value(tree.clone(), buffers.iter().map(|buffer| Source::from(&buffer[..])).collect()).unwrap()
}

#[test]
fn small_and_large_buffers_and_heads_come_back_after_a_restart() {
    let lengths: [&[usize]; 6] =
        [&[], &[0], &[1], &[100, 0, 5000, 64], &[3 << 20, 7, (1 << 20) - 1, 1 << 20], &[9; 2000]];
    for lengths in lengths {
        let media = Heap::new();
        let store = create(&media);
        let buffers: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(i, &len)| bytes(i as u8, len)).collect();
        let tree = table(&buffers);
        store.persist(&[("value", object(&tree, &buffers)), ("plain", Object::text("beside"))], &SUMMED).unwrap();
        store.close().unwrap();
        for mode in [OpenMode::Inspect, OpenMode::Reader, OpenMode::Writer] {
            let store = Store::open(media.clone(), Path::new("/p"), mode).unwrap();
            let view = store.get("value").unwrap();
            assert_eq!(view.descriptor().kind(), ObjectKind::Value);
            assert_eq!(view.descriptor().payload_bytes(), lengths.iter().map(|&len| len as u64).sum::<u64>());
            let value = view.value().unwrap();
            assert_eq!(value.tree(), &tree);
            for (number, buffer) in buffers.iter().enumerate() {
                assert_eq!(&value.to_bytes(Buffer(number as u32)).unwrap(), buffer);
                let (at, len_bytes) = value.buffer(Buffer(number as u32));
                assert_eq!(len_bytes, buffer.len() as u64);
                let start = store.pool().set().address(pmem::Offset::new(0, 0));
                assert!(buffer.is_empty() || (at.addr() - start.addr()).is_multiple_of(64), "{number}");
            }
            assert_eq!(view.verify().unwrap(), !buffers.is_empty());
            assert!(matches!(view.to_bytes(), Err(Error::Unreadable { .. })));
            assert!(matches!(store.get("plain").unwrap().value(), Err(Error::Unreadable { .. })));
        }
    }
}

#[test]
fn what_does_not_belong_together_is_refused_before_anything_is_written() {
    let store = create(&Heap::new());
    let buffers = [bytes(1, 10)];
    let sources = || vec![Source::from(&buffers[0][..])];
    for tree in [Node::Nothing, array(11, 0), array(10, 1), Node::List(vec![array(10, 0), array(10, 0)])] {
        let error = Object::value(tree, sources()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::UnknownType);
    }
    store.persist(&[("value", object(&array(10, 0), &buffers))], &SUMMED).unwrap();
    assert_eq!(store.names().unwrap(), ["value"]);
}

#[test]
fn a_grid_has_a_bit_for_each_item_and_a_column_may_be_foreign() {
    let grid = |rows, columns| {
        let shape = vec![rows, columns];
        let items = Array { dtype: DType::U8, shape, order: Order::ColumnMajor, buffer: Buffer(0) };
        Node::Nullable { items: Box::new(Node::Array(items)), validity: Buffer(1) }
    };
    let lengths = [15, 2];
    assert!(grid(5, 3).check(&lengths).is_ok());
    assert!(grid(5, 3).check(&[15, 1]).is_err(), "a bit for each row is not enough");
    assert!(grid(u64::MAX, 3).check(&lengths).is_err());
    let foreign = |rows| {
        let foreign = Node::Foreign { codec: "x".into(), stream: Buffer(2), buffers: Vec::new() };
        let foreign = Node::Attributed { value: Box::new(foreign), owner: "y".into(), attributes: Vec::new() };
        Node::Table { rows, columns: vec![(Node::Int(0), grid(5, 3)), (Node::Int(1), foreign)] }
    };
    assert!(foreign(5).check(&[15, 2, 9]).is_ok());
    assert!(foreign(4).check(&[15, 2, 9]).is_err(), "the other column has five rows");
}

#[test]
fn a_changed_buffer_is_found_by_its_own_sum() {
    let media = Heap::new();
    let store = create(&media);
    let buffers = [bytes(1, 10), bytes(2, 2 << 20), bytes(3, 70)];
    let tree = table(&buffers);
    store.persist(&[("value", object(&tree, &buffers))], &SUMMED).unwrap();
    let addresses: Vec<u64> = {
        let view = store.get("value").unwrap();
        let base = store.pool().set().address(pmem::Offset::new(0, 0)).addr();
        let value = view.value().unwrap();
        (0..3).map(|number| (value.buffer(Buffer(number)).0.addr() - base) as u64).collect()
    };
    store.close().unwrap();
    let whole = media.get(Path::new("/p")).unwrap();
    for at in addresses {
        let mut damaged = whole.clone();
        damaged[at as usize + 3] ^= 0x10;
        media.put(Path::new("/p"), &damaged);
        let store = Store::open(media.clone(), Path::new("/p"), OpenMode::Inspect).unwrap();
        let error = store.get("value").unwrap().verify().unwrap_err();
        assert_eq!(error.code(), ErrorCode::ChecksumMismatch);
    }
}

#[test]
fn every_flipped_byte_of_a_head_is_found() {
    for count in [3, 1000] {
        let media = Heap::new();
        let store = create(&media);
        let buffers: Vec<Vec<u8>> = (0..count).map(|number| bytes(number as u8, 1)).collect();
        let tree = table(&buffers);
        store.persist(&[("value", object(&tree, &buffers))], &PersistOptions::default()).unwrap();
        let info = store.pool().region("value").unwrap().info().clone();
        if count == 1000 {
            // In an extent, at its start.
            let start = info.extents[0].offset.byte() as usize;
            store.close().unwrap();
            let whole = media.get(Path::new("/p")).unwrap();
            for at in (0..20_000).step_by(499) {
                let mut damaged = whole.clone();
                damaged[start + at] ^= 1;
                media.put(Path::new("/p"), &damaged);
                let store = Store::open(media.clone(), Path::new("/p"), OpenMode::Inspect).unwrap();
                assert!(matches!(store.get("value").unwrap().value(), Err(Error::BadDescriptor { .. })), "byte {at}");
            }
        } else {
            assert!(info.meta.len() > 24 + 24 * 3, "the head lies in the catalogue, which has a checksum");
        }
    }
}

/// What a value is made of is checked by its own sum, also in the catalogue, whose batches have another.
#[test]
fn a_changed_head_in_the_catalogue_is_told() {
    let store = create(&Heap::new());
    store.persist(&[("v", object(&Node::List(vec![Node::Int(7), array(9, 0)]), &[bytes(1, 9)]))], &SUMMED).unwrap();
    let info = store.pool().region("v").unwrap().info().clone();
    let at = info.meta.windows(8).rposition(|bytes| bytes == 7i64.to_le_bytes()).unwrap();
    let mut meta = info.meta.clone();
    meta[at] = 8;
    let mut batch = RedoBatch::new();
    let (keep, add) = (info.extents.clone(), Vec::new());
    batch.put("v", RegionSpec { kind: info.kind, flags: info.flags, meta, keep, add });
    store.pool().commit(batch).unwrap();
    let error = store.get("v").unwrap().value().map(|value| value.tree().clone()).unwrap_err();
    assert!(matches!(error, Error::BadDescriptor { .. }), "{error}");
}
