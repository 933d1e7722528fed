//! Changing a pool: batches of edits, commits, compaction of the log, reclaim, and closing.
//!
//! # A commit
//! ```text
//! (data of the new extents: copied, flushed, fenced by whoever filled them)
//! mark dirty, if clean -> append one batch: store, flush, fence -> acknowledged -> tail hint, not waited for
//! ```
//!
//! # Compaction, when the log segment is full
//! ```text
//! write a checkpoint into the spare segment, fence -> root cell, slot A, then slot B -> the old segment is retired
//! ```
//! The spare is set aside in advance, so that a full pool can still remove names.

use std::collections::HashSet;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::catalogue::{
    CHECKPOINT, COMMIT, Catalogue, Change, MAX_EXTENTS, MAX_META_BYTES, RegionInfo, Retired, check_name,
};
use crate::error::{Error, Result};
use crate::extent::{Extent, Published, Reservation, Space};
use crate::format::{self, PartState, ROOT_AT, Root, Superblock, batch_bytes};
use crate::log::{MAX_SEQUENCE, SelfCertifyingLog};
use crate::media::{Media, MediaFile, OpenMode, Touch};
use crate::opening;
use crate::pins::WRITER_AT;
use crate::pool::{Pool, Replayed, Shared, root_cell, segment_of, superblock_cell};
use crate::set::{Pending, PoolSet, TAIL_HINT};

/// Smallest log segment.
pub(crate) const MIN_SEGMENT_BYTES: u64 = 64 << 10;

/// The state that only a writer has.
pub(crate) struct Writer {
    log: SelfCertifyingLog,
    root: Root,
    root_generation: u64,
    superblock: Superblock,
    superblock_generation: u64,
    /// Where the next checkpoint goes.
    spare: Option<Reservation>,
}

/// What a name will mean; see [`RedoBatch::put`].
#[derive(Debug, Default)]
pub struct RegionSpec {
    /// The product's number for what it is.
    pub kind: u32,
    /// The product's flags.
    pub flags: u32,
    /// The product's description, at most 1 MiB.
    pub meta: Vec<u8>,
    /// Extents that the name has already and keeps, or takes over from a name that the same batch removes. They come
    /// first.
    pub keep: Vec<Extent>,
    /// New extents, filled and persisted by the caller.
    pub add: Vec<Reservation>,
}

/// Edits of the catalogue that become true together: all of them, or none.
#[derive(Debug, Default)]
pub struct RedoBatch {
    puts: Vec<(String, RegionSpec)>,
    removes: Vec<String>,
}

impl RedoBatch {
    /// No edits yet.
    pub fn new() -> RedoBatch {
        RedoBatch::default()
    }

    /// Gives a name a meaning, new or in place of the old one.
    pub fn put(&mut self, name: &str, region: RegionSpec) -> &mut RedoBatch {
        self.puts.push((name.to_owned(), region));
        self
    }

    /// Removes a name.
    pub fn remove(&mut self, name: &str) -> &mut RedoBatch {
        self.removes.push(name.to_owned());
        self
    }
}

/// What a commit did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The generation in which the edits are true.
    pub generation: u64,
    /// The extents that the catalogue owns now, in the order of the edits.
    pub published: Vec<Published>,
}

impl Writer {
    /// Takes over a pool: makes durable what the last writer left visible, and both cells whole.
    pub(crate) fn recover<M: Media>(set: &PoolSet<M>, replayed: &Replayed, superblock: Superblock) -> Result<Writer> {
        let corrupt = |what| Error::Corrupt { path: set.path().to_owned(), what, offset_bytes: 0 };
        let cell = superblock_cell(0);
        let value = cell.read(set)?.ok_or_else(|| Error::SuperblockLost { path: set.path().to_owned() })?;
        if Superblock::decode(&value.payload).as_ref() != Some(&superblock) {
            return Err(corrupt("the superblock"));
        }
        let mut pending = Pending::new();
        cell.repair(set, &value, &mut pending)?;
        for part in 1..set.part_count() {
            let cell = superblock_cell(part);
            let value = cell.read(set)?.ok_or_else(|| corrupt("the superblock of a part"))?;
            cell.repair(set, &value, &mut pending)?;
            // What is not marked yet was synced when its file was made, so no slot of it waits for a fence.
            opening::mark_linked(set, part)?;
        }
        opening::mend_members(set)?;
        root_cell(superblock.set).repair(set, &replayed.root_value, &mut pending)?;
        match replayed.was_closed(&superblock) {
            true => replayed.log.wipe_torn_end(set, &mut pending)?,
            false => replayed.log.resume(set, &mut pending)?,
        }
        set.guard(TAIL_HINT, 8, Touch::Store)?;
        set.fence(&mut pending)?;
        Ok(Writer {
            log: replayed.log.clone(),
            root: replayed.root,
            root_generation: replayed.root_value.generation,
            superblock,
            superblock_generation: value.generation,
            spare: None,
        })
    }

