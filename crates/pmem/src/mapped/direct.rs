//! Views to which stores go straight into the pool, and how they stop doing so.
//!
//! Who has such a view may store to it at any time, also when the bytes are no longer his: when they were committed, when
//! another process has the writer's lock, or in a forked child, which inherits the mapping. So a view can be detached: it
//! stays where it is, with the bytes that it has, and from then on stores to it stay in the process. A forked child's views
//! are detached before fork(2) returns there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{self, MapFlags, MprotectFlags, MremapFlags, ProtFlags};

use super::map::Mapping;
use super::private::PrivateMapping;
use super::reservation::shared;
use super::{Mapped, fork};
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::media::{MediaFile, MediaMap, OpenMode, Touch};
use crate::set::PoolSet;

/// A view of a range of a pool to which stores go straight (MAP_SHARED, mmap(2)), until it is detached.
///
/// # Invariants
/// 1. While stores go to the pool, `DIRECT` has the pieces of the view.
#[derive(Debug)]
pub struct DirectMapping {
    view: PrivateMapping,
    offset_bytes: u64,
    /// Keeps the files open.
    map: Arc<Mapping>,
    forks: u64,
}

/// A piece of a view as a forked child needs it.
#[derive(Clone, Copy)]
struct Piece {
    address: usize,
    len_bytes: usize,
    file: RawFd,
    file_bytes: u64,
    is_device: bool,
}

/// How a detached view is mapped: without a promise of memory for all of it.
const PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

/// By the first address of a view.
type Pieces = BTreeMap<usize, Vec<Piece>>;

/// The pieces of all views to which stores go to their pools.
static DIRECT: Mutex<Pieces> = Mutex::new(BTreeMap::new());

thread_local! {
    /// Held by a thread that forks, so that no view is half made in the child.
    static FORKING: RefCell<Option<MutexGuard<'static, Pieces>>> = const { RefCell::new(None) };
}

fn direct() -> MutexGuard<'static, Pieces> {
    DIRECT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Before fork(2).
pub(super) fn before_fork() {
    let held = direct();
    // A thread that ends has no such place any more, and forks no more.
    let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(held));
}

/// After it, in the parent.
pub(super) fn after_fork() {
    let _ = FORKING.try_with(|forking| forking.borrow_mut().take());
}

/// After it, in the child: only system calls.
pub(super) fn in_child() {
    let _ = FORKING.try_with(|forking| {
        let Some(mut held) = forking.borrow_mut().take() else { return };
        for piece in held.values().flatten() {
            let address = std::ptr::with_exposed_provenance_mut(piece.address);
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, PRIVATE | MapFlags::FIXED);
            // SAFETY: the piece is mapped there, of this file, which its view keeps open. A device has no private mappings, and
            // the kernel may refuse one: then it can be read, or not even that.
            unsafe {
                let file = BorrowedFd::borrow_raw(piece.file);
                let is_private = !piece.is_device
                    && mm::mmap(address, piece.len_bytes, protection, flags, file, piece.file_bytes).is_ok();
                if !is_private && mm::mprotect(address, piece.len_bytes, MprotectFlags::READ).is_err() {
                    let _ = mm::mprotect(address, piece.len_bytes, MprotectFlags::empty());
                }
            }
        }
        // A child of the child has nothing to detach. Nothing is freed here: the allocator may be locked.
        std::mem::forget(std::mem::take(&mut *held));
    });
}

impl PoolSet<Mapped> {
    /// A view of the first `len_bytes` of an extent, to which stores go straight; its pages are populated. The caller keeps the extent reserved, or
    /// its region, until the view is detached or dropped.
    ///
    /// # Errors
    /// `Io` when the process has too many mappings (vm.max_map_count); as [`PoolSet::guard`].
    ///
    /// # Panics
    /// If the range leaves the extent, or the pool, or the pool is open for reading.
    pub fn direct(&self, extent: Extent, len_bytes: u64, touch: Touch) -> Result<DirectMapping> {
        assert!(len_bytes > 0 && len_bytes <= extent.len_bytes, "{len_bytes} bytes of {extent:?}");
        assert!(self.mode() == OpenMode::Writer, "a view that is stored to, of a pool that is open for reading");
        self.guard(extent.offset, extent.len_bytes, touch)?;
        let map = self.part(extent.offset.part()).expect("an extent of the pool lies in a part").map.clone();
        let offset_bytes = extent.offset.byte();
        let forks = fork::forks();
        let view = map.reserve_view(offset_bytes, len_bytes, 0)?;
        let made = DirectMapping { view, offset_bytes, map, forks };
        let mut known = direct();
        known.insert(made.address().addr(), made.pieces());
        // Known first: what is mapped in part when this fails is not stored to, and unmapped.
        let placed = made.map.place_view(&made.view, offset_bytes, shared);
        drop(known);
        placed.map(|()| made)
    }
}

