//! How long one operation takes, by itself and among others.
//!
//! *Isolated*: the ticks of one operation between two readings of the clock, with an MFENCE before the second, because
//! neither RDTSCP nor, on some CPUs, SFENCE waits for write-backs; on 64-bit Arm with a DSB. What the same takes with no operation at all is
//! subtracted. *Sustained*: the ticks of a batch, divided by the operations in it.

use std::collections::BTreeMap;

use pmem::{DeviceClock, DeviceProfile};
use report::Samples;

use crate::clock::{Clock, ticks};
use crate::code::{self, Access, Fence, Flush, Operation, Store};
use crate::error::{Error, Result};
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Memory;
use crate::model::{self, Program, Touch};
use crate::names::names;
use crate::pattern::{Pattern, Walk};
use crate::site::Site;

/// The measurement `latency`.
#[derive(Debug)]
pub struct Latency;

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

names!(State { Cold = "cold", Clean = "clean", Dirty = "dirty", Left = "left" });

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
/// Isolated operations of a sample.
const ISOLATED: usize = 2048;
/// Operations between two readings of the clock: as many lines as a first-level cache has, when they are brought into a state
/// before, and else so many that reading the clock takes less than a hundredth.
const PREPARED: usize = 512;
const AS_LEFT: usize = 16384;
/// Batches of a sample.
const BATCHES: usize = 5;

impl Measure for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn about(&self) -> &'static str {
        "how long a store, its write-back and its fence take, by themselves and among others"
    }

    fn keys(&self) -> &'static [Key] {
        const KEYS: [Key; 8] = [
            Key::MEMORY,
            Key::PAGES,
            Key { name: "store", about: "how bytes are stored", form: Store::FORM, default: "mov8" },
            Key { name: "flush", about: "what starts their write-back", form: Flush::FORM, default: "none" },
            Key { name: "fence", about: "what waits for them", form: Fence::FORM, default: "none" },
            Key {
                name: "state",
                about: "how lines are before: in no cache, clean, dirty, or as the operation before left them",
                form: Form::Choice(&State::NAMES),
                default: "left",
            },
            Key { name: "order", about: "the order of the lines", form: Form::Order, default: "sequential" },
            Key {
                name: "size",
                about: "bytes of the working set",
                form: Form::Bytes { multiple_of: 64 },
                default: "16Mi",
            },
        ];
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 4] = [
            Metric {
                name: "sustained",
                unit: "ns",
                better: Better::Less,
                about: "time of a batch, divided by its operations",
            },
            Metric {
                name: "isolated",
                unit: "ns",
                better: Better::Less,
                about: "median time of one operation between two readings of the clock, without theirs",
            },
            Metric {
                name: "sustained-ticks",
                unit: "ticks",
                better: Better::Less,
                about: "the same in ticks of the counter",
            },
            Metric {
                name: "isolated-ticks",
                unit: "ticks",
                better: Better::Less,
                about: "the same in ticks of the counter",
            },
        ];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        let stores = Stores::of(cell);
        if let Some(name) = stores.operation.missing() {
            return Err(Error::unavailable(format!("this CPU has no {name}")));
        }
        if stores.state != State::Left && Flush::evicting().is_none() {
            return Err(Error::unavailable("nothing takes a line out of the cache of this CPU".into()));
        }
        let operations = ISOLATED + stores.batch_len() * BATCHES;
        let written_bytes = (operations * stores.operation.store.len_bytes()) as u64;
        Ok(Needs {
            memory_bytes: stores.len_bytes,
            threads: 1,
            written_bytes,
            sample_ns: 500 * operations as u64,
            ..Needs::default()
        })
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let clock = Clock::get();
        let stores = Stores::of(cell);
        let memory = site.memory(cell)?;
        let isolated = stores.isolated(memory, ISOLATED, seed);
        let batch = stores.batch_len();
        let sustained = median(stores.sustained(memory, BATCHES, batch, seed));
        let overhead = clock.pair_ticks as f64 / (batch as f64 * sustained).max(1.0);
        let sustained = (sustained - clock.pair_ticks as f64 / batch as f64).max(0.0);
        let one =
            Some(median(isolated.iter().map(|&ticks| ticks as f64).collect())).filter(|&ticks| clock.resolves(ticks));
        let values = vec![Some(clock.ns(sustained)), one.map(|ticks| clock.ns(ticks)), Some(sustained), one];
        let mut ticks = BTreeMap::new();
        isolated.into_iter().for_each(|time| *ticks.entry(time).or_default() += 1);
        Ok(Sample { values, ticks, overhead })
    }

    fn model(&self, cell: &Cell, device: &'static DeviceProfile, seed: u64) -> Result<Sample> {
        let stores = Stores::of(cell);
        let touch = stores.touch(device)?;
        let lines = || Walk::new(stores.pattern, stores.len_bytes / 64, seed);
        let mut walk = lines();
        // Each finds the device idle.
        let isolated = (0..64).map(|_| touch.run_on(&mut DeviceClock::new(device), 0.0, 64 * walk.next_line() as u64));
        let isolated = median(isolated.collect());
        let mut walk = lines();
        let sustained: Program<'_> =
            Box::new(move |clock, now_ns| (touch.run(clock, now_ns, 64 * walk.next_line() as u64), 1));
        let done = model::simulate(device, vec![sustained]);
        Ok(Sample { values: vec![Some(1e9 / done[0].per_second()), Some(isolated), None, None], ..Sample::default() })
    }
}

