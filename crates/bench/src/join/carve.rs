//! Arrays in the memory that is measured.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use super::row::Row;
use crate::memory::Memory;

/// What any bytes are a value of, without padding.
///
/// # Safety
/// Every pattern of bytes is a valid value, and dropping it does nothing.
pub(super) unsafe trait Plain: Send + Sync {}

// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: integers.
unsafe impl Plain for AtomicU8 {}
// SAFETY: integers.
unsafe impl Plain for AtomicU32 {}
// SAFETY: integers.
unsafe impl Plain for AtomicU64 {}
// SAFETY: 1 + W integers of 8 bytes each.
unsafe impl<const W: usize> Plain for Row<W> {}

/// Arrays begin at multiples of this.
const ALIGN_BYTES: usize = 64;

/// Bytes that an array takes up, with what its beginning may need.
pub(super) const fn len_bytes<T>(count: usize) -> usize {
    (count * size_of::<T>()).next_multiple_of(ALIGN_BYTES)
}

/// Cuts a memory into arrays, from its beginning on.
pub(super) struct Carve<'m> {
    next: *mut u8,
    left_bytes: usize,
    memory: PhantomData<&'m mut Memory>,
}

impl<'m> Carve<'m> {
    pub(super) fn new(memory: &'m mut Memory) -> Carve<'m> {
        Carve { next: memory.base(), left_bytes: memory.len_bytes(), memory: PhantomData }
    }

    /// The next `count` values, whatever they are, at a multiple of 64 bytes.
    ///
    /// # Panics
    /// If there is not so much left.
    pub(super) fn take<T: Plain>(&mut self, count: usize) -> &'m mut [T] {
        let bytes = len_bytes::<T>(count);
        assert!(bytes <= self.left_bytes, "{bytes} bytes of {} that are left", self.left_bytes);
        assert!(align_of::<T>() <= ALIGN_BYTES && self.next.addr().is_multiple_of(ALIGN_BYTES));
        let start = self.next.cast::<T>();
        self.next = self.next.wrapping_add(bytes);
        self.left_bytes -= bytes;
        // SAFETY: the bytes lie in the memory, which is mapped, writable and borrowed alone for 'm, and no other array has
        // them; the start is aligned, and any bytes are values.
        unsafe { std::slice::from_raw_parts_mut(start, count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Pages, Place};

    #[test]
    fn arrays_do_not_overlap_and_begin_where_lines_do() {
        let mut memory = Memory::new(&Place::Dram, Pages::Small, 4096).unwrap();
        let mut carve = Carve::new(&mut memory);
        let (a, b, c) = (carve.take::<u32>(3), carve.take::<Row<2>>(2), carve.take::<u64>(0));
        a.fill(7);
        b.fill(Row { key: 1, value: [2, 3] });
        assert_eq!(a, [7; 3]);
        assert_eq!((b.as_ptr().addr() - a.as_ptr().addr(), b.as_ptr().addr() % 64, c.len()), (64, 0, 0));
    }

    #[test]
    #[should_panic(expected = "bytes of")]
    fn more_than_there_is_is_refused() {
        let mut memory = Memory::new(&Place::Dram, Pages::Small, 64).unwrap();
        Carve::new(&mut memory).take::<u64>(9);
    }
}
