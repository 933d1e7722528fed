//! The seam: everything that reaches a medium goes through these three traits.
//!
//! Product code is generic over [`Media`], so the same code runs on real mappings (`Mapped`), on the heap
//! (`Heap`), under the crash simulator (crate `remanent-crash`) and under the device model. All calls are
//! statically dispatched; the seam costs nothing when it is not simulated.
//!
//! Metadata is written through the typed calls; bulk payload goes through [`MediaMap::nt_copy`], or through raw
//! pointers by code that answers for its own flushes.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::durability::Backing;
use crate::error::{Result, Uuid};

/// How a file or a pool is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read and write; one at a time.
    Writer,
    /// Read; any number beside a writer. What a reader sees is pinned against reclaim.
    Reader,
    /// Read without pinning anything, for reports and checks beside a writer.
    Inspect,
}

/// A file-lock flavour; see [`MediaFile::try_lock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Any number of holders.
    Shared,
    /// One holder.
    Exclusive,
}

/// What the caller is about to do with a range; see [`MediaMap::guard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Load from it.
    Load,
    /// Store to it.
    Store,
}

/// Placement of one mapping over one or more files.
///
/// Logical bytes `[0, HEAD_BYTES)` lie at the start of member 0. The rest is cut into chunks of `chunk_bytes`, dealt
/// to the members in turn; each member keeps its own first `HEAD_BYTES` for its header.
/// With one member the logical and the file offset are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Number of member files, at least 1.
    pub members: u16,
    /// Bytes of one chunk: a multiple of 2 MiB. Ignored with one member.
    pub chunk_bytes: u64,
}

impl Stripe {
    /// Bytes at the start of every member that are not striped.
    pub const HEAD_BYTES: u64 = 2 << 20;

    /// A mapping of one file.
    pub const SINGLE: Stripe = Stripe { members: 1, chunk_bytes: Self::HEAD_BYTES };

    /// Where a logical byte lies: `(member, offset in the member's file, bytes that follow contiguously)`.
    pub fn locate(&self, logical_bytes: u64) -> (u16, u64, u64) {
        if self.members == 1 {
            return (0, logical_bytes, u64::MAX - logical_bytes);
        }
        if logical_bytes < Self::HEAD_BYTES {
            return (0, logical_bytes, Self::HEAD_BYTES - logical_bytes);
        }
        let body = logical_bytes - Self::HEAD_BYTES;
        let (chunk, within) = (body / self.chunk_bytes, body % self.chunk_bytes);
        let members = u64::from(self.members);
        let offset = Self::HEAD_BYTES + chunk / members * self.chunk_bytes + within;
        ((chunk % members) as u16, offset, self.chunk_bytes - within)
    }

    /// Logical length of members of `member_bytes` each.
    pub fn logical_bytes(&self, member_bytes: u64) -> u64 {
        if self.members == 1 {
            return member_bytes;
        }
        let chunks = member_bytes.saturating_sub(Self::HEAD_BYTES) / self.chunk_bytes;
        Self::HEAD_BYTES + chunks * self.chunk_bytes * u64::from(self.members)
    }
}

/// A place where files live and can be mapped.
pub trait Media: Clone + Send + Sync + 'static {
    /// An open file.
    type File: MediaFile;
    /// A mapping of one or more files.
    type Map: MediaMap;

    /// Creates a new file of `len_bytes`, every byte of it allocated and zero; never replaces one and never follows
    /// a link. The file is not durable before [`MediaFile::fsync`] and [`Media::sync_dir`].
    ///
    /// # Errors
    /// `AlreadyExists`, `FileSystemFull` (and then no file is left behind), `BadSize`, `AccessDenied`, `ReadOnly`, `Io`.
    fn create(&self, path: &Path, len_bytes: u64) -> Result<Self::File>;

    /// Opens an existing file and finds out what its backing promises.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory`, `NotAFile`, `Symlink`, `AccessDenied`, `WorldWritable`, `ReadOnly`, `Io`.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Self::File>;

    /// Renames within one directory; never replaces. Not durable before [`Media::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file. Not durable before [`Media::sync_dir`].
    fn remove(&self, path: &Path) -> Result<()>;

    /// Makes the directory entries beside `path` durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;

    /// Whether something has this name.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Whether the name still means this open file: it may have been removed or renamed since, and made anew.
    fn names(&self, path: &Path, file: &Self::File) -> Result<bool>;

    /// Whether the name is a device. A device is there already: it is used whole, and neither renamed nor removed.
    fn is_device(&self, path: &Path) -> bool;

    /// Maps `files` as one address range; see [`Stripe`]. Only [`OpenMode::Writer`] may store.
    ///
    /// # Errors
    /// `Misaligned`, `BadSize` (too short for a stripe), `NotWritable`, `Unsupported` (a stripe over files and devices),
    /// `Io`.
    fn map(&self, files: &[Arc<Self::File>], stripe: Stripe, mode: OpenMode) -> Result<Self::Map>;

    /// Orders this thread's flushes and non-temporal stores before whatever follows (SFENCE, DSB).
    fn fence(&self);

    /// Random identity for a new pool or part.
    fn new_uuid(&self) -> Uuid;

    /// Identity of the calling process; a pool compares it to notice a fork.
    fn process_id(&self) -> u32;

    /// Seconds since 1970-01-01 UTC, for the date of a new pool. What is simulated has a clock that stands still, so
    /// that it comes out the same every time.
    fn unix_time_s(&self) -> u64;
}