    fn mark<M: Media>(&mut self, set: &PoolSet<M>, state: PartState, clean_tail: u64) -> Result<()> {
        let superblock = Superblock { state, clean_tail, ..self.superblock.clone() };
        superblock_cell(0).write(set, self.superblock_generation + 1, &superblock.encode())?;
        self.superblock_generation += 1;
        self.superblock = superblock;
        Ok(())
    }

    pub(crate) fn mark_dirty<M: Media>(&mut self, set: &PoolSet<M>) -> Result<()> {
        match self.superblock.state {
            PartState::Dirty => Ok(()),
            PartState::Clean | PartState::Linked => self.mark(set, PartState::Dirty, self.superblock.clean_tail),
        }
    }

    /// The superblock of part 0 with a changed link, for growth.
    pub(crate) fn relink<M: Media>(&mut self, set: &PoolSet<M>, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut superblock = self.superblock.clone();
        change(&mut superblock);
        superblock_cell(0).write(set, self.superblock_generation + 1, &superblock.encode())?;
        self.superblock_generation += 1;
        self.superblock = superblock;
        Ok(())
    }

    /// Sets space aside for the next checkpoint, with half as much again for the batches that follow it.
    fn keep_spare(&mut self, space: &Space, checkpoint_bytes: u64) -> Result<()> {
        let needed = batch_bytes(checkpoint_bytes);
        if self.spare.as_ref().is_some_and(|spare| spare.extent().len_bytes >= needed + needed / 2) {
            return Ok(());
        }
        let spare = space.reserve((2 * needed).max(MIN_SEGMENT_BYTES))?;
        self.spare = Some(spare);
        Ok(())
    }

    /// Whether a compaction can be followed by a batch with this payload; sets space aside for it.
    fn prepare_compaction(&mut self, space: &Space, checkpoint_bytes: u64, payload_bytes: u64) -> Result<()> {
        let needed = batch_bytes(checkpoint_bytes) + batch_bytes(payload_bytes);
        if self.spare.as_ref().is_some_and(|spare| spare.extent().len_bytes >= needed) {
            return Ok(());
        }
        // The old one is given back first, for the new one may need its place.
        let had_bytes = self.spare.take().map(|spare| spare.extent().len_bytes);
        let reserved = space.reserve(needed.max(MIN_SEGMENT_BYTES));
        self.spare = match &reserved {
            Ok(_) => None,
            Err(_) => had_bytes.and_then(|bytes| space.reserve(bytes).ok()),
        };
        self.spare = Some(reserved?);
        Ok(())
    }

