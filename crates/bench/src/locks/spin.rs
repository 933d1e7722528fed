//! Locks of a word or two, on which all who wait spin.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{Lock, between};

/// Writes again and again until what was there before says that it was free: `__sync_lock_test_and_set()` in a loop.
#[derive(Debug)]
pub struct TestAndSet(AtomicBool);

// SAFETY: only who has changed false into true works, and only it changes the word back, releasing what it has written.
unsafe impl Lock for TestAndSet {
    type Waiter = ();

    fn new() -> TestAndSet {
        TestAndSet(AtomicBool::new(false))
    }

    #[inline]
    fn hold<R>(&self, (): &mut (), work: impl FnOnce() -> R) -> R {
        let acquire = || while self.0.swap(true, Ordering::Acquire) {};
        between(acquire, || self.0.store(false, Ordering::Release), work)
    }
}

/// Looks first, pauses while it is held, and then adds one: who gets 1 has it. As the paper has it, with
/// `__sync_add_and_fetch()`.
#[derive(Debug)]
pub struct AddAndFetch(AtomicU32);

// SAFETY: a sum of 1 means that the word was 0, which it is when nobody holds the lock and nobody has added since. Those
// who came too late have added to a word that is not 0. Fewer than 2^32 threads add before it is 0 again.
unsafe impl Lock for AddAndFetch {
    type Waiter = ();

    fn new() -> AddAndFetch {
        AddAndFetch(AtomicU32::new(0))
    }

    #[inline]
    fn hold<R>(&self, (): &mut (), work: impl FnOnce() -> R) -> R {
        let acquire = || loop {
            if self.0.load(Ordering::Relaxed) == 0 && self.0.fetch_add(1, Ordering::Acquire) == 0 {
                break;
            }
            spin_loop();
        };
        between(acquire, || self.0.store(0, Ordering::Release), work)
    }
}

/// Looks until it is free, and tries; when others have been quicker, pauses for a random while, of which the bound doubles
/// with each failure up to [`TestTestAndSet::MOST_PAUSES`] (Anderson, *The performance of spin lock alternatives for
/// shared-memory multiprocessors*, 1990, section IV).
#[derive(Debug)]
pub struct TestTestAndSet(AtomicBool);

impl TestTestAndSet {
    /// Most pauses after a failure. One takes about 40 cycles on some CPUs and 140 on others: so this is 1 to 3 us.
    pub const MOST_PAUSES: u32 = 64;
}

// SAFETY: as TestAndSet.
unsafe impl Lock for TestTestAndSet {
    type Waiter = fastrand::Rng;

    fn new() -> TestTestAndSet {
        TestTestAndSet(AtomicBool::new(false))
    }

    #[inline]
    fn hold<R>(&self, random: &mut fastrand::Rng, work: impl FnOnce() -> R) -> R {
        let acquire = || {
            let mut bound = 1;
            loop {
                while self.0.load(Ordering::Relaxed) {
                    spin_loop();
                }
                if !self.0.swap(true, Ordering::Acquire) {
                    break;
                }
                (0..random.u32(1..=bound)).for_each(|_| spin_loop());
                bound = (2 * bound).min(Self::MOST_PAUSES);
            }
        };
        between(acquire, || self.0.store(false, Ordering::Release), work)
    }
}

/// Each takes a number and waits until it is served: first come, first served.
#[derive(Debug)]
pub struct Ticket {
    next: AtomicU32,
    served: AtomicU32,
}

// SAFETY: no two threads that wait or work have the same number, as long as there are fewer than 2^32, and only the one
// whose number is served works; it alone serves the next.
unsafe impl Lock for Ticket {
    type Waiter = ();

    fn new() -> Ticket {
        Ticket { next: AtomicU32::new(0), served: AtomicU32::new(0) }
    }

    #[inline]
    fn hold<R>(&self, (): &mut (), work: impl FnOnce() -> R) -> R {
        let acquire = || {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            while self.served.load(Ordering::Acquire) != number {
                spin_loop();
            }
        };
        let release = || self.served.store(self.served.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        between(acquire, release, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_the_lock_free_draws_no_pause() {
        let mut random = fastrand::Rng::with_seed(7);
        let lock = TestTestAndSet::new();
        (0..100).for_each(|_| lock.hold(&mut random, || ()));
        assert_eq!(random, fastrand::Rng::with_seed(7));
    }
}
