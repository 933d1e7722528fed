//! A pool's parts as one address space, and the persist calls over it.

use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::copy::{CopyProgress, copy_parallel};
use crate::durability::{Backing, Granularity};
use crate::error::{Error, Result};
use crate::format::{HEAD_BYTES, TAIL_HINT_AT};
use crate::media::{Media, MediaFile, MediaMap, OpenMode, Stripe, Touch};
use crate::prefault::Prefault;

/// A place in a pool: part and byte. The persisted form is one word; 0 is null.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Offset(u64);

impl Offset {
    /// Nowhere.
    pub const NULL: Offset = Offset(0);
    const BYTE_BITS: u32 = 48;

    /// A byte of a part.
    ///
    /// # Panics
    /// If `byte` has more than 48 bits.
    pub fn new(part: u16, byte: u64) -> Offset {
        assert!(byte >> Self::BYTE_BITS == 0, "byte {byte} of a part has more than 48 bits");
        Offset(u64::from(part) << Self::BYTE_BITS | byte)
    }

    /// The part.
    pub fn part(self) -> u16 {
        (self.0 >> Self::BYTE_BITS) as u16
    }

    /// The byte within the part.
    pub fn byte(self) -> u64 {
        self.0 & ((1 << Self::BYTE_BITS) - 1)
    }

    /// Whether it is nowhere.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The persisted form.
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// From the persisted form; any word is an offset, whether it lies in a pool or not.
    pub fn from_word(word: u64) -> Offset {
        Offset(word)
    }

    /// A later byte of the same part.
    ///
    /// # Panics
    /// If the result leaves the 48 bits.
    pub fn plus(self, bytes: u64) -> Offset {
        Offset::new(self.part(), self.byte() + bytes)
    }
}

/// What is stored again is as large as a file says, so it is not loaded at once.
const ADOPTED_AT_ONCE_BYTES: u64 = 1 << 20;

/// Where the tail hint lies.
pub(crate) const TAIL_HINT: Offset = Offset(TAIL_HINT_AT);

impl std::fmt::Debug for Offset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{:#x}", self.part(), self.byte())
    }
}

/// What one thread has flushed since its last fence. Flushes belong to the thread that made them, so this stays on it.
#[derive(Default)]
pub struct Pending {
    page_ranges: Vec<(Offset, u64)>,
    on_one_thread: PhantomData<*const ()>,
}

impl Pending {
    /// Nothing flushed yet.
    pub fn new() -> Pending {
        Pending::default()
    }
}

/// One part: its files and their mapping.
pub(crate) struct Part<M: Media> {
    pub(crate) files: Vec<Arc<M::File>>,
    pub(crate) map: Arc<M::Map>,
    pub(crate) stripe: Stripe,
    /// Bytes that are used, which may be fewer than the mapping has: whatever was added to a file is none of the pool's.
    len_bytes: u64,
    /// Whether any file needs msync; kept here because every flush asks.
    is_paged: bool,
}

