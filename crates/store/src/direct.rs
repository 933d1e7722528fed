//! Memory of the pool that is written to where it lies.
//!
//! A *draft* is memory of the pool that no object has yet. What is made there is persisted without a copy: its bytes are
//! flushed, and the commit that gives them a name takes the space over. From then on the view is a private one, so that
//! stores to it change nothing that was committed.
//!
//! An object can also be changed *in place*. Then a crash between two persists leaves old and new bytes mixed, so the
//! catalogue marks the object first, and nobody else is given it:
//!
//! ```text
//! committed    -> in place      marked, when nobody has a view of it; the mark is committed
//! in place     -> in place      a persist: the bytes are flushed, and committed again
//! in place     -> committed     the view is gone: the bytes are flushed, and the mark is taken away
//! in place     -> interrupted   the writer ended without that: the next one says so
//! interrupted  -> in place      and interrupted still, until a persist
//! interrupted  -> replaced
//! ```
//!
//! # Invariants
//! 1. An object that is marked as in place is given to nobody but by [`Store::in_place`], as long as its writer lives.
//! 2. No view stores to bytes of an object that is not marked, nor to a pool that another process may write to: drafts
//!    are detached before they are committed, and all views when the store is closed or dropped.

use std::any::Any;
use std::sync::{Arc, Mutex};

use pmem::{
    DirectMapping, ErrorCode, Extent, Mapped, Media, OpenMode, Pending, RedoBatch, RegionInfo, RegionSpec, Reservation,
    Touch,
};

use crate::descriptor::{Checksum, Descriptor, Flags, ObjectKind};
use crate::error::{Error, Result};
use crate::format;
use crate::holders::{Direct, Hold, Holder, Holders, Straight};
use crate::store::{Store, Waiting};
use crate::view::ObjectView;

/// Memory of a pool to which stores go straight, for as long as [`DirectView::is_direct`].
pub struct DirectView {
    /// First, so that what it shows goes last.
    _mapping: Option<Arc<DirectMapping>>,
    /// Exposed.
    address: usize,
    len_bytes: usize,
    extent: Extent,
    descriptor: Option<Descriptor>,
    holders: Arc<Holders>,
    _hold: Hold,
}

impl DirectView {
    /// First byte; readable and writable for [`DirectView::len_bytes`], as long as the value lives.
    pub fn address(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    /// Length of the view.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Where it lies in the pool.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// What the object was that is changed in place, when it was asked for; none of a draft.
    pub fn descriptor(&self) -> Option<&Descriptor> {
        self.descriptor.as_ref()
    }

    /// Whether stores go to the pool: not any more when a draft was committed, when the store was closed, and in a child
    /// of fork(2).
    pub fn is_direct(&self) -> bool {
        self.holders.has_direct(self.address)
    }
}

impl Drop for DirectView {
    fn drop(&mut self) {
        // While the mapping is there still: nobody else can have its address.
        self.holders.remove_direct(self.address);
    }
}

/// The space of a draft, on its way into the catalogue. Dropped, it is a draft again.
pub(crate) struct Draft {
    address: usize,
    holders: Arc<Holders>,
    space: Option<Reservation>,
    mapping: Option<Arc<DirectMapping>>,
    is_detached: bool,
}

impl Draft {
    pub(crate) fn new(address: usize, holders: &Arc<Holders>, direct: &mut Direct) -> Option<Draft> {
        let Straight::Draft(space) = &mut direct.straight else { return None };
        let (space, mapping) = (Some(space.take()?), direct.mapping.clone());
        Some(Draft { address, holders: holders.clone(), space, mapping, is_detached: false })
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    pub(crate) fn extent(&self) -> Extent {
        self.space.as_ref().expect("it is taken out once").extent()
    }

    /// What is stored from now on stays in this process. The draft is none any more: if the commit fails, the view is what
    /// any memory is, and is copied the next time.
    pub(crate) fn detach(&mut self) -> Result<()> {
        self.is_detached = true;
        Ok(self.mapping.iter().try_for_each(|mapping| mapping.make_private())?)
    }

    pub(crate) fn into_space(mut self) -> Reservation {
        self.space.take().expect("it is taken out once")
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(space) = self.space.take().filter(|_| !self.is_detached) {
            self.holders.give_back(self.address, space);
        }
    }
}

/// Detaches all views of a store that ends.
pub(crate) struct Detaching(pub(crate) Arc<Holders>);

impl Detaching {
    /// Detaches them; what could not be is tried again when this is dropped.
    pub(crate) fn detach_all(&self) -> Result<()> {
        self.0.take_directs(|direct| {
            let Some(mapping) = &direct.mapping else { return Ok(()) };
            match direct.straight {
                // The pool gives the space of a draft to others.
                Straight::Draft(_) => mapping.copy_out(),
                Straight::InPlace => mapping.make_private(),
            }
        })?;
        Ok(())
    }
}

impl Drop for Detaching {
    fn drop(&mut self) {
        // There is nobody to tell. Without memory the kernel may still map a draft as private, and if not, a store that ends
        // this process is better than one that goes to what another process has by now.
        type Detach = fn(&DirectMapping) -> pmem::Result<()>;
        if self.detach_all().is_err() {
            for detach in [DirectMapping::make_private as Detach, DirectMapping::freeze] {
                let _ = self.0.take_directs(|direct| direct.mapping.iter().try_for_each(|mapping| detach(mapping)));
            }
        }
    }
}

impl Store<Mapped> {
    /// Memory of the pool for something that is made there, of any content. It becomes durable and visible when an object
    /// is persisted whose bytes are exactly these, without a copy; until then the space is set aside in this process only.
    ///
    /// # Errors
    /// `PoolFull`, `NotWritable`, `WritesRefused`, `UsedAfterFork`, `FileSystemFull`, `BadBlock`; `Io` when the process has
    /// too many mappings.
    ///
    /// # Panics
    /// If it is to have no bytes.
    pub fn draft(&self, len_bytes: u64) -> Result<DirectView> {
        self.draft_over(len_bytes, |extent| {
            Ok(Some(Arc::new(self.pool().set().direct(extent, len_bytes, Touch::Store)?)))
        })
    }

