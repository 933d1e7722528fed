//! Pins: which catalogue generations somebody still reads.
//!
//! A pin of another process is a shared OFD lock on one byte of the pool's first file, far past its end: byte
//! `GENERATIONS_AT + generation`. So there is no table to keep, no limit to the number of readers, and a pin falls
//! with its process. A reader that does not know its generation yet pins them all (byte `GENERATIONS_AT`), reads the
//! catalogue, pins what it has read, and lets go of the rest: no reclaim can come between.
//!
//! Pins of the writer's own process are counted in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::error::Result;
use crate::media::{LockKind, MediaFile};

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
    own: Arc<Mutex<BTreeMap<u64, usize>>>,
    /// Generations that are locked against other processes.
    locked: Mutex<BTreeSet<u64>>,
}

/// Keeps a generation from being reclaimed while it lives. Clones count as well.
pub struct Pin {
    generation: u64,
    own: Arc<Mutex<BTreeMap<u64, usize>>>,
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
        *self.own.lock().expect("counting cannot panic").entry(self.generation).or_default() += 1;
        Pin { generation: self.generation, own: self.own.clone() }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut own = self.own.lock().expect("counting cannot panic");
        if let Some(count) = own.get_mut(&self.generation) {
            *count -= 1;
            if *count == 0 {
                own.remove(&self.generation);
            }
        }
    }
}

impl<F: MediaFile> Pins<F> {
    pub(crate) fn new(file: Arc<F>) -> Pins<F> {
        Pins { file, own: Arc::default(), locked: Mutex::default() }
    }

    /// Pins a generation within this process.
    pub(crate) fn pin(&self, generation: u64) -> Pin {
        *self.own.lock().expect("counting cannot panic").entry(generation).or_default() += 1;
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
        self.own.lock().expect("counting cannot panic").keys().copied().collect()
    }

    /// As [`Pins::own`], without waiting: in a forked child whoever counted at that moment never ends.
    pub(crate) fn try_own(&self) -> Option<Vec<u64>> {
        self.own.try_lock().ok().map(|own| own.keys().copied().collect())
    }

    /// The oldest generation that anybody pins below `limit`.
    pub(crate) fn oldest_below(&self, limit: u64) -> Result<Option<u64>> {
        let own = self.own.lock().expect("counting cannot panic").keys().next().copied().filter(|&g| g < limit);
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
