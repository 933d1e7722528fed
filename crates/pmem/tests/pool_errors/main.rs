//! Every error of the pool comes back typed, changes no byte of any file, and disturbs no handle that is open.
#![allow(unsafe_code)] // fork(2) has no safe form

mod scene;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use remanent_pmem::{Error, ErrorCode, Layout, MIN_FILE_BYTES, Mapped, OpenMode, PartOptions, Pool, RedoBatch};
use scene::{CONTENT, LAYOUT, Scene, open, put};
use tempfile::TempDir;

impl Scene {
    fn new() -> Scene {
        Scene::within(TempDir::new().expect("a temporary folder"))
    }

    fn part(&self) -> PathBuf {
        self.dir.path().join("pool.1")
    }

    fn refuses_to_open(&self, expected: ErrorCode) {
        for mode in [OpenMode::Inspect, OpenMode::Reader, OpenMode::Writer] {
            self.refuses(expected, || open(&self.path(), mode));
        }
    }

    fn patch(&self, path: &Path, at: &[u64], bytes: &[u8]) {
        let file = fs::OpenOptions::new().write(true).open(path).expect("a file of the pool");
        at.iter().for_each(|&at| file.write_all_at(bytes, at).expect("a byte of the file"));
    }

    /// Changes fields of both superblocks of a file and seals them again, as the format's page says.
    fn reseal(&self, path: &Path, offset: usize, bytes: &[u8]) {
        for at in [0, 1 << 20] {
            let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("a file of the pool");
            let mut slot = vec![0; 4096];
            file.read_exact_at(&mut slot, at).expect("a superblock");
            slot[offset..offset + bytes.len()].copy_from_slice(bytes);
            let crc = crc32c::crc32c(&slot[..4088]);
            slot[4088..4092].copy_from_slice(&crc.to_le_bytes());
            file.write_all_at(&slot, at).expect("a superblock");
        }
    }
}

#[test]
fn a_missing_file_a_folder_a_link_and_a_device_are_refused() {
    let scene = Scene::new();
    let beside = |name: &str| scene.dir.path().join(name);
    fs::create_dir(beside("folder")).expect("a new folder");
    symlink(scene.path(), beside("link")).expect("a new link");
    scene.refuses(ErrorCode::NotFound, || open(&beside("missing"), OpenMode::Writer));
    scene.refuses(ErrorCode::IsDirectory, || open(&beside("folder"), OpenMode::Writer));
    scene.refuses(ErrorCode::Symlink, || open(&beside("link"), OpenMode::Writer));
    scene.refuses(ErrorCode::NotAFile, || open(Path::new("/dev/null"), OpenMode::Reader));
}

#[test]
fn nothing_that_exists_is_overwritten_by_a_new_pool() {
    let scene = Scene::new();
    let options = PartOptions::single(MIN_FILE_BYTES);
    scene.refuses(ErrorCode::AlreadyExists, || Pool::create(Mapped::new(), &scene.path(), LAYOUT, &options));
    let link = scene.dir.path().join("link");
    symlink("nowhere", &link).expect("a new link");
    scene.refuses(ErrorCode::AlreadyExists, || Pool::create(Mapped::new(), &link, LAYOUT, &options));
    let striped = PartOptions { more_files: vec![scene.part()], ..options };
    let new = scene.dir.path().join("new");
    scene.refuses(ErrorCode::AlreadyExists, || Pool::create(Mapped::new(), &new, LAYOUT, &striped));
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let scene = Scene::new();
    let new = scene.dir.path().join("new");
    for bytes in [0, 1, 4096, MIN_FILE_BYTES - 4096, MIN_FILE_BYTES + 1, 1 << 47, u64::MAX] {
        let create = || Pool::create(Mapped::new(), &new, LAYOUT, &PartOptions::single(bytes));
        scene.refuses(ErrorCode::BadSize, create);
    }
    let odd_chunk = PartOptions {
        more_files: vec![scene.dir.path().join("second")],
        chunk_bytes: 4096,
        ..PartOptions::single(MIN_FILE_BYTES)
    };
    scene.refuses(ErrorCode::BadSize, || Pool::create(Mapped::new(), &new, LAYOUT, &odd_chunk));
    // Larger than any disk here: fallocate says so before anything is written.
    let huge = PartOptions::single(1 << 46);
    let error = Pool::create(Mapped::new(), &new, LAYOUT, &huge).err().expect("there is no such disk");
    assert!(matches!(error.code(), ErrorCode::FileSystemFull | ErrorCode::BadSize), "{error}");
    assert!(!new.exists());
}

