//! Memory of the pool that is written to where it lies: drafts, and objects that are changed in place.
#![allow(unsafe_code)] // writes through views

use std::ops::ControlFlow;
use std::path::Path;

use pmem::{ErrorCode, MIN_FILE_BYTES, Mapped, PartOptions};
use remanent_store::{
    Array, Buffer, Checksums, Committed, DirectView, Element, Flags, Node, Object, OpenMode, Order, PersistOptions,
    Result, Store, Way,
};

const LEN: usize = 40_000;

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let store = Store::create(Mapped::new(), &path(&dir), &PartOptions::single(64 << 20)).unwrap();
    (dir, store)
}

fn path(dir: &tempfile::TempDir) -> std::path::PathBuf {
    dir.path().join("p")
}

fn open(path: &Path, mode: OpenMode) -> Store {
    Store::open(Mapped::new(), path, mode).unwrap()
}

fn numbers(first: u32) -> Vec<u32> {
    (first..first + LEN as u32).collect()
}

fn fill(view: &DirectView, values: &[u32]) {
    assert_eq!(view.len_bytes(), 4 * values.len());
    // SAFETY: the view is writable for its length and aligned, and nobody looks meanwhile.
    unsafe { view.address().cast::<u32>().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
}

fn shown(view: &DirectView) -> &[u32] {
    // SAFETY: the view is readable for its length and aligned; the tests store to it between the uses of this.
    unsafe { std::slice::from_raw_parts(view.address().cast(), view.len_bytes() / 4) }
}

fn array(view: &DirectView) -> Object<'_> {
    Object::array(shown(view), &[LEN as u64]).unwrap()
}

