//! What all hash tables that are built as a whole have in common, and the parts of the rows that threads work on.

use std::sync::atomic::AtomicU64;

use super::carve::Carve;
use super::prefetch::Prefetch;
use super::row::{Matched, Row};
use crate::crew;
use crate::error::Result;

/// A hash table over the rows of R.
pub(super) trait Table<'m, const R: usize>: Sized + Sync {
    /// Bytes that it needs for so many rows.
    fn len_bytes(rows: usize) -> usize;

    /// Takes its arrays, whatever they hold.
    fn carve(carve: &mut Carve<'m>, rows: usize) -> Self;

    /// The words that must be 0 in an empty table, in parts of any size.
    fn to_clear(&mut self) -> Vec<&mut [AtomicU64]>;

    /// Inserts rows by so many threads; the nanoseconds that it took.
    fn build(&mut self, rows: &[Row<R>], work: Work) -> Result<u64>;

    /// Looks up rows, by one of several threads.
    fn probe<const S: usize>(&self, rows: &[Row<S>], prefetch: Prefetch) -> Matched;
}

/// By how many threads, and how they look ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) threads: usize,
    pub(super) prefetch: Prefetch,
}

/// Rows of each of so many threads. There may be fewer parts, and none of no rows.
pub(super) fn part_rows(rows: usize, threads: usize) -> usize {
    rows.div_ceil(threads.max(1)).max(1)
}

/// Empties a table; the nanoseconds that it took.
pub(super) fn clear<'m, const R: usize>(table: &mut impl Table<'m, R>, threads: usize) -> Result<u64> {
    let mut parts: Vec<Vec<&mut [AtomicU64]>> = (0..threads.max(1)).map(|_| Vec::new()).collect();
    for words in table.to_clear() {
        let part = part_rows(words.len(), threads);
        words.chunks_mut(part).zip(&mut parts).for_each(|(words, part)| part.push(words));
    }
    let workers = parts.into_iter().map(|part| move || part.into_iter().flatten().for_each(|word| *word.get_mut() = 0));
    Ok(crew::once_together(workers.collect())?.ns)
}

/// Looks up all rows of S; what was found, and the nanoseconds that it took.
pub(super) fn probe<'m, const R: usize, const S: usize>(
    table: &impl Table<'m, R>,
    rows: &[Row<S>],
    work: Work,
) -> Result<(Matched, u64)> {
    let parts = rows.chunks(part_rows(rows.len(), work.threads));
    let once = crew::once_together(parts.map(|rows| || table.probe(rows, work.prefetch)).collect())?;
    Ok((once.results.into_iter().fold(Matched::default(), Matched::and), once.ns))
}
