//! Populating a mapping ahead of use, by threads of its own.
//!
//! The first store to a page costs several times as much as the copy that follows. Pre-faulting pays this before
//! anybody waits for it: at open, and after growth.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::error::{Error, Result};
use crate::media::{MediaMap, Touch};

/// One request to the kernel: long enough to be efficient, short enough to cancel in some 5 ms, and so that several
/// threads end together.
const STEP_BYTES: u64 = 16 << 20;

/// A pre-fault under way. Dropping it cancels what has not begun and waits for the rest.
#[derive(Debug)]
pub struct Prefault {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// How far a pre-fault has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefaultProgress {
    /// Bytes populated.
    pub done_bytes: u64,
    /// Bytes asked for.
    pub total_bytes: u64,
}

#[derive(Debug)]
struct Shared {
    range: Range<u64>,
    next_bytes: AtomicU64,
    done_bytes: AtomicU64,
    stop: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl Prefault {
    /// Starts `threads` threads that populate `range` of the mapping. Content does not change, and others may use
    /// the mapping meanwhile.
    ///
    /// # Errors
    /// `Unsupported` when not one thread can be started.
    ///
    /// # Panics
    /// If the range is not inside the mapping, or there are no threads.
    pub fn start<P: MediaMap>(map: &Arc<P>, range: Range<u64>, touch: Touch, threads: usize) -> Result<Prefault> {
        assert!(range.start <= range.end && range.end <= map.len_bytes(), "{range:?} is outside the mapping");
        assert!(threads > 0, "pre-faulting needs a thread");
        let steps = (range.end - range.start).div_ceil(STEP_BYTES) as usize;
        let shared = Arc::new(Shared {
            next_bytes: AtomicU64::new(range.start),
            range,
            done_bytes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
        });
        let mut workers = Vec::new();
        for _ in 0..threads.min(steps) {
            let (map, shared) = (Arc::clone(map), Arc::clone(&shared));
            let worker = std::thread::Builder::new().name("remanent-prefault".to_owned());
            match worker.spawn(move || shared.work(&*map, touch)) {
                Ok(worker) => workers.push(worker),
                Err(_) if !workers.is_empty() => break, // the others do its steps
                Err(_) => {
                    let reason = "the system starts no more threads; raise the limit of processes";
                    return Err(Error::Unsupported { what: "pre-faulting", reason });
                }
            }
        }
        Ok(Prefault { shared, workers })
    }

    /// How far it has come; may be asked at any time.
    pub fn progress(&self) -> PrefaultProgress {
        let Range { start, end } = self.shared.range;
        PrefaultProgress { done_bytes: self.shared.done_bytes.load(Ordering::Relaxed), total_bytes: end - start }
    }

    /// Whether all threads have ended, so that [`Prefault::join`] returns at once.
    pub fn is_finished(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The first that a thread met: see [`MediaMap::guard`]. The others stop then.
    pub fn join(mut self) -> Result<()> {
        self.wait();
        let failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Ok(()), Err)
    }

    fn wait(&mut self) {
        for worker in self.workers.drain(..) {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Prefault {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            // A panic in a cancelled pre-fault has been printed; a second one here would end the process.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn work<P: MediaMap>(&self, map: &P, touch: Touch) {
        while !self.stop.load(Ordering::Relaxed) {
            let start_bytes = self.next_bytes.fetch_add(STEP_BYTES, Ordering::Relaxed);
            if start_bytes >= self.range.end {
                return;
            }
            let step_bytes = STEP_BYTES.min(self.range.end - start_bytes);
            match map.guard(start_bytes, step_bytes, touch) {
                Ok(()) => _ = self.done_bytes.fetch_add(step_bytes, Ordering::Relaxed),
                Err(error) => {
                    self.stop.store(true, Ordering::Relaxed);
                    self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        }
    }
}
