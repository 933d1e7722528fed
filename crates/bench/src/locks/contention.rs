//! Threads that want the same locks: how often they get them, how evenly, and how long a lock takes from one to the next.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Duration;

use fastrand::Rng;

use super::{Kind, Lock, with_lock};
use crate::clock::{Clock, monotonic_ns, ticks};
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

/// How often each thread has had a lock, in one window of all: else those that have it often when another one's window is
/// not open yet, or has closed, would be added to what that one has in its own.
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

impl Contention {
    /// Has the threads want locks for so long, with no clock inside: how often each got one.
    ///
    /// # Errors
    /// `Unavailable` when there is no lock or no thread, or a thread cannot be had; `Wrong` when two threads had a lock at a
    /// time.
    pub fn run(&self, for_time: Duration, seed: u64) -> Result<Shares> {
        with_lock!(self.kind, L => self.run_with::<L, _>(for_time, seed, |_| NotTimed).map(Shares))
    }

    /// The same with the clock read before and after each acquisition, and before each release: how often it took how many ticks, without
    /// those of the clock, from a release to the next acquisition by another thread that was waiting; where nobody waits, the
    /// time would be that of whoever comes next. Reading the clock makes the work inside twice as much longer, and that outside once.
    ///
    /// # Errors
    /// As [`Contention::run`]; `Wrong` also when the counters of two CPUs do not agree.
    pub fn hand_offs(&self, for_time: Duration, seed: u64) -> Result<BTreeMap<u64, u64>> {
        let mut kept: Vec<Kept> = (1..=self.threads as u64).map(Kept::of).collect();
        let mut each = kept.iter_mut();
        let note = |_| each.next().expect("one for each thread");
        with_lock!(self.kind, L => self.run_with::<L, _>(for_time, seed, note))?;
        if kept.iter().any(|kept| kept.has_gone_back) {
            return Err(Error::Wrong { what: "the order of two CPUs' clocks" });
        }
        let pair_ticks = Clock::get().pair_ticks;
        let mut counts = BTreeMap::new();
        for (ticks, count) in kept.iter().flat_map(Kept::counts) {
            *counts.entry(ticks.saturating_sub(pair_ticks)).or_default() += count;
        }
        Ok(counts)
    }

    /// What a turn takes beside the lock and the work, at most, in nanoseconds: one by a lone thread without either.
    pub fn turn_ns() -> f64 {
        static NS: OnceLock<f64> = OnceLock::new();
        *NS.get_or_init(|| {
            let idle = Contention { kind: Kind::Bit, threads: 1, locks: 1, inside_ns: 0, outside_ns: 0 };
            let all = [Protected::<Unlocked>::new()];
            let mut worker = idle.worker(&all, 1, NotTimed);
            let time = |_| {
                let start = monotonic_ns();
                (0..TURNS).for_each(|_| _ = black_box(worker()));
                monotonic_ns() - start
            };
            least(time) / f64::from(TURNS)
        })
    }

    /// Runs the workers, each with something that it does first with the lock held.
    fn run_with<L: Lock, T: Timing>(
        &self,
        for_time: Duration,
        seed: u64,
        mut timing: impl FnMut(usize) -> T,
    ) -> Result<Vec<Done>> {
        if self.locks == 0 || self.threads == 0 {
            return Err(Error::unavailable(format!("{} threads for {} locks", self.threads, self.locks)));
        }
        let all: Vec<Protected<L>> = (0..self.locks).map(|_| Protected::new()).collect();
        // What is counted inside has the turns before and after the window too.
        let mut turns: Vec<Turns> = (0..self.threads).map(|_| Turns::default()).collect();
        let workers = turns.iter_mut().enumerate().map(|(number, turns)| {
            let mut worker = self.worker(&all, seed + number as u64, timing(number));
            move || {
                turns.0 += 1;
                worker()
            }
        });
        let done = crew::work_in_one_window(workers.collect(), for_time)?;
        let acquisitions: u64 = all.into_iter().map(|protected| protected.inside.into_inner().acquisitions).sum();
        if acquisitions != turns.iter().map(|turns| turns.0).sum::<u64>() {
            return Err(Error::Wrong { what: "the number of acquisitions, counted inside the locks," });
        }
        Ok(done)
    }

    fn worker<'l, L: Lock, T: Timing>(
        &self,
        all: &'l [Protected<L>],
        seed: u64,
        mut timing: T,
    ) -> impl FnMut() -> u64 + Send + use<'l, L, T> {
        let (inside_turns, outside_turns) = (turns(self.inside_ns), turns(self.outside_ns));
        let mut rng = Rng::with_seed(seed);
        let mut waiter = L::Waiter::default();
        move || {
            let protected = if all.len() == 1 { &all[0] } else { &all[rng.usize(..all.len())] };
            timing.arrive();
            protected.lock.hold(&mut waiter, || {
                // SAFETY: the lock is held, and nothing else refers to what is inside.
                let inside = unsafe { &mut *protected.inside.get() };
                timing.acquired(inside);
                inside.acquisitions = black_box(inside.acquisitions) + 1;
                work(inside_turns);
                timing.release(inside);
            });
            work(outside_turns);
            1
        }
    }
}

