//! Other 64-bit little-endian CPUs: stores and a full fence, no way to flush a line.
//!
//! Pools work on page-cached files and tmpfs; where a line would have to be flushed the durability is reported as
//! unknown, because [`FlushInstruction::Missing`] says so.

use std::sync::atomic::{Ordering, fence as atomic_fence};

use super::{CopyKernel, CopyOrder, CpuFacts, FlushInstruction, LINE_BYTES};

/// What this CPU is.
pub(crate) fn facts() -> CpuFacts {
    CpuFacts { flush: FlushInstruction::Missing, line_bytes: LINE_BYTES, is_guest: false, instructions: &[] }
}

pub(super) fn has_kernel(kernel: CopyKernel) -> bool {
    kernel == CopyKernel::StoreFlush
}

/// Orders this thread's stores before whatever follows.
#[inline]
pub(crate) fn fence() {
    atomic_fence(Ordering::SeqCst);
}

/// Does nothing: there is no instruction.
///
/// # Safety
/// None needed; the signature is that of the other CPUs.
#[inline]
pub(super) unsafe fn flush_lines(_: FlushInstruction, _: *const u8, _: usize) {}

/// Does nothing.
#[inline]
pub(super) fn prefetch_line(_: *const u8) {}

/// There is no kernel to call.
///
/// # Safety
/// None needed; the signature is that of x86-64.
pub(super) unsafe fn copy_lines(kernel: CopyKernel, _: CopyOrder, _: *mut u8, _: *const u8, _: usize) {
    unreachable!("{kernel:?} is not available on this CPU");
}