    /// An array, to be changed where it lies. It is marked in the catalogue, and given to nobody else, until the view is
    /// dropped and the name is asked for again, or the store is closed. What is stored is durable when the view is persisted
    /// under the name; between two persists a crash leaves old and new bytes mixed.
    ///
    /// # Errors
    /// `InUse` when somebody has a view of it, or has the pool open since before it was marked; `NotAnArray`; `Unreadable`
    /// without bytes; as [`Store::get`] and [`Store::draft`].
    pub fn in_place(&self, name: &str) -> Result<DirectView> {
        self.in_place_over(name, |extent, len_bytes| {
            // Stores would have the kernel write back all of a page-cached file.
            Ok(Some(Arc::new(self.pool().set().direct(extent, len_bytes, Touch::Load)?)))
        })
    }
}

impl<M: Media> Store<M> {
    /// As [`Store::draft`], where there is no such thing as a mapping: stores go through the pool's address space.
    ///
    /// # Errors
    /// As [`Store::draft`].
    #[doc(hidden)]
    pub fn draft_within(&self, len_bytes: u64) -> Result<DirectView> {
        self.draft_over(len_bytes, |_| Ok(None))
    }

    /// As [`Store::in_place`], where there is no such thing as a mapping.
    ///
    /// # Errors
    /// As [`Store::in_place`].
    #[doc(hidden)]
    pub fn in_place_within(&self, name: &str) -> Result<DirectView> {
        self.in_place_over(name, |_, _| Ok(None))
    }

    fn draft_over(
        &self,
        len_bytes: u64,
        map: impl FnOnce(Extent) -> Result<Option<Arc<DirectMapping>>>,
    ) -> Result<DirectView> {
        assert!(len_bytes > 0, "a draft of no bytes");
        self.pool().check_process()?;
        let space = self.pool().reserve(len_bytes)?;
        let (extent, held) = (space.extent(), space.hold());
        let mapping = map(extent)?;
        Ok(self.add_direct(extent, len_bytes, mapping, Straight::Draft(Some(space)), None, Box::new(held)))
    }

    fn add_direct(
        &self,
        extent: Extent,
        len_bytes: u64,
        mapping: Option<Arc<DirectMapping>>,
        straight: Straight,
        holder: Option<Holder>,
        held: Box<dyn Any + Send + Sync>,
    ) -> DirectView {
        let hold: Hold = Arc::new(Mutex::new(held));
        let address = mapping
            .as_ref()
            .map_or_else(|| self.pool().set().address(extent.offset), |m| m.address())
            .expose_provenance();
        let (mapped, hold_too, forks) = (mapping.clone(), hold.clone(), mapping.as_ref().map_or(0, |m| m.forks()));
        let direct = Direct { extent, len_bytes, straight, mapping: mapped, holder, hold: hold_too, forks };
        self.holders.add_direct(address, direct);
        DirectView {
            _mapping: mapping,
            address,
            len_bytes: len_bytes as usize,
            extent,
            descriptor: None,
            holders: self.holders.clone(),
            _hold: hold,
        }
    }

