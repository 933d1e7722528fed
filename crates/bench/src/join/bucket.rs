//! A hash table of chained buckets of two rows, each under a latch: the no-partitioning join as it is commonly published
//! (Blanas, Li and Patel, *Design and evaluation of main memory hash join algorithms for multi-core CPUs*, 2011, section 3.2;
//! Balkesen et al., section 3.1). It is what the other tables are compared with, and hashes as those programs do: by the
//! lower bits of the key, with which keys without gaps never meet.

use std::sync::atomic::{AtomicU64, Ordering};

use super::carve::{self, Carve};
use super::lines::prefetch;
use super::prefetch::{Prefetch, Visit, each};
use super::row::{Matched, Row, mix};
use super::table::{Table, Work, part_rows};
use crate::crew;
use crate::error::Result;
use crate::locks::hold_bit;

/// Rows in a bucket.
const ROWS: usize = 2;
/// The latch, in a bucket's first word; above it is how many rows the bucket has.
const LATCH: u64 = 1;
const ONE_ROW: u64 = 1 << 32;
const FULL: u64 = ROWS as u64 * ONE_ROW;

/// A bucket is a word for latch and count, one for the number of the next bucket of the chain (from 1, among those that
/// overflow; 0 at the end), and the rows: 48 bytes when rows have 16.
///
/// # Invariants
/// 1. A bucket, and the chain behind it, is changed by who has set its latch only.
/// 2. Of the buckets behind the first one of a chain, only the second has room: so a chain of k rows has (k - 1) / 2 that
///    overflow, and all chains have fewer than half as many as there are rows.
pub(super) struct Buckets<'m, const R: usize> {
    first: &'m mut [AtomicU64],
    overflow: &'m mut [AtomicU64],
    overflowed: AtomicU64,
}

const fn bucket_words(r: usize) -> usize {
    2 + ROWS * (1 + r)
}

fn firsts(rows: usize) -> usize {
    rows.div_ceil(ROWS).next_power_of_two()
}

fn overflows(rows: usize) -> usize {
    rows / 2 + 1
}

#[inline(always)]
fn bucket<const R: usize>(words: &[AtomicU64], at: usize) -> &[AtomicU64] {
    &words[at * bucket_words(R)..][..bucket_words(R)]
}

/// The first bucket for a key.
#[inline(always)]
fn home<const R: usize>(first: &[AtomicU64], mask: usize, key: u64) -> &[AtomicU64] {
    bucket::<R>(first, key as usize & mask)
}

#[inline(always)]
fn row<const R: usize>(bucket: &[AtomicU64], at: u64) -> &[AtomicU64] {
    &bucket[2 + at as usize * (1 + R)..][..1 + R]
}

#[inline(always)]
fn write<const R: usize>(words: &[AtomicU64], row: &Row<R>) {
    words[0].store(row.key, Ordering::Relaxed);
    words[1..].iter().zip(row.value).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
}

impl<'m, const R: usize> Table<'m, R> for Buckets<'m, R> {
    fn len_bytes(rows: usize) -> usize {
        let words = |buckets| carve::len_bytes::<u64>(buckets * bucket_words(R));
        words(firsts(rows)) + words(overflows(rows))
    }

    fn carve(carve: &mut Carve<'m>, rows: usize) -> Self {
        let mut take = |buckets| carve.take(buckets * bucket_words(R));
        Buckets { first: take(firsts(rows)), overflow: take(overflows(rows)), overflowed: AtomicU64::new(0) }
    }

    fn to_clear(&mut self) -> Vec<&mut [AtomicU64]> {
        vec![&mut *self.first, &mut *self.overflow]
    }

    fn build(&mut self, rows: &[Row<R>], work: Work) -> Result<u64> {
        let table = &*self;
        let parts = rows.chunks(part_rows(rows.len(), work.threads));
        let insert = |rows| move || table.insert_part(rows, work.prefetch);
        Ok(crew::once_together(parts.map(insert).collect())?.ns)
    }

    #[inline(never)]
    fn probe<const S: usize>(&self, rows: &[Row<S>], prefetch: Prefetch) -> Matched {
        let mut lookup = Lookup { table: self, mask: self.mask(), matched: Matched::default() };
        each(rows, prefetch, &mut lookup);
        lookup.matched
    }
}

