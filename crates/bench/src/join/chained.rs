//! Hash tables of chains: an array of heads, and an entry for each row, which leads to the next one of its chain.
//!
//! With tags, the upper bits of a head say which hashes may be in its chain, so that most rows without a partner end there
//! (Leis, Boncz, Kemper and Neumann, *Morsel-driven parallelism*, 2014, section 4.2).

use std::sync::atomic::{AtomicU64, Ordering};

use super::carve::{self, Carve, Plain};
use super::lines::prefetch;
use super::prefetch::{Prefetch, Visit, each};
use super::row::{Matched, Row, hash};
use super::table::{Table, Work, part_rows};
use crate::crew;
use crate::error::Result;
use crate::locks::{self, Lock, hold_bit, with_lock};

/// How rows are inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Insert {
    /// Under one lock for the whole table, as in Yoshioka et al., section 3.2.2. With a lock that is handed on in turn
    /// ([`locks::Kind::is_handed_on`]) and fewer free CPUs than threads, each row may wait for the end of a time slice: a million
    /// rows then take an hour.
    Giant(locks::Kind),
    /// Under a bit of the chain's head.
    BitLock,
    /// By a compare-and-swap of the chain's head.
    LatchFree,
}

/// A row in its chain.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Entry<const R: usize> {
    /// Number of the next entry, from 1; 0 at the end.
    next: u64,
    row: Row<R>,
}

#[allow(unsafe_code)] // promises that any bytes are an entry
// SAFETY: integers of 8 bytes.
unsafe impl<const R: usize> Plain for Entry<R> {}

/// Bits of a head that are the number of an entry.
const NUMBER: u64 = (1 << 40) - 1;
/// The bit of a head under which it is changed. Tables with tags are not built that way.
const LOCK: u64 = 1 << 63;
/// The lowest tag; there are 16.
const TAG: u32 = 48;

/// # Invariants
/// 1. A head has the number of the latest entry of its chain, or 0; an entry that is in a chain is complete, and not changed.
/// 2. Entry k is for row k: threads that insert different rows write different entries.
/// 3. With tags, a head has the tag of every entry in its chain.
pub(super) struct Chained<'m, const R: usize, const TAGS: bool> {
    heads: &'m mut [AtomicU64],
    entries: &'m mut [Entry<R>],
    insert: Insert,
}

impl<const R: usize, const TAGS: bool> Chained<'_, R, TAGS> {
    fn heads(rows: usize) -> usize {
        rows.next_power_of_two().max(2)
    }

    pub(super) fn inserting(self, insert: Insert) -> Self {
        Chained { insert, ..self }
    }
}

#[inline(always)]
fn shift(heads: &[AtomicU64]) -> u32 {
    u64::BITS - heads.len().trailing_zeros()
}

/// One of 16 bits, by bits of the hash that do not choose the head: tables of up to 2^44 chains.
#[inline(always)]
fn tag(hash: u64) -> u64 {
    1 << TAG << (hash >> 16 & 15)
}

impl<'m, const R: usize, const TAGS: bool> Table<'m, R> for Chained<'m, R, TAGS> {
    fn len_bytes(rows: usize) -> usize {
        carve::len_bytes::<u64>(Self::heads(rows)) + carve::len_bytes::<Entry<R>>(rows)
    }

    fn carve(carve: &mut Carve<'m>, rows: usize) -> Self {
        let (heads, entries) = (carve.take(Self::heads(rows)), carve.take(rows));
        Chained { heads, entries, insert: Insert::LatchFree }
    }

    fn to_clear(&mut self) -> Vec<&mut [AtomicU64]> {
        vec![&mut *self.heads]
    }

    fn build(&mut self, rows: &[Row<R>], work: Work) -> Result<u64> {
        let heads = &*self.heads;
        match self.insert {
            Insert::LatchFree if TAGS => insert_all(heads, self.entries, rows, work, || link_tagged),
            Insert::LatchFree => insert_all(heads, self.entries, rows, work, || link_free),
            Insert::BitLock => {
                assert!(!TAGS, "a head has room for tags or for a lock");
                insert_all(heads, self.entries, rows, work, || link_under_bit)
            }
            Insert::Giant(kind) => {
                assert!(!TAGS, "tags are for chains without locks");
                with_lock!(kind, L => {
                    let giant = Giant(L::new());
                    insert_all(heads, self.entries, rows, work, || under(&giant.0))
                })
            }
        }
    }

    #[inline(never)]
    fn probe<const S: usize>(&self, rows: &[Row<S>], prefetch: Prefetch) -> Matched {
        let (heads, entries) = (&*self.heads, &*self.entries);
        let mut lookup = Lookup::<R, TAGS> { heads, shift: shift(heads), entries, matched: Matched::default() };
        each(rows, prefetch, &mut lookup);
        lookup.matched
    }
}

