//! 64-bit Arm: loops over blocks of whole lines.

use std::arch::asm;

use super::places::{Begin, with_blocks};
use super::{Access, Blocks, Fence, Line, Width, unavailable};

/// Runs over blocks, and after each what waits. The address of the next block comes from a list, or is computed beside the
/// accesses, which costs nothing where memory is waited for. When all blocks of the order were visited, it begins again from
/// what {data} begins with. Bodies may use {at}, the address of the block, {left} and x8 to x10; what is stored or summed up is
/// in {line}.
macro_rules! for_each_block {
    ($next:expr, $from:expr, $data:expr, $lines:ident, $line:ident, $begin:literal, $end:literal, $wait:literal,
     $body:expr) => {{
        let Begin { next, count, more, jump } = $from;
        asm!(
            $begin,
            "cbz {count}, 9f",
            "2:",
            $next,
            $body,
            $wait,
            "subs {count}, {count}, #1",
            "b.ne 2b",
            // The next lap, as far as there is more to do.
            "cbz {more}, 9f",
            "ldp {next}, {count}, [{data}]",
            "cmp {count}, {more}",
            "csel {count}, {count}, {more}, lo",
            "sub {more}, {more}, {count}",
            "b 2b",
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
            inout("x11") jump => _,
            out("x8") _, out("x9") _, out("x10") _,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v7") _,
            out("v16") _, out("v17") _, out("v18") _, out("v19") _,
            options(nostack),
        )
    }};
}

/// The lines of a block: groups of eight while there are so many, then single ones. `$one` visits the line at an offset, and
/// may sum up in registers of four numbers, others for a line than for the next; `$back` writes it back.
macro_rules! each_line {
    ($one:ident, $back:ident) => {
        concat!(
            "subs {left}, {lines}, #8\n",
            "b.lo 4f\n",
            ".p2align 5\n",
            "3:\n",
            $one!("0", "0", "1", "2", "3"),
            $back!("0"),
            $one!("64", "16", "17", "18", "19"),
            $back!("64"),
            $one!("128", "0", "1", "2", "3"),
            $back!("128"),
            $one!("192", "16", "17", "18", "19"),
            $back!("192"),
            $one!("256", "0", "1", "2", "3"),
            $back!("256"),
            $one!("320", "16", "17", "18", "19"),
            $back!("320"),
            $one!("384", "0", "1", "2", "3"),
            $back!("384"),
            $one!("448", "16", "17", "18", "19"),
            $back!("448"),
            "add {at}, {at}, #512\n",
            "subs {left}, {left}, #8\n",
            "b.hs 3b\n",
            "4:\n",
            "adds {left}, {left}, #8\n",
            "b.eq 6f\n",
            "5:\n",
            $one!("0", "0", "1", "2", "3"),
            $back!("0"),
            "add {at}, {at}, #64\n",
            "subs {left}, {left}, #1\n",
            "b.ne 5b\n",
            "6:",
        )
    };
}

/// Adds what was loaded to v4 to v7.
macro_rules! summed {
    ($a:literal, $b:literal, $c:literal, $d:literal) => {
        concat!(
            "add v",
            $a,
            ".2d, v",
            $a,
            ".2d, v4.2d\n",
            "add v",
            $b,
            ".2d, v",
            $b,
            ".2d, v5.2d\n",
            "add v",
            $c,
            ".2d, v",
            $c,
            ".2d, v6.2d\n",
            "add v",
            $d,
            ".2d, v",
            $d,
            ".2d, v7.2d\n",
        )
    };
}
macro_rules! load32 {
    ($at:literal, $a:literal, $b:literal, $c:literal, $d:literal) => {
        concat!("ldp q4, q5, [{at}, #", $at, "]\n", "ldp q6, q7, [{at}, #", $at, " + 32]\n", summed!($a, $b, $c, $d))
    };
}
macro_rules! load16 {
    ($at:literal, $a:literal, $b:literal, $c:literal, $d:literal) => {
        concat!(
            "ldr q4, [{at}, #",
            $at,
            "]\n",
            "ldr q5, [{at}, #",
            $at,
            " + 16]\n",
            "ldr q6, [{at}, #",
            $at,
            " + 32]\n",
            "ldr q7, [{at}, #",
            $at,
            " + 48]\n",
            summed!($a, $b, $c, $d)
        )
    };
}
macro_rules! store32 {
    ($at:literal, $_a:literal, $_b:literal, $_c:literal, $_d:literal) => {
        concat!("stp q0, q1, [{at}, #", $at, "]\n", "stp q0, q1, [{at}, #", $at, " + 32]\n")
    };
}
macro_rules! store16 {
    ($at:literal, $_a:literal, $_b:literal, $_c:literal, $_d:literal) => {
        concat!(
            "str q0, [{at}, #",
            $at,
            "]\n",
            "str q0, [{at}, #",
            $at,
            " + 16]\n",
            "str q0, [{at}, #",
            $at,
            " + 32]\n",
            "str q0, [{at}, #",
            $at,
            " + 48]\n",
        )
    };
}
macro_rules! non_temporal32 {
    ($at:literal, $_a:literal, $_b:literal, $_c:literal, $_d:literal) => {
        concat!("stnp q0, q1, [{at}, #", $at, "]\n", "stnp q0, q1, [{at}, #", $at, " + 32]\n")
    };
}
macro_rules! non_temporal16 {
    ($at:literal, $_a:literal, $_b:literal, $_c:literal, $_d:literal) => {
        concat!(
            "stnp x8, x8, [{at}, #",
            $at,
            "]\n",
            "stnp x8, x8, [{at}, #",
            $at,
            " + 16]\n",
            "stnp x8, x8, [{at}, #",
            $at,
            " + 32]\n",
            "stnp x8, x8, [{at}, #",
            $at,
            " + 48]\n",
        )
    };
}

