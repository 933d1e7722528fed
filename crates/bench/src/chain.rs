//! Loads that wait for one another: each line has the address of the next, so that the time of a step is the latency of a
//! load, and no prefetcher can run ahead. Several chains at a time show how many misses a core keeps under way.

use std::ptr;

use fastrand::Rng;
use pmem::DeviceProfile;

use crate::clock::{Clock, ticks};
use crate::code::{Access, Fence};
use crate::crew::{self, Done};
use crate::error::Result;
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Memory;
use crate::model::{self, Program, Touch};
use crate::pattern::{Pattern, Walk};
use crate::site::Site;

/// The measurement `load`.
#[derive(Debug)]
pub struct Chains;

/// Most chains that are followed at a time.
pub const MAX_CHAINS: usize = 16;

/// The locality that chains have where nothing else is said.
pub(crate) const LOCALITY_BYTES: usize = 256 << 10;

const LINE_BYTES: usize = 64;
/// Steps between two readings of the clock are multiples of this.
const UNROLLED: usize = 16;

/// Steps of each chain in a sample, at least; a long cycle is followed over so many of its lines.
const STEPS: usize = 1 << 18;

impl Measure for Chains {
    fn name(&self) -> &'static str {
        "load"
    }

    fn about(&self) -> &'static str {
        "how long a load takes whose address the load before it has brought, in one or several chains"
    }

    fn keys(&self) -> &'static [Key] {
        const KEYS: [Key; 5] = [
            Key::MEMORY,
            Key::PAGES,
            Key {
                name: "size",
                about: "bytes of the working set",
                form: Form::Bytes { multiple_of: 64 },
                default: "16Ki:*2:256Mi",
            },
            Key {
                name: "chains",
                about: "chains that are followed at a time",
                form: Form::Count { least: 1, most: MAX_CHAINS as u64 },
                default: "1",
            },
            Key {
                name: "locality",
                about: "bytes of a block whose lines are all met before those of another",
                form: Form::Bytes { multiple_of: 64 },
                default: "256Ki",
            },
        ];
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 3] = [
            Metric { name: "latency", unit: "ns", better: Better::Less, about: "time of a step of a chain" },
            Metric {
                name: "latency-ticks",
                unit: "ticks",
                better: Better::Less,
                about: "the same in ticks of the counter",
            },
            Metric { name: "loads", unit: "M/s", better: Better::More, about: "million loads a second of all chains" },
        ];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        let memory_bytes = cell.len("size");
        Ok(Needs {
            memory_bytes,
            threads: 1,
            written_bytes: memory_bytes as u64,
            sample_ns: 30_000_000 + memory_bytes as u64,
            ..Needs::default()
        })
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let clock = Clock::get();
        let _alone = crew::alone()?;
        let mut cycle = Cycle::new(site.memory(cell)?, cell.len("size"), cell.len("locality"), seed);
        let chains = cell.len("chains");
        // Once around, or as far, so that what fits into caches is there.
        let lines = (cell.len("size") / LINE_BYTES).min(STEPS);
        cycle.follow(chains, lines);
        let (taken, steps) = cycle.follow(chains, STEPS);
        let taken = taken.saturating_sub(clock.pair_ticks) as f64;
        let step = taken / (steps as f64 / chains as f64);
        let values = vec![Some(clock.ns(step)), Some(step), Some(steps as f64 * 1e3 / clock.ns(taken))];
        Ok(Sample { values, overhead: clock.pair_ticks as f64 / taken, ..Sample::default() })
    }

    /// Caches are no business of a device: every load goes there.
    fn model(&self, cell: &Cell, device: &'static DeviceProfile, seed: u64) -> Result<Sample> {
        let touch = Touch::new(device, Access::Load, Fence::None, LINE_BYTES, true)?;
        let chain = |number: u64| -> Program<'_> {
            let mut walk = Walk::new(Pattern::Random, cell.len("size") / LINE_BYTES, seed + number);
            Box::new(move |clock, now_ns| (touch.run(clock, now_ns, (LINE_BYTES * walk.next_line()) as u64), 1))
        };
        let chains = cell.number("chains");
        let done = model::simulate(device, (0..chains).map(chain).collect());
        let rate: f64 = done.iter().map(Done::per_second).sum();
        let step_ns = chains as f64 * 1e9 / rate;
        Ok(Sample { values: vec![Some(step_ns), None, Some(rate / 1e6)], ..Sample::default() })
    }
}

