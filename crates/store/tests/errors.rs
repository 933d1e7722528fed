//! Every error of the store comes back typed, changes no byte of the pool, and disturbs no handle that is open.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use pmem::{ErrorCode, Layout, Mapped, OpenMode, PartOptions, Pool, RedoBatch, RegionSpec};
use remanent_store::{
    ByteOrder, Checksums, DType, Descriptor, Error, Field, Object, ObjectView, Order, PersistOptions, Result, Store,
    TypeClass,
};
use tempfile::TempDir;

const NUMBERS: [u64; 300] = [7; 300];

fn plain() -> PersistOptions<'static> {
    PersistOptions::default()
}

/// A store of two parts with some objects, its writer, and a reader that looks at it all the time.
struct Scene {
    dir: TempDir,
    writer: Option<Store>,
    reader: Store,
    view: ObjectView,
}

impl Scene {
    fn new() -> Scene {
        let dir = TempDir::new().expect("a temporary folder");
        let path = dir.path().join("pool");
        let writer = Store::create(Mapped::new(), &path, &PartOptions::single(8 << 20)).expect("a new store");
        writer.grow(None, &PartOptions::single(4 << 20)).expect("a new part");
        let summed = PersistOptions { checksums: Checksums::Crc32c, ..plain() };
        let array = Object::array(&NUMBERS, &[300]).expect("its shape fits");
        writer.persist(&[("a", array), ("t", Object::text("a text"))], &summed).expect("there is room");
        let reader = Store::open(Mapped::new(), &path, OpenMode::Reader).expect("a whole store");
        let view = reader.get("a").expect("it was persisted");
        Scene { dir, writer: Some(writer), reader, view }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("pool")
    }

    fn writer(&self) -> &Store {
        self.writer.as_ref().expect("it was not closed")
    }

    /// Every file of the folder.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = fs::read_dir(self.dir.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
        entries.map(|path| (path.clone(), fs::read(&path).expect("a file of the pool"))).collect()
    }

    #[track_caller]
    fn fails<T>(&self, expected: ErrorCode, action: impl FnOnce() -> Result<T>) {
        let error = action().err().unwrap_or_else(|| panic!("{} was expected", expected.name()));
        assert_eq!(error.code(), expected, "{error}");
        assert!(!error.to_string().is_empty());
        for seen in [self.view.to_vec::<u64>(), self.reader.get("a").and_then(|view| view.to_vec::<u64>())] {
            assert_eq!(seen.expect("the reader was not disturbed"), NUMBERS, "{error}");
        }
    }

    /// `action` is refused with this code, no file changes, and the reader sees what it saw.
    #[track_caller]
    fn refuses<T>(&self, expected: ErrorCode, action: impl FnOnce() -> Result<T>) {
        let before = self.files();
        self.fails(expected, action);
        assert!(self.files() == before, "{}: a file was changed", expected.name());
    }

    /// The writer goes on after whatever was refused.
    fn goes_on(&self) {
        self.writer().persist(&[("after", Object::text("more"))], &plain()).expect("the writer was not disturbed");
        assert_eq!(self.writer().verify().expect("nothing is damaged").matching, 2);
    }
}

#[test]
fn wrong_types_and_lengths_are_refused() {
    let scene = Scene::new();
    let get = |name| scene.writer().get(name).expect("it was persisted");
    scene.refuses(ErrorCode::UnknownType, || get("a").to_vec::<f64>());
    scene.refuses(ErrorCode::NotAnArray, || get("t").to_vec::<u8>());
    scene.refuses(ErrorCode::LengthMismatch, || Object::array(&NUMBERS, &[299]));
    let described = Descriptor::array(DType::U8, &[3], Order::RowMajor).expect("three bytes");
    scene.refuses(ErrorCode::LengthMismatch, || Object::described(described, b"four"));
    scene.refuses(ErrorCode::ShapeOverflow, || Object::array::<f64>(&[], &[1 << 40, 1 << 40]));
    scene.refuses(ErrorCode::UnknownType, || Object::array::<u8>(&[], &[0; 65]));
    scene.refuses(ErrorCode::UnknownType, || DType::new(TypeClass::Bool, ByteOrder::None, 2));
    scene.goes_on();
}