/// Turns of one thread, on a line of its own: counting must not take lines from others.
#[derive(Default)]
#[repr(align(128))]
struct Turns(u64);

/// A lock and what it protects, each on lines of its own, whatever kind of lock it is: one that shared its line with what it protects
/// would bring that along.
struct Protected<L> {
    lock: OnLines<L>,
    inside: UnsafeCell<Inside>,
}

#[repr(align(128))]
struct OnLines<L>(L);

impl<L> std::ops::Deref for OnLines<L> {
    type Target = L;

    #[inline(always)]
    fn deref(&self) -> &L {
        &self.0
    }
}

// SAFETY: what is inside is touched with the lock held only.
unsafe impl<L: Lock> Sync for Protected<L> {}

impl<L: Lock> Protected<L> {
    fn new() -> Protected<L> {
        Protected { lock: OnLines(L::new()), inside: UnsafeCell::default() }
    }
}

/// What a lock protects.
#[derive(Default)]
#[repr(align(128))]
struct Inside {
    acquisitions: u64,
    /// Who had it last, from 1; 0 when nobody looks at the clock.
    owner: u64,
    released_at: u64,
}

/// No lock, for one thread.
struct Unlocked;

// SAFETY: one thread alone has it, and its work does not want it again.
unsafe impl Lock for Unlocked {
    type Waiter = ();

    fn new() -> Unlocked {
        Unlocked
    }

    #[inline]
    fn hold<R>(&self, (): &mut (), work: impl FnOnce() -> R) -> R {
        work()
    }
}

/// What a thread does with the clock, if anything.
trait Timing: Send {
    /// Before it wants a lock.
    fn arrive(&mut self);
    /// As soon as it has it.
    fn acquired(&mut self, inside: &mut Inside);
    /// Just before it frees it.
    fn release(&mut self, inside: &mut Inside);
}

struct NotTimed;

impl Timing for NotTimed {
    #[inline(always)]
    fn arrive(&mut self) {}

    #[inline(always)]
    fn acquired(&mut self, _inside: &mut Inside) {}

    #[inline(always)]
    fn release(&mut self, _inside: &mut Inside) {}
}

/// What one thread keeps of the times that it measures: all of them, for of those alone that come last, or first, the median would
/// be another. How often each comes takes less memory, and is sooner noted with the lock held, than a list of them.
#[repr(align(128))]
struct Kept {
    owner: u64,
    arrived_at: u64,
    /// How often each number of ticks came, up to [`LONG_TICKS`].
    short: Vec<u64>,
    /// Those that took longer, of which there are few in any window.
    long: Vec<u64>,
    has_gone_back: bool,
}

/// Some 20 us: who waits longer has lost its CPU.
const LONG_TICKS: usize = 1 << 16;

impl Kept {
    fn of(owner: u64) -> Kept {
        Kept { owner, arrived_at: 0, short: vec![0; LONG_TICKS], long: Vec::new(), has_gone_back: false }
    }

    #[inline(always)]
    fn keep(&mut self, taken: u64) {
        match self.short.get_mut(taken as usize) {
            Some(count) => *count += 1,
            None => self.long.push(taken),
        }
    }

    /// The times that came, each with how often it did.
    fn counts(&self) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let short = self.short.iter().enumerate().map(|(ticks, count)| (ticks as u64, *count));
        short.filter(|(_, count)| *count > 0).chain(self.long.iter().map(|ticks| (*ticks, 1)))
    }
}

impl Timing for &mut Kept {
    #[inline(always)]
    fn arrive(&mut self) {
        self.arrived_at = ticks();
    }

    #[inline(always)]
    fn acquired(&mut self, inside: &mut Inside) {
        let now = ticks();
        if inside.owner > 0 && inside.owner != self.owner {
            self.has_gone_back |= now < inside.released_at;
            if self.arrived_at < inside.released_at {
                self.keep(now.saturating_sub(inside.released_at));
            }
        }
        inside.owner = self.owner;
    }

