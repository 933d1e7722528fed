//! Locks, and what it takes when several threads want the same.
//!
//! The first four are those of Yoshioka, Goda and Kitsuregawa, *Design and implementation of a microbenchmark for
//! non-volatile memory performance* (in Japanese), section 3.2.2: the spin lock and the mutex of POSIX threads, a naive
//! test-and-set, and an add-and-fetch that is tried only when the lock looks free, with a pause otherwise. The others are
//! what has been found against their collapse: Mellor-Crummey and Scott, *Algorithms for scalable synchronization on
//! shared-memory multiprocessors*, 1991.
//!
//! A lock of the spinning kinds takes a CPU from the thread that it waits for when there are more threads than CPUs: the
//! system then decides when that one runs again. The ticket and the queue lock pass the lock to one certain thread, so that
//! each hand-over may wait for the end of a time slice. Nothing here gives way, because a lock that does is another lock.

mod bit;
mod contention;
mod measured;
mod posix;
mod queue;
mod spin;

pub use bit::{Bit, hold_bit};
pub use contention::{Contention, Shares};
pub use measured::Locks;
pub use posix::{PthreadMutex, PthreadSpin};
pub use queue::{Mcs, Waiter};
pub use spin::{AddAndFetch, TestAndSet, TestTestAndSet, Ticket};

use crate::names::names;

/// Lets one thread at a time do something.
///
/// # Safety
/// An implementation never lets the work of two [`Lock::hold`] of the same lock overlap, and what one work has written is
/// visible to the next.
pub unsafe trait Lock: Send + Sync {
    /// What a thread brings to wait with; nothing for most.
    type Waiter: Default + Send;

    /// A free lock.
    fn new() -> Self;

    /// Waits for the lock, does the work, and frees the lock, also when the work panics. The work must not want the same
    /// lock.
    fn hold<R>(&self, waiter: &mut Self::Waiter, work: impl FnOnce() -> R) -> R;
}

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `pthread_spin_lock(3)`.
    PthreadSpin,
    /// `pthread_mutex_lock(3)`.
    PthreadMutex,
    /// [`TestAndSet`].
    Tas,
    /// [`AddAndFetch`].
    Aaf,
    /// [`TestTestAndSet`].
    Ttas,
    /// [`Ticket`].
    Ticket,
    /// [`Mcs`].
    Mcs,
    /// [`Bit`].
    Bit,
}

// The first four are the paper's.
names!(Kind {
    PthreadSpin = "pthread-spin",
    PthreadMutex = "pthread-mutex",
    Tas = "tas",
    Aaf = "aaf",
    Ttas = "ttas",
    Ticket = "ticket",
    Mcs = "mcs",
    Bit = "bit",
});

impl Kind {
    /// Whether it goes to one certain thread next, which may not have a CPU.
    pub fn is_handed_on(self) -> bool {
        matches!(self, Kind::Ticket | Kind::Mcs)
    }
}

/// An expression for the type of lock that a [`Kind`] says.
macro_rules! with_lock {
    ($kind:expr, $lock:ident => $of:expr) => {{
        use $crate::locks::*;
        match $kind {
            Kind::PthreadSpin => {
                type $lock = PthreadSpin;
                $of
            }
            Kind::PthreadMutex => {
                type $lock = PthreadMutex;
                $of
            }
            Kind::Tas => {
                type $lock = TestAndSet;
                $of
            }
            Kind::Aaf => {
                type $lock = AddAndFetch;
                $of
            }
            Kind::Ttas => {
                type $lock = TestTestAndSet;
                $of
            }
            Kind::Ticket => {
                type $lock = Ticket;
                $of
            }
            Kind::Mcs => {
                type $lock = Mcs;
                $of
            }
            Kind::Bit => {
                type $lock = Bit;
                $of
            }
        }
    }};
}
pub(crate) use with_lock;

/// Does the work after one thing and before another, which is done when the work panics, too.
#[inline(always)]
fn between<R>(acquire: impl FnOnce(), release: impl FnMut(), work: impl FnOnce() -> R) -> R {
    struct Release<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Release<F> {
        #[inline(always)]
        fn drop(&mut self) {
            (self.0)();
        }
    }
    acquire();
    let _release = Release(release);
    work()
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;
    use crate::crew;

    struct Counted<L> {
        lock: L,
        /// Protected by the lock, and no atomics, so that an overlap loses counts: two words that agree whenever the lock is
        /// taken.
        words: UnsafeCell<[u64; 2]>,
    }

    // SAFETY: the words are touched with the lock held only.
    unsafe impl<L: Lock> Sync for Counted<L> {}

    fn count<L: Lock>(threads: usize, each: u64) {
        let counted = Counted { lock: L::new(), words: UnsafeCell::new([0; 2]) };
        let worker = || {
            let counted = &counted;
            move || {
                let mut waiter = L::Waiter::default();
                for _ in 0..each {
                    counted.lock.hold(&mut waiter, || {
                        // SAFETY: the lock is held.
                        let words = unsafe { &mut *counted.words.get() };
                        assert_eq!(words[0], words[1]);
                        words[0] = std::hint::black_box(words[0]) + 1;
                        std::hint::spin_loop();
                        words[1] = std::hint::black_box(words[1]) + 1;
                    });
                }
            }
        };
        crew::once_together((0..threads).map(|_| worker()).collect()).unwrap();
        assert_eq!(counted.words.into_inner(), [threads as u64 * each; 2]);
    }

    #[test]
    fn no_two_threads_hold_a_lock_of_any_kind() {
        for kind in Kind::ALL {
            // More threads than CPUs hand over at the ends of time slices, so these do less.
            for (threads, each) in [(1, 10_000), (2, 10_000), (5, 20)] {
                with_lock!(kind, L => count::<L>(threads, each));
            }
        }
    }

    #[test]
    fn a_panic_frees_the_lock() {
        fn panics<L: Lock>() {
            let lock = L::new();
            let mut waiter = L::Waiter::default();
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                lock.hold(&mut waiter, || std::panic::resume_unwind(Box::new(1)));
            }));
            assert!(caught.is_err());
            assert_eq!(lock.hold(&mut waiter, || 7), 7);
        }
        for kind in Kind::ALL {
            with_lock!(kind, L => panics::<L>());
        }
    }
}