// SAFETY: the addresses lie in memory that is borrowed and may be read by any thread.
unsafe impl Send for Cycle<'_> {}

/// A cycle through the lines of a working set.
#[derive(Debug)]
pub struct Cycle<'m> {
    memory: &'m Memory,
    /// Addresses along the cycle, equally far apart: where chains start.
    starts: [*const u8; MAX_CHAINS],
}

impl<'m> Cycle<'m> {
    /// Writes a cycle into the first `len_bytes` of a memory: each line once, in a random order within blocks of
    /// `locality_bytes`, which come in a random order, so that the TLB has each block's pages at most once. All whole blocks
    /// have one order, each from another line on: that is quickly written, and no prefetcher learns thousands of lines.
    ///
    /// # Panics
    /// If there is no line, or the memory is shorter.
    pub fn new(memory: &'m mut Memory, len_bytes: usize, locality_bytes: usize, seed: u64) -> Cycle<'m> {
        assert!(len_bytes >= LINE_BYTES && len_bytes <= memory.len_bytes(), "{len_bytes} bytes");
        memory.filled_bytes = 0;
        let order = Order::new(len_bytes / LINE_BYTES, locality_bytes / LINE_BYTES, &mut Rng::with_seed(seed));
        let address = |line: usize| memory.base().wrapping_add(line * LINE_BYTES);
        let first = order.line(0, 0);
        let mut last = first;
        for (block, count) in order.counts() {
            for at in usize::from(block == 0)..count {
                let line = order.line(block, at);
                // SAFETY: the line lies in the memory, which nobody else has; its start is aligned.
                unsafe { address(last).cast::<*const u8>().write(address(line)) };
                last = line;
            }
        }
        // SAFETY: as above.
        unsafe { address(last).cast::<*const u8>().write(address(first)) };
        let starts = std::array::from_fn(|chain| address(order.nth(chain * order.lines / MAX_CHAINS)).cast_const());
        Cycle { memory, starts }
    }

    /// Follows `chains` chains for at least so many steps each: the ticks that it took, and the steps of all chains.
    ///
    /// # Panics
    /// If there is no chain, or are more than [`MAX_CHAINS`].
    pub fn follow(&mut self, chains: usize, steps: usize) -> (u64, u64) {
        let turns = steps.div_ceil(UNROLLED);
        macro_rules! among {
            ($($count:literal)*) => {
                match chains {
                    // SAFETY: every start lies on the cycle, which is closed and lies in borrowed memory.
                    $($count => unsafe { follow::<$count>(&mut self.starts, turns) },)*
                    _ => panic!("{chains} chains"),
                }
            };
        }
        let taken = among!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        (taken, (chains * turns * UNROLLED) as u64)
    }

    /// Stores to every line of the cycle what is there already, so that it is in the cache and dirty.
    pub fn touch(&mut self) {
        let mut at = self.starts[0];
        loop {
            // SAFETY: an address on the cycle, whose lines nobody else has.
            unsafe {
                let next = at.cast::<*const u8>().read_volatile();
                at.cast_mut().cast::<*const u8>().write_volatile(next);
                at = next;
            }
            if at == self.starts[0] {
                return;
            }
        }
    }

    /// The memory that it lies in.
    pub fn memory(&self) -> &'m Memory {
        self.memory
    }

    /// How many bytes of its pages there are.
    pub fn page_bytes(&self) -> usize {
        self.memory.page_bytes()
    }
}

