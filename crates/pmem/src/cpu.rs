//! Cache-line primitives: flush, fence, and copies that reach the medium.
//!
//! Which instructions exist is asked of the CPU once, at run time; which of them is the fastest is measured once per
//! process, at the first copy, in one or two milliseconds ([`CopyPlan::get`]). Nothing here depends on how the program was compiled.
//!
//! The copy has two shapes. A short one is stored through the cache and flushed, because the line is then still near
//! for the next reader and the latency is the same; from [`CopyPlan::direct_from_bytes`] on, full lines are written
//! with stores that by-pass the cache, which saves reading each line first. The edges of a copy share their line with
//! other data, so they are always stored and flushed.
//!
//! Sources: Intel SDM volume 1, section 10.4.6.2 and volume 2, CLWB, CLFLUSHOPT, MOVDIR64B; Arm ARM, DC CVAP; and for
//! the shape of short and long copies Yang et al., "An Empirical Guide to the Behavior and Use of Scalable Persistent
//! Memory", FAST'20, section 5.2.

use std::ptr;
use std::sync::OnceLock;

use crate::durability::Granularity;

#[cfg(target_arch = "aarch64")]
#[path = "cpu/aarch64.rs"]
mod arch;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "cpu/portable.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "cpu/x86_64.rs"]
mod arch;
mod calibrate;

#[cfg(target_arch = "x86_64")]
pub(crate) use arch::store_lines;
pub(crate) use arch::{facts, fence};

/// The unit of flushes and of full-line stores. Smaller lines are covered as well, since every line in the unit is
/// flushed; on CPUs with larger ones some flushes are repeated.
pub const LINE_BYTES: usize = 64;

/// The instruction that starts the write-back of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlushInstruction {
    /// x86: write back and keep the line.
    Clwb,
    /// x86: write back and drop the line, in any order.
    Clflushopt,
    /// x86: write back and drop the line, one after the other.
    Clflush,
    /// aarch64: clean to the point of deep persistence.
    DcCvadp,
    /// aarch64: clean to the point of persistence.
    DcCvap,
    /// aarch64: clean to the point of coherency, all that CPUs before Armv8.2 have.
    DcCvac,
    /// The CPU has none that programs may use.
    Missing,
}

impl FlushInstruction {
    /// The mnemonic, in small letters.
    pub fn as_str(self) -> &'static str {
        match self {
            FlushInstruction::Clwb => "clwb",
            FlushInstruction::Clflushopt => "clflushopt",
            FlushInstruction::Clflush => "clflush",
            FlushInstruction::DcCvadp => "dc cvadp",
            FlushInstruction::DcCvap => "dc cvap",
            FlushInstruction::DcCvac => "dc cvac",
            FlushInstruction::Missing => "missing",
        }
    }
}

/// How full lines of a long copy are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyKernel {
    /// 64-byte non-temporal stores (VMOVNTDQ, AVX-512F).
    Avx512,
    /// 64-byte direct stores (MOVDIR64B).
    Movdir64b,
    /// 32-byte non-temporal stores (VMOVNTDQ, AVX).
    Avx2,
    /// 16-byte non-temporal stores (MOVNTDQ).
    Sse2,
    /// Stores through the cache, each line flushed.
    StoreFlush,
}

impl CopyKernel {
    /// Every kernel, the preferred one first.
    pub const ALL: [CopyKernel; 5] =
        [CopyKernel::Avx512, CopyKernel::Movdir64b, CopyKernel::Avx2, CopyKernel::Sse2, CopyKernel::StoreFlush];

    /// The name used by `REMANENT_COPY` and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            CopyKernel::Avx512 => "avx512",
            CopyKernel::Movdir64b => "movdir64b",
            CopyKernel::Avx2 => "avx2",
            CopyKernel::Sse2 => "sse2",
            CopyKernel::StoreFlush => "clwb",
        }
    }

    /// Whether this CPU and operating system can run it.
    pub fn is_available(self) -> bool {
        arch::has_kernel(self)
    }
}

