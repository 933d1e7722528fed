//! x86-64: loops over blocks of whole lines.

use std::arch::{asm, is_x86_feature_detected};

use super::{Access, Blocks, Fence, Line, Width, unavailable};

/// Runs over blocks: groups of eight lines while there are so many, then single lines, then what waits. The address of the
/// next block comes from a list, or is computed beside the accesses from the number of the block, which costs nothing where
/// memory is waited for. Bodies may use {at}, the address of a line, rdi, rsi and rcx; what is stored or summed up is in
/// {line}.
macro_rules! for_each_block {
    ($next:expr, $first:expr, $count:expr, $data:expr, $lines:ident, $line:ident, $begin:literal, $end:literal,
     $wait:literal, $one:ident) => {
        asm!(
            $begin,
            "test {count}, {count}",
            "jz 9f",
            "2:",
            $next,
            "mov {left}, {lines}",
            "sub {left}, 8",
            "jb 4f",
            ".p2align 5",
            "3:",
            $one!("0"),
            $one!("64"),
            $one!("128"),
            $one!("192"),
            $one!("256"),
            $one!("320"),
            $one!("384"),
            $one!("448"),
            "add {at}, 512",
            "sub {left}, 8",
            "jae 3b",
            "4:",
            "add {left}, 8",
            "jz 6f",
            "5:",
            $one!("0"),
            "add {at}, 64",
            "dec {left}",
            "jnz 5b",
            "6:",
            $wait,
            "dec {count}",
            "jnz 2b",
            "9:",
            $end,
            next = inout(reg) $first => _,
            count = inout(reg) $count => _,
            data = in(reg) $data,
            lines = in(reg) $lines,
            line = in(reg) $line,
            at = out(reg) _,
            left = out(reg) _,
            out("rcx") _, out("rsi") _, out("rdi") _, out("r8") _,
            // VZEROUPPER clears the upper half of each of them.
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack),
        )
    };
}

macro_rules! load64 {
    ($at:literal) => {
        concat!("vpaddq zmm0, zmm0, [{at} + ", $at, "]")
    };
}
macro_rules! load32 {
    ($at:literal) => {
        concat!("vpaddq ymm0, ymm0, [{at} + ", $at, "]\n", "vpaddq ymm1, ymm1, [{at} + ", $at, " + 32]")
    };
}
macro_rules! load16 {
    ($at:literal) => {
        concat!(
            "paddq xmm0, [{at} + ",
            $at,
            "]\n",
            "paddq xmm1, [{at} + ",
            $at,
            " + 16]\n",
            "paddq xmm2, [{at} + ",
            $at,
            " + 32]\n",
            "paddq xmm3, [{at} + ",
            $at,
            " + 48]",
        )
    };
}
macro_rules! store64 {
    ($at:literal) => {
        concat!("vmovdqa64 [{at} + ", $at, "], zmm0")
    };
}
macro_rules! store32 {
    ($at:literal) => {
        concat!("vmovdqa [{at} + ", $at, "], ymm0\n", "vmovdqa [{at} + ", $at, " + 32], ymm0")
    };
}
macro_rules! store16 {
    ($at:literal) => {
        concat!(
            "movdqa [{at} + ",
            $at,
            "], xmm0\n",
            "movdqa [{at} + ",
            $at,
            " + 16], xmm0\n",
            "movdqa [{at} + ",
            $at,
            " + 32], xmm0\n",
            "movdqa [{at} + ",
            $at,
            " + 48], xmm0",
        )
    };
}
macro_rules! non_temporal64 {
    ($at:literal) => {
        concat!("vmovntdq [{at} + ", $at, "], zmm0")
    };
}
macro_rules! non_temporal32 {
    ($at:literal) => {
        concat!("vmovntdq [{at} + ", $at, "], ymm0\n", "vmovntdq [{at} + ", $at, " + 32], ymm0")
    };
}
macro_rules! non_temporal16 {
    ($at:literal) => {
        concat!(
            "movntdq [{at} + ",
            $at,
            "], xmm0\n",
            "movntdq [{at} + ",
            $at,
            " + 16], xmm0\n",
            "movntdq [{at} + ",
            $at,
            " + 32], xmm0\n",
            "movntdq [{at} + ",
            $at,
            " + 48], xmm0",
        )
    };
}
macro_rules! clwb64 {
    ($at:literal) => {
        concat!(store64!($at), "\n", "clwb [{at} + ", $at, "]")
    };
}
macro_rules! clwb32 {
    ($at:literal) => {
        concat!(store32!($at), "\n", "clwb [{at} + ", $at, "]")
    };
}
macro_rules! clwb16 {
    ($at:literal) => {
        concat!(store16!($at), "\n", "clwb [{at} + ", $at, "]")
    };
}
macro_rules! clflushopt64 {
    ($at:literal) => {
        concat!(store64!($at), "\n", "clflushopt [{at} + ", $at, "]")
    };
}
macro_rules! clflushopt32 {
    ($at:literal) => {
        concat!(store32!($at), "\n", "clflushopt [{at} + ", $at, "]")
    };
}
macro_rules! clflushopt16 {
    ($at:literal) => {
        concat!(store16!($at), "\n", "clflushopt [{at} + ", $at, "]")
    };
}
macro_rules! clflush64 {
    ($at:literal) => {
        concat!(store64!($at), "\n", "clflush [{at} + ", $at, "]")
    };
}
macro_rules! clflush32 {
    ($at:literal) => {
        concat!(store32!($at), "\n", "clflush [{at} + ", $at, "]")
    };
}
macro_rules! clflush16 {
    ($at:literal) => {
        concat!(store16!($at), "\n", "clflush [{at} + ", $at, "]")
    };
}
macro_rules! movnti {
    ($at:literal) => {
        concat!(
            "movnti [{at} + ",
            $at,
            "], r8\n",
            "movnti [{at} + ",
            $at,
            " + 8], r8\n",
            "movnti [{at} + ",
            $at,
            " + 16], r8\n",
            "movnti [{at} + ",
            $at,
            " + 24], r8\n",
            "movnti [{at} + ",
            $at,
            " + 32], r8\n",
            "movnti [{at} + ",
            $at,
            " + 40], r8\n",
            "movnti [{at} + ",
            $at,
            " + 48], r8\n",
            "movnti [{at} + ",
            $at,
            " + 56], r8",
        )
    };
}
macro_rules! movdir64b {
    ($at:literal) => {
        concat!("lea rdi, [{at} + ", $at, "]\n", "movdir64b rdi, [{line}]")
    };
}
macro_rules! movsq {
    ($at:literal) => {
        concat!("lea rdi, [{at} + ", $at, "]\n", "mov rsi, {line}\n", "mov ecx, 8\n", "rep movsq")
    };
}

