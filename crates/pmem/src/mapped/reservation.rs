//! Address space, and how files are mapped into it.

use std::ffi::c_void;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

use super::file::MappedFile;

/// Address space that belongs to one owner; nothing is mapped in it until a file is.
#[derive(Debug)]
pub(super) struct Reservation {
    reserved: *mut c_void,
    reserved_bytes: usize,
    /// First byte of the range.
    pub(super) base: *mut u8,
    pub(super) len_bytes: usize,
}

impl Reservation {
    pub(super) fn new(len_bytes: usize, alignment_bytes: usize) -> rustix::io::Result<Reservation> {
        Reservation::around(0, len_bytes, alignment_bytes, ProtFlags::empty())
    }

    /// A range that begins with `room_bytes` of the process's own memory; what follows is aligned. All of it is memory until
    /// files are mapped there, which takes one call of the system less than a mapping of its own for the room.
    pub(super) fn after_memory(
        room_bytes: usize,
        len_bytes: usize,
        alignment_bytes: usize,
    ) -> rustix::io::Result<Reservation> {
        let len_bytes = room_bytes.checked_add(len_bytes).ok_or(Errno::NOMEM)?;
        Reservation::around(room_bytes, len_bytes, alignment_bytes, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// A range that is a piece of a file, where the kernel places it; both are whole pages.
    pub(super) fn of_file(
        file: &MappedFile,
        file_bytes: u64,
        len_bytes: usize,
        flags: MapFlags,
    ) -> rustix::io::Result<Reservation> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without MAP_FIXED a new mapping replaces nothing.
        let reserved =
            unsafe { mm::mmap(ptr::null_mut(), len_bytes, protection, flags, &file.descriptor, file_bytes)? };
        Ok(Reservation { reserved, reserved_bytes: len_bytes, base: reserved.cast(), len_bytes })
    }

    /// Takes the first bytes, whole pages, of a range that was reserved as it is; they are unmapped by themselves.
    pub(super) fn split_front(&mut self, len_bytes: usize) -> Reservation {
        assert!(self.reserved.cast() == self.base && self.reserved_bytes == self.len_bytes, "{self:?}");
        assert!(
            len_bytes <= self.len_bytes && len_bytes.is_multiple_of(rustix::param::page_size()),
            "{len_bytes} of {self:?}"
        );
        let front = Reservation { reserved: self.reserved, reserved_bytes: len_bytes, base: self.base, len_bytes };
        self.base = self.base.wrapping_add(len_bytes);
        self.reserved = self.base.cast();
        self.len_bytes -= len_bytes;
        self.reserved_bytes = self.len_bytes;
        front
    }

    /// Reserves a range of which the byte at `aligned_at_bytes` is aligned.
    fn around(
        aligned_at_bytes: usize,
        len_bytes: usize,
        alignment_bytes: usize,
        protection: ProtFlags,
    ) -> rustix::io::Result<Reservation> {
        let page = rustix::param::page_size();
        let reserved_bytes = len_bytes
            .checked_next_multiple_of(page)
            .and_then(|len| len.checked_add(alignment_bytes))
            .ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED a new mapping replaces nothing.
        let reserved = unsafe { mm::mmap_anonymous(ptr::null_mut(), reserved_bytes, protection, flags)? };
        let skip_bytes = (reserved.addr() + aligned_at_bytes).wrapping_neg() % alignment_bytes;
        Ok(Reservation { reserved, reserved_bytes, base: reserved.cast::<u8>().wrapping_add(skip_bytes), len_bytes })
    }

    /// Maps a piece of a file, shared, at `at_bytes` of the range.
    pub(super) fn place(
        &self,
        at_bytes: usize,
        file: &MappedFile,
        file_bytes: u64,
        len_bytes: usize,
        protection: ProtFlags,
    ) -> rustix::io::Result<()> {
        self.place_as(at_bytes, file, file_bytes, len_bytes, protection, shared(file))
    }

    /// Maps a piece of a file at `at_bytes` of the range, shared or private as `flags` says.
    pub(super) fn place_as(
        &self,
        at_bytes: usize,
        file: &MappedFile,
        file_bytes: u64,
        len_bytes: usize,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> rustix::io::Result<()> {
        assert!(at_bytes.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes), "outside the reservation");
        let address = self.base.wrapping_add(at_bytes).cast();
        // SAFETY: MAP_FIXED replaces only pages of this reservation. Either nobody has a pointer to them yet, or they show the
        // same bytes of the same file before and after.
        unsafe { mm::mmap(address, len_bytes, protection, flags | MapFlags::FIXED, &file.descriptor, file_bytes)? };
        Ok(())
    }
}

/// How a file is mapped for stores that go to it.
pub(super) fn shared(file: &MappedFile) -> MapFlags {
    if file.map_sync { MapFlags::SHARED_VALIDATE | MapFlags::SYNC } else { MapFlags::SHARED }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.reserved_bytes == 0 {
            return; // all of it was taken
        }
        // SAFETY: the range was mapped by `new` and belongs to this value; whoever got a pointer from the owner was
        // told how long it is valid. An error would mean that it is not ours, and is not possible.
        let unmapped = unsafe { mm::munmap(self.reserved, self.reserved_bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
