//! Threads that want the same locks: how often they get them, how evenly, and how long a lock takes from one to the next.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Duration;

use fastrand::Rng;

use super::{Kind, Lock, with_lock};
use crate::clock::{monotonic_ns, ticks};
use crate::crew::{self, Done};
use crate::error::{Error, Result};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contention {
    /// The kind of lock.
    pub kind: Kind,
    /// How many threads.
    pub threads: usize,
    /// How many locks; each time a thread wants a random one.
    pub locks: usize,
    /// Work while the lock is held, in nanoseconds of a thread that has a CPU to itself.
    pub inside_ns: u32,
    /// Work between two locks, in the same.
    pub outside_ns: u32,
}

/// How often each thread has had a lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares(pub Vec<Done>);

impl Shares {
    /// Acquisitions a second of all threads.
    pub fn per_second(&self) -> f64 {
        self.0.iter().map(Done::per_second).sum()
    }

    /// Jain's index of the threads' acquisitions: (sum x)^2 / (n sum x^2), 1 when all have had as many, 1 / n when one has
    /// had them all (Jain, Chiu and Hawe, *A quantitative measure of fairness and discrimination*, 1984). 1 when there were
    /// none.
    pub fn fairness(&self) -> f64 {
        let works = || self.0.iter().map(|done| done.work as f64);
        let (sum, squares): (f64, f64) = (works().sum(), works().map(|work| work * work).sum());
        if squares > 0.0 { sum * sum / (self.0.len() as f64 * squares) } else { 1.0 }
    }
}

/// Times in which a lock went from one thread to another.
#[derive(Clone, Debug, PartialEq)]
pub struct HandOffs {
    /// Ticks from before a release to after the next acquisition, by another thread: the latest [`HandOffs::MOST`] of each
    /// thread.
    pub ticks: Vec<u64>,
    /// How many there were.
    pub count: u64,
    /// How many acquisitions there were, those by the same thread again included.
    pub acquisitions: u64,
}

impl HandOffs {
    /// Most times that are kept of a thread.
    pub const MOST: usize = 1 << 16;
}

impl Contention {
    /// Has the threads want locks for so long, with no clock inside: how often each got one.
    ///
    /// # Errors
    /// `Unavailable` when there is no lock or no thread, or a thread cannot be had; `Wrong` when two threads had a lock at a
    /// time.
    pub fn run(&self, for_time: Duration, seed: u64) -> Result<Shares> {
        with_lock!(self.kind, L => self.run_with::<L, _>(for_time, seed, |_| |_: &mut Inside| ()).map(|(done, _)| Shares(done)))
    }

    /// The same with the clock read inside, after each acquisition and before each release: how long a lock takes from one
    /// thread to another. Reading the clock twice makes the work inside so much longer.
    ///
    /// # Errors
    /// As [`Contention::run`]; `Wrong` also when the counters of two CPUs do not agree.
    pub fn hand_offs(&self, for_time: Duration, seed: u64) -> Result<HandOffs> {
        let mut kept: Vec<Kept> = (0..self.threads).map(|_| Kept::default()).collect();
        let mut each = kept.iter_mut().enumerate();
        let note = |_| {
            let (number, kept) = each.next().expect("one for each thread");
            move |inside: &mut Inside| kept.note(number as u64 + 1, inside)
        };
        let (_, acquisitions) = with_lock!(self.kind, L => self.run_with::<L, _>(for_time, seed, note))?;
        if kept.iter().any(|kept| kept.has_gone_back) {
            return Err(Error::Wrong { what: "the order of two CPUs' clocks" });
        }
        let count = kept.iter().map(|kept| kept.count).sum();
        let ticks = kept.into_iter().flat_map(|kept| kept.ticks).collect();
        Ok(HandOffs { ticks, count, acquisitions })
    }

    /// Runs the workers, each with something that it does first with the lock held.
    fn run_with<L: Lock, F>(
        &self,
        for_time: Duration,
        seed: u64,
        mut note: impl FnMut(usize) -> F,
    ) -> Result<(Vec<Done>, u64)>
    where
        F: FnMut(&mut Inside) + Send,
    {
        if self.locks == 0 || self.threads == 0 {
            return Err(Error::unavailable(format!("{} threads for {} locks", self.threads, self.locks)));
        }
        let all: Vec<Protected<L>> = (0..self.locks).map(|_| Protected::new()).collect();
        // What is counted inside has the turns before and after the window too.
        let mut turns = vec![0u64; self.threads];
        let workers = turns.iter_mut().enumerate().map(|(number, turns)| {
            let mut worker = self.worker(&all, seed + number as u64, note(number));
            move || {
                *turns += 1;
                worker()
            }
        });
        let done = crew::work_together(workers.collect(), for_time)?;
        let acquisitions = all.into_iter().map(|protected| protected.inside.into_inner().acquisitions).sum();
        if acquisitions != turns.iter().sum::<u64>() {
            return Err(Error::Wrong { what: "the number of acquisitions, counted inside the locks," });
        }
        Ok((done, acquisitions))
    }

