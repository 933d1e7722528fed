//! How many bytes a second go through, by one or several threads, in blocks of any number of lines.

use std::time::Duration;

use pmem::DeviceProfile;

use crate::code::{Access, Fence, Width};
use crate::crew::{self, Done};
use crate::error::{Error, Result};
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Memory;
use crate::model;
use crate::pattern::Pattern;
use crate::site::Site;
use crate::stream::{self, Kind, Stream};

/// The measurement `bandwidth`.
#[derive(Debug)]
pub struct Bandwidth;

/// The measurement `iops`: the same, of small blocks whose requests are counted.
#[derive(Debug)]
pub struct Iops;

/// As in Abed Abud et al., or what comes next to it.
const SMALL_STORE: &str = if cfg!(target_arch = "x86_64") { "movnti" } else { Access::PAST_CACHE.name() };

const BLOCK: &str = "bytes of a block, after which the fence stands";

const RATE: Metric =
    Metric { name: "rate", unit: "M/s", better: Better::More, about: "million blocks a second of all threads" };
const THROUGHPUT: Metric =
    Metric { name: "bandwidth", unit: "GB/s", better: Better::More, about: "10^9 bytes a second of all threads" };
const SLOWEST: Metric = Metric {
    name: "slowest",
    unit: "GB/s",
    better: Better::More,
    about: "what the slowest thread had of it, times the number of threads, where each had its CPU",
};

const fn keys(access: &'static str, fence: &'static str, block: &'static str, order: &'static str) -> [Key; 9] {
    [
        Key::MEMORY,
        Key::PAGES,
        Key { name: "access", about: "what is done with each line of a block", form: Access::FORM, default: access },
        Key { name: "width", about: "bytes of the vectors that do it", form: Form::Choice(&WIDTHS), default: "widest" },
        Key { name: "fence", about: "what waits after each block", form: Fence::FORM, default: fence },
        Key { name: "block", about: BLOCK, form: Form::Bytes { multiple_of: 64 }, default: block },
        Key { name: "order", about: "the order of the blocks", form: Form::Order, default: order },
        Key {
            name: "size",
            about: "bytes of the working set of all threads, of which each has a part",
            form: Form::Bytes { multiple_of: 64 },
            default: "1Gi",
        },
        Key::THREADS,
    ]
}

const WIDTHS: [&str; 4] = ["16", "32", "64", "widest"];

impl Measure for Bandwidth {
    fn name(&self) -> &'static str {
        "bandwidth"
    }

    fn about(&self) -> &'static str {
        "how many bytes a second threads load or store"
    }

    fn keys(&self) -> &'static [Key] {
        const KEYS: [Key; 9] = keys("load", "none", "4Ki", "sequential");
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 3] = [THROUGHPUT, SLOWEST, RATE];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        Transfer::checked(cell)?.needs()
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let Moved { rate, gb_s, slowest, overhead } = Transfer::of(cell).sample(cell, site, seed)?;
        Ok(Sample { values: vec![Some(gb_s), slowest, Some(rate)], overhead, ..Sample::default() })
    }

    fn model(&self, cell: &Cell, device: &'static DeviceProfile, seed: u64) -> Result<Sample> {
        let Moved { rate, gb_s, slowest, .. } = Transfer::checked(cell)?.model(device, seed)?;
        Ok(Sample { values: vec![Some(gb_s), slowest, Some(rate)], ..Sample::default() })
    }
}

impl Measure for Iops {
    fn name(&self) -> &'static str {
        "iops"
    }

    fn about(&self) -> &'static str {
        "how many blocks a second threads load or store, each fenced (Abed Abud et al., section 4)"
    }

    fn keys(&self) -> &'static [Key] {
        const KEYS: [Key; 9] = keys(SMALL_STORE, Fence::OF_STORES.name(), "64:*4:16Mi", "sequential");
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 3] = [RATE, THROUGHPUT, SLOWEST];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        Transfer::checked(cell)?.needs()
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let Moved { rate, gb_s, slowest, overhead } = Transfer::of(cell).sample(cell, site, seed)?;
        Ok(Sample { values: vec![Some(rate), Some(gb_s), slowest], overhead, ..Sample::default() })
    }

    fn model(&self, cell: &Cell, device: &'static DeviceProfile, seed: u64) -> Result<Sample> {
        let Moved { rate, gb_s, slowest, .. } = Transfer::checked(cell)?.model(device, seed)?;
        Ok(Sample { values: vec![Some(rate), Some(gb_s), slowest], ..Sample::default() })
    }
}

