//! How long loads take while other threads use the memory: the curve of latency over bandwidth, by how much of the traffic
//! is loads.

use pmem::DeviceProfile;

use crate::chain::{self, Cycle};
use crate::clock::{Clock, ticks};
use crate::code::{self, Access, Fence, Width};
use crate::crew::{self, Done};
use crate::error::{Error, Result};
use crate::machine;
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Memory;
use crate::model::{self, Program, Touch};
use crate::pattern::{Pattern, Walk};
use crate::site::Site;
use crate::stream::{self, Kind, Stream};

/// The measurement `loaded`.
#[derive(Debug)]
pub struct Loaded;

/// Bytes of the chain whose latency is told. It is taken out of all caches before, and 20 ms of steps of 100 ns are a fifth of
/// its lines: so they wait for memory however large the last-level cache is.
const CHAIN: &str = "64Mi";
/// Rounds of a chain of which the first, when nothing is cached, is too few to be seen.
const MANY_ROUNDS: u64 = 50;
/// Bytes of a turn of traffic, after which it pauses.
const TURN_BYTES: usize = 4 << 10;
/// Turns of which so many as the mix says are loads.
const MIXED: usize = 10;
/// Steps of the chain between two looks at whether the time is over.
const STEPS: usize = 64;

/// What the other threads do.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Traffic {
    threads: usize,
    loads: usize,
    store: Access,
    pause_ns: u64,
    pattern: Pattern,
}

impl Measure for Loaded {
    fn name(&self) -> &'static str {
        "loaded"
    }

    fn about(&self) -> &'static str {
        "how long dependent loads take while other threads load and store"
    }

    fn keys(&self) -> &'static [Key] {
        const KEYS: [Key; 8] = [
            Key::MEMORY,
            Key::PAGES,
            Key {
                name: "size",
                about: "bytes of the working set of the chain, and of that of the others",
                form: Form::Bytes { multiple_of: 4096 },
                default: CHAIN,
            },
            Key {
                name: "threads",
                about: "threads that load and store beside it",
                form: Form::Count { least: 0, most: 1023 },
                default: "1",
            },
            Key {
                name: "loads",
                about: "of ten of their turns, those that load",
                form: Form::Count { least: 0, most: MIXED as u64 },
                default: "10",
            },
            Key {
                name: "store",
                about: "how the others store",
                form: Access::FORM,
                default: Access::PAST_CACHE.name(),
            },
            Key {
                name: "pause",
                about: "nanoseconds for which each of them waits after 4 KiB",
                form: Form::Count { least: 0, most: 1_000_000 },
                default: "0",
            },
            Key { name: "order", about: "the order of their blocks", form: Form::Order, default: "sequential" },
        ];
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 3] = [
            Metric { name: "latency", unit: "ns", better: Better::Less, about: "time of a step of the chain" },
            Metric {
                name: "latency-ticks",
                unit: "ticks",
                better: Better::Less,
                about: "the same in ticks of the counter",
            },
            Metric {
                name: "bandwidth",
                unit: "GB/s",
                better: Better::More,
                about: "10^9 bytes a second of the other threads",
            },
        ];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        let traffic = Traffic::of(cell);
        if !crew::has_cpu_each(traffic.threads + 1) {
            // What it would tell is for how long the chain waits for its CPU.
            return Err(Error::unavailable(format!("no CPU for the chain beside {} threads", traffic.threads)));
        }
        traffic.check(cell.len("size"))?;
        if !traffic.store.is_available(Width::widest()) {
            return Err(Error::unavailable(format!("this CPU has no {}", traffic.store.name())));
        }
        let writes_gb_s = 10.0 * traffic.threads as f64;
        let (memory_bytes, threads) = (2 * cell.len("size"), traffic.threads + 1);
        Ok(Needs { memory_bytes, threads, written_bytes: memory_bytes as u64, writes_gb_s, sample_ns: 0 })
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let clock = Clock::get();
        let (traffic, len_bytes, time) = (Traffic::of(cell), cell.len("size"), site.sample_time);
        let memory = site.memory(cell)?;
        stream::fill(memory, 2 * len_bytes);
        let mut cycle = Cycle::new(memory, len_bytes, chain::LOCALITY_BYTES, 1, seed);
        code::evict(cycle.memory(), len_bytes);
        let mut others = traffic.streams(cycle.memory(), len_bytes, seed);
        let mut steps = 0;
        let chain = || {
            let followed = cycle.follow(STEPS).1;
            steps += followed;
            followed
        };
        let mut workers: Vec<Box<dyn FnMut() -> u64 + Send>> = vec![Box::new(chain)];
        workers.extend(others.iter_mut().map(|other| Box::new(|| other.turn()) as Box<dyn FnMut() -> u64 + Send>));
        let done = crew::work_together(workers, time)?;
        if !others.iter().all(Other::is_right) {
            return Err(Error::Wrong { what: stream::MOVED });
        }
        if is_mixed(steps, len_bytes, machine::cache_bytes()) {
            return Err(Error::unavailable(format!(
                "in {time:?} the chain comes round its {len_bytes} bytes a few times, of which only the first waits for memory: it \
                 takes another size"
            )));
        }
        let (values, overhead) = values(clock, &done);
        Ok(Sample { values, overhead: Some(overhead), ..Sample::default() })
    }

    fn model(&self, cell: &Cell, device: &'static DeviceProfile, seed: u64) -> Result<Sample> {
        let (traffic, len_bytes) = (Traffic::of(cell), cell.len("size"));
        traffic.check(len_bytes)?;
        let touch = Touch::new(device, Access::Load, Fence::None, 64, true)?;
        let mut walk = Walk::new(Pattern::Random, len_bytes / 64, seed);
        let mut threads: Vec<Program<'_>> =
            vec![Box::new(move |clock, now_ns| (touch.run(clock, now_ns, 64 * walk.next_line() as u64), 1))];
        for number in 0..traffic.threads {
            threads.push(traffic.program(device, len_bytes, number, seed)?);
        }
        let done = model::simulate(device, threads);
        let bandwidth = done[1..].iter().map(Done::per_second).sum::<f64>() / 1e9;
        Ok(Sample { values: vec![Some(1e9 / done[0].per_second()), None, Some(bandwidth)], ..Sample::default() })
    }
}

