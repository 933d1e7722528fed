//! x86-64. Each combination is a loop of its own, which `match` picks once.

use std::arch::{asm, is_x86_feature_detected};

use super::{Access, Fence, Flush, Operation, SOURCE, Store, unavailable};

pub(super) const FENCE_OF_STORES: Fence = Fence::Sfence;
pub(super) const STORE_PAST_CACHE: Access = Access::NonTemporal;

/// Assembler that may change vector registers: VZEROUPPER clears the upper half of each.
macro_rules! vector_asm {
    ($($asm:tt)*) => {
        asm!(
            $($asm)*
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack),
        )
    };
}
pub(super) use vector_asm;

/// Runs `$each` for each address in a list, after it was loaded to rax. Bodies may use r8 and zmm0, which have the bytes, and
/// rsi, rdi and rcx.
macro_rules! for_each_address {
    ($addresses:ident, $load:literal, $end:literal, $($each:expr),*) => {
        vector_asm!(
            $load,
            "mov r8, [{line}]",
            "test {count}, {count}",
            "jz 3f",
            ".p2align 5",
            "2:",
            "mov rax, [{list}]",
            $($each,)*
            "add {list}, 8",
            "dec {count}",
            "jnz 2b",
            "3:",
            $end,
            list = inout(reg) $addresses.as_ptr() => _,
            count = inout(reg) $addresses.len() => _,
            line = in(reg) SOURCE.as_ptr(),
            out("rax") _, out("r8") _, out("rsi") _, out("rdi") _, out("rcx") _,
        )
    };
}

/// As [`for_each_address`], with a reading of the clock before and after each, whose difference goes to a list of its own.
macro_rules! time_each_address {
    ($addresses:ident, $times:ident, $load:literal, $end:literal, $($each:expr),*) => {
        vector_asm!(
            $load,
            "mov r8, [{line}]",
            "test {count}, {count}",
            "jz 3f",
            ".p2align 5",
            "2:",
            "mov r9, [{list}]",
            // Everything before is out of the way.
            "mfence",
            "lfence",
            "rdtscp",
            "lfence",
            "shl rdx, 32",
            "or rax, rdx",
            "mov r10, rax",
            "mov rax, r9",
            $($each,)*
            "mfence",
            "rdtscp",
            "lfence",
            "shl rdx, 32",
            "or rax, rdx",
            "sub rax, r10",
            "mov [{times}], rax",
            "add {times}, 8",
            "add {list}, 8",
            "dec {count}",
            "jnz 2b",
            "3:",
            $end,
            list = inout(reg) $addresses.as_ptr() => _,
            times = inout(reg) $times.as_mut_ptr() => _,
            count = inout(reg) $addresses.len() => _,
            line = in(reg) SOURCE.as_ptr(),
            out("rax") _, out("rdx") _, out("r8") _, out("r9") _, out("r10") _,
            out("rsi") _, out("rdi") _, out("rcx") _,
        )
    };
}

