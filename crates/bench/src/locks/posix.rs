//! The locks of POSIX threads.

use std::cell::UnsafeCell;

use super::{Lock, between};

/// Locking and unlocking fail only for those who do not keep the rules.
#[inline(always)]
fn did(errno: i32) {
    debug_assert_eq!(errno, 0, "a lock that is initialised and not ours yet");
}

/// A lock that POSIX forbids to move, on lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct InPlace<T>(UnsafeCell<T>);

/// `pthread_spin_lock(3)`, for the threads of one process.
#[derive(Debug)]
pub struct PthreadSpin(Box<InPlace<libc::pthread_spinlock_t>>);

// SAFETY: the lock is made for use by several threads, and nothing else touches the cell.
unsafe impl Send for PthreadSpin {}
// SAFETY: as above.
unsafe impl Sync for PthreadSpin {}

// SAFETY: POSIX: one thread at a time has the lock, and locking and unlocking synchronise memory.
unsafe impl Lock for PthreadSpin {
    type Waiter = ();

    fn new() -> PthreadSpin {
        let lock = Box::new(InPlace(UnsafeCell::new(0)));
        // SAFETY: the cell is ours alone and stays where it is; it is initialised once.
        let failed = unsafe { libc::pthread_spin_init(lock.0.get(), libc::PTHREAD_PROCESS_PRIVATE) };
        assert_eq!(failed, 0, "a private spin lock needs nothing that could be missing");
        PthreadSpin(lock)
    }

    #[inline]
    fn hold<R>(&self, (): &mut (), work: impl FnOnce() -> R) -> R {
        let lock = self.0.0.get();
        // SAFETY: it was initialised; this thread has not locked it.
        let acquire = || did(unsafe { libc::pthread_spin_lock(lock) });
        // SAFETY: this thread has locked it.
        between(acquire, || did(unsafe { libc::pthread_spin_unlock(lock) }), work)
    }
}

impl Drop for PthreadSpin {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and nobody holds it: who does borrows it.
        unsafe { libc::pthread_spin_destroy(self.0.0.get()) };
    }
}

/// `pthread_mutex_lock(3)` of the default kind, which sleeps when it has to wait.
#[derive(Debug)]
pub struct PthreadMutex(Box<InPlace<libc::pthread_mutex_t>>);

// SAFETY: the lock is made for use by several threads, and nothing else touches the cell.
unsafe impl Send for PthreadMutex {}
// SAFETY: as above.
unsafe impl Sync for PthreadMutex {}

// SAFETY: POSIX: one thread at a time has the lock, and locking and unlocking synchronise memory.
unsafe impl Lock for PthreadMutex {
    type Waiter = ();

    fn new() -> PthreadMutex {
        PthreadMutex(Box::new(InPlace(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))))
    }

    #[inline]
    fn hold<R>(&self, (): &mut (), work: impl FnOnce() -> R) -> R {
        let lock = self.0.0.get();
        // SAFETY: it was initialised where it is; this thread has not locked it.
        let acquire = || did(unsafe { libc::pthread_mutex_lock(lock) });
        // SAFETY: this thread has locked it.
        between(acquire, || did(unsafe { libc::pthread_mutex_unlock(lock) }), work)
    }
}

impl Drop for PthreadMutex {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and nobody holds it: who does borrows it.
        unsafe { libc::pthread_mutex_destroy(self.0.0.get()) };
    }
}