fn median(values: Vec<f64>) -> f64 {
    Samples::new(values).expect("times are finite, and there are some").median()
}

impl Stores {
    fn of(cell: &Cell) -> Stores {
        let operation = Operation {
            store: Store::named(cell.word("store")),
            flush: Flush::named(cell.word("flush")),
            fence: Fence::named(cell.word("fence")),
        };
        Stores {
            operation,
            state: State::named(cell.word("state")),
            pattern: cell.order(),
            len_bytes: cell.len("size"),
        }
    }

    /// What a device has to do for one.
    fn touch(&self, device: &DeviceProfile) -> Result<Touch> {
        let Operation { store, flush, fence } = self.operation;
        let access = match (store, flush) {
            (Store::NonTemporal8 | Store::NonTemporal16 | Store::NonTemporal32 | Store::NonTemporal64, _) => {
                Access::NonTemporal
            }
            (Store::Movdiri | Store::Movdir64b, _) => Access::Movdir64b,
            (_, Flush::None) => Access::Store,
            (_, Flush::Clflush) => Access::Clflush,
            (_, Flush::Clflushopt) => Access::Clflushopt,
            (_, Flush::Clwb) => Access::Clwb,
            (_, Flush::CleanPoC | Flush::CleanInvalidate) => Access::CleanPoC,
            (_, Flush::CleanPoP) => Access::CleanPoP,
            (_, Flush::CleanPoDP) => Access::CleanPoDP,
        };
        Touch::new(device, access, fence, 64, false)
    }

    /// Operations of a batch.
    fn batch_len(&self) -> usize {
        if self.state == State::Left { AS_LEFT } else { PREPARED.min(self.len_bytes / 64) }
    }

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
///
/// # Panics
/// If that is another than [`State::Left`] and nothing takes a line out of the cache.
fn prepare(state: State, addresses: &[*mut u8]) {
    let run = |store, flush| {
        // SAFETY: the caller's lines; the CPU has the instructions.
        unsafe { code::sustained(Operation { store, flush, fence: Fence::None }, addresses) };
        code::wait();
    };
    if state == State::Left {
        return;
    }
    run(Store::Nothing, Flush::evicting().expect("`needs` asked"));
    if state != State::Cold {
        // SAFETY: as above.
        addresses.iter().for_each(|address| _ = unsafe { address.read_volatile() });
    }
    if state == State::Dirty {
        run(Store::Mov8, Flush::None);
    }
    code::wait();
}
