//! Several objects in one atomic step.
//!
//! # A commit
//! ```text
//! reserve all -> guard, copy with several threads -> fence (and msync, in page mode) -> checksums
//!             -> heads of values that do not fit the catalogue, fence -> one redo batch
//! ```
//! Until the redo batch is durable nothing is visible; what was reserved goes back when a step fails.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pmem::{
    Backing, Durability, Granularity, MAX_EXTENTS, MAX_META_BYTES, Media, Pending, RedoBatch, RegionSpec, Reservation,
    Touch, check_name, default_copy_threads,
};

use crate::descriptor::Checksum;
use crate::error::{Error, Result};
use crate::format;
use crate::populated::Populated;
use crate::source::{Object, Source};
use crate::store::Store;
use crate::value::Place;
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
        let mut heads = Pending::new();
        let has_heads = puts.iter().any(Put::has_head_in_extent);
        for put in puts {
            let (name, spec) = put.finish(self.store, options.checksums, &mut heads);
            batch.put(&name, spec);
        }
        if has_heads {
            pool.set().fence(&mut heads)?;
        }
        let _names = self.store.names_stay()?;
        Ok(pool.commit(batch)?.generation)
    }
}

/// An object with the space that it will take.
struct Put<'a> {
    name: String,
    object: Object<'a>,
    /// Of a value.
    tree: Vec<u8>,
    /// Where each of its sources goes.
    places: Vec<Place>,
    spaces: Vec<Reservation>,
}

/// A buffer from this length on has an extent of its own, which huge pages can map and a later commit can keep; smaller ones
/// share one.
pub(crate) const OWN_EXTENT_FROM_BYTES: u64 = 1 << 20;
/// Buffers that share an extent start at multiples of this, as extents do.
const BUFFER_ALIGN: u64 = 64;

impl<'a> Put<'a> {
    /// What the catalogue would refuse is refused before anything is copied.
    fn reserve<M: Media>(store: &Store<M>, name: String, object: Object<'a>) -> Result<Put<'a>> {
        check_name(&name)?;
        let tree = object.tree().map_or_else(Vec::new, format::encode_tree);
        let head_bytes = match object.tree() {
            Some(_) => format::head_bytes(&tree, object.sources().len()),
            None => 0,
        };
        let (places, extents) = lay_out(object.sources(), head_bytes);
        let description_bytes = match object.tree() {
            Some(_) => 0,
            None => format::encode(object.descriptor()).len(),
        };
        refuse_more("the description of an object", description_bytes, MAX_META_BYTES)?;
        refuse_more("the large parts of an object", extents.len(), MAX_EXTENTS)?;
        let spaces = extents.into_iter().map(|len_bytes| store.pool().reserve(len_bytes)).collect::<Result<_, _>>()?;
        Ok(Put { name, object, tree, places, spaces })
    }

    fn has_head_in_extent(&self) -> bool {
        self.object.tree().is_some() && format::lies_in_extent(format::head_bytes(&self.tree, self.places.len()))
    }

    /// Sums what arrived, and writes the head of a value that lies in an extent; that is durable after the next fence.
    fn finish<M: Media>(
        mut self,
        store: &Store<M>,
        checksums: Checksums,
        pending: &mut Pending,
    ) -> (String, RegionSpec) {
        if checksums == Checksums::Crc32c {
            for place in &mut self.places {
                place.crc = Some(stored_sum(store, place, &self.spaces));
            }
        }
        let is_value = self.object.tree().is_some();
        let mut descriptor = self.object.into_descriptor();
        let meta = if is_value {
            let head = format::encode_head(&self.tree, &self.places);
            if format::lies_in_extent(head.len()) {
                store.pool().set().nt_copy(pending, self.spaces[0].extent().offset, &head);
            }
            format::encode_meta(&head, descriptor.payload_bytes())
        } else {
            descriptor.checksum = self.places[0].crc.map_or(Checksum::None, Checksum::Crc32c);
            format::encode(&descriptor)
        };
        let (kind, flags) = (descriptor.kind() as u32, descriptor.flags().0);
        (self.name, RegionSpec { kind, flags, meta, keep: Vec::new(), add: self.spaces })
    }
}

fn refuse_more(what: &'static str, got: usize, limit: usize) -> Result<()> {
    if got > limit {
        return Err(pmem::Error::TooLarge { what, got_bytes: got as u64, limit_bytes: limit as u64 }.into());
    }
    Ok(())
}

/// Deals buffers to extents: the places, and the lengths of the extents. What is small, and a head that lies in an extent,
/// shares the first.
fn lay_out(sources: &[Source<'_>], head_bytes: usize) -> (Vec<Place>, Vec<u64>) {
    let is_small = |len_bytes: u64| len_bytes < OWN_EXTENT_FROM_BYTES;
    let mut shared_bytes = if format::lies_in_extent(head_bytes) { head_bytes as u64 } else { 0 };
    let shares =
        shared_bytes > 0 || sources.iter().any(|source| (1..OWN_EXTENT_FROM_BYTES).contains(&source.len_bytes()));
    let mut extents = if shares { vec![0] } else { Vec::new() };
    let places = sources.iter().map(|source| {
        let len_bytes = source.len_bytes();
        let (extent, offset_bytes) = match len_bytes {
            0 => (0, 0),
            _ if is_small(len_bytes) => {
                let at = shared_bytes.next_multiple_of(BUFFER_ALIGN);
                shared_bytes = at + len_bytes;
                (0, at)
            }
            _ => {
                extents.push(len_bytes);
                (extents.len() as u32 - 1, 0)
            }
        };
        Place { extent, crc: None, offset_bytes, len_bytes }
    });
    let places = places.collect();
    if shares {
        extents[0] = shared_bytes;
    }
    (places, extents)
}

/// The checksum of what arrived, which is what a reader will see even if the source changed meanwhile.
fn stored_sum<M: Media>(store: &Store<M>, place: &Place, spaces: &[Reservation]) -> u32 {
    let Some(space) = spaces.get(place.extent as usize).filter(|_| place.len_bytes > 0) else {
        return sum(0, |_, _| ());
    };
    let start = space.extent().offset.plus(place.offset_bytes);
    sum(place.len_bytes, |at, into| store.pool().set().load_bytes(start.plus(at), into))
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
    for put in puts.iter().filter(|put| !put.spaces.is_empty()) {
        // This thread's own call: the copying may be done by others before it gets a piece.
        if tell(before_bytes).is_break() {
            return Err(Error::Cancelled);
        }
        for space in &put.spaces {
            guard(store, space, options.threads, populated)?;
        }
        for (source, place) in put.object.sources().iter().zip(&put.places).filter(|(_, place)| place.len_bytes > 0) {
            let to = put.spaces[place.extent as usize].extent().offset.plus(place.offset_bytes);
            let newest = AtomicU64::new(0);
            source.copy_to(set, &mut pending, to, options.threads, &|bytes| {
                // Threads overtake one another; what is told never goes back.
                tell(before_bytes + newest.fetch_max(bytes, Ordering::Relaxed).max(bytes))
            });
            if cancelled.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            before_bytes += place.len_bytes;
        }
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