#[test]
fn what_is_too_large_is_refused_and_nothing_with_it() {
    let scene = Scene::new();
    let large = vec![1u8; 7 << 20];
    let both = [("first", Object::text("it would fit")), ("large", Object::bytes(&large))];
    scene.refuses(ErrorCode::PoolFull, || scene.writer().persist(&both, &plain()));
    let field = |number: usize| Field { name: format!("{number:060000}"), offset_bytes: 0, dtype: DType::U8 };
    let fields = (0..20).map(field).collect();
    let wide = DType::new(TypeClass::Struct { fields, aligned: false }, ByteOrder::None, 1).expect("names may be long");
    let descriptor = Descriptor::array(wide, &[3], Order::RowMajor).expect("three bytes");
    let object = Object::described(descriptor, b"abc").expect("as many bytes as it says");
    scene.refuses(ErrorCode::TooLarge, || scene.writer().persist(&[("wide", object)], &plain()));
    scene.goes_on();
}

#[test]
fn names_that_are_unknown_unusable_or_taken_are_refused() {
    let scene = Scene::new();
    let writer = scene.writer();
    for store in [writer, &scene.reader] {
        scene.refuses(ErrorCode::NoSuchName, || store.get("missing"));
        scene.refuses(ErrorCode::NoSuchName, || store.get_all(&["a", "missing"]));
    }
    scene.refuses(ErrorCode::NoSuchName, || writer.remove("missing"));
    scene.refuses(ErrorCode::NoSuchName, || writer.rename("missing", "b"));
    scene.refuses(ErrorCode::AlreadyExists, || writer.rename("a", "t"));
    for name in ["", "line\nbreak", &"x".repeat(1025), &"ü".repeat(513)] {
        scene.refuses(ErrorCode::BadName, || {
            writer.persist(&[("b", Object::text("b")), (name, Object::text("x"))], &plain())
        });
        scene.refuses(ErrorCode::BadName, || writer.rename("a", name));
        scene.refuses(ErrorCode::NoSuchName, || writer.get(name));
    }
    writer.persist(&[(&"x".repeat(1024), Object::text("x"))], &plain()).expect("as long as can be");
    let mut transaction = writer.transaction();
    transaction.put("a", Object::text("new")).remove("missing");
    scene.refuses(ErrorCode::NoSuchName, || transaction.commit(&plain()));
    scene.goes_on();
}

#[test]
fn a_second_writer_and_a_writing_reader_are_refused() {
    let scene = Scene::new();
    scene.refuses(ErrorCode::PoolBusy, || Store::open(Mapped::new(), &scene.path(), OpenMode::Writer));
    scene.refuses(ErrorCode::AlreadyExists, || {
        Store::create(Mapped::new(), &scene.path(), &PartOptions::single(8 << 20))
    });
    let reader = &scene.reader;
    scene.refuses(ErrorCode::NotWritable, || reader.persist(&[("b", Object::text("b"))], &plain()));
    scene.refuses(ErrorCode::NotWritable, || reader.remove("a"));
    scene.refuses(ErrorCode::NotWritable, || reader.rename("a", "b"));
    scene.refuses(ErrorCode::NotWritable, || reader.gc());
    scene.refuses(ErrorCode::NotWritable, || reader.grow(None, &PartOptions::single(4 << 20)));
    scene.goes_on();
}