    #[inline(always)]
    fn release(&mut self, inside: &mut Inside) {
        inside.released_at = ticks();
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
    static NS: OnceLock<f64> = OnceLock::new();
    let of_one = *NS.get_or_init(|| {
        let time = |_| {
            let start = monotonic_ns();
            work(TURNS);
            monotonic_ns() - start
        };
        least(time) / f64::from(TURNS)
    });
    (f64::from(ns) / of_one).round() as u32
}

const TURNS: u32 = 100_000;

fn least(time: impl FnMut(u32) -> u64) -> f64 {
    (0..5).map(time).min().expect("five runs").max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

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
                assert!(threads > 1 || hand_offs.is_empty(), "one thread hands nothing on");
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

    /// Else the time in which one thread waits for a CPU, and others have the lock all the time, is counted twice.
    #[test]
    fn threads_are_counted_over_the_same_time() {
        let shares = contention(Kind::Tas, 2, 1).run(Duration::from_millis(2), 1).unwrap();
        assert_eq!(shares.0[0].ns, shares.0[1].ns);
        assert!(Contention::turn_ns() > 0.0);
    }

    #[test]
    fn no_kind_of_lock_shares_a_line_with_what_it_protects() {
        fn is_apart<L: Lock>() -> bool {
            let protected = Protected::<L>::new();
            let line = |address: usize| address / 128;
            let lock = std::ptr::from_ref(&protected.lock).addr();
            let inside = line(protected.inside.get().addr());
            line(lock) != inside && line(lock + size_of::<L>() - 1) != inside
        }
        for kind in Kind::ALL {
            assert!(with_lock!(kind, L => is_apart::<L>()), "{kind:?}");
        }
    }

    /// What is done with the clock, and how many acquisitions there were then, where that is known.
    type Reading = (&'static str, Option<u64>);

    struct Noted(Arc<Mutex<Vec<Reading>>>);

    impl Noted {
        fn note(&self, what: &'static str, acquisitions: Option<u64>) {
            self.0.lock().unwrap().push((what, acquisitions));
        }
    }

    impl Timing for Noted {
        fn arrive(&mut self) {
            self.note("arrive", None);
        }

        fn acquired(&mut self, inside: &mut Inside) {
            self.note("acquired", Some(inside.acquisitions));
        }

        fn release(&mut self, inside: &mut Inside) {
            self.note("release", Some(inside.acquisitions));
        }
    }

    #[test]
    fn the_clock_is_read_before_and_after_each_acquisition_and_before_each_release() {
        fn noted<L: Lock>(kind: Kind) -> Vec<Reading> {
            let (all, noted) = ([Protected::<L>::new()], Arc::<Mutex<Vec<_>>>::default());
            let mut worker = contention(kind, 1, 1).worker(&all, 1, Noted(noted.clone()));
            (0..2).for_each(|_| assert_eq!(worker(), 1));
            noted.lock().unwrap().clone()
        }
        let turn = |number| [("arrive", None), ("acquired", Some(number)), ("release", Some(number + 1))];
        for kind in Kind::ALL {
            assert_eq!(with_lock!(kind, L => noted::<L>(kind)), [turn(0), turn(1)].concat(), "{kind:?}");
        }
    }

    /// Else no hand-off is ever measured.
    #[test]
    fn who_came_while_another_had_the_lock_is_timed_from_its_release() {
        let (mut one, mut other, mut inside) = (Kept::of(1), Kept::of(2), Inside::default());
        (&mut one).arrive();
        (&mut one).acquired(&mut inside);
        (&mut other).arrive();
        // A coarse counter may not have gone on yet.
        while ticks() <= other.arrived_at {}
        let before = ticks();
        (&mut one).release(&mut inside);
        (&mut other).acquired(&mut inside);
        let after = ticks();
        let [(taken, 1)] = kept(&other)[..] else { panic!("{:?}", kept(&other)) };
        assert!(kept(&one).is_empty() && !other.has_gone_back);
        assert!(taken <= after - before, "{taken} of {}", after - before);
        assert!((before..=after).contains(&inside.released_at));
    }

    fn kept(of: &Kept) -> Vec<(u64, u64)> {
        of.counts().collect()
    }

    #[test]
    fn no_time_is_left_out_however_many_and_however_long() {
        let mut one = Kept::of(1);
        (0..200_000).for_each(|_| one.keep(52));
        [0, LONG_TICKS as u64 - 1, LONG_TICKS as u64, u64::MAX, 1 << 40].into_iter().for_each(|taken| one.keep(taken));
        let long = LONG_TICKS as u64;
        assert_eq!(kept(&one), [(0, 1), (52, 200_000), (long - 1, 1), (long, 1), (u64::MAX, 1), (1 << 40, 1)]);
    }

    /// What the same thread has twice is none, nor is what it has come late for.
    #[test]
    fn times_of_those_who_waited_are_kept() {
        let (mut one, mut other, mut inside) = (Kept::of(1), Kept::of(2), Inside::default());
        let mut turn = |kept: &mut Kept, arrived_at| {
            let mut kept = kept;
            kept.arrived_at = arrived_at;
            kept.acquired(&mut inside);
            kept.release(&mut inside);
            inside.released_at
        };
        turn(&mut one, 0);
        turn(&mut one, 0);
        let released_at = turn(&mut other, u64::MAX);
        assert_eq!((kept(&one), kept(&other)), (Vec::new(), Vec::new()));
        for _ in 0..100 {
            turn(&mut one, released_at - 1);
            turn(&mut other, 0);
        }
        let count = |of: &Kept| kept(of).iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!((count(&one), count(&other)), (100, 100));
        assert!(!one.has_gone_back && !other.has_gone_back);
    }
}