/// What all threads moved.
struct Moved {
    /// Million blocks a second.
    rate: f64,
    /// 10^9 bytes a second.
    gb_s: f64,
    /// The same if all threads were as slow as the slowest; nothing when one of them never had its CPU.
    slowest: Option<f64>,
    /// See [`stream::overhead`].
    overhead: Option<f64>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// What is done with each line.
    pub access: Access,
    /// By vectors of this width.
    pub width: Width,
    /// What waits after each block.
    pub fence: Fence,
    /// Bytes of a block, a multiple of 64.
    pub block_bytes: usize,
    /// The order of the blocks.
    pub pattern: Pattern,
    /// Bytes of the working set of all threads; each has a part of its own.
    pub len_bytes: usize,
    /// How many threads.
    pub threads: usize,
}

/// What threads did.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Each of them, in bytes.
    pub done: Vec<Done>,
    /// See [`stream::overhead`].
    pub overhead: f64,
}

/// Bytes between two looks at whether the time is over.
const TURN_BYTES: usize = 4 << 20;

impl Transfer {
    fn of(cell: &Cell) -> Transfer {
        let width = match cell.word("width") {
            "widest" => Width::widest(),
            width => Width::named(width),
        };
        Transfer {
            access: Access::named(cell.word("access")),
            width,
            fence: Fence::named(cell.word("fence")),
            block_bytes: cell.len("block"),
            pattern: cell.order(),
            len_bytes: cell.len("size"),
            threads: cell.len("threads"),
        }
    }

    /// That of a cell, if it says nothing that would not be done.
    fn checked(cell: &Cell) -> Result<Transfer> {
        let transfer = Transfer::of(cell);
        if cell.word("width") != "widest" && !transfer.access.has_width() {
            let access = transfer.access.name();
            return Err(Error::unavailable(format!("{access} has no width: it always stores the same way")));
        }
        transfer.pattern.check(transfer.block_bytes)?;
        Ok(transfer)
    }

