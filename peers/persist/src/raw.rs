//! The ceiling: the plainest loop of non-temporal stores that this CPU has.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128i, __m512i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128, _mm512_loadu_si512, _mm512_stream_si512,
};

/// Copies whole lines and fences.
///
/// # Safety
/// `from` is readable and `to` writable for `len_bytes` bytes, a multiple of 256; `to` is aligned to a line.
#[cfg(target_arch = "x86_64")]
pub unsafe fn copy(to: *mut u8, from: *const u8, len_bytes: usize) {
    // SAFETY: the caller's promise, and the feature was just detected.
    unsafe {
        if std::is_x86_feature_detected!("avx512f") {
            avx512(to, from, len_bytes)
        } else {
            sse2(to, from, len_bytes)
        }
        _mm_sfence();
    }
}

/// # Safety
/// As [`copy`]; the CPU has AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512(to: *mut u8, from: *const u8, len_bytes: usize) {
    for at in (0..len_bytes).step_by(64) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_stream_si512(to.add(at).cast::<__m512i>(), _mm512_loadu_si512(from.add(at).cast())) };
    }
}

/// # Safety
/// As [`copy`].
#[cfg(target_arch = "x86_64")]
unsafe fn sse2(to: *mut u8, from: *const u8, len_bytes: usize) {
    for at in (0..len_bytes).step_by(16) {
        // SAFETY: the caller's promise.
        unsafe { _mm_stream_si128(to.add(at).cast::<__m128i>(), _mm_loadu_si128(from.add(at).cast())) };
    }
}

/// Other CPUs have no such store.
///
/// # Safety
/// As memcpy.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn copy(to: *mut u8, from: *const u8, len_bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len_bytes) };
}
