//! x86-64: loops over blocks of whole lines.

use std::arch::{asm, is_x86_feature_detected};

use super::arch::vector_asm;
use super::places::{Begin, with_blocks};
use super::{Access, Blocks, Fence, Line, SOURCE, Width, unavailable};

/// Runs over blocks, and after each what waits. The address of the next block comes from a list, or is computed beside the
/// accesses, which costs nothing where memory is waited for. When all blocks of the order were visited, it begins again from
/// what {data} begins with. Bodies may use {at}, the address of the block, {left}, rdi, rsi and r8; rcx, if they give it back.
/// What is stored or summed up is in {line}.
macro_rules! for_each_block {
    ($next:expr, $from:expr, $data:expr, $lines:ident, $line:ident, $begin:literal, $end:literal,
     $wait:literal, $body:expr) => {{
        let Begin { next, count, more, jump } = $from;
        vector_asm!(
            $begin,
            "test {count}, {count}",
            "jz 9f",
            "2:",
            $next,
            $body,
            $wait,
            "dec {count}",
            "jnz 2b",
            // The next lap, as far as there is more to do.
            "test {more}, {more}",
            "jz 9f",
            "mov {next}, [{data}]",
            "mov {count}, [{data} + 8]",
            "cmp {count}, {more}",
            "cmova {count}, {more}",
            "sub {more}, {count}",
            "jmp 2b",
            "9:",
            $end,
            next = inout(reg) next => _,
            count = inout(reg) count => _,
            more = inout(reg) more => _,
            data = in(reg) $data,
            lines = in(reg) $lines,
            line = in(reg) $line,
            at = out(reg) _,
            left = out(reg) _,
            inout("rcx") jump => _,
            out("rsi") _, out("rdi") _, out("r8") _,
        )
    }};
}

/// The lines of a block: groups of eight while there are so many, then single ones. `$one` visits the line at an offset, and
/// may sum up in registers of two numbers, others for a line than for the next; `$back` writes it back.
macro_rules! each_line {
    ($one:ident, $back:ident) => {
        concat!(
            "mov {left}, {lines}\n",
            "sub {left}, 8\n",
            "jb 4f\n",
            ".p2align 5\n",
            "3:\n",
            $one!("0", "0", "1"),
            $back!("0"),
            $one!("64", "2", "3"),
            $back!("64"),
            $one!("128", "0", "1"),
            $back!("128"),
            $one!("192", "2", "3"),
            $back!("192"),
            $one!("256", "0", "1"),
            $back!("256"),
            $one!("320", "2", "3"),
            $back!("320"),
            $one!("384", "0", "1"),
            $back!("384"),
            $one!("448", "2", "3"),
            $back!("448"),
            "add {at}, 512\n",
            "sub {left}, 8\n",
            "jae 3b\n",
            "4:\n",
            "add {left}, 8\n",
            "jz 6f\n",
            "5:\n",
            $one!("0", "0", "1"),
            $back!("0"),
            "add {at}, 64\n",
            "dec {left}\n",
            "jnz 5b\n",
            "6:",
        )
    };
}

/// A whole block as a string, in pieces that are as long as the source.
macro_rules! copied {
    () => {
        concat!(
            "mov r8, rcx\n",
            "mov rdi, {at}\n",
            "mov {left}, {lines}\n",
            "shl {left}, 3\n",
            "jz 6f\n",
            "3:\n",
            "mov ecx, 512\n",
            "cmp {left}, rcx\n",
            "cmovb rcx, {left}\n",
            "sub {left}, rcx\n",
            "mov rsi, {line}\n",
            "rep movsq\n",
            "test {left}, {left}\n",
            "jnz 3b\n",
            "6:\n",
            "mov rcx, r8",
        )
    };
}
const _: () = assert!(size_of_val(&SOURCE) == 512 * 8);