/// Whether some of a chain's loads waited for memory and others for a cache, which had the lines when they came again. One that goes
/// round often is cached, as its size says, and its first round counts for little.
fn is_mixed(steps: u64, len_bytes: usize, cache_bytes: u64) -> bool {
    let lines = (len_bytes / 64) as u64;
    (lines + 1..MANY_ROUNDS * lines).contains(&steps) && len_bytes as u64 <= 2 * cache_bytes
}

/// What the chain, which comes first, and the others did: latency in nanoseconds and ticks, bandwidth, and the overhead.
fn values(clock: &Clock, done: &[Done]) -> (Vec<Option<f64>>, f64) {
    let bandwidth: f64 = done[1..].iter().map(Done::per_second).sum::<f64>() / 1e9;
    if done[0].work == 0 {
        // It never had its turn, which tells nothing of the memory.
        return (vec![None, None, Some(bandwidth)], 0.0);
    }
    let ns = done[0].ns as f64 / done[0].work as f64;
    // A turn of the chain reads the clock twice.
    let overhead = clock.ns(clock.pair_ticks as f64) / (ns * STEPS as f64);
    let ns = ns * (1.0 - overhead);
    (vec![Some(ns), Some(ns * clock.ticks_per_ns), Some(bandwidth)], overhead)
}

impl Traffic {
    fn of(cell: &Cell) -> Traffic {
        Traffic {
            threads: cell.len("threads"),
            loads: cell.len("loads"),
            store: Access::named(cell.word("store")),
            pause_ns: cell.number("pause"),
            pattern: cell.order(),
        }
    }

    /// # Errors
    /// `Unavailable` when what is to store does not, there is no turn of a thread's own bytes, or the order is none of turns.
    fn check(&self, len_bytes: usize) -> Result<()> {
        self.pattern.check(TURN_BYTES)?;
        if self.store == Access::Load {
            return Err(Error::unavailable(format!("'{}' stores nothing", self.store.name())));
        }
        if self.part_bytes(len_bytes) < TURN_BYTES {
            return Err(Error::unavailable(format!("{len_bytes} bytes for {} threads", self.threads)));
        }
        Ok(())
    }

    fn has_loads(&self) -> bool {
        self.loads > 0
    }

    fn has_stores(&self) -> bool {
        self.loads < MIXED
    }

    /// Bytes that a thread loads from, and as many that it stores to: other ones, or each load would find what was just stored.
    fn part_bytes(&self, len_bytes: usize) -> usize {
        let parts = if self.has_loads() && self.has_stores() { 2 } else { 1 };
        len_bytes / self.threads.max(1) / parts / TURN_BYTES * TURN_BYTES
    }

