//! A thread that goes over the blocks of its part of the memory, in any order, with any access.

use std::marker::PhantomData;
use std::ops::Range;

use crate::clock::{Clock, ticks};
use crate::code::{self, Access, Blocks, Fence, Line, STORED, Shuffle, Stride, Width};
use crate::crew::{self, Done};
use crate::error::{Error, Result};
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
    /// What is stored, or the sum of what was loaded.
    line: Line,
    loaded_lines: u64,
    /// Lines that the first turn stores to, and that had something else before.
    cleared: Vec<*mut u8>,
    memory: PhantomData<&'m Memory>,
}

// SAFETY: addresses of memory that outlives the threads, of which each has a part of its own.
unsafe impl Send for Stream<'_> {}

/// What is wrong when a stream is not right.
pub(crate) const MOVED: &str = "the sum of the bytes that were loaded, or a line that was stored,";
/// Blocks that are looked at of those that were stored to, and of those that are loaded.
const LOOKED_AT_STORED: usize = 16;
const LOOKED_AT_LOADED: usize = 1024;
/// Lines by which it is told what a turn's begin and end take: as many as the loop visits at a time.
const LINES_OF_A_TURN: usize = 8;
/// Draws of an order that cannot be computed beside the accesses; see [`Order`].
const LEAST_DRAWS: usize = 1 << 14;
const MOST_DRAWS: usize = 1 << 20;
const LINE_BYTES: usize = 64;

impl Kind {
    /// # Errors
    /// `Unavailable` when the CPU has not the instructions, a block is not whole lines, or its order is none of such blocks.
    pub(crate) fn check(&self) -> Result<()> {
        let Kind { access, width, fence, block_bytes, pattern } = *self;
        if !access.is_available(width) {
            let (access, width) = (access.name(), width.name());
            return Err(Error::unavailable(format!("this CPU has no {access} of {width} bytes")));
        }
        if !fence.is_available() {
            return Err(Error::unavailable(format!("this CPU has no {}", fence.name())));
        }
        if block_bytes == 0 || !block_bytes.is_multiple_of(LINE_BYTES) {
            return Err(Error::unavailable(format!("blocks of {block_bytes} bytes, which are not whole lines")));
        }
        pattern.check(block_bytes)
    }
}