/// In which order a cycle meets lines.
struct Order {
    lines: usize,
    block_lines: usize,
    /// Each block's number, in the order in which they are met, and where in the order of its lines it begins.
    blocks: Vec<(usize, usize)>,
    within: Vec<usize>,
    /// The same of the block at the end that has not so many lines.
    within_last: Vec<usize>,
}

impl Order {
    fn new(lines: usize, block_lines: usize, rng: &mut Rng) -> Order {
        let block_lines = block_lines.clamp(1, lines);
        let mut shuffled = |count: usize| {
            let mut all: Vec<usize> = (0..count).collect();
            rng.shuffle(&mut all);
            all
        };
        let (within, within_last) = (shuffled(block_lines), shuffled(lines % block_lines));
        let numbers = shuffled(lines.div_ceil(block_lines));
        let blocks = numbers.into_iter().map(|number| (number, rng.usize(0..block_lines))).collect();
        Order { lines, block_lines, blocks, within, within_last }
    }

    /// The blocks in their order, with the number of their lines.
    fn counts(&self) -> impl Iterator<Item = (usize, usize)> {
        self.blocks.iter().enumerate().map(|(block, (number, _))| (block, self.count(*number)))
    }

    fn count(&self, number: usize) -> usize {
        self.block_lines.min(self.lines - number * self.block_lines)
    }

    /// A line of the block that is met at this place among the blocks.
    fn line(&self, block: usize, at: usize) -> usize {
        let (number, from) = self.blocks[block];
        let count = self.count(number);
        let within = if count == self.block_lines { &self.within } else { &self.within_last };
        number * self.block_lines + within[(at + from) % count]
    }

    /// The line that is met at this place among all.
    fn nth(&self, mut place: usize) -> usize {
        for (block, count) in self.counts() {
            if place < count {
                return self.line(block, place);
            }
            place -= count;
        }
        unreachable!("there are {} lines", self.lines)
    }
}

/// # Safety
/// The first `K` places are addresses of a closed cycle of readable addresses.
#[inline(never)]
unsafe fn follow<const K: usize>(places: &mut [*const u8; MAX_CHAINS], turns: usize) -> u64 {
    let mut at: [*const u8; K] = std::array::from_fn(|chain| places[chain]);
    let start = ticks();
    for _ in 0..turns {
        for _ in 0..UNROLLED {
            for place in &mut at {
                // SAFETY: what is read on the cycle is an address on it.
                *place = unsafe { ptr::read_volatile(place.cast::<*const u8>()) };
            }
        }
    }
    let taken = ticks() - start;
    // Where the chains are is needed later, so no load can be left out.
    places[..K].copy_from_slice(&at);
    taken
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::memory::{Pages, Place};

    /// Followed step by step, the cycle meets every line once, each block in one go.
    #[test]
    fn a_cycle_meets_every_line_and_stays_in_a_block() {
        let mut memory = Memory::new(&Place::Dram, Pages::Small, 1 << 16).unwrap();
        let base = memory.base().addr();
        let mut cycle = Cycle::new(&mut memory, 40_000, 4096, 5);
        let lines = 40_000 / 64;
        let mut met = Vec::new();
        let mut at = cycle.starts[0];
        for _ in 0..lines {
            met.push((at.addr() - base) / 64);
            // SAFETY: an address on the cycle.
            at = unsafe { at.cast::<*const u8>().read() };
        }
        assert_eq!(at, cycle.starts[0]);
        assert_eq!(met.iter().collect::<BTreeSet<_>>().len(), lines);
        let blocks = met.windows(2).filter(|pair| pair[0] / 64 != pair[1] / 64).count();
        assert!(blocks <= lines.div_ceil(64), "{blocks} changes of block");
        let in_order = met.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(in_order < lines / 8, "{in_order} lines follow their neighbour");
        for chains in 1..=MAX_CHAINS {
            let (taken, steps) = cycle.follow(chains, 100);
            assert!(taken > 0 && steps == (112 * chains) as u64);
        }
        let starts: BTreeSet<_> = cycle.starts.iter().collect();
        assert_eq!(starts.len(), MAX_CHAINS, "chains never run together");
    }
}
