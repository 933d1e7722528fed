//! Files that have a name only until they are open, so that nothing is left of them, whatever ends the process.
//!
//! They cannot be made without one (O_TMPFILE), because the core and libraries open files by their names.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::error::{Error, Result};

/// A file without a name.
#[derive(Debug)]
pub(crate) struct Nameless<T> {
    pub(crate) file: File,
    /// The name that it had, for errors.
    pub(crate) path: PathBuf,
    /// What was opened by that name.
    pub(crate) opened: T,
}

/// A name that no other file of a folder has, and that a listing does not show.
pub(crate) fn path_in(folder: &Path) -> PathBuf {
    folder.join(format!(".remanent-bench-{}-{:08x}", std::process::id(), fastrand::u32(..)))
}

/// A new file in a folder, opened with these flags (open(2)), and by whoever opens it while it has a name.
///
/// # Errors
/// `Io` when it cannot be made.
pub(crate) fn new_file<T>(folder: &Path, flags: i32, open: impl FnOnce(&Path) -> T) -> Result<Nameless<T>> {
    let path = path_in(folder);
    let made = OpenOptions::new().read(true).write(true).create_new(true).custom_flags(flags).open(&path);
    let file = made.map_err(|error| {
        if error.kind() != std::io::ErrorKind::AlreadyExists {
            // What refuses the flags may have made the file all the same.
            let _ = fs::remove_file(&path);
        }
        Error::io(&path, error)
    })?;
    let opened = open(&path);
    fs::remove_file(&path).map_err(|error| Error::io(&path, error))?;
    Ok(Nameless { file, path, opened })
}

/// What a file system does for a file that gets its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocated {
    /// All blocks are its own.
    Ahead,
    /// Those will be that are touched.
    Later,
}

/// Gives a file its length, and its blocks where the file system allocates them ahead.
pub(crate) fn allocate(file: &File, len_bytes: u64) -> std::io::Result<Allocated> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len_bytes) {
        Err(Errno::OPNOTSUPP) => file.set_len(len_bytes).map(|()| Allocated::Later),
        allocated => Ok(allocated.map(|()| Allocated::Ahead)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_name_only_while_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let Nameless { file, path, opened } = new_file(folder.path(), 0, |path| (path.to_owned(), count())).unwrap();
        assert_eq!((opened, count()), ((path.clone(), 1), 0));
        assert!(path.file_name().unwrap().to_str().unwrap().starts_with(".remanent-bench-"));
        allocate(&file, 8192).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 8192);
        assert!(path_in(folder.path()) != path && new_file(&path, 0, |_| ()).is_err());
    }

    /// As O_DIRECT where a file system has none (open(2)): a flag that wants a folder is refused in every one, and some kernels have
    /// made the file then.
    #[test]
    fn a_file_whose_flags_are_refused_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let refused = new_file(folder.path(), libc::O_DIRECTORY, |_| ());
        assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