#[test]
fn a_file_that_is_no_pool_is_refused() {
    let scene = Scene::new();
    scene.patch(&scene.path(), &[0, 1 << 20], b"NOTAPOOL");
    scene.refuses_to_open(ErrorCode::NotAPool);
    let short = scene.dir.path().join("short");
    fs::write(&short, b"REMANEN").expect("a new file");
    fs::set_permissions(&short, fs::Permissions::from_mode(0o600)).expect("our own file");
    scene.refuses(ErrorCode::NotAPool, || open(&short, OpenMode::Reader));
}

#[test]
fn both_superblocks_bad_is_an_error_and_one_is_not() {
    let scene = Scene::new();
    scene.patch(&scene.path(), &[100], &[0xFF; 40]);
    assert_eq!(open(&scene.path(), OpenMode::Reader).expect("the other copy is good").generation(), 2);
    scene.patch(&scene.path(), &[(1 << 20) + 100], &[0xFF; 40]);
    scene.refuses_to_open(ErrorCode::SuperblockLost);
}

#[test]
fn newer_versions_and_unknown_features_are_refused() {
    let scene = Scene::new();
    scene.reseal(&scene.path(), 24, &1u64.to_le_bytes());
    scene.refuses(ErrorCode::UnknownFeature, || open(&scene.path(), OpenMode::Writer));
    open(&scene.path(), OpenMode::Reader).expect("a reader may ignore a read-only-compatible feature");
    scene.reseal(&scene.path(), 32, &(1u64 << 63).to_le_bytes());
    scene.refuses_to_open(ErrorCode::UnknownFeature);
    scene.reseal(&scene.path(), 8, &2u32.to_le_bytes());
    scene.refuses_to_open(ErrorCode::NewerVersion);
}

#[test]
fn another_products_pool_is_refused() {
    let scene = Scene::new();
    let other = Layout { name: "other", version: 3 };
    let newer = Layout { name: "errors", version: 4 };
    for layout in [other, newer] {
        scene.refuses(ErrorCode::WrongLayout, || {
            Pool::open(Mapped::new(), &scene.path(), Some(layout), OpenMode::Reader)
        });
    }
}

#[test]
fn parts_that_are_missing_foreign_swapped_or_short_are_refused() {
    let scene = Scene::new();
    let aside = scene.dir.path().join("aside");
    scene.refuses(ErrorCode::NotFirstPart, || open(&scene.part(), OpenMode::Reader));
    fs::rename(scene.part(), &aside).expect("our own file");
    scene.refuses_to_open(ErrorCode::MissingPart);
    let foreign = Scene::new();
    fs::copy(foreign.part(), scene.part()).expect("a copy");
    scene.refuses_to_open(ErrorCode::ForeignPart);
    fs::copy(scene.path(), scene.part()).expect("a copy");
    scene.refuses_to_open(ErrorCode::ForeignPart);
    fs::remove_file(scene.part()).expect("our own file");
    fs::rename(&aside, scene.part()).expect("our own file");
    fs::OpenOptions::new().write(true).open(scene.part()).unwrap().set_len(MIN_FILE_BYTES - 4096).unwrap();
    scene.refuses_to_open(ErrorCode::Truncated);
}

#[test]
fn a_file_that_is_cut_short_is_found_at_open_and_later() {
    let scene = Scene::new();
    let writer = open(&scene.path(), OpenMode::Writer).expect("nobody else writes");
    let file = fs::OpenOptions::new().write(true).open(scene.path()).expect("a file of the pool");
    file.set_len(3 << 20).expect("our own file");
    scene.refuses(ErrorCode::Truncated, || {
        let mut batch = RedoBatch::new();
        batch.remove("a");
        writer.commit(batch)
    });
    scene.refuses(ErrorCode::Truncated, || writer.compact());
    drop(writer);
    scene.refuses_to_open(ErrorCode::Truncated);
}

