//! The instructions that are measured, written out: no compiler removes or merges them.
//!
//! An operation is a store, what writes it back, and what waits for it. All combinations exist as loops over a list of
//! addresses, in two forms: *sustained*, one after the other between two readings of the clock, and *isolated*, each between
//! two readings of its own.
//!
//! Names are those of instructions, so each kind of CPU has its own: x86-64, 64-bit Arm, and others, which store words and
//! have no way to write a line back. A plan may name those of any; what this CPU has is asked before it is run.

use crate::memory::Memory;
use crate::names::{instructions, names};

#[cfg(target_arch = "aarch64")]
#[path = "code/aarch64.rs"]
mod arch;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "code/portable.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "code/x86_64.rs"]
mod arch;

#[cfg(target_arch = "aarch64")]
#[path = "code/blocks_aarch64.rs"]
mod block;
#[cfg(target_arch = "x86_64")]
#[path = "code/blocks_x86_64.rs"]
mod block;

#[cfg(target_arch = "aarch64")]
#[path = "code/copy_aarch64.rs"]
mod copy;
#[cfg(target_arch = "x86_64")]
#[path = "code/copy_x86_64.rs"]
mod copy;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use arch as block;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use arch as copy;

mod places;

#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) use arch::machine_code::{before_readings, has_mfence};
pub use arch::{isolated, sustained, wait};
pub use block::blocks;
pub use copy::{copy_past_cache, fence};
pub use places::{Blocks, Scatter, Shuffle, Stride};

/// What is stored in each word, so that whoever reads it back knows that it arrived.
pub const STORED: u64 = 0x5245_4d41_4e45_4e54;

/// Takes the first bytes of a memory out of all caches, where the CPU has an instruction that does so.
pub fn evict(memory: &Memory, len_bytes: usize) {
    const BATCH: usize = 1024;
    let Some(flush) = Flush::evicting() else { return };
    let operation = Operation { store: Store::Nothing, flush, fence: Fence::None };
    let lines = len_bytes.min(memory.len_bytes()) / size_of::<Line>();
    let mut batch = Vec::with_capacity(BATCH);
    for start in (0..lines).step_by(BATCH) {
        batch.clear();
        batch
            .extend((start..lines.min(start + BATCH)).map(|line| memory.base().wrapping_add(line * size_of::<Line>())));
        // SAFETY: whole lines of the memory, nothing is stored, and the CPU has the instruction.
        unsafe { sustained(operation, &batch) };
    }
    wait();
}

/// Only for instructions whose availability nobody has asked for.
#[cold]
fn unavailable() -> ! {
    panic!("this CPU has not the instructions, and nobody asked whether it has");
}

/// 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Line(pub [u64; 8]);

/// Where stores take their bytes from; strings are copied from all of it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static SOURCE: [Line; 64] = [Line([STORED; 8]); 64];

/// What is done with each line of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It is loaded.
    Load,
    /// It is stored to through the cache.
    Store,
    /// It is stored to and written back by CLFLUSH.
    Clflush,
    /// It is stored to and written back by CLFLUSHOPT.
    Clflushopt,
    /// It is stored to and written back by CLWB.
    Clwb,
    /// It is stored to and written back by DC CVAC.
    CleanPoC,
    /// It is stored to and written back by DC CVAP.
    CleanPoP,
    /// It is stored to and written back by DC CVADP.
    CleanPoDP,
    /// It is stored past the cache, by vectors; on 64-bit Arm by STNP, which is a hint only.
    NonTemporal,
    /// It is stored past the cache, by eight MOVNTI, as in Abed Abud et al.
    Movnti,
    /// It is stored past the cache, by MOVDIR64B.
    Movdir64b,
    /// It is stored by REP MOVSQ, of whole blocks as far as these are no longer than 4 KiB; only ever [`STORED`].
    Movsq,
}

/// The width of the vectors that do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Width {
    /// SSE2, or a register of Neon.
    Bytes16,
    /// AVX, or a pair of registers.
    Bytes32,
    /// AVX-512.
    Bytes64,
}