impl<'m> Stream<'m> {
    /// Over a part of the memory, about `turn_bytes` in a turn and a block at least, as often round as that takes. One that
    /// stores clears lines of its first turn, which have what is stored again when it is dropped.
    ///
    /// Of several streams each has a part of its own, which the caller answers for.
    ///
    /// # Panics
    /// If the part is not in the memory, has no block, or a block is not whole lines; or if the CPU has not the instructions.
    pub(crate) fn new(kind: &Kind, memory: &'m Memory, part: Range<usize>, turn_bytes: usize, seed: u64) -> Stream<'m> {
        assert!(part.end <= memory.len_bytes() && part.len() >= kind.block_bytes, "{part:?} of {}", memory.len_bytes());
        assert!(
            kind.block_bytes > 0
                && kind.block_bytes.is_multiple_of(LINE_BYTES)
                && part.start.is_multiple_of(LINE_BYTES),
            "{kind:?}"
        );
        assert!(kind.access.is_available(kind.width) && kind.fence.is_available(), "{kind:?}");
        let (start, blocks) = (memory.base().wrapping_add(part.start), part.len() / kind.block_bytes);
        let order = Order::new(kind, start, blocks, turn_bytes, seed);
        let (line, cleared) = match kind.access {
            Access::Load => (0, Vec::new()),
            _ => (STORED, ends(&order.turn(LOOKED_AT_STORED), kind.block_bytes)),
        };
        // SAFETY: lines of the thread's part.
        cleared.iter().for_each(|address| unsafe { put(*address, 0) });
        Stream { kind: *kind, order, line: Line([line; 8]), loaded_lines: 0, cleared, memory: PhantomData }
    }

    /// The next blocks, and a wait for what was stored; the bytes that they have.
    pub fn turn(&mut self) -> u64 {
        let bytes = self.go_on();
        if self.kind.access != Access::Load {
            code::wait();
        }
        bytes
    }

    /// The next blocks, without a wait: what was stored is on its way.
    pub fn go_on(&mut self) -> u64 {
        let Kind { access, width, fence, block_bytes, .. } = self.kind;
        let lines = block_bytes / LINE_BYTES;
        let mut left = self.order.a_turn;
        while left > 0 {
            let blocks = self.order.turn(left);
            let visited = blocks.count();
            // SAFETY: the blocks lie in a part of the borrowed memory; `new` asked whether the CPU has the instructions.
            unsafe { code::blocks(access, width, fence, blocks, lines, &mut self.line) };
            self.order.advance(visited);
            left -= visited as usize;
        }
        let visited = self.order.a_turn as u64;
        if access == Access::Load {
            self.loaded_lines += visited * lines as u64;
        }
        visited * block_bytes as u64
    }

    /// Lines that were loaded so far.
    #[cfg(test)]
    pub(crate) fn loaded_lines(&self) -> u64 {
        self.loaded_lines
    }

    /// Nanoseconds that the loop takes for a block of which no line is visited.
    fn loop_ns(&self) -> f64 {
        let blocks = self.order.turn(LOOKED_AT_LOADED);
        least_ns(|| self.visit(&blocks, 0)) / blocks.count() as f64
    }

    /// Nanoseconds that a turn takes beside the loop, at most: one of a few lines, with the wait at its end.
    fn turn_ns(&self) -> f64 {
        let block = self.order.turn(1);
        let lines = LINES_OF_A_TURN.min(self.kind.block_bytes / LINE_BYTES);
        least_ns(|| {
            self.visit(&block, lines);
            if self.kind.access != Access::Load {
                code::wait();
            }
        })
    }

    /// The first lines of blocks, of which nothing is told.
    fn visit(&self, blocks: &Blocks<'_>, lines: usize) {
        let Kind { access, width, .. } = self.kind;
        let mut line = Line([STORED; 8]);
        // SAFETY: blocks of the thread's part, in which every stream stores the same; as in `go_on`.
        unsafe { code::blocks(access, width, Fence::None, blocks.clone(), lines, &mut line) };
    }

    /// Whether what was loaded sums up to what [`fill`] has put there, and comes from where it should; or whether what was
    /// stored is there.
    pub fn is_right(&self) -> bool {
        let Kind { access, width, .. } = self.kind;
        if access != Access::Load {
            // SAFETY: lines of the thread's part.
            return self.cleared.iter().all(|address| unsafe { has(*address, STORED) });
        }
        // SAFETY: blocks of the thread's part, as in `go_on`.
        let load = |blocks: Blocks<'_>, lines, sum: &mut Line| unsafe {
            code::blocks(access, width, Fence::None, blocks, lines, sum)
        };
        self.line.0 == [STORED.wrapping_mul(self.loaded_lines); 8] && self.finds_its_blocks(load)
    }