    /// Where a thread loads from and stores to, behind the chain, and the seeds of the orders.
    fn places(&self, from_bytes: usize, number: usize, seed: u64) -> [(usize, u64); 2] {
        let part_bytes = self.part_bytes(from_bytes);
        let mixed = self.has_loads() && self.has_stores();
        let first = from_bytes + number * part_bytes * if mixed { 2 } else { 1 };
        let seed = seed.wrapping_add(2 * number as u64);
        [(first, seed), (if mixed { first + part_bytes } else { first }, seed.wrapping_add(1))]
    }

    fn kind(&self, access: Access, width: Width) -> Kind {
        Kind { access, width, fence: Fence::None, block_bytes: TURN_BYTES, pattern: self.pattern }
    }

    /// What a thread does to a modelled device.
    fn program(
        &self,
        device: &'static DeviceProfile,
        from_bytes: usize,
        number: usize,
        seed: u64,
    ) -> Result<Program<'static>> {
        let stream = |access, (start, seed): (usize, u64)| {
            model::stream(device, &self.kind(access, Width::Bytes16), start, self.part_bytes(from_bytes), seed)
        };
        let idle = || -> Program<'static> { Box::new(|_, now_ns| (now_ns, 0)) };
        let [load_at, store_at] = self.places(from_bytes, number, seed);
        // Of what is never done a profile need not know.
        let mut loads = if self.has_loads() { stream(Access::Load, load_at)? } else { idle() };
        let mut stores = if self.has_stores() { stream(self.store, store_at)? } else { idle() };
        let (share, pause_ns, mut turn) = (self.loads, self.pause_ns as f64, 0);
        Ok(Box::new(move |clock, now_ns| {
            let (end_ns, bytes) = if is_load(turn, share) { loads(clock, now_ns) } else { stores(clock, now_ns) };
            turn = (turn + 1) % MIXED;
            (end_ns + pause_ns, bytes)
        }))
    }

    /// Each thread's streams, in the memory behind the chain.
    fn streams<'m>(&self, memory: &'m Memory, from_bytes: usize, seed: u64) -> Vec<Other<'m>> {
        let stream = |access, (start, seed): (usize, u64)| {
            let part = start..start + self.part_bytes(from_bytes);
            Stream::new(&self.kind(access, Width::widest()), memory, part, TURN_BYTES, seed)
        };
        let pause_ticks = (self.pause_ns as f64 * Clock::get().ticks_per_ns) as u64;
        let other = |number| {
            let [load_at, store_at] = self.places(from_bytes, number, seed);
            Other {
                loads: self.has_loads().then(|| stream(Access::Load, load_at)),
                stores: self.has_stores().then(|| stream(self.store, store_at)),
                share: self.loads,
                turn: 0,
                pause_ticks,
            }
        };
        (0..self.threads).map(other).collect()
    }
}

/// Loads and stores take turns as evenly as the share allows.
fn is_load(turn: usize, share: usize) -> bool {
    (turn + 1) * share / MIXED > turn * share / MIXED
}

/// What another thread does.
struct Other<'m> {
    loads: Option<Stream<'m>>,
    stores: Option<Stream<'m>>,
    share: usize,
    turn: usize,
    pause_ticks: u64,
}

