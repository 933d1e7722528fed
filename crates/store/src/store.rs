//! The store: a pool whose names are typed objects.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pmem::{
    ErrorCode, Extent, Layout, Mapped, Media, OpenMode, PartOptions, Pending, Pool, PoolInfo, RedoBatch, Region,
    RegionInfo, RegionSpec, Touch, default_copy_threads,
};

use crate::descriptor::{Descriptor, Flags};
use crate::direct::Detaching;
use crate::error::{Error, Result};
use crate::holders::{Holder, Holders, Private, State};
use crate::populated::Populated;
use crate::prefault::Background;
use crate::redo::{Gathered, PREFETCHED_RANGES, RedoRange};
use crate::source::{Object, Source};
use crate::transaction::{Committed, PersistOptions, Transaction};
use crate::view::{HeldRegion, ObjectView, describe};

/// The layout of the pools that stores live in.
pub const LAYOUT: Layout = Layout { name: "store", version: 1 };

/// How often a consistent set of views is tried before the catalogue is read as a whole.
const ATTEMPTS: usize = 3;

/// An open store.
///
/// # Invariants
/// 1. A name leads to the object of the last commit that gave it one; commits are atomic over all their names.
/// 2. A committed extent is never written to again, until no view and no reader needs it; but for what the module
///    `redo` copies home, and what the module `direct` has marked.
/// 3. `waiting` has every object of the catalogue that has a redo extent or is marked as in place, in a writer.
pub struct Store<M: Media = Mapped> {
    /// Before the pool, so that the threads end first.
    pub(crate) background: Mutex<Background>,
    pub(crate) populated: Populated,
    /// Held from a look at the names that a commit depends on until the commit.
    names: Mutex<()>,
    /// Before the pool, so that nobody stores to it when its lock falls.
    detaching: Detaching,
    pub(crate) holders: Arc<Holders>,
    /// Objects that are to be committed again.
    waiting: Mutex<BTreeMap<String, Waiting>>,
    gathered: Mutex<Gathered>,
    pool: Pool<M>,
}

/// Why an object is to be committed again.
#[derive(Clone)]
pub(crate) enum Waiting {
    /// Bytes of it wait to be copied home; these private views may see that.
    Home(Vec<(Extent, Holder)>),
    /// It is marked as in place.
    InPlace,
    /// It is marked by a writer that has ended.
    Interrupted,
}

/// What a rename may find under the new name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Nothing,
    Anything,
}

/// One line of [`Store::ls`].
#[derive(Clone, Debug)]
pub struct ObjectInfo {
    /// Its name.
    pub name: String,
    /// The number of its kind, which a later version may have given it.
    pub kind: u32,
    /// What it is; none when this version cannot tell.
    pub descriptor: Option<Descriptor>,
    /// Bytes that it takes in the pool.
    pub extent_bytes: u64,
    /// The catalogue generation in which it was committed.
    pub born: u64,
}

/// What [`Store::verify`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Objects whose bytes are what their checksums say.
    pub matching: usize,
    /// Objects without a checksum.
    pub without_checksum: usize,
}

impl<M: Media> Store<M> {
    /// Creates a store. Nothing that exists is replaced.
    ///
    /// # Errors
    /// As [`Pool::create`].
    pub fn create(media: M, path: &Path, options: &PartOptions) -> Result<Store<M>> {
        Ok(Store::over(Pool::create(media, path, LAYOUT, options)?))
    }