    fn in_place_over(
        &self,
        name: &str,
        map: impl FnOnce(Extent, u64) -> Result<Option<Arc<DirectMapping>>>,
    ) -> Result<DirectView> {
        let _names = self.names_stay()?;
        self.pool().check_writable()?;
        self.settle(name)?;
        let view = self.look(name)?;
        if view.descriptor().kind() != ObjectKind::Array {
            return Err(Error::NotAnArray { name: name.to_owned(), got: view.descriptor().kind() });
        }
        let (&[extent], 1..) = (view.extents(), view.descriptor().payload_bytes()) else {
            return Err(Error::Unreadable { name: name.to_owned(), reason: "it has no bytes that could be changed" });
        };
        let in_use = || Error::InUse { name: name.to_owned() };
        let is_marked = view.descriptor().flags().contains(Flags::IN_PLACE);
        if is_marked || view.redo().is_some() || !self.is_seen_by_nobody(&[extent], &[view.holder()])? {
            return Err(in_use());
        }
        let (before, len_bytes) = (view.region().info().clone(), view.descriptor().payload_bytes());
        let mut descriptor = view.descriptor().clone();
        descriptor.checksum = Checksum::None;
        drop(view);
        let flags = Flags(before.flags).with(Flags::IN_PLACE);
        let marked = self.recommit(name, &before, flags, Some(format::encode(&descriptor)))?;
        self.wait(name, Waiting::InPlace);
        let result = || {
            // Whoever looked before the mark was there has the object as it was.
            if !self.is_unseen_before(marked, &[extent], &[])? {
                return Err(in_use());
            }
            let held = self.look(name)?.one(0);
            let mapping = map(extent, len_bytes)?;
            let holder = held.holder();
            let mut view = self.add_direct(extent, len_bytes, mapping, Straight::InPlace, Some(holder), Box::new(held));
            view.descriptor = Some(descriptor);
            Ok(view)
        };
        let result = result();
        // If the mark cannot be taken back now it waits for that, as if the view had been there and gone.
        if result.is_err() && self.recommit(name, &before, Flags(before.flags), None).is_ok() {
            self.stop_waiting(name);
        }
        result
    }

    /// Takes the mark of an object away whose view is gone, when its bytes are durable. The caller holds the names.
    pub(crate) fn leave_in_place(&self, name: &str, view: ObjectView<M>) -> Result<()> {
        let &[extent] = view.extents() else { return Ok(()) };
        if self.holders.is_changed_in_place(extent) {
            return Ok(());
        }
        let before = view.region().info().clone();
        drop(view);
        let set = self.pool().set();
        set.guard(extent.offset, extent.len_bytes, Touch::Load)?;
        set.persist(extent.offset, extent.len_bytes)?;
        self.recommit(name, &before, Flags(before.flags).without(Flags::IN_PLACE), None)?;
        self.stop_waiting(name);
        Ok(())
    }

    /// Says of an object that was changed in place that its writer has ended. What that one stored is made durable, for it
    /// is shown from now on; but for what is lost, which is an error to those who read it. The caller holds the names.
    pub(crate) fn interrupt(&self, name: &str) -> Result<()> {
        let region = self.pool().region(name)?;
        let before = region.info().clone();
        drop(region);
        let (set, mut pending) = (self.pool().set(), Pending::new());
        for extent in &before.extents {
            match set.guard(extent.offset, extent.len_bytes, Touch::Store) {
                Ok(()) => set.flush_adopted(&mut pending, extent.offset, extent.len_bytes),
                Err(error) if error.code() == ErrorCode::BadBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        set.fence(&mut pending)?;
        let flags = Flags(before.flags).without(Flags::IN_PLACE).with(Flags::INTERRUPTED);
        self.recommit(name, &before, flags, None)?;
        self.stop_waiting(name);
        Ok(())
    }

    /// Commits an object again with other marks, and another description if there is one; the generation.
    fn recommit(&self, name: &str, info: &RegionInfo, flags: Flags, meta: Option<Vec<u8>>) -> Result<u64> {
        let mut batch = RedoBatch::new();
        let (meta, keep) = (meta.unwrap_or_else(|| info.meta.clone()), info.extents.clone());
        batch.put(name, RegionSpec { kind: info.kind, flags: flags.0, meta, keep, add: Vec::new() });
        Ok(self.pool().commit(batch)?.generation)
    }

    /// Has the views of drafts that an object has now be its private views.
    pub(crate) fn adopt(&self, name: &str, drafts: &[(usize, Extent)]) {
        for &(address, extent) in drafts {
            let held = self.look(name).ok().and_then(|view| {
                let number = view.extents().iter().position(|own| *own == extent)?;
                Some(view.one(number))
            });
            match held {
                Some(held) => self.holders.adopt(address, held.holder(), Box::new(held)),
                // Nothing keeps the extent for the view.
                None => self.holders.copy_out(address),
            }
        }
    }

    /// Whether an object may be given out: it is not, while its writer changes it in place.
    pub(crate) fn check_not_in_place(&self, view: &ObjectView<M>) -> Result<()> {
        let is_marked = view.descriptor().flags().contains(Flags::IN_PLACE);
        let is_changed = || match self.pool().mode() {
            OpenMode::Writer => Ok(true),
            OpenMode::Reader => self.pool().is_written_elsewhere(),
            OpenMode::Inspect => Ok(false),
        };
        if is_marked && is_changed()? {
            return Err(Error::InUse { name: view.name().to_owned() });
        }
        Ok(())
    }
}
