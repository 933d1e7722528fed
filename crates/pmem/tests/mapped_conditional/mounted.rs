//! File systems that are full or read-only, and files that are frozen: what only root can arrange.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use remanent_pmem::{
    Durability, Error, ErrorCode, Granularity, MIN_FILE_BYTES, Mapped, Media, MediaFile, MediaMap, OpenMode,
    PartOptions, Pool, Provenance, Stripe, Touch,
};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use tempfile::TempDir;

use crate::Test;
use crate::scene::{CONTENT, LAYOUT, Scene, open, put};

const MIB: u64 = 1 << 20;

pub(crate) const TESTS_OF_MOUNTS: &[Test] = &[
    ("full_file_system_leaves_no_file_behind", full_file_system_leaves_no_file_behind),
    ("hole_on_a_full_file_system_is_an_error_and_no_signal", hole_on_a_full_file_system_is_an_error_and_no_signal),
    ("pool_on_a_full_file_system_goes_on", pool_on_a_full_file_system_goes_on),
    ("pool_on_a_read_only_file_system_is_read", pool_on_a_read_only_file_system_is_read),
    ("read_only_file_system_is_read_only", read_only_file_system_is_read_only),
    ("tmpfs_is_process_crash_safe_and_emulated", tmpfs_is_process_crash_safe_and_emulated),
];

pub(crate) const TESTS_OF_FROZEN_FILES: &[Test] = &[("frozen_file_is_read_only", frozen_file_is_read_only)];

/// Why nothing can be mounted here.
pub(crate) fn no_mount() -> Option<String> {
    Mount::tmpfs("size=4m").err()
}

/// Why no file can be frozen here.
pub(crate) fn no_frozen_files() -> Option<String> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("file");
    fs::write(&path, "").expect("a new file");
    frozen(&path, || ()).err()
}

/// A tmpfs of its own, unmounted at the end, also of a failed test.
struct Mount(TempDir);