impl<const R: usize> Buckets<'_, R> {
    fn mask(&self) -> usize {
        self.first.len() / bucket_words(R) - 1
    }

    #[inline(never)]
    fn insert_part(&self, rows: &[Row<R>], prefetch: Prefetch) {
        each(rows, prefetch, &mut Insertion { table: self, mask: self.mask() });
    }

    /// Puts a row behind a full bucket whose latch is held.
    #[cold]
    fn insert_behind(&self, first: &[AtomicU64], new: &Row<R>) {
        let next = first[1].load(Ordering::Relaxed);
        if next > 0 {
            let second = bucket::<R>(self.overflow, next as usize - 1);
            let count = second[0].load(Ordering::Relaxed);
            if count < FULL {
                write(row::<R>(second, count / ONE_ROW), new);
                return second[0].store(count + ONE_ROW, Ordering::Relaxed);
            }
        }
        let number = self.overflowed.fetch_add(1, Ordering::Relaxed) + 1;
        let second = bucket::<R>(self.overflow, number as usize - 1);
        write(row::<R>(second, 0), new);
        second[0].store(ONE_ROW, Ordering::Relaxed);
        second[1].store(next, Ordering::Relaxed);
        first[1].store(number, Ordering::Relaxed);
    }
}

struct Insertion<'t, const R: usize> {
    table: &'t Buckets<'t, R>,
    mask: usize,
}

impl<const R: usize> Visit<Row<R>> for Insertion<'_, R> {
    const STEPS: usize = 1;

    #[inline(always)]
    fn ahead(&mut self, _step: usize, row: &Row<R>) {
        prefetch(&home::<R>(self.table.first, self.mask, row.key)[0]);
    }

    #[inline(always)]
    fn visit(&mut self, new: &Row<R>) {
        let bucket = home::<R>(self.table.first, self.mask, new.key);
        hold_bit(&bucket[0], LATCH, |count| {
            if count == FULL {
                self.table.insert_behind(bucket, new);
                return count;
            }
            write(row::<R>(bucket, count / ONE_ROW), new);
            count + ONE_ROW
        });
    }
}

struct Lookup<'t, const R: usize> {
    table: &'t Buckets<'t, R>,
    mask: usize,
    matched: Matched,
}

impl<const R: usize, const S: usize> Visit<Row<S>> for Lookup<'_, R> {
    const STEPS: usize = 1;

    #[inline(always)]
    fn ahead(&mut self, _step: usize, row: &Row<S>) {
        prefetch(&home::<R>(self.table.first, self.mask, row.key)[0]);
    }

    #[inline(always)]
    fn visit(&mut self, wanted: &Row<S>) {
        let mut in_chain = home::<R>(self.table.first, self.mask, wanted.key);
        loop {
            let count = in_chain[0].load(Ordering::Relaxed) / ONE_ROW;
            for at in 0..count.min(ROWS as u64) {
                let words = row::<R>(in_chain, at);
                if words[0].load(Ordering::Relaxed) == wanted.key {
                    let of_r = words[1..].iter().map(|word| word.load(Ordering::Relaxed));
                    self.matched.add(mix(wanted.key, of_r), wanted.value[0]);
                }
            }
            match in_chain[1].load(Ordering::Relaxed) {
                0 => break,
                next => in_chain = bucket::<R>(self.table.overflow, next as usize - 1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, Pages, Place};

    /// All in one chain, or in chains of a few: as many buckets overflow as ever may.
    #[test]
    fn keys_that_collide_overflow_and_are_all_found() {
        for (rows, chains) in [(0, 1), (1, 1), (2, 1), (3, 1), (777, 1), (776, 1), (1000, 5), (1001, 333)] {
            let key = |number: u64| ((number / chains + 1) << 32) + number % chains;
            let r: Vec<Row<1>> = (0..rows).map(|number| Row { key: key(number), value: [number] }).collect();
            let s: Vec<Row<1>> = (0..2 * rows).map(|number| Row { key: key(number), value: [!number] }).collect();
            let bytes = <Buckets<'_, 1> as Table<'_, 1>>::len_bytes(r.len());
            let mut memory = Memory::new(&Place::Dram, Pages::Small, bytes).unwrap();
            let mut table = Buckets::<1>::carve(&mut Carve::new(&mut memory), r.len());
            table.build(&r, Work { threads: 2, prefetch: Prefetch::None }).unwrap();
            let mut expected = Matched::default();
            r.iter().zip(&s).for_each(|(r, s)| expected.add(r.mix(), s.value[0]));
            assert_eq!(table.probe(&s, Prefetch::None), expected, "{rows} rows in {chains} chains");
        }
    }
}
