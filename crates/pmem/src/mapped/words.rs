//! Copies between ordinary memory and a mapping that others may store to meanwhile: by atomic accesses, so that a race
//! is a mixture of old and new and nothing worse, and aligned words, so that no word of 8 bytes is ever torn, neither for
//! a reader nor by a power failure.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD_BYTES: usize = size_of::<u64>();

/// Bytes before the first aligned word, at most `len`.
fn head_bytes(address: *const u8, len: usize) -> usize {
    address.align_offset(WORD_BYTES).min(len)
}

/// Copies out of a mapping.
///
/// # Safety
/// `from` is mapped and readable for `into.len()` bytes.
pub(super) unsafe fn load(from: *const u8, into: &mut [u8]) {
    // SAFETY: the caller's; each byte and each word lies in the range, and words are aligned by the split.
    let byte = |at: usize| unsafe { AtomicU8::from_ptr(from.add(at).cast_mut()) }.load(Ordering::Relaxed);
    // SAFETY: the same.
    let word = |at: usize| unsafe { AtomicU64::from_ptr(from.add(at).cast_mut().cast()) }.load(Ordering::Relaxed);
    let head = head_bytes(from, into.len());
    let words = (into.len() - head) / WORD_BYTES;
    for (at, byte_of) in into[..head].iter_mut().enumerate() {
        *byte_of = byte(at);
    }
    let (whole, tail) = into[head..].split_at_mut(words * WORD_BYTES);
    for (number, word_of) in whole.chunks_exact_mut(WORD_BYTES).enumerate() {
        word_of.copy_from_slice(&word(head + number * WORD_BYTES).to_ne_bytes());
    }
    let done = head + words * WORD_BYTES;
    for (at, byte_of) in tail.iter_mut().enumerate() {
        *byte_of = byte(done + at);
    }
}

/// Copies into a mapping.
///
/// # Safety
/// `to` is mapped and writable for `from.len()` bytes.
#[inline]
pub(super) unsafe fn store(to: *mut u8, from: &[u8]) {
    // SAFETY: the caller's.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if from.len() >= LINES_FROM_BYTES {
            return store_with_lines(to, from);
        }
        store_words(to, from);
    }
}

/// From here on whole lines are stored by wider instructions. Words alone would cost a tenth of a persist of 1 KiB.
#[cfg(target_arch = "x86_64")]
const LINES_FROM_BYTES: usize = 512;

/// # Safety
/// As [`store`].
#[cfg(target_arch = "x86_64")]
unsafe fn store_with_lines(to: *mut u8, from: &[u8]) {
    use crate::cpu::{LINE_BYTES, store_lines};
    let (head, rest) = from.split_at(to.addr().wrapping_neg() % LINE_BYTES);
    let (lines, tail) = rest.split_at(rest.len() / LINE_BYTES * LINE_BYTES);
    // SAFETY: the three lie in the caller's range one after the other, the second aligned by the choice of the first.
    unsafe {
        store_words(to, head);
        store_lines(to.add(head.len()), lines.as_ptr(), lines.len() / LINE_BYTES);
        store_words(to.add(head.len() + lines.len()), tail);
    }
}

/// # Safety
/// As [`store`].
#[inline]
unsafe fn store_words(to: *mut u8, from: &[u8]) {
    // SAFETY: the caller's; each byte and each word lies in the range, and words are aligned by the split.
    let byte = |at: usize, value| unsafe { AtomicU8::from_ptr(to.add(at)) }.store(value, Ordering::Relaxed);
    // SAFETY: the same.
    let word = |at: usize, value| unsafe { AtomicU64::from_ptr(to.add(at).cast()) }.store(value, Ordering::Relaxed);
    let head = head_bytes(to, from.len());
    let words = (from.len() - head) / WORD_BYTES;
    for (at, value) in from[..head].iter().enumerate() {
        byte(at, *value);
    }
    let (whole, tail) = from[head..].split_at(words * WORD_BYTES);
    for (number, value) in whole.chunks_exact(WORD_BYTES).enumerate() {
        word(head + number * WORD_BYTES, u64::from_ne_bytes(value.try_into().expect("8 bytes")));
    }
    let done = head + words * WORD_BYTES;
    for (at, value) in tail.iter().enumerate() {
        byte(done + at, *value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alignment_and_length_is_copied_whole_and_nothing_else_is_touched() {
        for start in [0, 1, 7, 8, 9, 56, 63, 64, 65] {
            for len in (0..40).chain(255..259).chain(511..560) {
                let mut place = vec![0xEE_u8; 640];
                let from: Vec<u8> = (0..len).map(|at| (at % 200) as u8).collect();
                // SAFETY: 65 + 559 bytes lie within the 640.
                unsafe { store(place.as_mut_ptr().add(start), &from) };
                assert_eq!(&place[start..start + len], from);
                assert!(place[..start].iter().chain(&place[start + len..]).all(|byte| *byte == 0xEE));
                let mut back = vec![0; len];
                // SAFETY: the same.
                unsafe { load(place.as_ptr().add(start), &mut back) };
                assert_eq!(back, from);
            }
        }
    }
}
