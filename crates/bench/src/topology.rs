//! Where memory lies and who uses it: the near or a far NUMA node, one device, several as a stripe, or each for itself (Abed Abud
//! et al., Fig. 8).

use std::path::PathBuf;
use std::time::Duration;

use pmem::{DeviceClock, DeviceProfile};

use crate::chain::Cycle;
use crate::clock::Clock;
use crate::code::{self, Access, Fence, Width};
use crate::crew::{self, Done};
use crate::error::{Error, Result};
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::{Memory, Place};
use crate::model::{self, Program, Touch};
use crate::site::Site;
use crate::stream::{self, Kind, Stream};

/// The measurement `topology`.
#[derive(Debug)]
pub struct Topology;

/// Bytes between two looks at whether the time is over.
const TURN_BYTES: usize = 1 << 20;
/// Bytes of the chain whose latency is told, and its steps. It is taken out of all caches before, and each line is met once: so
/// it need not be larger than they are. Lines come in a random order over all of it, so that hardly any has a neighbour
/// that was met before, with which a prefetcher has brought it.
const CHAIN_BYTES: usize = 32 << 20;
const STEPS: usize = 1 << 14;

impl Measure for Topology {
    fn name(&self) -> &'static str {
        "topology"
    }

    fn about(&self) -> &'static str {
        "how bandwidth and latency depend on the NUMA node, and on how several devices are put together"
    }

    fn keys(&self) -> &'static [Key] {
        const KEYS: [Key; 10] = [
            Key {
                about: "dram, dram@NODE, folders joined by +, or model:PROFILE*DEVICES",
                default: "dram",
                ..Key::MEMORY
            },
            Key::PAGES,
            Key {
                name: "from",
                about: "the NUMA node of the threads",
                form: Form::Count { least: 0, most: 1023 },
                default: "0",
            },
            Key {
                name: "layout",
                about: "several folders or devices: as a stripe, or thread k on the k-th of them",
                form: Form::Choice(&["interleaved", "separate"]),
                default: "interleaved",
            },
            Key {
                name: "chunk",
                about: "bytes on one device before the next, interleaved",
                form: Form::Bytes { multiple_of: 4096 },
                default: "2Mi",
            },
            Key {
                name: "access",
                about: "what is done with each line of a block",
                form: Access::FORM,
                default: Access::PAST_CACHE.name(),
            },
            Key { name: "block", about: "bytes of a block", form: Form::Bytes { multiple_of: 64 }, default: "4Ki" },
            Key { name: "order", about: "the order of the blocks", form: Form::Order, default: "sequential" },
            Key {
                name: "size",
                about: "bytes of the working set of all threads, of which each has a part",
                form: Form::Bytes { multiple_of: 64 },
                default: "256Mi",
            },
            Key::THREADS,
        ];
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 4] = [
            Metric {
                name: "bandwidth",
                unit: "GB/s",
                better: Better::More,
                about: "10^9 bytes a second of all threads",
            },
            Metric {
                name: "per-thread",
                unit: "GB/s",
                better: Better::More,
                about: "10^9 bytes a second of a thread, on average",
            },
            Metric {
                name: "latency",
                unit: "ns",
                better: Better::Less,
                about: "time of a dependent load of a line in no cache, at a random place, from the threads' node",
            },
            Metric {
                name: "latency-ticks",
                unit: "ticks",
                better: Better::Less,
                about: "the same in ticks of the counter",
            },
        ];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        let of = Of::new(cell);
        of.check()?;
        let memory_bytes = match &of.place {
            // Each thread has its part of one file, the last of which is as long as the others.
            Place::Striped(folders, chunk_bytes) if of.is_separate => folders.len() * *chunk_bytes as usize,
            _ => of.len_bytes.max(CHAIN_BYTES),
        };
        Ok(Needs { memory_bytes, threads: of.threads, writes_gb_s: 10.0 * of.threads as f64, ..Needs::default() })
    }

    fn model(&self, cell: &Cell, device: &'static DeviceProfile, seed: u64) -> Result<Sample> {
        let of = Of::new(cell);
        let Some(Place::Modelled(_, devices)) = cell.memory() else {
            return Err(Error::unavailable("it is not modelled".into()));
        };
        of.check_layout()?;
        let thread = |number| of.program(device, devices, number, seed);
        let programs = (0..of.threads).map(thread).collect::<Result<_>>()?;
        Ok(of.values(
            &model::simulate_on(vec![DeviceClock::busy(device); devices], programs),
            [device.random_read_ns, None],
        ))
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let (of, time) = (Of::new(cell), site.sample_time);
        let memory = site.memory(cell)?;
        let cpus = crew::cpus_of_node(of.from)?;
        let ticks = latency_ticks(memory, &cpus, seed)?;
        let (done, overhead) = of.run(memory, &cpus, time, seed)?;
        Ok(Sample { overhead: Some(overhead), ..of.values(&done, [Some(Clock::get().ns(ticks)), Some(ticks)]) })
    }
}

