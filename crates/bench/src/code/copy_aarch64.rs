//! 64-bit Arm: a copy by stores that say that lines are not soon needed again.

use std::arch::asm;

/// Copies whole lines past the cache, as far as the CPU takes the hint; what waits for them is the caller's business.
///
/// # Safety
/// `from` is readable and `to` writable for `lines` lines, they do not overlap, and `to` is a multiple of 64.
#[inline(never)]
pub unsafe fn copy_past_cache(to: *mut u8, from: *const u8, lines: usize) {
    // SAFETY: each turn reads and writes one line of the caller's.
    unsafe {
        asm!(
            "cbz {left}, 3f",
            ".p2align 5",
            "2:",
            "ldp q0, q1, [{from}]",
            "ldp q2, q3, [{from}, #32]",
            "stnp q0, q1, [{to}]",
            "stnp q2, q3, [{to}, #32]",
            "add {from}, {from}, #64",
            "add {to}, {to}, #64",
            "sub {left}, {left}, #1",
            "cbnz {left}, 2b",
            "3:",
            left = inout(reg) lines => _,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _,
            options(nostack, preserves_flags),
        )
    }
}

/// Waits until what was stored has left.
#[inline]
pub fn fence() {
    super::wait();
}
