//! Bytes of an object that wait to be copied to where they belong.
//!
//! Who changes a little of a large object need not write all of it. What changed goes into an extent of its own, the redo
//! extent, which the catalogue adds to the object in one atomic step. From then on the object's bytes are those of its other
//! extents with these over them, so it does not matter how much of them has been copied home, and copying may begin again
//! after a crash. When all is home and durable a second step takes the redo extent away.
//!
//! A redo extent that is not long is put together in memory first ([`Gathered`]): it goes into the pool by one copy, and what
//! is copied home comes from the cache.
//!
//! ```text
//! committed -> [E]           redo extent filled, fenced
//! changed   -> [E, redo]     the commit: acknowledged. Readers put redo over E
//!              [E', redo]    copied home when nobody sees E alone, fenced
//! committed -> [E']
//! ```
//!
//! # Invariants
//! 1. Where a redo extent is, the bytes that it has are believed, and not those at their home.
//! 2. Bytes are copied home when no view of an earlier generation sees their home: in no other process, and in this one
//!    none but the view whose private pages they are.

use std::ops::Range;

use pmem::{Media, Region, Touch};

use crate::error::Result;
use crate::format::{self, Refused};
use crate::source::Source;
use crate::view::sum;

/// What waits, in the order in which it lies in the redo extent, which is an object's last; that is the order of where it
/// belongs, and no byte belongs to two ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redo {
    pub(crate) ranges: Vec<RedoRange>,
}

/// Some bytes that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RedoRange {
    /// The number of the extent that they belong to.
    pub(crate) extent: u32,
    /// Where in it.
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
    /// Where they wait in the redo extent.
    pub(crate) at_bytes: u64,
}

/// How far ahead of a copy of many ranges memory is asked for.
pub(crate) const PREFETCHED_RANGES: usize = 6;

/// Memory in which redo extents are put together. The store keeps it, because fresh memory costs a fault a page.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    memory: Vec<u8>,
    /// Where the next one starts.
    end: usize,
}

