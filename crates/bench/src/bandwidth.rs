//! How many bytes a second go through, by one or several threads, in blocks of any number of lines.

use std::time::Duration;

use crate::code::{self, Access, Blocks, Fence, Line, STORED, Scatter, Width};
use crate::crew::{self, Done};
use crate::error::{Error, Result};
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Memory;
use crate::pattern::{Pattern, Walk};
use crate::site::Site;

/// The measurement `bandwidth`.
#[derive(Debug)]
pub struct Bandwidth;

/// The measurement `iops`: the same, of small blocks whose requests are counted.
#[derive(Debug)]
pub struct Iops;

const BLOCK: &str = "bytes of a block, after which the fence stands";

const RATE: Metric =
    Metric { name: "rate", unit: "M/s", better: Better::More, about: "million blocks a second of all threads" };
const THROUGHPUT: Metric =
    Metric { name: "bandwidth", unit: "GB/s", better: Better::More, about: "10^9 bytes a second of all threads" };
const SLOWEST: Metric = Metric {
    name: "slowest",
    unit: "GB/s",
    better: Better::More,
    about: "what the slowest thread had of it, times the number of threads",
};

const fn keys(access: &'static str, fence: &'static str, block: &'static str, order: &'static str) -> [Key; 9] {
    [
        Key::MEMORY,
        Key::PAGES,
        Key {
            name: "access",
            about: "what is done with each line of a block",
            form: Form::Choice(&Access::NAMES),
            default: access,
        },
        Key { name: "width", about: "bytes of the vectors that do it", form: Form::Choice(&WIDTHS), default: "widest" },
        Key { name: "fence", about: "what waits after each block", form: Form::Choice(&Fence::NAMES), default: fence },
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
        Transfer::of(cell).needs()
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let (rate, bandwidth, slowest) = Transfer::of(cell).sample(cell, site, seed)?;
        Ok(Sample { values: vec![Some(bandwidth), Some(slowest), Some(rate)], ..Sample::default() })
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
        const KEYS: [Key; 9] = keys("movnti", "sfence", "64:*4:16Mi", "sequential");
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 3] = [RATE, THROUGHPUT, SLOWEST];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        Transfer::of(cell).needs()
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let (rate, bandwidth, slowest) = Transfer::of(cell).sample(cell, site, seed)?;
        Ok(Sample { values: vec![Some(rate), Some(bandwidth), Some(slowest)], ..Sample::default() })
    }
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

