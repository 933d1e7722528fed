//! 64-bit Arm. Each combination is a loop of its own, which `match` picks once.
//!
//! No store by-passes the cache: STNP says only that the line is not soon needed again. A pair of registers is the most that
//! an instruction stores. DC CVAP and DC CVADP are written as SYS, for assemblers that do not know the names; Linux lets
//! programs use all four (SCTLR_EL1.UCI).

use std::arch::{asm, is_aarch64_feature_detected};

use super::{Access, Fence, Flush, Line, Operation, SOURCE, Store, unavailable};

pub(super) const FENCE_OF_STORES: Fence = Fence::Dsb;
pub(super) const STORE_PAST_CACHE: Access = Access::NonTemporal;

/// Runs `$each` for each address in a list, after it was loaded to {at}. Bodies may use {word} and q0 and q1, which have the
/// bytes.
macro_rules! for_each_address {
    ($addresses:ident, $($each:expr),*) => {
        asm!(
            "ldp q0, q1, [{line}]",
            "ldr {word}, [{line}]",
            "cbz {count}, 3f",
            ".p2align 5",
            "2:",
            "ldr {at}, [{list}], #8",
            $($each,)*
            "sub {count}, {count}, #1",
            "cbnz {count}, 2b",
            "3:",
            list = inout(reg) $addresses.as_ptr() => _,
            count = inout(reg) $addresses.len() => _,
            line = in(reg) SOURCE.as_ptr(),
            at = out(reg) _, word = out(reg) _,
            out("v0") _, out("v1") _,
            options(nostack),
        )
    };
}

/// As [`for_each_address`], with a reading of the clock before and after each, whose difference goes to a list of its own.
macro_rules! time_each_address {
    ($addresses:ident, $times:ident, $($each:expr),*) => {
        asm!(
            "ldp q0, q1, [{line}]",
            "ldr {word}, [{line}]",
            "cbz {count}, 3f",
            ".p2align 5",
            "2:",
            "ldr {at}, [{list}], #8",
            // Everything before is out of the way.
            "dsb sy",
            "isb",
            "mrs {start}, cntvct_el0",
            "isb",
            $($each,)*
            "dsb sy",
            "isb",
            "mrs {end}, cntvct_el0",
            "isb",
            "sub {end}, {end}, {start}",
            "str {end}, [{times}], #8",
            "sub {count}, {count}, #1",
            "cbnz {count}, 2b",
            "3:",
            list = inout(reg) $addresses.as_ptr() => _,
            times = inout(reg) $times.as_mut_ptr() => _,
            count = inout(reg) $addresses.len() => _,
            line = in(reg) SOURCE.as_ptr(),
            at = out(reg) _, word = out(reg) _, start = out(reg) _, end = out(reg) _,
            out("v0") _, out("v1") _,
            options(nostack),
        )
    };
}

/// Expands `$run!(store, flush, fence)` for the combination that an operation is.
macro_rules! with_code_of {
    ($operation:expr, $run:ident) => {
        match $operation.store {
            Store::Nothing => with_flush!($operation, $run, ""),
            Store::Mov8 => with_flush!($operation, $run, "str {word}, [{at}]"),
            Store::Vector16 => with_flush!($operation, $run, "str q0, [{at}]"),
            Store::Vector32 => with_flush!($operation, $run, "stp q0, q1, [{at}]"),
            Store::Vector32Twice | Store::Vector64 => {
                with_flush!($operation, $run, "stp q0, q1, [{at}]\nstp q0, q1, [{at}, #32]")
            }
            Store::NonTemporal16 => with_flush!($operation, $run, "stnp {word}, {word}, [{at}]"),
            Store::NonTemporal32 => with_flush!($operation, $run, "stnp q0, q1, [{at}]"),
            Store::NonTemporal64 => {
                with_flush!($operation, $run, "stnp q0, q1, [{at}]\nstnp q0, q1, [{at}, #32]")
            }
            Store::NonTemporal8 | Store::RepMovsq | Store::RepMovsb | Store::Movdiri | Store::Movdir64b => {
                unavailable()
            }
        }
    };
}

