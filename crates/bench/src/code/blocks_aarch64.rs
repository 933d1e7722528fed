//! 64-bit Arm: loops over blocks of whole lines.

use std::arch::asm;

use super::{Access, Blocks, Fence, Flush, Line, Width, unavailable};

/// Runs over blocks: groups of eight lines while there are so many, then single lines, then what waits. The address of the
/// next block comes from a list, or is computed beside the accesses from the number of the block, which costs nothing where
/// memory is waited for. Bodies may use {at}, the address of a line, x8 and x9; what is stored or summed up is in {line}.
macro_rules! for_each_block {
    ($next:expr, $first:expr, $count:expr, $data:expr, $lines:ident, $line:ident, $begin:literal, $end:literal,
     $wait:literal, $one:ident, $back:ident) => {
        asm!(
            $begin,
            "cbz {count}, 9f",
            "2:",
            $next,
            "subs {left}, {lines}, #8",
            "b.lo 4f",
            ".p2align 5",
            "3:",
            $one!("0"),
            $back!("0"),
            $one!("64"),
            $back!("64"),
            $one!("128"),
            $back!("128"),
            $one!("192"),
            $back!("192"),
            $one!("256"),
            $back!("256"),
            $one!("320"),
            $back!("320"),
            $one!("384"),
            $back!("384"),
            $one!("448"),
            $back!("448"),
            "add {at}, {at}, #512",
            "subs {left}, {left}, #8",
            "b.hs 3b",
            "4:",
            "adds {left}, {left}, #8",
            "b.eq 6f",
            "5:",
            $one!("0"),
            $back!("0"),
            "add {at}, {at}, #64",
            "subs {left}, {left}, #1",
            "b.ne 5b",
            "6:",
            $wait,
            "subs {count}, {count}, #1",
            "b.ne 2b",
            "9:",
            $end,
            next = inout(reg) $first => _,
            count = inout(reg) $count => _,
            data = in(reg) $data,
            lines = in(reg) $lines,
            line = in(reg) $line,
            at = out(reg) _,
            left = out(reg) _,
            out("x8") _, out("x9") _,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v7") _,
            options(nostack),
        )
    };
}

/// Adds what was loaded to v4 to v7.
macro_rules! summed {
    () => {
        concat!(
            "add v0.2d, v0.2d, v4.2d\n",
            "add v1.2d, v1.2d, v5.2d\n",
            "add v2.2d, v2.2d, v6.2d\n",
            "add v3.2d, v3.2d, v7.2d",
        )
    };
}
macro_rules! load32 {
    ($at:literal) => {
        concat!("ldp q4, q5, [{at}, #", $at, "]\n", "ldp q6, q7, [{at}, #", $at, " + 32]\n", summed!())
    };
}
macro_rules! load16 {
    ($at:literal) => {
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
            summed!()
        )
    };
}
macro_rules! store32 {
    ($at:literal) => {
        concat!("stp q0, q1, [{at}, #", $at, "]\n", "stp q0, q1, [{at}, #", $at, " + 32]")
    };
}
macro_rules! store16 {
    ($at:literal) => {
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
            " + 48]",
        )
    };
}
macro_rules! non_temporal32 {
    ($at:literal) => {
        concat!("stnp q0, q1, [{at}, #", $at, "]\n", "stnp q0, q1, [{at}, #", $at, " + 32]")
    };
}
macro_rules! non_temporal16 {
    ($at:literal) => {
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
            " + 48]",
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
        concat!("add x9, {at}, #", $at, "\n", "dc cvac, x9")
    };
}
macro_rules! cvap {
    ($at:literal) => {
        concat!("add x9, {at}, #", $at, "\n", "sys #3, c7, c12, #1, x9")
    };
}
macro_rules! cvadp {
    ($at:literal) => {
        concat!("add x9, {at}, #", $at, "\n", "sys #3, c7, c13, #1, x9")
    };
}

/// The next block of a list.
macro_rules! listed {
    () => {
        "ldr {at}, [{next}], #8 /* and no {data} */"
    };
}