/// Bytes between two looks at whether the time is over, and the most blocks: their addresses stay in the first-level cache.
const TURN_BYTES: usize = 4 << 20;
const TURN_BLOCKS: usize = 1024;
const LINE_BYTES: usize = 64;

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

    fn needs(&self) -> Result<Needs> {
        self.check()?;
        // What is written depends on the time and the device: as if a thread wrote 10 GB/s.
        let written_bytes = if self.access == Access::Load { self.len_bytes } else { 500_000_000 * self.threads };
        Ok(Needs { memory_bytes: self.len_bytes, written_bytes: written_bytes as u64, sample_ns: 0 })
    }

    /// Million blocks a second, 10^9 bytes a second, and the same as if all threads were as slow as the slowest.
    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<(f64, f64, f64)> {
        let time = site.sample_time;
        let done = self.run(site.memory(cell)?, time, seed)?;
        let bytes_a_second: f64 = done.iter().map(Done::per_second).sum();
        let slowest = done.iter().map(Done::per_second).fold(f64::INFINITY, f64::min);
        let rate = bytes_a_second / self.block_bytes as f64;
        Ok((rate / 1e6, bytes_a_second / 1e9, slowest * self.threads as f64 / 1e9))
    }

    /// # Errors
    /// `Unavailable` when the CPU has not the instructions, or a thread's part is shorter than a block.
    fn check(&self) -> Result<usize> {
        let part_bytes = self.len_bytes / self.threads / self.block_bytes * self.block_bytes;
        if !self.access.is_available(self.width) {
            let (access, width) = (self.access.name(), self.width.name());
            return Err(Error::unavailable(format!("this CPU has no {access} of {width} bytes")));
        }
        if part_bytes == 0 || !self.block_bytes.is_multiple_of(LINE_BYTES) {
            let (threads, block_bytes) = (self.threads, self.block_bytes);
            let what = format!("{} bytes for {threads} threads in blocks of {block_bytes} bytes", self.len_bytes);
            return Err(Error::unavailable(what));
        }
        Ok(part_bytes)
    }

    /// Transfers for so long; what each thread did, in bytes.
    ///
    /// # Errors
    /// `Unavailable` when the CPU has not the instructions, a part is shorter than a block, or a thread cannot be had;
    /// `Wrong` when the bytes that were loaded are not those that lie there.
    pub fn run(&self, memory: &mut Memory, for_time: Duration, seed: u64) -> Result<Vec<Done>> {
        let part_bytes = self.check()?;
        if self.len_bytes > memory.len_bytes() {
            return Err(Error::unavailable(format!("{} bytes of {}", self.len_bytes, memory.len_bytes())));
        }
        if self.access == Access::Load {
            fill(memory, self.len_bytes);
        }
        let base = memory.base().addr();
        base.checked_add(self.len_bytes).expect("it is mapped");
        let mut sums = vec![Sum::default(); self.threads];
        let memory: &Memory = memory;
        let workers = sums.iter_mut().enumerate().map(|(number, sum)| {
            let start = memory.base().wrapping_add(number * part_bytes);
            self.worker(Part { start, blocks: part_bytes / self.block_bytes }, seed + number as u64, sum)
        });
        let done = crew::work_together(workers.collect(), for_time)?;
        if self.access == Access::Load && !sums.iter().all(Sum::is_right) {
            return Err(Error::Wrong { what: "the sum of the bytes that were loaded" });
        }
        Ok(done)
    }

    fn worker<'s>(&self, part: Part, seed: u64, sum: &'s mut Sum) -> impl FnMut() -> u64 + Send + use<'s> {
        let Transfer { access, width, fence, block_bytes, pattern, .. } = *self;
        let lines = block_bytes / LINE_BYTES;
        let mut order = Order::new(pattern, &part, block_bytes, seed);
        let mut line = if access == Access::Load { Line([0; 8]) } else { Line([STORED; 8]) };
        move || {
            // All of it, and not its fields one by one, goes to the thread.
            let order = &mut order;
            let blocks = order.next_turn();
            let visited = match &blocks {
                Blocks::List(list) => list.len() as u64,
                Blocks::Scattered(_, numbers) => numbers.end - numbers.start,
            };
            // SAFETY: the blocks lie in the part of the memory that is this thread's; that the CPU has the instructions
            // was asked.
            unsafe { code::blocks(access, width, fence, blocks, lines, &mut line) };
            if access == Access::Load {
                sum.loaded_lines += visited * lines as u64;
                sum.words = line.0;
            } else {
                code::wait();
            }
            visited * block_bytes as u64
        }
    }
}

/// A thread's part of the memory.
struct Part {
    start: *mut u8,
    blocks: usize,
}

// SAFETY: addresses of memory that outlives the threads, of which each has a part of its own.
unsafe impl Send for Part {}

/// The blocks of one turn after the other. Where it can be computed beside the accesses, it is; a list that is made between
/// turns would take as long as small blocks do.
enum Order {
    Scattered { scatter: Scatter, blocks: u64, next: u64, a_turn: u64 },
    Listed { walk: Walk, start: *mut u8, block_bytes: usize, list: Vec<*mut u8> },
}

// SAFETY: as above.
unsafe impl Send for Order {}

impl Order {
    /// In a random order there are as many blocks as the largest power of two that fits.
    fn new(pattern: Pattern, part: &Part, block_bytes: usize, seed: u64) -> Order {
        let a_turn = (TURN_BYTES / block_bytes).max(1) as u64;
        let bits = part.blocks.ilog2();
        let (scatter, blocks) = match pattern {
            Pattern::Sequential => (Scatter::in_order(part.start, block_bytes), part.blocks as u64),
            Pattern::Random => (Scatter::random(part.start, block_bytes, bits, seed), 1 << bits),
            Pattern::Stride(_) | Pattern::Zipf(_) | Pattern::SameLine => {
                let list = Vec::with_capacity(a_turn.min(TURN_BLOCKS as u64) as usize);
                return Order::Listed {
                    walk: Walk::new(pattern, part.blocks, seed),
                    start: part.start,
                    block_bytes,
                    list,
                };
            }
        };
        Order::Scattered { scatter, blocks, next: 0, a_turn }
    }