macro_rules! load64 {
    ($at:literal, $sum:literal, $_:literal) => {
        concat!("vpaddq zmm", $sum, ", zmm", $sum, ", [{at} + ", $at, "]\n")
    };
}
macro_rules! load32 {
    ($at:literal, $low:literal, $high:literal) => {
        concat!(
            "vpaddq ymm",
            $low,
            ", ymm",
            $low,
            ", [{at} + ",
            $at,
            "]\n",
            "vpaddq ymm",
            $high,
            ", ymm",
            $high,
            ", [{at} + ",
            $at,
            " + 32]\n"
        )
    };
}
macro_rules! load16 {
    ($at:literal, $_low:literal, $_high:literal) => {
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
            " + 48]\n",
        )
    };
}
macro_rules! store64 {
    ($at:literal, $_low:literal, $_high:literal) => {
        concat!("vmovdqa64 [{at} + ", $at, "], zmm0\n")
    };
}
macro_rules! store32 {
    ($at:literal, $_low:literal, $_high:literal) => {
        concat!("vmovdqa [{at} + ", $at, "], ymm0\n", "vmovdqa [{at} + ", $at, " + 32], ymm0\n")
    };
}
macro_rules! store16 {
    ($at:literal, $_low:literal, $_high:literal) => {
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
            " + 48], xmm0\n",
        )
    };
}
macro_rules! non_temporal64 {
    ($at:literal, $_low:literal, $_high:literal) => {
        concat!("vmovntdq [{at} + ", $at, "], zmm0\n")
    };
}
macro_rules! non_temporal32 {
    ($at:literal, $_low:literal, $_high:literal) => {
        concat!("vmovntdq [{at} + ", $at, "], ymm0\n", "vmovntdq [{at} + ", $at, " + 32], ymm0\n")
    };
}
macro_rules! non_temporal16 {
    ($at:literal, $_low:literal, $_high:literal) => {
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
            " + 48], xmm0\n",
        )
    };
}
macro_rules! movnti {
    ($at:literal, $_low:literal, $_high:literal) => {
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
            " + 56], r8\n",
        )
    };
}
macro_rules! movdir64b {
    ($at:literal, $_low:literal, $_high:literal) => {
        concat!("lea rdi, [{at} + ", $at, "]\n", "movdir64b rdi, [{line}]\n")
    };
}

/// Nothing is written back.
macro_rules! kept {
    ($at:literal) => {
        ""
    };
}
macro_rules! clwb {
    ($at:literal) => {
        concat!("clwb [{at} + ", $at, "]\n")
    };
}
macro_rules! clflushopt {
    ($at:literal) => {
        concat!("clflushopt [{at} + ", $at, "]\n")
    };
}
macro_rules! clflush {
    ($at:literal) => {
        concat!("clflush [{at} + ", $at, "]\n")
    };
}

/// The next block of a list.
macro_rules! listed {
    () => {
        "mov {at}, [{next}]\nadd {next}, 8"
    };
}

/// The block of a `Shuffle`, after a jump; rcx has which.
macro_rules! shuffled {
    () => {
        concat!(
            "mov {at}, [{data} + 8*rcx + 48]\n",
            "add {at}, {next}\n",
            "mov {left}, {at}\n",
            "sub {left}, [{data} + 24]\n",
            "cmovae {at}, {left}\n",
            "add {at}, [{data} + 32]\n",
            "add {next}, [{data} + 16]\n",
            "mov {left}, {next}\n",
            "sub {left}, [{data} + 24]\n",
            "cmovae {next}, {left}\n",
            "inc ecx\n",
            "and ecx, [{data} + 40]",
        )
    };
}

/// The block at an address, and the one that a `Stride` has after it: past the end, that after the first of the row.
macro_rules! strided {
    () => {
        concat!(
            "mov {at}, {next}\n",
            "add {next}, [{data} + 16]\n",
            "cmp {next}, [{data} + 24]\n",
            "jb 7f\n",
            "sub {next}, [{data} + 32]\n",
            "cmp {next}, [{data} + 40]\n",
            "jb 8f\n",
            "sub {next}, [{data} + 16]\n",
            "8:\n",
            "add {next}, [{data} + 48]\n",
            "7:",
        )
    };
}

