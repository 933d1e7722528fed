//! Files that live on the heap: for Miri, for tests and for pools that are meant to be forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::durability::{Backing, Durability, Granularity, Provenance};
use crate::error::{Error, Result, Uuid};
use crate::media::{LockKind, Media, MediaFile, MediaMap, OpenMode, Stripe, Touch};

/// A medium of heap memory. Clones share their files.
#[derive(Clone, Default)]
pub struct Heap {
    files: Arc<Mutex<BTreeMap<PathBuf, Arc<HeapBytes>>>>,
    holders: Arc<AtomicU32>,
    /// Counted apart: what a pool holds depends on it, and golden files on that.
    uuids: Arc<AtomicU32>,
}

/// The content of a heap file, in atomic words so that concurrent readers race with nobody.
struct HeapBytes {
    words: Box<[AtomicU64]>,
    locks: Mutex<BTreeSet<HeldLock>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct HeldLock {
    start: u64,
    end: u64,
    holder: u32,
    exclusive: bool,
}

/// An open heap file.
pub struct HeapFile {
    path: PathBuf,
    bytes: Arc<HeapBytes>,
    holder: u32,
    backing: Backing,
}

/// A mapped heap file, or several as a stripe.
pub struct HeapMap {
    members: Vec<Arc<HeapBytes>>,
    stripe: Stripe,
    len_bytes: u64,
}

/// Most bytes of one heap file.
const MAX_BYTES: u64 = 1 << 40;

impl Heap {
    /// An empty medium.
    pub fn new() -> Heap {
        Heap::default()
    }

    /// Replaces or makes a file with this content, padded to 8 bytes; for tests that damage pools.
    pub fn put(&self, path: &Path, content: &[u8]) {
        const PAGE: usize = 4096;
        let bytes = HeapBytes::zeroed(content.len() as u64);
        for (number, page) in content.chunks(PAGE).enumerate() {
            // Pages of zeros are there already, and stay untouched.
            if page.iter().any(|&byte| byte != 0) {
                bytes.write((number * PAGE) as u64, page);
            }
        }
        self.lock().insert(path.to_owned(), Arc::new(bytes));
    }

    /// The content of a file.
    pub fn get(&self, path: &Path) -> Option<Vec<u8>> {
        let bytes = self.lock().get(path)?.clone();
        let mut content = vec![0; bytes.words.len() * 8];
        bytes.read(0, &mut content);
        Some(content)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<PathBuf, Arc<HeapBytes>>> {
        self.files.lock().expect("no panic while the list of files is changed")
    }

    fn handle(&self, path: &Path, bytes: Arc<HeapBytes>) -> HeapFile {
        HeapFile {
            path: path.to_owned(),
            bytes,
            holder: self.holders.fetch_add(1, Ordering::Relaxed),
            backing: Backing {
                durability: Durability::Volatile,
                granularity: Granularity::CacheLine,
                provenance: Provenance::Emulated,
                filesystem: "heap".into(),
                reason: "heap memory is gone when the process ends".into(),
            },
        }
    }
}

impl HeapBytes {
    fn zeroed(len_bytes: u64) -> HeapBytes {
        let words = vec![0u64; len_bytes.div_ceil(8) as usize].into_boxed_slice();
        // SAFETY: AtomicU64 has the same size, alignment and bit validity as u64 where pointers have 64 bits, so the
        // allocation can be freed as what it is turned into.
        let words = unsafe { Box::from_raw(Box::into_raw(words) as *mut [AtomicU64]) };
        HeapBytes { words, locks: Mutex::default() }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) {
        let mut at = offset_bytes as usize;
        let mut rest = into;
        while !rest.is_empty() {
            let word = self.words[at / 8].load(Ordering::Acquire).to_le_bytes();
            let n = rest.len().min(8 - at % 8);
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(&word[at % 8..at % 8 + n]);
            (rest, at) = (later, at + n);
        }
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) {
        let mut at = offset_bytes as usize;
        let mut rest = from;
        while !rest.is_empty() {
            let n = rest.len().min(8 - at % 8);
            let mut word = self.words[at / 8].load(Ordering::Acquire).to_le_bytes();
            word[at % 8..at % 8 + n].copy_from_slice(&rest[..n]);
            self.words[at / 8].store(u64::from_le_bytes(word), Ordering::Release);
            (rest, at) = (&rest[n..], at + n);
        }
    }
}

impl Media for Heap {
    type File = HeapFile;
    type Map = HeapMap;