impl Gathered {
    /// How much of it there is already.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.end as u64
    }

    /// Puts a redo extent together; where it lies.
    pub(crate) fn gather(&mut self, changes: &[(Source<'_>, RedoRange)]) -> Range<usize> {
        let ranges: Vec<RedoRange> = changes.iter().map(|(_, range)| *range).collect();
        let head = format::encode_redo(&ranges);
        let len_bytes = ranges.last().map_or(0, |last| format::redo_data_after(last.at_bytes, last.len_bytes)) as usize;
        let whole = self.end..self.end + len_bytes;
        if self.memory.len() < whole.end {
            self.memory.resize(whole.end, 0);
        }
        let image = &mut self.memory[whole.clone()];
        image[..head.len()].copy_from_slice(&head);
        let mut end = head.len();
        for (number, (source, range)) in changes.iter().enumerate() {
            changes.get(number + PREFETCHED_RANGES).inspect(|(source, _)| source.prefetch());
            let at = range.at_bytes as usize;
            // What another commit has left there is nobody's.
            image[end..at].fill(0);
            end = at + range.len_bytes as usize;
            source.load(0, &mut image[at..end]);
        }
        image[end..].fill(0);
        self.end = whole.end;
        whole
    }

    pub(crate) fn get(&self, gathered: Range<usize>) -> &[u8] {
        &self.memory[gathered]
    }

    /// Forgets all, and keeps at most so much memory.
    pub(crate) fn clear(&mut self, kept_bytes: u64) {
        self.end = 0;
        self.memory.truncate(kept_bytes as usize);
        self.memory.shrink_to(kept_bytes as usize);
    }
}

impl Redo {
    /// Reads the head of a region's redo extent.
    pub(crate) fn read<M: Media>(region: &Region<M>) -> Result<Result<Redo, Refused>> {
        let damaged = Refused::Damaged("what waits to be copied home is missing");
        let lengths: Vec<u64> = region.info().extents.iter().map(|extent| extent.len_bytes).collect();
        let Some(last) = region.info().extents.last() else { return Ok(Err(damaged)) };
        let mut start = [0; format::REDO_START_BYTES];
        region.set().guard(last.offset, start.len() as u64, Touch::Load)?;
        region.load_bytes(lengths.len() - 1, 0, &mut start);
        let (head_bytes, crc) = format::decode_redo_start(start);
        if head_bytes > last.len_bytes {
            return Ok(Err(damaged));
        }
        region.set().guard(last.offset, head_bytes, Touch::Load)?;
        // No memory for what does not check.
        let table_bytes = head_bytes - start.len() as u64;
        let load = |at, into: &mut [u8]| region.load_bytes(lengths.len() - 1, start.len() as u64 + at, into);
        if sum(table_bytes, load) != crc {
            return Ok(Err(damaged));
        }
        let mut head = vec![0; head_bytes as usize];
        region.load_bytes(lengths.len() - 1, 0, &mut head);
        Ok(format::decode_redo(&head, &lengths))
    }

    /// Lays ranges one after the other into a redo extent; how long it must be.
    pub(crate) fn lay_out(ranges: &mut [RedoRange]) -> u64 {
        let mut at_bytes = format::redo_data_at(ranges.len());
        for range in ranges {
            range.at_bytes = at_bytes;
            at_bytes = format::redo_data_after(at_bytes, range.len_bytes);
        }
        at_bytes
    }

    /// Whether bytes of this extent wait.
    pub(crate) fn touches(&self, extent: usize) -> bool {
        !self.of(extent).is_empty()
    }

    /// What waits for an extent.
    pub(crate) fn of(&self, extent: usize) -> &[RedoRange] {
        let start = self.ranges.partition_point(|range| (range.extent as usize) < extent);
        let end = self.ranges.partition_point(|range| range.extent as usize <= extent);
        &self.ranges[start..end]
    }

    /// Puts what waits over bytes that were loaded from an extent; `load` loads from the redo extent.
    pub(crate) fn put_over(&self, extent: usize, offset_bytes: u64, into: &mut [u8], load: impl Fn(u64, &mut [u8])) {
        let end_bytes = offset_bytes + into.len() as u64;
        let ranges = self.of(extent);
        let first = ranges.partition_point(|range| range.offset_bytes + range.len_bytes <= offset_bytes);
        for range in ranges[first..].iter().take_while(|range| range.offset_bytes < end_bytes) {
            let start = range.offset_bytes.max(offset_bytes);
            let end = (range.offset_bytes + range.len_bytes).min(end_bytes);
            if start < end {
                let at_bytes = range.at_bytes + (start - range.offset_bytes);
                load(at_bytes, &mut into[(start - offset_bytes) as usize..(end - offset_bytes) as usize]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In memory that had something else, and the second behind the first.
    #[test]
    fn a_redo_extent_is_put_together_with_zeros_between_the_ranges() {
        let mut memory = Gathered { memory: vec![0xee; 1000], end: 0 };
        let bytes = [7; 100];
        let ranges = |lengths: [u64; 2]| {
            let range =
                |(at, len_bytes): (u64, u64)| RedoRange { extent: 0, offset_bytes: 1000 * at, len_bytes, at_bytes: 0 };
            let mut ranges: Vec<RedoRange> = (0..).zip(lengths).map(range).collect();
            Redo::lay_out(&mut ranges);
            ranges
        };
        for (lengths, whole) in [([5, 100], 0..256), ([64, 1], 256..448)] {
            let ranges = ranges(lengths);
            let changes: Vec<_> = ranges.iter().map(|r| (bytes[..r.len_bytes as usize].into(), *r)).collect();
            assert_eq!(memory.gather(&changes), whole);
            let mut expected = format::encode_redo(&ranges);
            for range in &ranges {
                expected.resize(range.at_bytes as usize, 0);
                expected.resize((range.at_bytes + range.len_bytes) as usize, 7);
            }
            expected.resize(whole.len(), 0);
            assert_eq!(memory.get(whole), expected);
        }
        assert_eq!(memory.len_bytes(), 448);
        memory.clear(64);
        assert_eq!((memory.len_bytes(), memory.memory.len()), (0, 64));
    }

    #[test]
    fn what_waits_lies_over_what_was_loaded_however_it_is_cut() {
        let range = |offset_bytes, len_bytes| RedoRange { extent: 1, offset_bytes, len_bytes, at_bytes: 0 };
        let mut ranges = vec![range(10, 5), range(30, 100)];
        let redo_bytes = Redo::lay_out(&mut ranges);
        let redo = Redo { ranges };
        assert_eq!(redo.ranges.iter().map(|range| range.at_bytes).collect::<Vec<_>>(), [64, 128]);
        assert_eq!(redo_bytes, 256);
        let whole: Vec<u8> =
            (0..200u8).map(|at| if (10..15).contains(&at) || (30..130).contains(&at) { at } else { 0 }).collect();
        // The redo extent has at each place the number of the byte's home.
        let load = |at: u64, into: &mut [u8]| {
            let home = if at < 128 { at - 64 + 10 } else { at - 128 + 30 };
            (home as u8..).zip(into).for_each(|(value, byte)| *byte = value);
        };
        for start in 0..200 {
            for end in start..200 {
                let mut bytes = vec![0; end - start];
                redo.put_over(1, start as u64, &mut bytes, load);
                assert_eq!(bytes, whole[start..end], "{start}..{end}");
            }
        }
        let mut other = [0; 200];
        redo.put_over(0, 0, &mut other, load);
        assert_eq!(other, [0; 200], "another extent");
    }
}