/// How bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Store {
    /// Nothing, for what a measurement itself takes.
    Nothing,
    /// MOV or STR, 8 bytes.
    Mov8,
    /// MOVDQA or STR, 16 bytes.
    Vector16,
    /// VMOVDQA or STP, 32 bytes.
    Vector32,
    /// Two VMOVDQA of 32 bytes each, as in Yoshioka et al., or two STP.
    Vector32Twice,
    /// VMOVDQA64 or, for want of a wider one, two STP, 64 bytes.
    Vector64,
    /// MOVNTI, 8 bytes.
    NonTemporal8,
    /// MOVNTDQ or STNP, 16 bytes.
    NonTemporal16,
    /// VMOVNTDQ or STNP, 32 bytes.
    NonTemporal32,
    /// VMOVNTDQ or two STNP, 64 bytes.
    NonTemporal64,
    /// REP MOVSQ, 64 bytes.
    RepMovsq,
    /// REP MOVSB, 64 bytes.
    RepMovsb,
    /// MOVDIRI, 8 bytes.
    Movdiri,
    /// MOVDIR64B, 64 bytes.
    Movdir64b,
}

/// What starts the write-back of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flush {
    /// Nothing.
    None,
    /// CLFLUSH.
    Clflush,
    /// CLFLUSHOPT.
    Clflushopt,
    /// CLWB.
    Clwb,
    /// DC CVAC: to the point of coherency.
    CleanPoC,
    /// DC CVAP: to the point of persistence.
    CleanPoP,
    /// DC CVADP: to the point of deep persistence.
    CleanPoDP,
    /// DC CIVAC: to the point of coherency, and out of the cache.
    CleanInvalidate,
}

/// What waits until stores have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fence {
    /// Nothing.
    None,
    /// SFENCE.
    Sfence,
    /// MFENCE.
    Mfence,
    /// DSB SY, which waits for write-backs.
    Dsb,
    /// DMB SY, which orders, and waits for nothing.
    Dmb,
}

/// A store, its write-back and what waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// How bytes are stored.
    pub store: Store,
    /// What starts their write-back.
    pub flush: Flush,
    /// What waits.
    pub fence: Fence,
}

impl Store {
    /// Bytes that it stores.
    pub fn len_bytes(self) -> usize {
        match self {
            Store::Nothing => 0,
            Store::Mov8 | Store::NonTemporal8 | Store::Movdiri => 8,
            Store::Vector16 | Store::NonTemporal16 => 16,
            Store::Vector32 | Store::NonTemporal32 => 32,
            _ => 64,
        }
    }
}

instructions!(Store {
    Nothing = "none",
    Mov8 = "mov8",
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Vector16 = "vec16",
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Vector32 = "vec32",
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Vector32Twice = "vec32x2",
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Vector64 = "vec64",
    #[cfg(target_arch = "x86_64")]
    NonTemporal8 = "nt8",
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    NonTemporal16 = "nt16",
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    NonTemporal32 = "nt32",
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    NonTemporal64 = "nt64",
    #[cfg(target_arch = "x86_64")]
    RepMovsq = "movsq",
    #[cfg(target_arch = "x86_64")]
    RepMovsb = "movsb",
    #[cfg(target_arch = "x86_64")]
    Movdiri = "movdiri",
    #[cfg(target_arch = "x86_64")]
    Movdir64b = "movdir64b",
});

instructions!(Flush {
    None = "none",
    #[cfg(target_arch = "x86_64")]
    Clflush = "clflush",
    #[cfg(target_arch = "x86_64")]
    Clflushopt = "clflushopt",
    #[cfg(target_arch = "x86_64")]
    Clwb = "clwb",
    #[cfg(target_arch = "aarch64")]
    CleanPoC = "dc-cvac",
    #[cfg(target_arch = "aarch64")]
    CleanPoP = "dc-cvap",
    #[cfg(target_arch = "aarch64")]
    CleanPoDP = "dc-cvadp",
    #[cfg(target_arch = "aarch64")]
    CleanInvalidate = "dc-civac",
});

instructions!(Fence {
    None = "none",
    #[cfg(target_arch = "x86_64")]
    Sfence = "sfence",
    #[cfg(target_arch = "x86_64")]
    Mfence = "mfence",
    #[cfg(target_arch = "aarch64")]
    Dsb = "dsb",
    #[cfg(target_arch = "aarch64")]
    Dmb = "dmb",
});