    fn create(&self, path: &Path, len_bytes: u64) -> Result<HeapFile> {
        let refuse = |reason| Err(Error::BadSize { path: path.to_owned(), got_bytes: len_bytes, reason });
        match len_bytes {
            0 => return refuse("it is zero"),
            MAX_BYTES.. => return refuse("it is larger than a heap file can be"),
            _ => {}
        }
        let mut files = self.lock();
        if files.contains_key(path) {
            return Err(Error::AlreadyExists { path: path.to_owned() });
        }
        let bytes = Arc::new(HeapBytes::zeroed(len_bytes));
        files.insert(path.to_owned(), bytes.clone());
        Ok(self.handle(path, bytes))
    }

    fn open(&self, path: &Path, _mode: OpenMode) -> Result<HeapFile> {
        let bytes = self.lock().get(path).cloned().ok_or_else(|| Error::NotFound { path: path.to_owned() })?;
        Ok(self.handle(path, bytes))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut files = self.lock();
        if files.contains_key(to) {
            return Err(Error::AlreadyExists { path: to.to_owned() });
        }
        let bytes = files.remove(from).ok_or_else(|| Error::NotFound { path: from.to_owned() })?;
        files.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.lock().remove(path).map(drop).ok_or_else(|| Error::NotFound { path: path.to_owned() })
    }

    fn sync_dir(&self, _path: &Path) -> Result<()> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.lock().contains_key(path))
    }

    fn names(&self, path: &Path, file: &HeapFile) -> Result<bool> {
        Ok(self.lock().get(path).is_some_and(|bytes| Arc::ptr_eq(bytes, &file.bytes)))
    }

    fn is_device(&self, _path: &Path) -> bool {
        false
    }

    fn map(&self, files: &[Arc<HeapFile>], stripe: Stripe, _mode: OpenMode) -> Result<HeapMap> {
        let shortest = files.iter().map(|f| f.bytes.words.len() as u64 * 8).min().unwrap_or(0);
        let len_bytes = stripe.logical_bytes(shortest);
        Ok(HeapMap { members: files.iter().map(|f| f.bytes.clone()).collect(), stripe, len_bytes })
    }

    fn fence(&self) {}

    fn new_uuid(&self) -> Uuid {
        // Unique within this medium, and the same in every run.
        let mut bytes = [0x5A; 16];
        bytes[..4].copy_from_slice(&self.uuids.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        Uuid(bytes)
    }

    fn process_id(&self) -> u32 {
        1
    }

    fn unix_time_s(&self) -> u64 {
        0
    }
}

impl MediaFile for HeapFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn renamed(&mut self, path: &Path) {
        self.path = path.to_owned();
    }

    fn len_bytes(&self) -> Result<u64> {
        Ok(self.bytes.words.len() as u64 * 8)
    }

    fn backing(&self) -> &Backing {
        &self.backing
    }

    fn pread(&self, offset_bytes: u64, into: &mut [u8]) -> Result<()> {
        let got_bytes = self.len_bytes()?;
        let expected_bytes = offset_bytes + into.len() as u64;
        if expected_bytes > got_bytes {
            return Err(Error::Truncated { path: self.path.clone(), got_bytes, expected_bytes });
        }
        self.bytes.read(offset_bytes, into);
        Ok(())
    }

    fn pwrite(&self, offset_bytes: u64, from: &[u8]) -> Result<()> {
        self.bytes.write(offset_bytes, from);
        Ok(())
    }

    fn fsync(&self) -> Result<()> {
        Ok(())
    }

    fn try_lock(&self, kind: LockKind, range: Range<u64>) -> Result<bool> {
        let exclusive = kind == LockKind::Exclusive;
        let mut locks = self.bytes.locks.lock().expect("no panic while locks are changed");
        let conflict = |held: &HeldLock| {
            held.holder != self.holder
                && (held.exclusive || exclusive)
                && held.start < range.end
                && range.start < held.end
        };
        if locks.iter().any(conflict) {
            return Ok(false);
        }
        locks.insert(HeldLock { start: range.start, end: range.end, holder: self.holder, exclusive });
        Ok(true)
    }