/// How the full lines of a copy follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOrder {
    /// One after the other.
    OneStream,
    /// Four pages side by side, 256 bytes of each in turn.
    FourStreams,
}

impl CopyOrder {
    /// Its name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            CopyOrder::OneStream => "one stream",
            CopyOrder::FourStreams => "four streams",
        }
    }
}

/// What the CPU can do, as found at run time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuFacts {
    /// The best instruction there is for `flush`.
    pub(crate) flush: FlushInstruction,
    /// Bytes of a cache line, as the CPU reports it.
    pub(crate) line_bytes: usize,
    /// Whether a hypervisor says that it is there; false where this cannot be known.
    pub(crate) is_guest: bool,
    /// Names of the instructions that matter here and exist.
    pub(crate) instructions: &'static [&'static str],
}

/// Why a [`CopyPlan`] is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanOrigin {
    /// Measured in this process.
    Calibrated,
    /// `REMANENT_COPY` asked for it.
    Environment,
    /// `REMANENT_COPY` has a name that is unknown or not available here; measured instead.
    EnvironmentIgnored,
}

/// The choice of instructions that copies and flushes of this process use.
///
/// # Environment
/// `REMANENT_COPY` = `avx512`, `avx2`, `sse2`, `movdir64b` or `clwb` fixes the kernel (`clwb`: always store and flush).
/// A name that this CPU does not have is ignored, and [`CopyPlan::origin`] says so.
#[derive(Clone, Copy, Debug)]
pub struct CopyPlan {
    /// Writes the full lines of long copies.
    pub kernel: CopyKernel,
    /// Copies from this length on use the kernel, shorter ones are stored and flushed.
    pub direct_from_bytes: usize,
    /// In which order copies of [`LONG_COPY_BYTES`] and more are written; shorter ones are written side by side.
    pub order: CopyOrder,
    /// Starts write-backs.
    pub flush: FlushInstruction,
    /// Where the choice comes from.
    pub origin: PlanOrigin,
}

/// Crossover used when it is not measured: below it, the fence costs more than either way of writing.
const DEFAULT_DIRECT_FROM_BYTES: usize = 256;

/// A copy from this length on is long: the order that is faster was measured at twice that, and one of 16 KiB is faster side by
/// side on every CPU that was looked at.
pub const LONG_COPY_BYTES: usize = 64 << 10;

/// From here on the CPU goes on by itself.
const PREFETCHED_LINES: usize = 4;

/// A long store is flushed in pieces that stay in the first-level cache, so that no line is evicted before its flush.
const STORE_PIECE_BYTES: usize = 4096;