    /// Opens a store. A writer copies home what a crash has left of changes.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn open(media: M, path: &Path, mode: OpenMode) -> Result<Store<M>> {
        let store = Store::over(Pool::open(media, path, Some(LAYOUT), mode)?);
        if mode == OpenMode::Writer {
            let is_in_place = |info: &RegionInfo| info.flags & Flags::IN_PLACE.0 != 0;
            for region in store.pool.regions_where(is_in_place)? {
                store.wait(region.name(), Waiting::Interrupted);
            }
            let has_redo = |info: &RegionInfo| info.flags & Flags::REDO.0 != 0;
            for region in store.pool.regions_where(has_redo)? {
                store.wait(region.name(), Waiting::Home(Vec::new()));
            }
            // One object that cannot be read keeps nobody from the others; reading it tells what is wrong.
            let _ = store.settle_all()?;
        }
        Ok(store)
    }

    fn over(pool: Pool<M>) -> Store<M> {
        let holders = Arc::new(Holders::new());
        Store {
            background: Mutex::new(Background::new()),
            populated: Populated::default(),
            names: Mutex::default(),
            detaching: Detaching(holders.clone()),
            holders,
            waiting: Mutex::default(),
            gathered: Mutex::default(),
            pool,
        }
    }

    /// The pool underneath.
    pub fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    /// Adds another file; see [`Pool::grow`]. It is pre-faulted in the background if the store was.
    ///
    /// # Errors
    /// As [`Pool::grow`].
    pub fn grow(&self, path: Option<&Path>, options: &PartOptions) -> Result<()> {
        self.pool.grow(path, options)?;
        let is_wanted = self.background().is_wanted;
        if is_wanted { self.prefault() } else { Ok(()) }
    }

    /// What the pool is and how full it is.
    pub fn info(&self) -> PoolInfo {
        self.pool.info()
    }

    /// Every object, by name.
    ///
    /// # Errors
    /// `UsedAfterFork`.
    pub fn ls(&self) -> Result<Vec<ObjectInfo>> {
        let object = |region: Region<M>| ObjectInfo {
            name: region.name().to_owned(),
            kind: region.info().kind,
            descriptor: describe(region.name(), region.info()).ok(),
            extent_bytes: region.info().extents.iter().map(|extent| extent.len_bytes).sum(),
            born: region.info().born,
        };
        Ok(self.pool.regions("")?.into_iter().map(object).collect())
    }

    /// The names, in order.
    ///
    /// # Errors
    /// `UsedAfterFork`.
    pub fn names(&self) -> Result<Vec<String>> {
        Ok(self.pool.regions("")?.iter().map(|region| region.name().to_owned()).collect())
    }

    /// Whether there is an object of that name.
    ///
    /// # Errors
    /// `UsedAfterFork`.
    pub fn contains(&self, name: &str) -> Result<bool> {
        match self.pool.region(name) {
            Ok(_) => Ok(true),
            Err(pmem::Error::NoSuchName { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// An object, pinned and readable where it lies. The files' lengths are checked; as long as they are what they were,
    /// pages are not touched, so this takes as long for a large object as for a small one ([`ObjectView::guard`] touches
    /// them). Of files that were cut short what lies before the cut can still be had.
    ///
    /// # Errors
    /// `NoSuchName`, `UsedAfterFork`, `Truncated`; `UnknownType`, `BadDescriptor`; `InUse` while it is changed in place.
    pub fn get(&self, name: &str) -> Result<ObjectView<M>> {
        Ok(self.given(|| Ok(vec![self.look(name)?]))?.remove(0))
    }

    /// What `look` finds, when nobody changes any of it in place.
    fn given(&self, look: impl Fn() -> Result<Vec<ObjectView<M>>>) -> Result<Vec<ObjectView<M>>> {
        let mut views = look()?;
        let is_marked = |view: &&ObjectView<M>| view.descriptor().flags().contains(Flags::IN_PLACE);
        let marked: Vec<String> = views.iter().filter(is_marked).map(|view| view.name().to_owned()).collect();
        if !marked.is_empty() && self.pool.mode() == OpenMode::Writer {
            // The marks of what nobody changes any more go.
            drop(views);
            let names = self.names_stay()?;
            marked.iter().try_for_each(|name| self.settle(name))?;
            drop(names);
            views = look()?;
        }
        views.iter().try_for_each(|view| self.check_not_in_place(view))?;
        Ok(views)
    }

    /// As [`Store::get`], also while it is changed in place.
    pub(crate) fn look(&self, name: &str) -> Result<ObjectView<M>> {
        self.check_process()?;
        let region = {
            let mut state = self.holders.lock();
            self.hold(self.pool.region(name)?, &mut state)
        };
        Ok(self.views(vec![region])?.remove(0))
    }

    /// Where a file was cut short, only what lies before the cut is given.
    fn views(&self, regions: Vec<HeldRegion<M>>) -> Result<Vec<ObjectView<M>>> {
        if self.pool.set().check_lengths().is_err() {
            regions.iter().try_for_each(HeldRegion::check_reaches)?;
        }
        regions.into_iter().map(ObjectView::new).collect()
    }

    fn hold(&self, region: Region<M>, state: &mut State) -> HeldRegion<M> {
        HeldRegion::new(region, &self.holders, state)
    }

    /// Several objects from one generation: what one commit made visible together is seen together.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_all(&self, names: &[&str]) -> Result<Vec<ObjectView<M>>> {
        self.check_process()?;
        self.given(|| self.views(self.hold_all(names)?))
    }

    fn hold_all(&self, names: &[&str]) -> Result<Vec<HeldRegion<M>>> {
        let mut state = self.holders.lock();
        for _ in 0..ATTEMPTS {
            let regions = names.iter().map(|name| self.pool.region(name)).collect::<pmem::Result<Vec<_>>>()?;
            if regions.windows(2).all(|pair| pair[0].generation() == pair[1].generation()) {
                return Ok(regions.into_iter().map(|region| self.hold(region, &mut state)).collect());
            }
        }
        // Commits come too fast: the whole catalogue at once.
        let all = self.pool.regions("")?;
        let find = |name: &&str| {
            let region = all.binary_search_by(|region| region.name().cmp(name)).ok().map(|at| all[at].clone());
            region.ok_or_else(|| pmem::Error::NoSuchName { name: (*name).to_owned() })
        };
        let regions = names.iter().map(find).collect::<pmem::Result<Vec<_>>>()?;
        Ok(regions.into_iter().map(|region| self.hold(region, &mut state)).collect())
    }

    /// Every object from one generation.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_every(&self) -> Result<Vec<ObjectView<M>>> {
        self.given(|| self.look_at_every())
    }

    fn look_at_every(&self) -> Result<Vec<ObjectView<M>>> {
        self.check_process()?;
        let regions: Vec<_> = {
            let mut state = self.holders.lock();
            self.pool.regions("")?.into_iter().map(|region| self.hold(region, &mut state)).collect()
        };
        self.views(regions)
    }

    /// Starts a set of edits that become true together.
    pub fn transaction<'a>(&self) -> Transaction<'_, 'a, M> {
        Transaction::new(self)
    }

    /// Persists several objects in one atomic step; see [`Transaction::commit`].
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn persist(&self, objects: &[(&str, Object<'_>)], options: &PersistOptions<'_>) -> Result<Committed> {
        let mut transaction = self.transaction();
        for (name, object) in objects {
            transaction.put(name, object.clone());
        }
        transaction.commit(options)
    }

    /// Removes a name; see [`Transaction::commit`].
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn remove(&self, name: &str) -> Result<u64> {
        let mut transaction = self.transaction();
        transaction.remove(name);
        Ok(transaction.commit(&PersistOptions::default())?.generation)
    }

    /// Gives an object another name, in one atomic step and without a copy. Views and readers that have not moved on
    /// keep the old name. Also for objects that this version cannot read. Returns the catalogue generation.
    ///
    /// # Errors
    /// `NameTaken` when there is an object of the new name; `Pool` with `NoSuchName`, `BadName`, and as
    /// [`Transaction::commit`].
    pub fn rename(&self, old: &str, new: &str) -> Result<u64> {
        self.move_to(old, new, Target::Nothing)
    }

    /// As [`Store::rename`]; what has the new name is replaced.
    ///
    /// # Errors
    /// As [`Store::rename`], without `NameTaken`.
    pub fn rename_over(&self, old: &str, new: &str) -> Result<u64> {
        self.move_to(old, new, Target::Anything)
    }

    fn move_to(&self, old: &str, new: &str, target: Target) -> Result<u64> {
        let _names = self.names_stay()?;
        let region = self.pool.region(old)?;
        if old == new {
            return Ok(self.pool.generation());
        }
        if target == Target::Nothing && self.contains(new)? {
            return Err(Error::NameTaken { name: new.to_owned() });
        }
        let info = region.info();
        let (meta, keep) = (info.meta.clone(), info.extents.clone());
        let mut batch = RedoBatch::new();
        batch.remove(old);
        batch.put(new, RegionSpec { kind: info.kind, flags: info.flags, meta, keep, add: Vec::new() });
        let generation = self.pool.commit(batch)?.generation;
        let mut waiting = self.waiting();
        waiting.remove(new);
        if let Some(holders) = waiting.remove(old) {
            waiting.insert(new.to_owned(), holders);
        }
        Ok(generation)
    }

    /// No other thread commits as long as this is held. Refused in a forked child, where its holder may be missing.
    pub(crate) fn names_stay(&self) -> Result<MutexGuard<'_, ()>> {
        self.check_process()?;
        Ok(self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Frees what was replaced or removed and that nobody views any more. Returns its bytes. Commits do it as well;
    /// this is for space that became free because a reader went. Changed bytes that wait for a reader are copied home
    /// first, by a commit for each object.
    ///
    /// # Errors
    /// `NotWritable`, `UsedAfterFork`, `Io`; what the first object met whose bytes could not be copied home, when the rest
    /// is done.
    pub fn gc(&self) -> Result<u64> {
        let settled = self.settle_all()?;
        let bytes = self.pool.reclaim()?;
        settled.map(|()| bytes)
    }

    /// Notes why an object is to be committed again.
    pub(crate) fn wait(&self, name: &str, why: Waiting) {
        self.waiting().insert(name.to_owned(), why);
    }

    pub(crate) fn stop_waiting(&self, name: &str) {
        self.waiting().remove(name);
    }

    /// Copies home what can go; the first failure of one of the objects is inside.
    fn settle_all(&self) -> Result<Result<()>> {
        let _names = self.names_stay()?;
        let waiting: Vec<String> = self.waiting().keys().cloned().collect();
        Ok(waiting.iter().map(|name| self.settle(name)).fold(Ok(()), Result::and))
    }

    /// Copies home what waits in the redo extent of an object, if it has one and nobody sees the object as it was; and takes
    /// the mark away from one that nobody changes in place any more. The caller holds the names.
    ///
    /// # Errors
    /// Those of a commit; the object is as it was.
    pub(crate) fn settle(&self, name: &str) -> Result<()> {
        self.settle_from(name, None)
    }

    /// As [`Store::settle`]; what the redo extent has is in memory, too.
    pub(crate) fn settle_from(&self, name: &str, gathered: Option<&[u8]>) -> Result<()> {
        let Some(why) = self.waiting().get(name).cloned() else { return Ok(()) };
        let is_marked = |view: &ObjectView<M>| view.descriptor().flags().contains(Flags::IN_PLACE);
        let (view, holders) = match (self.look(name), why) {
            (Ok(view), Waiting::Home(holders)) if view.redo().is_some() => (view, holders),
            (Ok(view), Waiting::InPlace) if is_marked(&view) => return self.leave_in_place(name, view),
            (Ok(view), Waiting::Interrupted) if is_marked(&view) => {
                drop(view);
                return self.interrupt(name);
            }
            (Err(Error::Pool(error)), _) if error.code() != ErrorCode::NoSuchName => return Err(error.into()),
            // It is gone, or replaced, or cannot be read.
            _ => {
                self.stop_waiting(name);
                return Ok(());
            }
        };
        let (set, extents) = (self.pool.set(), view.extents());
        let redo = view.redo().expect("it was asked for");
        let home = |range: &RedoRange| extents[range.extent as usize];
        let to = |range: &RedoRange| home(range).offset.plus(range.offset_bytes);
        let mut homes: Vec<Extent> = redo.ranges.iter().map(home).collect();
        homes.dedup();
        let but: Vec<Holder> = holders.iter().map(|(_, holder)| *holder).collect();
        if !self.is_unseen_before(view.born(), &homes, &but)? {
            return Ok(());
        }
        self.pool.check_writable()?;
        if gathered.is_none() {
            view.guard_redo()?;
        }
        let (threads, populated) = (default_copy_threads(), self.stays_populated());
        let mut pending = Pending::new();
        for (number, range) in redo.ranges.iter().enumerate() {
            redo.ranges.get(number + PREFETCHED_RANGES).inspect(|range| pmem::prefetch(set.address(to(range))));
            let (home, to) = (home(range), to(range));
            if !populated.is_some_and(|populated| populated.contains(home)) {
                set.guard(to, range.len_bytes, Touch::Store)?;
            }
            let waiting = match gathered {
                Some(gathered) => gathered[range.at_bytes as usize..][..range.len_bytes as usize].into(),
                None => view.waiting(range),
            };
            waiting.copy_to(set, &mut pending, to, threads, &|_| ControlFlow::Continue(()));
        }
        set.fence(&mut pending)?;
        let info = view.region().info();
        let (flags, meta, keep) = (Flags(info.flags).without(Flags::REDO).0, info.meta.clone(), extents.to_vec());
        let mut batch = RedoBatch::new();
        batch.put(name, RegionSpec { kind: info.kind, flags, meta, keep, add: Vec::new() });
        // Its pin would keep the redo extent.
        drop(view);
        self.pool.commit(batch)?;
        self.stop_waiting(name);
        self.take_over(name, &holders)
    }

    /// Has private views, which show what the object of this name has now, hold that instead of what they were made from:
    /// that can be reclaimed.
    pub(crate) fn take_over(&self, name: &str, holders: &[(Extent, Holder)]) -> Result<()> {
        if holders.is_empty() {
            return Ok(());
        }
        let view = self.look(name)?;
        holders.iter().for_each(|(extent, holder)| view.take_over(*extent, *holder));
        Ok(())
    }

    /// Whether nobody sees these extents as they were before a generation, but for these holders.
    pub(crate) fn is_unseen_before(&self, generation: u64, extents: &[Extent], but: &[Holder]) -> Result<bool> {
        let is_free = {
            let state = self.holders.lock();
            extents.iter().all(|extent| state.is_free(*extent, generation, but))
        };
        Ok(is_free && !self.pool.is_read_elsewhere(generation)?)
    }

    /// Whether nobody sees these extents, but for these holders.
    pub(crate) fn is_seen_by_nobody(&self, extents: &[Extent], but: &[Holder]) -> Result<bool> {
        self.is_unseen_before(self.pool.generation() + 1, extents, but)
    }

    /// The private view whose bytes these are, all of them.
    pub(crate) fn private_view_of(&self, source: &Source<'_>) -> Option<Private> {
        self.holders.private_at(source.address(), source.len_bytes())
    }

    pub(crate) fn memory_to_gather_in(&self) -> Gathered {
        std::mem::take(&mut *self.gathered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn keep_memory(&self, gathered: Gathered) {
        *self.gathered.lock().unwrap_or_else(PoisonError::into_inner) = gathered;
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<String, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses in a forked child, where whoever holds a lock may be missing.
    fn check_process(&self) -> Result<()> {
        Ok(self.pool.check_process()?)
    }

    /// Moves a reader on to the newest commit; views keep what they have.
    ///
    /// # Errors
    /// As [`Pool::refresh`].
    pub fn refresh(&self) -> Result<u64> {
        Ok(self.pool.refresh()?)
    }

    /// Compares every object that has a checksum with it.
    ///
    /// # Errors
    /// `ChecksumMismatch` for the first that differs; as [`ObjectView::guard`].
    pub fn verify(&self) -> Result<Verified> {
        let mut found = Verified::default();
        for view in self.look_at_every()? {
            match view.verify()? {
                true => found.matching += 1,
                false => found.without_checksum += 1,
            }
        }
        Ok(found)
    }

    /// Closes the store in order; see [`Pool::close`]. Views stay valid. Changed bytes that nobody is in the way of are copied
    /// home first, and what was changed in place is made durable.
    ///
    /// # Errors
    /// As [`Pool::close`]; what kept an object that was changed in place from being durable, when all the rest is done.
    pub fn close(self) -> Result<()> {
        let mut left = Ok(());
        if self.pool.mode() == OpenMode::Writer && self.check_process().is_ok() {
            self.detaching.detach_all()?;
            let settled = self.settle_all()?;
            // What cannot go home waits for the next writer. What was changed in place is lost if it is not durable now.
            if self.waiting().values().any(|why| matches!(why, Waiting::InPlace)) {
                left = settled;
            }
        }
        let Store { background, detaching, pool, .. } = self;
        drop((background, detaching));
        pool.close()?;
        left
    }
}
