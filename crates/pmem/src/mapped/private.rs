//! Private views: stores stay in this process, copied page by page, and the file never changes.

use rustix::mm::{MapFlags, ProtFlags};

use super::map::{HUGE_PAGE_BYTES, Mapping, Segment};
use super::reservation::Reservation;
use super::{Mapped, MappedFile};
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::media::{MediaFile, MediaMap};
use crate::set::PoolSet;

/// A copy-on-write view of a range of a pool (MAP_PRIVATE, mmap(2)).
///
/// A page that nobody has stored to is the file's own page, so the view costs no memory until it is written. What lies
/// under it must stay as it is: whoever holds a view holds the region's pin too.
#[derive(Debug)]
pub struct PrivateMapping {
    reservation: Reservation,
    /// Memory before what is mapped.
    room_bytes: usize,
    /// What is mapped before the view, because a page begins there.
    skip_bytes: usize,
    len_bytes: usize,
    /// Whole pages.
    mapped_bytes: usize,
}

// SAFETY: the value owns its address range and gives it out only as a raw pointer; no field is tied to a thread.
unsafe impl Send for PrivateMapping {}
// SAFETY: as above; no method changes a field.
unsafe impl Sync for PrivateMapping {}

impl PrivateMapping {
    /// First byte; readable and writable for [`PrivateMapping::len_bytes`], as long as the value lives.
    pub fn address(&self) -> *mut u8 {
        self.reservation.base.wrapping_add(self.room_bytes + self.skip_bytes)
    }

    /// First page of the pool that is mapped, and how many bytes are.
    pub(super) fn mapped(&self) -> (*mut u8, usize) {
        (self.reservation.base.wrapping_add(self.room_bytes), self.mapped_bytes)
    }

    /// Length of the view.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

impl Mapping {
    fn check_private(&self) -> Result<()> {
        if self.files[0].device.is_some() {
            let reason = "device-DAX devices have no private mappings; ask for a read-only view";
            return Err(Error::Unsupported { what: "a private view", reason });
        }
        Ok(())
    }

    fn private(&self, offset_bytes: u64, len_bytes: u64, room_bytes: usize) -> Result<PrivateMapping> {
        self.check_private()?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        if room_bytes == 0
            && let Some(view) = self.view_in_one_call(offset_bytes, len_bytes, flags)?
        {
            return Ok(view);
        }
        let view = self.reserve_view(offset_bytes, len_bytes, room_bytes)?;
        self.place_view(&view, offset_bytes, |_| flags)?;
        Ok(view)
    }

    /// A view that the kernel places. None where it lies in several pieces, and on fs-DAX, whose huge pages want an address
    /// that is aligned like the file; tmpfs sees to that itself if it has them.
    fn view_in_one_call(&self, offset_bytes: u64, len_bytes: u64, flags: MapFlags) -> Result<Option<PrivateMapping>> {
        let skip_bytes = (offset_bytes % rustix::param::page_size() as u64) as usize;
        let mapped_bytes = (len_bytes as usize + skip_bytes).next_multiple_of(rustix::param::page_size());
        let Some(segment) = self.segments(offset_bytes - skip_bytes as u64, mapped_bytes as u64).next() else {
            return Ok(None);
        };
        let file = &self.files[segment.member];
        if segment.len_bytes < mapped_bytes as u64 || file.map_sync {
            return Ok(None);
        }
        let reservation = Reservation::of_file(file, segment.file_bytes, mapped_bytes, flags)
            .map_err(|e| Error::io("mapping a view", file.path(), e))?;
        Ok(Some(PrivateMapping { reservation, room_bytes: 0, skip_bytes, len_bytes: len_bytes as usize, mapped_bytes }))
    }