/// What is measured.
struct Of {
    kind: Kind,
    from: usize,
    is_separate: bool,
    chunk_bytes: usize,
    len_bytes: usize,
    threads: usize,
    place: Place,
}

impl Of {
    fn new(cell: &Cell) -> Of {
        let kind = Kind {
            access: Access::named(cell.word("access")),
            width: Width::widest(),
            fence: Fence::None,
            block_bytes: cell.len("block"),
            pattern: cell.order(),
        };
        let (from, threads) = (cell.len("from"), cell.len("threads"));
        let (is_separate, chunk_bytes, len_bytes) =
            (cell.word("layout") == "separate", cell.len("chunk"), cell.len("size"));
        Of { kind, from, is_separate, chunk_bytes, len_bytes, threads, place: cell.place().0 }
    }

    /// How many devices or files there are.
    fn devices(&self) -> usize {
        match &self.place {
            Place::Striped(folders, _) => folders.len(),
            Place::Modelled(_, devices) => *devices,
            _ => 1,
        }
    }

    /// # Errors
    /// `Unavailable` when there is one device, on which both layouts are the same.
    fn check_layout(&self) -> Result<()> {
        if self.is_separate && self.devices() < 2 {
            return Err(Error::unavailable("on one device 'separate' and 'interleaved' are the same".into()));
        }
        Ok(())
    }

    /// Bytes of a thread's part: of all, or of its device, which it shares with those whose numbers are as many more as there are
    /// devices.
    fn part_bytes(&self) -> usize {
        let devices = self.devices();
        let part_bytes = if self.is_separate {
            self.len_bytes / devices / self.threads.div_ceil(devices)
        } else {
            self.len_bytes / self.threads
        };
        part_bytes / 64 * 64
    }

    /// Where a thread's part begins, with so many bytes on each device before the next.
    fn part_at(&self, number: usize, chunk_bytes: usize) -> usize {
        let devices = self.devices();
        match self.is_separate {
            true => number % devices * chunk_bytes + number / devices * self.part_bytes(),
            false => number * self.part_bytes(),
        }
    }

    /// # Errors
    /// `Unavailable` when there is no such node, a part is shorter than a block, or files cannot be put together so.
    fn check(&self) -> Result<()> {
        crew::cpus_of_node(self.from)?;
        self.check_layout()?;
        self.kind.check()?;
        if self.part_bytes() < self.kind.block_bytes {
            return Err(Error::unavailable(format!("{} bytes for {} threads", self.len_bytes, self.threads)));
        }
        match &self.place {
            Place::Node(node) => crew::cpus_of_node(*node).map(drop),
            Place::Striped(..) if !self.is_separate && !self.chunk_bytes.is_multiple_of(2 << 20) => Err(
                Error::unavailable(format!("files are put together in chunks of 2 MiB, not of {}", self.chunk_bytes)),
            ),
            _ => Ok(()),
        }
    }

