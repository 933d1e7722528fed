//! Objects of which a little is written: what is copied, who sees what, and when bytes go home.
#![allow(unsafe_code)] // writes through private views

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU8, Ordering};

use pmem::{Heap, MIN_FILE_BYTES, Mapped, PartOptions};
use remanent_store::{
    Array, Buffer, Checksums, Committed, DType, Descriptor, Error, Node, Object, ObjectView, OpenMode, Order,
    PersistOptions, PrivateView, Progress, Source, Store, Way,
};

const LEN: usize = 40_000;

fn numbers(first: u32) -> Vec<u32> {
    (first..first + LEN as u32).collect()
}

fn summed() -> PersistOptions<'static> {
    PersistOptions { checksums: Checksums::Crc32c, ..PersistOptions::default() }
}

fn heap() -> Store<Heap> {
    Store::create(Heap::new(), "/p".as_ref(), &PartOptions::single(4 * MIN_FILE_BYTES)).unwrap()
}

fn change(store: &Store<impl pmem::Media>, name: &str, at: usize, values: &[u32]) -> Committed {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut transaction = store.transaction();
    transaction.change(name, Buffer(0), at as u64 * 4, bytes[..].into());
    transaction.commit(&summed()).unwrap()
}

fn changed(at: usize, values: &[u32]) -> Vec<u32> {
    let mut all = numbers(1);
    all[at..at + values.len()].copy_from_slice(values);
    all
}

fn is_partial(committed: &Committed) -> bool {
    matches!(committed.written[0].way, Way::Changed(_))
}

fn redo_waits<M: pmem::Media>(store: &Store<M>, name: &str) -> bool {
    store.pool().region(name).unwrap().info().extents.len() > 1
}

fn persist<M: pmem::Media>(store: &Store<M>, name: &str, values: &[u32]) -> Committed {
    store.persist(&[(name, Object::array(values, &[values.len() as u64]).unwrap())], &summed()).unwrap()
}

#[test]
fn a_change_writes_what_changed_and_where_it_was() {
    let store = heap();
    persist(&store, "a", &numbers(1));
    let extents = store.pool().region("a").unwrap().info().extents.clone();
    let committed = change(&store, "a", 300, &[7, 8, 9]);
    assert!(is_partial(&committed), "{committed:?}");
    assert_eq!(committed.written[0].copied_bytes, 12);
    assert_eq!(store.pool().region("a").unwrap().info().extents, extents, "it is home again");
    let view = store.get("a").unwrap();
    assert_eq!(view.to_vec::<u32>().unwrap(), changed(300, &[7, 8, 9]));
    assert!(view.verify().unwrap());
    drop(view);
    store.gc().unwrap();
    assert_eq!(store.info().retired_bytes, 0, "nothing is left of the redo extent");
}

#[test]
fn a_view_of_what_was_keeps_it_and_costs_a_copy() {
    let store = heap();
    persist(&store, "a", &numbers(1));
    let view = store.get("a").unwrap();
    assert!(!is_partial(&change(&store, "a", 0, &[5])));
    assert_eq!(view.to_vec::<u32>().unwrap(), numbers(1));
    assert_eq!(store.get("a").unwrap().to_vec::<u32>().unwrap(), changed(0, &[5]));
    assert!(is_partial(&change(&store, "a", 1, &[6])), "that view has the old extent");
}

#[test]
fn changes_that_are_most_of_it_make_a_whole_new_object() {
    let store = heap();
    persist(&store, "a", &numbers(1));
    let half = vec![3; LEN / 2 + 1];
    assert!(!is_partial(&change(&store, "a", 0, &half)));
    assert_eq!(store.get("a").unwrap().to_vec::<u32>().unwrap(), changed(0, &half));
    assert!(is_partial(&change(&store, "a", 0, &half[100..])));
}