impl<M: Media> Part<M> {
    /// A part whose files have `file_bytes` each.
    pub(crate) fn new(files: Vec<Arc<M::File>>, map: M::Map, stripe: Stripe, file_bytes: u64) -> Part<M> {
        let len_bytes = stripe.logical_bytes(file_bytes).min(map.len_bytes());
        let is_paged = files.iter().any(|file| file.backing().granularity == Granularity::Page);
        Part { files, map: Arc::new(map), stripe, len_bytes, is_paged }
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// How long each of its files was when it was mapped.
    fn member_bytes(&self) -> u64 {
        match self.files.len() as u64 {
            1 => self.len_bytes,
            members => HEAD_BYTES + (self.len_bytes - HEAD_BYTES) / members,
        }
    }

    fn check_reaches(&self, file: &M::File, needed_bytes: u64) -> Result<()> {
        let got_bytes = file.len_bytes()?;
        if got_bytes < needed_bytes {
            let (path, expected_bytes) = (file.path().to_owned(), self.member_bytes());
            return Err(Error::Truncated { path, got_bytes, expected_bytes });
        }
        Ok(())
    }
}

/// The most parts that a pool may have. A table of this many pointers makes every access lock-free.
pub const MAX_PARTS: usize = 1024;

/// The parts of a pool, in order. Parts are only ever added.
///
/// # Invariants
/// 1. After the kernel has once failed to write a page back, every later fence fails too: the kernel tells of a lost
///    page once, to whichever thread asks first, and that one's failure may be another one's data.
pub struct PoolSet<M: Media> {
    media: M,
    path: PathBuf,
    /// The directory that a relative path is relative to: that of the process when the pool was opened.
    opened_in: Option<PathBuf>,
    mode: OpenMode,
    parts: Box<[OnceLock<Box<Part<M>>>]>,
    /// Held while pages are synced, so that nobody is told of success between a failure and its note.
    syncing: Mutex<()>,
    /// Whether a write-back has failed; noted under the lock.
    has_failed: AtomicBool,
}

impl<M: Media> PoolSet<M> {
    pub(crate) fn new(media: M, path: &Path, mode: OpenMode, first: Part<M>) -> PoolSet<M> {
        let parts = (0..MAX_PARTS).map(|_| OnceLock::new()).collect();
        let set = PoolSet {
            media,
            path: path.to_owned(),
            // An unknown directory is no worse than the path alone.
            opened_in: path.is_relative().then(|| std::env::current_dir().ok()).flatten(),
            mode,
            parts,
            syncing: Mutex::new(()),
            has_failed: AtomicBool::new(false),
        };
        set.push(first);
        set
    }

    /// What each of the files promises.
    pub fn backings(&self) -> impl Iterator<Item = Backing> {
        self.parts().flat_map(|part| &part.files).map(|file| file.backing().clone())
    }

    /// The medium under the pool.
    pub fn media(&self) -> &M {
        &self.media
    }

    /// The name of the pool's first file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path by which the first file is reached now: the one that was given, or the same from where the process was then.
    ///
    /// # Errors
    /// `NotFound` when neither means the file any more, which was moved or removed.
    pub(crate) fn reached_by(&self) -> Result<PathBuf> {
        let from_there = self.opened_in.iter().map(|directory| directory.join(&self.path));
        let mut error = Error::NotFound { path: self.path.clone() };
        for path in std::iter::once(self.path.clone()).chain(from_there) {
            match self.media.names(&path, self.first_file()) {
                Ok(true) => return Ok(path),
                Ok(false) => {}
                // From where the process is now, the path may lead through what is no directory.
                Err(other) => error = other,
            }
        }
        Err(error)
    }

    /// How the pool was opened.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// Adds a part at the end. Only one thread at a time adds parts.
    ///
    /// # Panics
    /// If there are [`MAX_PARTS`] already.
    pub(crate) fn push(&self, part: Part<M>) {
        let free = &self.parts[usize::from(self.part_count())];
        assert!(free.set(Box::new(part)).is_ok(), "one thread at a time adds parts");
    }