macro_rules! with_flush {
    ($operation:expr, $run:ident, $store:literal) => {
        match $operation.flush {
            Flush::None => with_fence!($operation, $run, $store, ""),
            Flush::CleanPoC => with_fence!($operation, $run, $store, "dc cvac, {at}"),
            Flush::CleanPoP => with_fence!($operation, $run, $store, "sys #3, c7, c12, #1, {at}"),
            Flush::CleanPoDP => with_fence!($operation, $run, $store, "sys #3, c7, c13, #1, {at}"),
            Flush::CleanInvalidate => with_fence!($operation, $run, $store, "dc civac, {at}"),
            Flush::Clflush | Flush::Clflushopt | Flush::Clwb => unavailable(),
        }
    };
}

macro_rules! with_fence {
    ($operation:expr, $run:ident, $store:literal, $flush:literal) => {
        match $operation.fence {
            Fence::None => $run!($store, $flush, ""),
            Fence::Dsb => $run!($store, $flush, "dsb sy"),
            Fence::Dmb => $run!($store, $flush, "dmb sy"),
            Fence::Sfence | Fence::Mfence => unavailable(),
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
        ($store:literal, $flush:literal, $fence:literal) => {
            // SAFETY: writes 64 bytes at most at each address, which the caller answers for.
            unsafe { for_each_address!(addresses, $store, $flush, $fence) }
        };
    }
    with_code_of!(operation, run)
}

/// Runs an operation at each address, and tells the ticks that each took until a DSB after it was executed.
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
        ($store:literal, $flush:literal, $fence:literal) => {
            // SAFETY: as `sustained`, and writes a time for each address.
            unsafe { time_each_address!(addresses, times, $store, $flush, $fence) }
        };
    }
    with_code_of!(operation, run)
}

/// Waits until everything before has been executed and is visible, and what was to be written back has been.
#[inline]
pub fn wait() {
    // SAFETY: a fence touches no memory; without `nomem` the compiler moves no access across it.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// Whether this CPU has the instruction.
pub(super) fn has_store(store: Store) -> bool {
    match store {
        Store::Nothing | Store::Mov8 | Store::Vector16 | Store::Vector32 | Store::Vector32Twice => true,
        Store::Vector64 | Store::NonTemporal16 | Store::NonTemporal32 | Store::NonTemporal64 => true,
        // An STNP of eight bytes would be one of two halves.
        Store::NonTemporal8 => false,
        Store::RepMovsq | Store::RepMovsb | Store::Movdiri | Store::Movdir64b => false,
    }
}

/// Whether this CPU has the instruction, and it does whole lines of 64 bytes.
pub(super) fn has_flush(flush: Flush) -> bool {
    match flush {
        Flush::None => true,
        Flush::CleanPoC | Flush::CleanInvalidate => line_bytes() >= size_of::<Line>(),
        // HWCAP_DCPOP and HWCAP2_DCPODP of Linux.
        Flush::CleanPoP => line_bytes() >= size_of::<Line>() && is_aarch64_feature_detected!("dpb"),
        Flush::CleanPoDP => line_bytes() >= size_of::<Line>() && is_aarch64_feature_detected!("dpb2"),
        Flush::Clflush | Flush::Clflushopt | Flush::Clwb => false,
    }
}

/// Smallest data-cache line: 4 << CTR_EL0.DminLine (bits 19 to 16), in bytes.
fn line_bytes() -> usize {
    let ctr: u64;
    // SAFETY: Linux lets programs read CTR_EL0, or emulates the read; the instruction touches no memory.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) ctr, options(nomem, nostack, preserves_flags)) };
    4 << (ctr >> 16 & 0xf)
}