/// The next block of a list.
macro_rules! listed {
    () => {
        "mov {at}, [{next}]\nadd {next}, 8 /* and no {data} */"
    };
}

/// The block of a number, as `Scatter::place` has it.
macro_rules! scattered {
    () => {
        concat!(
            "mov {at}, {next}\n",
            "imul {at}, [{data}]\n",
            "and {at}, [{data} + 8]\n",
            "mov {left}, {at}\n",
            "mov rcx, [{data} + 16]\n",
            "shr {left}, cl\n",
            "xor {at}, {left}\n",
            "imul {at}, [{data} + 24]\n",
            "and {at}, [{data} + 8]\n",
            "imul {at}, [{data} + 32]\n",
            "add {at}, [{data} + 40]\n",
            "inc {next}",
        )
    };
}

macro_rules! with_wait {
    ($blocks:ident, $fence:ident, $lines:ident, $line:ident, $begin:literal, $end:literal, $one:ident) => {
        match ($blocks, $fence) {
            (Blocks::List(list), Fence::None) => {
                for_each_block!(listed!(), list.as_ptr(), list.len(), 0u64, $lines, $line, $begin, $end, "", $one)
            }
            (Blocks::List(list), Fence::Sfence) => {
                for_each_block!(listed!(), list.as_ptr(), list.len(), 0u64, $lines, $line, $begin, $end, "sfence", $one)
            }
            (Blocks::List(list), Fence::Mfence) => {
                for_each_block!(listed!(), list.as_ptr(), list.len(), 0u64, $lines, $line, $begin, $end, "mfence", $one)
            }
            (Blocks::Scattered(s, n), Fence::None) => {
                for_each_block!(scattered!(), n.start, n.end - n.start, s, $lines, $line, $begin, $end, "", $one)
            }
            (Blocks::Scattered(s, n), Fence::Sfence) => {
                for_each_block!(scattered!(), n.start, n.end - n.start, s, $lines, $line, $begin, $end, "sfence", $one)
            }
            (Blocks::Scattered(s, n), Fence::Mfence) => {
                for_each_block!(scattered!(), n.start, n.end - n.start, s, $lines, $line, $begin, $end, "mfence", $one)
            }
            (_, Fence::Dsb | Fence::Dmb) => unavailable(),
        }
    };
}