    fn worker<'l, L: Lock, F>(
        &self,
        all: &'l [Protected<L>],
        seed: u64,
        mut note: F,
    ) -> impl FnMut() -> u64 + Send + use<'l, L, F>
    where
        F: FnMut(&mut Inside) + Send,
    {
        let (inside_turns, outside_turns) = (turns(self.inside_ns), turns(self.outside_ns));
        let mut rng = Rng::with_seed(seed);
        let mut waiter = L::Waiter::default();
        move || {
            let protected = if all.len() == 1 { &all[0] } else { &all[rng.usize(..all.len())] };
            protected.lock.hold(&mut waiter, || {
                // SAFETY: the lock is held, and nothing else refers to what is inside.
                let inside = unsafe { &mut *protected.inside.get() };
                note(inside);
                inside.acquisitions = black_box(inside.acquisitions) + 1;
                work(inside_turns);
                if inside.owner > 0 {
                    inside.released_at = ticks();
                }
            });
            work(outside_turns);
            1
        }
    }
}

/// A lock and what it protects, on lines of their own.
#[repr(align(128))]
struct Protected<L> {
    lock: L,
    inside: UnsafeCell<Inside>,
}

// SAFETY: what is inside is touched with the lock held only, or when the workers are gone.
unsafe impl<L: Lock> Sync for Protected<L> {}

impl<L: Lock> Protected<L> {
    fn new() -> Protected<L> {
        Protected { lock: L::new(), inside: UnsafeCell::default() }
    }
}

#[derive(Default)]
struct Inside {
    acquisitions: u64,
    /// Who had it last, from 1; 0 when nobody looks at the clock.
    owner: u64,
    released_at: u64,
}

/// What one thread keeps of the times that it measures.
#[derive(Default)]
struct Kept {
    ticks: Vec<u64>,
    count: u64,
    has_gone_back: bool,
}

impl Kept {
    fn note(&mut self, owner: u64, inside: &mut Inside) {
        let now = ticks();
        if inside.owner > 0 && inside.owner != owner {
            self.has_gone_back |= now < inside.released_at;
            let taken = now.saturating_sub(inside.released_at);
            if self.ticks.len() < HandOffs::MOST {
                self.ticks.push(taken);
            } else {
                self.ticks[self.count as usize % HandOffs::MOST] = taken;
            }
            self.count += 1;
        }
        inside.owner = owner;
    }
}

/// A chain of multiplications that nothing but time comes of.
#[inline(always)]
fn work(turns: u32) {
    let mut value = 1u64;
    for _ in 0..turns {
        value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

/// Turns of [`work`] that take so long. How long one takes is measured once: the best of some runs, because what disturbs
/// them makes them longer only.
fn turns(ns: u32) -> u32 {
    const TURNS: u32 = 100_000;
    static NS: OnceLock<f64> = OnceLock::new();
    let of_one = *NS.get_or_init(|| {
        let time = |_| {
            let start = monotonic_ns();
            work(TURNS);
            monotonic_ns() - start
        };
        (0..5).map(time).min().expect("five runs").max(1) as f64 / f64::from(TURNS)
    });
    (f64::from(ns) / of_one).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contention(kind: Kind, threads: usize, locks: usize) -> Contention {
        Contention { kind, threads, locks, inside_ns: 20, outside_ns: 50 }
    }

    #[test]
    fn every_kind_ends_and_counts_what_it_did_also_with_more_threads_than_cpus() {
        for kind in Kind::ALL {
            for (threads, locks) in [(1, 1), (2, 1), (2, 3), (5, 1)] {
                let shares = contention(kind, threads, locks).run(Duration::from_millis(2), 1).unwrap();
                assert_eq!(shares.0.len(), threads);
                let fairness = shares.fairness();
                assert!(fairness > 0.99 / threads as f64 && fairness < 1.01, "{kind:?}: {fairness}");
                let hand_offs = contention(kind, threads, locks).hand_offs(Duration::from_millis(2), 1).unwrap();
                assert!(hand_offs.count <= hand_offs.acquisitions, "{kind:?}");
                assert!(hand_offs.ticks.len() <= threads * HandOffs::MOST);
                assert!(threads > 1 || hand_offs.count == 0, "one thread hands nothing on");
            }
        }
    }

    #[test]
    fn fairness_is_jains_index() {
        let shares = |works: &[u64]| Shares(works.iter().map(|&work| Done { work, ns: 1_000_000_000 }).collect());
        assert_eq!(shares(&[5, 5, 5]).fairness(), 1.0);
        assert_eq!(shares(&[6, 0]).fairness(), 0.5);
        assert_eq!(shares(&[0, 0]).fairness(), 1.0);
        assert_eq!(shares(&[1, 3]).per_second(), 4.0);
    }

    #[test]
    fn nothing_to_do_is_refused() {
        for (threads, locks) in [(0, 1), (1, 0)] {
            let refused = contention(Kind::Tas, threads, locks).run(Duration::ZERO, 1);
            assert!(matches!(refused, Err(Error::Unavailable { .. })));
        }
    }

    /// The oldest times give way to the newest, and what the same thread has had twice is none.
    #[test]
    fn times_are_kept_up_to_a_limit() {
        let (mut kept, mut inside) = (Kept::default(), Inside::default());
        kept.note(1, &mut inside);
        kept.note(1, &mut inside);
        assert_eq!(kept.count, 0);
        for turn in 0..=HandOffs::MOST as u64 {
            inside.released_at = ticks();
            kept.note(turn % 2 + 2, &mut inside);
        }
        assert_eq!((kept.count, kept.ticks.len()), (HandOffs::MOST as u64 + 1, HandOffs::MOST));
        assert!(!kept.has_gone_back);
    }
}
