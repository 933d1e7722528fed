//! What a path and this kernel offer, before anything is kept there.

use std::path::{Path, PathBuf};
use std::ptr;

use rustix::fs::{self as sys, MemfdFlags};
use rustix::mm::{self, MapFlags, ProtFlags};

use super::{Mapped, lock, map};
use crate::durability::Backing;
use crate::error::Result;
use crate::media::{LockKind, Media, MediaFile, OpenMode, Touch};

/// What a place promises to pools.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probe {
    /// What was asked about.
    pub path: PathBuf,
    /// Whether it is a directory, which was tried with a file that is gone again.
    pub is_directory: bool,
    /// Whether the kernel grants MAP_SYNC mappings there (mmap(2)).
    pub map_sync: bool,
    /// The promise and its reason.
    pub backing: Backing,
}

/// Kernel features that the core uses when they are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelFeatures {
    /// MADV_POPULATE_READ and MADV_POPULATE_WRITE (Linux 5.14): lost pages become errors at the cost of a call, not of
    /// a read.
    pub populate: bool,
    /// Locks that belong to an open file (Linux 3.15); without them no pool can be opened.
    pub ofd_locks: bool,
}

impl Mapped {
    /// Finds out what a file, a device, or a new file in a directory promises. In a directory a file is made for it,
    /// whose name is removed before anything else is done, so that nothing stays behind.
    ///
    /// # Errors
    /// As [`Media::open`]; for a directory as [`Media::create`].
    pub fn probe(&self, path: &Path) -> Result<Probe> {
        let is_directory = path.is_dir();
        let file = if is_directory {
            let name = path.join(format!(".remanent-probe-{}", self.new_uuid()));
            let file = self.create(&name, rustix::param::page_size() as u64)?;
            self.remove(&name)?;
            file
        } else {
            self.open(path, OpenMode::Inspect)?
        };
        let backing = file.backing().clone();
        Ok(Probe { path: path.to_owned(), is_directory, map_sync: file.map_sync, backing })
    }
}

impl KernelFeatures {
    /// Tries each of them.
    pub fn detect() -> KernelFeatures {
        KernelFeatures { populate: can_populate(), ofd_locks: has_ofd_locks() }
    }
}

fn can_populate() -> bool {
    let page_bytes = rustix::param::page_size();
    // SAFETY: a new private mapping replaces nothing, is as long as the range that is populated, and nobody else knows
    // of it before it is unmapped.
    unsafe {
        let Ok(page) =
            mm::mmap_anonymous(ptr::null_mut(), page_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        else {
            return false;
        };
        let populated = map::populate_pages(page, page_bytes, Touch::Store).is_ok();
        mm::munmap(page, page_bytes).is_ok() && populated
    }
}

fn has_ofd_locks() -> bool {
    sys::memfd_create("remanent-locks", MemfdFlags::CLOEXEC)
        .is_ok_and(|file| lock::try_lock(&file, LockKind::Exclusive, 0..1).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_directory_is_probed_and_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let probe = Mapped::new().probe(directory.path()).unwrap();
        assert!(probe.is_directory && !probe.backing.reason.is_empty());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_is_asked_itself_and_what_is_missing_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        assert!(matches!(Mapped::new().probe(&path), Err(Error::NotFound { .. })));
        std::fs::write(&path, b"anything").unwrap();
        let probe = Mapped::new().probe(&path).unwrap();
        assert!(!probe.is_directory);
        assert_eq!(std::fs::read(&path).unwrap(), b"anything");
    }

    #[test]
    fn locks_that_pools_need_are_there() {
        assert!(KernelFeatures::detect().ofd_locks);
    }
}