instructions!(Access {
    Load = "load",
    Store = "store",
    #[cfg(target_arch = "x86_64")]
    Clflush = "clflush",
    #[cfg(target_arch = "x86_64")]
    Clflushopt = "clflushopt",
    #[cfg(target_arch = "x86_64")]
    Clwb = "clwb",
    #[cfg(target_arch = "aarch64")]
    CleanPoC = "dc-cvac",
    #[cfg(target_arch = "aarch64")]
    CleanPoP = "dc-cvap",
    #[cfg(target_arch = "aarch64")]
    CleanPoDP = "dc-cvadp",
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    NonTemporal = "nt",
    #[cfg(target_arch = "x86_64")]
    Movnti = "movnti",
    #[cfg(target_arch = "x86_64")]
    Movdir64b = "movdir64b",
    #[cfg(target_arch = "x86_64")]
    Movsq = "movsq",
});

names!(Width { Bytes16 = "16", Bytes32 = "32", Bytes64 = "64" });

impl Operation {
    /// Whether this CPU has the instructions.
    pub fn is_available(self) -> bool {
        self.missing().is_none()
    }

    /// The name of the first instruction that this CPU has not.
    pub fn missing(self) -> Option<&'static str> {
        let Operation { store, flush, fence } = self;
        if !arch::has_store(store) {
            Some(store.name())
        } else if !arch::has_flush(flush) {
            Some(flush.name())
        } else if !fence.is_available() {
            Some(fence.name())
        } else {
            None
        }
    }
}

impl Flush {
    /// What takes a line out of the cache on this CPU.
    pub fn evicting() -> Option<Flush> {
        let flushes = [Flush::Clflushopt, Flush::Clflush, Flush::CleanInvalidate];
        flushes.into_iter().find(|flush| arch::has_flush(*flush))
    }
}

impl Fence {
    /// What waits for write-backs and for stores past the cache on this kind of CPU.
    pub const OF_STORES: Fence = arch::FENCE_OF_STORES;

    /// Whether this CPU has the instruction.
    pub fn is_available(self) -> bool {
        Fence::ALL.contains(&self)
    }

    /// Whether loads that follow wait for it, too: SFENCE holds back stores alone, and DMB waits for nothing.
    pub fn holds_loads(self) -> bool {
        matches!(self, Fence::Mfence | Fence::Dsb)
    }
}

impl Access {
    /// What stores past the cache on this kind of CPU, if anything does.
    pub const PAST_CACHE: Access = arch::STORE_PAST_CACHE;

    /// Whether this CPU has the instructions.
    pub fn is_available(self, width: Width) -> bool {
        self.flush().is_none_or(arch::has_flush) && block::has_blocks(self, width)
    }

    /// What writes the line back, if anything does.
    pub fn flush(self) -> Option<Flush> {
        match self {
            Access::Clflush => Some(Flush::Clflush),
            Access::Clflushopt => Some(Flush::Clflushopt),
            Access::Clwb => Some(Flush::Clwb),
            Access::CleanPoC => Some(Flush::CleanPoC),
            Access::CleanPoP => Some(Flush::CleanPoP),
            Access::CleanPoDP => Some(Flush::CleanPoDP),
            Access::Load | Access::Store | Access::NonTemporal => None,
            Access::Movnti | Access::Movdir64b | Access::Movsq => None,
        }
    }

    /// Whether it is done by vectors, whose width can be chosen.
    pub fn has_width(self) -> bool {
        !matches!(self, Access::Movnti | Access::Movdir64b | Access::Movsq)
    }
}