impl Mount {
    fn tmpfs(options: &str) -> Result<Mount, String> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        done(Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir.path()))?;
        Ok(Mount(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn make_read_only(&self) {
        done(Command::new("mount").args(["-o", "remount,ro"]).arg(self.path())).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazy: what a failed test has left mapped keeps it busy.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn done(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

/// Does something while a file may not be changed (ioctl_iflags(2)).
fn frozen<T>(path: &Path, work: impl FnOnce() -> T) -> Result<T, String> {
    let file = File::open(path).expect("a file of the test");
    let flags = ioctl_getflags(&file).map_err(|error| format!("{} has no flags: {error}", path.display()))?;
    ioctl_setflags(&file, flags | IFlags::IMMUTABLE)
        .map_err(|error| format!("{} cannot be frozen: {error}", path.display()))?;
    let result = work();
    ioctl_setflags(&file, flags).expect("what was frozen can be thawed");
    Ok(result)
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, code: ErrorCode) {
    assert_eq!(result.err().map(|error| error.code()), Some(code));
}

fn full_file_system_leaves_no_file_behind() {
    let mount = Mount::tmpfs("size=4m").unwrap();
    let mapped = Mapped::new();
    let (first, second) = (mount.path().join("first"), mount.path().join("second"));
    let kept = mapped.create(&first, 3 * MIB).unwrap();
    match mapped.create(&second, 2 * MIB) {
        Err(Error::FileSystemFull { requested_bytes, .. }) => assert_eq!(requested_bytes, 2 * MIB),
        other => panic!("{other:?}"),
    }
    assert!(!mapped.exists(&second).unwrap());
    assert_eq!(kept.len_bytes().unwrap(), 3 * MIB);
    mapped.create(&second, MIB).unwrap();
    refused(kept.pwrite(3 * MIB, &[1; 4096]), ErrorCode::FileSystemFull);
}

fn hole_on_a_full_file_system_is_an_error_and_no_signal() {
    let mount = Mount::tmpfs("size=4m").unwrap();
    let mapped = Mapped::new();
    // Somebody made the file sparse behind the product's back.
    let file = mapped.create(&mount.path().join("pool"), 4096).unwrap();
    OpenOptions::new().write(true).open(file.path()).unwrap().set_len(2 * MIB).unwrap();
    let map = mapped.map(&[Arc::new(file)], Stripe::SINGLE, OpenMode::Writer).unwrap();
    mapped.create(&mount.path().join("rest"), 4 * MIB - 4096).unwrap();
    map.guard(0, 4096, Touch::Load).unwrap();
    refused(map.guard(0, 2 * MIB, Touch::Store), ErrorCode::FileSystemFull);
}

fn pool_on_a_full_file_system_goes_on() {
    let mount = Mount::tmpfs("size=10m").unwrap();
    let scene = Scene::within(tempfile::tempdir_in(mount.path()).unwrap());
    let pool = open(&scene.path(), OpenMode::Writer).unwrap();
    let part = PartOptions::single(MIN_FILE_BYTES);
    scene.refuses(ErrorCode::FileSystemFull, || pool.grow(None, &part));
    let new = scene.dir.path().join("new");
    scene.refuses(ErrorCode::FileSystemFull, || Pool::create(Mapped::new(), &new, LAYOUT, &part));
    put(&pool, "b", &CONTENT).unwrap();
}

fn pool_on_a_read_only_file_system_is_read() {
    let mount = Mount::tmpfs("size=14m").unwrap();
    let scene = Scene::within(tempfile::tempdir_in(mount.path()).unwrap());
    mount.make_read_only();
    scene.refuses(ErrorCode::ReadOnly, || open(&scene.path(), OpenMode::Writer));
    let (new, part) = (scene.dir.path().join("new"), PartOptions::single(MIN_FILE_BYTES));
    scene.refuses(ErrorCode::ReadOnly, || Pool::create(Mapped::new(), &new, LAYOUT, &part));
    assert_eq!(open(&scene.path(), OpenMode::Reader).expect("a reader needs no writing").info().names, 1);
}

fn read_only_file_system_is_read_only() {
    let mount = Mount::tmpfs("size=4m").unwrap();
    let mapped = Mapped::new();
    let path = mount.path().join("pool");
    mapped.create(&path, MIB).unwrap().pwrite(4090, &CONTENT).unwrap();
    let before = fs::read(&path).unwrap();
    mount.make_read_only();
    refused(mapped.open(&path, OpenMode::Writer), ErrorCode::ReadOnly);
    refused(mapped.create(&mount.path().join("new"), 4096), ErrorCode::ReadOnly);
    refused(mapped.remove(&path), ErrorCode::ReadOnly);
    refused(mapped.rename(&path, &mount.path().join("other")), ErrorCode::ReadOnly);
    mapped.open(&path, OpenMode::Reader).unwrap();
    assert!(fs::read(&path).unwrap() == before);
}

fn tmpfs_is_process_crash_safe_and_emulated() {
    let mount = Mount::tmpfs("size=4m").unwrap();
    let file = Mapped::new().create(&mount.path().join("pool"), 4096).unwrap();
    let backing = file.backing();
    assert_eq!((backing.durability, backing.granularity), (Durability::ProcessCrashSafe, Granularity::CacheLine));
    assert_eq!((backing.provenance, backing.filesystem.as_str()), (Provenance::Emulated, "tmpfs"));
}

fn frozen_file_is_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let mapped = Mapped::new();
    let path = dir.path().join("pool");
    mapped.create(&path, MIB).unwrap().pwrite(4090, &CONTENT).unwrap();
    let before = fs::read(&path).unwrap();
    let tried = || {
        let reader = mapped.open(&path, OpenMode::Reader).map(|file| file.len_bytes());
        (mapped.open(&path, OpenMode::Writer), mapped.remove(&path), reader)
    };
    let (opened, removed, reader) = frozen(&path, tried).unwrap();
    refused(opened, ErrorCode::ReadOnly);
    refused(removed, ErrorCode::ReadOnly);
    assert_eq!(reader.unwrap().unwrap(), MIB);
    assert!(fs::read(&path).unwrap() == before);
}