    /// Address space for a view of a range, in which none of the range is mapped yet.
    pub(super) fn reserve_view(&self, offset_bytes: u64, len_bytes: u64, room_bytes: usize) -> Result<PrivateMapping> {
        let first = &self.files[0];
        let page = rustix::param::page_size() as u64;
        let unit = first.device.map_or(page, |device| device.alignment_bytes);
        let start_bytes = offset_bytes / unit * unit;
        let skip_bytes = (offset_bytes - start_bytes) as usize;
        let mapped_bytes = (len_bytes + skip_bytes as u64).next_multiple_of(unit) as usize;
        // What the first page holds before the data is private as well, and counts as room.
        let room_bytes = room_bytes.saturating_sub(skip_bytes).next_multiple_of(page as usize);
        let is_huge = start_bytes.is_multiple_of(HUGE_PAGE_BYTES as u64);
        let alignment_bytes = if is_huge { HUGE_PAGE_BYTES.max(unit as usize) } else { unit as usize };
        let reserved = match room_bytes {
            0 => Reservation::new(mapped_bytes, alignment_bytes),
            _ => Reservation::after_memory(room_bytes, mapped_bytes, alignment_bytes),
        };
        let reservation = reserved.map_err(|e| Error::io("reserving address space for a view", first.path(), e))?;
        Ok(PrivateMapping { reservation, room_bytes, skip_bytes, len_bytes: len_bytes as usize, mapped_bytes })
    }

    /// Maps a range into its view, each file with its flags.
    pub(super) fn place_view(
        &self,
        view: &PrivateMapping,
        offset_bytes: u64,
        flags: impl Fn(&MappedFile) -> MapFlags,
    ) -> Result<()> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        for (at_bytes, segment) in self.segments_of(view, offset_bytes) {
            let file = &self.files[segment.member];
            let (at_bytes, len_bytes) = (view.room_bytes + at_bytes, segment.len_bytes as usize);
            view.reservation
                .place_as(at_bytes, file, segment.file_bytes, len_bytes, protection, flags(file))
                .map_err(|e| Error::io("mapping a view", file.path(), e))?;
        }
        Ok(())
    }

    /// What lies behind a view of a range, and where in [`PrivateMapping::mapped`].
    pub(super) fn segments_of(
        &self,
        view: &PrivateMapping,
        offset_bytes: u64,
    ) -> impl Iterator<Item = (usize, Segment)> {
        let start_bytes = offset_bytes - view.skip_bytes as u64;
        let len_bytes = (view.mapped_bytes as u64).min(self.len_bytes() - start_bytes);
        let segments = self.segments(start_bytes, len_bytes);
        segments.map(move |segment| ((segment.at_bytes - start_bytes) as usize, segment))
    }
}

impl PoolSet<Mapped> {
    /// A private view of the first `len_bytes` of an extent.
    ///
    /// # Errors
    /// `Unsupported` on device-DAX, which refuses private mappings; `Io` when the process has too many mappings
    /// (vm.max_map_count).
    ///
    /// # Panics
    /// If the range leaves the extent, or the pool.
    pub fn private(&self, extent: Extent, len_bytes: u64) -> Result<PrivateMapping> {
        self.private_after(extent, len_bytes, 0)
    }

    /// Refuses what [`PoolSet::private`] would refuse of an extent, but for a lack of mappings.
    ///
    /// # Errors
    /// `Unsupported` on device-DAX.
    pub fn check_private(&self, extent: Extent) -> Result<()> {
        self.part(extent.offset.part()).map_or(Ok(()), |part| part.map.check_private())
    }

    /// As [`PoolSet::private`], with that many bytes of writable memory directly before the data: for languages whose
    /// values have a header there.
    ///
    /// # Errors
    /// As [`PoolSet::private`].
    ///
    /// # Panics
    /// If the range leaves the extent, or the pool.
    pub fn private_after(&self, extent: Extent, len_bytes: u64, room_bytes: usize) -> Result<PrivateMapping> {
        assert!(len_bytes > 0 && len_bytes <= extent.len_bytes, "{len_bytes} bytes of {extent:?}");
        let part = self.part(extent.offset.part()).expect("an extent of the catalogue lies in a part");
        part.map.private(extent.offset.byte(), len_bytes, room_bytes)
    }
}