    fn unlock(&self, range: Range<u64>) -> Result<()> {
        let mut locks = self.bytes.locks.lock().expect("no panic while locks are changed");
        locks.retain(|held| held.holder != self.holder || held.start != range.start || held.end != range.end);
        Ok(())
    }

    fn find_lock(&self, range: Range<u64>) -> Result<Option<u64>> {
        let locks = self.bytes.locks.lock().expect("no panic while locks are changed");
        let other = |held: &&HeldLock| held.holder != self.holder && held.start < range.end && range.start < held.end;
        Ok(locks.iter().find(other).map(|held| held.start))
    }
}

impl Drop for HeapFile {
    fn drop(&mut self) {
        if let Ok(mut locks) = self.bytes.locks.lock() {
            locks.retain(|held| held.holder != self.holder);
        }
    }
}

impl HeapMap {
    fn check(&self, offset_bytes: u64, len_bytes: u64) {
        let end = offset_bytes.checked_add(len_bytes);
        assert!(end.is_some_and(|end| end <= self.len_bytes), "{len_bytes} bytes at {offset_bytes} leave the mapping");
    }

    /// Runs `f(member, offset in the member, bytes)` over the pieces of a logical range.
    fn pieces(&self, mut offset_bytes: u64, mut len_bytes: usize, mut f: impl FnMut(&HeapBytes, u64, usize)) {
        self.check(offset_bytes, len_bytes as u64);
        while len_bytes > 0 {
            let (member, at, room) = self.stripe.locate(offset_bytes);
            let n = len_bytes.min(usize::try_from(room).unwrap_or(usize::MAX));
            f(&self.members[usize::from(member)], at, n);
            (offset_bytes, len_bytes) = (offset_bytes + n as u64, len_bytes - n);
        }
    }

    fn word(&self, offset_bytes: u64) -> &AtomicU64 {
        self.check(offset_bytes, 8);
        assert!(offset_bytes.is_multiple_of(8), "offset {offset_bytes} is not aligned to 8 bytes");
        let (member, at, _) = self.stripe.locate(offset_bytes);
        &self.members[usize::from(member)].words[(at / 8) as usize]
    }
}

impl MediaMap for HeapMap {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn stripe(&self) -> Stripe {
        self.stripe
    }

    /// # Panics
    /// On a stripe, which has no single address here.
    fn base(&self) -> *mut u8 {
        assert!(self.members.len() == 1, "a stripe on the heap has no single address");
        self.members[0].words.as_ptr().cast_mut().cast()
    }

    fn load_u64(&self, offset_bytes: u64) -> u64 {
        self.word(offset_bytes).load(Ordering::Acquire)
    }

    fn load_bytes(&self, offset_bytes: u64, into: &mut [u8]) {
        let mut done = 0;
        self.pieces(offset_bytes, into.len(), |member, at, n| {
            member.read(at, &mut into[done..done + n]);
            done += n;
        });
    }

    fn store_u64(&self, offset_bytes: u64, value: u64) {
        self.word(offset_bytes).store(value, Ordering::Release);
    }

    fn cas_u64(&self, offset_bytes: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.word(offset_bytes).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    fn store_bytes(&self, offset_bytes: u64, from: &[u8]) {
        let mut done = 0;
        self.pieces(offset_bytes, from.len(), |member, at, n| {
            member.write(at, &from[done..done + n]);
            done += n;
        });
    }

    unsafe fn nt_copy(&self, offset_bytes: u64, from: *const u8, len_bytes: usize) {
        let mut done = 0;
        self.pieces(offset_bytes, len_bytes, |member, at, n| {
            // SAFETY: the caller answers for `len_bytes` readable bytes, and the pieces add up to that many.
            let piece = unsafe { std::slice::from_raw_parts(from.add(done), n) };
            member.write(at, piece);
            done += n;
        });
    }

    fn flush(&self, offset_bytes: u64, len_bytes: u64) {
        self.check(offset_bytes, len_bytes);
    }

    fn sync_range(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.check(offset_bytes, len_bytes);
        Ok(())
    }

    fn guard(&self, offset_bytes: u64, len_bytes: u64, _touch: Touch) -> Result<()> {
        self.check(offset_bytes, len_bytes);
        Ok(())
    }
}
