//! How long one operation takes, by itself and among others.
//!
//! *Isolated*: the ticks of one operation between two readings of the clock, with an MFENCE before the second, because
//! neither RDTSCP nor, on some CPUs, SFENCE waits for write-backs. What the same takes with no operation at all is
//! subtracted. *Sustained*: the ticks of a batch, divided by the operations in it.

use crate::clock::ticks;
use crate::code::{self, Fence, Flush, Operation, Store};
use crate::memory::Memory;
use crate::pattern::{Pattern, Walk};

/// In which state lines are before they are stored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not in any cache.
    Cold,
    /// In the cache, as the medium has them.
    Clean,
    /// In the cache, and stored to since.
    Dirty,
    /// As the operation before has left them.
    Left,
}

/// What is measured of stores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stores {
    /// Which.
    pub operation: Operation,
    /// The state of the lines before.
    pub state: State,
    /// The order of the lines.
    pub pattern: Pattern,
    /// Bytes of the working set.
    pub len_bytes: usize,
}

/// Addresses of a batch: as many pages as a first-level TLB has, and no more lines than a first-level cache.
const BATCH: usize = 64;

impl Stores {
    /// Ticks of single operations, at least `count`, without what the measurement itself takes at the median; a time below
    /// that is none.
    ///
    /// # Panics
    /// If the CPU has not the instructions, or the memory is shorter than the working set.
    pub fn isolated(&self, memory: &mut Memory, count: usize, seed: u64) -> Vec<u64> {
        let empty = Operation { store: Store::Nothing, flush: Flush::None, fence: Fence::None };
        let mut nothing = self.times(memory, empty, count.min(1000), seed);
        nothing.sort_unstable();
        let overhead = nothing[nothing.len() / 2];
        let times = self.times(memory, self.operation, count, seed);
        times.into_iter().map(|ticks| ticks.saturating_sub(overhead)).collect()
    }

    fn times(&self, memory: &mut Memory, operation: Operation, count: usize, seed: u64) -> Vec<u64> {
        let mut walk = self.walk(memory, seed);
        let mut times = vec![0; count.next_multiple_of(BATCH)];
        for times in times.chunks_mut(BATCH) {
            let addresses = self.batch(memory, &mut walk, BATCH);
            prepare(self.state, &addresses);
            // SAFETY: whole lines of the memory, which is borrowed alone; whether the operation is available was asked.
            unsafe { code::isolated(operation, &addresses, times) };
        }
        times
    }

    /// Ticks of an operation among `batch` others, of each of so many batches.
    ///
    /// # Panics
    /// As [`Stores::isolated`].
    pub fn sustained(&self, memory: &mut Memory, batches: usize, batch: usize, seed: u64) -> Vec<f64> {
        let mut walk = self.walk(memory, seed);
        let time = |_| {
            let addresses = self.batch(memory, &mut walk, batch);
            prepare(self.state, &addresses);
            let start = ticks();
            // SAFETY: as in `times`.
            unsafe { code::sustained(self.operation, &addresses) };
            code::wait();
            (ticks() - start) as f64 / batch as f64
        };
        (0..batches).map(time).collect()
    }

    fn walk(&self, memory: &Memory, seed: u64) -> Walk {
        assert!(self.operation.is_available(), "this CPU has no {:?}", self.operation);
        assert!(self.len_bytes <= memory.len_bytes(), "{} bytes of {}", self.len_bytes, memory.len_bytes());
        Walk::new(self.pattern, self.len_bytes / 64, seed)
    }

    fn batch(&self, memory: &Memory, walk: &mut Walk, count: usize) -> Vec<*mut u8> {
        (0..count).map(|_| memory.base().wrapping_add(64 * walk.next_line())).collect()
    }
}

/// Brings lines into a state.
fn prepare(state: State, addresses: &[*mut u8]) {
    let run = |store, flush| {
        // SAFETY: the caller's lines; the instructions are those of every x86-64 CPU.
        unsafe { code::sustained(Operation { store, flush, fence: Fence::None }, addresses) };
        code::wait();
    };
    if state == State::Left {
        return;
    }
    run(Store::Nothing, Flush::Clflush);
    if state != State::Cold {
        // SAFETY: as above.
        addresses.iter().for_each(|address| _ = unsafe { address.read_volatile() });
    }
    if state == State::Dirty {
        run(Store::Mov8, Flush::None);
    }
    code::wait();
}
