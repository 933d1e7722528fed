//! Extents and the free map.
//!
//! Free space is never persisted: it is what the catalogue does not use, worked out at open. So a crash can leak
//! nothing, and a reservation costs no write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::format::{EXTENT_ALIGN, LARGE_EXTENT};
use crate::set::Offset;

/// A range of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// First byte.
    pub offset: Offset,
    /// Length, a multiple of 64.
    pub len_bytes: u64,
}

impl Extent {
    /// Whether it ends within the bytes that a part can have.
    pub(crate) fn is_in_range(&self) -> bool {
        self.offset.byte().checked_add(self.len_bytes).is_some_and(|end| end <= 1 << 48)
    }

    pub(crate) fn end(&self) -> u64 {
        self.offset.to_word() + self.len_bytes
    }
}

/// Free ranges, coalesced.
///
/// # Invariants
/// 1. `by_offset` and `by_size` hold the same ranges.
/// 2. Ranges are multiples of 64 bytes, not empty, do not touch one another and do not cross parts.
#[derive(Default)]
pub(crate) struct FreeMap {
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    free_bytes: u64,
}

impl FreeMap {
    fn insert(&mut self, start: u64, len: u64) {
        let fresh = self.by_offset.insert(start, len).is_none() && self.by_size.insert((len, start));
        assert!(fresh, "a free range is inserted once");
    }

    fn remove(&mut self, start: u64, len: u64) {
        let known = self.by_offset.remove(&start) == Some(len) && self.by_size.remove(&(len, start));
        assert!(known, "only a free range is removed");
    }

    /// Gives a range to the map and joins it with its neighbours.
    ///
    /// # Panics
    /// If part of it is free already: freeing twice is a programmer's error.
    pub(crate) fn free(&mut self, extent: Extent) {
        let (mut start, mut len) = (extent.offset.to_word(), extent.len_bytes);
        assert!(len > 0 && start.is_multiple_of(EXTENT_ALIGN) && len.is_multiple_of(EXTENT_ALIGN), "{extent:?}");
        self.free_bytes += len;
        if let Some((&before, &before_len)) = self.by_offset.range(..=start).next_back() {
            assert!(before + before_len <= start, "{extent:?} is free already");
            if before + before_len == start {
                self.remove(before, before_len);
                (start, len) = (before, before_len + len);
            }
        }
        if let Some((&after, &after_len)) = self.by_offset.range(start..).next() {
            assert!(after >= start + len, "{extent:?} is free already");
            if after == start + len {
                self.remove(after, after_len);
                len += after_len;
            }
        }
        self.insert(start, len);
    }

    /// Takes the smallest range that holds `len` bytes at this alignment, from its low end.
    pub(crate) fn take(&mut self, len: u64, align: u64) -> Option<Extent> {
        let fits = |&&(size, start): &&(u64, u64)| start.next_multiple_of(align) + len <= start + size;
        let &(size, free) = self.by_size.range((len, 0)..).find(fits)?;
        let start = free.next_multiple_of(align);
        self.carve(free, size, start, len);
        Some(Extent { offset: Offset::from_word(start), len_bytes: len })
    }

    fn carve(&mut self, free: u64, free_len: u64, start: u64, len: u64) {
        self.remove(free, free_len);
        if start > free {
            self.insert(free, start - free);
        }
        let (end, free_end) = (start + len, free + free_len);
        if free_end > end {
            self.insert(end, free_end - end);
        }
        self.free_bytes -= len;
    }