    pub(crate) fn part(&self, index: u16) -> Option<&Part<M>> {
        self.parts.get(usize::from(index))?.get().map(|part| &**part)
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part<M>> {
        self.parts.iter().map_while(|part| part.get().map(|part| &**part))
    }

    pub(crate) fn part_count(&self) -> u16 {
        self.parts().count() as u16
    }

    pub(crate) fn first_file(&self) -> &Arc<M::File> {
        &self.at(Offset::NULL).files[0]
    }

    /// The part that holds an offset. Offsets from a medium are validated before they are used.
    fn at(&self, offset: Offset) -> &Part<M> {
        self.part(offset.part()).unwrap_or_else(|| panic!("{offset:?} lies in no part of the pool"))
    }

    /// Length of a part in bytes.
    pub(crate) fn part_bytes(&self, index: u16) -> Option<u64> {
        self.part(index).map(|part| part.len_bytes)
    }

    /// Address of a byte. Valid as long as the set lives.
    pub fn address(&self, offset: Offset) -> *mut u8 {
        let map = &self.at(offset).map;
        assert!(offset.byte() < map.len_bytes(), "{offset:?} lies past the end of its part");
        map.base().wrapping_add(offset.byte() as usize)
    }

    /// Loads 8 aligned bytes, acquire.
    pub fn load_u64(&self, offset: Offset) -> u64 {
        self.at(offset).map.load_u64(offset.byte())
    }

    /// Copies bytes out.
    pub fn load_bytes(&self, offset: Offset, into: &mut [u8]) {
        self.at(offset).map.load_bytes(offset.byte(), into);
    }

    /// Stores 8 aligned bytes at once, release.
    #[track_caller]
    pub fn store_u64(&self, offset: Offset, value: u64) {
        self.at(offset).map.store_u64(offset.byte(), value);
    }

    /// Compare-and-swap of 8 aligned bytes; `Err` has the value that was there.
    ///
    /// # Errors
    /// The word that was found, when it is not `current`.
    #[track_caller]
    pub fn cas_u64(&self, offset: Offset, current: u64, new: u64) -> std::result::Result<u64, u64> {
        self.at(offset).map.cas_u64(offset.byte(), current, new)
    }

    /// Stores bytes through the cache.
    #[track_caller]
    pub fn store_bytes(&self, offset: Offset, from: &[u8]) {
        self.at(offset).map.store_bytes(offset.byte(), from);
    }

    /// Copies bytes past the cache; see [`MediaMap::nt_copy`]. They are pending like flushed ones.
    #[track_caller]
    pub fn nt_copy(&self, pending: &mut Pending, offset: Offset, from: &[u8]) {
        let part = self.at(offset);
        copy_slice(&*part.map, offset.byte(), from);
        self.note(part, pending, offset, from.len() as u64);
    }

    /// Copies raw memory with several threads; durable after the next fence of `pending`. `progress` is told the
    /// bytes that are done, by any of the threads, and may give the copy up.
    ///
    /// # Safety
    /// `from` is readable for `len_bytes` bytes until this returns. It may change meanwhile; then some mixture arrives.
    pub unsafe fn copy_parallel(
        &self,
        pending: &mut Pending,
        offset: Offset,
        from: *const u8,
        len_bytes: usize,
        threads: NonZeroUsize,
        progress: Option<CopyProgress<'_>>,
    ) {
        let part = self.at(offset);
        // SAFETY: handed on to the caller.
        unsafe { copy_parallel(&self.media, &*part.map, offset.byte(), from, len_bytes, threads, progress) };
        self.note(part, pending, offset, len_bytes as u64);
    }

    /// Populates a range ahead of use, with threads of its own; see [`Prefault`].
    ///
    /// # Errors
    /// `Unsupported` when no thread can be started.
    pub fn prefault(&self, offset: Offset, len_bytes: u64, touch: Touch, threads: usize) -> Result<Prefault> {
        let start = offset.byte();
        Prefault::start(&self.at(offset).map, start..start + len_bytes, touch, threads)
    }

    /// Starts the write-back of a range.
    #[track_caller]
    pub fn flush(&self, pending: &mut Pending, offset: Offset, len_bytes: u64) {
        let part = self.at(offset);
        part.map.flush(offset.byte(), len_bytes);
        self.note(part, pending, offset, len_bytes);
    }

    /// Flushes what another process has left visible and this one goes on from. Where the kernel writes pages back it may
    /// have failed to, told that process once, and taken the page for clean since: so the bytes are stored again.
    #[track_caller]
    pub fn flush_adopted(&self, pending: &mut Pending, offset: Offset, len_bytes: u64) {
        let part = self.at(offset);
        if part.is_paged && self.mode == OpenMode::Writer {
            let (mut at, end) = (offset.byte(), offset.byte() + len_bytes);
            let mut bytes = vec![0; len_bytes.min(ADOPTED_AT_ONCE_BYTES) as usize];
            while at < end {
                let piece = (end - at).min(ADOPTED_AT_ONCE_BYTES) as usize;
                part.map.load_bytes(at, &mut bytes[..piece]);
                part.map.store_bytes(at, &bytes[..piece]);
                at += piece as u64;
            }
        }
        self.flush(pending, offset, len_bytes);
    }

    fn note(&self, part: &Part<M>, pending: &mut Pending, offset: Offset, len_bytes: u64) {
        if part.is_paged {
            pending.page_ranges.push((offset, len_bytes));
        }
    }

    /// Waits until everything in `pending` is durable.
    ///
    /// # Errors
    /// `Io` when the kernel could not write a page back. The range is then in an unknown state, and every later fence
    /// that has a page to wait for fails with `WritesRefused`.
    #[track_caller]
    pub fn fence(&self, pending: &mut Pending) -> Result<()> {
        self.media.fence();
        if pending.page_ranges.is_empty() {
            return Ok(());
        }
        merge_ranges(&mut pending.page_ranges);
        let _syncing = self.syncing.lock().expect("a system call does not panic");
        for ranges in pending.page_ranges.chunk_by(|one, next| one.0.part() == next.0.part()) {
            if self.has_failed() {
                return Err(Error::WritesRefused { path: self.path.clone() });
            }
            let bytes: Vec<_> = ranges.iter().map(|&(offset, len_bytes)| (offset.byte(), len_bytes)).collect();
            let synced = self.at(ranges[0].0).map.sync_ranges(&bytes);
            synced.inspect_err(|_| self.has_failed.store(true, Ordering::Release))?;
        }
        pending.page_ranges.clear();
        Ok(())
    }

    /// Whether a write-back has failed, so that nobody knows what is durable.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Flush, then fence.
    #[track_caller]
    pub fn persist(&self, offset: Offset, len_bytes: u64) -> Result<()> {
        let mut pending = Pending::new();
        self.flush(&mut pending, offset, len_bytes);
        self.fence(&mut pending)
    }

    /// Turns what would be a signal into an error; see [`MediaMap::guard`].
    pub fn guard(&self, offset: Offset, len_bytes: u64, touch: Touch) -> Result<()> {
        self.at(offset).map.guard(offset.byte(), len_bytes, touch)
    }

    /// Compares the length of every file with the length it had when it was mapped.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn check_lengths(&self) -> Result<()> {
        self.parts()
            .try_for_each(|part| part.files.iter().try_for_each(|file| part.check_reaches(file, part.member_bytes())))
    }

