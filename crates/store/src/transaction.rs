//! Several objects in one atomic step.
//!
//! # A commit
//! ```text
//! reserve all -> guard, copy with several threads -> fence (and msync, in page mode) -> checksums -> one redo batch
//! ```
//! Until the redo batch is durable nothing is visible; what was reserved goes back when a step fails.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pmem::{
    Backing, Durability, Granularity, MAX_META_BYTES, Media, Pending, RedoBatch, RegionSpec, Reservation, Touch,
    check_name, default_copy_threads,
};

use crate::descriptor::{Checksum, Descriptor};
use crate::error::{Error, Result};
use crate::format;
use crate::populated::Populated;
use crate::source::Object;
use crate::store::Store;
use crate::view::sum;

/// From this length on a range is populated by several threads: two steps of 16 MiB.
const PARALLEL_GUARD_FROM_BYTES: u64 = 32 << 20;

/// How far a commit has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes copied, over all objects.
    pub done_bytes: u64,
    /// Bytes of all objects.
    pub total_bytes: u64,
}

/// How objects are copied.
#[derive(Clone, Copy)]
pub struct PersistOptions<'a> {
    /// Threads that copy; by default 8, at most the CPUs of this process.
    pub threads: NonZeroUsize,
    /// Whether payloads get a checksum, which costs another pass over them.
    pub checksums: Checksums,
    /// Told before each object by the calling thread, and about every 2 MiB by any of the copying threads.
    /// [`ControlFlow::Break`] gives the commit up after the
    /// object that is being copied.
    pub progress: Option<&'a (dyn Fn(Progress) -> ControlFlow<()> + Sync)>,
}

/// Whether payloads get a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Metadata only, which always has one.
    Off,
    /// CRC-32C of each payload.
    Crc32c,
}

impl Default for PersistOptions<'_> {
    fn default() -> Self {
        PersistOptions { threads: default_copy_threads(), checksums: Checksums::Off, progress: None }
    }
}

/// Edits that become visible and durable together, or not at all. Dropping it does nothing.
pub struct Transaction<'s, 'a, M: Media> {
    store: &'s Store<M>,
    edits: BTreeMap<String, Edit<'a>>,
}

enum Edit<'a> {
    Put(Object<'a>),
    Remove,
}

impl<'s, 'a, M: Media> Transaction<'s, 'a, M> {
    pub(crate) fn new(store: &'s Store<M>) -> Self {
        Transaction { store, edits: BTreeMap::new() }
    }

    /// Gives a name an object, new or in place of the old one. The last edit of a name counts.
    pub fn put(&mut self, name: &str, object: Object<'a>) -> &mut Self {
        self.edits.insert(name.to_owned(), Edit::Put(object));
        self
    }

    /// Removes a name, which must be there at the commit.
    pub fn remove(&mut self, name: &str) -> &mut Self {
        self.edits.insert(name.to_owned(), Edit::Remove);
        self
    }

    /// Makes the edits true. Returns the catalogue generation in which they are; without edits, the present one.
    ///
    /// # Errors
    /// `Pool` with `PoolFull`, `NoSuchName`, `BadName`, `TooLarge`, `Truncated`, `BadBlock`, `FileSystemFull`,
    /// `NotWritable`, `WritesRefused`, `UsedAfterFork`; `Cancelled`: nothing is changed. `Pool` with `Io`: see
    /// [`pmem::Pool::commit`].
    pub fn commit(self, options: &PersistOptions<'_>) -> Result<u64> {
        let pool = self.store.pool();
        if self.edits.is_empty() {
            return Ok(pool.generation());
        }
        pool.set().check_lengths()?;
        let mut batch = RedoBatch::new();
        let mut puts = Vec::new();
        for (name, edit) in self.edits {
            match edit {
                Edit::Put(object) => puts.push(Put::reserve(self.store, name, object)?),
                Edit::Remove => {
                    pool.region(&name)?;
                    batch.remove(&name);
                }
            }
        }
        copy(self.store, &puts, options)?;
        for put in puts {
            let (name, spec) = put.finish(self.store, options.checksums);
            batch.put(&name, spec);
        }
        let _names = self.store.names_stay()?;
        Ok(pool.commit(batch)?.generation)
    }
}

/// An object with the space that it will take.
struct Put<'a> {
    name: String,
    object: Object<'a>,
    space: Option<Reservation>,
}

