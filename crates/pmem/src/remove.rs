//! Removing a pool: all of its files and no other.
//!
//! Files go in the reverse order of the chain, each removal durable before the next, and part 0 last: whatever a crash
//! leaves is still found from part 0, so removing it again finishes the work.

use std::path::{Path, PathBuf};

use crate::creation::{default_part_path, temporary};
use crate::error::{Error, Result};
use crate::media::{LockKind, Media, MediaFile, OpenMode};
use crate::members;
use crate::opening::{Expected, check_identity, pread_superblock};
use crate::pins::WRITER_AT;

/// A removal that was prepared and not begun; it keeps writers out as long as it lives.
pub struct Removal<M: Media> {
    media: M,
    /// Hold the writer's lock, which each file has: a copy of a first file leads to the same further files.
    _locks: Vec<M::File>,
    /// In the order of the chain.
    files: Vec<Doomed>,
    spared: Vec<Error>,
    /// Files that are gone, perhaps by a removal that was killed before it made that durable.
    gone: Vec<PathBuf>,
}

/// A file and what it must still be when its turn comes.
struct Doomed {
    path: PathBuf,
    expected: Expected,
    member: u16,
}

impl<M: Media> Removal<M> {
    /// Finds the files of a pool and locks writers out. Nothing is changed.
    ///
    /// # Errors
    /// As opening a pool as a writer: `PoolBusy` while one has it open, `NotAPool`, `NotFirstPart`, `SuperblockLost`
    /// (what the other files are is not known then). `AccessDenied` and `ReadOnly` for a file that may not be written,
    /// which cannot be locked. `Unsupported` for a device, which no program can remove.
    pub fn plan(media: M, path: &Path) -> Result<Removal<M>> {
        let lock = |path: &Path| {
            let file = media.open(path, OpenMode::Writer)?;
            if file.try_lock(LockKind::Exclusive, WRITER_AT..WRITER_AT + 1)? {
                return Ok(file);
            }
            Err(Error::PoolBusy { path: path.to_owned() })
        };
        let mut locks = vec![lock(path)?];
        if !media.names(path, &locks[0])? {
            // It was removed, and perhaps made anew, before the lock was taken.
            return Err(Error::PoolBusy { path: path.to_owned() });
        }
        let first = media.open(path, OpenMode::Inspect)?;
        let members = members::find(&media, path, first, OpenMode::Inspect)?;
        if members.good().any(|(_, file, _)| file.backing().filesystem == "device-dax") {
            let reason = "a device stays where it is; clear its first 2 MiB to make it empty";
            return Err(Error::Unsupported { what: "removing a device", reason });
        }
        let (mut files, mut spared, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        let set = members.list[0].expected.set;
        for member in members.list {
            match member.found {
                Ok(_) => {
                    if (member.index, member.member) != (0, 0) {
                        locks.push(lock(&member.path)?);
                    }
                    files.push(Doomed { path: member.path, expected: member.expected, member: member.member });
                }
                Err(error) => {
                    gone.extend(matches!(error, Error::MissingPart { .. }).then_some(member.path));
                    spared.push(error);
                }
            }
        }
        // What an interrupted growth may have left.
        let orphan = default_part_path(path, members.parts);
        let expected = Expected { set, part: None, index: u32::from(members.parts) };
        for path in [temporary(&orphan), orphan] {
            let found = media.open(&path, OpenMode::Inspect).and_then(|file| pread_superblock(&file));
            if found.is_ok_and(|superblock| superblock.is_orphan_of(set, expected.index)) {
                files.push(Doomed { path, expected, member: 0 });
            }
        }
        Ok(Removal { media, _locks: locks, files, spared, gone })
    }

    /// The files that will be removed, in the order of the chain.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|doomed| doomed.path.as_path())
    }

    /// Parts that were not found or are not the pool's, and why. They are not touched.
    pub fn spared(&self) -> &[Error] {
        &self.spared
    }

    /// Removes the files, durably, and returns their names.
    ///
    /// # Errors
    /// `AccessDenied`, `ReadOnly`, `Io`; what was not removed is still found from the first file. `ForeignPart` and
    /// the like when a file was exchanged after [`Removal::plan`].
    pub fn run(self) -> Result<Vec<PathBuf>> {
        for gone in &self.gone {
            match self.media.sync_dir(gone) {
                Err(Error::NotFound { .. }) => {}
                result => result?,
            }
        }
        for doomed in self.files.iter().rev() {
            doomed.is_still_there(&self.media)?;
            self.media.remove(&doomed.path)?;
            self.media.sync_dir(&doomed.path)?;
        }
        Ok(self.files.into_iter().map(|doomed| doomed.path).collect())
    }
}

impl Doomed {
    fn is_still_there<M: Media>(&self, media: &M) -> Result<()> {
        let superblock = pread_superblock(&media.open(&self.path, OpenMode::Inspect)?)?;
        check_identity(&self.path, &superblock, self.expected, self.member)
    }
}

/// Removes all files of a pool, and no other.
///
/// # Errors
/// As [`Removal::plan`] and [`Removal::run`].
pub fn remove_pool<M: Media>(media: M, path: &Path) -> Result<Vec<PathBuf>> {
    Removal::plan(media, path)?.run()
}