#[test]
fn changes_of_what_is_not_there_are_refused() {
    let store = heap();
    persist(&store, "a", &numbers(1));
    for (buffer, at) in [(0, 4 * LEN as u64 - 3), (0, u64::MAX), (1, 0)] {
        let mut transaction = store.transaction();
        transaction.change("a", Buffer(buffer), at, [0u8; 4][..].into());
        let error = transaction.commit(&summed()).unwrap_err();
        assert!(matches!(error, Error::LengthMismatch { .. }), "{error}");
    }
    let mut transaction = store.transaction();
    transaction.change("b", Buffer(0), 0, [0u8; 4][..].into());
    assert!(transaction.commit(&summed()).is_err());
    assert_eq!(store.get("a").unwrap().to_vec::<u32>().unwrap(), numbers(1));
    assert!(store.info().generation == store.get("a").unwrap().born());
}

/// A reader in another process may come between the commit and the copying: here it is there before, so a whole object is
/// written; what it has stays.
#[test]
fn a_reader_elsewhere_keeps_what_it_has() {
    let media = Heap::new();
    let options = PartOptions::single(4 * MIN_FILE_BYTES);
    let store = Store::create(media.clone(), "/p".as_ref(), &options).unwrap();
    persist(&store, "a", &numbers(1));
    let reader = Store::open(media.clone(), "/p".as_ref(), OpenMode::Reader).unwrap();
    assert!(!is_partial(&change(&store, "a", 5, &[1])));
    assert_eq!(reader.get("a").unwrap().to_vec::<u32>().unwrap(), numbers(1));
    drop(reader);
    assert!(is_partial(&change(&store, "a", 6, &[2])));
}

fn mapped() -> (tempfile::TempDir, Store<Mapped>) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let store = Store::create(Mapped::new(), &dir.path().join("p"), &PartOptions::single(64 << 20)).unwrap();
    (dir, store)
}

/// A copy of what the view shows.
fn items(view: &PrivateView) -> Vec<u32> {
    // SAFETY: the view is readable for its length and aligned, and nobody stores to it meanwhile.
    unsafe { std::slice::from_raw_parts(view.address().cast(), view.len_bytes() / 4) }.to_vec()
}

/// The view itself, to be persisted.
fn memory(view: &PrivateView) -> &[u32] {
    // SAFETY: as above; the tests store to a view between the uses of this.
    unsafe { std::slice::from_raw_parts(view.address().cast(), view.len_bytes() / 4) }
}

fn set(view: &PrivateView, at: usize, value: u32) {
    assert!(at < view.len_bytes() / 4);
    // SAFETY: the item lies in the view, and nobody else looks.
    unsafe { view.address().cast::<u32>().add(at).write_volatile(value) };
}

fn private(store: &Store<Mapped>, name: &str) -> PrivateView {
    store.get(name).unwrap().private().unwrap().unwrap()
}

#[test]
fn a_private_view_that_is_persisted_again_writes_its_changed_pages() {
    let (_dir, store) = mapped();
    persist(&store, "a", &numbers(1));
    let private = private(&store, "a");
    assert_eq!(items(&private), numbers(1));
    let unchanged = persist(&store, "a", memory(&private));
    assert!(is_partial(&unchanged) && unchanged.written[0].copied_bytes == 0, "{unchanged:?}");
    set(&private, 5000, 77);
    set(&private, 20_000, 20_001);
    let committed = persist(&store, "a", memory(&private));
    assert!(matches!(committed.written[0].way, Way::Changed(Some(_))), "{committed:?}");
    assert_eq!(committed.written[0].copied_bytes, 2 * 4096, "two pages were stored to");
    assert!(!redo_waits(&store, "a"));
    set(&private, 5001, 78);
    let committed = persist(&store, "a", memory(&private));
    assert_eq!(committed.written[0].copied_bytes, 4096, "of what was copied already one page differs");
    store.gc().unwrap();
    assert_eq!(store.info().retired_bytes, 0, "the view holds what is there now, and no redo extent");
    let now = store.get("a").unwrap();
    assert_eq!(now.to_vec::<u32>().unwrap(), changed(5000, &[77, 78]));
    assert!(now.verify().unwrap());
    assert_eq!(items(&private), changed(5000, &[77, 78]));
}