    fn run(&self, memory: &mut Memory, cpus: &[usize], time: Duration, seed: u64) -> Result<(Vec<Done>, f64)> {
        let chunk_bytes = match &self.place {
            Place::Striped(_, chunk_bytes) => *chunk_bytes as usize,
            _ => self.len_bytes,
        };
        if self.kind.access == Access::Load {
            let ends = (0..self.threads).map(|number| self.part_at(number, chunk_bytes) + self.part_bytes());
            stream::fill(memory, ends.max().unwrap_or(0));
        }
        let memory: &Memory = memory;
        let stream = |number: usize| {
            let begin = self.part_at(number, chunk_bytes);
            let part = begin..begin + self.part_bytes();
            Stream::new(&self.kind, memory, part, TURN_BYTES, seed + number as u64)
        };
        let mut streams: Vec<Stream<'_>> = (0..self.threads).map(stream).collect();
        let done = crew::work_together_on(cpus, streams.iter_mut().map(|stream| || stream.turn()).collect(), time)?;
        match streams.iter().all(Stream::is_right) {
            true => stream::overhead(&streams, &done).map(|overhead| (done, overhead)),
            false => Err(Error::Wrong { what: stream::MOVED }),
        }
    }

    /// A thread at modelled devices: a block that lies on several is done when all have done theirs.
    fn program(
        &self,
        device: &'static DeviceProfile,
        devices: usize,
        number: usize,
        seed: u64,
    ) -> Result<Program<'static>> {
        let is_random = matches!(self.kind.pattern, crate::pattern::Pattern::Random | crate::pattern::Pattern::Zipf(_));
        let Kind { access, fence, block_bytes, pattern, .. } = self.kind;
        let chunk_bytes = if self.is_separate { self.len_bytes / devices } else { self.chunk_bytes };
        let (begin, part_bytes) = (self.part_at(number, chunk_bytes), self.part_bytes());
        let mut walk = model::walk(pattern, part_bytes, block_bytes, seed + number as u64)?;
        let touch = Touch::new(device, access, fence, block_bytes, is_random)?;
        Ok(Box::new(move |clocks, now_ns| {
            let (mut at, mut left, mut end_ns) = (begin + walk.next_line() * block_bytes, block_bytes, now_ns);
            while left > 0 {
                let (chunk, within) = (at / chunk_bytes, at % chunk_bytes);
                let here = left.min(chunk_bytes - within);
                let offset_bytes = (chunk / devices * chunk_bytes + within) as u64;
                let piece = touch.of_bytes(here);
                end_ns = piece.run_on(&mut clocks[chunk % devices], now_ns, offset_bytes).max(end_ns);
                (at, left) = (at + here, left - here);
            }
            (end_ns, block_bytes as u64)
        }))
    }

    /// The latency comes in nanoseconds and in ticks.
    fn values(&self, done: &[Done], latency: [Option<f64>; 2]) -> Sample {
        let gb_s = done.iter().map(Done::per_second).sum::<f64>() / 1e9;
        let bandwidths = [Some(gb_s), Some(gb_s / self.threads as f64)];
        Sample { values: [bandwidths, latency].concat(), ..Sample::default() }
    }
}

/// The time of a dependent load by the first of these CPUs.
fn latency_ticks(memory: &mut Memory, cpus: &[usize], seed: u64) -> Result<f64> {
    let mut cycle = Cycle::new(memory, CHAIN_BYTES, CHAIN_BYTES, 1, seed);
    code::evict(cycle.memory(), CHAIN_BYTES);
    let (ticks, steps) = crew::once_together_on(cpus, vec![|| cycle.follow(STEPS)])?.results[0];
    Ok(ticks as f64 / steps as f64)
}

