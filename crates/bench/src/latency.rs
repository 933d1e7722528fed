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
use crate::crew;
use crate::error::{Error, Result};
use crate::machine;
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Memory;
use crate::model::{self, Program, Touch};
use crate::names::names;
use crate::pattern::{Pattern, Walk};
use crate::prefetchers;
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
/// Operations between two readings of the clock: as many lines as half a first-level cache has, or its sets have room for, when they are
/// brought into a state before, and else so many that reading the clock takes less than a hundredth.
const PREPARED: usize = 256;
const AS_LEFT: usize = 16384;
/// Bytes of which lines in random order are far enough apart that hardly any is the neighbour of one that was just met, with
/// which a prefetcher brings it.
const LEAST_COLD_BYTES: usize = 2 << 20;
/// Sets of a first-level cache, as many as a page has lines, and lines that one has room for, at least.
const SETS: usize = 64;
const WAYS: usize = 8;
/// Prefetchers do not leave a page.
const PAGE_BYTES: usize = 4096;
const NOTHING: Operation = Operation { store: Store::Nothing, flush: Flush::None, fence: Fence::None };
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
                about: "how lines are before: in no cache (in an order that no prefetcher follows, such as random), clean, dirty, or as the operation before left them",
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
        stores.pattern.check(64)?;
        stores.check_state()?;
        let operations = stores.settling() + ISOLATED + stores.batch_len() * BATCHES;
        let written_bytes = (operations * stores.operation.store.len_bytes()) as u64;
        Ok(Needs {
            memory_bytes: stores.len_bytes,
            threads: 1,
            written_bytes,
            sample_ns: 500 * operations as u64,
            ..Needs::default()
        })
    }

    fn clock_steps(&self, _cell: &Cell, metric: &str) -> f64 {
        if ["isolated", "isolated-ticks"].contains(&metric) { 1.0 } else { 0.0 }
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let clock = Clock::get();
        let stores = Stores::of(cell);
        let memory = site.memory(cell)?;
        let _alone = crew::alone()?;
        let mut walk = stores.settle(memory, seed);
        let isolated = stores.isolated(memory, &mut walk, ISOLATED);
        let batch = stores.batch_len();
        let sustained = median(stores.sustained(memory, &mut walk, BATCHES, batch));
        // The loop over the addresses runs beside the stores where these are waited for, and so is not subtracted.
        let empty = Stores { operation: NOTHING, state: State::Left, ..stores };
        let around = median(empty.sustained(memory, &mut walk, BATCHES, batch));
        let overhead = (around / sustained.max(1.0 / batch as f64)).min(1.0);
        let sustained = (sustained - clock.pair_ticks as f64 / batch as f64).max(0.0);
        let ticks = counts(isolated);
        let one = told(clock, &ticks);
        let values = vec![Some(clock.ns(sustained)), one.map(|ticks| clock.ns(ticks)), Some(sustained), one];
        Ok(Sample { values, ticks, overhead: Some(overhead) })
    }

    fn model(&self, cell: &Cell, device: &'static DeviceProfile, seed: u64) -> Result<Sample> {
        let stores = Stores::of(cell);
        if stores.state != State::Left {
            let state = stores.state.name();
            return Err(Error::unavailable(format!(
                "state {state}: a device that is modelled has no caches of the CPU"
            )));
        }
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

/// How often each of these times came.
pub(crate) fn counts(times: Vec<u64>) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    times.into_iter().for_each(|ticks| *counts.entry(ticks).or_default() += 1);
    counts
}