/// An open file.
pub trait MediaFile: Send + Sync + 'static {
    /// The name it was opened by.
    fn path(&self) -> &Path;

    /// Tells the open file of its new name.
    fn renamed(&mut self, path: &Path);

    /// Current length, asked from the system each time.
    fn len_bytes(&self) -> Result<u64>;

    /// What the backing promises.
    fn backing(&self) -> &Backing;

    /// Reads exactly `into.len()` bytes without touching a mapping, so that a bad block is an error and no signal.
    ///
    /// # Errors
    /// `BadBlock`, `Truncated`, `Io`.
    fn pread(&self, offset_bytes: u64, into: &mut [u8]) -> Result<()>;

    /// Writes all of `from` through the file interface.
    fn pwrite(&self, offset_bytes: u64, from: &[u8]) -> Result<()>;

    /// Makes the file's content and length durable.
    fn fsync(&self) -> Result<()>;

    /// Takes a lock on a byte range, which may lie past the end; false when another holder is in the way. Locks
    /// belong to this open file (OFD locks, fcntl(2)): they fall when it is closed, also by `kill -9`.
    fn try_lock(&self, kind: LockKind, range: Range<u64>) -> Result<bool>;

    /// Gives a range back.
    fn unlock(&self, range: Range<u64>) -> Result<()>;

    /// The first byte of some other holder's lock inside `range`, if there is one.
    fn find_lock(&self, range: Range<u64>) -> Result<Option<u64>>;
}

/// A mapped address range. Offsets are logical (see [`Stripe`]) and checked against the length.
pub trait MediaMap: Send + Sync + 'static {
    /// Length of the range.
    fn len_bytes(&self) -> u64;

    /// How the range lies over its files.
    fn stripe(&self) -> Stripe;

    /// First byte of the range; stays valid and in place as long as the value lives.
    fn base(&self) -> *mut u8;

    /// Loads 8 aligned bytes, acquire.
    fn load_u64(&self, offset_bytes: u64) -> u64;

    /// Copies bytes out.
    fn load_bytes(&self, offset_bytes: u64, into: &mut [u8]);

    /// Stores 8 aligned bytes at once, release. The only store that is atomic against power failure.
    fn store_u64(&self, offset_bytes: u64, value: u64);

    /// Compare-and-swap of 8 aligned bytes; `Err` has the value that was there.
    fn cas_u64(&self, offset_bytes: u64, current: u64, new: u64) -> std::result::Result<u64, u64>;

    /// Stores bytes through the cache; needs [`MediaMap::flush`] to become durable.
    fn store_bytes(&self, offset_bytes: u64, from: &[u8]);

    /// Copies `len_bytes` with stores that by-pass the cache (in line mode), durable at the next [`Media::fence`]
    /// of the same thread; edges that share a line with other data are stored and flushed.
    ///
    /// # Safety
    /// `from` is readable for `len_bytes` bytes. It may change meanwhile; then some mixture arrives.
    unsafe fn nt_copy(&self, offset_bytes: u64, from: *const u8, len_bytes: usize);

    /// Starts the write-back of every line of the range. Does nothing where the granularity is page or byte.
    fn flush(&self, offset_bytes: u64, len_bytes: u64);

    /// Makes a range durable through the kernel (msync). Used where the granularity is page.
    fn sync_range(&self, offset_bytes: u64, len_bytes: u64) -> Result<()>;

    /// As [`MediaMap::sync_range`] for several ranges, in the order of their offsets. What lies between them may become
    /// durable as well.
    fn sync_ranges(&self, ranges: &[(u64, u64)]) -> Result<()> {
        ranges.iter().try_for_each(|&(offset_bytes, len_bytes)| self.sync_range(offset_bytes, len_bytes))
    }

    /// Populates a range, so that a lost page, a bad block or a full disk is an error here and no signal later.
    ///
    /// # Errors
    /// `BadBlock`, `Truncated`, `FileSystemFull`, `Io`.
    fn guard(&self, offset_bytes: u64, len_bytes: u64, touch: Touch) -> Result<()>;
}