/// Under another name the bytes are not there yet, and two names never share them.
#[test]
fn a_private_view_under_another_name_is_copied() {
    let (_dir, store) = mapped();
    persist(&store, "a", &numbers(1));
    let private = private(&store, "a");
    assert!(!is_partial(&persist(&store, "b", memory(&private))));
    assert!(!is_partial(&persist(&store, "a", &memory(&private)[..LEN - 1])), "a part of it");
    assert!(!is_partial(&persist(&store, "a", memory(&private))), "the object has another extent now");
}

/// A second view of the same object, of whatever kind, has a right to what was.
#[test]
fn two_views_of_one_object_never_see_each_other() {
    let (_dir, store) = mapped();
    persist(&store, "a", &numbers(1));
    let (first, second) = (private(&store, "a"), private(&store, "a"));
    set(&first, 0, 9);
    assert!(!is_partial(&persist(&store, "a", memory(&first))));
    assert_eq!(items(&second), numbers(1));
}

/// Persists a private view while somebody takes a view of the object, so that what changed has to wait.
fn persist_beside_a_look(store: &Store<Mapped>, view: &PrivateView) -> ObjectView<Mapped> {
    let look = std::sync::Mutex::new(None);
    let tell = |_| {
        // What a progress function calls of the store is not in the way of the commit.
        store.gc().unwrap();
        look.lock().unwrap().get_or_insert_with(|| store.get("a").unwrap());
        ControlFlow::Continue(())
    };
    let options = PersistOptions { progress: Some(&tell), ..summed() };
    let object = Object::array(memory(view), &[LEN as u64]).unwrap();
    let committed = store.persist(&[("a", object)], &options).unwrap();
    assert!(is_partial(&committed), "{committed:?}");
    assert!(redo_waits(store, "a"));
    look.into_inner().unwrap().unwrap()
}

/// Whoever opens the pool when the commit is there and the bytes are not home sees the new object all the same.
#[test]
fn bytes_that_wait_are_seen_by_every_kind_of_reader() {
    let (dir, store) = mapped();
    persist(&store, "a", &numbers(1));
    persist(&store, "beside", &numbers(3));
    let private_view = private(&store, "a");
    set(&private_view, 5000, 77);
    let before = persist_beside_a_look(&store, &private_view);
    let expected = changed(5000, &[77]);
    let check = |store: &Store<Mapped>| {
        let now = store.get("a").unwrap();
        assert!(now.verify().unwrap());
        assert_eq!(now.to_vec::<u32>().unwrap(), expected);
        assert_eq!(items(&now.private().unwrap().unwrap()), expected);
        let together = ObjectView::private_each(&[now.clone(), store.get("beside").unwrap()]).unwrap();
        let shown: Vec<_> = together.iter().map(|view| items(view.as_ref().unwrap())).collect();
        assert_eq!(shown, [expected.clone(), numbers(3)]);
        assert_eq!(now.to_bytes().unwrap().len(), 4 * LEN);
        assert!(now.address().addr().is_multiple_of(64));
    };
    check(&store);
    let reader = Store::open(Mapped::new(), &dir.path().join("p"), OpenMode::Reader).unwrap();
    check(&reader);
    assert_eq!(before.to_vec::<u32>().unwrap(), numbers(1), "that view has what it had");
    store.rename("a", "b").unwrap();
    store.rename("b", "a").unwrap();
    assert!(!is_partial(&change(&store, "a", 0, &[9])), "while bytes wait, all of it is written");
    let mut all = expected.clone();
    all[0] = 9;
    assert_eq!(store.get("a").unwrap().to_vec::<u32>().unwrap(), all);
    assert_eq!(reader.get("a").unwrap().to_vec::<u32>().unwrap(), expected);
}

