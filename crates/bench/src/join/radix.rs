//! The join that partitions both relations until the rows of R in a partition fit into a cache, and joins partition by
//! partition (Manegold, Boncz and Kersten, *Optimizing main-memory join on modern hardware*, 2002; Balkesen et al., section
//! 4.2).
//!
//! Threads take partitions one after the other. Where rows of S refer to some keys much more often than to others, some of S's
//! partitions are much larger: their probe is shared out, each thread with chains of its own over R's partition, which is
//! small. What is not shared out is the second pass over such a partition, which is one thread's work.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::carve::{self, Carve};
use super::partition::{Buffers, Radix, Target, places};
use super::row::{Matched, Row, hash};
use super::table::part_rows;
use crate::clock::{monotonic_ns, ticks};
use crate::crew;
use crate::error::{Error, Result};
use crate::memory::Place;
use crate::room;

/// How rows are partitioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Passes {
    /// At once, by so many bits.
    One(u32),
    /// First by so many bits, then each partition by so many more.
    Two(u32, u32),
}

/// Most bits of a pass: what is kept for each partition must fit into the second-level cache.
pub const MOST_BITS: u32 = 14;

impl Passes {
    fn radixes(self) -> (Radix, Option<Radix>) {
        match self {
            Passes::One(bits) => (Radix { skip: 0, bits }, None),
            Passes::Two(bits, more) => (Radix { skip: 0, bits }, Some(Radix { skip: bits, bits: more })),
        }
    }

    /// Bits of all passes.
    pub(super) fn bits(self) -> u32 {
        match self {
            Passes::One(bits) => bits,
            Passes::Two(bits, more) => bits + more,
        }
    }

    /// # Errors
    /// `Unavailable` when a pass has more than [`MOST_BITS`] bits, or there are more partitions than rows of R, up to the next power
    /// of two.
    pub(super) fn check(self, r_rows: usize) -> Result<()> {
        let of_a_pass = match self {
            Passes::One(bits) => bits,
            Passes::Two(bits, more) => bits.max(more),
        };
        let most = r_rows.next_power_of_two().ilog2();
        if of_a_pass > MOST_BITS {
            Err(Error::unavailable(format!("a pass of a radix has at most {MOST_BITS} bits, not {of_a_pass}")))
        } else if self.bits() > most {
            let bits = self.bits();
            Err(Error::unavailable(format!("a radix of {bits} bits for {r_rows} rows of R: it has at most {most}")))
        } else {
            Ok(())
        }
    }
}

/// What it found, and the nanoseconds of its phases, with what one thread does before or between those of all: adding up
/// counts, and setting up buffers and chains. Starting threads is left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    pub(super) matched: Matched,
    pub(super) partition_r_ns: u64,
    pub(super) partition_s_ns: u64,
    pub(super) build_ns: u64,
    pub(super) probe_ns: u64,
}

/// Bytes that [`join`] needs.
pub(super) fn len_bytes<const R: usize, const S: usize>(r: usize, s: usize, passes: Passes, threads: usize) -> usize {
    side_bytes::<R>(r, passes, threads) + side_bytes::<S>(s, passes, threads)
}

fn side_bytes<const W: usize>(rows: usize, passes: Passes, threads: usize) -> usize {
    let (first, second) = passes.radixes();
    let radixes = || std::iter::once(first).chain(second);
    let buffers: usize = radixes().map(|radix| Buffers::<W>::len_bytes(radix.partitions())).sum();
    let starts = |bits: u32| carve::len_bytes::<u64>((1 << bits) + 1);
    let starts = starts(first.bits) + second.map_or(0, |_| starts(passes.bits()));
    radixes().count() * carve::len_bytes::<Row<W>>(rows) + threads * buffers + starts
}

/// Joins by partitions.
pub(super) fn join<const R: usize, const S: usize>(
    carve: &mut Carve<'_>,
    r: &[Row<R>],
    s: &[Row<S>],
    passes: Passes,
    threads: usize,
) -> Result<Joined> {
    let (r, partition_r_ns) = partition(carve, r, passes, threads)?;
    let (s, partition_s_ns) = partition(carve, s, passes, threads)?;
    let (matched, build_ns, probe_ns) = join_partitions(&r, &s, passes.bits(), threads)?;
    Ok(Joined { matched, partition_r_ns, partition_s_ns, build_ns, probe_ns })
}

/// Rows that lie in their partitions.
struct Partitioned<'m, const W: usize> {
    rows: Target<'m, W>,
    /// Where each partition begins, and the end of the last.
    starts: &'m [AtomicU64],
}

impl<const W: usize> Partitioned<'_, W> {
    fn partitions(&self) -> usize {
        self.starts.len() - 1
    }

    fn range(&self, number: usize) -> Range<usize> {
        let start = |number: usize| self.starts[number].load(Ordering::Relaxed) as usize;
        start(number)..start(number + 1)
    }

    fn partition(&self, number: usize) -> &[Row<W>] {
        // SAFETY: all threads that wrote to the target are done before this value is made.
        unsafe { self.rows.rows(self.range(number)) }
    }
}