impl Other<'_> {
    /// Stores are not waited for: a fence every 4 KiB would be most of what is measured.
    fn turn(&mut self) -> u64 {
        let next = if is_load(self.turn, self.share) { &mut self.loads } else { &mut self.stores };
        let bytes = next.as_mut().expect("the share has both, or this one").go_on();
        self.turn = (self.turn + 1) % MIXED;
        let start = ticks();
        while self.pause_ticks > 0 && ticks() - start < self.pause_ticks {
            std::hint::spin_loop();
        }
        bytes
    }

    fn is_right(&self) -> bool {
        self.loads.iter().chain(&self.stores).all(Stream::is_right)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::memory::{Pages, Place};
    use crate::plan::Plan;

    #[test]
    fn of_ten_turns_as_many_load_as_the_mix_says() {
        let memory = Memory::new(&Place::Dram, Pages::Small, 64 << 10).unwrap();
        for loads in 0..=MIXED {
            let traffic =
                Traffic { threads: 1, loads, store: Access::Store, pause_ns: 0, pattern: Pattern::Sequential };
            let mut other = traffic.streams(&memory, 32 << 10, 1).remove(0);
            (0..2 * MIXED).for_each(|_| _ = other.turn());
            let loaded = other.loads.map_or(0, |stream| stream.loaded_lines()) / (TURN_BYTES as u64 / 64);
            assert_eq!(loaded, 2 * loads as u64);
        }
    }

    /// Else each load finds in the cache what was just stored.
    #[test]
    fn nothing_is_loaded_that_others_or_the_thread_itself_store_to() {
        let len_bytes = 256 << 10;
        for (loads, threads) in [(5, 1), (5, 3), (10, 3), (0, 3)] {
            let traffic = Traffic { threads, loads, store: Access::Store, pause_ns: 0, pattern: Pattern::Random };
            let part_bytes = traffic.part_bytes(len_bytes);
            let places = (0..threads).flat_map(|number| traffic.places(len_bytes, number, 1));
            let mut starts: Vec<usize> = places.map(|(start, _)| start).collect();
            starts.dedup();
            assert_eq!(starts.len(), if loads == 5 { 2 * threads } else { threads });
            assert!(starts.windows(2).all(|pair| pair[0] + part_bytes <= pair[1]));
            assert!(starts[0] == len_bytes && starts[starts.len() - 1] + part_bytes <= 2 * len_bytes);
            let seeds: Vec<u64> =
                (0..threads).flat_map(|number| traffic.places(len_bytes, number, 1)).map(|(_, seed)| seed).collect();
            assert!(seeds.windows(2).all(|pair| pair[0] != pair[1]));
        }
    }

    #[test]
    fn a_chain_that_never_had_its_turn_has_no_latency() {
        let others = Done { work: 4096, ns: 1000 };
        let (told, _) = values(Clock::get(), &[Done { work: 0, ns: 1000 }, others]);
        assert_eq!(told, [None, None, Some(others.per_second() / 1e9)]);
        let (told, _) = values(Clock::get(), &[Done { work: 10, ns: 1_000_000 }, others]);
        assert!(told[0].unwrap() > 0.0);
    }

    #[test]
    fn a_chain_that_comes_round_a_few_times_tells_neither_memory_nor_cache() {
        let is_mixed = |steps| is_mixed(steps, 64 * 1000, 1 << 20);
        assert_eq!([1000, 1001, 49_999, 50_000].map(is_mixed), [false, true, true, false]);
        assert!(!super::is_mixed(1001, 64 * 1000, 10 << 10), "no cache is so large");
    }

    #[test]
    fn a_chain_that_would_wait_for_its_cpu_is_not_told() {
        let mut plan = Plan::built_in("loaded").unwrap();
        plan.set("threads", "cpus").unwrap();
        let refused = Loaded.needs(&plan.cells().unwrap()[0]).unwrap_err().to_string();
        assert!(refused.contains("no CPU for the chain"), "{refused}");
        plan.set("threads", "cpus-1").unwrap();
        assert!(Loaded.needs(&plan.cells().unwrap()[0]).is_ok());
        plan.set("order", "stride:64").unwrap();
        assert!(Loaded.needs(&plan.cells().unwrap()[0]).unwrap_err().to_string().contains("a stride of 64 bytes"));
    }

    #[test]
    fn traffic_that_cannot_be_is_refused_on_any_memory() {
        for memory in ["dram", "model:optane-100-dimm"] {
            let refused = |keys: &[(&str, &str)]| {
                let mut plan = Plan::built_in("loaded").unwrap();
                let keys = [&[("memory", memory), ("threads", "0")], keys].concat();
                keys.iter().for_each(|(key, text)| plan.set(key, text).unwrap());
                plan.cells().unwrap()[0].needs().unwrap_err().to_string()
            };
            assert!(refused(&[("store", "load"), ("loads", "5")]).contains("'load' stores nothing"), "{memory}");
            assert!(refused(&[("size", "4Ki"), ("loads", "5")]).contains("4096 bytes for 0 threads"), "{memory}");
        }
    }

    #[test]
    fn latency_and_bandwidth_are_told_with_and_without_others() {
        for threads in ["0", "1"] {
            let mut plan = Plan::built_in("loaded").unwrap();
            plan.set("threads", threads).unwrap();
            plan.set("size", "16Mi").unwrap();
            plan.set("loads", "0,5,10").unwrap();
            for cell in plan.cells().unwrap() {
                let mut site = Site::new([&cell], Duration::from_millis(1)).unwrap();
                let sample = Loaded.sample(&cell, &mut site, 1).unwrap();
                // A chain that was never on a CPU has no latency.
                assert!(sample.values[0].map_or(threads != "0", |latency| latency > 0.0), "{cell}");
                assert_eq!(sample.values[2].unwrap() > 0.0, threads != "0", "{cell}");
            }
        }
    }
}