impl<'a> Put<'a> {
    /// What the catalogue would refuse is refused before anything is copied.
    fn reserve<M: Media>(store: &Store<M>, name: String, object: Object<'a>) -> Result<Put<'a>> {
        check_name(&name)?;
        let got_bytes = format::encode(object.descriptor()).len() as u64;
        if got_bytes > MAX_META_BYTES as u64 {
            let what = "the description of an object";
            return Err(pmem::Error::TooLarge { what, got_bytes, limit_bytes: MAX_META_BYTES as u64 }.into());
        }
        let space = match object.descriptor().payload_bytes() {
            0 => None,
            len_bytes => Some(store.pool().reserve(len_bytes)?),
        };
        Ok(Put { name, object, space })
    }

    fn finish<M: Media>(self, store: &Store<M>, checksums: Checksums) -> (String, RegionSpec) {
        let mut descriptor = self.object.into_descriptor();
        if checksums == Checksums::Crc32c {
            descriptor.checksum = Checksum::Crc32c(stored_sum(store, &descriptor, self.space.as_ref()));
        }
        let spec = RegionSpec {
            kind: descriptor.kind() as u32,
            flags: descriptor.flags().0,
            meta: format::encode(&descriptor),
            keep: Vec::new(),
            add: self.space.into_iter().collect(),
        };
        (self.name, spec)
    }
}

/// The checksum of what arrived, which is what a reader will see even if the source changed meanwhile.
fn stored_sum<M: Media>(store: &Store<M>, descriptor: &Descriptor, space: Option<&Reservation>) -> u32 {
    let Some(space) = space else { return sum(0, |_, _| ()) };
    let start = space.extent().offset;
    sum(descriptor.payload_bytes(), |at, into| store.pool().set().load_bytes(start.plus(at), into))
}

/// Copies all payloads and makes them durable.
fn copy<M: Media>(store: &Store<M>, puts: &[Put<'_>], options: &PersistOptions<'_>) -> Result<()> {
    let set = store.pool().set();
    let total_bytes = puts.iter().map(|put| put.object.descriptor().payload_bytes()).sum();
    // Only pages of main memory stay: those of persistent memory can be lost at any time, and those of page-cached files
    // must be made writable anew. One such part is enough to have every page asked for.
    let is_memory = |backing: Backing| {
        backing.durability <= Durability::ProcessCrashSafe && backing.granularity == Granularity::CacheLine
    };
    let populated = store.pool().set().backings().all(is_memory).then_some(&store.populated);
    store.note_prefaulted();
    let mut pending = Pending::new();
    let mut before_bytes = 0;
    let cancelled = AtomicBool::new(false);
    let tell = |done_bytes| {
        let told =
            options.progress.map_or(ControlFlow::Continue(()), |tell| tell(Progress { done_bytes, total_bytes }));
        if told.is_break() {
            cancelled.store(true, Ordering::Relaxed);
        }
        told
    };
    for put in puts {
        let Some(space) = &put.space else { continue };
        // This thread's own call: the copying may be done by others before it gets a piece.
        if tell(before_bytes).is_break() {
            return Err(Error::Cancelled);
        }
        guard(store, space, options.threads, populated)?;
        let newest = AtomicU64::new(0);
        put.object.copy_to(set, &mut pending, space.extent().offset, options.threads, &|bytes| {
            // Threads overtake one another; what is told never goes back.
            tell(before_bytes + newest.fetch_max(bytes, Ordering::Relaxed).max(bytes))
        });
        if cancelled.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        before_bytes += put.object.descriptor().payload_bytes();
    }
    Ok(set.fence(&mut pending)?)
}

/// Makes sure that the copy meets neither a lost page nor a full disk; both would be a signal. The files' lengths have
/// been compared before.
fn guard<M: Media>(
    store: &Store<M>,
    space: &Reservation,
    threads: NonZeroUsize,
    populated: Option<&Populated>,
) -> Result<()> {
    let (set, extent) = (store.pool().set(), space.extent());
    if populated.is_some_and(|populated| populated.contains(extent)) {
        return Ok(());
    }
    if extent.len_bytes < PARALLEL_GUARD_FROM_BYTES || threads == NonZeroUsize::MIN {
        set.guard(extent.offset, extent.len_bytes, Touch::Store)?;
    } else {
        set.prefault(extent.offset, extent.len_bytes, Touch::Store, threads.get())?.join()?;
    }
    if let Some(populated) = populated {
        populated.insert(extent);
    }
    Ok(())
}