impl Width {
    /// The widest that this CPU has.
    pub fn widest() -> Width {
        let has = |width: &Width| Access::Load.is_available(*width);
        Width::ALL.into_iter().rfind(has).expect("every CPU has the first")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every access goes over each line of each block once, whatever their number, and over no other.
    #[test]
    fn every_access_goes_over_the_blocks_that_are_given() {
        let mut memory = vec![Line([0; 8]); 256];
        let all = Access::ALL.into_iter().flat_map(|access| Width::ALL.map(|width| (access, width)));
        for (access, width, fence) in all.flat_map(|(access, width)| Fence::ALL.map(|fence| (access, width, fence))) {
            if !access.is_available(width) || !fence.is_available() {
                println!("not run: this CPU has no {access:?} of {width:?}, or no {fence:?}");
                continue;
            }
            for lines in [0, 1, 7, 8, 9, 16, 19, 64, 65, 130] {
                for (number, line) in memory.iter_mut().enumerate() {
                    let words = std::array::from_fn(|word| 1 << ((number + word) % 61));
                    *line = if access == Access::Load { Line(words) } else { Line([0; 8]) };
                }
                // The second block may lie before the first, and in it.
                let blocks_at = [40, 3];
                let base = memory.as_mut_ptr().cast::<u8>();
                let addresses = blocks_at.map(|line| base.wrapping_add(64 * line));
                let mut line = if access == Access::Load { Line([0; 8]) } else { Line([STORED; 8]) };
                // SAFETY: the blocks lie in the vector, and the access is available.
                unsafe { blocks(access, width, fence, Blocks::List(&addresses), lines, &mut line) };
                let is_in = |number: usize| blocks_at.iter().any(|&at| (at..at + lines).contains(&number));
                if access == Access::Load {
                    let visited = blocks_at.into_iter().flat_map(|at| at..at + lines);
                    let sum = |sum: [u64; 8], number: usize| {
                        std::array::from_fn(|word| sum[word].wrapping_add(memory[number].0[word]))
                    };
                    assert_eq!(line, Line(visited.fold([0; 8], sum)), "{access:?} {width:?} {lines}");
                } else {
                    for (number, line) in memory.iter().enumerate() {
                        let expected = if is_in(number) { STORED } else { 0 };
                        assert_eq!(line.0, [expected; 8], "{access:?} {width:?} {lines} {number}");
                    }
                }
            }
        }
    }

    /// Every combination stores what it says, where it says, once for each address, and nothing else.
    #[test]
    fn every_operation_stores_its_bytes_at_each_address() {
        const LINES: usize = 8;
        let mut memory = vec![0u64; 8 * (LINES + 1)];
        let skip = (memory.as_ptr().addr().wrapping_neg() % 64) / 8;
        for store in Store::ALL {
            for (flush, fence) in Flush::ALL.into_iter().flat_map(|flush| Fence::ALL.map(|fence| (flush, fence))) {
                let operation = Operation { store, flush, fence };
                if !operation.is_available() {
                    println!("not run: this CPU has no {operation:?}");
                    continue;
                }
                for is_isolated in [false, true] {
                    memory.fill(0);
                    let lines = &mut memory[skip..skip + 8 * LINES];
                    let base = lines.as_mut_ptr().cast::<u8>();
                    let addresses: Vec<*mut u8> = [5, 1, 2].map(|line| base.wrapping_add(64 * line)).to_vec();
                    let mut times = [u64::MAX; 3];
                    // SAFETY: three lines of the vector, which are aligned; the operation is available.
                    unsafe {
                        if is_isolated {
                            isolated(operation, &addresses, &mut times);
                        } else {
                            sustained(operation, &addresses);
                        }
                    }
                    // A counter that makes large steps may tell none.
                    assert_eq!(times.iter().all(|&ticks| ticks < u64::MAX), is_isolated, "{operation:?} {times:?}");
                    let stored = |line: usize| [5, 1, 2].contains(&line);
                    for line in 0..LINES {
                        let words = if stored(line) { store.len_bytes() / 8 } else { 0 };
                        let got = &memory[skip + 8 * line..][..8];
                        let expected = |word: usize| if word < words { 0x5245_4d41_4e45_4e54 } else { 0 };
                        assert!((0..8).all(|word| got[word] == expected(word)), "{operation:?} {line} {got:x?}");
                    }
                }
            }
        }
        let nothing: [*mut u8; 0] = [];
        let operation = Operation { store: Store::Mov8, flush: Flush::None, fence: Fence::None };
        // SAFETY: there is no address.
        unsafe { sustained(operation, &nothing) };
    }
}