    /// Everything in `areas` but `used`, which is sorted here. Fails with the extent that overlaps another, leaves the
    /// areas or is not made of whole 64-byte units.
    pub(crate) fn complement(areas: &[Extent], mut used: Vec<Extent>) -> Result<FreeMap, Extent> {
        used.sort_unstable();
        let mut gaps = Vec::with_capacity(used.len() + areas.len());
        let mut used = used.into_iter().peekable();
        for area in areas {
            let (mut at, end) = (area.offset.to_word(), area.end());
            while let Some(extent) = used.next_if(|extent| extent.offset.to_word() < end) {
                let start = extent.offset.to_word();
                let whole = start.is_multiple_of(EXTENT_ALIGN) && extent.len_bytes.is_multiple_of(EXTENT_ALIGN);
                let extent_end = start.checked_add(extent.len_bytes).filter(|&e| e <= end && e > start);
                let (true, true, Some(extent_end)) = (whole, start >= at, extent_end) else { return Err(extent) };
                gaps.push((at, start - at));
                at = extent_end;
            }
            gaps.push((at, end - at));
        }
        if let Some(extent) = used.next() {
            return Err(extent);
        }
        gaps.retain(|&(_, len)| len > 0);
        Ok(FreeMap {
            free_bytes: gaps.iter().map(|&(_, len)| len).sum(),
            by_size: gaps.iter().map(|&(start, len)| (len, start)).collect(),
            by_offset: gaps.into_iter().collect(),
        })
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    pub(crate) fn largest(&self) -> u64 {
        self.by_size.last().map_or(0, |&(len, _)| len)
    }
}

/// From here on an extent begins with a page of 4 KiB.
const PAGED_EXTENT: u64 = 64 << 10;
const PAGE_BYTES: u64 = 4096;

/// A shared free map, from which reservations come and to which they return.
#[derive(Clone, Default)]
pub(crate) struct Space(Arc<Mutex<FreeMap>>);

impl Space {
    pub(crate) fn new(map: FreeMap) -> Space {
        Space(Arc::new(Mutex::new(map)))
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut FreeMap) -> T) -> T {
        f(&mut self.0.lock().expect("the free map is consistent or the process has panicked"))
    }

    /// Reserves an extent of at least `len_bytes`: rounded up to 64 bytes, aligned to 2 MiB from that size on.
    pub(crate) fn reserve(&self, len_bytes: u64) -> Result<Reservation> {
        self.reserve_aligned(len_bytes, |len| if len >= LARGE_EXTENT { LARGE_EXTENT } else { EXTENT_ALIGN })
    }

    /// As [`Space::reserve`]; from 64 KiB on the extent begins with a page, so that it shares none with one before it, unless
    /// there is room for it only elsewhere.
    pub(crate) fn reserve_paged(&self, len_bytes: u64) -> Result<Reservation> {
        match len_bytes {
            PAGED_EXTENT..LARGE_EXTENT => {
                self.reserve_aligned(len_bytes, |_| PAGE_BYTES).or_else(|_| self.reserve(len_bytes))
            }
            _ => self.reserve(len_bytes),
        }
    }

    fn reserve_aligned(&self, len_bytes: u64, align: impl Fn(u64) -> u64) -> Result<Reservation> {
        let full =
            |map: &mut FreeMap| Error::PoolFull { requested_bytes: len_bytes, largest_free_bytes: map.largest() };
        let Some(len) = len_bytes.max(1).checked_next_multiple_of(EXTENT_ALIGN).filter(|len| len >> 48 == 0) else {
            return Err(self.with(full));
        };
        self.with(|map| map.take(len, align(len)).ok_or(()).map_err(|()| full(map))).map(|extent| {
            let is_published = AtomicBool::new(false);
            Reservation(Arc::new(Reserved { extent, space: self.clone(), is_published }))
        })
    }
}

/// Space set aside in this process only. Dropping it gives the space back; a commit turns it into part of a region.
pub struct Reservation(Arc<Reserved>);

/// Keeps reserved space from being given back, as long as it lives, when its reservation is dropped.
#[derive(Clone)]
pub struct ReservationHold {
    _reserved: Arc<Reserved>,
}

struct Reserved {
    extent: Extent,
    space: Space,
    is_published: AtomicBool,
}

impl Reservation {
    /// The range that was reserved; no shorter than what was asked for.
    pub fn extent(&self) -> Extent {
        self.0.extent
    }

    /// Keeps the space set aside also when this is dropped, for whoever still shows it.
    pub fn hold(&self) -> ReservationHold {
        ReservationHold { _reserved: self.0.clone() }
    }

    /// Whether it was taken from this space, and no commit has it.
    pub(crate) fn is_of(&self, space: &Space) -> bool {
        Arc::ptr_eq(&self.0.space.0, &space.0) && !self.0.is_published.load(Ordering::Relaxed)
    }

    /// The catalogue owns it now.
    pub(crate) fn publish(self) -> Published {
        self.0.is_published.store(true, Ordering::Relaxed);
        Published(self.0.extent)
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Reservation").field(&self.extent()).finish()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // After a panic with the map in hand nothing is given out any more, so nothing need be given back.
        if !*self.is_published.get_mut()
            && let Ok(mut map) = self.space.0.lock()
        {
            map.free(self.extent);
        }
    }
}

/// An extent that belongs to the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published(pub(crate) Extent);