    fn needs(&self) -> Result<Needs> {
        self.check()?;
        let is_load = self.access == Access::Load;
        Ok(Needs {
            memory_bytes: self.len_bytes,
            threads: self.threads,
            written_bytes: if is_load { self.len_bytes as u64 } else { 0 },
            writes_gb_s: if is_load { 0.0 } else { 10.0 * self.threads as f64 },
            sample_ns: 0,
        })
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Moved> {
        let time = site.sample_time;
        let Ran { done, overhead } = self.run(site.memory(cell)?, time, seed)?;
        Ok(Moved { overhead: Some(overhead), ..self.moved(&done) })
    }

    fn model(&self, device: &'static DeviceProfile, seed: u64) -> Result<Moved> {
        let part_bytes = self.len_bytes / self.threads;
        let thread =
            |number: usize| model::stream(device, &self.kind(), number * part_bytes, part_bytes, seed + number as u64);
        let threads = (0..self.threads).map(thread).collect::<Result<_>>()?;
        Ok(self.moved(&model::simulate(device, threads)))
    }

    fn moved(&self, done: &[Done]) -> Moved {
        let bytes_a_second: f64 = done.iter().map(Done::per_second).sum();
        let slowest = done.iter().map(Done::per_second).fold(f64::INFINITY, f64::min);
        let slowest = Some(slowest * self.threads as f64 / 1e9).filter(|_| done.iter().all(|done| done.work > 0));
        let rate = bytes_a_second / self.block_bytes as f64;
        Moved { rate: rate / 1e6, gb_s: bytes_a_second / 1e9, slowest, overhead: None }
    }

    /// # Errors
    /// `Unavailable` when the CPU has not the instructions, a thread's part is shorter than a block, or the order is none of
    /// such blocks.
    fn check(&self) -> Result<usize> {
        self.kind().check()?;
        let part_bytes = self.len_bytes / self.threads / self.block_bytes * self.block_bytes;
        if part_bytes == 0 {
            let (threads, block_bytes) = (self.threads, self.block_bytes);
            let what = format!("{} bytes for {threads} threads in blocks of {block_bytes} bytes", self.len_bytes);
            return Err(Error::unavailable(what));
        }
        Ok(part_bytes)
    }

    /// Transfers for so long.
    ///
    /// # Errors
    /// `Unavailable` when the CPU has not the instructions, a part is shorter than a block, or a thread cannot be had;
    /// `Wrong` when the bytes that were loaded are not those that lie there, or those that were stored are not there.
    pub fn run(&self, memory: &mut Memory, for_time: Duration, seed: u64) -> Result<Ran> {
        let part_bytes = self.check()?;
        if self.len_bytes > memory.len_bytes() {
            return Err(Error::unavailable(format!("{} bytes of {}", self.len_bytes, memory.len_bytes())));
        }
        if self.access == Access::Load {
            stream::fill(memory, self.len_bytes);
        }
        let memory: &Memory = memory;
        let stream = |number: usize| {
            let part = number * part_bytes..(number + 1) * part_bytes;
            Stream::new(&self.kind(), memory, part, TURN_BYTES, seed + number as u64)
        };
        let mut streams: Vec<Stream<'_>> = (0..self.threads).map(stream).collect();
        let done = crew::work_together(streams.iter_mut().map(|stream| || stream.turn()).collect(), for_time)?;
        if !streams.iter().all(Stream::is_right) {
            return Err(Error::Wrong { what: stream::MOVED });
        }
        Ok(Ran { overhead: stream::overhead(&streams, &done)?, done })
    }

    fn kind(&self) -> Kind {
        let Transfer { access, width, fence, block_bytes, pattern, .. } = *self;
        Kind { access, width, fence, block_bytes, pattern }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::STORED;
    use crate::memory::{Pages, Place};

    fn transfer(access: Access, pattern: Pattern, block_bytes: usize, threads: usize) -> Transfer {
        let (width, fence, len_bytes) = (Width::Bytes16, Fence::None, 1 << 20);
        Transfer { access, width, fence, block_bytes, pattern, len_bytes, threads }
    }

    #[test]
    fn what_is_loaded_is_summed_up_and_what_is_stored_arrives() {
        let mut memory = Memory::new(&Place::Dram, Pages::Small, 1 << 20).unwrap();
        let time = Duration::from_millis(2);
        for (block_bytes, threads) in [(64, 1), (5568, 2), (1 << 18, 3)] {
            for pattern in [Pattern::Sequential, Pattern::Random, Pattern::Zipf(0.99), Pattern::Stride(2 * block_bytes)]
            {
                let done = transfer(Access::Load, pattern, block_bytes, threads).run(&mut memory, time, 1).unwrap();
                let done = done.done;
                assert!(done.len() == threads && done.iter().all(|done| done.work.is_multiple_of(block_bytes as u64)));
                transfer(Access::PAST_CACHE, pattern, block_bytes, threads).run(&mut memory, time, 1).unwrap();
            }
        }
        assert_eq!(memory.word(0), STORED);
    }

    #[test]
    fn the_slowest_thread_is_not_told_when_one_never_had_its_cpu() {
        let transfer = transfer(Access::Load, Pattern::Sequential, 64, 2);
        let slowest =
            |first, second| transfer.moved(&[Done { work: first, ns: 1000 }, Done { work: second, ns: 1000 }]).slowest;
        assert_eq!((slowest(3000, 1000), slowest(3000, 0)), (Some(2.0), None));
    }

    /// Cells that differ in a width that there is not would be the same.
    #[test]
    fn a_width_of_what_has_none_and_a_stride_within_blocks_are_refused() {
        let refused = |name: &str, keys: &[(&str, &str)]| {
            let mut plan = crate::plan::Plan::built_in(name).unwrap();
            keys.iter().for_each(|(key, text)| plan.set(key, text).unwrap());
            let cells = plan.cells().unwrap();
            cells[0].needs().map_err(|error| error.to_string())
        };
        let told = refused("iops", &[("access", "movsq"), ("width", "16"), ("block", "64")]).unwrap_err();
        assert!(told.contains("movsq has no width"), "{told}");
        for memory in ["dram", "model:optane-100-dimm"] {
            let keys = [("memory", memory), ("access", "load"), ("order", "stride:4Ki"), ("block", "5568")];
            assert!(refused("bandwidth", &keys).unwrap_err().contains("stride of 4096 bytes"));
            let keys = [("memory", memory), ("access", "load"), ("order", "stride:4Ki"), ("block", "1Ki")];
            assert!(refused("bandwidth", &keys).is_ok());
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut memory = Memory::new(&Place::Dram, Pages::Small, 1 << 20).unwrap();
        let refused = |block_bytes, threads, memory: &mut Memory| {
            let transfer = transfer(Access::Load, Pattern::Sequential, block_bytes, threads);
            assert!(matches!(transfer.run(memory, Duration::ZERO, 1), Err(Error::Unavailable { .. })));
        };
        refused(1 << 20, 2, &mut memory);
        refused(100, 1, &mut memory);
        refused(2 << 20, 1, &mut memory);
    }
}