/// Goes over each block; the words of each line that is loaded are added to those of `line`.
///
/// # Safety
/// Each address is a multiple of 64, readable and, unless `access` loads, writable for `lines` lines; the CPU has the
/// instructions.
#[inline(never)]
pub unsafe fn blocks(access: Access, width: Width, fence: Fence, blocks: Blocks<'_>, lines: usize, line: &mut Line) {
    let line = &raw mut *line;
    macro_rules! run {
        ($begin:literal, $end:literal, $one:ident) => {
            // SAFETY: the caller's blocks, and 64 bytes at `line`.
            unsafe { with_wait!(blocks, fence, lines, line, $begin, $end, $one) }
        };
    }
    const { assert!(size_of::<Line>() == 64) };
    match (access, width) {
        (Access::Load, Width::Bytes64) => {
            run!("vmovdqa64 zmm0, [{line}]", "vmovdqa64 [{line}], zmm0\nvzeroupper", load64)
        }
        (Access::Load, Width::Bytes32) => run!(
            "vmovaps ymm0, [{line}]\nvmovaps ymm1, [{line} + 32]",
            "vmovaps [{line}], ymm0\nvmovaps [{line} + 32], ymm1\nvzeroupper",
            load32
        ),
        (Access::Load, Width::Bytes16) => run!(
            "movaps xmm0, [{line}]\nmovaps xmm1, [{line} + 16]\nmovaps xmm2, [{line} + 32]\nmovaps xmm3, [{line} + 48]",
            "movaps [{line}], xmm0\nmovaps [{line} + 16], xmm1\nmovaps [{line} + 32], xmm2\nmovaps [{line} + 48], xmm3",
            load16
        ),
        (Access::Store, Width::Bytes64) => run!("vmovdqa64 zmm0, [{line}]", "vzeroupper", store64),
        (Access::Store, Width::Bytes32) => run!("vmovdqa ymm0, [{line}]", "vzeroupper", store32),
        (Access::Store, Width::Bytes16) => run!("movdqa xmm0, [{line}]", "", store16),
        (Access::Clwb, Width::Bytes64) => run!("vmovdqa64 zmm0, [{line}]", "vzeroupper", clwb64),
        (Access::Clwb, Width::Bytes32) => run!("vmovdqa ymm0, [{line}]", "vzeroupper", clwb32),
        (Access::Clwb, Width::Bytes16) => run!("movdqa xmm0, [{line}]", "", clwb16),
        (Access::Clflushopt, Width::Bytes64) => run!("vmovdqa64 zmm0, [{line}]", "vzeroupper", clflushopt64),
        (Access::Clflushopt, Width::Bytes32) => run!("vmovdqa ymm0, [{line}]", "vzeroupper", clflushopt32),
        (Access::Clflushopt, Width::Bytes16) => run!("movdqa xmm0, [{line}]", "", clflushopt16),
        (Access::Clflush, Width::Bytes64) => run!("vmovdqa64 zmm0, [{line}]", "vzeroupper", clflush64),
        (Access::Clflush, Width::Bytes32) => run!("vmovdqa ymm0, [{line}]", "vzeroupper", clflush32),
        (Access::Clflush, Width::Bytes16) => run!("movdqa xmm0, [{line}]", "", clflush16),
        (Access::NonTemporal, Width::Bytes64) => run!("vmovdqa64 zmm0, [{line}]", "vzeroupper", non_temporal64),
        (Access::NonTemporal, Width::Bytes32) => run!("vmovdqa ymm0, [{line}]", "vzeroupper", non_temporal32),
        (Access::NonTemporal, Width::Bytes16) => run!("movdqa xmm0, [{line}]", "", non_temporal16),
        (Access::Movnti, _) => run!("mov r8, [{line}]", "", movnti),
        (Access::Movdir64b, _) => run!("", "", movdir64b),
        (Access::Movsq, _) => run!("", "", movsq),
        (Access::CleanPoC | Access::CleanPoP | Access::CleanPoDP, _) => unavailable(),
    }
}

/// Whether this CPU has the instructions.
pub(super) fn has_blocks(access: Access, width: Width) -> bool {
    let has_width = match width {
        Width::Bytes64 => is_x86_feature_detected!("avx512f"),
        // Words are added by AVX2.
        Width::Bytes32 if access == Access::Load => is_x86_feature_detected!("avx2"),
        Width::Bytes32 => is_x86_feature_detected!("avx"),
        Width::Bytes16 => true,
    };
    match access {
        Access::Clflushopt => has_width && super::arch::has_flush(super::Flush::Clflushopt),
        Access::Clwb => has_width && super::arch::has_flush(super::Flush::Clwb),
        Access::Movdir64b => super::arch::has_store(super::Store::Movdir64b),
        Access::Movnti | Access::Movsq => true,
        Access::CleanPoC | Access::CleanPoP | Access::CleanPoDP => false,
        _ => has_width,
    }
}