/// As after a crash between the commit and the copying: collecting, or the next writer, copies home and leaves nothing.
#[test]
fn what_waits_goes_home_when_nobody_is_in_the_way() {
    for reopen in [false, true] {
        let (dir, mut store) = mapped();
        persist(&store, "a", &numbers(1));
        let private_view = private(&store, "a");
        set(&private_view, 5000, 77);
        let before = persist_beside_a_look(&store, &private_view);
        store.gc().unwrap();
        assert!(redo_waits(&store, "a"), "that view is in the way");
        if reopen {
            // It closes while that is so.
            drop((store, before, private_view));
            store = Store::open(Mapped::new(), &dir.path().join("p"), OpenMode::Writer).unwrap();
        } else {
            drop(before);
            store.gc().unwrap();
        }
        assert!(!redo_waits(&store, "a"), "opened again: {reopen}");
        assert_eq!(store.get("a").unwrap().to_vec::<u32>().unwrap(), changed(5000, &[77]));
        store.gc().unwrap();
        assert_eq!(store.info().retired_bytes, 0);
    }
}

/// A view of the object itself shows what it showed, whatever becomes of a private one that was made from it.
#[test]
fn a_view_is_in_the_way_of_its_own_private_view() {
    let (_dir, store) = mapped();
    persist(&store, "a", &numbers(1));
    let view = store.get("a").unwrap();
    let private_view = view.private().unwrap().unwrap();
    set(&private_view, 5000, 77);
    assert!(!is_partial(&persist(&store, "a", memory(&private_view))));
    assert_eq!(view.to_vec::<u32>().unwrap(), numbers(1));
    assert!(view.verify().unwrap());
}

#[test]
fn changes_over_one_another_end_with_the_last_and_what_is_put_cannot_be_changed() {
    let store = heap();
    persist(&store, "a", &numbers(1));
    let bytes = |value: u32, len: usize| vec![value; len].into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
    let (long, short, tail) = (bytes(7, 10), bytes(8, 3), bytes(9, 4));
    let mut transaction = store.transaction();
    for (at, bytes) in [(103, &tail), (100, &long), (104, &short), (109, &tail)] {
        transaction.change("a", Buffer(0), 4 * at, bytes[..].into());
    }
    let committed = transaction.commit(&summed()).unwrap();
    assert_eq!(committed.written[0].copied_bytes, 4 * 13, "{committed:?}");
    let expected = changed(100, &[7, 7, 7, 7, 8, 8, 8, 7, 7, 9, 9, 9, 9]);
    assert_eq!(store.get("a").unwrap().to_vec::<u32>().unwrap(), expected);
    let mut transaction = store.transaction();
    transaction.put("a", Object::text("new")).change("a", Buffer(0), 0, short[..].into());
    assert!(matches!(transaction.commit(&summed()), Err(Error::Unreadable { .. })));
    assert_eq!(store.get("a").unwrap().to_vec::<u32>().unwrap(), expected);
}

