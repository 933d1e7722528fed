//! Pins: which catalogue generations somebody still reads.
//!
//! A pin of another process is a shared OFD lock on one byte of the pool's first file, far past its end: byte
//! `GENERATIONS_AT + generation`. So there is no table to keep, no limit to the number of readers, and a pin falls
//! with its process. A reader that does not know its generation yet pins them all (byte `GENERATIONS_AT`), reads the
//! catalogue, pins what it has read, and lets go of the rest: no reclaim can come between.
//!
//! Pins of the writer's own process are counted in memory. A forked child inherits the counts and leaves them as they
//! are: a thread that was counting at that moment never ends there, and what the child has inherited is pinned by locks.
//! So its own children pin what it has inherited, also if it has let go of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::Result;
use crate::media::{LockKind, MediaFile};
use crate::process::process_id;

/// The writer's lock.
pub(crate) const WRITER_AT: u64 = 1 << 61;
/// Generation 0, which pins everything; generation g lies g bytes further.
const GENERATIONS_AT: u64 = (1 << 61) + (1 << 32);

/// The byte whose lock pins a generation.
pub(crate) fn byte_of(generation: u64) -> std::ops::Range<u64> {
    GENERATIONS_AT + generation..GENERATIONS_AT + generation + 1
}

/// The pins of one open pool.
pub(crate) struct Pins<F: MediaFile> {
    file: Arc<F>,
    own: Arc<Counts>,
    /// Generations that are locked against other processes.
    locked: Mutex<BTreeSet<u64>>,
}

/// Keeps a generation from being reclaimed while it lives. Clones count as well.
pub struct Pin {
    generation: u64,
    own: Arc<Counts>,
}

/// How many pins each generation has in the process that opened the pool.
struct Counts {
    /// The system's number of the process, also where the media simulate several: those share their threads.
    process_id: u32,
    pins: Mutex<BTreeMap<u64, usize>>,
}

impl Counts {
    fn new() -> Counts {
        Counts { process_id: process_id(), pins: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.pins.lock().expect("counting cannot panic")
    }

    /// Changes the counts, but for a forked child, which must not wait for the lock.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<u64, usize>)) {
        if process_id() == self.process_id {
            change(&mut self.lock());
        }
    }
}

impl Pin {
    /// The generation that is pinned.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pin({})", self.generation)
    }
}

impl Clone for Pin {
    fn clone(&self) -> Pin {
        self.own.change(|pins| *pins.entry(self.generation).or_default() += 1);
        Pin { generation: self.generation, own: self.own.clone() }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.own.change(|pins| {
            if let Some(count) = pins.get_mut(&self.generation) {
                *count -= 1;
                if *count == 0 {
                    pins.remove(&self.generation);
                }
            }
        });
    }
}

impl<F: MediaFile> Pins<F> {
    pub(crate) fn new(file: Arc<F>) -> Pins<F> {
        Pins { file, own: Arc::new(Counts::new()), locked: Mutex::default() }
    }

    /// Pins a generation within this process. Pools have refused a forked child before.
    pub(crate) fn pin(&self, generation: u64) -> Pin {
        *self.own.lock().entry(generation).or_default() += 1;
        Pin { generation, own: self.own.clone() }
    }

    /// Pins every generation against a writer in another process; see the module.
    pub(crate) fn lock_all(&self) -> Result<bool> {
        self.file.try_lock(LockKind::Shared, GENERATIONS_AT..GENERATIONS_AT + 1)
    }

    /// Lets go of [`Pins::lock_all`].
    pub(crate) fn unlock_all(&self) -> Result<()> {
        self.file.unlock(GENERATIONS_AT..GENERATIONS_AT + 1)
    }

    /// Pins a generation against a writer in another process, as long as the file stays open.
    pub(crate) fn lock(&self, generation: u64) -> Result<bool> {
        self.locked.lock().expect("counting cannot panic").insert(generation);
        self.file.try_lock(LockKind::Shared, byte_of(generation))
    }

    /// Lets go of the locks on generations that this process pins no more, but for `generation`.
    pub(crate) fn unlock_all_but(&self, generation: u64) -> Result<()> {
        let own = self.own();
        let mut locked = self.locked.lock().expect("counting cannot panic");
        let idle: Vec<u64> = locked.iter().copied().filter(|g| *g != generation && !own.contains(g)).collect();
        for g in idle {
            self.file.unlock(byte_of(g))?;
            locked.remove(&g);
        }
        Ok(())
    }

    /// The generations that this process pins, oldest first.
    pub(crate) fn own(&self) -> Vec<u64> {
        self.own.lock().keys().copied().collect()
    }

    /// As [`Pins::own`], without waiting: in a forked child whoever counted at that moment never ends.
    pub(crate) fn try_own(&self) -> Option<Vec<u64>> {
        self.own.pins.try_lock().ok().map(|own| own.keys().copied().collect())
    }

    /// Whether another process pins a generation below `limit`, or is about to pin one that it does not know yet.
    pub(crate) fn others_pin_below(&self, limit: u64) -> Result<bool> {
        Ok(limit > 0 && self.file.find_lock(GENERATIONS_AT..GENERATIONS_AT + limit)?.is_some())
    }

    /// The oldest generation that anybody pins below `limit`.
    pub(crate) fn oldest_below(&self, limit: u64) -> Result<Option<u64>> {
        let own = self.own.lock().keys().next().copied().filter(|&g| g < limit);
        let mut end = GENERATIONS_AT + own.unwrap_or(limit);
        let mut oldest = own;
        // The kernel names some conflicting lock, not the first; each answer shortens the range.
        while end > GENERATIONS_AT
            && let Some(at) = self.file.find_lock(GENERATIONS_AT..end)?
        {
            oldest = Some(at.max(GENERATIONS_AT) - GENERATIONS_AT);
            end = at;
        }
        Ok(oldest)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Counts as a forked child sees them: those of another process, locked by a thread that is not there.
    #[test]
    fn a_forked_child_clones_and_drops_pins_without_waiting_for_whoever_counted_at_the_fork() {
        let process_id = process_id().wrapping_add(1);
        let own = Arc::new(Counts { process_id, pins: Mutex::new(BTreeMap::from([(7, 1)])) });
        let pin = Pin { generation: 7, own: own.clone() };
        let counting = own.lock();
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            drop(pin.clone());
            drop(pin);
            done.send(()).expect("the test waits");
        });
        is_done.recv_timeout(Duration::from_secs(60)).expect("it waits for nobody");
        assert_eq!(*counting, BTreeMap::from([(7, 1)]), "its own children pin what it has inherited");
    }

    #[test]
    fn in_their_own_process_clones_count_as_well() {
        let own = Arc::new(Counts::new());
        own.change(|pins| *pins.entry(7).or_default() += 1);
        let pin = Pin { generation: 7, own: own.clone() };
        let clone = pin.clone();
        assert_eq!(*own.lock(), BTreeMap::from([(7, 2)]));
        drop(pin);
        assert_eq!(*own.lock(), BTreeMap::from([(7, 1)]));
        drop(clone);
        assert!(own.lock().is_empty());
    }
}