    /// Starts a new segment with a checkpoint and retires the old one. The catalogue's content stays the same.
    fn compact<M: Media>(&mut self, set: &PoolSet<M>, catalogue: &RwLock<Catalogue>) -> Result<()> {
        if self.log.next_sequence().max(self.root.segment_generation + 1) >= MAX_SEQUENCE {
            // Only a forged pool can have come so far, and the next open would refuse it.
            let (path, offset_bytes) = (set.path().to_owned(), ROOT_AT[0]);
            return Err(Error::Corrupt { path, what: "a count in the root cell", offset_bytes });
        }
        let spare = self.spare.take().expect("a compaction is prepared before it is made");
        let generation = self.log.next_sequence();
        let old = Retired { extent: self.root.segment, generation };
        let root = Root {
            segment: spare.extent(),
            segment_generation: self.root.segment_generation + 1,
            first_sequence: generation,
        };
        let cell = root_cell(self.superblock.set);
        // Whatever can fail without a store fails here: once the cell is touched, only a lost write-back can.
        cell.guard(set)?;
        set.guard(root.segment.offset, root.segment.len_bytes, Touch::Store)?;
        let mut log = SelfCertifyingLog::start(segment_of(&root, self.superblock.set));
        let checkpoint = read(catalogue).encode_checkpoint(&[old]);
        log.append(set, &mut Pending::new(), CHECKPOINT, &checkpoint)?;
        // From here on a reader may find the new segment, so it cannot go back to the free map.
        spare.publish();
        cell.write(set, self.root_generation + 1, &root.encode())?;
        self.root_generation += 1;
        self.root = root;
        self.log = log;
        write(catalogue).compacted(old);
        Ok(())
    }
}

impl<M: Media> Pool<M> {
    /// Makes the edits true together, durably, in the order: removals, then puts.
    ///
    /// The extents of `add` must be durable already; what the edits replace is retired, and reclaimed when no pin
    /// needs it any more.
    ///
    /// # Errors
    /// `BadName`, `NoSuchName`, `TooLarge`, `PoolFull`, `Truncated`, `BadBlock`, `FileSystemFull`, `NotWritable`,
    /// `UsedAfterFork`, `WritesRefused`: nothing is changed. `Io`: the same, unless a page could not be written back;
    /// then it is unknown whether the edits are durable, and the pool refuses further writes (`WritesRefused`).
    pub fn commit(&self, batch: RedoBatch) -> Result<Committed> {
        let mut guard = self.shared.lock_to_write()?;
        let writer = guard.as_mut().ok_or_else(|| self.shared.not_writable())?;
        self.shared.set.check_lengths()?;
        let (mut changes, reservations) = self.shared.validate(batch)?;
        self.shared.make_room(writer, &changes)?;
        let generation = match self.shared.log_commit(writer, &mut changes) {
            Err(error) if self.shared.set.has_failed() => {
                // Bytes may be on the medium, so nobody knows what the catalogue owns: nothing is given out again.
                for reservation in reservations {
                    reservation.publish();
                }
                return Err(error);
            }
            result => result?,
        };
        let published = reservations.into_iter().map(Reservation::publish).collect();
        write(&self.shared.catalogue).apply(changes, generation);
        self.shared.store_hint(generation);
        // The commit is durable, whatever becomes of this: what is not freed now is freed later.
        let _ = self.shared.reclaim_unpinned();
        Ok(Committed { generation, published })
    }

    /// Frees the extents that were replaced or removed and that no reader needs any more. Returns their bytes.
    ///
    /// # Errors
    /// `NotWritable`, `UsedAfterFork`, `Io`.
    pub fn reclaim(&self) -> Result<u64> {
        self.shared.check_process()?;
        if self.mode() != OpenMode::Writer {
            return Err(self.shared.not_writable());
        }
        let _writer = self.shared.lock_writer();
        self.shared.reclaim_unpinned()
    }

    /// Rewrites the log as one checkpoint, which makes the next open as fast as it can be.
    ///
    /// # Errors
    /// As [`Pool::commit`].
    pub fn compact(&self) -> Result<()> {
        let mut guard = self.shared.lock_to_write()?;
        let writer = guard.as_mut().ok_or_else(|| self.shared.not_writable())?;
        self.shared.set.check_lengths()?;
        let checkpoint_bytes = self.shared.catalogue().checkpoint_bytes(1);
        writer.keep_spare(&self.shared.space, checkpoint_bytes)?;
        self.shared.log_compaction(writer)?;
        self.shared.store_hint(self.generation());
        let _ = self.shared.reclaim_unpinned();
        Ok(())
    }

    /// Marks the pool clean and gives the writer's lock back. Regions that are still held stay readable, and pinned.
    /// Dropping a pool does the same and cannot report an error.
    ///
    /// # Errors
    /// `Io`; the pool is then found dirty at the next open, and nothing is lost.
    pub fn close(self) -> Result<()> {
        self.shared.close()
    }
}