impl Published {
    /// The range.
    pub fn extent(&self) -> Extent {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(start: u64, len: u64) -> Extent {
        Extent { offset: Offset::from_word(start), len_bytes: len }
    }

    #[test]
    fn an_extent_of_many_pages_begins_with_one_while_there_is_room() {
        let space = Space::new(FreeMap::default());
        space.with(|map| map.free(extent(LARGE_EXTENT, 3 * PAGED_EXTENT)));
        let small = space.reserve_paged(100).unwrap();
        let paged = space.reserve_paged(PAGED_EXTENT + 1).unwrap();
        assert_eq!(small.extent(), extent(LARGE_EXTENT, 128));
        assert_eq!(paged.extent(), extent(LARGE_EXTENT + PAGE_BYTES, PAGED_EXTENT + 64));
        let before = space.reserve_paged(64).unwrap();
        assert_eq!(before.extent(), extent(LARGE_EXTENT + 128, 64), "what is left before it");
        let left_bytes = space.with(|map| map.largest());
        let last = space.reserve_paged(left_bytes).unwrap();
        assert!(left_bytes > PAGED_EXTENT && !last.extent().offset.byte().is_multiple_of(PAGE_BYTES), "{last:?}");
    }

    #[test]
    fn neighbours_are_joined_and_large_extents_are_aligned() {
        let space = Space::default();
        space.with(|map| map.free(extent(LARGE_EXTENT + 64, 3 * LARGE_EXTENT)));
        let large = space.reserve(LARGE_EXTENT + 1).unwrap();
        assert_eq!(large.extent(), extent(2 * LARGE_EXTENT, LARGE_EXTENT + 64));
        let small = space.reserve(100).unwrap();
        assert_eq!(small.extent(), extent(LARGE_EXTENT + 64, 128));
        drop((large, small));
        assert_eq!(space.with(|map| (map.largest(), map.by_offset.len())), (3 * LARGE_EXTENT, 1));
    }

    #[test]
    fn a_full_map_says_how_much_is_left_and_impossible_sizes_are_refused() {
        let space = Space::default();
        space.with(|map| map.free(extent(4096, 4096)));
        let error = space.reserve(8192).unwrap_err();
        assert!(matches!(error, Error::PoolFull { requested_bytes: 8192, largest_free_bytes: 4096 }));
        assert!(space.reserve(u64::MAX).is_err() && space.reserve(1 << 48).is_err());
    }

    #[test]
    fn the_complement_refuses_overlaps_strays_and_broken_units() {
        let areas = [extent(1024, 4096), extent(1 << 48, 1024)];
        let free = FreeMap::complement(&areas, vec![extent(2048, 128), extent(1024, 64), extent(1 << 48, 1024)]);
        let free = free.unwrap_or_else(|bad| panic!("{bad:?}"));
        assert_eq!(free.by_offset, [(1088, 960), (2176, 2944)].into());
        assert_eq!(free.free_bytes(), 960 + 2944);
        for bad in [
            extent(1100, 64),
            extent(1024, 100),
            extent(5056, 128),
            extent(960, 64),
            extent(1 << 49, 64),
            extent(2048, 0),
        ] {
            assert!(FreeMap::complement(&areas, vec![bad]).is_err(), "{bad:?}");
        }
        assert!(FreeMap::complement(&areas, vec![extent(2048, 128), extent(2112, 64)]).is_err());
    }

    proptest! {
        /// Against a plain array of taken flags, one for each 64 bytes.
        #[test]
        fn no_byte_is_given_out_twice_and_none_is_lost(ops in prop::collection::vec((0u64..40, any::<u8>()), 1..200)) {
            const UNITS: usize = 256;
            let mut taken = [false; UNITS];
            let space = Space::default();
            space.with(|map| map.free(extent(64, UNITS as u64 * 64)));
            let mut held: Vec<Reservation> = Vec::new();
            for (units, pick) in ops {
                if units == 0 && !held.is_empty() {
                    let gone = held.swap_remove(usize::from(pick) % held.len());
                    for unit in &mut taken[units_of(gone.extent())] {
                        *unit = false;
                    }
                } else if let Ok(got) = space.reserve(units * 64) {
                    for unit in &mut taken[units_of(got.extent())] {
                        prop_assert!(!*unit);
                        *unit = true;
                    }
                    held.push(got);
                }
                let free = taken.iter().filter(|t| !**t).count() as u64 * 64;
                prop_assert_eq!(space.with(|map| map.free_bytes()), free);
            }
            drop(held);
            prop_assert_eq!(space.with(|map| map.largest()), UNITS as u64 * 64);
        }
    }

    fn units_of(extent: Extent) -> std::ops::Range<usize> {
        let start = (extent.offset.to_word() / 64 - 1) as usize;
        start..start + (extent.len_bytes / 64) as usize
    }
}
