//! File systems in main memory: one that is full for real, and the one that every system shares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pmem::{ErrorCode, OpenMode};

use crate::Test;
use crate::harness::{Place, finish, start};

const SHARED_MEMORY: &str = "/dev/shm";
/// `f_type` of statfs(2).
const TMPFS_MAGIC: u64 = 0x0102_1994;

pub(crate) const TESTS_OF_MOUNTS: &[Test] = &[("a_full_file_system", a_full_file_system)];
pub(crate) const TESTS_OF_SHARED_MEMORY: &[Test] =
    &[("main_memory_is_never_called_safe", main_memory_is_never_called_safe)];

/// Why nothing can be mounted here.
pub(crate) fn no_mount() -> Option<String> {
    SmallFileSystem::mount(Place::new().root()).err()
}

/// Why there is no shared memory to look at.
pub(crate) fn no_shared_memory() -> Option<String> {
    let is_tmpfs = rustix::fs::statfs(SHARED_MEMORY).is_ok_and(|found| found.f_type as u64 == TMPFS_MAGIC);
    let may_be_written = tempfile::tempfile_in(SHARED_MEMORY).is_ok();
    (!is_tmpfs || !may_be_written).then(|| format!("{SHARED_MEMORY} is no tmpfs that this user may write to"))
}

fn a_full_file_system() {
    let place = Place::new();
    let mount = place.path("small");
    fs::create_dir(&mount).unwrap();
    let _mounted = SmallFileSystem::mount(&mount).unwrap();
    place.pool_with_names("small/a");
    let witness = place.witness("small/a", OpenMode::Reader);
    place.refused(&["pool", "create", "small/b", "--size", "8MiB"], ErrorCode::FileSystemFull);
    place.refused(&["pool", "grow", "small/a", "--size", "8MiB"], ErrorCode::FileSystemFull);
    // The second member does not fit, and the first one must not stay.
    let striped = ["pool", "create", "small/b", "--size", "4MiB", "--stripe", "small/c"];
    place.refused(&striped, ErrorCode::FileSystemFull);
    witness.sees_the_same();
    place.done(&["pool", "grow", "small/a", "--size", "4MiB"]);
}

struct SmallFileSystem(PathBuf);

impl SmallFileSystem {
    fn mount(at: &Path) -> Result<SmallFileSystem, String> {
        let options = ["-t", "tmpfs", "-o", "size=14m", "none"];
        let ran = finish(start(Command::new("mount").args(options).arg(at)));
        match ran.exit {
            0 => Ok(SmallFileSystem(at.to_owned())),
            _ => Err(format!("a tmpfs cannot be mounted: {}", ran.stderr.trim())),
        }
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        // Lazy: the witness still has the pool mapped.
        let _ = finish(start(Command::new("umount").arg("-l").arg(&self.0)));
    }
}

fn main_memory_is_never_called_safe() {
    let doctor = Place::new().run(&["--json", "doctor", SHARED_MEMORY]).result("remanent.doctor/1");
    let path = &doctor["paths"][0];
    assert_eq!(path["filesystem"], "tmpfs");
    assert_eq!((&path["durability"], &path["provenance"]), (&"process-crash safe".into(), &"emulated".into()));
    assert!(doctor["advice"][0].as_str().unwrap().contains("loses everything with the power"), "{doctor}");
}