    /// Whether the files reach so far as a range lies, also where one is shorter than it was. A page that a file ends in can
    /// be populated, and has zeros behind the end.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn check_reaches(&self, offset: Offset, len_bytes: u64) -> Result<()> {
        let part = self.at(offset);
        let (mut at, end) = (offset.byte(), offset.byte() + len_bytes);
        while at < end {
            let (member, file_bytes, left_bytes) = part.stripe.locate(at);
            let piece_bytes = left_bytes.min(end - at);
            part.check_reaches(&part.files[usize::from(member)], file_bytes + piece_bytes)?;
            at += piece_bytes;
        }
        Ok(())
    }
}

/// Joins ranges that share a page or lie in neighbouring ones: each msync may cost a write of the device.
fn merge_ranges(ranges: &mut Vec<(Offset, u64)>) {
    const PAGE_BYTES: u64 = 4096;
    ranges.sort_unstable();
    ranges.dedup_by(|later, earlier| {
        let end = earlier.0.byte() + earlier.1;
        let touches = later.0.part() == earlier.0.part()
            && later.0.byte() / PAGE_BYTES * PAGE_BYTES <= end.next_multiple_of(PAGE_BYTES);
        if touches {
            earlier.1 = end.max(later.0.byte() + later.1) - earlier.0.byte();
        }
        touches
    });
}

/// Non-temporal copy from memory that nobody writes meanwhile.
#[track_caller]
fn copy_slice<X: MediaMap>(map: &X, offset_bytes: u64, from: &[u8]) {
    // SAFETY: the slice is readable for its length.
    unsafe { map.nt_copy(offset_bytes, from.as_ptr(), from.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranges_that_meet_in_a_page_are_joined() {
        let at = |part, byte| Offset::new(part, byte);
        let mut ranges = vec![
            (at(0, 20_480), 64),
            (at(0, 64), 64),
            (at(0, 5000), 100),
            (at(0, 4096), 4096),
            (at(1, 8192), 8),
            (at(0, 100), 10),
        ];
        merge_ranges(&mut ranges);
        assert_eq!(ranges, [(at(0, 64), 8128), (at(0, 20_480), 64), (at(1, 8192), 8)]);
    }
}
