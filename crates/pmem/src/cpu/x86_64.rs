//! x86-64: CLWB, CLFLUSHOPT, CLFLUSH, SFENCE, and the copy kernels.
//!
//! The loops are inline assembly for three reasons: CLWB and MOVDIR64B have no stable intrinsic, a source that
//! another thread changes is no undefined behaviour for an instruction, and the compiler cannot turn the loop into
//! something else.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

use super::{CopyKernel, CpuFacts, FlushInstruction, LINE_BYTES};

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

fn detected() -> &'static Detected {
    static DETECTED: OnceLock<Detected> = OnceLock::new();
    DETECTED.get_or_init(|| {
        let leaf1 = __cpuid(1);
        let has_leaf7 = __cpuid(0).eax >= 7;
        let (ebx, ecx) = if has_leaf7 { (__cpuid_count(7, 0).ebx, __cpuid_count(7, 0).ecx) } else { (0, 0) };
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
pub(super) unsafe fn copy_lines(kernel: CopyKernel, to: *mut u8, from: *const u8, lines: usize) {
    // SAFETY: the same promise.
    unsafe {
        match kernel {
            CopyKernel::Avx512 => avx512(to, from, lines),
            CopyKernel::Movdir64b => movdir64b(to, from, lines),
            CopyKernel::Avx2 => avx2(to, from, lines),
            CopyKernel::Sse2 => sse2(to, from, lines),
            CopyKernel::StoreFlush => unreachable!("storing and flushing is no kernel of full lines"),
        }
    }
}

/// Makes a copy loop: four lines a turn, then the rest one by one. `$four` and `$one` load and store at `{from}` and
/// `{to}`. Not inlined: VZEROUPPER may only clear registers that the calling convention lets a function clear.
macro_rules! copy_loop {
    ($name:ident, [$($four:literal),* $(,)?], [$($one:literal),* $(,)?], $end:literal) => {
        /// # Safety
        /// As [`copy_lines`].
        #[inline(never)]
        unsafe fn $name(to: *mut u8, from: *const u8, lines: usize) {
            // SAFETY: reads `lines` lines at `from` and writes as many at `to`, and nothing else; every vector
            // register is given up, as it is in any call of this convention.
            unsafe {
                asm!(
                    "cmp {lines}, 4",
                    "jb 3f",
                    ".p2align 4",
                    "2:",
                    $($four,)*
                    "add {from}, 256",
                    "add {to}, 256",
                    "sub {lines}, 4",
                    "cmp {lines}, 4",
                    "jae 2b",
                    "3:",
                    "test {lines}, {lines}",
                    "jz 5f",
                    "4:",
                    $($one,)*
                    "add {from}, 64",
                    "add {to}, 64",
                    "dec {lines}",
                    "jnz 4b",
                    "5:",
                    $end,
                    from = inout(reg) from => _,
                    to = inout(reg) to => _,
                    lines = inout(reg) lines => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                    out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                    out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                    options(nostack),
                );
            }
        }
    };
}

copy_loop!(
    avx512,
    [
        "vmovdqu64 zmm0, [{from}]",
        "vmovdqu64 zmm1, [{from} + 64]",
        "vmovdqu64 zmm2, [{from} + 128]",
        "vmovdqu64 zmm3, [{from} + 192]",
        "vmovntdq [{to}], zmm0",
        "vmovntdq [{to} + 64], zmm1",
        "vmovntdq [{to} + 128], zmm2",
        "vmovntdq [{to} + 192], zmm3",
    ],
    ["vmovdqu64 zmm0, [{from}]", "vmovntdq [{to}], zmm0"],
    "vzeroupper"
);

copy_loop!(
    movdir64b,
    [
        "movdir64b {to}, [{from}]",
        "add {to}, 64",
        "movdir64b {to}, [{from} + 64]",
        "add {to}, 64",
        "movdir64b {to}, [{from} + 128]",
        "add {to}, 64",
        "movdir64b {to}, [{from} + 192]",
        "sub {to}, 192",
    ],
    ["movdir64b {to}, [{from}]"],
    ""
);

copy_loop!(
    avx2,
    [
        "vmovdqu ymm0, [{from}]",
        "vmovdqu ymm1, [{from} + 32]",
        "vmovdqu ymm2, [{from} + 64]",
        "vmovdqu ymm3, [{from} + 96]",
        "vmovdqu ymm4, [{from} + 128]",
        "vmovdqu ymm5, [{from} + 160]",
        "vmovdqu ymm6, [{from} + 192]",
        "vmovdqu ymm7, [{from} + 224]",
        "vmovntdq [{to}], ymm0",
        "vmovntdq [{to} + 32], ymm1",
        "vmovntdq [{to} + 64], ymm2",
        "vmovntdq [{to} + 96], ymm3",
        "vmovntdq [{to} + 128], ymm4",
        "vmovntdq [{to} + 160], ymm5",
        "vmovntdq [{to} + 192], ymm6",
        "vmovntdq [{to} + 224], ymm7",
    ],
    ["vmovdqu ymm0, [{from}]", "vmovdqu ymm1, [{from} + 32]", "vmovntdq [{to}], ymm0", "vmovntdq [{to} + 32], ymm1"],
    "vzeroupper"
);

copy_loop!(
    sse2,
    [
        "movdqu xmm0, [{from}]",
        "movdqu xmm1, [{from} + 16]",
        "movdqu xmm2, [{from} + 32]",
        "movdqu xmm3, [{from} + 48]",
        "movdqu xmm4, [{from} + 64]",
        "movdqu xmm5, [{from} + 80]",
        "movdqu xmm6, [{from} + 96]",
        "movdqu xmm7, [{from} + 112]",
        "movdqu xmm8, [{from} + 128]",
        "movdqu xmm9, [{from} + 144]",
        "movdqu xmm10, [{from} + 160]",
        "movdqu xmm11, [{from} + 176]",
        "movdqu xmm12, [{from} + 192]",
        "movdqu xmm13, [{from} + 208]",
        "movdqu xmm14, [{from} + 224]",
        "movdqu xmm15, [{from} + 240]",
        "movntdq [{to}], xmm0",
        "movntdq [{to} + 16], xmm1",
        "movntdq [{to} + 32], xmm2",
        "movntdq [{to} + 48], xmm3",
        "movntdq [{to} + 64], xmm4",
        "movntdq [{to} + 80], xmm5",
        "movntdq [{to} + 96], xmm6",
        "movntdq [{to} + 112], xmm7",
        "movntdq [{to} + 128], xmm8",
        "movntdq [{to} + 144], xmm9",
        "movntdq [{to} + 160], xmm10",
        "movntdq [{to} + 176], xmm11",
        "movntdq [{to} + 192], xmm12",
        "movntdq [{to} + 208], xmm13",
        "movntdq [{to} + 224], xmm14",
        "movntdq [{to} + 240], xmm15",
    ],
    [
        "movdqu xmm0, [{from}]",
        "movdqu xmm1, [{from} + 16]",
        "movdqu xmm2, [{from} + 32]",
        "movdqu xmm3, [{from} + 48]",
        "movntdq [{to}], xmm0",
        "movntdq [{to} + 16], xmm1",
        "movntdq [{to} + 32], xmm2",
        "movntdq [{to} + 48], xmm3",
    ],
    ""
);
