//! A thread that goes over the blocks of its part of the memory, in any order, with any access.

use std::marker::PhantomData;
use std::ops::Range;

use crate::code::{self, Access, Blocks, Fence, Line, STORED, Scatter, Width};
use crate::memory::Memory;
use crate::pattern::{Pattern, Walk};

/// What is done with blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
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
}

/// One thread's way over its blocks, from turn to turn.
#[derive(Debug)]
pub struct Stream<'m> {
    kind: Kind,
    order: Order,
    line: Line,
    sum: Sum,
    memory: PhantomData<&'m Memory>,
}

/// Most blocks of a turn whose addresses come from a list: the list stays in the first-level cache.
const TURN_BLOCKS: usize = 1024;
const LINE_BYTES: usize = 64;

impl<'m> Stream<'m> {
    /// Over a part of the memory, about `turn_bytes` in a turn and a block at least.
    ///
    /// # Panics
    /// If the part is not in the memory, has no block, or a block is not whole lines; or if the CPU has not the instructions.
    pub fn new(kind: &Kind, memory: &'m Memory, part: Range<usize>, turn_bytes: usize, seed: u64) -> Stream<'m> {
        assert!(part.end <= memory.len_bytes() && part.len() >= kind.block_bytes, "{part:?} of {}", memory.len_bytes());
        assert!(
            kind.block_bytes > 0
                && kind.block_bytes.is_multiple_of(LINE_BYTES)
                && part.start.is_multiple_of(LINE_BYTES),
            "{kind:?}"
        );
        assert!(kind.access.is_available(kind.width) && kind.fence.is_available(), "{kind:?}");
        let (start, blocks) = (memory.base().wrapping_add(part.start), part.len() / kind.block_bytes);
        let order = Order::new(kind.pattern, start, blocks, kind.block_bytes, turn_bytes, seed);
        let line = if kind.access == Access::Load { Line([0; 8]) } else { Line([STORED; 8]) };
        Stream { kind: *kind, order, line, sum: Sum::default(), memory: PhantomData }
    }

    /// The next blocks, and a wait for what was stored; the bytes that they have.
    pub fn turn(&mut self) -> u64 {
        let Kind { access, width, fence, block_bytes, .. } = self.kind;
        let lines = block_bytes / LINE_BYTES;
        let blocks = self.order.next_turn();
        let visited = match &blocks {
            Blocks::List(list) => list.len() as u64,
            Blocks::Scattered(_, numbers) => numbers.end - numbers.start,
        };
        // SAFETY: the blocks lie in a part of the borrowed memory; `new` asked whether the CPU has the instructions.
        unsafe { code::blocks(access, width, fence, blocks, lines, &mut self.line) };
        if access == Access::Load {
            self.sum.loaded_lines += visited * lines as u64;
            self.sum.words = self.line.0;
        } else {
            code::wait();
        }
        visited * block_bytes as u64
    }

    /// Blocks that were loaded so far.
    #[cfg(test)]
    pub(crate) fn blocks(&self) -> u64 {
        self.sum.loaded_lines / (self.kind.block_bytes / LINE_BYTES) as u64
    }

    /// Whether what was loaded sums up to what [`fill`] has put there.
    pub fn is_right(&self) -> bool {
        self.kind.access != Access::Load || self.sum.is_right()
    }
}

/// The blocks of one turn after the other. Where it can be computed beside the accesses, it is; a list that is made between
/// turns would take as long as small blocks do.
#[derive(Debug)]
enum Order {
    Scattered { scatter: Scatter, blocks: u64, next: u64, a_turn: u64 },
    Listed { walk: Walk, start: *mut u8, block_bytes: usize, list: Vec<*mut u8> },
}

// SAFETY: addresses of memory that outlives the threads, of which each has a part of its own.
unsafe impl Send for Order {}

impl Order {
    /// In a random order there are as many blocks as the largest power of two that fits.
    fn new(pattern: Pattern, start: *mut u8, blocks: usize, block_bytes: usize, turn_bytes: usize, seed: u64) -> Order {
        let a_turn = (turn_bytes / block_bytes).max(1) as u64;
        let bits = blocks.ilog2();
        let (scatter, count) = match pattern {
            Pattern::Sequential => (Scatter::in_order(start, block_bytes), blocks as u64),
            Pattern::Random => (Scatter::random(start, block_bytes, bits, seed), 1 << bits),
            Pattern::Stride(_) | Pattern::Zipf(_) | Pattern::SameLine => {
                let list = Vec::with_capacity(a_turn.min(TURN_BLOCKS as u64) as usize);
                return Order::Listed { walk: Walk::new(pattern, blocks, seed), start, block_bytes, list };
            }
        };
        Order::Scattered { scatter, blocks: count, next: 0, a_turn }
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

/// Puts what is stored into every word of the first bytes, if it is not there: whoever puts something else there says so.
pub fn fill(memory: &mut Memory, len_bytes: usize) {
    if memory.filled_bytes >= len_bytes {
        return;
    }
    memory.filled_bytes = len_bytes;
    let addresses = [memory.base()];
    let mut line = Line([STORED; 8]);
    // SAFETY: whole lines of the memory, which is borrowed alone; every CPU has these instructions.
    unsafe {
        let one = Blocks::List(&addresses);
        code::blocks(Access::Store, Width::Bytes16, Fence::OF_STORES, one, len_bytes / LINE_BYTES, &mut line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_sum_is_noticed() {
        assert!(Sum::default().is_right());
        assert!(Sum { loaded_lines: 3, words: [STORED; 8] }.is_right());
        assert!(!Sum { loaded_lines: 2, words: [STORED; 8] }.is_right());
    }
}
