//! The store through its public API, on the heap.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use pmem::{ErrorCode, Heap, OpenMode, PartOptions, RedoBatch, RegionSpec};
use proptest::prelude::*;
use remanent_store::{
    Checksums, Descriptor, Error, Object, ObjectKind, Order, PersistOptions, Store, TypeClass, Verified,
};

fn path() -> &'static Path {
    Path::new("/pools/store")
}

fn create(media: &Heap) -> Store<Heap> {
    Store::create(media.clone(), path(), &PartOptions::single(8 << 20)).unwrap()
}

fn open(media: &Heap, mode: OpenMode) -> Store<Heap> {
    Store::open(media.clone(), path(), mode).unwrap()
}

fn plain() -> PersistOptions<'static> {
    PersistOptions::default()
}

fn summed() -> PersistOptions<'static> {
    PersistOptions { checksums: Checksums::Crc32c, ..PersistOptions::default() }
}

#[test]
fn objects_of_every_kind_come_back_after_reopening() {
    let media = Heap::new();
    let store = create(&media);
    let numbers: Vec<f64> = (0..12).map(f64::from).collect();
    let objects = [
        ("array", Object::array(&numbers, &[3, 4]).unwrap()),
        ("single", Object::array(&[-7i32], &[]).unwrap()),
        ("empty", Object::array::<u16>(&[], &[4, 0, 2]).unwrap()),
        ("bytes", Object::bytes(b"\0\xff")),
        ("text", Object::text("größer")),
        ("nothing", Object::text("")),
    ];
    store.persist(&objects, &plain()).unwrap();
    store.close().unwrap();
    for mode in [OpenMode::Reader, OpenMode::Inspect, OpenMode::Writer] {
        let store = open(&media, mode);
        let array = store.get("array").unwrap();
        assert_eq!(array.to_vec::<f64>().unwrap(), numbers);
        assert_eq!((array.descriptor().shape(), array.descriptor().order()), (&[3, 4][..], Order::RowMajor));
        assert_eq!(store.get("single").unwrap().to_vec::<i32>().unwrap(), [-7]);
        assert_eq!(store.get("empty").unwrap().to_vec::<u16>().unwrap(), []);
        assert_eq!(store.get("bytes").unwrap().to_bytes().unwrap(), b"\0\xff");
        assert_eq!(store.get("text").unwrap().to_bytes().unwrap(), "größer".as_bytes());
        assert_eq!(store.get("nothing").unwrap().descriptor().kind(), ObjectKind::Text);
        assert_eq!(store.names().unwrap(), ["array", "bytes", "empty", "nothing", "single", "text"]);
    }
}

