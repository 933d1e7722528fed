//! Which blocks are visited, and in which order: by a list of their addresses, or by numbers from which the loop over them
//! computes where they lie.

use std::ops::Range;

/// The blocks that are visited.
#[derive(Clone, Debug)]
pub enum Blocks<'a> {
    /// Those at these addresses.
    List(&'a [*mut u8]),
    /// Those of these numbers; after the last of all the first comes again.
    Shuffled(&'a Shuffle, Range<u64>),
    /// The same of another order.
    Strided(&'a Stride, Range<u64>),
}

impl Blocks<'_> {
    /// How many there are.
    pub fn count(&self) -> u64 {
        match self {
            Blocks::List(list) => list.len() as u64,
            Blocks::Shuffled(_, numbers) | Blocks::Strided(_, numbers) => numbers.end - numbers.start,
        }
    }

    /// Where each begins.
    pub fn addresses(&self) -> Vec<*mut u8> {
        match self {
            Blocks::List(list) => list.to_vec(),
            Blocks::Shuffled(shuffle, numbers) => numbers.clone().map(|number| shuffle.address(number)).collect(),
            Blocks::Strided(stride, numbers) => numbers.clone().map(|number| stride.address(number)).collect(),
        }
    }
}

/// What the loop over blocks begins with: it visits `count` blocks from `next` on, and then `more` in whole laps, of which the
/// last need not end.
#[derive(Clone, Copy, Debug)]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) struct Begin {
    /// A place in the list, an address, or how far the steps of a [`Shuffle`] went.
    pub(super) next: u64,
    pub(super) count: u64,
    pub(super) more: u64,
    /// Which of its jumps a [`Shuffle`] does first.
    pub(super) jump: u64,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl Begin {
    /// A list has one lap.
    pub(super) fn of_list(list: &[*mut u8]) -> Begin {
        Begin { next: list.as_ptr().expose_provenance() as u64, count: list.len() as u64, more: 0, jump: 0 }
    }

    pub(super) fn of_shuffle(shuffle: &Shuffle, numbers: &Range<u64>) -> Begin {
        let begin = shuffle.lap.begin(numbers, |number| shuffle.stepped_bytes(number));
        Begin { jump: numbers.start & shuffle.jump_mask, ..begin }
    }

    pub(super) fn of_stride(stride: &Stride, numbers: &Range<u64>) -> Begin {
        stride.lap.begin(numbers, |number| stride.address(number).addr() as u64)
    }
}

/// Expands `for_each_block!` of the kind of CPU for what the blocks are, of which each has its own way to the next: `listed!`,
/// `shuffled!` and `strided!`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! with_blocks {
    ($blocks:ident, $wait:literal, $lines:ident, $line:ident, $begin:literal, $end:literal, $body:expr) => {
        match &$blocks {
            Blocks::List(list) => {
                let from = Begin::of_list(list);
                for_each_block!(listed!(), from, 0u64, $lines, $line, $begin, $end, $wait, $body)
            }
            Blocks::Shuffled(shuffle, numbers) => {
                let (from, data) = (Begin::of_shuffle(shuffle, numbers), *shuffle);
                for_each_block!(shuffled!(), from, data, $lines, $line, $begin, $end, $wait, $body)
            }
            Blocks::Strided(stride, numbers) => {
                let (from, data) = (Begin::of_stride(stride, numbers), *stride);
                for_each_block!(strided!(), from, data, $lines, $line, $begin, $end, $wait, $body)
            }
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use with_blocks;

/// All blocks of an order, once: what `next` is at its begin, and how many there are. Assembler reads both at these offsets.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Lap {
    first: u64,
    count: u64,
}

impl Lap {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn begin(&self, numbers: &Range<u64>, next: impl Fn(u64) -> u64) -> Begin {
        let (number, all) = (self.within(numbers.start), numbers.end - numbers.start);
        let count = all.min(self.count - number);
        Begin { next: next(number), count, more: all - count, jump: 0 }
    }

    /// The number in the first lap. A branch, for a division takes longer than a small block.
    fn within(&self, number: u64) -> u64 {
        if number < self.count { number } else { number % self.count }
    }
}

fn at(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Places of single blocks in an order that no prefetcher knows: a bijection of their numbers. It is one of the next power of
/// two - a product, what is left of it shifted over it, and another product - walked on where it leaves the range (Black and
/// Rogaway, *Ciphers with arbitrary finite domains*, 2002).
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    blocks: u64,
    factors: [u64; 2],
    mask: u64,
    shift: u32,
    block_bytes: u64,
    base: u64,
}

/// Most blocks of an order.
const MOST_BLOCKS: usize = 1 << 40;

impl Scatter {
    /// So many blocks from an address on.
    ///
    /// # Panics
    /// If there is none, or are more than 2^40.
    pub fn new(base: *mut u8, block_bytes: usize, blocks: usize, seed: u64) -> Scatter {
        assert!((1..=MOST_BLOCKS).contains(&blocks), "{blocks} blocks");
        let mut rng = fastrand::Rng::with_seed(seed);
        let power = blocks.next_power_of_two() as u64;
        Scatter {
            blocks: blocks as u64,
            factors: [rng.u64(..) | 1, rng.u64(..) | 1],
            mask: power - 1,
            shift: power.ilog2().div_ceil(2).max(1),
            block_bytes: block_bytes as u64,
            base: base.expose_provenance() as u64,
        }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Where a block begins.
    ///
    /// # Panics
    /// If there is none of that number.
    pub fn address(&self, number: u64) -> *mut u8 {
        assert!(number < self.blocks, "{number} of {}", self.blocks);
        let mut place = number;
        loop {
            let mixed = place.wrapping_mul(self.factors[0]) & self.mask;
            place = (mixed ^ mixed >> self.shift).wrapping_mul(self.factors[1]) & self.mask;
            if place < self.blocks {
                return at(self.base + place * self.block_bytes);
            }
        }
    }
}

/// Most jumps of a [`Shuffle`]: more than there are streams that a prefetcher follows.
const JUMPS: usize = 64;

/// Blocks in an order that no prefetcher knows. It is computed without a branch, which would be mispredicted, and in few
/// instructions, for the more there are to a block, the fewer loads are under way at a time.
///
/// Steps of one length go round all blocks, with whose number it has no common factor: so they meet each once. Beside the steps
/// each block jumps by one of 64 distances, in turn. These are multiples of 64, as is the number of the blocks: so a place modulo 64
/// stays what the steps made it, that tells which jump it was, and all jumps of one kind are alike. As many steps as there are jumps
/// go about the golden section of the whole, so that places of one jump do not come near each other soon.
///
/// Assembler reads it at its offsets, which follow the order of its fields, eight bytes each.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Shuffle {
    lap: Lap,
    step_bytes: u64,
    len_bytes: u64,
    base: u64,
    jump_mask: u64,
    jumps_bytes: [u64; JUMPS],
}

impl Shuffle {
    /// As many of the blocks from an address on as the number of jumps divides; those that are left at the end are fewer than jumps.
    /// Of fewer than 4096 blocks there are fewer jumps.
    ///
    /// # Panics
    /// If there is none, or are more than 2^40.
    pub fn new(base: *mut u8, block_bytes: usize, blocks: usize, seed: u64) -> Shuffle {
        assert!((1..=MOST_BLOCKS).contains(&blocks), "{blocks} blocks");
        let mut rng = fastrand::Rng::with_seed(seed);
        let block_bytes = block_bytes as u64;
        let jumps = JUMPS.min(1 << (blocks.ilog2() / 2)) as u64;
        let count = blocks as u64 / jumps * jumps;
        let golden = (rng.u64(jumps / 8..jumps - jumps / 8) as f64 + 0.618_034) / jumps as f64;
        let from = ((golden * count as f64) as u64).max(1);
        let step = (from..).find(|step| greatest_common_divisor(*step, count) == 1).expect("a prime is such a number");
        Shuffle {
            lap: Lap { first: 0, count },
            step_bytes: step % count * block_bytes,
            len_bytes: count * block_bytes,
            base: base.expose_provenance() as u64,
            jump_mask: jumps - 1,
            jumps_bytes: std::array::from_fn(|_| rng.u64(..count / jumps) * jumps * block_bytes),
        }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.lap.count
    }

    /// How far the steps before a block went.
    fn stepped_bytes(&self, number: u64) -> u64 {
        (u128::from(number) * u128::from(self.step_bytes) % u128::from(self.len_bytes)) as u64
    }

    pub(super) fn address(&self, number: u64) -> *mut u8 {
        let jump_bytes = self.jumps_bytes[(number & self.jump_mask) as usize];
        at(self.base + (self.stepped_bytes(number) + jump_bytes) % self.len_bytes)
    }
}

/// Euclid's.
fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Blocks that are equally far apart, and when the end is reached, from the next one on again until all were met.
///
/// Assembler reads it at its offsets, which follow the order of its fields, eight bytes each.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Stride {
    lap: Lap,
    step_bytes: u64,
    /// Where the last block ends.
    end: u64,
    /// From the first block of a row to that which would follow its last, of rows that are no longer than others.
    row_bytes: u64,
    /// The first block that begins no row.
    rows_end: u64,
    block_bytes: u64,
    /// Blocks from one to the next.
    step: u64,
}

impl Stride {
    /// So many blocks from an address on, `step` of them apart.
    ///
    /// # Panics
    /// If there is none, or they are none apart.
    pub fn new(base: *mut u8, block_bytes: usize, blocks: usize, step: usize) -> Stride {
        assert!(blocks > 0 && step > 0, "{blocks} blocks, {step} apart");
        let (block_bytes, count, step) = (block_bytes as u64, blocks as u64, step.min(blocks) as u64);
        let first = base.expose_provenance() as u64;
        let step_bytes = step * block_bytes;
        Stride {
            lap: Lap { first, count },
            step_bytes,
            end: first + count * block_bytes,
            row_bytes: count / step * step_bytes,
            rows_end: first + step_bytes,
            block_bytes,
            step,
        }
    }

    /// The place of a block among all: the first rows may have one more than the others.
    pub fn place(&self, number: u64) -> u64 {
        let (number, length, longer) =
            (self.lap.within(number), self.lap.count / self.step, self.lap.count % self.step);
        match number.checked_sub(longer * (length + 1)) {
            None => number / (length + 1) + number % (length + 1) * self.step,
            Some(rest) => longer + rest / length + rest % length * self.step,
        }
    }

    pub(super) fn address(&self, number: u64) -> *mut u8 {
        at(self.lap.first + self.place(number) * self.block_bytes)
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Lap, first) == 0 && offset_of!(Lap, count) == 8);
    assert!(offset_of!(Shuffle, lap) == 0 && offset_of!(Shuffle, step_bytes) == 16);
    assert!(offset_of!(Shuffle, len_bytes) == 24 && offset_of!(Shuffle, base) == 32);
    assert!(offset_of!(Shuffle, jump_mask) == 40 && offset_of!(Shuffle, jumps_bytes) == 48);
    assert!(offset_of!(Stride, lap) == 0 && offset_of!(Stride, step_bytes) == 16 && offset_of!(Stride, end) == 24);
    assert!(offset_of!(Stride, row_bytes) == 32 && offset_of!(Stride, rows_end) == 40);
    assert!(offset_of!(Stride, block_bytes) == 48);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Access, Fence, Line, Width, blocks};
    use crate::pattern::{Pattern, Walk};

    const COUNTS: [usize; 9] = [1, 2, 3, 5, 33, 63, 64, 65, 100];

    /// What the loop visits in a turn that begins at a number is what [`Blocks::addresses`] says, in that order, also when it
    /// goes round.
    fn check(all: &Blocks<'_>, memory: &mut [Line]) {
        let addresses = all.addresses();
        memory.fill(Line([0; 8]));
        let mut line = Line([7; 8]);
        // SAFETY: the blocks of two lines each lie in the memory; every CPU has these instructions.
        unsafe { blocks(Access::Store, Width::Bytes16, Fence::None, all.clone(), 2, &mut line) };
        let base = memory.as_ptr().addr();
        for (number, line) in memory.iter().enumerate() {
            let is_in = addresses.iter().any(|at| (at.addr() - base) / 128 == number / 2);
            assert_eq!(*line == Line([7; 8]), is_in, "{number} of {all:?}");
        }
        for (number, line) in memory.iter_mut().enumerate() {
            *line = Line([1 << (number % 61); 8]);
        }
        let first_word = |at: &*mut u8| memory[(at.addr() - base) / 64].0[0];
        let expected = addresses.iter().map(first_word).fold(0, u64::wrapping_add);
        let mut line = Line([0; 8]);
        // SAFETY: as above.
        unsafe { blocks(Access::Load, Width::Bytes16, Fence::None, all.clone(), 1, &mut line) };
        assert_eq!(line, Line([expected; 8]), "{all:?}");
    }

    #[test]
    fn scattered_blocks_are_met_once_each_whatever_their_number() {
        for (count, seed) in COUNTS.into_iter().flat_map(|count| [(count, 3), (count, 4)]) {
            let scatter = Scatter::new(std::ptr::null_mut(), 128, count, seed);
            let places: Vec<usize> = (0..count as u64).map(|number| scatter.address(number).addr() / 128).collect();
            let mut sorted = places.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count).collect::<Vec<_>>());
            assert!(count < 33 || places[..4] != [0, 1, 2, 3], "{places:?}");
        }
    }

    #[test]
    fn shuffled_blocks_are_met_once_each_and_few_are_left() {
        let mut memory = vec![Line([0; 8]); 200];
        let base = memory.as_mut_ptr().cast::<u8>();
        for (count, seed) in COUNTS.into_iter().flat_map(|count| [(count, 3), (count, 4)]) {
            let shuffle = Shuffle::new(base, 128, count, seed);
            let blocks = shuffle.blocks();
            assert!(blocks > 0 && count as u64 - blocks <= shuffle.jump_mask, "{blocks} of {count}");
            let all = Blocks::Shuffled(&shuffle, 0..blocks).addresses();
            let mut places: Vec<usize> = all.iter().map(|at| (at.addr() - base.addr()) / 128).collect();
            places.sort_unstable();
            assert_eq!(places, (0..blocks as usize).collect::<Vec<_>>());
            for numbers in [0..0, 0..1, 0..blocks, 1..3, blocks - 1..2 * blocks + 1] {
                check(&Blocks::Shuffled(&shuffle, numbers), &mut memory);
            }
            (0..2 * blocks).for_each(|number| check(&Blocks::Shuffled(&shuffle, number..number + 1), &mut memory));
        }
    }

    /// Neither one after the other nor those that have the same jump.
    #[test]
    fn shuffled_blocks_go_no_steady_way() {
        for (blocks, seed) in [(5000, 1), (1 << 22, 2), (1 << 22, 3), ((1 << 22) + 54_321, 4)] {
            let shuffle = Shuffle::new(std::ptr::null_mut(), 64, blocks, seed);
            assert!(shuffle.blocks() as usize > blocks - JUMPS);
            let places: Vec<i64> = (0..4096).map(|number| shuffle.address(number).addr() as i64 / 64).collect();
            for apart in [1, JUMPS] {
                let is_near = |pair: &&[i64]| (pair[apart] - pair[0]).abs() < 64;
                let near = places.windows(apart + 1).filter(is_near).count();
                assert!(near < 4096 / 8, "{blocks} blocks, {apart} apart: {near}");
            }
            let steady = places.windows(3).filter(|three| three[2] - three[1] == three[1] - three[0]).count();
            assert!(steady < 4096 / 8, "{blocks} blocks: {steady}");
        }
    }

    /// As an order of lines has it.
    #[test]
    fn strided_blocks_are_met_in_the_order_of_a_walk() {
        let mut memory = vec![Line([0; 8]); 200];
        let base = memory.as_mut_ptr().cast::<u8>();
        for (count, step) in
            COUNTS.into_iter().flat_map(|count| [1, 2, 3, 7, 32, 64, 99, 1000].map(|step| (count, step)))
        {
            let stride = Stride::new(base, 128, count, step);
            let mut walk = Walk::new(Pattern::Stride(64 * step), count, 1);
            let places: Vec<u64> = (0..2 * count as u64).map(|number| stride.place(number)).collect();
            assert!(places.iter().all(|place| *place == walk.next_line() as u64), "{count}, {step} apart: {places:?}");
            for numbers in [0..0, 0..1, 0..count as u64, 1..3, count as u64 - 1..2 * count as u64 + 1] {
                check(&Blocks::Strided(&stride, numbers), &mut memory);
            }
            // One at a time, so that no order of the loop's own goes unnoticed.
            (0..count as u64).for_each(|number| check(&Blocks::Strided(&stride, number..number + 1), &mut memory));
        }
    }
}
