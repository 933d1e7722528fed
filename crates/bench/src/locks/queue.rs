//! The queue lock of Mellor-Crummey and Scott: each thread spins on a line of its own.

use std::hint::spin_loop;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::{Lock, between};

/// What a thread waits with: a line on which it spins, and who comes after it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Waiter {
    next: AtomicPtr<Waiter>,
    must_wait: AtomicBool,
}

/// A lock that is handed on along a queue.
///
/// # Invariants
/// 1. The tail is null when the lock is free, and else the last waiter of the queue, whose first works.
/// 2. A waiter is in one queue at most, and lives until it has left it: it is borrowed by its `hold`.
#[derive(Debug)]
#[repr(align(128))]
pub struct Mcs(AtomicPtr<Waiter>);

impl Mcs {
    #[inline]
    fn acquire(&self, waiter: &Waiter) {
        waiter.next.store(ptr::null_mut(), Ordering::Relaxed);
        waiter.must_wait.store(true, Ordering::Relaxed);
        let last = self.0.swap(ptr::from_ref(waiter).cast_mut(), Ordering::AcqRel);
        // SAFETY: null, or a waiter in the queue (invariant 2), which leaves it only after it has seen who comes next: us.
        let Some(last) = (unsafe { last.as_ref() }) else { return };
        last.next.store(ptr::from_ref(waiter).cast_mut(), Ordering::Release);
        while waiter.must_wait.load(Ordering::Acquire) {
            spin_loop();
        }
    }

    #[inline]
    fn release(&self, waiter: &Waiter) {
        let this = ptr::from_ref(waiter).cast_mut();
        let is_last = waiter.next.load(Ordering::Acquire).is_null()
            && self.0.compare_exchange(this, ptr::null_mut(), Ordering::Release, Ordering::Relaxed).is_ok();
        if is_last {
            return;
        }
        // Somebody has become the tail since and is about to say so.
        let next = loop {
            let next = waiter.next.load(Ordering::Acquire);
            // SAFETY: null, or the waiter behind this one, which waits until it is told.
            if let Some(next) = unsafe { next.as_ref() } {
                break next;
            }
            spin_loop();
        };
        next.must_wait.store(false, Ordering::Release);
    }
}

// SAFETY: only the first of the queue works. It is the one that found the queue empty, or was told by the one before it,
// after that one's work.
unsafe impl Lock for Mcs {
    type Waiter = Waiter;

    fn new() -> Mcs {
        Mcs(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline]
    fn hold<R>(&self, waiter: &mut Waiter, work: impl FnOnce() -> R) -> R {
        let waiter: &Waiter = waiter;
        between(|| self.acquire(waiter), || self.release(waiter), work)
    }
}
