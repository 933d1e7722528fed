//! x86-64: a copy past the cache, by the widest vectors.

use std::arch::asm;

use super::arch::vector_asm;
use super::{Access, Width};

/// Copies whole lines past the cache; what waits for them is the caller's business.
///
/// # Safety
/// `from` is readable and `to` writable for `lines` lines, they do not overlap, and `to` is a multiple of 64.
#[inline(never)]
pub unsafe fn copy_past_cache(to: *mut u8, from: *const u8, lines: usize) {
    macro_rules! lines_of {
        ($end:literal, $($body:literal),*) => {
            // SAFETY: each turn reads and writes one line of the caller's.
            unsafe {
                vector_asm!(
                    "test {left}, {left}",
                    "jz 3f",
                    ".p2align 5",
                    "2:",
                    $($body,)*
                    "add {from}, 64",
                    "add {to}, 64",
                    "dec {left}",
                    "jnz 2b",
                    "3:",
                    $end,
                    left = inout(reg) lines => _,
                    from = inout(reg) from => _,
                    to = inout(reg) to => _,
                )
            }
        };
    }
    // The width is asked once for each block; the answer is cached by the standard library.
    if Access::Load.is_available(Width::Bytes64) {
        lines_of!("vzeroupper", "vmovdqu64 zmm0, [{from}]", "vmovntdq [{to}], zmm0")
    } else if Access::Load.is_available(Width::Bytes32) {
        lines_of!(
            "vzeroupper",
            "vmovdqu ymm0, [{from}]",
            "vmovdqu ymm1, [{from} + 32]",
            "vmovntdq [{to}], ymm0",
            "vmovntdq [{to} + 32], ymm1"
        )
    } else {
        lines_of!(
            "",
            "movdqu xmm0, [{from}]",
            "movdqu xmm1, [{from} + 16]",
            "movdqu xmm2, [{from} + 32]",
            "movdqu xmm3, [{from} + 48]",
            "movntdq [{to}], xmm0",
            "movntdq [{to} + 16], xmm1",
            "movntdq [{to} + 32], xmm2",
            "movntdq [{to} + 48], xmm3"
        )
    }
}

/// Waits until what was stored past the cache has left.
#[inline]
pub fn fence() {
    // SAFETY: a fence touches no memory.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}
