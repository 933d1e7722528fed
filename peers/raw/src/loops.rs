//! The ceilings: the plainest loop of non-temporal stores that this CPU has, and the fastest order of it found here.

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
#[inline]
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

/// As [`copy`], four pages side by side, 256 bytes of each in turn.
///
/// # Safety
/// As [`copy`].
#[cfg(target_arch = "x86_64")]
pub unsafe fn copy_interleaved(to: *mut u8, from: *const u8, len_bytes: usize) {
    let blocks_bytes = len_bytes / 16384 * 16384;
    // SAFETY: the caller's promise, and the feature was just detected.
    unsafe {
        if std::is_x86_feature_detected!("avx512f") {
            for block in (0..blocks_bytes).step_by(16384) {
                avx512_pages(to.add(block), from.add(block));
            }
            avx512(to.add(blocks_bytes), from.add(blocks_bytes), len_bytes - blocks_bytes);
        } else {
            sse2(to, from, len_bytes);
        }
        _mm_sfence();
    }
}

/// # Safety
/// As [`copy`], for 16 KiB; the CPU has AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512_pages(to: *mut u8, from: *const u8) {
    for group in (0..4096).step_by(256) {
        for page in (0..16384).step_by(4096) {
            // SAFETY: the caller's promise.
            unsafe { avx512(to.add(page + group), from.add(page + group), 256) };
        }
    }
}

/// Other CPUs have no such store.
///
/// # Safety
/// As memcpy.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn copy_interleaved(to: *mut u8, from: *const u8, len_bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len_bytes) };
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
