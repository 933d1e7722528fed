//! The join that partitions both relations until the rows of R in a partition fit into a cache, and joins partition by
//! partition (Manegold, Boncz and Kersten, *Optimizing main-memory join on modern hardware*, 2002; Balkesen et al., section
//! 4.2).

use std::sync::atomic::{AtomicUsize, Ordering};

use super::carve::{self, Carve};
use super::partition::{Buffers, Radix, Target, places};
use super::row::{Matched, Row, hash};
use super::table::part_rows;
use crate::clock::{monotonic_ns, ticks};
use crate::crew;
use crate::error::Result;

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

    pub(super) fn is_possible(self) -> bool {
        match self {
            Passes::One(bits) => bits <= MOST_BITS,
            Passes::Two(bits, more) => bits <= MOST_BITS && more <= MOST_BITS,
        }
    }
}

/// What it found, and the nanoseconds of its phases, with what one thread does before or between those of all: adding up
/// counts, and setting up buffers and chains. Starting threads is left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    pub(super) matched: Matched,
    pub(super) partition_ns: u64,
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
    radixes().count() * carve::len_bytes::<Row<W>>(rows) + threads * buffers
}

/// Joins by partitions.
pub(super) fn join<const R: usize, const S: usize>(
    carve: &mut Carve<'_>,
    r: &[Row<R>],
    s: &[Row<S>],
    passes: Passes,
    threads: usize,
) -> Result<Joined> {
    let (r, r_ns) = partition(carve, r, passes, threads)?;
    let (s, s_ns) = partition(carve, s, passes, threads)?;
    let (matched, build_ns, probe_ns) = join_partitions(&r, &s, passes.bits(), threads)?;
    Ok(Joined { matched, partition_ns: r_ns + s_ns, build_ns, probe_ns })
}

/// Rows that lie in their partitions.
struct Partitioned<'m, const W: usize> {
    rows: Target<'m, W>,
    /// Where each partition begins, and the end of the last.
    starts: Vec<usize>,
}

impl<const W: usize> Partitioned<'_, W> {
    fn partition(&self, number: usize) -> &[Row<W>] {
        // SAFETY: all threads that wrote to the target are done before this value is made.
        unsafe { self.rows.rows(self.starts[number]..self.starts[number + 1]) }
    }
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
    let parts: Vec<_> = rows.chunks(part_rows(rows.len(), threads)).collect();
    let counted = crew::once_together(parts.iter().map(|rows| || radix.count(rows)).collect())?;
    let began_ns = monotonic_ns();
    let (places, starts) = places(&counted.results, radix.partitions());
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
    let (firsts, rows) = (once.starts.len() - 1, once.rows.len());
    let target = Target::new(carve.take(rows));
    let next = AtomicUsize::new(0);
    let began_ns = monotonic_ns();
    let workers = (0..threads.max(1)).map(|_| {
        let mut buffers = Buffers::carve(carve, radix.partitions());
        let (target, next) = (&target, &next);
        move || {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= firsts {
                    return done;
                }
                let rows = once.partition(number);
                let (places, mut starts) = places(&[radix.count(rows)], radix.partitions());
                starts.iter_mut().for_each(|start| *start += once.starts[number]);
                // SAFETY: a partition's places are as many as its rows and begin where those do; it is one thread's.
                unsafe { buffers.scatter(radix, rows, &starts[..places[0].len()], target) };
                done.push((number, starts));
            }
        }
    });
    let workers = workers.collect();
    let before_ns = monotonic_ns() - began_ns;
    let done = crew::once_together(workers)?;
    let began_ns = monotonic_ns();
    let mut starts = vec![rows; firsts * radix.partitions() + 1];
    for (number, of_one) in done.results.into_iter().flatten() {
        let at = number * radix.partitions();
        starts[at..at + radix.partitions()].copy_from_slice(&of_one[..radix.partitions()]);
    }
    let after_ns = monotonic_ns() - began_ns;
    Ok((Partitioned { rows: target, starts }, before_ns + done.ns + after_ns))
}

/// Has threads take partition after partition. Build and probe of a partition follow one another, so that each thread adds
/// up the time of both, and the whole time is shared out in proportion.
fn join_partitions<const R: usize, const S: usize>(
    r: &Partitioned<'_, R>,
    s: &Partitioned<'_, S>,
    bits: u32,
    threads: usize,
) -> Result<(Matched, u64, u64)> {
    let began_ns = monotonic_ns();
    let partitions = r.starts.len() - 1;
    let most = (0..partitions).map(|number| r.starts[number + 1] - r.starts[number]).max().unwrap_or(0);
    let next = AtomicUsize::new(0);
    let workers = (0..threads.max(1)).map(|_| {
        let (mut chains, next) = (Chains::new(most, bits), &next);
        move || {
            let (mut matched, mut building, mut probing) = (Matched::default(), 0, 0);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= partitions {
                    return (matched, building, probing);
                }
                let (r, s) = (r.partition(number), s.partition(number));
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

/// Chains over the rows of one partition, where they lie: as numbers of rows, from 1.
struct Chains {
    heads: Vec<u32>,
    next: Vec<u32>,
    /// The bits of the hash above it have chosen the partition.
    skip: u32,
    shift: u32,
}

impl Chains {
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
                    matched.add(candidate.sum(), row.value[0]);
                    break;
                }
                number = self.next[number as usize - 1];
            }
        }
        matched
    }
}
