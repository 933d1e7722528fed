//! Why the system refused: from errno to the typed error that tells the user what to do.

use std::path::Path;

use rustix::fs::{self as sys, AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::parent_of;
use crate::error::Error;
use crate::media::OpenMode;

/// What was tried.
pub(super) struct Refusal<'a> {
    pub(super) operation: &'static str,
    pub(super) path: &'a Path,
    pub(super) mode: OpenMode,
}

impl Refusal<'_> {
    /// Opening what exists.
    pub(super) fn of_open(&self, errno: Errno) -> Error {
        let path = self.path.to_owned();
        match errno {
            Errno::LOOP => Error::Symlink { path },
            Errno::ISDIR => Error::IsDirectory { path },
            // ENXIO: a socket, or a device without a driver.
            Errno::NXIO | Errno::NODEV => Error::NotAFile { path },
            _ => self.of_entry(errno),
        }
    }

    /// Making what does not exist.
    pub(super) fn of_create(&self, errno: Errno) -> Error {
        let path = self.path.to_owned();
        match errno {
            Errno::EXIST => Error::AlreadyExists { path },
            Errno::ISDIR => Error::IsDirectory { path },
            Errno::NOENT => Error::NotFound { path: parent_of(self.path) },
            Errno::NOSPC | Errno::DQUOT => Error::FileSystemFull { path, requested_bytes: 0 },
            _ => self.of_entry(errno),
        }
    }

    /// Giving a new file its blocks.
    pub(super) fn of_allocation(&self, errno: Errno, len_bytes: u64) -> Error {
        let path = self.path.to_owned();
        match errno {
            Errno::NOSPC | Errno::DQUOT => Error::FileSystemFull { path, requested_bytes: len_bytes },
            Errno::FBIG | Errno::INVAL => {
                let reason = "the file system, or the limit of this process, allows no file of that size";
                Error::BadSize { path, got_bytes: len_bytes, reason }
            }
            errno => Error::io("allocating the blocks", self.path, errno),
        }
    }

    /// Anything that looks up or changes a directory entry.
    pub(super) fn of_entry(&self, errno: Errno) -> Error {
        let path = self.path.to_owned();
        match errno {
            Errno::NOENT => Error::NotFound { path },
            Errno::ROFS => Error::ReadOnly { path },
            Errno::ACCESS | Errno::PERM => self.denied(),
            errno => Error::io(self.operation, self.path, errno),
        }
    }

    /// Names the owner and the mode of what is in the way: the file itself, or the first directory above it that may
    /// not be searched.
    fn denied(&self) -> Error {
        let process_uid = rustix::process::geteuid().as_raw();
        for place in self.path.ancestors() {
            let place = if place.as_os_str().is_empty() { Path::new(".") } else { place };
            let Ok(stat) = sys::lstat(place) else { continue };
            let (owner_uid, mode) = (stat.st_uid, stat.st_mode & 0o7777);
            let is_file = place == self.path;
            if is_file && self.mode == OpenMode::Writer && (mode & 0o222 == 0 || is_immutable(place)) {
                return Error::ReadOnly { path: place.to_owned() };
            }
            return Error::AccessDenied { path: place.to_owned(), owner_uid, mode, process_uid };
        }
        Error::AccessDenied { path: self.path.to_owned(), owner_uid: 0, mode: 0, process_uid }
    }
}

/// Whether the file was made unchangeable or append-only (chattr(1)).
fn is_immutable(path: &Path) -> bool {
    let frozen = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    sys::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.intersects(frozen))
}

/// Renaming without replacing.
pub(super) fn of_rename(errno: Errno, from: &Path, to: &Path) -> Error {
    match errno {
        Errno::EXIST => Error::AlreadyExists { path: to.to_owned() },
        Errno::NOSPC | Errno::DQUOT => Error::FileSystemFull { path: to.to_owned(), requested_bytes: 0 },
        errno => Refusal { operation: "renaming", path: from, mode: OpenMode::Writer }.of_entry(errno),
    }
}
