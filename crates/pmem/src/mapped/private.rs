//! Private views: stores stay in this process, copied page by page, and the file never changes.

use rustix::mm::{MapFlags, ProtFlags};

use super::Mapped;
use super::map::{HUGE_PAGE_BYTES, Mapping, Reservation};
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::media::MediaFile;
use crate::set::PoolSet;

/// A copy-on-write view of a range of a pool (MAP_PRIVATE, mmap(2)).
///
/// A page that nobody has stored to is the file's own page, so the view costs no memory until it is written. What lies
/// under it must stay as it is: whoever holds a view holds the region's pin too.
#[derive(Debug)]
pub struct PrivateMapping {
    reservation: Reservation,
    skip_bytes: usize,
    len_bytes: usize,
}

// SAFETY: the value owns its address range and gives it out only as a raw pointer; no field is tied to a thread.
unsafe impl Send for PrivateMapping {}
// SAFETY: as above; no method changes a field.
unsafe impl Sync for PrivateMapping {}

impl PrivateMapping {
    /// First byte; readable and writable for [`PrivateMapping::len_bytes`], as long as the value lives.
    pub fn address(&self) -> *mut u8 {
        self.reservation.base.wrapping_add(self.skip_bytes)
    }

    /// Length of the view.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

impl Mapping {
    fn private(&self, offset_bytes: u64, len_bytes: u64, room_bytes: usize) -> Result<PrivateMapping> {
        let page = rustix::param::page_size() as u64;
        let start_bytes = offset_bytes / page * page;
        let skip_bytes = (offset_bytes - start_bytes) as usize;
        let mapped_bytes = len_bytes + skip_bytes as u64;
        // What the first page holds before the data is private as well, and counts as room.
        let room_bytes = room_bytes.saturating_sub(skip_bytes).next_multiple_of(page as usize);
        let first = &self.files[0];
        if first.device.is_some() {
            let reason = "device-DAX devices have no private mappings; ask for a read-only view";
            return Err(Error::Unsupported { what: "a private view", reason });
        }
        let is_huge = start_bytes.is_multiple_of(HUGE_PAGE_BYTES as u64);
        let alignment_bytes = if is_huge { HUGE_PAGE_BYTES } else { page as usize };
        let reserved = match room_bytes {
            0 => Reservation::new(mapped_bytes as usize, alignment_bytes),
            _ => Reservation::after_memory(room_bytes, mapped_bytes as usize, alignment_bytes),
        };
        let reservation =
            reserved.map_err(|e| Error::io("reserving address space for a private view", first.path(), e))?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        for segment in self.segments(start_bytes, mapped_bytes) {
            let file = &self.files[segment.member];
            let at_bytes = room_bytes + (segment.at_bytes - start_bytes) as usize;
            reservation
                .place_as(at_bytes, file, segment.file_bytes, segment.len_bytes as usize, protection, flags)
                .map_err(|e| Error::io("mapping a private view", file.path(), e))?;
        }
        let skip_bytes = room_bytes + skip_bytes;
        Ok(PrivateMapping { reservation, skip_bytes, len_bytes: len_bytes as usize })
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
