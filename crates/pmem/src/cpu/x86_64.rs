//! x86-64: CLWB, CLFLUSHOPT, CLFLUSH, SFENCE, and the copy kernels.
//!
//! The loops are inline assembly for three reasons: CLWB and MOVDIR64B have no stable intrinsic, a source that
//! another thread changes is no undefined behaviour for an instruction, and the compiler cannot turn the loop into
//! something else.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _MM_HINT_T0, _mm_prefetch, CpuidResult};
use std::sync::OnceLock;

use super::{CopyKernel, CopyOrder, CpuFacts, FlushInstruction, LINE_BYTES};

/// Lines that are copied one after the other before the next stream's turn: 256 bytes.
const GROUP_LINES: usize = 4;

/// CPUID leaf 7, EBX.
const CLFLUSHOPT: u32 = 1 << 23;
const CLWB: u32 = 1 << 24;
/// CPUID leaf 7, ECX.
const MOVDIR64B: u32 = 1 << 28;
/// CPUID leaf 1, ECX: set by hypervisors.
const HYPERVISOR: u32 = 1 << 31;

#[derive(Clone, Copy)]
struct Detected {
    facts: CpuFacts,
    avx512: bool,
    avx2: bool,
    movdir64b: bool,
}

fn cpuid(leaf: u32) -> CpuidResult {
    #[allow(unused_unsafe)] // the oldest compiler we support wants it, newer ones do not
    // SAFETY: every x86-64 CPU has CPUID, and it touches no memory.
    unsafe {
        __cpuid_count(leaf, 0)
    }
}

fn detected() -> &'static Detected {
    static DETECTED: OnceLock<Detected> = OnceLock::new();
    DETECTED.get_or_init(|| {
        let leaf1 = cpuid(1);
        let (ebx, ecx) = if cpuid(0).eax >= 7 { (cpuid(7).ebx, cpuid(7).ecx) } else { (0, 0) };
        // The macro also asks the operating system (XGETBV) whether it saves the wide registers.
        let avx512 = std::is_x86_feature_detected!("avx512f");
        let avx2 = std::is_x86_feature_detected!("avx2");
        let movdir64b = ecx & MOVDIR64B != 0;
        let flush = match (ebx & CLWB != 0, ebx & CLFLUSHOPT != 0) {
            (true, _) => FlushInstruction::Clwb,
            (false, true) => FlushInstruction::Clflushopt,
            (false, false) => FlushInstruction::Clflush,
        };
        let names = [
            ("clflush", true),
            ("clflushopt", ebx & CLFLUSHOPT != 0),
            ("clwb", ebx & CLWB != 0),
            ("sse2", true),
            ("avx2", avx2),
            ("avx512f", avx512),
            ("movdir64b", movdir64b),
            ("sse4.2 (crc32c)", std::is_x86_feature_detected!("sse4.2")),
        ];
        let instructions: Vec<_> = names.into_iter().filter_map(|(name, there)| there.then_some(name)).collect();
        let facts = CpuFacts {
            flush,
            // CLFLUSH line size in units of 8 bytes, bits 15 to 8 of leaf 1 EBX.
            line_bytes: ((leaf1.ebx >> 8 & 0xff) * 8) as usize,
            is_guest: leaf1.ecx & HYPERVISOR != 0,
            instructions: instructions.leak(),
        };
        Detected { facts, avx512, avx2, movdir64b }
    })
}

/// What this CPU is.
pub(crate) fn facts() -> CpuFacts {
    detected().facts
}

pub(super) fn has_kernel(kernel: CopyKernel) -> bool {
    match kernel {
        CopyKernel::Avx512 => detected().avx512,
        CopyKernel::Movdir64b => detected().movdir64b,
        CopyKernel::Avx2 => detected().avx2,
        CopyKernel::Sse2 | CopyKernel::StoreFlush => true,
    }
}