#[test]
fn a_commit_is_whole_or_not_there() {
    let media = Heap::new();
    let store = create(&media);
    store.persist(&[("a", Object::text("old")), ("b", Object::text("old"))], &plain()).unwrap();
    let (generation, free) = (store.pool().generation(), store.info().free_bytes);
    let large = vec![1u8; 9 << 20];
    let refused: [(&str, Object<'_>, ErrorCode); 2] =
        [("z", Object::bytes(&large), ErrorCode::PoolFull), ("tab\t", Object::text("x"), ErrorCode::BadName)];
    for (name, object, code) in refused {
        let error = store.persist(&[("a", Object::text("new")), (name, object)], &plain()).unwrap_err();
        assert_eq!(error.code(), code);
    }
    let mut transaction = store.transaction();
    transaction.put("a", Object::text("new")).remove("missing");
    assert_eq!(transaction.commit(&plain()).unwrap_err().code(), ErrorCode::NoSuchName);
    assert_eq!((store.pool().generation(), store.info().free_bytes), (generation, free));
    let mut transaction = store.transaction();
    transaction.put("a", Object::text("new")).remove("b").put("c", Object::text("new"));
    transaction.commit(&plain()).unwrap();
    assert_eq!(store.names().unwrap(), ["a", "c"]);
    assert_eq!(store.transaction().commit(&plain()).unwrap().generation, store.pool().generation());
}

#[test]
fn a_view_keeps_its_bytes_through_replacement_and_close() {
    let media = Heap::new();
    let store = create(&media);
    store.persist(&[("a", Object::bytes(&[1; 1 << 20]))], &plain()).unwrap();
    let view = store.get("a").unwrap();
    store.persist(&[("a", Object::bytes(&[2; 1 << 20]))], &plain()).unwrap();
    assert_eq!(store.gc().unwrap(), 0);
    store.close().unwrap();
    assert_eq!(view.to_bytes().unwrap(), [1; 1 << 20]);
    let store = open(&media, OpenMode::Writer);
    assert_eq!(store.gc().unwrap(), 0);
    drop(view);
    assert_eq!(store.gc().unwrap(), 1 << 20);
}

#[test]
fn readers_see_names_of_one_commit_together() {
    let media = Heap::new();
    let store = create(&media);
    store.persist(&[("a", Object::text("1")), ("b", Object::text("1"))], &plain()).unwrap();
    let reader = open(&media, OpenMode::Reader);
    store.persist(&[("a", Object::text("2")), ("b", Object::text("2"))], &plain()).unwrap();
    let seen = |store: &Store<Heap>| -> Vec<Vec<u8>> {
        store.get_all(&["a", "b"]).unwrap().iter().map(|view| view.to_bytes().unwrap()).collect()
    };
    assert_eq!(seen(&reader), [b"1", b"1"]);
    reader.refresh().unwrap();
    assert_eq!(seen(&reader), [b"2", b"2"]);
    assert_eq!(reader.get_all(&["a", "x"]).unwrap_err().code(), ErrorCode::NoSuchName);
    assert_eq!(reader.remove("a").unwrap_err().code(), ErrorCode::NotWritable);
}

#[test]
fn a_renamed_object_is_the_same_bytes_in_the_same_place() {
    let media = Heap::new();
    let store = create(&media);
    store.persist(&[("a", Object::bytes(&[1; 1 << 20])), ("b", Object::text("b"))], &summed()).unwrap();
    let (reader, view) = (open(&media, OpenMode::Reader), store.get("a").unwrap());
    let free_bytes = store.info().free_bytes;
    store.rename("a", "c").unwrap();
    assert_eq!(store.names().unwrap(), ["b", "c"]);
    assert_eq!((store.get("c").unwrap().address(), store.info().free_bytes), (view.address(), free_bytes));
    assert_eq!(reader.names().unwrap(), ["a", "b"]);
    assert_eq!(reader.get("a").unwrap().to_bytes().unwrap(), [1; 1 << 20]);
    assert_eq!(store.gc().unwrap(), 0);

    let generation = store.pool().generation();
    for (old, new, code) in [
        ("b", "c", ErrorCode::AlreadyExists),
        ("a", "d", ErrorCode::NoSuchName),
        ("a", "a", ErrorCode::NoSuchName),
        ("b", "line\nbreak", ErrorCode::BadName),
    ] {
        assert_eq!(store.rename(old, new).unwrap_err().code(), code, "{old:?} to {new:?}");
    }
    assert_eq!(store.rename("b", "b").unwrap(), generation);
    assert_eq!(reader.rename("b", "d").unwrap_err().code(), ErrorCode::NotWritable);

    drop((reader, view));
    store.rename_over("b", "c").unwrap();
    assert_eq!(store.get("c").unwrap().to_bytes().unwrap(), b"b");
    store.close().unwrap();
    let store = open(&media, OpenMode::Writer);
    assert_eq!((store.names().unwrap(), store.verify().unwrap().matching), (vec!["c".to_owned()], 1));
    assert!(store.info().free_bytes > free_bytes);
}

#[test]
fn threads_that_rename_to_one_name_replace_nothing() {
    let store = create(&Heap::new());
    let names: Vec<String> = (0..16).map(|number| format!("n{number}")).collect();
    for name in &names {
        store.persist(&[(name, Object::text(name))], &plain()).unwrap();
    }
    let renamed = std::thread::scope(|scope| {
        let renames: Vec<_> = names.iter().map(|name| scope.spawn(|| store.rename(name, "one").is_ok())).collect();
        renames.into_iter().map(|thread| thread.join().unwrap()).filter(|ok| *ok).count()
    });
    assert_eq!((renamed, store.names().unwrap().len()), (1, names.len()));
}

#[test]
fn verify_finds_a_changed_byte_in_what_has_a_checksum() {
    let media = Heap::new();
    let store = create(&media);
    let long = vec![5u8; 200_000];
    let objects = [("long", Object::bytes(&long)), ("none", Object::bytes(&[]))];
    store.persist(&objects, &summed()).unwrap();
    store.persist(&[("unsummed", Object::bytes(&long))], &plain()).unwrap();
    assert_eq!(store.verify().unwrap(), Verified { matching: 2, without_checksum: 1 });
    let extent = store.pool().region("long").unwrap().info().extents[0];
    store.pool().set().store_bytes(extent.offset.plus(199_999), &[6]);
    assert!(matches!(store.verify().unwrap_err(), Error::ChecksumMismatch { name, .. } if name == "long"));
}

#[test]
fn unknown_and_damaged_objects_are_listed_and_removable_but_not_read() {
    let store = create(&Heap::new());
    store.persist(&[("good", Object::text("x"))], &plain()).unwrap();
    let good = store.pool().region("good").unwrap().info().meta.clone();
    let mut batch = RedoBatch::new();
    batch
        .put("later kind", RegionSpec { kind: 77, meta: good.clone(), ..RegionSpec::default() })
        .put("damaged", RegionSpec { kind: 3, meta: vec![1, 0, 0], ..RegionSpec::default() })
        .put("no extent", RegionSpec { kind: 3, meta: good, ..RegionSpec::default() });
    store.pool().commit(batch).unwrap();
    assert_eq!(store.get("later kind").unwrap_err().code(), ErrorCode::UnknownType);
    assert_eq!(store.get("damaged").unwrap_err().code(), ErrorCode::Corrupt);
    assert_eq!(store.get("no extent").unwrap_err().code(), ErrorCode::Corrupt);
    let listed = store.ls().unwrap();
    assert_eq!(listed.iter().filter(|object| object.descriptor.is_none()).count(), 2);
    for name in ["later kind", "damaged", "no extent"] {
        store.remove(name).unwrap();
    }
    assert_eq!(store.get("good").unwrap().to_bytes().unwrap(), b"x");
}

#[test]
fn wrong_lengths_and_shapes_are_refused() {
    let descriptor = Descriptor::array(remanent_store::DType::U8, &[3], Order::RowMajor).unwrap();
    assert_eq!(Object::array(&[1u8, 2], &[3]).unwrap_err().code(), ErrorCode::LengthMismatch);
    assert!(matches!(descriptor.dtype().class(), TypeClass::Uint));
    let error = Object::array::<f64>(&[], &[1 << 40, 1 << 40]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ShapeOverflow);
    let error = Object::array::<u8>(&[], &[0; 65]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::UnknownType);
    let store = create(&Heap::new());
    store.persist(&[("t", Object::text("x")), ("a", Object::array(&[1u8], &[1]).unwrap())], &plain()).unwrap();
    assert_eq!(store.get("t").unwrap().to_vec::<u8>().unwrap_err().code(), ErrorCode::NotAnArray);
    assert_eq!(store.get("a").unwrap().to_vec::<i8>().unwrap_err().code(), ErrorCode::UnknownType);
}

#[test]
fn progress_only_rises_and_can_give_the_commit_up() {
    let store = Store::create(Heap::new(), path(), &PartOptions::single(64 << 20)).unwrap();
    let bytes = vec![3u8; 9 << 20];
    let objects = [("a", Object::bytes(&bytes)), ("b", Object::bytes(&bytes))];
    let newest = AtomicU64::new(0);
    let watch = |progress: remanent_store::Progress| {
        assert_eq!(progress.total_bytes, 18 << 20);
        newest.fetch_max(progress.done_bytes, Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    let options = PersistOptions { progress: Some(&watch), ..PersistOptions::default() };
    store.persist(&objects, &options).unwrap();
    assert_eq!(newest.into_inner(), 18 << 20);
    let (generation, free) = (store.pool().generation(), store.info().free_bytes);
    let options = PersistOptions { progress: Some(&|_| ControlFlow::Break(())), ..PersistOptions::default() };
    assert_eq!(store.persist(&objects, &options).unwrap_err().code(), ErrorCode::Cancelled);
    assert_eq!((store.pool().generation(), store.info().free_bytes), (generation, free));
}

#[derive(Clone, Debug)]
enum Op {
    Persist(Vec<(u8, Vec<u8>)>),
    Remove(u8),
    Rename(u8, u8),
    RenameOver(u8, u8),
    Gc,
    Reopen,
    View(u8),
    DropViews,
}

fn op() -> impl Strategy<Value = Op> {
    let content = prop::collection::vec(any::<u8>(), 0..3000);
    prop_oneof![
        4 => prop::collection::vec((0u8..6, content), 1..4).prop_map(Op::Persist),
        2 => (0u8..6).prop_map(Op::Remove),
        2 => (0u8..6, 0u8..6).prop_map(|(old, new)| Op::Rename(old, new)),
        2 => (0u8..6, 0u8..6).prop_map(|(old, new)| Op::RenameOver(old, new)),
        1 => Just(Op::Gc),
        1 => Just(Op::Reopen),
        2 => (0u8..6).prop_map(Op::View),
        1 => Just(Op::DropViews),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Against a plain map; views are checked against what they showed first.
    #[test]
    fn behaves_like_a_map(ops in prop::collection::vec(op(), 1..40)) {
        let media = Heap::new();
        let mut store = create(&media);
        let free = store.info().free_bytes;
        let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut views = Vec::new();
        for op in ops {
            match op {
                Op::Persist(puts) => {
                    let mut transaction = store.transaction();
                    for (name, content) in &puts {
                        transaction.put(&name.to_string(), Object::bytes(content));
                        model.insert(name.to_string(), content.clone());
                    }
                    transaction.commit(&summed()).unwrap();
                }
                Op::Remove(name) => {
                    let name = name.to_string();
                    prop_assert_eq!(store.remove(&name).is_ok(), model.remove(&name).is_some());
                }
                Op::Rename(old, new) => {
                    let (old, new) = (old.to_string(), new.to_string());
                    let is_allowed = model.contains_key(&old) && (old == new || !model.contains_key(&new));
                    prop_assert_eq!(store.rename(&old, &new).is_ok(), is_allowed);
                    if is_allowed {
                        let content = model.remove(&old).unwrap();
                        model.insert(new, content);
                    }
                }
                Op::RenameOver(old, new) => {
                    let content = model.remove(&old.to_string());
                    prop_assert_eq!(store.rename_over(&old.to_string(), &new.to_string()).is_ok(), content.is_some());
                    model.extend(content.map(|content| (new.to_string(), content)));
                }
                Op::Gc => drop(store.gc().unwrap()),
                Op::Reopen => {
                    store.close().unwrap();
                    store = open(&media, OpenMode::Writer);
                }
                Op::View(name) => {
                    if let Some(content) = model.get(&name.to_string()) {
                        views.push((store.get(&name.to_string()).unwrap(), content.clone()));
                    }
                }
                Op::DropViews => views.clear(),
            }
            for (view, content) in &views {
                prop_assert_eq!(&view.to_bytes().unwrap(), content);
            }
            let found: BTreeMap<String, Vec<u8>> = store
                .get_every()
                .unwrap()
                .iter()
                .map(|view| (view.name().to_owned(), view.to_bytes().unwrap()))
                .collect();
            prop_assert_eq!(&found, &model);
            store.verify().unwrap();
        }
        views.clear();
        for name in model.keys() {
            store.remove(name).unwrap();
        }
        store.gc().unwrap();
        prop_assert_eq!(store.info().free_bytes, free);
    }
}