/// The median of single times, by how often each came; none where there are no times. It is 0 where the clock cannot tell
/// it from none: a sample that was left out for being short would make those that are left too long.
pub(crate) fn told(clock: &Clock, counts: &BTreeMap<u64, u64>) -> Option<f64> {
    let all: u64 = counts.values().sum();
    let at = |rank: u64| {
        let mut so_far = 0;
        let is_at = |(_, count): &(&u64, &u64)| {
            so_far += **count;
            so_far > rank
        };
        counts.iter().find(is_at).map(|(ticks, _)| *ticks as f64)
    };
    // Of an even number the middle of the two in the middle.
    let median = (at(all.saturating_sub(1) / 2)? + at(all / 2)?) / 2.0;
    Some(if clock.resolves(median) { median } else { 0.0 })
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

    /// # Errors
    /// `Unavailable` when lines cannot be in that state: those of a batch are brought into it at once, so that one that comes
    /// again is as the operation before has left it, one that a prefetcher brings is not cold, and of those that share a set of
    /// the cache few are in it.
    fn check_state(&self) -> Result<()> {
        let refused = |what: String| Err(Error::unavailable(format!("state {}: {what}", self.state.name())));
        match (self.state, self.pattern) {
            (State::Left, _) => Ok(()),
            (_, Pattern::SameLine | Pattern::Zipf(_)) => refused("lines that come again are as they were left".into()),
            (State::Clean | State::Dirty, Pattern::Stride(bytes)) if WAYS * sets(bytes) < BATCH => {
                let sets = sets(bytes);
                refused(format!(
                    "lines {bytes} bytes apart lie in {sets} of {SETS} sets of the cache, which have no room for {BATCH} of them"
                ))
            }
            (State::Cold, pattern) if !self.is_cold(pattern, prefetchers::state) => refused(
                "prefetchers bring lines of this order; ask for random, a larger size in strides of pages, or --no-prefetchers"
                    .into(),
            ),
            (State::Cold, _) if self.len_bytes < LEAST_COLD_BYTES => {
                refused(format!("prefetchers bring neighbours in less than {LEAST_COLD_BYTES} bytes"))
            }
            _ if self.len_bytes < 64 * BATCH => {
                refused(format!("{} bytes are less than {BATCH} lines", self.len_bytes))
            }
            _ => Ok(()),
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

    /// Whether lines stay out of the caches until they are stored to: no prefetcher follows an order that is random, or that leaves the
    /// page at every step. Each row of a stride begins beside the one before, of which a prefetcher brings the neighbours: no line
    /// may come in the same batch as that beside it.
    fn is_cold(&self, pattern: Pattern, prefetchers: impl FnOnce() -> &'static str) -> bool {
        match pattern {
            Pattern::Stride(bytes) if bytes > PAGE_BYTES && self.len_bytes / bytes >= self.batch_len() => true,
            Pattern::Sequential | Pattern::Stride(_) => prefetchers() == "off",
            _ => true,
        }
    }

    /// Operations of a batch.
    fn batch_len(&self) -> usize {
        let most = match (self.state, self.pattern) {
            (State::Left, _) => return AS_LEFT,
            (State::Clean | State::Dirty, Pattern::Stride(bytes)) => PREPARED.min(WAYS * sets(bytes)),
            _ => PREPARED,
        };
        most.min(self.len_bytes / 64)
    }

    /// Ticks of single operations on the next lines, at least `count`, without what the measurement itself takes at the median; a time below
    /// that is none.
    ///
    /// # Panics
    /// If the CPU has not the instructions, or the memory is shorter than the working set.
    pub fn isolated(&self, memory: &mut Memory, walk: &mut Walk, count: usize) -> Vec<u64> {
        // On lines that come again, so that those that are stored to later are as they are left.
        let mut nothing = self.times(memory, NOTHING, &mut walk.clone(), count.min(1000));
        nothing.sort_unstable();
        let overhead = nothing[nothing.len() / 2];
        let times = self.times(memory, self.operation, walk, count);
        times.into_iter().map(|ticks| ticks.saturating_sub(overhead)).collect()
    }

    fn times(&self, memory: &mut Memory, operation: Operation, walk: &mut Walk, count: usize) -> Vec<u64> {
        let mut times = vec![0; count.next_multiple_of(BATCH)];
        for times in times.chunks_mut(BATCH) {
            let addresses = self.batch(memory, walk, BATCH);
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
    pub fn sustained(&self, memory: &mut Memory, walk: &mut Walk, batches: usize, batch: usize) -> Vec<f64> {
        let time = |_| {
            let addresses = self.batch(memory, walk, batch);
            prepare(self.state, &addresses);
            // SAFETY: as in `times`.
            let ticks = unsafe { ticks_of_all(self.operation, &addresses) };
            ticks as f64 / batch as f64
        };
        (0..batches).map(time).collect()
    }

    /// The way through the lines, each of which is as the operation has left it where it should be.
    ///
    /// # Panics
    /// If the CPU has not the instructions, or the memory is shorter than the working set.
    pub fn settle(&self, memory: &mut Memory, seed: u64) -> Walk {
        assert!(self.operation.is_available(), "this CPU has no {:?}", self.operation);
        assert!(self.len_bytes <= memory.len_bytes(), "{} bytes of {}", self.len_bytes, memory.len_bytes());
        let mut walk = Walk::new(self.pattern, self.len_bytes / 64, seed);
        let mut left = self.settling();
        while left > 0 {
            let addresses = self.batch(memory, &mut walk, left.min(AS_LEFT));
            // SAFETY: whole lines of the memory, which is borrowed alone; the CPU has the instructions.
            unsafe { code::sustained(self.operation, &addresses) };
            left -= addresses.len();
        }
        code::wait();
        walk
    }

    /// Operations before those that are timed, for lines to be as one has left them: once around. Where that is more than caches
    /// have, it would take long and nothing of it be left.
    fn settling(&self) -> usize {
        let is_needed = self.state == State::Left && self.len_bytes as u64 <= 2 * machine::cache_bytes();
        if is_needed { self.len_bytes / 64 } else { 0 }
    }

    fn batch(&self, memory: &Memory, walk: &mut Walk, count: usize) -> Vec<*mut u8> {
        (0..count).map(|_| memory.base().wrapping_add(64 * walk.next_line())).collect()
    }
}

/// Ticks of an operation at all these addresses, until what they have stored has left. A function by itself, so that a test can read
/// its machine code.
///
/// # Safety
/// As [`code::sustained`].
#[inline(never)]
unsafe fn ticks_of_all(operation: Operation, addresses: &[*mut u8]) -> u64 {
    let start = ticks();
    // SAFETY: the caller's.
    unsafe { code::sustained(operation, addresses) };
    code::wait();
    ticks() - start
}

/// Sets of a first-level cache in which lines lie that are so far apart.
fn sets(stride_bytes: usize) -> usize {
    (SETS >> (stride_bytes / 64).trailing_zeros().min(SETS.ilog2())).max(1)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::memory::{Pages, Place};
    use crate::plan::Plan;

    fn cells(keys: &[(&str, &str)]) -> Vec<Cell> {
        let mut plan = Plan::built_in("latency").unwrap();
        keys.iter().for_each(|(key, text)| plan.set(key, text).unwrap());
        plan.cells().unwrap()
    }

    #[test]
    fn every_state_that_can_be_is_measured() {
        let keys = [
            ("pages", "4Ki"),
            ("flush", "all"),
            ("state", "all"),
            ("order", "sequential,random,same-line"),
            ("size", "2Mi"),
        ];
        for cell in cells(&keys) {
            if let Err(error) = Latency.needs(&cell) {
                println!("not run: {cell}: {error}");
                continue;
            }
            let before = crew::cpus();
            let sample = Latency.sample(&cell, &mut Site::new([&cell], Duration::ZERO).unwrap(), 1).unwrap();
            assert_eq!(crew::cpus(), before, "the thread is let go again");
            assert!(sample.values[0].unwrap() > 0.0 && sample.overhead.unwrap() > 0.0, "{cell}: {sample:?}");
            assert!(sample.values[1].is_some() && sample.ticks.values().sum::<u64>() == ISOLATED as u64, "{cell}");
        }
    }

    #[test]
    fn lines_that_cannot_be_in_a_state_are_refused() {
        let is_refused = |state, order, size| {
            let cell = &cells(&[("state", state), ("order", order), ("size", size)])[0];
            match Latency.needs(cell) {
                Ok(_) => false,
                Err(Error::Unavailable { .. }) => true,
                Err(error) => panic!("{error}"),
            }
        };
        for order in ["same-line", "zipf:0.99"] {
            assert!(is_refused("cold", order, "16Mi"), "{order}");
        }
        for order in ["sequential", "stride:128", "stride:4096"] {
            assert_eq!(is_refused("cold", order, "16Mi"), prefetchers::state() != "off", "{order}");
        }
        for state in ["clean", "dirty"] {
            assert!(is_refused(state, "same-line", "16Mi") && is_refused(state, "random", "2Ki"));
            for order in ["stride:1Ki", "stride:2Ki", "stride:4Ki", "stride:1Mi"] {
                assert!(is_refused(state, order, "1Gi"), "{order}: more lines than sets have room for");
            }
            for order in ["stride:256", "stride:512", "stride:1088"] {
                assert_eq!(
                    is_refused(state, order, "1Gi"),
                    Flush::evicting().is_none(),
                    "{order}: as few lines have room"
                );
            }
        }
        assert!(is_refused("cold", "random", "1Mi"));
        assert!(!is_refused("left", "same-line", "64"));
        if Flush::evicting().is_some() {
            assert!(!is_refused("cold", "random", "16Mi") && !is_refused("clean", "sequential", "4Ki"));
            assert!(!is_refused("cold", "stride:8Ki", "16Mi") && !is_refused("dirty", "stride:128", "16Mi"));
        }
    }

    /// RDTSCP waits for no store: without the fence the interval would end while they are on their way.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_batch_ends_when_its_stores_have_left() {
        let readings = code::before_readings(ticks_of_all as *const u8, 2);
        assert!(code::has_mfence(&readings[1]), "{:x?}", readings[1]);
    }

    /// 8 lines of each set, of 64 sets.
    #[test]
    fn no_batch_has_more_lines_than_their_sets_have_room_for() {
        let batch = |state, bytes| {
            let operation = Operation { store: Store::Mov8, flush: Flush::None, fence: Fence::None };
            Stores { operation, state, pattern: Pattern::Stride(bytes), len_bytes: 1 << 30 }.batch_len()
        };
        for state in [State::Clean, State::Dirty] {
            assert_eq!([64, 128, 256, 512, 576].map(|bytes| batch(state, bytes)), [256, 256, 128, 64, 256]);
        }
        assert_eq!([State::Cold, State::Left].map(|state| batch(state, 512)), [PREPARED, AS_LEFT]);
    }

    #[test]
    fn lines_are_cold_that_no_prefetcher_brings() {
        let is_cold = |order: &str, len_bytes, prefetchers| {
            let pattern = Pattern::named(order).unwrap();
            let operation = Operation { store: Store::Mov8, flush: Flush::None, fence: Fence::None };
            let stores = Stores { operation, state: State::Cold, pattern, len_bytes };
            stores.is_cold(pattern, || match prefetchers {
                "" => panic!("it takes long to ask, and makes no difference"),
                state => state,
            })
        };
        for order in ["sequential", "stride:128", "stride:4096"] {
            let of = |prefetchers| is_cold(order, 16 << 20, prefetchers);
            assert_eq!((of("off"), of("on"), of("unknown")), (true, false, false), "{order}");
        }
        assert!(is_cold("random", 16 << 20, "") && is_cold("stride:8Ki", PREPARED * (8 << 10), ""));
        // A batch has the first line of a row and that of the next, which is its neighbour.
        let short = (PREPARED - 1) * (8 << 10);
        assert!(!is_cold("stride:8Ki", short, "on") && is_cold("stride:8Ki", short, "off"));
    }

    /// How lines are is what a CPU has in its caches, of which a device knows nothing.
    #[test]
    fn a_device_that_is_modelled_knows_no_state() {
        let of = |state, order| {
            let keys = [("memory", "model:optane-100-dimm"), ("store", "nt64"), ("state", state), ("order", order)];
            cells(&keys)[0].needs()
        };
        assert!(of("left", "random").is_ok());
        for state in ["cold", "clean", "dirty"] {
            assert!(matches!(of(state, "random"), Err(Error::Unavailable { .. })), "{state}");
            assert!(of(state, "same-line").is_err(), "{state}");
        }
    }

    /// The operation before is one on the same line, not what took the line out of the caches.
    #[test]
    fn lines_that_should_be_as_they_were_left_are_stored_to_once_before() {
        let mut memory = Memory::new(&Place::Dram, Pages::Small, 1 << 16).unwrap();
        let operation = Operation { store: Store::Mov8, flush: Flush::None, fence: Fence::None };
        for (state, is_stored) in [(State::Left, true), (State::Clean, false)] {
            let before = memory.word(64);
            let stores = Stores { operation, state, pattern: Pattern::Random, len_bytes: 1 << 16 };
            let walk = stores.settle(&mut memory, 3);
            let all = (0..1 << 16).step_by(64);
            assert_eq!(all.clone().all(|at| memory.word(at) != before), is_stored);
            // The next line is the first again.
            assert_eq!(walk.clone().next_line(), Walk::new(Pattern::Random, 1 << 10, 3).next_line());
            // SAFETY: a line of the memory.
            all.for_each(|at| unsafe { memory.base().wrapping_add(at).cast::<u64>().write_volatile(before) });
        }
    }

    #[test]
    fn a_median_that_the_clock_cannot_tell_from_none_is_0() {
        let clock = Clock { ticks_per_ns: 2.0, step_ticks: 26, pair_ticks: 52 };
        let median = |times: &[u64]| told(&clock, &counts(times.to_vec()));
        assert_eq!(counts(vec![52, 26, 52]), [(26, 1), (52, 2)].into());
        assert_eq!(median(&[26, 52, 52, 52, 7800]), Some(0.0));
        assert_eq!(median(&[104, 78, 78]), Some(78.0));
        assert_eq!((median(&[78, 104, 130, 78]), median(&[78, 104])), (Some(91.0), Some(91.0)));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn an_operation_that_this_cpu_has_not_is_refused() {
        let foreign = if cfg!(target_arch = "aarch64") { "clwb" } else { "dc-cvac" };
        assert!(matches!(Latency.needs(&cells(&[("flush", foreign)])[0]), Err(Error::Unavailable { .. })));
    }
}