/// Has each thread insert a part of the rows into the entries of that part, in its own way.
fn insert_all<'w, const R: usize, F>(
    heads: &'w [AtomicU64],
    entries: &'w mut [Entry<R>],
    rows: &'w [Row<R>],
    work: Work,
    link: impl Fn() -> F,
) -> Result<u64>
where
    F: FnMut(&AtomicU64, u64, &mut Entry<R>, Row<R>) + Send + 'w,
{
    let part = part_rows(rows.len(), work.threads);
    let parts = entries.chunks_mut(part).zip(rows.chunks(part)).enumerate().map(|(number, (entries, rows))| {
        let first = (number * part) as u64 + 1;
        let mut insertion =
            Insertion { heads, shift: shift(heads), entries: entries.iter_mut(), next: first, link: link() };
        move || insert_part(&mut insertion, rows, work.prefetch)
    });
    Ok(crew::once_together(parts.collect())?.ns)
}

#[inline(never)]
fn insert_part<const R: usize, V: Visit<Row<R>>>(insertion: &mut V, rows: &[Row<R>], prefetch: Prefetch) {
    each(rows, prefetch, insertion);
}

struct Insertion<'w, const R: usize, F> {
    heads: &'w [AtomicU64],
    shift: u32,
    entries: std::slice::IterMut<'w, Entry<R>>,
    /// The number of the next entry.
    next: u64,
    link: F,
}

impl<const R: usize, F> Visit<Row<R>> for Insertion<'_, R, F>
where
    F: FnMut(&AtomicU64, u64, &mut Entry<R>, Row<R>),
{
    const STEPS: usize = 1;

    #[inline(always)]
    fn ahead(&mut self, _step: usize, row: &Row<R>) {
        prefetch(&self.heads[(hash(row.key) >> self.shift) as usize]);
    }

    #[inline(always)]
    fn visit(&mut self, row: &Row<R>) {
        let head = &self.heads[(hash(row.key) >> self.shift) as usize];
        let entry = self.entries.next().expect("as many entries as rows");
        (self.link)(head, self.next, entry, *row);
        self.next += 1;
    }
}

#[inline(always)]
fn link_free<const R: usize>(head: &AtomicU64, number: u64, entry: &mut Entry<R>, row: Row<R>) {
    entry.row = row;
    let mut before = head.load(Ordering::Relaxed);
    loop {
        entry.next = before;
        match head.compare_exchange_weak(before, number, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(found) => before = found,
        }
    }
}

#[inline(always)]
fn link_tagged<const R: usize>(head: &AtomicU64, number: u64, entry: &mut Entry<R>, row: Row<R>) {
    entry.row = row;
    let tag = tag(hash(row.key));
    let mut before = head.load(Ordering::Relaxed);
    loop {
        entry.next = before & NUMBER;
        let after = before & !NUMBER | tag | number;
        match head.compare_exchange_weak(before, after, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(found) => before = found,
        }
    }
}

#[inline(always)]
fn link_under_bit<const R: usize>(head: &AtomicU64, number: u64, entry: &mut Entry<R>, row: Row<R>) {
    hold_bit(head, LOCK, |before| {
        *entry = Entry { next: before, row };
        number
    });
}

/// A lock with lines of its own.
#[repr(align(128))]
struct Giant<L>(L);

/// Links with all of the table to itself, by nothing but loads and stores.
fn under<const R: usize, L: Lock>(lock: &L) -> impl FnMut(&AtomicU64, u64, &mut Entry<R>, Row<R>) + Send {
    let mut waiter = L::Waiter::default();
    move |head, number, entry, row| {
        lock.hold(&mut waiter, || {
            *entry = Entry { next: head.load(Ordering::Relaxed), row };
            head.store(number, Ordering::Relaxed);
        });
    }
}

struct Lookup<'t, const R: usize, const TAGS: bool> {
    heads: &'t [AtomicU64],
    shift: u32,
    entries: &'t [Entry<R>],
    matched: Matched,
}

impl<const R: usize, const TAGS: bool> Lookup<'_, R, TAGS> {
    /// The number of the first entry that may have the key.
    #[inline(always)]
    fn first(&self, key: u64) -> u64 {
        let hash = hash(key);
        let head = self.heads[(hash >> self.shift) as usize].load(Ordering::Relaxed);
        if TAGS && head & tag(hash) == 0 { 0 } else { head & NUMBER }
    }
}

impl<const R: usize, const S: usize, const TAGS: bool> Visit<Row<S>> for Lookup<'_, R, TAGS> {
    const STEPS: usize = 2;

    #[inline(always)]
    fn ahead(&mut self, step: usize, row: &Row<S>) {
        if step == 0 {
            prefetch(&self.heads[(hash(row.key) >> self.shift) as usize]);
        } else if let Some(entry) = self.entries.get((self.first(row.key) as usize).wrapping_sub(1)) {
            prefetch(entry);
        }
    }

    /// Ends at the partner: R's keys are unique.
    #[inline(always)]
    fn visit(&mut self, row: &Row<S>) {
        let mut number = self.first(row.key);
        while number > 0 {
            let entry = &self.entries[number as usize - 1];
            if entry.row.key == row.key {
                self.matched.add(entry.row.mix(), row.value[0]);
                break;
            }
            number = entry.next;
        }
    }
}
