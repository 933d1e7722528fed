//! How long loads take while other threads use the memory: the curve of latency over bandwidth, by how much of the traffic
//! is loads.

use pmem::DeviceProfile;

use crate::chain::{self, Cycle};
use crate::clock::{Clock, ticks};
use crate::code::{Access, Fence, Width};
use crate::crew::{self, Done};
use crate::error::{Error, Result};
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Memory;
use crate::model::{self, Program, Touch};
use crate::pattern::{Pattern, Walk};
use crate::site::Site;
use crate::stream::{self, Kind, Stream};

/// The measurement `loaded`.
#[derive(Debug)]
pub struct Loaded;

/// Bytes of the chain whose latency is told: larger than a second-level cache, so that it waits for memory.
const CHAIN: &str = "64Mi";
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
        if traffic.store == Access::Load || !traffic.store.is_available(Width::widest()) {
            return Err(Error::unavailable(format!("'{}' stores nothing here", traffic.store.name())));
        }
        if cell.len("size") / traffic.threads.max(1) < TURN_BYTES {
            return Err(Error::unavailable(format!("{} bytes for {} threads", cell.len("size"), traffic.threads)));
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
        let mut cycle = Cycle::new(memory, len_bytes, chain::LOCALITY_BYTES, seed);
        let mut others = traffic.streams(cycle.memory(), len_bytes, seed);
        let mut workers: Vec<Box<dyn FnMut() -> u64 + Send>> = vec![Box::new(|| cycle.follow(1, STEPS).1)];
        workers.extend(others.iter_mut().map(|other| Box::new(|| other.turn()) as Box<dyn FnMut() -> u64 + Send>));
        let done = crew::work_together(workers, time)?;
        if !others.iter().all(Other::is_right) {
            return Err(Error::Wrong { what: "the sum of the bytes that were loaded" });
        }
        let ns = done[0].ns as f64 / done[0].work as f64;
        // A turn of the chain reads the clock twice.
        let overhead = clock.ns(clock.pair_ticks as f64) / (ns * STEPS as f64);
        let bandwidth: f64 = done[1..].iter().map(Done::per_second).sum::<f64>() / 1e9;
        let ns = ns * (1.0 - overhead);
        Ok(Sample {
            values: vec![Some(ns), Some(ns * clock.ticks_per_ns), Some(bandwidth)],
            overhead,
            ..Sample::default()
        })
    }

    fn model(&self, cell: &Cell, device: &'static DeviceProfile, seed: u64) -> Result<Sample> {
        let (traffic, len_bytes) = (Traffic::of(cell), cell.len("size"));
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

    /// What a thread does to a modelled device.
    fn program(
        &self,
        device: &'static DeviceProfile,
        from_bytes: usize,
        number: usize,
        seed: u64,
    ) -> Result<Program<'static>> {
        let part_bytes = from_bytes / self.threads;
        let stream = |access| {
            let kind = Kind {
                access,
                width: Width::Bytes16,
                fence: Fence::None,
                block_bytes: TURN_BYTES,
                pattern: self.pattern,
            };
            model::stream(device, &kind, from_bytes + number * part_bytes, part_bytes, seed + number as u64)
        };
        let idle = || -> Program<'static> { Box::new(|_, now_ns| (now_ns, 0)) };
        // Of what is never done a profile need not know.
        let mut loads = if self.loads > 0 { stream(Access::Load)? } else { idle() };
        let mut stores = if self.loads < MIXED { stream(self.store)? } else { idle() };
        let (share, pause_ns, mut turn) = (self.loads, self.pause_ns as f64, 0);
        Ok(Box::new(move |clock, now_ns| {
            let (end_ns, bytes) = if is_load(turn, share) { loads(clock, now_ns) } else { stores(clock, now_ns) };
            turn = (turn + 1) % MIXED;
            (end_ns + pause_ns, bytes)
        }))
    }

    /// Each thread's streams, in the memory behind the chain.
    fn streams<'m>(&self, memory: &'m Memory, from_bytes: usize, seed: u64) -> Vec<Other<'m>> {
        let part_bytes = from_bytes / self.threads.max(1) / TURN_BYTES * TURN_BYTES;
        let stream = |number: usize, access| {
            let start = from_bytes + number * part_bytes;
            let kind = Kind {
                access,
                width: Width::widest(),
                fence: Fence::None,
                block_bytes: TURN_BYTES,
                pattern: self.pattern,
            };
            Stream::new(&kind, memory, start..start + part_bytes, TURN_BYTES, seed + number as u64)
        };
        let pause_ticks = (self.pause_ns as f64 * Clock::get().ticks_per_ns) as u64;
        let other = |number| Other {
            loads: stream(number, Access::Load),
            stores: stream(number, self.store),
            share: self.loads,
            turn: 0,
            pause_ticks,
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
    loads: Stream<'m>,
    stores: Stream<'m>,
    share: usize,
    turn: usize,
    pause_ticks: u64,
}

impl Other<'_> {
    fn turn(&mut self) -> u64 {
        let is_load = is_load(self.turn, self.share);
        self.turn = (self.turn + 1) % MIXED;
        let bytes = if is_load { self.loads.turn() } else { self.stores.turn() };
        let start = ticks();
        while self.pause_ticks > 0 && ticks() - start < self.pause_ticks {
            std::hint::spin_loop();
        }
        bytes
    }

    fn is_right(&self) -> bool {
        self.loads.is_right()
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
            let loaded = |other: &Other<'_>| other.loads.blocks();
            let before = loaded(&other);
            (0..2 * MIXED).for_each(|_| _ = other.turn());
            assert_eq!(loaded(&other) - before, 2 * loads as u64);
        }
    }

    #[test]
    fn latency_and_bandwidth_are_told_with_and_without_others() {
        for threads in ["0", "2"] {
            let mut plan = Plan::built_in("loaded").unwrap();
            plan.set("threads", threads).unwrap();
            plan.set("size", "256Ki").unwrap();
            plan.set("loads", "0,5,10").unwrap();
            for cell in plan.cells().unwrap() {
                let mut site = Site::new([&cell], Duration::from_millis(1)).unwrap();
                let sample = Loaded.sample(&cell, &mut site, 1).unwrap();
                assert!(sample.values[0].unwrap() > 0.0, "{cell}");
                assert_eq!(sample.values[2].unwrap() > 0.0, threads != "0", "{cell}");
            }
        }
    }
}
