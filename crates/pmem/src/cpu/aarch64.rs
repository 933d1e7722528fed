//! aarch64: DC CVADP, CVAP or CVAC, and DSB.
//!
//! There is no store that by-passes the cache (STNP is a hint), so every copy stores and cleans.

use std::arch::asm;
use std::sync::OnceLock;

use super::{CopyKernel, CopyOrder, CpuFacts, FlushInstruction, LINE_BYTES};

/// AT_HWCAP: DC CVAP exists.
const HWCAP_DCPOP: usize = 1 << 16;
/// AT_HWCAP2: DC CVADP exists.
const HWCAP2_DCPODP: usize = 1;

/// What this CPU is.
pub(crate) fn facts() -> CpuFacts {
    static FACTS: OnceLock<CpuFacts> = OnceLock::new();
    *FACTS.get_or_init(|| {
        let (hwcap, hwcap2) = rustix::param::linux_hwcap();
        let (flush, instructions): (_, &'static [&'static str]) = match (hwcap2 & HWCAP2_DCPODP, hwcap & HWCAP_DCPOP) {
            (0, 0) => (FlushInstruction::DcCvac, &["dc cvac"]),
            (0, _) => (FlushInstruction::DcCvap, &["dc cvac", "dc cvap"]),
            (_, _) => (FlushInstruction::DcCvadp, &["dc cvac", "dc cvap", "dc cvadp"]),
        };
        CpuFacts { flush, line_bytes: line_bytes(), is_guest: false, instructions }
    })
}

/// Smallest data-cache line: 4 << CTR_EL0.DminLine (bits 19 to 16), in bytes.
fn line_bytes() -> usize {
    let ctr: u64;
    // SAFETY: Linux lets programs read CTR_EL0, or emulates the read; the instruction touches no memory.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) ctr, options(nomem, nostack, preserves_flags)) };
    4 << (ctr >> 16 & 0xf)
}

pub(super) fn has_kernel(kernel: CopyKernel) -> bool {
    kernel == CopyKernel::StoreFlush
}

/// Waits for this thread's cleans and orders them before whatever follows.
#[inline]
pub(crate) fn fence() {
    // SAFETY: DSB touches no memory; without `nomem` the compiler keeps stores before it.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// # Safety
/// `lines` lines from `start`, which is aligned, are mapped; the CPU has `instruction`.
#[inline]
pub(super) unsafe fn flush_lines(instruction: FlushInstruction, start: *const u8, lines: usize) {
    let step_bytes = facts().line_bytes.min(LINE_BYTES);
    let end_bytes = lines * LINE_BYTES;
    let mut at_bytes = 0;
    while at_bytes < end_bytes {
        let line = start.wrapping_add(at_bytes);
        // The SYS forms are DC CVADP, DC CVAP and DC CVAC, for assemblers that do not know the names.
        // SAFETY: the line is mapped, the CPU has the instruction, and Linux sets SCTLR_EL1.UCI, so that programs may
        // use it.
        unsafe {
            match instruction {
                FlushInstruction::DcCvadp => {
                    asm!("sys #3, c7, c13, #1, {}", in(reg) line, options(nostack, preserves_flags))
                }
                FlushInstruction::DcCvap => {
                    asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags))
                }
                _ => asm!("sys #3, c7, c10, #1, {}", in(reg) line, options(nostack, preserves_flags)),
            }
        }
        at_bytes += step_bytes;
    }
}

/// Asks for a line.
#[inline]
pub(super) fn prefetch_line(line: *const u8) {
    // SAFETY: a hint, which no address makes fail.
    unsafe { asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly)) };
}

/// There is no kernel to call.
///
/// # Safety
/// None needed; the signature is that of x86-64.
pub(super) unsafe fn copy_lines(kernel: CopyKernel, _: CopyOrder, _: *mut u8, _: *const u8, _: usize) {
    unreachable!("{kernel:?} is not available on this CPU");
}
