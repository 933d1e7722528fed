//! Loads that wait for one another: each line has the address of the next, so that the time of a step is the latency of a
//! load, and no prefetcher knows where it leads. One that brings neighbours all the same brings what comes soon: as soon as the
//! locality is small. Several chains at a time show how many misses a core keeps under way.

use std::ptr;

use pmem::DeviceProfile;

use crate::clock::{Clock, ticks};
use crate::code::{self, Access, Fence};
use crate::crew::{self, Done};
use crate::error::Result;
use crate::machine;
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Memory;
use crate::model::{self, Program, Touch};
use crate::pattern::{Pattern, Permutation, Walk};
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

/// Steps of each chain in a sample; of a cycle that no cache has no more than meet no line twice.
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
        let (size, chains) = (cell.len("size"), cell.len("chains"));
        let memory = site.memory(cell)?;
        let mut cycle = Cycle::new(memory, size, cell.len("locality"), chains, seed);
        let each = size / LINE_BYTES / chains;
        let steps = if size as u64 > machine::cache_bytes() {
            // Writing the cycle has left the end of it in the caches.
            code::evict(cycle.memory(), size);
            each.clamp(UNROLLED, STEPS)
        } else {
            // Once around: writing the cycle has brought all of it into some cache, and this into the nearest.
            cycle.follow(each.min(STEPS));
            STEPS
        };
        let (taken, steps) = cycle.follow(steps);
        let taken = taken.saturating_sub(clock.pair_ticks) as f64;
        let step = taken / (steps as f64 / chains as f64);
        let values = vec![Some(clock.ns(step)), Some(step), Some(steps as f64 * 1e3 / clock.ns(taken))];
        Ok(Sample { values, overhead: Some(clock.pair_ticks as f64 / taken), ..Sample::default() })
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
pub(crate) struct Cycle<'m> {
    memory: &'m Memory,
    /// Where each chain is: at the start equally far apart along the cycle.
    at: Vec<*const u8>,
}

impl<'m> Cycle<'m> {
    /// Writes a cycle into the first `len_bytes` of a memory: each line once, in a random order within blocks of
    /// `locality_bytes`, which come in a random order, so that the TLB has each block's pages at most once. All whole blocks
    /// have one order, each from another line on: that is quickly written, and no prefetcher learns thousands of lines.
    ///
    /// # Panics
    /// If there is no line, or the memory is shorter; if there is no chain, or are more than [`MAX_CHAINS`].
    pub(crate) fn new(
        memory: &'m mut Memory,
        len_bytes: usize,
        locality_bytes: usize,
        chains: usize,
        seed: u64,
    ) -> Cycle<'m> {
        assert!(len_bytes >= LINE_BYTES && len_bytes <= memory.len_bytes(), "{len_bytes} bytes");
        assert!((1..=MAX_CHAINS).contains(&chains), "{chains} chains");
        memory.filled_bytes = 0;
        let order = Order::new(len_bytes / LINE_BYTES, locality_bytes / LINE_BYTES, seed);
        let address = |line: usize| memory.base().wrapping_add(line * LINE_BYTES);
        let first = order.line(0);
        let mut last = first;
        for place in 1..order.lines {
            let line = order.line(place);
            // SAFETY: the line lies in the memory, which nobody else has; its start is aligned.
            unsafe { address(last).cast::<*const u8>().write(address(line)) };
            last = line;
        }
        // SAFETY: as above.
        unsafe { address(last).cast::<*const u8>().write(address(first)) };
        let start = |chain| address(order.line(chain * order.lines / chains)).cast_const();
        Cycle { memory, at: (0..chains).map(start).collect() }
    }

    /// Follows each chain for at least so many steps: the ticks that it took, and the steps of all chains.
    pub(crate) fn follow(&mut self, steps: usize) -> (u64, u64) {
        let turns = steps.div_ceil(UNROLLED);
        let chains = self.at.len();
        macro_rules! among {
            ($($count:literal)*) => {
                match chains {
                    // SAFETY: every chain is on the cycle, which is closed and lies in borrowed memory.
                    $($count => unsafe { follow::<$count>(&mut self.at, turns) },)*
                    _ => panic!("{chains} chains"),
                }
            };
        }
        let taken = among!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        (taken, (chains * turns * UNROLLED) as u64)
    }

    /// Stores to every line of the cycle what is there already, so that it is in the cache and dirty.
    pub(crate) fn touch(&mut self) {
        let mut at = self.at[0];
        loop {
            // SAFETY: an address on the cycle, whose lines nobody else has.
            unsafe {
                let next = at.cast::<*const u8>().read_volatile();
                at.cast_mut().cast::<*const u8>().write_volatile(next);
                at = next;
            }
            if at == self.at[0] {
                return;
            }
        }
    }

    /// The memory that it lies in.
    pub(crate) fn memory(&self) -> &'m Memory {
        self.memory
    }
}