#[test]
fn a_second_writer_is_refused_while_readers_and_inspectors_come_and_go() {
    let scene = Scene::new();
    let writer = open(&scene.path(), OpenMode::Writer).expect("nobody else writes");
    scene.refuses(ErrorCode::PoolBusy, || open(&scene.path(), OpenMode::Writer));
    for mode in [OpenMode::Reader, OpenMode::Inspect] {
        assert_eq!(open(&scene.path(), mode).expect("beside a writer").generation(), 2);
    }
    put(&writer, "b", b"more").expect("the writer is not disturbed");
    scene.refuses(ErrorCode::NotWritable, || scene.reader.reserve(64));
    scene.refuses(ErrorCode::NotWritable, || scene.reader.compact());
    scene.refuses(ErrorCode::NotWritable, || scene.reader.grow(None, &PartOptions::single(MIN_FILE_BYTES)));
}

#[test]
fn files_that_anybody_may_write_are_refused() {
    let scene = Scene::new();
    fs::set_permissions(scene.path(), fs::Permissions::from_mode(0o666)).expect("our own file");
    scene.refuses_to_open(ErrorCode::WorldWritable);
}

#[test]
fn a_forked_child_reads_its_views_and_is_refused_everything_else() {
    let scene = Scene::new();
    let writer = open(&scene.path(), OpenMode::Writer).expect("nobody else writes");
    let view = writer.region("a").expect("a name of the pool");
    let before = scene.files();
    // SAFETY: the child calls nothing that waits for another thread of this process: glibc makes the allocator usable
    // after fork(2), and the child ends by _exit(2).
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let mut content = vec![0; CONTENT.len()];
        view.load_bytes(0, 0, &mut content);
        let refused = |result: Result<(), Error>| result.is_err_and(|e| e.code() == ErrorCode::UsedAfterFork);
        let good = content == CONTENT
            && refused(writer.region("a").map(drop))
            && refused(writer.reserve(64).map(drop))
            && refused(writer.compact())
            && refused(writer.refresh().map(drop))
            && refused(writer.reclaim().map(drop));
        drop(view);
        // Closing in the child must not mark the pool clean under its parent, nor give the parent's lock away.
        drop(writer);
        // SAFETY: ends the child without running anything else.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's checks");
    assert!(scene.files() == before, "the child changed a file");
    assert_eq!(scene.content(), CONTENT, "the reader sees something else");
    scene.refuses(ErrorCode::PoolBusy, || open(&scene.path(), OpenMode::Writer));
    put(&writer, "b", b"the parent goes on").expect("the parent goes on");
    writer.close().expect("it can be marked clean");
    assert_eq!(open(&scene.path(), OpenMode::Writer).expect("the lock is free").info().names, 2);
}

/// Neither what a growth might have left nor a stranger's file of that name keeps a writer out, but no growth goes past.
#[test]
fn what_stands_in_the_way_of_a_new_part_is_left_alone_and_named() {
    let scene = Scene::new();
    let (leftover, part) = (scene.dir.path().join("pool.2.remanent-creating"), scene.dir.path().join("pool.2"));
    let grow = |pool: &Pool<Mapped>| pool.grow(None, &PartOptions::single(MIN_FILE_BYTES));
    fs::create_dir(&leftover).expect("a folder");
    let pool = open(&scene.path(), OpenMode::Writer).expect("the leftover is none of ours");
    scene.refuses(ErrorCode::IsDirectory, || grow(&pool));
    fs::remove_dir(&leftover).expect("an empty folder");
    fs::write(&part, "a letter").expect("a file");
    drop(pool);
    let pool = open(&scene.path(), OpenMode::Writer).expect("the stranger is none of ours");
    scene.refuses(ErrorCode::AlreadyExists, || grow(&pool));
    fs::remove_file(&part).expect("the file");
    grow(&pool).expect("nothing is in the way");
    assert_eq!((pool.info().parts.len(), fs::read_dir(scene.dir.path()).expect("a folder").count()), (3, 3));
}

/// A copy of the first file names the same further files: whoever opens it must not write to them as well.
#[test]
fn a_copied_first_file_does_not_lead_to_files_in_use() {
    let scene = Scene::new();
    let copy = scene.dir.path().join("copy");
    fs::copy(scene.path(), &copy).expect("there is room");
    let pool = open(&scene.path(), OpenMode::Writer).expect("nobody writes");
    scene.refuses(ErrorCode::PoolBusy, || open(&copy, OpenMode::Writer));
    scene.refuses(ErrorCode::PoolBusy, || remanent_pmem::remove_pool(Mapped::new(), &copy));
    pool.close().expect("it can be marked clean");
    drop(open(&scene.path(), OpenMode::Writer).expect("every lock has fallen"));
}