/// Orders this thread's flushes and non-temporal stores before its later stores.
#[inline]
pub(crate) fn fence() {
    // SAFETY: SFENCE is part of x86-64 and touches no memory; without `nomem` the compiler keeps stores before it.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// # Safety
/// `lines` lines from `start`, which is aligned, are mapped; the CPU has `instruction`.
#[inline]
pub(super) unsafe fn flush_lines(instruction: FlushInstruction, start: *const u8, lines: usize) {
    macro_rules! each_line {
        ($template:literal) => {
            for line in 0..lines {
                // SAFETY: the line is mapped, and the instruction exists, by the caller's promise.
                unsafe { asm!($template, line = in(reg) start.add(line * LINE_BYTES), options(nostack, preserves_flags)) };
            }
        };
    }
    match instruction {
        FlushInstruction::Clwb => each_line!("clwb [{line}]"),
        FlushInstruction::Clflushopt => each_line!("clflushopt [{line}]"),
        _ => each_line!("clflush [{line}]"),
    }
}

/// Writes `lines` full lines.
///
/// # Safety
/// `to` is aligned to a line and writable, `from` is readable, for `lines` lines, without overlap; the kernel is
/// available.
#[inline]
pub(super) unsafe fn copy_lines(kernel: CopyKernel, order: CopyOrder, to: *mut u8, from: *const u8, lines: usize) {
    // A group of each stream is the least that can be copied side by side.
    let side_by_side_from = match order {
        CopyOrder::FourStreams => 4 * GROUP_LINES,
        CopyOrder::OneStream => usize::MAX,
    };
    // SAFETY: the same promise.
    unsafe {
        match kernel {
            CopyKernel::Avx512 => avx512(to, from, lines, side_by_side_from),
            CopyKernel::Movdir64b => movdir64b(to, from, lines, side_by_side_from),
            CopyKernel::Avx2 => avx2(to, from, lines, side_by_side_from),
            CopyKernel::Sse2 => sse2(to, from, lines, side_by_side_from),
            CopyKernel::StoreFlush => unreachable!("storing and flushing is no kernel of full lines"),
        }
    }
}

/// Asks for a line.
#[inline]
pub(super) fn prefetch_line(line: *const u8) {
    // SAFETY: a hint, which no address makes fail.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
}

/// Stores `lines` full lines through the cache, in whole words or more at once.
///
/// # Safety
/// `to` is aligned to a line and writable, `from` is readable, for `lines` lines, without overlap.
#[inline]
pub(crate) unsafe fn store_lines(to: *mut u8, from: *const u8, lines: usize) {
    // SAFETY: the same promise, and the instructions are there.
    unsafe {
        match (detected().avx512, detected().avx2) {
            (true, _) => store_avx512(to, from, lines),
            (false, true) => store_avx2(to, from, lines),
            (false, false) => store_sse2(to, from, lines),
        }
    }
}

macro_rules! store_loop {
    ($name:ident, $end:literal, $($line:literal),+) => {
        /// # Safety
        /// As [`store_lines`]; the CPU has the instructions.
        #[inline(never)]
        unsafe fn $name(to: *mut u8, from: *const u8, lines: usize) {
            if lines == 0 {
                return;
            }
            // SAFETY: reads `lines` lines at `from` and writes as many at `to`, and nothing else.
            unsafe {
                asm!(
                    ".p2align 4",
                    "2:",
                    $($line,)+
                    "add {from}, 64",
                    "add {to}, 64",
                    "dec {lines}",
                    "jnz 2b",
                    $end,
                    from = inout(reg) from => _,
                    to = inout(reg) to => _,
                    lines = inout(reg) lines => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    options(nostack),
                );
            }
        }
    };
}
store_loop!(store_avx512, "vzeroupper", "vmovdqu64 zmm0, [{from}]", "vmovdqa64 [{to}], zmm0");
store_loop!(
    store_avx2,
    "vzeroupper",
    "vmovdqu ymm0, [{from}]",
    "vmovdqu ymm1, [{from} + 32]",
    "vmovdqa [{to}], ymm0",
    "vmovdqa [{to} + 32], ymm1"
);
store_loop!(
    store_sse2,
    "",
    "movdqu xmm0, [{from}]",
    "movdqu xmm1, [{from} + 16]",
    "movdqu xmm2, [{from} + 32]",
    "movdqu xmm3, [{from} + 48]",
    "movdqa [{to}], xmm0",
    "movdqa [{to} + 16], xmm1",
    "movdqa [{to} + 32], xmm2",
    "movdqa [{to} + 48], xmm3"
);

/// Defines a copy loop from two macros that copy 256 bytes, and one line, at a displacement from `{from}` to the same
/// displacement from `{to}`.
///
/// From as many lines on as the caller says, 1 KiB at least, four streams are copied side by side, 256 bytes of each in
/// turn: 4 KiB apart while 16 KiB are left, then each a quarter of what is left. A CPU prefetches several streams at once,
/// and some prefetch none across the end of a page; 256 bytes are what a persistent-memory module writes as one (Yang et
/// al., FAST'20, section 5.1). Whether this or one stream is faster from memory that is not cached, by a third either way,
/// differs from CPU to CPU: see [`CopyOrder`]. Then 256 bytes at a time, then single lines.
///
/// Not inlined: VZEROUPPER may only clear registers that the calling convention lets a function clear.
macro_rules! copy_loop {
    ($name:ident, $group:ident, $line:ident, $end:literal) => {
        /// # Safety
        /// As [`copy_lines`].
        #[inline(never)]
        unsafe fn $name(to: *mut u8, from: *const u8, lines: usize, side_by_side_from: usize) {
            // SAFETY: reads `lines` lines at `from` and writes as many at `to`, and nothing else; every vector
            // register is given up, as it is in any call of this convention.
            unsafe {
                asm!(
                    // 4096 bytes apart while 16 KiB are left, then a quarter of what is left.
                    "2:",
                    "cmp {lines}, {side_by_side_from}",
                    "jb 5f",
                    "mov {turns}, 16",
                    "cmp {lines}, 256",
                    "jae 3f",
                    "mov {turns}, {lines}",
                    "shr {turns}, 4",
                    "3:",
                    "mov {stride}, {turns}",
                    "shl {stride}, 8",
                    "lea {triple}, [{stride} + {stride} * 2]",
                    "mov rax, {turns}",
                    "shl rax, 4",
                    "sub {lines}, rax",
                    ".p2align 4",
                    "4:",
                    $group!("0"),
                    $group!("{stride}"),
                    $group!("{stride} * 2"),
                    $group!("{triple}"),
                    "add {from}, 256",
                    "add {to}, 256",
                    "dec {turns}",
                    "jnz 4b",
                    "add {from}, {triple}",
                    "add {to}, {triple}",
                    "jmp 2b",
                    "5:",
                    "cmp {lines}, 4",
                    "jb 7f",
                    ".p2align 4",
                    "6:",
                    $group!("0"),
                    "add {from}, 256",
                    "add {to}, 256",
                    "sub {lines}, 4",
                    "cmp {lines}, 4",
                    "jae 6b",
                    "7:",
                    "test {lines}, {lines}",
                    "jz 9f",
                    "8:",
                    $line!("0"),
                    "add {from}, 64",
                    "add {to}, 64",
                    "dec {lines}",
                    "jnz 8b",
                    "9:",
                    $end,
                    from = inout(reg) from => _,
                    to = inout(reg) to => _,
                    lines = inout(reg) lines => _,
                    side_by_side_from = in(reg) side_by_side_from,
                    turns = out(reg) _,
                    stride = out(reg) _,
                    triple = out(reg) _,
                    out("rax") _, // scratch, and the target of MOVDIR64B, which is a register
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    options(nostack),
                );
            }
        }
    };
}

/// Four lines, one after the other, with a macro that copies one.
macro_rules! four_lines {
    ($line:ident, $at:literal) => {
        concat!($line!($at), "\n", $line!($at, " + 64"), "\n", $line!($at, " + 128"), "\n", $line!($at, " + 192"),)
    };
}

macro_rules! avx512_line {
    ($($at:literal),*) => {
        concat!("vmovdqu64 zmm0, [{from} + ", $($at,)* "]\n", "vmovntdq [{to} + ", $($at,)* "], zmm0")
    };
}
macro_rules! avx512_group {
    ($at:literal) => {
        four_lines!(avx512_line, $at)
    };
}
copy_loop!(avx512, avx512_group, avx512_line, "vzeroupper");

macro_rules! movdir64b_line {
    ($($at:literal),*) => {
        concat!("lea rax, [{to} + ", $($at,)* "]\n", "movdir64b rax, [{from} + ", $($at,)* "]")
    };
}
macro_rules! movdir64b_group {
    ($at:literal) => {
        four_lines!(movdir64b_line, $at)
    };
}
copy_loop!(movdir64b, movdir64b_group, movdir64b_line, "");

macro_rules! avx2_line {
    ($($at:literal),*) => {
        concat!(
            "vmovdqu ymm0, [{from} + ", $($at,)* "]\n",
            "vmovdqu ymm1, [{from} + ", $($at,)* " + 32]\n",
            "vmovntdq [{to} + ", $($at,)* "], ymm0\n",
            "vmovntdq [{to} + ", $($at,)* " + 32], ymm1",
        )
    };
}
macro_rules! avx2_group {
    ($at:literal) => {
        four_lines!(avx2_line, $at)
    };
}
copy_loop!(avx2, avx2_group, avx2_line, "vzeroupper");

macro_rules! sse2_line {
    ($($at:literal),*) => {
        concat!(
            "movdqu xmm0, [{from} + ", $($at,)* "]\n",
            "movdqu xmm1, [{from} + ", $($at,)* " + 16]\n",
            "movdqu xmm2, [{from} + ", $($at,)* " + 32]\n",
            "movdqu xmm3, [{from} + ", $($at,)* " + 48]\n",
            "movntdq [{to} + ", $($at,)* "], xmm0\n",
            "movntdq [{to} + ", $($at,)* " + 16], xmm1\n",
            "movntdq [{to} + ", $($at,)* " + 32], xmm2\n",
            "movntdq [{to} + ", $($at,)* " + 48], xmm3",
        )
    };
}
macro_rules! sse2_group {
    ($at:literal) => {
        four_lines!(sse2_line, $at)
    };
}
copy_loop!(sse2, sse2_group, sse2_line, "");
