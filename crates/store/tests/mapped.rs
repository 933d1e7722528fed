//! The store on real files.
#![allow(unsafe_code)] // writes through private views

use std::fs::OpenOptions;

use pmem::{ErrorCode, Mapped, OpenMode, PartOptions};
use remanent_store::{Checksums, Object, ObjectView, PersistOptions, Result, Store};

fn plain() -> PersistOptions<'static> {
    PersistOptions::default()
}

#[test]
fn arrays_survive_the_store_and_private_views_leave_them_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let store = Store::create(Mapped::new(), &path, &PartOptions::single(64 << 20)).unwrap();
    let numbers: Vec<u64> = (0..2_000_000).collect();
    let objects = [("n", Object::array(&numbers, &[1000, 2000]).unwrap()), ("s", Object::text("small"))];
    store.persist(&objects, &plain()).unwrap();
    store.close().unwrap();
    let store = Store::open(Mapped::new(), &path, OpenMode::Reader).unwrap();
    let view = store.get("n").unwrap();
    let private = view.private().unwrap().unwrap();
    assert!(view.address().addr().is_multiple_of(4096) && store.get("s").unwrap().address().addr().is_multiple_of(64));
    drop(store);
    assert_eq!(private.len_bytes(), 16_000_000);
    // SAFETY: the private view is readable and writable for its length, aligned, and nobody else has it.
    let items = unsafe { std::slice::from_raw_parts_mut(private.address().cast::<u64>(), 2_000_000) };
    assert_eq!(items, numbers);
    items.fill(0);
    assert_eq!(view.to_vec::<u64>().unwrap(), numbers);
}

#[test]
fn what_is_asked_of_many_objects_is_that_of_each() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(Mapped::new(), &dir.path().join("pool"), &PartOptions::single(64 << 20)).unwrap();
    let arrays: Vec<Vec<u64>> = [20_000, 0, 300_000, 10, 9_000].map(|items| (items..2 * items).collect()).into();
    let names = ["a", "b", "c", "d", "e"];
    let objects =
        names.iter().zip(&arrays).map(|(name, array)| Ok((*name, Object::array(array, &[array.len() as u64])?)));
    store.persist(&objects.collect::<Result<Vec<_>>>().unwrap(), &plain()).unwrap();
    let views = store.get_every().unwrap();
    let privates = ObjectView::private_each(&views).unwrap();
    let copies = ObjectView::to_bytes_each(&views).unwrap();
    drop(views);
    for (copy, array) in copies.iter().zip(&arrays) {
        assert!(copy.chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).eq(array.iter().copied()));
    }
    for (private, array) in privates.iter().zip(&arrays) {
        let Some(private) = private else {
            assert!(array.is_empty());
            continue;
        };
        // SAFETY: the private view is readable for its length, aligned, and nobody stores to it.
        let items = unsafe { std::slice::from_raw_parts(private.address().cast::<u64>(), private.len_bytes() / 8) };
        assert_eq!(items, array);
    }
}

#[test]
fn a_pool_that_was_cut_short_refuses_and_keeps_the_process_alive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let store = Store::create(Mapped::new(), &path, &PartOptions::single(16 << 20)).unwrap();
    let bytes = vec![1u8; 4 << 20];
    let summed = PersistOptions { checksums: Checksums::Crc32c, ..plain() };
    store.persist(&[("before", Object::bytes(&bytes[..1 << 20])), ("text", Object::text("short"))], &summed).unwrap();
    store.persist(&[("a", Object::bytes(&bytes))], &summed).unwrap();
    let view = store.get("a").unwrap();
    let end = |name: &str| store.pool().region(name).unwrap().info().extents[0].offset.byte();
    let cut = end("a") + (1 << 20);
    assert!(end("before") + (1 << 20) < cut && end("text") < cut);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();
    let refused = |result: Result<()>| assert_eq!(result.unwrap_err().code(), ErrorCode::Truncated);
    let generation = store.pool().generation();
    refused(store.get("a").map(drop));
    refused(store.get_every().map(drop));
    refused(store.get_all(&["before", "a"]).map(drop));
    refused(view.to_bytes().map(drop));
    refused(store.persist(&[("b", Object::bytes(&bytes))], &plain()).map(drop));
    refused(store.persist(&[("b", Object::text("no less"))], &plain()).map(drop));
    refused(store.remove("text").map(drop));
    assert_eq!(store.pool().generation(), generation);
    assert_eq!(store.names().unwrap(), ["a", "before", "text"]);
    // What lies before the cut is there.
    assert_eq!(store.get("before").unwrap().to_bytes().unwrap(), bytes[..1 << 20]);
    let views = store.get_all(&["text", "before"]).unwrap();
    assert_eq!(views[0].to_bytes().unwrap(), b"short");
    drop((store, view, views));
    let error = Store::open(Mapped::new(), &path, OpenMode::Reader).map(drop).unwrap_err();
    assert!(error.to_string().contains(&(16 << 20).to_string()), "{error}");
    refused(Err(error));
    // With the length that it had, it is a pool in which sums tell what is lost.
    OpenOptions::new().write(true).open(&path).unwrap().set_len(16 << 20).unwrap();
    let store = Store::open(Mapped::new(), &path, OpenMode::Reader).unwrap();
    assert!(store.get("before").unwrap().verify().unwrap());
    assert_eq!(store.get("a").unwrap().verify().unwrap_err().code(), ErrorCode::ChecksumMismatch);
}

/// The page that a file ends in is there, with zeros behind the end.
#[test]
fn an_object_that_the_file_ends_in_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let store = Store::create(Mapped::new(), &path, &PartOptions::single(16 << 20)).unwrap();
    let bytes = vec![1u8; 2 << 20];
    store.persist(&[("a", Object::bytes(&bytes)), ("b", Object::text("short"))], &plain()).unwrap();
    let extent = |name: &str| store.pool().region(name).unwrap().info().extents[0];
    let (name, last) = ["a", "b"].map(|name| (name, extent(name))).into_iter().max_by_key(|(_, at)| at.offset).unwrap();
    let end = last.offset.byte() + last.len_bytes;
    let cut = |end: u64| OpenOptions::new().write(true).open(&path).unwrap().set_len(end).unwrap();
    cut(end);
    assert!(store.get("a").is_ok() && store.get("b").is_ok());
    cut(end - 1);
    assert_eq!(store.get(name).unwrap_err().code(), ErrorCode::Truncated);
}

#[test]
fn prefault_covers_every_part_also_those_added_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let store = Store::create(Mapped::new(), &path, &PartOptions::single(16 << 20)).unwrap();
    store.prefault().unwrap();
    store.wait_for_prefault().unwrap();
    store.grow(None, &PartOptions::single(8 << 20)).unwrap();
    assert_eq!(store.prefault_progress().total_bytes, 6 << 20);
    store.wait_for_prefault().unwrap();
    let bytes = vec![1u8; 12 << 20];
    store.persist(&[("a", Object::bytes(&bytes)), ("b", Object::bytes(&bytes[..5 << 20]))], &plain()).unwrap();
    assert_eq!(store.get("b").unwrap().to_bytes().unwrap(), bytes[..5 << 20]);
}
