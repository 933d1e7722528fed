//! Several objects in one atomic step.
//!
//! # A commit
//! ```text
//! reserve all -> guard, copy with several threads, flush what is there already -> fence (and msync, in page mode) -> checksums
//!             -> heads that lie in extents, fence -> one redo batch -> changed bytes are copied home
//! ```
//! Until the redo batch is durable nothing is visible; what was reserved goes back when a step fails. The last step is
//! that of the module `redo`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pmem::{Extent, Media, PageScan, Pending, RedoBatch, Touch, default_copy_threads};

use crate::error::{Error, Result};
use crate::holders::Holder;
use crate::populated::Populated;
use crate::put::{Change, Put};
use crate::redo::Gathered;
use crate::source::{Object, Source};
use crate::store::{Store, Waiting};
use crate::value::Buffer;

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
    /// Whether payloads get a checksum, which costs another pass over them, and one over their sources.
    pub checksums: Checksums,
    /// Told before each object by the calling thread, and about every 2 MiB by any of the copying threads.
    /// [`ControlFlow::Break`] gives the commit up after the object that is being copied. It may use the store.
    pub progress: Option<&'a (dyn Fn(Progress) -> ControlFlow<()> + Sync)>,
    /// Up to so many bytes of changes are put together in memory, which the store keeps: then one long copy writes them, and
    /// what is copied home need not be read again.
    pub gather_bytes: u64,
}

/// Whether payloads get a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Metadata only, which always has one.
    Off,
    /// CRC-32C of each payload. Its source is summed afterwards, too, so what changed meanwhile is an error.
    Crc32c,
}

impl Default for PersistOptions<'_> {
    fn default() -> Self {
        let (threads, checksums) = (default_copy_threads(), Checksums::Off);
        PersistOptions { threads, checksums, progress: None, gather_bytes: 8 << 20 }
    }
}

/// What a commit did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The catalogue generation in which the edits are true.
    pub generation: u64,
    /// What was put, in the order of the names.
    pub written: Vec<Written>,
}

/// How an object was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its name.
    pub name: String,
    /// Which of its bytes.
    pub way: Way,
    /// How many were copied, what was copied home not counted again.
    pub copied_bytes: u64,
}

/// Which bytes of an object were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All of them.
    Whole,
    /// None: they lay in the pool already, as a draft or because the object is changed in place.
    InPlace,
    /// Those that were changed, and buffers that are new. How the kernel was asked for changed pages, where it was.
    Changed(Option<PageScan>),
}

/// Edits that become visible and durable together, or not at all. Dropping it does nothing.
pub struct Transaction<'s, 'a, M: Media> {
    store: &'s Store<M>,
    edits: BTreeMap<String, Edit<'a>>,
    /// A name that was put and then changed, which are two objects at once.
    put_and_changed: Option<String>,
}