/// Notes where partitions begin.
fn note(starts: &[AtomicU64], found: &[usize]) {
    starts.iter().zip(found).for_each(|(start, &at)| start.store(at as u64, Ordering::Relaxed));
}

fn partition<'m, const W: usize>(
    carve: &mut Carve<'m>,
    rows: &[Row<W>],
    passes: Passes,
    threads: usize,
) -> Result<(Partitioned<'m, W>, u64)> {
    let (first, second) = passes.radixes();
    let (once, ns) = first_pass(carve, rows, first, threads)?;
    let Some(second) = second else { return Ok((once, ns)) };
    let (twice, more_ns) = second_pass(carve, &once, second, threads)?;
    Ok((twice, ns + more_ns))
}

/// All threads count, then all copy.
fn first_pass<'m, const W: usize>(
    carve: &mut Carve<'m>,
    rows: &[Row<W>],
    radix: Radix,
    threads: usize,
) -> Result<(Partitioned<'m, W>, u64)> {
    let target = Target::new(carve.take(rows.len()));
    let starts: &'m [AtomicU64] = carve.take(radix.partitions() + 1);
    let parts: Vec<_> = rows.chunks(part_rows(rows.len(), threads)).collect();
    let counted = crew::once_together(parts.iter().map(|rows| || radix.count(rows)).collect())?;
    let began_ns = monotonic_ns();
    let (places, found) = places(&counted.results, radix.partitions());
    note(starts, &found);
    let workers = parts.into_iter().zip(&places).map(|(rows, places)| {
        let mut buffers = Buffers::carve(carve, radix.partitions());
        let target = &target;
        // SAFETY: the places of the threads follow from how many rows each has, so none are two threads'.
        move || unsafe { buffers.scatter(radix, rows, places, target) }
    });
    let workers = workers.collect();
    let between_ns = monotonic_ns() - began_ns;
    let copied = crew::once_together(workers)?;
    Ok((Partitioned { rows: target, starts }, counted.ns + between_ns + copied.ns))
}

/// Each partition is one thread's work, the next one that of whoever is free.
fn second_pass<'m, const W: usize>(
    carve: &mut Carve<'m>,
    once: &Partitioned<'_, W>,
    radix: Radix,
    threads: usize,
) -> Result<(Partitioned<'m, W>, u64)> {
    let (firsts, rows) = (once.partitions(), once.rows.len());
    let target = Target::new(carve.take(rows));
    let starts: &'m [AtomicU64] = carve.take(firsts * radix.partitions() + 1);
    let next = AtomicUsize::new(0);
    let began_ns = monotonic_ns();
    let workers = (0..threads.max(1)).map(|_| {
        let mut buffers = Buffers::carve(carve, radix.partitions());
        let (target, next) = (&target, &next);
        move || loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= firsts {
                return;
            }
            let (rows, begin) = (once.partition(number), once.range(number).start);
            let (mut places, _) = places(&[radix.count(rows)], radix.partitions());
            places[0].iter_mut().for_each(|place| *place += begin);
            note(&starts[number * radix.partitions()..], &places[0]);
            // SAFETY: a partition's places are as many as its rows and begin where those do; it is one thread's.
            unsafe { buffers.scatter(radix, rows, &places[0], target) };
        }
    });
    let workers = workers.collect();
    let before_ns = monotonic_ns() - began_ns;
    let done = crew::once_together(workers)?;
    note(&starts[firsts * radix.partitions()..], &[rows]);
    Ok((Partitioned { rows: target, starts }, before_ns + done.ns))
}