/// Nothing is written back.
macro_rules! kept {
    ($at:literal) => {
        ""
    };
}
macro_rules! cvac {
    ($at:literal) => {
        concat!("add x9, {at}, #", $at, "\n", "dc cvac, x9\n")
    };
}
macro_rules! cvap {
    ($at:literal) => {
        concat!("add x9, {at}, #", $at, "\n", "sys #3, c7, c12, #1, x9\n")
    };
}
macro_rules! cvadp {
    ($at:literal) => {
        concat!("add x9, {at}, #", $at, "\n", "sys #3, c7, c13, #1, x9\n")
    };
}

/// The next block of a list.
macro_rules! listed {
    () => {
        "ldr {at}, [{next}], #8"
    };
}

/// The block of a `Shuffle`, after a jump; x11 has which.
macro_rules! shuffled {
    () => {
        concat!(
            "add {at}, {data}, x11, lsl #3\n",
            "ldr {at}, [{at}, #48]\n",
            "add {at}, {at}, {next}\n",
            "ldp {left}, x9, [{data}, #16]\n",
            "add {next}, {next}, {left}\n",
            "subs {left}, {at}, x9\n",
            "csel {at}, {left}, {at}, hs\n",
            "subs {left}, {next}, x9\n",
            "csel {next}, {left}, {next}, hs\n",
            "ldp {left}, x9, [{data}, #32]\n",
            "add {at}, {at}, {left}\n",
            "add x11, x11, #1\n",
            "and x11, x11, x9",
        )
    };
}

/// The block at an address, and the one that a `Stride` has after it: past the end, that after the first of the row.
macro_rules! strided {
    () => {
        concat!(
            "mov {at}, {next}\n",
            "ldp {left}, x9, [{data}, #16]\n",
            "add {next}, {next}, {left}\n",
            "cmp {next}, x9\n",
            "b.lo 7f\n",
            "ldp x9, x10, [{data}, #32]\n",
            "sub {next}, {next}, x9\n",
            "cmp {next}, x10\n",
            "b.lo 8f\n",
            "sub {next}, {next}, {left}\n",
            "8:\n",
            "ldr {left}, [{data}, #48]\n",
            "add {next}, {next}, {left}\n",
            "7:",
        )
    };
}

macro_rules! with_wait {
    ($fence:ident, $blocks:ident, $($loop:tt)*) => {
        match $fence {
            Fence::None => with_blocks!($blocks, "", $($loop)*),
            Fence::Dsb => with_blocks!($blocks, "dsb sy", $($loop)*),
            Fence::Dmb => with_blocks!($blocks, "dmb sy", $($loop)*),
            Fence::Sfence | Fence::Mfence => unavailable(),
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
        ($begin:literal, $end:literal, $body:expr) => {
            // SAFETY: the caller's blocks, and 64 bytes at `line`.
            unsafe { with_wait!(fence, blocks, lines, line, $begin, $end, $body) }
        };
    }
    macro_rules! load {
        ($one:ident) => {
            run!(
                "ldp q0, q1, [{line}]\nldp q2, q3, [{line}, #32]\nmovi v16.2d, #0\nmovi v17.2d, #0\nmovi v18.2d, #0\nmovi v19.2d, #0",
                "add v0.2d, v0.2d, v16.2d\nadd v1.2d, v1.2d, v17.2d\nadd v2.2d, v2.2d, v18.2d\nadd v3.2d, v3.2d, v19.2d\nstp q0, q1, [{line}]\nstp q2, q3, [{line}, #32]",
                each_line!($one, kept)
            )
        };
    }
    macro_rules! store {
        ($width:ident, $store32:ident, $store16:ident, $back:ident) => {
            match $width {
                Width::Bytes32 => run!("ldp q0, q1, [{line}]\nldr x8, [{line}]", "", each_line!($store32, $back)),
                Width::Bytes16 => run!("ldp q0, q1, [{line}]\nldr x8, [{line}]", "", each_line!($store16, $back)),
                Width::Bytes64 => unavailable(),
            }
        };
    }
    const { assert!(size_of::<Line>() == 64) };
    match (access, width) {
        (Access::Load, Width::Bytes64) => unavailable(),
        (Access::Load, Width::Bytes32) => load!(load32),
        (Access::Load, Width::Bytes16) => load!(load16),
        (Access::Store, width) => store!(width, store32, store16, kept),
        (Access::CleanPoC, width) => store!(width, store32, store16, cvac),
        (Access::CleanPoP, width) => store!(width, store32, store16, cvap),
        (Access::CleanPoDP, width) => store!(width, store32, store16, cvadp),
        (Access::NonTemporal, width) => store!(width, non_temporal32, non_temporal16, kept),
        (Access::Clflush | Access::Clflushopt | Access::Clwb, _) => unavailable(),
        (Access::Movnti | Access::Movdir64b | Access::Movsq, _) => unavailable(),
    }
}

/// Whether this CPU has the instructions, but for a write-back.
pub(super) fn has_blocks(access: Access, width: Width) -> bool {
    let has_access = access.flush().is_some() || matches!(access, Access::Load | Access::Store | Access::NonTemporal);
    has_access && width != Width::Bytes64
}