enum Edit<'a> {
    Put(Box<Object<'a>>),
    Change(Vec<Change<'a>>),
    Remove,
}

impl<'s, 'a, M: Media> Transaction<'s, 'a, M> {
    pub(crate) fn new(store: &'s Store<M>) -> Self {
        Transaction { store, edits: BTreeMap::new(), put_and_changed: None }
    }

    /// Gives a name an object, new or in place of the old one. The last edit of a name counts.
    pub fn put(&mut self, name: &str, object: Object<'a>) -> &mut Self {
        self.edits.insert(name.to_owned(), Edit::Put(Box::new(object)));
        self
    }

    /// Gives some bytes of an object, which must be there at the commit, a new value; those of a value from its `buffer`,
    /// others have buffer 0. Further changes of the same name add to the first, and any other edit of the name replaces
    /// them. An object that the same transaction puts cannot be changed: the commit refuses that.
    pub fn change(&mut self, name: &str, buffer: Buffer, offset_bytes: u64, source: Source<'a>) -> &mut Self {
        let change = Change { buffer, offset_bytes, source };
        match self.edits.get_mut(name) {
            Some(Edit::Change(changes)) => changes.push(change),
            Some(Edit::Put(_)) => self.put_and_changed = Some(name.to_owned()),
            _ => drop(self.edits.insert(name.to_owned(), Edit::Change(vec![change]))),
        }
        self
    }

    /// Removes a name, which must be there at the commit.
    pub fn remove(&mut self, name: &str) -> &mut Self {
        self.edits.insert(name.to_owned(), Edit::Remove);
        self
    }

    /// Makes the edits true. Without edits, the generation is the present one.
    ///
    /// What a [`crate::PrivateView`] of an object has, and is put under the object's name again, is written by its changed
    /// pages, if they are few and nobody else sees the object as it was. So are changes.
    ///
    /// # Errors
    /// `Pool` with `PoolFull`, `NoSuchName`, `BadName`, `TooLarge`, `Truncated`, `BadBlock`, `FileSystemFull`,
    /// `NotWritable`, `WritesRefused`, `UsedAfterFork`; `LengthMismatch` for a change of what is not there, `Unreadable` for
    /// one of what is put, `InUse` for one of what is changed in place; `SourceChanged`, when checksums are asked for and the
    /// bytes are others when they have been copied; `Cancelled`: nothing is changed. `Pool` with `Io`: see [`pmem::Pool::commit`].
    pub fn commit(self, options: &PersistOptions<'_>) -> Result<Committed> {
        self.store.pool().check_process()?;
        if self.edits.is_empty() {
            return Ok(Committed { generation: self.store.pool().generation(), written: Vec::new() });
        }
        if let Some(name) = self.put_and_changed {
            let reason = "it is put in the same transaction, which can put it as it is to be";
            return Err(Error::Unreadable { name, reason });
        }
        for _ in 0..ATTEMPTS {
            if let Some(committed) = self.attempt(options, Held::AtTheEnd)? {
                return Ok(committed);
            }
        }
        // Others change the same objects again and again: now they wait. So must whoever is told of progress.
        let committed = self.attempt(&PersistOptions { progress: None, ..*options }, Held::Throughout)?;
        Ok(committed.expect("nobody else commits meanwhile"))
    }

    /// Does it, unless what is kept of an object is no longer the object's when all is copied.
    fn attempt(&self, options: &PersistOptions<'_>, held: Held) -> Result<Option<Committed>> {
        let (store, pool) = (self.store, self.store.pool());
        pool.set().check_lengths()?;
        let mut names = Some(store.names_stay()?);
        let mut batch = RedoBatch::new();
        let mut puts = Vec::new();
        for (name, edit) in &self.edits {
            match edit {
                Edit::Put(object) => puts.push(Put::new(store, name.clone(), Object::clone(object))?),
                Edit::Change(changes) => puts.push(Put::changed(store, name.clone(), changes)?),
                Edit::Remove => {
                    pool.region(name)?;
                    batch.remove(name);
                }
            }
        }
        if held == Held::AtTheEnd {
            // Whoever is told of progress may use the store, and others need not wait for a copy.
            names = None;
        }
        let mut gathered = store.memory_to_gather_in();
        copy(store, &mut puts, options, &mut gathered)?;
        if options.checksums == Checksums::Crc32c {
            puts.iter().try_for_each(|put| put.guard_kept(pool.set()))?;
        }
        let written = puts.iter().map(Put::written).collect();
        let again = |put: &Put<'_, M>| Again {
            name: put.name().to_owned(),
            waits: put.waits(),
            gathered: put.gathered().map(|(range, _)| range),
            holders: put.holders().to_vec(),
            drafts: put.views_of_drafts(),
        };
        let again: Vec<Again> = puts.iter().map(again).collect();
        let kept: Vec<_> = puts.iter().filter_map(|put| Some((put.name().to_owned(), put.kept_of()?))).collect();
        let has_heads = puts.iter().any(Put::has_heads);
        let mut heads = Pending::new();
        let finish = |put: Put<'_, M>| put.finish(pool.set(), options.checksums, &mut heads);
        let specs: Vec<_> = puts.into_iter().map(finish).collect::<Result<_>>()?;
        if has_heads {
            pool.set().fence(&mut heads)?;
        }
        let names = match names {
            Some(names) => names,
            None => store.names_stay()?,
        };
        let is_there = |(name, born): &(String, u64)| pool.region(name).is_ok_and(|region| region.info().born == *born);
        if !kept.iter().all(is_there) {
            return Ok(None);
        }
        for (name, spec) in specs {
            batch.put(&name, spec);
        }
        let generation = pool.commit(batch)?.generation;
        for Again { name, waits, gathered: at, holders, drafts } in again {
            store.adopt(&name, &drafts);
            // The commit is durable, whatever becomes of this: what is not copied home now is copied later.
            if waits {
                store.wait(&name, Waiting::Home(holders));
                let _ = store.settle_from(&name, at.map(|range| gathered.get(range)));
            } else {
                let _ = store.take_over(&name, &holders);
            }
        }
        drop(names);
        gathered.clear(options.gather_bytes);
        store.keep_memory(gathered);
        Ok(Some(Committed { generation, written }))
    }
}