/// Gathered in memory that two objects share, in part, or not at all.
#[test]
fn changes_arrive_however_much_of_them_is_gathered() {
    let (_dir, store) = mapped();
    let mut expected = BTreeMap::new();
    for name in ["a", "b", "c"] {
        persist(&store, name, &numbers(1));
        expected.insert(name, numbers(1));
    }
    for (round, gather_bytes) in [8 << 20, 0, 600, 1200, u64::MAX, 1].into_iter().enumerate() {
        let mut transaction = store.transaction();
        let bytes = [round as u8 + 1; 400];
        for (name, numbers) in &mut expected {
            for at in [0, 5000 + 101 * round, LEN - 100] {
                transaction.change(name, Buffer(0), 4 * at as u64, bytes[..].into());
                numbers[at..at + 100].fill(u32::from_le_bytes([bytes[0]; 4]));
            }
        }
        let done = std::sync::Mutex::new(Vec::new());
        let tell = |progress: Progress| {
            done.lock().unwrap().push(progress.done_bytes);
            assert_eq!(progress.total_bytes, 3 * 3 * 400);
            ControlFlow::Continue(())
        };
        let committed =
            transaction.commit(&PersistOptions { gather_bytes, progress: Some(&tell), ..summed() }).unwrap();
        assert!(is_partial(&committed), "{committed:?}");
        let done = done.into_inner().unwrap();
        assert!(done.is_sorted() && done.last() == Some(&3600), "{done:?}");
        for (name, numbers) in &expected {
            let view = store.get(name).unwrap();
            assert!(view.verify().unwrap() && view.to_vec::<u32>().unwrap() == *numbers, "{name}, {gather_bytes}");
            assert!(!redo_waits(&store, name));
        }
    }
    // Given up when all of it is copied, it has changed nothing.
    let give_up = |progress: Progress| match progress.done_bytes {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    let mut transaction = store.transaction();
    transaction.change("a", Buffer(0), 0, [99; 400][..].into());
    let options = PersistOptions { progress: Some(&give_up), ..summed() };
    assert!(matches!(transaction.commit(&options), Err(Error::Cancelled)));
    assert_eq!(store.get("a").unwrap().to_vec::<u32>().unwrap(), expected["a"]);
}

/// Bytes that somebody changes when they have been copied, and before the commit.
#[test]
fn a_source_that_changes_meanwhile_is_noticed_when_checksums_are_asked_for() {
    let (_dir, store) = mapped();
    persist(&store, "a", &numbers(1));
    let (generation, free_bytes) = (store.pool().generation(), store.info().free_bytes);
    let bytes: Vec<AtomicU8> = (0..2 << 20).map(|_| AtomicU8::new(1)).collect();
    // SAFETY: the bytes live as long as the sources.
    let source = |at: usize, len: usize| unsafe { Source::from_raw(bytes[at..].as_ptr().cast(), len as u64) };
    let whole = || {
        let descriptor = Descriptor::array(DType::U8, &[bytes.len() as u64], Order::RowMajor).unwrap();
        ("z", Object::from_source(descriptor, source(0, bytes.len())).unwrap())
    };
    let tell = |progress: Progress| {
        if progress.done_bytes == progress.total_bytes {
            bytes[4321].fetch_add(1, Ordering::Relaxed);
        }
        ControlFlow::Continue(())
    };
    let changing = PersistOptions { progress: Some(&tell), ..summed() };
    let refused = |result: Result<Committed, Error>| {
        assert!(matches!(result.unwrap_err(), Error::SourceChanged { name } if name == "z"));
    };
    refused(store.persist(&[("b", Object::text("not kept")), whole()], &changing));
    store.rename("a", "z").unwrap();
    for gather_bytes in [0, 8 << 20] {
        let mut change = store.transaction();
        change.change("z", Buffer(0), 8, source(4300, 100));
        refused(change.commit(&PersistOptions { gather_bytes, ..changing }));
    }
    let private_view = private(&store, "z");
    set(&private_view, 5000, 77);
    let tell = |progress: Progress| {
        if progress.done_bytes == progress.total_bytes {
            set(&private_view, 5001, progress.done_bytes as u32);
        }
        ControlFlow::Continue(())
    };
    let object = Object::array(memory(&private_view), &[LEN as u64]).unwrap();
    refused(store.persist(&[("z", object)], &PersistOptions { progress: Some(&tell), ..summed() }));
    drop(private_view);
    store.rename("z", "a").unwrap();
    store.gc().unwrap();
    assert_eq!((store.pool().generation(), store.info().free_bytes), (generation + 2, free_bytes), "two renames");
    assert_eq!(store.names().unwrap(), ["a"]);
    assert_eq!(store.get("a").unwrap().to_vec::<u32>().unwrap(), numbers(1));
    // What was changed before it was copied is nothing but what is persisted.
    let tell = |progress: Progress| {
        if progress.done_bytes == 0 {
            bytes[4321].store(77, Ordering::Relaxed);
        }
        ControlFlow::Continue(())
    };
    store.persist(&[whole()], &PersistOptions { progress: Some(&tell), ..summed() }).unwrap();
    assert_eq!(store.get("z").unwrap().to_vec::<u8>().unwrap()[4320..4323], [1, 77, 1]);
    assert_eq!(store.verify().unwrap().matching, 2);
}

/// Whoever commits the same object while changes are copied is not undone: the changes are made again, of what is there.
#[test]
fn a_change_that_was_overtaken_is_made_again() {
    let store = heap();
    persist(&store, "a", &numbers(1));
    let is_first = std::sync::atomic::AtomicBool::new(true);
    let tell = |_| {
        if is_first.swap(false, Ordering::Relaxed) {
            persist(&store, "a", &vec![5; LEN]);
        }
        ControlFlow::Continue(())
    };
    let mut transaction = store.transaction();
    transaction.change("a", Buffer(0), 0, [6u8; 4][..].into());
    transaction.commit(&PersistOptions { progress: Some(&tell), ..summed() }).unwrap();
    let now = store.get("a").unwrap().to_vec::<u32>().unwrap();
    assert_eq!((now[0], now[1]), (0x0606_0606, 5));
}

/// Of a value, the large buffers that were not touched stay where they are.
#[test]
fn a_value_keeps_the_buffers_that_did_not_change() {
    let (_dir, store) = mapped();
    const ITEMS: u64 = 2 << 20;
    let array =
        |buffer: u32| Array { dtype: DType::U8, shape: vec![ITEMS], order: Order::RowMajor, buffer: Buffer(buffer) };
    let column = |name: &str, buffer: u32| (Node::Text(name.into()), Node::Array(array(buffer)));
    let small = Node::Array(Array { shape: vec![40], ..array(2) });
    let table = Node::Table { rows: ITEMS, columns: vec![column("a", 0), column("b", 1)] };
    let tree = Node::List(vec![table, small]);
    let columns: [Vec<u8>; 2] = [1, 2].map(|byte| vec![byte; ITEMS as usize]);
    let put = |buffers: [&[u8]; 3]| {
        let sources = buffers.iter().map(|buffer| (*buffer).into()).collect();
        store.persist(&[("v", Object::value(tree.clone(), sources).unwrap())], &summed()).unwrap()
    };
    put([&columns[0], &columns[1], &[3; 40]]);
    let value = store.get("v").unwrap().value().unwrap();
    let views = [0, 1].map(|number| value.private(Buffer(number)).unwrap().unwrap());
    drop(value);
    // SAFETY: the views live as long as the slices, and nobody stores to them meanwhile.
    let bytes =
        [0, 1].map(|n| unsafe { std::slice::from_raw_parts(views[n].address().cast_const(), views[n].len_bytes()) });
    set(&views[1], 9, 5);
    let committed = put([bytes[0], bytes[1], &[4; 40]]);
    assert!(is_partial(&committed), "{committed:?}");
    assert_eq!(committed.written[0].copied_bytes, 4096 + 40);
    assert!(store.get("v").unwrap().verify().unwrap());
    let now = store.get("v").unwrap().value().unwrap();
    assert_eq!(now.to_bytes(Buffer(0)).unwrap(), columns[0]);
    assert_eq!(now.to_bytes(Buffer(1)).unwrap(), bytes[1]);
    assert_eq!(now.to_bytes(Buffer(2)).unwrap(), [4; 40]);
    drop((now, views));
    let mut transaction = store.transaction();
    transaction.change("v", Buffer(2), 8, [1u8; 4][..].into()).change("v", Buffer(0), 0, [6u8; 8][..].into());
    assert!(is_partial(&transaction.commit(&summed()).unwrap()));
    let now = store.get("v").unwrap().value().unwrap();
    assert_eq!(now.to_bytes(Buffer(2)).unwrap()[6..14], [4, 4, 1, 1, 1, 1, 4, 4]);
    assert_eq!(now.to_bytes(Buffer(0)).unwrap()[..10], [6, 6, 6, 6, 6, 6, 6, 6, 1, 1]);
}
