//! Rows sorted into partitions by the upper bits of their hashes.
//!
//! Each thread counts the rows of its part for each partition, which tells it where its rows of each partition go; then it
//! copies them. A small buffer for each partition gathers rows until they fill whole lines, which are then written past the
//! cache: so a thread needs neither the lines of all partitions in its cache nor their pages in its TLB, and no line is read
//! before it is overwritten (Balkesen et al., section 4.2; Schuhknecht, Khanchandani and Dittrich, *On the surprising
//! difficulty of simple things: the case of radix partitioning*, 2015).

use std::marker::PhantomData;
use std::ops::Range;

use super::carve::{self, Carve};
use super::lines;
use super::row::{Row, hash};

/// Which bits of a hash say the partition: `bits` of them, below the upper `skip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Radix {
    pub(super) skip: u32,
    pub(super) bits: u32,
}

impl Radix {
    pub(super) fn partitions(self) -> usize {
        1 << self.bits
    }

    #[inline(always)]
    fn of(self, key: u64) -> usize {
        // In two steps, because a shift by 64 is none.
        (hash(key) << self.skip >> 1 >> (63 - self.bits)) as usize
    }

    /// How many rows each partition has.
    #[inline(never)]
    pub(super) fn count<const W: usize>(self, rows: &[Row<W>]) -> Vec<usize> {
        let mut counts = vec![0; self.partitions()];
        for row in rows {
            lines::read_on(row);
            counts[self.of(row.key)] += 1;
        }
        counts
    }
}

/// Where a thread's rows of each partition go, from the counts of all threads: after those of the partitions before, and of
/// the threads before within the partition. Also where the partitions begin, and the end of the last.
pub(super) fn places(counts: &[Vec<usize>], partitions: usize) -> (Vec<Vec<usize>>, Vec<usize>) {
    let mut places = vec![vec![0; partitions]; counts.len()];
    let (mut starts, mut at) = (Vec::with_capacity(partitions + 1), 0);
    for partition in 0..partitions {
        starts.push(at);
        for (places, counts) in places.iter_mut().zip(counts) {
            places[partition] = at;
            at += counts[partition];
        }
    }
    starts.push(at);
    (places, starts)
}

/// Rows that several threads write, each to places of its own.
pub(super) struct Target<'m, const W: usize> {
    start: *mut Row<W>,
    rows: usize,
    memory: PhantomData<&'m mut [Row<W>]>,
}

// SAFETY: it is a mutable slice of integers.
unsafe impl<const W: usize> Send for Target<'_, W> {}
// SAFETY: who writes through it says that nobody else writes there.
unsafe impl<const W: usize> Sync for Target<'_, W> {}

impl<'m, const W: usize> Target<'m, W> {
    /// # Panics
    /// If the rows do not begin at a line, as those of a carved array do.
    pub(super) fn new(rows: &'m mut [Row<W>]) -> Target<'m, W> {
        assert!(rows.as_ptr().addr().is_multiple_of(LINE_BYTES));
        Target { start: rows.as_mut_ptr(), rows: rows.len(), memory: PhantomData }
    }

    /// How many rows it has.
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// What was written.
    ///
    /// # Safety
    /// Nobody writes to these rows while they are borrowed.
    pub(super) unsafe fn rows(&self, range: Range<usize>) -> &[Row<W>] {
        assert!(range.start <= range.end && range.end <= self.rows);
        // SAFETY: the range lies within; nobody writes, as the caller says.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }
}

const LINE_BYTES: usize = 64;

/// Bytes of a unit, at least: whether a row fills its unit is a branch that no CPU foresees, so that it should seldom.
const UNIT_BYTES: usize = 256;

/// Rows that make up whole lines, and at least a unit.
pub(super) const fn unit_rows(words: usize) -> usize {
    let row_bytes = 8 * (1 + words);
    // A row is a multiple of 8 bytes, so the greatest common divisor with a line is its lowest bit, or a line.
    let common = 1 << row_bytes.trailing_zeros();
    let fewest = LINE_BYTES / if common < LINE_BYTES { common } else { LINE_BYTES };
    let some = (UNIT_BYTES / row_bytes).next_multiple_of(fewest);
    if some > fewest { some } else { fewest }
}

/// A thread's buffers: for each partition a unit of rows.
pub(super) struct Buffers<'m, const W: usize>(&'m mut [Row<W>]);

impl<'m, const W: usize> Buffers<'m, W> {
    pub(super) fn len_bytes(partitions: usize) -> usize {
        carve::len_bytes::<Row<W>>(partitions * unit_rows(W))
    }

