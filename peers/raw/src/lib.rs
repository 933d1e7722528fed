//! The floor of a persist: the bytes are copied into memory that is mapped and touched already, by the plainest loops of
//! non-temporal stores there are, and nothing else is done.
//!
//! Rust's comparisons link it, Python's loads it as a shared library.

use std::ffi::c_int;

mod loops;

pub use loops::{copy, copy_interleaved};

/// One thread's share of a copy: target, source, length.
pub type CopyPiece<'a> = &'a (dyn Fn(*mut u8, *const u8, usize) + Sync);

/// What the threads' shares are multiples of, as the loops ask for.
const UNIT_BYTES: usize = 16384;

struct Shared<T>(*mut T, *const T);
// SAFETY: the threads write disjoint parts of the target and only read the source.
unsafe impl<T> Sync for Shared<T> {}

/// Divides a copy between threads, as anybody would by hand. The last part is the longest.
pub fn in_parts(to: *mut u8, from: *const u8, len_bytes: usize, threads: usize, copy: CopyPiece) {
    let shared = &Shared(to, from);
    let part_bytes = len_bytes / threads / UNIT_BYTES * UNIT_BYTES;
    std::thread::scope(|scope| {
        for part in 0..threads - 1 {
            scope.spawn(move || {
                let Shared(to, from) = *shared;
                copy(to.wrapping_add(part * part_bytes), from.wrapping_add(part * part_bytes), part_bytes);
            });
        }
        let done_bytes = (threads - 1) * part_bytes;
        copy(to.wrapping_add(done_bytes), from.wrapping_add(done_bytes), len_bytes - done_bytes);
    });
}

/// Copies by so many threads, line after line or, if `is_interleaved` is not 0, four pages side by side.
///
/// # Safety
/// `from` is readable and `to` writable for `len_bytes` bytes, a multiple of 256; `to` is aligned to a line; `threads` is
/// not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peers_raw_copy(
    to: *mut u8,
    from: *const u8,
    len_bytes: usize,
    threads: usize,
    is_interleaved: c_int,
) {
    in_parts(to, from, len_bytes, threads, &|to, from, len_bytes| {
        // SAFETY: the caller's promise; parts are multiples of 256, and the rest is what is left of one.
        unsafe {
            if is_interleaved == 0 {
                copy(to, from, len_bytes);
            } else {
                copy_interleaved(to, from, len_bytes);
            }
        }
    });
}
