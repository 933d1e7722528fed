//! A hash table without chains: a row lies in the first free slot from its hash on.

use std::sync::atomic::{AtomicU64, Ordering};

use super::carve::{self, Carve};
use super::lines::prefetch;
use super::prefetch::{Prefetch, Visit, each};
use super::row::{Matched, Row, hash, mix};
use super::table::{Table, Work, part_rows};
use crate::crew;
use crate::error::Result;

/// # Invariants
/// 1. A slot whose key is 0 is free; there is always one, so that every search ends.
/// 2. Whoever has changed a key from 0 writes the rest of the slot. Nobody reads that before the build is over.
/// 3. No free slot lies between the one that a row's hash says and the one where it is.
pub(super) struct Linear<'m, const R: usize> {
    /// Slots of 1 + `R` words.
    words: &'m mut [AtomicU64],
}

/// Two thirds of the slots are taken in the end.
fn slots(rows: usize) -> usize {
    rows + rows / 2 + 1
}

/// The slot from which on a key is looked for: its hash as a fraction of all.
#[inline(always)]
fn home(key: u64, slots: usize) -> usize {
    ((u128::from(hash(key)) * slots as u128) >> 64) as usize
}

#[inline(always)]
fn slot<const R: usize>(words: &[AtomicU64], at: usize) -> &[AtomicU64] {
    &words[at * (1 + R)..][..1 + R]
}

impl<'m, const R: usize> Table<'m, R> for Linear<'m, R> {
    fn len_bytes(rows: usize) -> usize {
        carve::len_bytes::<u64>(slots(rows) * (1 + R))
    }

    fn carve(carve: &mut Carve<'m>, rows: usize) -> Self {
        Linear { words: carve.take(slots(rows) * (1 + R)) }
    }

    fn to_clear(&mut self) -> Vec<&mut [AtomicU64]> {
        vec![&mut *self.words]
    }

    fn build(&mut self, rows: &[Row<R>], work: Work) -> Result<u64> {
        let words = &*self.words;
        let parts = rows.chunks(part_rows(rows.len(), work.threads));
        // A lone thread needs no compare-and-swap, which would wait for all stores before it.
        let insert: fn(&[AtomicU64], &[Row<R>], Prefetch) = match work.threads {
            0 | 1 => |words, rows, prefetch| insert_part(words, rows, prefetch, claim_alone),
            _ => |words, rows, prefetch| insert_part(words, rows, prefetch, claim_among_others),
        };
        Ok(crew::once_together(parts.map(|rows| move || insert(words, rows, work.prefetch)).collect())?.ns)
    }

    #[inline(never)]
    fn probe<const S: usize>(&self, rows: &[Row<S>], prefetch: Prefetch) -> Matched {
        let mut lookup =
            Lookup::<R> { words: self.words, slots: self.words.len() / (1 + R), matched: Matched::default() };
        each(rows, prefetch, &mut lookup);
        lookup.matched
    }
}

/// Takes a slot if it is free.
#[inline(always)]
fn claim_alone(slot: &AtomicU64, key: u64) -> bool {
    let is_free = slot.load(Ordering::Relaxed) == 0;
    if is_free {
        slot.store(key, Ordering::Relaxed);
    }
    is_free
}

/// The same while others do it, too.
#[inline(always)]
fn claim_among_others(slot: &AtomicU64, key: u64) -> bool {
    slot.load(Ordering::Relaxed) == 0 && slot.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

#[inline(always)]
fn insert_part<const R: usize>(
    words: &[AtomicU64],
    rows: &[Row<R>],
    prefetch: Prefetch,
    claim: impl Fn(&AtomicU64, u64) -> bool,
) {
    each(rows, prefetch, &mut Insertion::<R, _> { words, slots: words.len() / (1 + R), claim });
}

struct Insertion<'w, const R: usize, F> {
    words: &'w [AtomicU64],
    slots: usize,
    claim: F,
}

impl<const R: usize, F: Fn(&AtomicU64, u64) -> bool> Visit<Row<R>> for Insertion<'_, R, F> {
    const STEPS: usize = 1;

    #[inline(always)]
    fn ahead(&mut self, _step: usize, row: &Row<R>) {
        prefetch(&slot::<R>(self.words, home(row.key, self.slots))[0]);
    }

    #[inline(always)]
    fn visit(&mut self, row: &Row<R>) {
        let mut at = home(row.key, self.slots);
        loop {
            let slot = slot::<R>(self.words, at);
            if (self.claim)(&slot[0], row.key) {
                slot[1..].iter().zip(row.value).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
                break;
            }
            at = if at + 1 == self.slots { 0 } else { at + 1 };
        }
    }
}

struct Lookup<'t, const R: usize> {
    words: &'t [AtomicU64],
    slots: usize,
    matched: Matched,
}

impl<const R: usize, const S: usize> Visit<Row<S>> for Lookup<'_, R> {
    const STEPS: usize = 1;

    #[inline(always)]
    fn ahead(&mut self, _step: usize, row: &Row<S>) {
        prefetch(&slot::<R>(self.words, home(row.key, self.slots))[0]);
    }

    /// Ends at the partner: R's keys are unique.
    #[inline(always)]
    fn visit(&mut self, row: &Row<S>) {
        let mut at = home(row.key, self.slots);
        loop {
            let slot = slot::<R>(self.words, at);
            let key = slot[0].load(Ordering::Relaxed);
            if key == 0 {
                break;
            }
            if key == row.key {
                let words = slot[1..].iter().map(|word| word.load(Ordering::Relaxed));
                self.matched.add(mix(key, words), row.value[0]);
                break;
            }
            at = if at + 1 == self.slots { 0 } else { at + 1 };
        }
    }
}