/// The block of a number: [`Scatter::place`](super::Scatter::place).
macro_rules! scattered {
    () => {
        concat!(
            "ldp {at}, x9, [{data}]\n",
            "mul {at}, {at}, {next}\n",
            "and {at}, {at}, x9\n",
            "ldr {left}, [{data}, #16]\n",
            "lsr {left}, {at}, {left}\n",
            "eor {at}, {at}, {left}\n",
            "ldr {left}, [{data}, #24]\n",
            "mul {at}, {at}, {left}\n",
            "and {at}, {at}, x9\n",
            "ldp {left}, x9, [{data}, #32]\n",
            "madd {at}, {at}, {left}, x9\n",
            "add {next}, {next}, #1",
        )
    };
}

macro_rules! with_wait {
    ($blocks:ident, $fence:ident, $lines:ident, $line:ident, $begin:literal, $end:literal, $one:ident, $back:ident) => {
        match $fence {
            Fence::None => with_blocks!($blocks, $lines, $line, $begin, $end, "", $one, $back),
            Fence::Dsb => with_blocks!($blocks, $lines, $line, $begin, $end, "dsb sy", $one, $back),
            Fence::Dmb => with_blocks!($blocks, $lines, $line, $begin, $end, "dmb sy", $one, $back),
            Fence::Sfence | Fence::Mfence => unavailable(),
        }
    };
}

macro_rules! with_blocks {
    ($blocks:ident, $lines:ident, $line:ident, $begin:literal, $end:literal, $wait:literal, $one:ident, $back:ident) => {
        match $blocks {
            Blocks::List(list) => for_each_block!(
                listed!(),
                list.as_ptr(),
                list.len(),
                0u64,
                $lines,
                $line,
                $begin,
                $end,
                $wait,
                $one,
                $back
            ),
            Blocks::Scattered(s, n) => for_each_block!(
                scattered!(),
                n.start,
                n.end - n.start,
                s,
                $lines,
                $line,
                $begin,
                $end,
                $wait,
                $one,
                $back
            ),
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
        ($begin:literal, $end:literal, $one:ident, $back:ident) => {
            // SAFETY: the caller's blocks, and 64 bytes at `line`.
            unsafe { with_wait!(blocks, fence, lines, line, $begin, $end, $one, $back) }
        };
    }
    macro_rules! load {
        ($one:ident) => {
            run!(
                "ldp q0, q1, [{line}]\nldp q2, q3, [{line}, #32]",
                "stp q0, q1, [{line}]\nstp q2, q3, [{line}, #32]",
                $one,
                kept
            )
        };
    }
    macro_rules! store {
        ($one:ident, $back:ident) => {
            run!("ldp q0, q1, [{line}]\nldr x8, [{line}]", "", $one, $back)
        };
    }
    const { assert!(size_of::<Line>() == 64) };
    match (access, width) {
        (Access::Load, Width::Bytes32) => load!(load32),
        (Access::Load, Width::Bytes16) => load!(load16),
        (Access::Store, Width::Bytes32) => store!(store32, kept),
        (Access::Store, Width::Bytes16) => store!(store16, kept),
        (Access::CleanPoC, Width::Bytes32) => store!(store32, cvac),
        (Access::CleanPoC, Width::Bytes16) => store!(store16, cvac),
        (Access::CleanPoP, Width::Bytes32) => store!(store32, cvap),
        (Access::CleanPoP, Width::Bytes16) => store!(store16, cvap),
        (Access::CleanPoDP, Width::Bytes32) => store!(store32, cvadp),
        (Access::CleanPoDP, Width::Bytes16) => store!(store16, cvadp),
        (Access::NonTemporal, Width::Bytes32) => store!(non_temporal32, kept),
        (Access::NonTemporal, Width::Bytes16) => store!(non_temporal16, kept),
        (_, Width::Bytes64) => unavailable(),
        (Access::Clflush | Access::Clflushopt | Access::Clwb, _) => unavailable(),
        (Access::Movnti | Access::Movdir64b | Access::Movsq, _) => unavailable(),
    }
}

/// Whether this CPU has the instructions.
pub(super) fn has_blocks(access: Access, width: Width) -> bool {
    let has_access = match access {
        Access::Load | Access::Store | Access::NonTemporal => true,
        Access::CleanPoC => super::arch::has_flush(Flush::CleanPoC),
        Access::CleanPoP => super::arch::has_flush(Flush::CleanPoP),
        Access::CleanPoDP => super::arch::has_flush(Flush::CleanPoDP),
        Access::Clflush | Access::Clflushopt | Access::Clwb => false,
        Access::Movnti | Access::Movdir64b | Access::Movsq => false,
    };
    has_access && width != Width::Bytes64
}