#[test]
fn a_pool_of_another_product_is_no_store() {
    let scene = Scene::new();
    let path = scene.dir.path().join("other");
    for layout in [Layout { name: "other", version: 1 }, Layout { name: "store", version: 2 }] {
        let options = PartOptions::single(4 << 20);
        Pool::create(Mapped::new(), &path, layout, &options).expect("a new pool").close().expect("it is closed");
        let other = Pool::open(Mapped::new(), &path, Some(layout), OpenMode::Reader).expect("a whole pool");
        for mode in [OpenMode::Inspect, OpenMode::Reader, OpenMode::Writer] {
            scene.refuses(ErrorCode::WrongLayout, || Store::open(Mapped::new(), &path, mode));
        }
        assert!(other.regions("").expect("the process has not forked").is_empty());
        fs::remove_file(&path).expect("our own file");
    }
    scene.goes_on();
}

/// What was copied before lies in free space, so the files are not compared here, but everything in them is.
#[test]
fn a_commit_that_is_given_up_changes_no_object() {
    let scene = Scene::new();
    let writer = scene.writer();
    let (generation, free_bytes) = (writer.pool().generation(), writer.info().free_bytes);
    let bytes = vec![1u8; 3 << 20];
    let options = PersistOptions { progress: Some(&|_| ControlFlow::Break(())), ..plain() };
    scene.fails(ErrorCode::Cancelled, || writer.persist(&[("a", Object::bytes(&bytes))], &options));
    assert_eq!((writer.pool().generation(), writer.info().free_bytes), (generation, free_bytes));
    scene.goes_on();
}

#[test]
fn damaged_and_unknown_objects_are_refused_and_the_others_are_read() {
    let scene = Scene::new();
    let writer = scene.writer();
    let good = writer.pool().region("t").expect("it was persisted").info().meta.clone();
    let mut batch = RedoBatch::new();
    batch
        .put("later kind", RegionSpec { kind: 77, meta: good.clone(), ..RegionSpec::default() })
        .put("cut short", RegionSpec { kind: 3, meta: good[..20].to_vec(), ..RegionSpec::default() })
        .put("no extent", RegionSpec { kind: 3, meta: good, ..RegionSpec::default() });
    writer.pool().commit(batch).expect("there is room");
    scene.refuses(ErrorCode::UnknownType, || writer.get("later kind"));
    scene.refuses(ErrorCode::Corrupt, || writer.get("cut short"));
    scene.refuses(ErrorCode::Corrupt, || writer.get("no extent"));
    for name in ["later kind", "cut short", "no extent"] {
        writer.remove(name).expect("what cannot be read can be removed");
    }
    let extent = writer.pool().region("t").expect("it was persisted").info().extents[0];
    writer.pool().set().store_bytes(extent.offset, b"A");
    scene.refuses(ErrorCode::ChecksumMismatch, || writer.get("t")?.verify());
    scene.refuses(ErrorCode::ChecksumMismatch, || writer.verify());
    writer
        .persist(&[("t", Object::text("again"))], &PersistOptions { checksums: Checksums::Crc32c, ..plain() })
        .expect("the others are not affected");
    scene.goes_on();
}

/// A store is closed by value; what it gave out goes on, also when the next writer has replaced everything.
#[test]
fn views_of_a_closed_store_are_not_disturbed_by_what_the_next_writer_is_refused() {
    let mut scene = Scene::new();
    let view = scene.writer().get("a").expect("it was persisted");
    scene.writer.take().expect("it is there").close().expect("it can be marked clean");
    scene.writer = Some(Store::open(Mapped::new(), &scene.path(), OpenMode::Writer).expect("the lock is free"));
    scene.writer().persist(&[("a", Object::array(&[1u64], &[1]).expect("one item"))], &plain()).expect("there is room");
    scene.refuses(ErrorCode::NoSuchName, || scene.writer().remove("missing"));
    assert_eq!(view.to_vec::<u64>().expect("it is pinned"), NUMBERS);
    let error = scene.writer().get("t").and_then(|text| text.to_vec::<u64>()).unwrap_err();
    assert!(matches!(error, Error::NotAnArray { .. }), "{error}");
}