/// How the files of several folders are put together.
pub(crate) fn chunk_bytes(cell: &Cell, folders: &[PathBuf]) -> u64 {
    match cell.keys.get("layout") {
        Some(layout) if layout.to_string() == "separate" => {
            cell.len("size").max(CHAIN_BYTES).div_ceil(folders.len()).next_multiple_of(2 << 20) as u64
        }
        Some(_) => cell.number("chunk"),
        // Other measurements have no such key.
        None => 2 << 20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    fn cells(keys: &[(&str, &str)]) -> Vec<Cell> {
        let mut plan = Plan::built_in("topology").unwrap();
        keys.iter().for_each(|(key, text)| plan.set(key, text).unwrap());
        plan.cells().unwrap()
    }

    #[test]
    fn one_memory_several_files_and_a_node_are_measured() {
        let folder = tempfile::tempdir().unwrap();
        let several = format!("dram,dram@0,{0}+{0}", folder.path().display());
        for cell in
            cells(&[("memory", &several), ("layout", "all"), ("access", "load,nt"), ("size", "4Mi"), ("threads", "2")])
        {
            if cell.word("layout") == "separate" && !cell.word("memory").contains('+') {
                let refused = Topology.needs(&cell).unwrap_err().to_string();
                assert!(refused.contains("are the same"), "{cell}: {refused}");
                continue;
            }
            let mut site = Site::new([&cell], Duration::from_millis(1)).unwrap();
            let sample = Topology.sample(&cell, &mut site, 1).unwrap();
            assert!(sample.values.iter().all(|value| value.unwrap() > 0.0), "{cell}");
            assert_eq!(sample.values[3].map(|ticks| Clock::get().ns(ticks)), sample.values[2], "{cell}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        for keys in [[("from", "1000")], [("memory", "dram@1000")]] {
            let cells = cells(&keys);
            assert!(Topology.needs(&cells[0]).unwrap_err().to_string().contains("NUMA node 1000"));
        }
    }

    /// Other measurements have neither `size` nor `chunk`.
    #[test]
    fn several_folders_are_one_place_for_every_measurement() {
        for measure in crate::measure::ALL {
            let mut plan = Plan::built_in(measure.name()).unwrap();
            if plan.set("memory", "./a+./b").is_ok() {
                let place = plan.cells().unwrap()[0].memory();
                assert!(matches!(place, Some(Place::Striped(..))), "{}", measure.name());
            }
        }
    }

    #[test]
    fn a_modelled_part_without_a_block_is_refused() {
        let keys = [("memory", "model:optane-100-dimm*6"), ("threads", "5"), ("size", "4Ki")];
        for name in ["topology", "mixed", "stack", "bandwidth", "loaded"] {
            let mut plan = Plan::built_in(name).unwrap();
            keys.iter().for_each(|(key, text)| _ = plan.set(key, text));
            let _ = (plan.set("first-threads", "5"), plan.set("through", "raw"));
            let refused = plan.cells().unwrap()[0].needs();
            assert!(matches!(refused, Err(Error::Unavailable { .. })), "{name}: {refused:?}");
        }
    }

    #[test]
    fn threads_that_are_separate_have_the_devices_in_turn_and_parts_that_do_not_overlap() {
        for (threads, devices, size) in
            [(1, 6, "96Mi"), (5, 6, "96Mi"), (6, 6, "97Mi"), (8, 6, "100Mi"), (7, 3, "256Mi")]
        {
            let (memory, threads) = (format!("model:optane-100-dimm*{devices}"), threads.to_string());
            let keys = [("memory", memory.as_str()), ("layout", "separate"), ("threads", &threads), ("size", size)];
            let of = Of::new(&cells(&keys)[0]);
            let chunk_bytes = of.len_bytes.div_ceil(devices).next_multiple_of(2 << 20);
            let parts: Vec<_> = (0..of.threads).map(|number| of.part_at(number, chunk_bytes)).collect();
            for (number, begin) in parts.iter().enumerate() {
                let end = begin + of.part_bytes();
                assert_eq!((begin / chunk_bytes, (end - 1) / chunk_bytes), (number % devices, number % devices));
                assert!(parts.iter().all(|other| other >= &end || other <= begin), "{threads} threads");
            }
        }
    }

    /// Interleaved, one thread has all devices; separate, only its own (Abed Abud et al., Fig. 8).
    #[test]
    fn modelled_devices_add_up_when_they_are_interleaved() {
        let bandwidth = |layout: &str, threads: &str| {
            let keys = [
                ("memory", "model:optane-100-dimm*6"),
                ("access", "nt"),
                ("layout", layout),
                ("chunk", "4Ki"),
                ("block", "24Ki"),
                ("size", "96Mi"),
                ("threads", threads),
            ];
            cells(&keys)[0].sample(&mut Site::new([], Duration::ZERO).unwrap(), 1).unwrap().values[0].unwrap()
        };
        let near = |got: f64, expected: f64| assert!((got / expected - 1.0).abs() < 0.05, "{got} against {expected}");
        near(bandwidth("interleaved", "1"), 6.0 * 2.2);
        near(bandwidth("separate", "1"), 2.2);
        near(bandwidth("separate", "6"), 6.0 * 2.2);
        near(bandwidth("separate", "3"), 3.0 * 2.2);
        near(bandwidth("separate", "8"), 6.0 * 2.2);
    }
}