fn persist(store: &Store, objects: &[(&str, Object<'_>)]) -> Result<Committed> {
    store.persist(objects, &PersistOptions { checksums: Checksums::Crc32c, ..PersistOptions::default() })
}

fn values(store: &Store, name: &str) -> Vec<u32> {
    store.get(name).unwrap().to_vec().unwrap()
}

fn code<T>(result: Result<T>) -> ErrorCode {
    result.err().expect("it is refused").code()
}

fn flags(store: &Store, name: &str) -> Flags {
    store.ls().unwrap().into_iter().find(|object| object.name == name).unwrap().descriptor.unwrap().flags()
}

#[test]
fn a_draft_is_persisted_without_a_copy_and_private_from_then_on() {
    let (dir, store) = store();
    let draft = store.draft(4 * LEN as u64).unwrap();
    fill(&draft, &numbers(1));
    assert!(draft.is_direct() && !store.contains("a").unwrap());
    let committed = persist(&store, &[("a", array(&draft))]).unwrap();
    assert_eq!((committed.written[0].way, committed.written[0].copied_bytes), (Way::InPlace, 0));
    assert_eq!(store.pool().region("a").unwrap().info().extents, [draft.extent()]);
    assert!(!draft.is_direct());
    fill(&draft, &numbers(2));
    assert_eq!(values(&store, "a"), numbers(1));
    assert!(store.get("a").unwrap().verify().unwrap());
    // It is a private view of the object: what was stored to it is what must be copied.
    fill(&draft, &numbers(1));
    store_one(&draft, 7);
    let committed = persist(&store, &[("a", array(&draft))]).unwrap();
    assert!(matches!(committed.written[0].way, Way::Whole), "every page was stored to: {committed:?}");
    // The view keeps what it shows.
    store.remove("a").unwrap();
    store.gc().unwrap();
    assert_eq!(shown(&draft)[1..], numbers(1)[1..]);
    store.close().unwrap();
    assert_eq!(shown(&draft)[..2], [7, 2]);
    assert!(!open(&path(&dir), OpenMode::Reader).contains("a").unwrap());
}

fn store_one(view: &DirectView, value: u32) {
    // SAFETY: the first item lies in the view, and nobody else looks.
    unsafe { view.address().cast::<u32>().write_volatile(value) };
}

#[test]
fn a_committed_draft_is_persisted_again_by_its_changed_pages() {
    let (_dir, store) = store();
    let draft = store.draft(4 * LEN as u64).unwrap();
    fill(&draft, &numbers(1));
    persist(&store, &[("a", array(&draft))]).unwrap();
    store_one(&draft, 9);
    let committed = persist(&store, &[("a", array(&draft))]).unwrap();
    assert!(matches!(committed.written[0].way, Way::Changed(Some(_))), "{committed:?}");
    assert_eq!(committed.written[0].copied_bytes, 4096);
    assert_eq!(values(&store, "a")[..2], [9, 2]);
}

#[test]
fn a_value_keeps_drafts_and_copies_the_rest() {
    let (_dir, store) = store();
    let draft = store.draft(4 * LEN as u64).unwrap();
    fill(&draft, &numbers(1));
    let other = numbers(5);
    let array =
        |buffer| Array { dtype: u32::dtype(), shape: vec![LEN as u64], order: Order::RowMajor, buffer: Buffer(buffer) };
    let tree = Node::List(vec![Node::Array(array(0)), Node::Array(array(1))]);
    let bytes: Vec<u8> = other.iter().flat_map(|value| value.to_le_bytes()).collect();
    let value = Object::value(tree, vec![(&draft).into(), bytes[..].into()]).unwrap();
    let committed = persist(&store, &[("v", value)]).unwrap();
    assert_eq!(committed.written[0].copied_bytes, 4 * LEN as u64, "one of two");
    let view = store.get("v").unwrap();
    assert!(view.verify().unwrap());
    let value = view.value().unwrap();
    let found: Vec<u32> = [0, 1]
        .into_iter()
        .flat_map(|buffer| value.to_bytes(Buffer(buffer)).unwrap())
        .collect::<Vec<u8>>()
        .chunks(4)
        .map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!(found, [numbers(1), numbers(5)].concat());
}

#[test]
fn a_draft_becomes_one_object_only() {
    let (_dir, store) = store();
    let draft = store.draft(4 * LEN as u64).unwrap();
    fill(&draft, &numbers(1));
    let committed = persist(&store, &[("a", array(&draft)), ("b", array(&draft))]).unwrap();
    assert_eq!(committed.written.iter().map(|written| written.way).collect::<Vec<_>>(), [Way::InPlace, Way::Whole]);
    assert_eq!((values(&store, "a"), values(&store, "b")), (numbers(1), numbers(1)));
    store.remove("a").unwrap();
    drop(draft);
    store.gc().unwrap();
    assert_eq!(values(&store, "b"), numbers(1));
}

#[test]
fn what_is_refused_leaves_a_draft_that_is_persisted_with_what_was_stored_since() {
    let (_dir, store) = store();
    let draft = store.draft(4 * LEN as u64).unwrap();
    fill(&draft, &numbers(1));
    // Before anything is copied.
    assert_eq!(code(persist(&store, &[("a", array(&draft)), ("", Object::text("no name"))])), ErrorCode::BadName);
    assert!(draft.is_direct());
    let too_much = vec![0u8; 128 << 20];
    assert_eq!(code(persist(&store, &[("a", array(&draft)), ("b", Object::bytes(&too_much))])), ErrorCode::PoolFull);
    assert!(draft.is_direct());
    let give_up = |_| ControlFlow::Break(());
    let options = PersistOptions { progress: Some(&give_up), ..PersistOptions::default() };
    assert_eq!(code(store.persist(&[("a", array(&draft))], &options)), ErrorCode::Cancelled);
    fill(&draft, &numbers(2));
    persist(&store, &[("a", array(&draft))]).unwrap();
    assert_eq!(values(&store, "a"), numbers(2));
    // When it was detached already, and the commit could not be made: a name that a removal must find.
    let draft = store.draft(4 * LEN as u64).unwrap();
    fill(&draft, &numbers(3));
    let object = array(&draft);
    let vanishing = |_| {
        let _ = store.remove("a");
        ControlFlow::Continue(())
    };
    let options = PersistOptions { progress: Some(&vanishing), ..PersistOptions::default() };
    let mut transaction = store.transaction();
    transaction.put("b", object).remove("a");
    assert_eq!(code(transaction.commit(&options)), ErrorCode::NoSuchName);
    assert!(!draft.is_direct());
    fill(&draft, &numbers(4));
    let committed = persist(&store, &[("b", array(&draft))]).unwrap();
    assert_eq!((committed.written[0].way, values(&store, "b")), (Way::Whole, numbers(4)));
}

#[test]
fn the_space_of_a_draft_is_given_back() {
    let (_dir, store) = store();
    let free = || store.info().free_bytes;
    let before = free();
    let draft = store.draft(4 * LEN as u64).unwrap();
    assert!(free() < before);
    drop(draft);
    assert_eq!(free(), before);
    assert_eq!(code(store.draft(1 << 40)), ErrorCode::PoolFull);
}

#[test]
fn a_draft_that_is_left_when_the_store_ends_keeps_its_bytes_and_no_space() {
    for close in [(|store: Store| store.close().unwrap()) as fn(Store), |store| drop(store)] {
        let (dir, store) = store();
        let draft = store.draft(4 * LEN as u64).unwrap();
        fill(&draft, &numbers(1));
        close(store);
        assert!(!draft.is_direct());
        let next = open(&path(&dir), OpenMode::Writer);
        let other = next.draft(4 * LEN as u64).unwrap();
        assert_eq!(other.extent(), draft.extent(), "the same space");
        fill(&other, &numbers(7));
        assert_eq!(shown(&draft), numbers(1));
        fill(&draft, &numbers(2));
        assert_eq!(shown(&other), numbers(7));
    }
}

#[test]
fn what_is_changed_in_place_is_durable_when_it_is_persisted_and_nobody_elses() {
    let (dir, store) = store();
    let first = numbers(1);
    persist(&store, &[("a", Object::array(&first, &[LEN as u64]).unwrap()), ("t", Object::text("text"))]).unwrap();
    let extents = store.pool().region("a").unwrap().info().extents.clone();
    let view = store.in_place("a").unwrap();
    assert!(view.is_direct() && flags(&store, "a").contains(Flags::IN_PLACE));
    assert_eq!(shown(&view), first);
    // Nobody is given it: neither here nor elsewhere.
    assert_eq!(code(store.get("a")), ErrorCode::InUse);
    assert_eq!(code(store.get_every()), ErrorCode::InUse);
    assert_eq!(code(store.in_place("a")), ErrorCode::InUse);
    let reader = open(&path(&dir), OpenMode::Reader);
    assert_eq!(code(reader.get("a")), ErrorCode::InUse);
    assert_eq!(code(reader.get_all(&["t", "a"])), ErrorCode::InUse);
    assert!(reader.get("t").is_ok());
    drop(reader);
    fill(&view, &numbers(2));
    let committed = persist(&store, &[("a", array(&view))]).unwrap();
    assert_eq!((committed.written[0].way, committed.written[0].copied_bytes), (Way::InPlace, 0));
    assert!(view.is_direct() && flags(&store, "a").contains(Flags::IN_PLACE));
    assert_eq!(store.pool().region("a").unwrap().info().extents, extents);
    assert_eq!(store.verify().unwrap().without_checksum, 1, "a checksum would be wrong at the next store");
    // Under another name it is copied.
    persist(&store, &[("copy", array(&view))]).unwrap();
    fill(&view, &numbers(3));
    assert_eq!(values(&store, "copy"), numbers(2));
    drop(view);
    assert_eq!(values(&store, "a"), numbers(3), "its writer is done with it");
    assert_eq!(flags(&store, "a"), Flags::default());
    store.gc().unwrap();
    assert_eq!(store.info().retired_bytes, 0);
    store.close().unwrap();
    assert_eq!(values(&open(&path(&dir), OpenMode::Reader), "a"), numbers(3));
}

#[test]
fn what_somebody_looks_at_is_not_changed_in_place() {
    let (dir, store) = store();
    let first = numbers(1);
    persist(&store, &[("a", Object::array(&first, &[LEN as u64]).unwrap())]).unwrap();
    let (generation, view) = (store.info().generation, store.get("a").unwrap());
    assert_eq!(code(store.in_place("a")), ErrorCode::InUse);
    let private = view.private().unwrap().unwrap();
    drop(view);
    assert_eq!(code(store.in_place("a")), ErrorCode::InUse);
    drop(private);
    assert_eq!(store.info().generation, generation, "nothing was changed");
    let reader = open(&path(&dir), OpenMode::Reader);
    assert_eq!(code(store.in_place("a")), ErrorCode::InUse);
    assert_eq!((flags(&store, "a"), values(&reader, "a")), (Flags::default(), first));
    drop(reader);
    assert!(store.in_place("a").is_ok());
}

#[test]
fn only_arrays_with_bytes_are_changed_in_place() {
    let (_dir, store) = store();
    let none: [u32; 0] = [];
    persist(&store, &[("text", Object::text("x")), ("empty", Object::array(&none, &[0]).unwrap())]).unwrap();
    assert_eq!(code(store.in_place("text")), ErrorCode::NotAnArray);
    assert_eq!(code(store.in_place("empty")), ErrorCode::UnknownType);
    assert_eq!(code(store.in_place("missing")), ErrorCode::NoSuchName);
    assert_eq!(flags(&store, "text"), Flags::default());
}

/// The writer is gone without having closed: the next one says so, until the object is whole again.
#[test]
fn an_interrupted_change_is_marked_until_the_object_is_written_anew() {
    let (dir, store) = store();
    let first = numbers(1);
    persist(&store, &[("a", Object::array(&first, &[LEN as u64]).unwrap())]).unwrap();
    // What a killed process leaves: the file as it is, and no lock.
    let view = store.in_place("a").unwrap();
    store_one(&view, 77);
    let copy = dir.path().join("killed");
    std::fs::copy(path(&dir), &copy).unwrap();
    let reader = open(&copy, OpenMode::Reader);
    assert!(reader.get("a").unwrap().descriptor().flags().contains(Flags::IN_PLACE));
    assert_eq!(values(&reader, "a")[..2], [77, 2]);
    drop(reader);
    let next = open(&copy, OpenMode::Writer);
    assert_eq!(flags(&next, "a"), Flags::INTERRUPTED);
    assert_eq!(values(&next, "a")[..2], [77, 2]);
    assert_eq!(values(&open(&copy, OpenMode::Reader), "a")[..2], [77, 2], "beside that writer, too");
    // Nobody has written all of it by looking at it, nor by changing some of it.
    let again = next.in_place("a").unwrap();
    let marks = flags(&next, "a");
    assert!(marks.contains(Flags::IN_PLACE) && marks.contains(Flags::INTERRUPTED));
    drop(again);
    next.gc().unwrap();
    assert_eq!(flags(&next, "a"), Flags::INTERRUPTED);
    let mut transaction = next.transaction();
    let five = 5u32.to_le_bytes();
    transaction.change("a", Buffer(0), 4, five[..].into());
    transaction.commit(&PersistOptions::default()).unwrap();
    assert_eq!((flags(&next, "a"), &values(&next, "a")[..2]), (Flags::INTERRUPTED, &[77, 5][..]));
    let again = next.in_place("a").unwrap();
    persist(&next, &[("a", array(&again))]).unwrap();
    drop(again);
    next.close().unwrap();
    assert_eq!(flags(&open(&copy, OpenMode::Reader), "a"), Flags::default());
}

#[test]
fn a_view_in_place_is_private_when_the_store_is_closed() {
    let (dir, store) = store();
    persist(&store, &[("a", Object::array(&numbers(1), &[LEN as u64]).unwrap())]).unwrap();
    let view = store.in_place("a").unwrap();
    fill(&view, &numbers(2));
    store.close().unwrap();
    assert!(!view.is_direct());
    let next = open(&path(&dir), OpenMode::Writer);
    assert_eq!((flags(&next, "a"), values(&next, "a")), (Flags::default(), numbers(2)));
    store_one(&view, 5);
    assert_eq!(values(&next, "a"), numbers(2));
}

#[test]
fn an_object_that_is_replaced_or_removed_leaves_its_view_alone() {
    let (_dir, store) = store();
    let first = numbers(1);
    let object = || Object::array(&first, &[LEN as u64]).unwrap();
    persist(&store, &[("a", object()), ("b", object())]).unwrap();
    let (a, b) = (store.in_place("a").unwrap(), store.in_place("b").unwrap());
    persist(&store, &[("a", Object::array(&numbers(8), &[LEN as u64]).unwrap())]).unwrap();
    store.remove("b").unwrap();
    fill(&a, &numbers(2));
    fill(&b, &numbers(3));
    assert_eq!((values(&store, "a"), flags(&store, "a")), (numbers(8), Flags::default()));
    store.gc().unwrap();
    persist(&store, &[("c", Object::array(&numbers(9), &[LEN as u64]).unwrap())]).unwrap();
    assert_eq!((shown(&a), shown(&b)), (&numbers(2)[..], &numbers(3)[..]), "nobody else got the space");
    // Persisted now it is a whole new object.
    let committed = persist(&store, &[("a", array(&a))]).unwrap();
    assert_eq!((committed.written[0].way, values(&store, "a")), (Way::Whole, numbers(2)));
}

#[test]
fn a_change_in_place_has_a_new_name_as_the_object() {
    let (_dir, store) = store();
    persist(&store, &[("a", Object::array(&numbers(1), &[LEN as u64]).unwrap())]).unwrap();
    let view = store.in_place("a").unwrap();
    store.rename("a", "b").unwrap();
    fill(&view, &numbers(2));
    assert_eq!(persist(&store, &[("b", array(&view))]).unwrap().written[0].way, Way::InPlace);
    assert_eq!(code(store.get("b")), ErrorCode::InUse);
    drop(view);
    assert_eq!(values(&store, "b"), numbers(2));
    assert_eq!(flags(&store, "b"), Flags::default());
}

#[test]
fn a_reader_has_no_memory_of_the_pool() {
    let (dir, store) = store();
    store.close().unwrap();
    let reader = open(&path(&dir), OpenMode::Reader);
    assert_eq!(code(reader.draft(MIN_FILE_BYTES)), ErrorCode::NotWritable);
    assert_eq!(code(reader.in_place("a")), ErrorCode::NotWritable);
}
