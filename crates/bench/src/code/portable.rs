//! Other 64-bit little-endian CPUs: stores and loads of words, a full fence, and no way to write a line back.

use std::ptr;
use std::sync::atomic::{Ordering, fence as atomic_fence};

use super::{Access, Blocks, Fence, Flush, Line, Operation, STORED, Store, Width, unavailable};
use crate::clock::ticks;

pub(super) const FENCE_OF_STORES: Fence = Fence::None;
pub(super) const STORE_PAST_CACHE: Access = Access::Store;

/// Runs an operation at each address, one after the other.
///
/// # Safety
/// Each address is a multiple of 64 and writable for 64 bytes; the operation [is available](Operation::is_available).
#[inline(never)]
pub unsafe fn sustained(operation: Operation, addresses: &[*mut u8]) {
    if operation.missing().is_some() {
        unavailable();
    }
    if operation.store == Store::Mov8 {
        for address in addresses {
            // SAFETY: the caller's.
            unsafe { address.cast::<u64>().write_volatile(STORED) };
        }
    }
}

/// Runs an operation at each address, and tells the ticks that each took until a fence after it was executed.
///
/// # Safety
/// As [`sustained`].
///
/// # Panics
/// If there is not a time for each address.
#[inline(never)]
pub unsafe fn isolated(operation: Operation, addresses: &[*mut u8], times: &mut [u64]) {
    assert_eq!(addresses.len(), times.len());
    for (address, time) in addresses.iter().zip(times) {
        wait();
        let start = ticks();
        // SAFETY: one of the caller's addresses.
        unsafe { sustained(operation, std::slice::from_ref(address)) };
        wait();
        *time = ticks() - start;
    }
}

/// Waits until everything before has been executed and is visible.
#[inline]
pub fn wait() {
    atomic_fence(Ordering::SeqCst);
}

/// Goes over each block; the words of each line that is loaded are added to those of `line`.
///
/// # Safety
/// Each address is a multiple of 64, readable and, unless `access` loads, writable for `lines` lines; the access is
/// [available](Access::is_available).
#[inline(never)]
pub unsafe fn blocks(access: Access, _: Width, _: Fence, blocks: Blocks<'_>, lines: usize, line: &mut Line) {
    let mut visit = |block: *mut u8| {
        for at in 0..lines {
            let words = block.wrapping_add(at * size_of::<Line>()).cast::<u64>();
            for (number, word) in line.0.iter_mut().enumerate() {
                let place = words.wrapping_add(number);
                // SAFETY: a word of a line of the caller's blocks.
                unsafe {
                    if access == Access::Load {
                        *word = word.wrapping_add(place.read_volatile());
                    } else {
                        place.write_volatile(*word);
                    }
                }
            }
        }
    };
    match blocks {
        Blocks::List(list) => list.iter().for_each(|block| visit(*block)),
        Blocks::Shuffled(shuffle, numbers) => numbers.for_each(|number| visit(shuffle.address(number))),
        Blocks::Strided(stride, numbers) => numbers.for_each(|number| visit(stride.address(number))),
    }
}

/// Copies whole lines; there is no way past the cache.
///
/// # Safety
/// `from` is readable and `to` writable for `lines` lines, and they do not overlap.
pub unsafe fn copy_past_cache(to: *mut u8, from: *const u8, lines: usize) {
    // SAFETY: the caller's lines.
    unsafe { ptr::copy_nonoverlapping(from, to, lines * size_of::<Line>()) };
}

/// Orders what was copied before whatever follows.
#[inline]
pub fn fence() {
    wait();
}

/// Whether it can be done.
pub(super) fn has_store(store: Store) -> bool {
    matches!(store, Store::Nothing | Store::Mov8)
}

/// Whether it can be done.
pub(super) fn has_flush(flush: Flush) -> bool {
    flush == Flush::None
}

/// Whether it can be done.
pub(super) fn has_blocks(access: Access, width: Width) -> bool {
    // Words are of eight bytes; the narrowest width stands for them.
    matches!(access, Access::Load | Access::Store) && width == Width::Bytes16
}