impl<M: Media> Drop for Pool<M> {
    fn drop(&mut self) {
        // A pool that is not marked clean is recovered at the next open, so an error here costs nothing but time.
        let _ = self.shared.close();
    }
}

impl<M: Media> Shared<M> {
    pub(crate) fn lock_writer(&self) -> std::sync::MutexGuard<'_, Option<Writer>> {
        self.writer.lock().expect("a panic in a commit leaves the pool to be opened again")
    }

    pub(crate) fn not_writable(&self) -> Error {
        Error::NotWritable { path: self.set.path().to_owned() }
    }

    /// The writer's state, for a change. Whether changes are refused is asked when everybody else is done with theirs.
    pub(crate) fn lock_to_write(&self) -> Result<std::sync::MutexGuard<'_, Option<Writer>>> {
        self.check_process()?;
        let guard = self.lock_writer();
        self.check_writable()?;
        Ok(guard)
    }

    /// Turns edits into changes and the reservations that they consume, or finds what is wrong with them.
    fn validate(&self, batch: RedoBatch) -> Result<(Vec<Change>, Vec<Reservation>)> {
        let catalogue = self.catalogue();
        let mut changes = Vec::with_capacity(batch.puts.len() + batch.removes.len());
        let mut reservations = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        let names = batch.removes.iter().chain(batch.puts.iter().map(|(name, _)| name));
        for name in names {
            if !seen.insert(name.as_str()) {
                return Err(Error::BadName { name: name.clone(), reason: "it stands twice in one commit" });
            }
        }
        let mut orphaned = HashSet::new();
        for name in &batch.removes {
            let Some((name, region)) = catalogue.names.get_key_value(name.as_str()) else {
                return Err(Error::NoSuchName { name: name.clone() });
            };
            orphaned.extend(region.extents.iter().copied());
            changes.push(Change::Remove(name.clone()));
        }
        for (name, spec) in batch.puts {
            check_name(&name)?;
            check_limit("the description", spec.meta.len(), MAX_META_BYTES)?;
            check_limit("the list of extents", spec.keep.len() + spec.add.len(), MAX_EXTENTS)?;
            let had = catalogue.names.get(name.as_str()).map_or(&[][..], |region| &region.extents);
            // Taken over once: two names never share an extent.
            let mut its: HashSet<&Extent> = had.iter().collect();
            if !spec.keep.iter().all(|extent| its.remove(extent) || orphaned.remove(extent)) {
                return Err(Error::BadName { name, reason: "it cannot keep an extent that it has not, or one twice" });
            }
            if !spec.add.iter().all(|reservation| reservation.is_of(&self.space)) {
                return Err(Error::BadName { name, reason: "space was reserved for it in another pool" });
            }
            let extents = spec.keep.iter().copied().chain(spec.add.iter().map(Reservation::extent)).collect();
            let region = RegionInfo { kind: spec.kind, flags: spec.flags, born: 0, extents, meta: spec.meta };
            changes.push(Change::Put(name.into(), Arc::new(region)));
            reservations.extend(spec.add);
        }
        if changes.is_empty() {
            return Err(Error::BadName { name: String::new(), reason: "a commit needs at least one edit" });
        }
        Ok((changes, reservations))
    }

    /// Makes sure that the state after these changes can still be checkpointed, before anything is written. Only
    /// changes that make the catalogue larger can be refused.
    fn make_room(&self, writer: &mut Writer, changes: &[Change]) -> Result<()> {
        let (growth, now) = {
            let catalogue = self.catalogue();
            (catalogue.growth_bytes(changes), catalogue.checkpoint_bytes(catalogue.retirements(changes) + 1))
        };
        match writer.keep_spare(&self.space, now.saturating_add_signed(growth)) {
            Err(_) if growth <= 0 => Ok(()),
            result => result,
        }
    }

    /// Appends the batch, after a compaction if it does not fit. The changes get their generation.
    fn log_commit(&self, writer: &mut Writer, changes: &mut [Change]) -> Result<u64> {
        let mut payload = encode(changes, writer.log.next_sequence());
        if !writer.log.fits(payload.len() as u64) {
            let checkpoint_bytes = self.catalogue().checkpoint_bytes(1);
            writer.prepare_compaction(&self.space, checkpoint_bytes, payload.len() as u64)?;
            self.log_compaction(writer)?;
            payload = encode(changes, writer.log.next_sequence());
        }
        self.set.guard(writer.log.tail(), batch_bytes(payload.len() as u64), Touch::Store)?;
        writer.mark_dirty(&self.set)?;
        writer.log.append(&self.set, &mut Pending::new(), COMMIT, &payload)
    }

    fn log_compaction(&self, writer: &mut Writer) -> Result<()> {
        writer.mark_dirty(&self.set)?;
        writer.compact(&self.set, &self.catalogue)
    }

    /// Sets space aside for the next checkpoint if there is any; without it only growth of the catalogue is refused.
    pub(crate) fn keep_spare(&self) {
        let checkpoint_bytes = self.catalogue().checkpoint_bytes(1);
        if let Some(writer) = self.lock_writer().as_mut() {
            let _ = writer.keep_spare(&self.space, checkpoint_bytes);
        }
    }

    /// Says which commit is durable. Nobody waits for it: it goes out with the next fence, or when the line is evicted.
    fn store_hint(&self, generation: u64) {
        let hint = format::encode_tail_hint(format::seed(self.identity.set, 0), generation);
        self.set.store_u64(TAIL_HINT, hint);
        self.set.flush(&mut Pending::new(), TAIL_HINT, 8);
    }

    /// Frees what no pin needs. The caller holds the writer's lock.
    fn reclaim_unpinned(&self) -> Result<u64> {
        let Some(newest) = self.catalogue().newest_retired() else { return Ok(0) };
        let oldest = self.pins.oldest_below(newest)?;
        let free = write(&self.catalogue).take_unpinned(oldest);
        self.space.with(|map| free.iter().for_each(|&extent| map.free(extent)));
        Ok(free.iter().map(|extent| extent.len_bytes).sum())
    }

    fn close(&self) -> Result<()> {
        if self.set.media().process_id() != self.process_id {
            return Ok(());
        }
        // A commit that panicked has left nobody knows what: the pool is recovered at the next open.
        let Ok(mut guard) = self.writer.lock() else { return Err(Error::WritesRefused { path: self.path() }) };
        let Some(mut writer) = guard.take() else { return Ok(()) };
        writer.spare = None;
        let result = match writer.superblock.state {
            PartState::Dirty if !self.set.has_failed() => {
                let generation = self.catalogue().generation;
                writer.mark(&self.set, PartState::Clean, generation)
            }
            _ => Ok(()),
        };
        // Views that outlive the writer must hold off the next one, so their pins become locks before it can start.
        for generation in self.pins.own() {
            self.pins.lock(generation)?;
        }
        // The first file comes last: with it the next writer begins.
        let others = self.set.parts().flat_map(|part| &part.files).skip(1);
        for file in others.chain([self.set.first_file()]) {
            file.unlock(WRITER_AT..WRITER_AT + 1)?;
        }
        result
    }
}

/// Stamps the changes with the generation that they will have and encodes them.
fn encode(changes: &mut [Change], generation: u64) -> Vec<u8> {
    for change in changes.iter_mut() {
        if let Change::Put(_, region) = change {
            Arc::make_mut(region).born = generation;
        }
    }
    Catalogue::encode_changes(changes)
}

fn read(catalogue: &RwLock<Catalogue>) -> RwLockReadGuard<'_, Catalogue> {
    catalogue.read().expect("no panic while the catalogue is exchanged")
}

fn write(catalogue: &RwLock<Catalogue>) -> RwLockWriteGuard<'_, Catalogue> {
    catalogue.write().expect("no panic while the catalogue is exchanged")
}

fn check_limit(what: &'static str, got: usize, limit: usize) -> Result<()> {
    if got <= limit {
        return Ok(());
    }
    Err(Error::TooLarge { what, got_bytes: got as u64, limit_bytes: limit as u64 })
}