    /// Whether the blocks of the next turn are those that are loaded: meanwhile the first and the last line of each have words
    /// of their own, because the sum of equal ones is that of any others.
    fn finds_its_blocks(&self, load: impl FnOnce(Blocks<'_>, usize, &mut Line)) -> bool {
        let own = |address: *mut u8| (address.addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (lines, block_bytes) = (self.kind.block_bytes / LINE_BYTES, self.kind.block_bytes);
        let blocks = self.order.turn(LOOKED_AT_LOADED);
        let ends = ends(&blocks, block_bytes);
        let others = blocks.count() * lines as u64 - ends.len() as u64;
        let expected = ends.iter().fold(STORED.wrapping_mul(others), |sum, address| sum.wrapping_add(own(*address)));
        let mut sum = Line([0; 8]);
        // SAFETY: lines of the thread's part, which get back what they had.
        ends.iter().for_each(|address| unsafe { put(*address, own(*address)) });
        load(blocks, lines, &mut sum);
        // SAFETY: as above.
        ends.iter().for_each(|address| unsafe { put(*address, STORED) });
        sum.0 == [expected; 8]
    }
}

impl Drop for Stream<'_> {
    /// What is known to be filled stays so, also when no turn was ever taken.
    fn drop(&mut self) {
        for &address in &self.cleared {
            // SAFETY: lines of the thread's part.
            unsafe {
                if !has(address, STORED) {
                    put(address, STORED);
                }
            }
        }
    }
}

/// The part of the time that the loop takes by itself, and what is between turns, in the thread where that is most: at most,
/// for where memory is waited for, it runs beside.
///
/// # Errors
/// As [`crew::alone`].
pub fn overhead(streams: &[Stream<'_>], done: &[Done]) -> Result<f64> {
    let _alone = crew::alone()?;
    let of = |(stream, done): (&Stream<'_>, &Done)| {
        let a_block_ns = stream.loop_ns() + stream.turn_ns() / stream.order.a_turn as f64;
        a_block_ns * done.per_second() / stream.kind.block_bytes as f64 / 1e9
    };
    Ok(streams.iter().zip(done).map(of).fold(0.0, f64::max).min(1.0))
}

/// The least time of a few, without that of reading the clock.
fn least_ns(mut run: impl FnMut()) -> f64 {
    let time = |_| {
        let start = ticks();
        run();
        (ticks() - start).saturating_sub(Clock::get().pair_ticks)
    };
    Clock::get().ns((0..5).map(time).min().expect("five times") as f64)
}

/// The first and the last line of each block.
fn ends(blocks: &Blocks<'_>, block_bytes: usize) -> Vec<*mut u8> {
    let addresses = blocks.addresses().into_iter();
    match block_bytes {
        LINE_BYTES => addresses.collect(),
        _ => addresses.flat_map(|block| [block, block.wrapping_add(block_bytes - LINE_BYTES)]).collect(),
    }
}

/// # Safety
/// The line is whole and writable.
unsafe fn put(line: *mut u8, word: u64) {
    // SAFETY: the caller's.
    unsafe { line.cast::<Line>().write_volatile(Line([word; 8])) };
}

/// # Safety
/// The line is whole and readable.
unsafe fn has(line: *mut u8, word: u64) -> bool {
    // SAFETY: the caller's.
    unsafe { line.cast::<Line>().read_volatile() == Line([word; 8]) }
}

/// The blocks of one turn after the other, and when all have come, from the first on again. Where they lie is computed beside the
/// accesses. A Zipf order is drawn before anything is timed, for drawing a block takes as long as visiting a small one: as
/// many draws as there are blocks, but 2^14 at least and 2^20 at most, which come again. So of more than a million blocks a stream
/// visits those that a million draws meet, and the next sample others; the list is read at eight bytes a block.
#[derive(Debug)]
struct Order {
    places: Places,
    /// How many come before the first comes again.
    count: u64,
    next: u64,
    a_turn: usize,
}

#[derive(Debug)]
enum Places {
    /// And those that are left at the end.
    Shuffled(Box<Shuffle>, Option<Stride>),
    Strided(Stride),
    Listed(Vec<*mut u8>),
}

impl Order {
    fn new(kind: &Kind, start: *mut u8, blocks: usize, turn_bytes: usize, seed: u64) -> Order {
        let Kind { pattern, block_bytes, .. } = *kind;
        let strided = |blocks, step| Places::Strided(Stride::new(start, block_bytes, blocks, step));
        let places = match pattern {
            Pattern::Sequential => strided(blocks, 1),
            Pattern::SameLine => strided(1, 1),
            Pattern::Stride(bytes) => strided(blocks, (bytes / block_bytes).max(1)),
            Pattern::Random => {
                let shuffle = Shuffle::new(start, block_bytes, blocks, seed);
                let shuffled = shuffle.blocks() as usize;
                let rest_at = start.wrapping_add(shuffled * block_bytes);
                let rest = (blocks > shuffled).then(|| Stride::new(rest_at, block_bytes, blocks - shuffled, 1));
                Places::Shuffled(Box::new(shuffle), rest)
            }
            Pattern::Zipf(_) => {
                let mut walk = Walk::new(pattern, blocks, seed);
                let draws = 0..blocks.clamp(LEAST_DRAWS, MOST_DRAWS);
                Places::Listed(draws.map(|_| start.wrapping_add(walk.next_line() * block_bytes)).collect())
            }
        };
        let count = match &places {
            Places::Listed(list) => list.len(),
            _ => blocks,
        };
        Order { places, count: count as u64, next: 0, a_turn: (turn_bytes / block_bytes).max(1) }
    }

    /// So many of the blocks whose turn it is, at most, and fewer only where a list or a shuffle ends.
    fn turn(&self, most: usize) -> Blocks<'_> {
        let most = most.min(self.a_turn) as u64;
        match &self.places {
            Places::Shuffled(shuffle, None) => Blocks::Shuffled(shuffle, self.next..self.next + most),
            Places::Shuffled(shuffle, Some(rest)) => match self.next.checked_sub(shuffle.blocks()) {
                None => Blocks::Shuffled(shuffle, self.next..(self.next + most).min(shuffle.blocks())),
                Some(number) => Blocks::Strided(rest, number..(number + most).min(self.count - shuffle.blocks())),
            },
            Places::Strided(stride) => Blocks::Strided(stride, self.next..self.next + most),
            Places::Listed(list) => {
                Blocks::List(&list[self.next as usize..(self.next + most).min(self.count) as usize])
            }
        }
    }

    fn advance(&mut self, blocks: u64) {
        self.next = (self.next + blocks) % self.count;
    }
}

/// Puts what is stored into every word of the first bytes, if it is not there: whoever puts something else there says so. Nothing of it
/// is left in the caches: what is measured next would write the end of it back.
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
    code::evict(memory, len_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::memory::{Pages, Place};

    const LEN_BYTES: usize = 64 << 10;

    fn kind(access: Access, pattern: Pattern, block_bytes: usize) -> Kind {
        Kind { access, width: Width::Bytes16, fence: Fence::None, block_bytes, pattern }
    }

    fn filled() -> Memory {
        let mut memory = Memory::new(&Place::Dram, Pages::Small, LEN_BYTES).unwrap();
        fill(&mut memory, LEN_BYTES);
        memory
    }

    const PATTERNS: [Pattern; 5] =
        [Pattern::Sequential, Pattern::Random, Pattern::Stride(4096), Pattern::Zipf(0.99), Pattern::SameLine];

    #[test]
    fn loads_that_are_left_out_or_changed_are_noticed() {
        let memory = filled();
        for (pattern, block_bytes) in PATTERNS.into_iter().flat_map(|pattern| [(pattern, 64), (pattern, 256)]) {
            let mut stream = Stream::new(&kind(Access::Load, pattern, block_bytes), &memory, 0..LEN_BYTES, 4096, 1);
            assert!(stream.is_right());
            (0..3).for_each(|_| assert_eq!(stream.turn(), 4096));
            assert!(stream.is_right(), "{pattern:?}");
            // As if two lines, or all, had not been loaded: an even number, too.
            let sum = stream.line;
            stream.line.0 = stream.line.0.map(|word| word.wrapping_sub(2 * STORED));
            assert!(!stream.is_right(), "{pattern:?}");
            stream.line = Line([0; 8]);
            assert!(!stream.is_right(), "{pattern:?}");
            stream.line = sum;
            assert!(stream.is_right(), "{pattern:?}");
        }
        assert!((0..LEN_BYTES).step_by(8).all(|at| memory.word(at) == STORED), "lines get back what they had");
    }

    #[test]
    fn loads_from_elsewhere_are_noticed() {
        let memory = filled();
        let stream = Stream::new(&kind(Access::Load, Pattern::Random, 256), &memory, 0..LEN_BYTES, 4096, 1);
        let from = |shift_bytes: isize| {
            stream.finds_its_blocks(|blocks, lines, sum| {
                let shifted: Vec<*mut u8> =
                    blocks.addresses().iter().map(|at| at.wrapping_offset(shift_bytes)).collect();
                // The first block of all has nothing before it.
                let inside =
                    |at: &*mut u8| (memory.base().addr()..=memory.base().addr() + LEN_BYTES - 256).contains(&at.addr());
                let shifted: Vec<*mut u8> = shifted.into_iter().filter(inside).collect();
                // SAFETY: blocks of the memory; every CPU has these instructions.
                unsafe { code::blocks(Access::Load, Width::Bytes16, Fence::None, Blocks::List(&shifted), lines, sum) }
            })
        };
        assert!(from(0) && !from(64) && !from(-64) && !from(256));
    }

    #[test]
    fn stores_that_never_happen_are_noticed() {
        let memory = filled();
        for pattern in PATTERNS {
            let mut stream = Stream::new(&kind(Access::Store, pattern, 256), &memory, 0..LEN_BYTES, 4096, 1);
            assert!(!stream.is_right(), "{pattern:?}");
            stream.turn();
            assert!(stream.is_right(), "{pattern:?}");
        }
    }

    /// What is drawn is drawn before, and is what the order says.
    #[test]
    fn a_zipf_order_is_a_list_that_comes_again() {
        let memory = filled();
        let pattern = Pattern::Zipf(0.99);
        let mut order = Order::new(&kind(Access::Load, pattern, 256), memory.base(), LEN_BYTES / 256, 4096, 1);
        let Places::Listed(list) = &order.places else { panic!("{order:?}") };
        let mut walk = Walk::new(pattern, LEN_BYTES / 256, 1);
        assert_eq!(list.len(), LEAST_DRAWS);
        assert!(list.iter().all(|at| at.addr() - memory.base().addr() == 256 * walk.next_line()));
        order.advance(LEAST_DRAWS as u64 - 1);
        assert_eq!(order.turn(16).count(), 1, "where the list ends");
        order.advance(1);
        assert_eq!(order.turn(16).count(), 16);
    }

    /// Every block, also of parts that have not as many as a power of two, and of more than a list would have.
    #[test]
    fn every_block_of_the_part_is_met_before_one_comes_again() {
        let base = std::ptr::without_provenance_mut::<u8>(1 << 20);
        let blocks = (1 << 20) + 12_345;
        for pattern in [Pattern::Sequential, Pattern::Random, Pattern::Stride(4096)] {
            let mut order = Order::new(&kind(Access::Load, pattern, 64), base, blocks, 1 << 20, 1);
            let mut met = vec![0u8; blocks];
            let mut left = blocks;
            while left > 0 {
                let addresses = order.turn(left).addresses();
                addresses.iter().for_each(|at| met[(at.addr() - base.addr()) / 64] += 1);
                order.advance(addresses.len() as u64);
                left -= addresses.len();
            }
            assert!(order.next == 0 && met.iter().all(|times| *times == 1), "{pattern:?}");
        }
    }

    #[test]
    fn a_turn_goes_round_as_often_as_it_takes() {
        let memory = filled();
        for (pattern, block_bytes) in PATTERNS.into_iter().flat_map(|pattern| [(pattern, 64), (pattern, 256)]) {
            let kind = kind(Access::Load, pattern, block_bytes);
            // Three or thirteen blocks.
            let mut stream = Stream::new(&kind, &memory, 0..832, 2 * LEN_BYTES, 1);
            assert_eq!(stream.turn(), 2 * LEN_BYTES as u64, "{pattern:?}");
            assert!(stream.is_right() && stream.loaded_lines() == 2 * LEN_BYTES as u64 / 64, "{pattern:?}");
        }
    }

    /// Else a later stream of loads would find zeros where the memory is known to be filled.
    #[test]
    fn a_stream_of_stores_that_never_took_a_turn_leaves_what_was_there() {
        let memory = filled();
        for pattern in PATTERNS {
            drop(Stream::new(&kind(Access::Store, pattern, 256), &memory, 0..LEN_BYTES, 4096, 1));
            assert!((0..LEN_BYTES).step_by(8).all(|at| memory.word(at) == STORED), "{pattern:?}");
        }
    }

    #[test]
    fn what_no_cpu_does_to_such_blocks_is_refused() {
        let refused = |pattern, block_bytes| kind(Access::Load, pattern, block_bytes).check().is_err();
        assert!(refused(Pattern::Stride(4096), 5568) && refused(Pattern::Sequential, 100));
        assert!(!refused(Pattern::Stride(4096), 1024) && !refused(Pattern::Sequential, 5568));
    }

    #[test]
    fn a_turn_that_visits_no_line_tells_what_the_loop_takes() {
        let memory = filled();
        let kind = kind(Access::Load, Pattern::Random, 64);
        let streams = [0, 1].map(|seed| Stream::new(&kind, &memory, 0..LEN_BYTES, 4096, seed));
        // A block a second, and so many that nothing else can have taken the time.
        let done = |work| [Done { work: 64, ns: 1_000_000_000 }, Done { work, ns: 1 }];
        assert!(overhead(&streams, &done(64 << 40)).unwrap() > overhead(&streams[..1], &done(0)).unwrap());
        assert_eq!(overhead(&streams, &done(64 << 40)).unwrap(), 1.0);
        assert!(streams.iter().all(|stream| stream.line == Line([0; 8])));
    }
}