/// Has threads take partition after partition. Build and probe of a partition follow one another, so that each thread adds
/// up the time of both, and the whole time is shared out in proportion.
fn join_partitions<const R: usize, const S: usize>(
    r: &Partitioned<'_, R>,
    s: &Partitioned<'_, S>,
    bits: u32,
    threads: usize,
) -> Result<(Matched, u64, u64)> {
    let partitions = r.partitions();
    let most = (0..partitions).map(|number| r.range(number).len()).max().unwrap_or(0);
    room::check(&Place::Dram, (threads.max(1) * Chains::len_bytes(most)) as u64)?;
    let began_ns = monotonic_ns();
    let at_once = rows_at_once(s.rows.len(), most, threads);
    let others = others((0..partitions).map(|number| s.range(number).len()), at_once);
    let next = AtomicUsize::new(0);
    let workers = (0..threads.max(1)).map(|_| {
        let (mut chains, next, others) = (Chains::new(most, bits), &next, &others);
        move || {
            let (mut matched, mut building, mut probing) = (Matched::default(), 0, 0);
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                let (number, of_s) = match others.get(task) {
                    Some((number, of_s)) => (*number, of_s.clone()),
                    None => (task - others.len(), 0..at_once),
                };
                if number >= partitions {
                    return (matched, building, probing);
                }
                let (r, s) = (r.partition(number), s.partition(number));
                let s = &s[of_s.start..of_s.end.min(s.len())];
                let started = ticks();
                chains.build(r);
                let built = ticks();
                matched = matched.and(chains.probe(r, s));
                building += built - started;
                probing += ticks() - built;
            }
        }
    });
    let workers = workers.collect();
    let before_ns = monotonic_ns() - began_ns;
    let done = crew::once_together(workers)?;
    let (matched, building, probing) =
        done.results.into_iter().fold((Matched::default(), 0, 0), |(matched, building, probing), (more, b, p)| {
            (matched.and(more), building + b, probing + p)
        });
    let build_ns = (done.ns as f64 * building as f64 / (building + probing).max(1) as f64) as u64;
    Ok((matched, before_ns + build_ns, done.ns - build_ns))
}

/// Rows of S that are probed at once: each of several threads has four times to do, so that none is left with much in the end, but
/// building the chains takes no more than a third of it.
fn rows_at_once(s_rows: usize, most_of_r: usize, threads: usize) -> usize {
    if threads > 1 { (s_rows / (4 * threads)).max(2 * most_of_r).max(1) } else { usize::MAX }
}

/// Of the partitions of S that have more rows than are probed at once, the rows after the first so many.
fn others(partitions: impl Iterator<Item = usize>, at_once: usize) -> Vec<(usize, Range<usize>)> {
    let rest = |(number, rows): (usize, usize)| {
        (at_once..rows).step_by(at_once).map(move |start| (number, start..(start.saturating_add(at_once)).min(rows)))
    };
    partitions.enumerate().flat_map(rest).collect()
}

/// Chains over the rows of one partition, where they lie: as numbers of rows, from 1.
struct Chains {
    heads: Vec<u32>,
    next: Vec<u32>,
    /// The bits of the hash above it have chosen the partition.
    skip: u32,
    shift: u32,
}

impl Chains {
    /// Bytes of chains for so many rows.
    fn len_bytes(rows: usize) -> usize {
        size_of::<u32>() * (rows.next_power_of_two() + rows)
    }

    /// For so many rows at most, touched so that no page is missing later.
    fn new(rows: usize, skip: u32) -> Chains {
        Chains { heads: vec![1; rows.next_power_of_two()], next: vec![1; rows], skip, shift: 63 }
    }

    #[inline(always)]
    fn head(&self, key: u64) -> usize {
        (hash(key) << self.skip >> 1 >> self.shift) as usize
    }

    #[inline(never)]
    fn build<const R: usize>(&mut self, rows: &[Row<R>]) {
        let heads = rows.len().next_power_of_two();
        self.shift = 63 - heads.trailing_zeros();
        self.heads[..heads].fill(0);
        for (number, row) in (1..).zip(rows) {
            let head = self.head(row.key);
            self.next[number as usize - 1] = std::mem::replace(&mut self.heads[head], number);
        }
    }

    #[inline(never)]
    fn probe<const R: usize, const S: usize>(&self, r: &[Row<R>], s: &[Row<S>]) -> Matched {
        let mut matched = Matched::default();
        for row in s {
            let mut number = self.heads[self.head(row.key)];
            while number > 0 {
                let candidate = &r[number as usize - 1];
                if candidate.key == row.key {
                    matched.add(candidate.mix(), row.value[0]);
                    break;
                }
                number = self.next[number as usize - 1];
            }
        }
        matched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_partitions_of_s_are_shared_out_and_no_row_twice() {
        let (rows, at_once) = ([3, 0, 25, 10, 11], 10);
        let others = others(rows.into_iter(), at_once);
        assert_eq!(others, [(2, 10..20), (2, 20..25), (4, 10..11)]);
        assert_eq!(rows_at_once(1 << 20, 100, 1), usize::MAX, "one thread has it all");
        assert_eq!(rows_at_once(1 << 20, 100, 4), 1 << 16);
        assert_eq!(rows_at_once(1000, 100, 4), 200, "chains are built no more often than they are worth");
    }

    #[test]
    fn a_radix_of_more_partitions_than_rows_is_refused() {
        assert!(Passes::One(10).check(1000).is_ok() && Passes::Two(5, 5).check(1000).is_ok());
        for (passes, rows) in [(Passes::One(11), 1000), (Passes::Two(14, 14), 100), (Passes::One(15), 1 << 20)] {
            assert!(matches!(passes.check(rows), Err(Error::Unavailable { .. })), "{passes:?}");
        }
        assert!(Passes::Two(0, 0).check(0).is_ok());
    }
}