impl DirectMapping {
    /// First byte; readable and writable for [`DirectMapping::len_bytes`], as long as the value lives.
    pub fn address(&self) -> *mut u8 {
        self.view.address()
    }

    /// Length of the view.
    pub fn len_bytes(&self) -> usize {
        self.view.len_bytes()
    }

    /// How often the process had forked before it was mapped; see [`crate::forks`].
    pub fn forks(&self) -> u64 {
        self.forks
    }

    /// Detaches the view: it is a private one now, of which each page is the pool's until it is stored to. So the extent
    /// must stay as it is. What another thread stores meanwhile goes here or there. On device-DAX, which has no private
    /// mappings, the bytes are copied to memory.
    ///
    /// # Errors
    /// `Io`; some of the view may be detached then, and kernels before 6.12 may leave a hole in it.
    pub fn make_private(&self) -> Result<()> {
        if self.map.files[0].device.is_some() {
            return self.copy_out();
        }
        let mut known = direct();
        self.map.place_view(&self.view, self.offset_bytes, |_| PRIVATE)?;
        known.remove(&self.address().addr());
        Ok(())
    }

    /// Detaches the view from the pool altogether: its bytes are copied to memory, which takes the place of the view in one
    /// step. What another thread stores meanwhile may be lost.
    ///
    /// # Errors
    /// `Io` without memory, `BadBlock`, `Truncated`; the view is as it was.
    pub fn copy_out(&self) -> Result<()> {
        self.map.guard(self.offset_bytes, self.len_bytes() as u64, Touch::Load)?;
        let (start, mapped_bytes) = self.view.mapped();
        let failed = |e| Error::io("copying what a view shows", self.map.files[0].path(), e);
        let mut known = direct();
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping replaces nothing; as many bytes are copied as both have; and what is moved onto the view is
        // all of it, with the same bytes, at pages that belong to it alone.
        unsafe {
            let memory = mm::mmap_anonymous(std::ptr::null_mut(), mapped_bytes, protection, flags).map_err(failed)?;
            super::words::load(start, std::slice::from_raw_parts_mut(memory.cast(), mapped_bytes));
            let flags = MremapFlags::MAYMOVE;
            if let Err(e) = mm::mremap_fixed(memory, mapped_bytes, mapped_bytes, flags, start.cast::<c_void>()) {
                let _ = mm::munmap(memory, mapped_bytes);
                return Err(failed(e));
            }
        }
        known.remove(&self.address().addr());
        Ok(())
    }

    /// Detaches the view where nothing else can be had: it can be read, and a store to it ends the process.
    ///
    /// # Errors
    /// `Io`.
    pub fn freeze(&self) -> Result<()> {
        let mut known = direct();
        for piece in self.pieces() {
            let address = std::ptr::with_exposed_provenance_mut(piece.address);
            // SAFETY: the piece is this view's.
            let frozen = unsafe { mm::mprotect(address, piece.len_bytes, MprotectFlags::READ) };
            frozen.map_err(|e| Error::io("taking a view's writability", self.map.files[0].path(), e))?;
        }
        known.remove(&self.address().addr());
        Ok(())
    }

    fn pieces(&self) -> Vec<Piece> {
        let (start, _) = self.view.mapped();
        let piece = |(at_bytes, segment): (usize, super::map::Segment)| {
            let file = &self.map.files[segment.member];
            Piece {
                address: start.wrapping_add(at_bytes).expose_provenance(),
                len_bytes: segment.len_bytes as usize,
                file: file.descriptor.as_raw_fd(),
                file_bytes: segment.file_bytes,
                is_device: file.device.is_some(),
            }
        };
        self.map.segments_of(&self.view, self.offset_bytes).map(piece).collect()
    }
}

impl Drop for DirectMapping {
    fn drop(&mut self) {
        // While the view is there still: nobody else can have its address.
        direct().remove(&self.address().addr());
    }
}