    pub(super) fn carve(carve: &mut Carve<'m>, partitions: usize) -> Buffers<'m, W> {
        Buffers(carve.take(partitions * unit_rows(W)))
    }

    /// Copies rows to their partitions, from these places on. Others see them when this thread has been waited for.
    ///
    /// # Safety
    /// Nobody else reads or writes the places: of each partition as many as there are rows of it.
    ///
    /// # Panics
    /// If a place lies past the end of the target.
    #[inline(never)]
    pub(super) unsafe fn scatter(&mut self, radix: Radix, rows: &[Row<W>], places: &[usize], target: &Target<'_, W>) {
        let unit = unit_rows(W);
        assert!(self.0.len() >= radix.partitions() * unit && places.len() == radix.partitions());
        let mut next = places.to_vec();
        for row in rows {
            lines::read_on(row);
            let partition = radix.of(row.key);
            let place = next[partition];
            let buffer = &mut self.0[partition * unit..][..unit];
            buffer[place % unit] = *row;
            next[partition] = place + 1;
            if place % unit == unit - 1 {
                let start = (place + 1 - unit).max(places[partition]);
                assert!(place < target.rows);
                if start + unit == place + 1 {
                    // SAFETY: the unit lies within the target, in places that are this thread's; it begins at a line.
                    unsafe { lines::stream(target.start.add(start), buffer) };
                } else {
                    // SAFETY: as above.
                    unsafe { write(target, start, &buffer[start % unit..]) };
                }
            }
        }
        for (partition, (&first, &next)) in places.iter().zip(&next).enumerate() {
            let start = first.max(next / unit * unit);
            assert!(next <= target.rows);
            // SAFETY: as above.
            unsafe { write(target, start, &self.0[partition * unit..][start % unit..][..next - start]) };
        }
        lines::wait();
    }
}

/// Writes less than a unit.
///
/// # Safety
/// The rows fit into the target from there on, and nobody else reads or writes there.
unsafe fn write<const W: usize>(target: &Target<'_, W>, start: usize, rows: &[Row<W>]) {
    // SAFETY: as the caller says; a buffer is no part of the target, which is borrowed alone.
    unsafe { std::ptr::copy_nonoverlapping(rows.as_ptr(), target.start.add(start), rows.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, Pages, Place};

    fn sorted<const W: usize>(count: u64, threads: usize, radix: Radix) {
        let rows: Vec<Row<W>> = (1..=count).map(|key| Row { key, value: [key * 3; W] }).collect();
        let mut memory = Memory::new(&Place::Dram, Pages::Small, 1 << 22).unwrap();
        let mut carve = Carve::new(&mut memory);
        let target = Target::new(carve.take(rows.len()));
        let parts: Vec<&[Row<W>]> = rows.chunks(rows.len().div_ceil(threads).max(1)).collect();
        let counts: Vec<_> = parts.iter().map(|rows| radix.count(rows)).collect();
        let (places, starts) = places(&counts, radix.partitions());
        let mut buffers = Buffers::<W>::carve(&mut carve, radix.partitions());
        for (rows, places) in parts.iter().zip(&places) {
            // SAFETY: one thread.
            unsafe { buffers.scatter(radix, rows, places, &target) };
        }
        let mut found = Vec::new();
        for partition in 0..radix.partitions() {
            // SAFETY: one thread.
            let rows = unsafe { target.rows(starts[partition]..starts[partition + 1]) };
            assert!(rows.iter().all(|row| radix.of(row.key) == partition && row.value == [row.key * 3; W]));
            found.extend(rows.iter().map(|row| row.key));
        }
        found.sort_unstable();
        assert!(found.into_iter().eq(1..=count));
    }

    #[test]
    fn every_row_arrives_in_its_partition() {
        for count in [0, 1, 7, 1000, 4096] {
            for threads in [1, 2, 5] {
                for radix in [Radix { skip: 0, bits: 0 }, Radix { skip: 0, bits: 5 }, Radix { skip: 3, bits: 9 }] {
                    sorted::<1>(count, threads, radix);
                    sorted::<2>(count, threads, radix);
                    sorted::<9>(count, threads, radix);
                    sorted::<16>(count, threads, radix);
                }
            }
        }
    }

    #[test]
    fn a_unit_is_the_fewest_rows_that_fill_lines() {
        for (words, rows) in [(1, 16), (2, 16), (4, 8), (7, 4), (8, 8), (9, 4), (15, 2), (16, 8)] {
            assert_eq!(unit_rows(words), rows);
            assert!((rows * 8 * (1 + words)).is_multiple_of(64));
        }
    }
}
