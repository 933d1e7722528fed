//! Which blocks are visited, and in which order: by a list of their addresses, or by numbers from which the loop over them
//! computes where they lie.

use std::ops::Range;

/// The blocks that are visited.
#[derive(Clone, Debug)]
pub enum Blocks<'a> {
    /// Those at these addresses.
    List(&'a [*mut u8]),
    /// Those of these numbers; after the last of all the first comes again.
    Scattered(&'a Scatter, Range<u64>),
    /// The same of another order.
    Strided(&'a Stride, Range<u64>),
}

impl Blocks<'_> {
    /// How many there are.
    pub fn count(&self) -> u64 {
        match self {
            Blocks::List(list) => list.len() as u64,
            Blocks::Scattered(_, numbers) | Blocks::Strided(_, numbers) => numbers.end - numbers.start,
        }
    }

    /// Those that come first, so many at most.
    #[must_use]
    pub fn first(&self, most: usize) -> Self {
        let some = |numbers: &Range<u64>| numbers.start..numbers.end.min(numbers.start + most as u64);
        match self {
            Blocks::List(list) => Blocks::List(&list[..most.min(list.len())]),
            Blocks::Scattered(scatter, numbers) => Blocks::Scattered(scatter, some(numbers)),
            Blocks::Strided(stride, numbers) => Blocks::Strided(stride, some(numbers)),
        }
    }

    /// Where each begins.
    pub fn addresses(&self) -> Vec<*mut u8> {
        match self {
            Blocks::List(list) => list.to_vec(),
            Blocks::Scattered(scatter, numbers) => numbers.clone().map(|number| scatter.address(number)).collect(),
            Blocks::Strided(stride, numbers) => numbers.clone().map(|number| stride.address(number)).collect(),
        }
    }
}

/// What the loop over blocks begins with: it visits `count` blocks from `next` on, and then `more` in whole laps, of which the
/// last need not end.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]
pub(super) struct Begin {
    /// A place in the list, the number of a block, or an address.
    pub(super) next: u64,
    pub(super) count: u64,
    pub(super) more: u64,
}

#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]
impl Begin {
    /// A list has one lap.
    pub(super) fn of_list(list: &[*mut u8]) -> Begin {
        Begin { next: list.as_ptr().expose_provenance() as u64, count: list.len() as u64, more: 0 }
    }

    pub(super) fn of_scatter(scatter: &Scatter, numbers: &Range<u64>) -> Begin {
        scatter.lap.begin(numbers, |number| number)
    }

    pub(super) fn of_stride(stride: &Stride, numbers: &Range<u64>) -> Begin {
        stride.lap.begin(numbers, |number| stride.address(number).addr() as u64)
    }
}

/// All blocks of an order, once: what `next` is at its begin, and how many there are. Assembler reads both at these offsets.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Lap {
    first: u64,
    count: u64,
}

impl Lap {
    fn begin(&self, numbers: &Range<u64>, next: impl Fn(u64) -> u64) -> Begin {
        let (number, all) = (self.within(numbers.start), numbers.end - numbers.start);
        let count = all.min(self.count - number);
        Begin { next: next(number), count, more: all - count }
    }

    /// The number in the first lap. A branch, for a division takes longer than a small block.
    fn within(&self, number: u64) -> u64 {
        if number < self.count { number } else { number % self.count }
    }
}

fn at(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Blocks in an order that no prefetcher knows: a bijection of their numbers. It is one of the next power of two - a product,
/// what is left of it shifted over it, and another product - walked on where it leaves the range (Black and Rogaway, *Ciphers
/// with arbitrary finite domains*, 2002): less than twice on average, and never where there are as many as a power of two.
///
/// Assembler reads it at its offsets, which follow the order of its fields, eight bytes each.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Scatter {
    lap: Lap,
    first_factor: u64,
    mask: u64,
    shift: u64,
    second_factor: u64,
    block_bytes: u64,
    base: u64,
}

impl Scatter {
    /// So many blocks from an address on.
    ///
    /// # Panics
    /// If there is none, or are more than 2^40.
    pub fn random(base: *mut u8, block_bytes: usize, blocks: usize, seed: u64) -> Scatter {
        assert!((1..=1 << 40).contains(&blocks), "{blocks} blocks");
        let mut rng = fastrand::Rng::with_seed(seed);
        let (first_factor, second_factor) = (rng.u64(..) | 1, rng.u64(..) | 1);
        let power = (blocks as u64).next_power_of_two();
        let shift = u64::from(power.ilog2().div_ceil(2).max(1));
        let (lap, base) = (Lap { first: 0, count: blocks as u64 }, base.expose_provenance() as u64);
        Scatter { lap, first_factor, mask: power - 1, shift, second_factor, block_bytes: block_bytes as u64, base }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.lap.count
    }

    /// The place of a block among all.
    pub fn place(&self, number: u64) -> u64 {
        let next = |place: &u64| {
            let mixed = place.wrapping_mul(self.first_factor) & self.mask;
            Some((mixed ^ mixed >> self.shift).wrapping_mul(self.second_factor) & self.mask)
        };
        let walk = std::iter::successors(next(&self.lap.within(number)), next);
        walk.into_iter().find(|place| *place < self.lap.count).expect("a walk comes back to where it began")
    }

    pub(super) fn address(&self, number: u64) -> *mut u8 {
        at(self.base + self.place(number) * self.block_bytes)
    }
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
    assert!(
        offset_of!(Scatter, lap) == 0 && offset_of!(Scatter, first_factor) == 16 && offset_of!(Scatter, mask) == 24
    );
    assert!(offset_of!(Scatter, shift) == 32 && offset_of!(Scatter, second_factor) == 40);
    assert!(offset_of!(Scatter, block_bytes) == 48 && offset_of!(Scatter, base) == 56);
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
        let mut memory = vec![Line([0; 8]); 200];
        let base = memory.as_mut_ptr().cast::<u8>();
        for (count, seed) in COUNTS.into_iter().flat_map(|count| [(count, 3), (count, 4)]) {
            let scatter = Scatter::random(base, 128, count, seed);
            let places: Vec<u64> = (0..count as u64).map(|number| scatter.place(number)).collect();
            let mut sorted = places.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count as u64).collect::<Vec<_>>());
            assert!(count < 33 || places[..4] != [0, 1, 2, 3], "{places:?}");
            for numbers in [0..0, 0..1, 0..count as u64, 1..3, count as u64 - 1..2 * count as u64 + 1] {
                check(&Blocks::Scattered(&scatter, numbers), &mut memory);
            }
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
