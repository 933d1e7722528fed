//! Cache lines that are asked for ahead, and bytes that are written past the cache.

use super::row::Row;

/// Asks for the line of a value that is soon needed.
#[inline(always)]
pub(super) fn prefetch<T>(value: &T) {
    ask(std::ptr::from_ref(value).cast());
}

#[inline(always)]
fn ask(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads and writes nothing, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint, which no address makes fail.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// How far ahead of rows that are read in order the next ones are asked for: hardware that does so by itself stops at the end
/// of each page, and is late on some machines.
const AHEAD_BYTES: usize = 2048;

/// Asks for what comes some lines after a row that is read in order, once in each line.
#[inline(always)]
pub(super) fn read_on<T>(row: &T) {
    let address = std::ptr::from_ref(row);
    if address.addr() % 64 < size_of::<T>() {
        ask(address.wrapping_byte_add(AHEAD_BYTES).cast());
    }
}

/// Copies rows past the cache, on CPUs that have stores which do so. They are others' to see after [`wait`].
///
/// # Safety
/// `to` is writable for the rows, nobody else reads or writes there, and both its address and their length in bytes are
/// multiples of 16.
#[inline(always)]
pub(super) unsafe fn stream<const W: usize>(to: *mut Row<W>, rows: &[Row<W>]) {
    debug_assert!(to.addr().is_multiple_of(16) && size_of_val(rows).is_multiple_of(16));
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let (from, to) = (rows.as_ptr().cast::<__m128i>(), to.cast::<__m128i>());
        for at in 0..size_of_val(rows) / size_of::<__m128i>() {
            // SAFETY: both have so many vectors, and `to` is aligned, as the caller says; every x86-64 has SSE2.
            unsafe { _mm_stream_si128(to.add(at), _mm_loadu_si128(from.add(at))) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as the caller says; `rows` is a slice of another place.
    unsafe {
        std::ptr::copy_nonoverlapping(rows.as_ptr(), to, rows.len());
    }
}

/// Orders what was streamed before whatever follows.
pub(super) fn wait() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a fence.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
}