macro_rules! with_wait {
    ($fence:ident, $blocks:ident, $($loop:tt)*) => {
        match $fence {
            Fence::None => with_blocks!($blocks, "", $($loop)*),
            Fence::Sfence => with_blocks!($blocks, "sfence", $($loop)*),
            Fence::Mfence => with_blocks!($blocks, "mfence", $($loop)*),
            Fence::Dsb | Fence::Dmb => unavailable(),
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
    let line = if access == Access::Movsq { SOURCE.as_ptr().cast_mut() } else { &raw mut *line };
    macro_rules! run {
        ($begin:literal, $end:literal, $body:expr) => {
            // SAFETY: the caller's blocks, and 64 bytes at `line`, of a string 4 KiB, which are not written.
            unsafe { with_wait!(fence, blocks, lines, line, $begin, $end, $body) }
        };
    }
    macro_rules! store {
        ($width:ident, $store64:ident, $store32:ident, $store16:ident, $back:ident) => {
            match $width {
                Width::Bytes64 => run!("vmovdqa64 zmm0, [{line}]", "vzeroupper", each_line!($store64, $back)),
                Width::Bytes32 => run!("vmovdqa ymm0, [{line}]", "vzeroupper", each_line!($store32, $back)),
                Width::Bytes16 => run!("movdqa xmm0, [{line}]", "", each_line!($store16, $back)),
            }
        };
    }
    const { assert!(size_of::<Line>() == 64) };
    match (access, width) {
        (Access::Load, Width::Bytes64) => run!(
            "vmovdqa64 zmm0, [{line}]\nvpxor xmm2, xmm2, xmm2",
            "vpaddq zmm0, zmm0, zmm2\nvmovdqa64 [{line}], zmm0\nvzeroupper",
            each_line!(load64, kept)
        ),
        (Access::Load, Width::Bytes32) => run!(
            "vmovaps ymm0, [{line}]\nvmovaps ymm1, [{line} + 32]\nvpxor xmm2, xmm2, xmm2\nvpxor xmm3, xmm3, xmm3",
            "vpaddq ymm0, ymm0, ymm2\nvpaddq ymm1, ymm1, ymm3\nvmovaps [{line}], ymm0\nvmovaps [{line} + 32], ymm1\nvzeroupper",
            each_line!(load32, kept)
        ),
        (Access::Load, Width::Bytes16) => run!(
            "movaps xmm0, [{line}]\nmovaps xmm1, [{line} + 16]\nmovaps xmm2, [{line} + 32]\nmovaps xmm3, [{line} + 48]",
            "movaps [{line}], xmm0\nmovaps [{line} + 16], xmm1\nmovaps [{line} + 32], xmm2\nmovaps [{line} + 48], xmm3",
            each_line!(load16, kept)
        ),
        (Access::Store, width) => store!(width, store64, store32, store16, kept),
        (Access::Clwb, width) => store!(width, store64, store32, store16, clwb),
        (Access::Clflushopt, width) => store!(width, store64, store32, store16, clflushopt),
        (Access::Clflush, width) => store!(width, store64, store32, store16, clflush),
        (Access::NonTemporal, width) => store!(width, non_temporal64, non_temporal32, non_temporal16, kept),
        (Access::Movnti, _) => run!("mov r8, [{line}]", "", each_line!(movnti, kept)),
        (Access::Movdir64b, _) => run!("", "", each_line!(movdir64b, kept)),
        (Access::Movsq, _) => run!("", "", copied!()),
        (Access::CleanPoC | Access::CleanPoP | Access::CleanPoDP, _) => unavailable(),
    }
}

/// Whether this CPU has the instructions, but for a write-back.
pub(super) fn has_blocks(access: Access, width: Width) -> bool {
    match (access, width) {
        (Access::Movdir64b, _) => super::arch::has_store(super::Store::Movdir64b),
        (Access::Movnti | Access::Movsq, _) => true,
        (_, Width::Bytes64) => is_x86_feature_detected!("avx512f"),
        // Words are added by AVX2.
        (Access::Load, Width::Bytes32) => is_x86_feature_detected!("avx2"),
        (_, Width::Bytes32) => is_x86_feature_detected!("avx"),
        (_, Width::Bytes16) => true,
    }
}