/// What is done with an object when its commit is durable.
struct Again {
    name: String,
    /// Whether its changes wait to be copied home, and where they lie in memory.
    waits: bool,
    gathered: Option<Range<usize>>,
    /// The private views from which it keeps extents.
    holders: Vec<(Extent, Holder)>,
    /// The views of drafts that it was made of.
    drafts: Vec<(usize, Extent)>,
}

/// How often a commit is tried while others change what it keeps.
const ATTEMPTS: usize = 8;

/// How long a commit keeps others from committing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    AtTheEnd,
    Throughout,
}

/// Copies all payloads and makes them durable.
fn copy<M: Media>(
    store: &Store<M>,
    puts: &mut [Put<'_, M>],
    options: &PersistOptions<'_>,
    gathered: &mut Gathered,
) -> Result<()> {
    let set = store.pool().set();
    let total_bytes = puts.iter().map(Put::copied_bytes).sum();
    store.note_prefaulted();
    let populated = store.stays_populated();
    let mut pending = Pending::new();
    let done_bytes = Cell::new(0);
    let cancelled = AtomicBool::new(false);
    let tell = |done_bytes| {
        let told =
            options.progress.map_or(ControlFlow::Continue(()), |tell| tell(Progress { done_bytes, total_bytes }));
        if told.is_break() {
            cancelled.store(true, Ordering::Relaxed);
        }
        told
    };
    let copy = |source: &Source<'_>, to, pending: &mut Pending| {
        let (newest, before_bytes) = (AtomicU64::new(0), done_bytes.get());
        source.copy_to(set, pending, to, options.threads, &|bytes| {
            // Threads overtake one another; what is told never goes back.
            tell(before_bytes + newest.fetch_max(bytes, Ordering::Relaxed).max(bytes))
        });
        done_bytes.set(before_bytes + source.len_bytes());
        if cancelled.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
    };
    for put in puts.iter_mut() {
        let mut spaces = put.spaces().peekable();
        // This thread's own call: the copying may be done by others before it gets a piece.
        if spaces.peek().is_some() && tell(done_bytes.get()).is_break() {
            return Err(Error::Cancelled);
        }
        for space in spaces {
            guard(store, space, options.threads, populated)?;
        }
        put.gather(gathered, options.gather_bytes.saturating_sub(gathered.len_bytes()));
        for (source, to) in put.copies() {
            copy(&source, to, &mut pending)?;
        }
        if let Some((range, to)) = put.gathered() {
            set.nt_copy(&mut pending, to, gathered.get(range));
            done_bytes.set(done_bytes.get() + put.changed_bytes());
            if tell(done_bytes.get()).is_break() {
                return Err(Error::Cancelled);
            }
        }
    }
    puts.iter_mut().try_for_each(|put| put.flush_what_is_there(set, &mut pending))?;
    set.fence(&mut pending)?;
    // Non-temporal stores keep no order, so what lies over others waits for them.
    for (source, to) in puts.iter().flat_map(Put::copies_over) {
        copy(source, *to, &mut pending)?;
    }
    if puts.iter().any(|put| !put.copies_over().is_empty()) {
        set.fence(&mut pending)?;
    }
    Ok(())
}

/// Makes sure that the copy meets neither a lost page nor a full disk; both would be a signal. The files' lengths have
/// been compared before.
fn guard<M: Media>(
    store: &Store<M>,
    extent: Extent,
    threads: NonZeroUsize,
    populated: Option<&Populated>,
) -> Result<()> {
    let set = store.pool().set();
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