    fn next_turn(&mut self) -> Blocks<'_> {
        match self {
            Order::Scattered { scatter, blocks, next, a_turn } => {
                let numbers = *next..(*next + *a_turn).min(*blocks);
                *next = if numbers.end == *blocks { 0 } else { numbers.end };
                Blocks::Scattered(scatter, numbers)
            }
            Order::Listed { walk, start, block_bytes, list } => {
                list.clear();
                list.extend((0..list.capacity()).map(|_| start.wrapping_add(walk.next_line() * *block_bytes)));
                Blocks::List(list)
            }
        }
    }
}

/// The exclusive or of all words that were loaded. Each word is the same, so it is that of one word when their number is
/// odd, and 0 else.
#[derive(Clone, Debug, Default)]
struct Sum {
    loaded_lines: u64,
    words: [u64; 8],
}

impl Sum {
    fn is_right(&self) -> bool {
        let expected = if self.loaded_lines % 2 == 1 { STORED } else { 0 };
        self.words == [expected; 8]
    }
}

/// Puts what is stored into every word.
fn fill(memory: &mut Memory, len_bytes: usize) {
    let addresses = [memory.base()];
    let mut line = Line([STORED; 8]);
    // SAFETY: whole lines of the memory, which is borrowed alone; every CPU has these instructions.
    unsafe {
        let one = Blocks::List(&addresses);
        code::blocks(Access::Store, Width::Bytes16, Fence::Sfence, one, len_bytes / LINE_BYTES, &mut line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Pages, Place};

    fn transfer(access: Access, pattern: Pattern, block_bytes: usize, threads: usize) -> Transfer {
        let (width, fence, len_bytes) = (Width::Bytes16, Fence::None, 1 << 20);
        Transfer { access, width, fence, block_bytes, pattern, len_bytes, threads }
    }

    #[test]
    fn what_is_loaded_is_summed_up_and_what_is_stored_arrives() {
        let mut memory = Memory::new(&Place::Dram, Pages::Small, 1 << 20).unwrap();
        let time = Duration::from_millis(2);
        for pattern in [Pattern::Sequential, Pattern::Random, Pattern::Zipf(0.99), Pattern::Stride(4096)] {
            for (block_bytes, threads) in [(64, 1), (5568, 2), (1 << 18, 3)] {
                let done = transfer(Access::Load, pattern, block_bytes, threads).run(&mut memory, time, 1).unwrap();
                assert!(done.len() == threads && done.iter().all(|done| done.work.is_multiple_of(block_bytes as u64)));
                transfer(Access::NonTemporal, pattern, block_bytes, threads).run(&mut memory, time, 1).unwrap();
            }
        }
        // SAFETY: a word of the memory.
        let word = |at: usize| unsafe { memory.base().add(at).cast::<u64>().read() };
        assert_eq!(word(0), STORED);
    }

    #[test]
    fn a_wrong_sum_is_noticed_and_what_cannot_be_is_refused() {
        let mut memory = Memory::new(&Place::Dram, Pages::Small, 1 << 20).unwrap();
        let refused = |block_bytes, threads, memory: &mut Memory| {
            let transfer = transfer(Access::Load, Pattern::Sequential, block_bytes, threads);
            assert!(matches!(transfer.run(memory, Duration::ZERO, 1), Err(Error::Unavailable { .. })));
        };
        refused(1 << 20, 2, &mut memory);
        refused(100, 1, &mut memory);
        refused(2 << 20, 1, &mut memory);
        assert!(Sum::default().is_right());
        assert!(Sum { loaded_lines: 3, words: [STORED; 8] }.is_right());
        assert!(!Sum { loaded_lines: 2, words: [STORED; 8] }.is_right());
    }
}