impl CopyPlan {
    /// The plan of this process; the first call measures it.
    #[inline]
    pub fn get() -> &'static CopyPlan {
        static PLAN: OnceLock<CopyPlan> = OnceLock::new();
        PLAN.get_or_init(|| CopyPlan::choose(std::env::var("REMANENT_COPY").ok().as_deref()))
    }

    fn choose(wanted: Option<&str>) -> CopyPlan {
        let Some(wanted) = wanted.filter(|name| !name.is_empty()) else { return calibrate::measure() };
        match CopyKernel::ALL.into_iter().find(|k| k.as_str() == wanted && k.is_available()) {
            Some(kernel) => {
                calibrate::order_of(CopyPlan { origin: PlanOrigin::Environment, ..CopyPlan::fixed(kernel) })
            }
            None => CopyPlan { origin: PlanOrigin::EnvironmentIgnored, ..calibrate::measure() },
        }
    }

    /// A plan that was not measured.
    fn fixed(kernel: CopyKernel) -> CopyPlan {
        let direct_from_bytes = match kernel {
            CopyKernel::StoreFlush => usize::MAX,
            _ => DEFAULT_DIRECT_FROM_BYTES,
        };
        let order = CopyOrder::FourStreams;
        CopyPlan { kernel, direct_from_bytes, order, flush: facts().flush, origin: PlanOrigin::Calibrated }
    }

    /// Copies so that every byte is durable at the next [`fence`] of this thread, if the granularity is cache line
    /// or byte; with page granularity the copy is only visible.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `len_bytes` bytes, and they do not overlap. Others may write to
    /// `from` meanwhile; then some mixture arrives. Nobody else accesses the bytes of `to`.
    #[inline]
    pub(crate) unsafe fn copy(&self, to: *mut u8, from: *const u8, len_bytes: usize, granularity: Granularity) {
        if len_bytes < self.direct_from_bytes || self.kernel == CopyKernel::StoreFlush {
            // SAFETY: the caller's promise, unchanged.
            unsafe { self.store(to, from, len_bytes, granularity) };
            return;
        }
        let head_bytes = to.addr().wrapping_neg() % LINE_BYTES;
        // `direct_from_bytes` is at least one line, so the head never exceeds the length.
        let lines = (len_bytes - head_bytes) / LINE_BYTES;
        let body_end_bytes = head_bytes + lines * LINE_BYTES;
        let order = if len_bytes < LONG_COPY_BYTES { CopyOrder::FourStreams } else { self.order };
        // SAFETY: [0, head), [head, body_end) and [body_end, len) lie inside the caller's ranges, `to + head` is a
        // multiple of the line size by the choice of head, and a plan is only made with a kernel that is available.
        unsafe {
            if head_bytes > 0 {
                self.store(to, from, head_bytes, granularity);
            }
            arch::copy_lines(self.kernel, order, to.add(head_bytes), from.add(head_bytes), lines);
            if body_end_bytes < len_bytes {
                let tail_bytes = len_bytes - body_end_bytes;
                self.store(to.add(body_end_bytes), from.add(body_end_bytes), tail_bytes, granularity);
            }
        }
    }

    /// Stores through the cache and flushes where the granularity asks for it.
    ///
    /// # Safety
    /// As [`CopyPlan::copy`].
    #[inline]
    unsafe fn store(&self, to: *mut u8, from: *const u8, len_bytes: usize, granularity: Granularity) {
        if granularity != Granularity::CacheLine {
            // SAFETY: the caller's promise.
            unsafe { ptr::copy_nonoverlapping(from, to, len_bytes) };
            return;
        }
        let mut done_bytes = 0;
        while done_bytes < len_bytes {
            let piece_bytes = STORE_PIECE_BYTES.min(len_bytes - done_bytes);
            // SAFETY: the piece lies inside the caller's ranges, and what is writable may be flushed; the
            // instruction was found to exist when the plan was made.
            unsafe {
                let to = to.add(done_bytes);
                ptr::copy_nonoverlapping(from.add(done_bytes), to, piece_bytes);
                flush_range(self.flush, to, piece_bytes);
            }
            done_bytes += piece_bytes;
        }
    }
}

/// Asks for the first lines of what is soon read or written elsewhere in memory: the CPU does not look across the end of a
/// page, and where its page is takes as long to find out as what is there.
#[inline]
pub fn prefetch(from: *const u8) {
    for line in 0..PREFETCHED_LINES {
        arch::prefetch_line(from.wrapping_add(line * LINE_BYTES));
    }
}

/// Starts the write-back of every line that `len_bytes` bytes at `start` touch.
///
/// # Safety
/// The bytes are mapped and readable, and this CPU has the instruction.
#[inline]
pub(crate) unsafe fn flush_range(instruction: FlushInstruction, start: *const u8, len_bytes: usize) {
    if len_bytes > 0 {
        let before = start.addr() % LINE_BYTES;
        let lines = (before + len_bytes).div_ceil(LINE_BYTES);
        // SAFETY: a line never crosses a page, so each of them is in a page that the caller says is mapped.
        unsafe { arch::flush_lines(instruction, start.sub(before), lines) };
    }
}

#[cfg(test)]
mod tests;