/// In which order a cycle meets lines; it takes no memory, which a large one would have little of.
struct Order {
    lines: usize,
    block_lines: usize,
    /// The blocks in the order in which they are met, and the lines of a whole one.
    blocks: Permutation,
    within: Permutation,
    /// Of the block at the end that has fewer lines: where it is met, and its lines. Where all are whole it is met last.
    short_at: usize,
    within_short: Permutation,
}

impl Order {
    fn new(lines: usize, block_lines: usize, seed: u64) -> Order {
        let block_lines = block_lines.clamp(1, lines);
        let short_lines = lines % block_lines;
        let blocks = Permutation::new(lines.div_ceil(block_lines), seed);
        let number = lines / block_lines;
        let is_short = |at: &usize| short_lines > 0 && blocks.line(*at) == number;
        Order {
            lines,
            block_lines,
            short_at: (0..lines.div_ceil(block_lines)).find(is_short).unwrap_or(number),
            within: Permutation::new(block_lines, seed.wrapping_add(1)),
            within_short: Permutation::new(short_lines.max(1), seed.wrapping_add(2)),
            blocks,
        }
    }

    /// The line that is met at this place among all.
    fn line(&self, place: usize) -> usize {
        let short_lines = self.lines % self.block_lines;
        let short_from = self.short_at * self.block_lines;
        if (short_from..short_from + short_lines).contains(&place) {
            return self.lines - short_lines + self.within_short.line(place - short_from);
        }
        // Behind the short block, what it lacks is missing.
        let behind = if place >= short_from + short_lines { self.block_lines - short_lines } else { 0 };
        let (block, at) = ((place + behind) / self.block_lines, (place + behind) % self.block_lines);
        let number = self.blocks.line(block);
        // Another first line in each block.
        let from = number.wrapping_mul(0x9e37_79b9) >> 7;
        number * self.block_lines + self.within.line((at + from % self.block_lines) % self.block_lines)
    }
}

/// # Safety
/// There are `K` places, addresses of a closed cycle of readable addresses.
#[inline(never)]
unsafe fn follow<const K: usize>(places: &mut [*const u8], turns: usize) -> u64 {
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
    places.copy_from_slice(&at);
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
        for (len_bytes, locality_bytes) in [(40_000, 4096), (1 << 16, 4096), (40_000, 64), (40_000, 1 << 20), (64, 64)]
        {
            let cycle = Cycle::new(&mut memory, len_bytes, locality_bytes, 1, 5);
            let (lines, block_lines) = (len_bytes / 64, locality_bytes / 64);
            let mut met = Vec::new();
            let mut at = cycle.at[0];
            for _ in 0..lines {
                met.push((at.addr() - base) / 64);
                // SAFETY: an address on the cycle.
                at = unsafe { at.cast::<*const u8>().read() };
            }
            assert_eq!(at, cycle.at[0]);
            assert_eq!(met.iter().collect::<BTreeSet<_>>().len(), lines);
            let blocks = met.windows(2).filter(|pair| pair[0] / block_lines != pair[1] / block_lines).count();
            assert!(blocks < lines.div_ceil(block_lines), "{blocks} changes of block");
            let in_order = met.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
            assert!(lines == 1 || in_order < lines / 8, "{in_order} lines follow their neighbour");
        }
    }

    /// Until each has met its part, no chain meets a line that another has met.
    #[test]
    fn chains_have_parts_of_their_own() {
        let mut memory = Memory::new(&Place::Dram, Pages::Small, 1 << 18).unwrap();
        for chains in 1..=MAX_CHAINS {
            let mut cycle = Cycle::new(&mut memory, 1 << 18, 4096, chains, 5);
            let mut met = BTreeSet::new();
            let each = (1 << 12) / chains / UNROLLED;
            for _ in 0..each {
                assert!(cycle.at.iter().all(|at| met.insert(at.addr())), "{chains}");
                let (taken, steps) = cycle.follow(UNROLLED);
                assert!(taken > 0 && steps == (UNROLLED * chains) as u64);
            }
        }
    }
}
