//! The instructions that are measured, written out: no compiler removes or merges them.
//!
//! An operation is a store, what writes it back, and what waits for it. All combinations exist as loops over a list of
//! addresses, in two forms: *sustained*, one after the other between two readings of the clock, and *isolated*, each between
//! two readings of its own.

#[cfg(target_arch = "x86_64")]
#[path = "code/x86_64.rs"]
mod arch;

pub use arch::{isolated, sustained, wait};

/// How bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Store {
    /// Nothing, for what a measurement itself takes.
    Nothing,
    /// MOV, 8 bytes.
    Mov8,
    /// MOVDQA, 16 bytes.
    Vector16,
    /// VMOVDQA, 32 bytes.
    Vector32,
    /// Two VMOVDQA of 32 bytes each, as in Yoshioka et al.
    Vector32Twice,
    /// VMOVDQA64, 64 bytes.
    Vector64,
    /// MOVNTI, 8 bytes.
    NonTemporal8,
    /// MOVNTDQ, 16 bytes.
    NonTemporal16,
    /// VMOVNTDQ, 32 bytes.
    NonTemporal32,
    /// VMOVNTDQ, 64 bytes.
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
    /// All of them.
    pub const ALL: [Store; 14] = [
        Store::Nothing,
        Store::Mov8,
        Store::Vector16,
        Store::Vector32,
        Store::Vector32Twice,
        Store::Vector64,
        Store::NonTemporal8,
        Store::NonTemporal16,
        Store::NonTemporal32,
        Store::NonTemporal64,
        Store::RepMovsq,
        Store::RepMovsb,
        Store::Movdiri,
        Store::Movdir64b,
    ];

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

    /// The name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Store::Nothing => "none",
            Store::Mov8 => "mov8",
            Store::Vector16 => "vec16",
            Store::Vector32 => "vec32",
            Store::Vector32Twice => "vec32x2",
            Store::Vector64 => "vec64",
            Store::NonTemporal8 => "nt8",
            Store::NonTemporal16 => "nt16",
            Store::NonTemporal32 => "nt32",
            Store::NonTemporal64 => "nt64",
            Store::RepMovsq => "movsq",
            Store::RepMovsb => "movsb",
            Store::Movdiri => "movdiri",
            Store::Movdir64b => "movdir64b",
        }
    }
}

impl Flush {
    /// All of them.
    pub const ALL: [Flush; 4] = [Flush::None, Flush::Clflush, Flush::Clflushopt, Flush::Clwb];
}

impl Fence {
    /// All of them.
    pub const ALL: [Fence; 3] = [Fence::None, Fence::Sfence, Fence::Mfence];
}

impl Operation {
    /// Whether this CPU has the instructions.
    pub fn is_available(self) -> bool {
        arch::is_available(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                    let mut times = [0; 3];
                    // SAFETY: three lines of the vector, which are aligned; the operation is available.
                    unsafe {
                        if is_isolated {
                            isolated(operation, &addresses, &mut times);
                        } else {
                            sustained(operation, &addresses);
                        }
                    }
                    assert_eq!(times.iter().all(|&ticks| ticks > 0), is_isolated, "{operation:?} {times:?}");
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
