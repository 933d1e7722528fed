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

/// How a view is mapped: without memory set aside for it, for most of its pages are never stored to.
const PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

/// Most that may lie between two views of a run: large extents begin at multiples of it.
const BETWEEN_BYTES: u64 = HUGE_PAGE_BYTES as u64;

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Whether one mapping can hold both ranges, and each has pages of its own.
fn follows((offset_bytes, len_bytes): (u64, u64), next_bytes: u64) -> bool {
    let end_bytes = (offset_bytes + len_bytes).next_multiple_of(page_bytes());
    let between = next_bytes.checked_sub(end_bytes);
    next_bytes.is_multiple_of(page_bytes()) && between.is_some_and(|bytes| bytes <= BETWEEN_BYTES)
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
        if room_bytes == 0
            && let Some(mut views) = self.views_in_one_call(&[(offset_bytes, len_bytes)])?
        {
            return Ok(views.remove(0));
        }
        let view = self.reserve_view(offset_bytes, len_bytes, room_bytes)?;
        self.place_view(&view, offset_bytes, |_| PRIVATE)?;
        Ok(view)
    }

    /// A view of each range of a run; see [`follows`].
    fn private_run(&self, ranges: &[(u64, u64)]) -> Result<Vec<PrivateMapping>> {
        self.check_private()?;
        match self.views_in_one_call(ranges)? {
            Some(views) => Ok(views),
            None => ranges.iter().map(|&(offset_bytes, len_bytes)| self.private(offset_bytes, len_bytes, 0)).collect(),
        }
    }

    /// Views of the ranges of a run, mapped at once where the kernel places them; what lies between two belongs to the first
    /// of them. None where they lie in several pieces, and on fs-DAX, whose huge pages want an address that is aligned like the
    /// file; tmpfs sees to that itself if it has them.
    fn views_in_one_call(&self, ranges: &[(u64, u64)]) -> Result<Option<Vec<PrivateMapping>>> {
        let (&(first_bytes, _), &(last_bytes, last_len)) =
            ranges.first().zip(ranges.last()).expect("a run has a range");
        let start_bytes = first_bytes / page_bytes() * page_bytes();
        let run_bytes = (last_bytes + last_len).next_multiple_of(page_bytes()) - start_bytes;
        let Some(segment) = self.segments(start_bytes, run_bytes).next() else { return Ok(None) };
        let file = &self.files[segment.member];
        if segment.len_bytes < run_bytes || file.map_sync {
            return Ok(None);
        }
        let mut rest = Reservation::of_file(file, segment.file_bytes, run_bytes as usize, PRIVATE)
            .map_err(|e| Error::io("mapping a view", file.path(), e))?;
        let mut views = Vec::with_capacity(ranges.len());
        for (number, &(offset_bytes, len_bytes)) in ranges.iter().enumerate() {
            let skip_bytes = (offset_bytes % page_bytes()) as usize;
            let own_bytes = offset_bytes - skip_bytes as u64;
            let reservation = match ranges.get(number + 1) {
                Some((next_bytes, _)) => rest.split_front((next_bytes - own_bytes) as usize),
                None => rest.split_front(rest.len_bytes),
            };
            let mapped_bytes = (len_bytes as usize + skip_bytes).next_multiple_of(page_bytes() as usize);
            let len_bytes = len_bytes as usize;
            views.push(PrivateMapping { reservation, room_bytes: 0, skip_bytes, len_bytes, mapped_bytes });
        }
        Ok(Some(views))
    }

    /// Address space for a view of a range, in which none of the range is mapped yet.
    pub(super) fn reserve_view(&self, offset_bytes: u64, len_bytes: u64, room_bytes: usize) -> Result<PrivateMapping> {
        let first = &self.files[0];
        let page = page_bytes();
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

    /// As [`PoolSet::private`] of each, in their order. Those that lie side by side are mapped together, which is what many small
    /// views cost most; each is unmapped by itself.
    ///
    /// # Errors
    /// As [`PoolSet::private`]; then there is none.
    ///
    /// # Panics
    /// As [`PoolSet::private`].
    pub fn private_each(&self, wanted: &[(Extent, u64)]) -> Result<Vec<PrivateMapping>> {
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_by_key(|&number| wanted[number].0.offset.to_word());
        let range = |number: usize| {
            let (extent, len_bytes) = wanted[number];
            assert!(len_bytes > 0 && len_bytes <= extent.len_bytes, "{len_bytes} bytes of {extent:?}");
            (extent.offset.byte(), len_bytes)
        };
        let part = |number: usize| wanted[number].0.offset.part();
        let run = |&a: &usize, &b: &usize| part(a) == part(b) && follows(range(a), range(b).0);
        let mut views: Vec<Option<PrivateMapping>> = wanted.iter().map(|_| None).collect();
        for run in order.chunk_by(run) {
            let part = self.part(part(run[0])).expect("an extent of the catalogue lies in a part");
            let ranges: Vec<_> = run.iter().map(|&number| range(number)).collect();
            for (&number, view) in run.iter().zip(part.map.private_run(&ranges)?) {
                views[number] = Some(view);
            }
        }
        Ok(views.into_iter().map(|view| view.expect("every one is in a run")).collect())
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