/// Expands `$run!(load, end, store, flush, fence)` for the combination that an operation is.
macro_rules! with_code_of {
    ($operation:expr, $run:ident) => {
        match $operation.store {
            Store::Nothing => with_flush!($operation, $run, "", "", ""),
            Store::Mov8 => with_flush!($operation, $run, "", "", "mov [rax], r8"),
            Store::Vector16 => with_flush!($operation, $run, "movdqa xmm0, [{line}]", "", "movdqa [rax], xmm0"),
            Store::Vector32 => {
                with_flush!($operation, $run, "vmovdqa ymm0, [{line}]", "vzeroupper", "vmovdqa [rax], ymm0")
            }
            Store::Vector32Twice => with_flush!(
                $operation,
                $run,
                "vmovdqa ymm0, [{line}]",
                "vzeroupper",
                "vmovdqa [rax], ymm0\nvmovdqa [rax + 32], ymm0"
            ),
            Store::Vector64 => {
                with_flush!($operation, $run, "vmovdqa64 zmm0, [{line}]", "vzeroupper", "vmovdqa64 [rax], zmm0")
            }
            Store::NonTemporal8 => with_flush!($operation, $run, "", "", "movnti [rax], r8"),
            Store::NonTemporal16 => with_flush!($operation, $run, "movdqa xmm0, [{line}]", "", "movntdq [rax], xmm0"),
            Store::NonTemporal32 => {
                with_flush!($operation, $run, "vmovdqa ymm0, [{line}]", "vzeroupper", "vmovntdq [rax], ymm0")
            }
            Store::NonTemporal64 => {
                with_flush!($operation, $run, "vmovdqa64 zmm0, [{line}]", "vzeroupper", "vmovntdq [rax], zmm0")
            }
            Store::RepMovsq => {
                with_flush!($operation, $run, "", "", "mov rdi, rax\nmov rsi, {line}\nmov ecx, 8\nrep movsq")
            }
            Store::RepMovsb => {
                with_flush!($operation, $run, "", "", "mov rdi, rax\nmov rsi, {line}\nmov ecx, 64\nrep movsb")
            }
            Store::Movdiri => with_flush!($operation, $run, "", "", "movdiri [rax], r8"),
            Store::Movdir64b => with_flush!($operation, $run, "", "", "movdir64b rax, [{line}]"),
        }
    };
}

macro_rules! with_flush {
    ($operation:expr, $run:ident, $load:literal, $end:literal, $store:literal) => {
        match $operation.flush {
            Flush::None => with_fence!($operation, $run, $load, $end, $store, ""),
            Flush::Clflush => with_fence!($operation, $run, $load, $end, $store, "clflush [rax]"),
            Flush::Clflushopt => with_fence!($operation, $run, $load, $end, $store, "clflushopt [rax]"),
            Flush::Clwb => with_fence!($operation, $run, $load, $end, $store, "clwb [rax]"),
            Flush::CleanPoC | Flush::CleanPoP | Flush::CleanPoDP | Flush::CleanInvalidate => unavailable(),
        }
    };
}

macro_rules! with_fence {
    ($operation:expr, $run:ident, $load:literal, $end:literal, $store:literal, $flush:literal) => {
        match $operation.fence {
            Fence::None => $run!($load, $end, $store, $flush, ""),
            Fence::Sfence => $run!($load, $end, $store, $flush, "sfence"),
            Fence::Mfence => $run!($load, $end, $store, $flush, "mfence"),
            Fence::Dsb | Fence::Dmb => unavailable(),
        }
    };
}

/// Runs an operation at each address, one after the other.
///
/// # Safety
/// Each address is a multiple of 64 and writable for 64 bytes; the operation [is available](Operation::is_available).
#[inline(never)]
pub unsafe fn sustained(operation: Operation, addresses: &[*mut u8]) {
    macro_rules! run {
        ($load:literal, $end:literal, $store:literal, $flush:literal, $fence:literal) => {
            // SAFETY: writes 64 bytes at most at each address, which the caller answers for.
            unsafe { for_each_address!(addresses, $load, $end, $store, $flush, $fence) }
        };
    }
    with_code_of!(operation, run)
}

/// Runs an operation at each address, and tells the ticks that each took until an MFENCE after it was executed.
///
/// # Safety
/// As [`sustained`].
///
/// # Panics
/// If there is not a time for each address.
#[inline(never)]
pub unsafe fn isolated(operation: Operation, addresses: &[*mut u8], times: &mut [u64]) {
    assert_eq!(addresses.len(), times.len());
    macro_rules! run {
        ($load:literal, $end:literal, $store:literal, $flush:literal, $fence:literal) => {
            // SAFETY: as `sustained`, and writes a time for each address.
            unsafe { time_each_address!(addresses, times, $load, $end, $store, $flush, $fence) }
        };
    }
    with_code_of!(operation, run)
}

/// Waits until everything before has been executed and is visible, and what was to be written back is on its way.
#[inline(always)]
pub fn wait() {
    // SAFETY: a fence touches no memory; without `nomem` the compiler moves no access across it.
    unsafe { asm!("mfence", options(nostack, preserves_flags)) };
}

/// Whether this CPU has the instruction.
pub(super) fn has_store(store: Store) -> bool {
    match store {
        Store::Nothing | Store::Mov8 | Store::Vector16 | Store::NonTemporal8 | Store::NonTemporal16 => true,
        Store::RepMovsq | Store::RepMovsb => true,
        Store::Vector32 | Store::Vector32Twice | Store::NonTemporal32 => is_x86_feature_detected!("avx"),
        Store::Vector64 | Store::NonTemporal64 => is_x86_feature_detected!("avx512f"),
        Store::Movdiri => leaf_7_ecx() >> 27 & 1 == 1,
        Store::Movdir64b => leaf_7_ecx() >> 28 & 1 == 1,
    }
}

/// Whether this CPU has the instruction.
pub(super) fn has_flush(flush: Flush) -> bool {
    match flush {
        Flush::None | Flush::Clflush => true,
        Flush::Clflushopt => leaf_7_ebx() >> 23 & 1 == 1,
        Flush::Clwb => leaf_7_ebx() >> 24 & 1 == 1,
        Flush::CleanPoC | Flush::CleanPoP | Flush::CleanPoDP | Flush::CleanInvalidate => false,
    }
}

// CPUID leaf 7 (Intel SDM volume 2, CPUID).
fn leaf_7_ebx() -> u32 {
    std::arch::x86_64::__cpuid_count(7, 0).ebx
}

fn leaf_7_ecx() -> u32 {
    std::arch::x86_64::__cpuid_count(7, 0).ecx
}

/// What functions were compiled to. No figure shows reliably whether a fence that ends an interval is there: how much longer it takes
/// depends on the CPU, the memory and the store.
#[cfg(test)]
pub(crate) mod machine_code {
    // Intel SDM volume 2.
    const RDTSCP: [u8; 3] = [0x0f, 0x01, 0xf9];
    const LFENCE: [u8; 3] = [0x0f, 0xae, 0xe8];
    const MFENCE: [u8; 3] = [0x0f, 0xae, 0xf0];

    /// The machine code of a function before each of its first readings of the clock, from the one before on.
    ///
    /// # Panics
    /// If there are not so many.
    pub(crate) fn before_readings(function: *const u8, readings: usize) -> Vec<Vec<u8>> {
        const MOST_BYTES: usize = 1 << 20;
        let (mut all, mut next): (Vec<Vec<u8>>, Vec<u8>) = Default::default();
        for at in 0..MOST_BYTES {
            // SAFETY: code of this process, which is mapped for reading: no function that has so many readings has ended before.
            next.push(unsafe { function.add(at).read() });
            if next.ends_with(&RDTSCP) {
                next.truncate(next.len() - RDTSCP.len());
                all.push(std::mem::take(&mut next));
                if all.len() == readings {
                    return all;
                }
            }
        }
        panic!("{} of {readings} readings of the clock in {MOST_BYTES} bytes", all.len());
    }

    /// Whether there is an MFENCE.
    pub(crate) fn has_mfence(code: &[u8]) -> bool {
        code.windows(MFENCE.len()).any(|bytes| bytes == MFENCE)
    }

    /// Each combination has a loop with two readings.
    #[test]
    fn every_isolated_interval_ends_with_an_mfence() {
        use super::{Fence, Flush, Store};
        let loops = Store::ALL.len() * Flush::ALL.len() * Fence::ALL.len();
        let readings = before_readings(super::isolated as *const u8, 2 * loops);
        for (number, interval) in readings.chunks(2).enumerate() {
            assert!(interval[0].ends_with(&LFENCE) && has_mfence(&interval[0]), "{number}: {:x?}", interval[0]);
            assert!(interval[1].ends_with(&MFENCE), "{number}: {:x?}", interval[1]);
        }
    }
}
