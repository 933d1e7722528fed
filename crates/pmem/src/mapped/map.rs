//! Address ranges over files.

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, MsyncFlags, ProtFlags};

use super::file::MappedFile;
use super::reservation::Reservation;
use super::words;
use crate::cpu::{self, CopyPlan, FlushInstruction};
use crate::durability::Granularity;
use crate::error::{Error, Result};
use crate::media::{MediaFile, MediaMap, OpenMode, Stripe, Touch};

/// Mappings start at a multiple of this, so that the kernel can use huge pages.
pub(super) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Ranges no farther apart are synced by one call. A call waits for a write of the file system's journal and of the device's
/// cache, about as long as some MiB take; pages between the ranges cost nothing unless others have stored to them.
const NEAR_BYTES: u64 = 4 << 20;

/// Whether the kernel grants a MAP_SYNC mapping of the file. It validates the flag before it looks at the length, so
/// an empty file answers as well.
pub(super) fn grants_map_sync(file: &OwnedFd, trial_bytes: u64) -> bool {
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    let Ok(trial_bytes) = usize::try_from(trial_bytes) else { return false };
    // SAFETY: a new mapping replaces nothing, and nobody touches it before it is unmapped.
    unsafe {
        match mm::mmap(ptr::null_mut(), trial_bytes, ProtFlags::READ, flags, file, 0) {
            Ok(address) => mm::munmap(address, trial_bytes).is_ok(),
            Err(_) => false,
        }
    }
}

/// A mapping of one or more files.
///
/// Invariants:
/// 1. `[base, base + len_bytes)` is mapped as long as the value lives, and stays where it is.
/// 2. Every member is at least as long as [`Stripe::logical_bytes`] needed when it was mapped; a file that shrinks
///    later is found by [`MediaMap::guard`].
/// 3. A range handed to the CPU or the kernel lies inside `[0, len_bytes)`: `address` asserts it.
#[derive(Debug)]
pub struct Mapping {
    reservation: Reservation,
    pub(super) files: Vec<Arc<MappedFile>>,
    /// Length of each member when it was mapped.
    member_bytes: u64,
    stripe: Stripe,
    is_writable: bool,
    granularity: Granularity,
    flush: FlushInstruction,
}

// SAFETY: the raw pointers are to shared memory that the value owns and only gives out as raw pointers or through
// atomics and copies; no field is tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method changes a field.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(files: &[Arc<MappedFile>], stripe: Stripe, mode: OpenMode) -> Result<Mapping> {
        assert_eq!(files.len(), usize::from(stripe.members), "a stripe of {} members", stripe.members);
        let is_writable = mode == OpenMode::Writer;
        if files.iter().any(|file| file.device.is_some() != files[0].device.is_some()) {
            // One needs msync, the other has none.
            let reason = "use files only, or device-DAX devices only";
            return Err(Error::Unsupported { what: "a stripe over files and devices", reason });
        }
        let mut member_bytes = u64::MAX;
        let mut alignment_bytes = HUGE_PAGE_BYTES;
        let mut granularity = Granularity::Byte;
        for file in files {
            if is_writable && !file.is_writable {
                return Err(Error::NotWritable { path: file.path().to_owned() });
            }
            member_bytes = member_bytes.min(file.len_bytes()?);
            granularity = granularity.max(file.backing().granularity);
            alignment_bytes = alignment_bytes.max(check_alignment(file, stripe)?);
        }
        let len_bytes = stripe.logical_bytes(member_bytes);
        let path = files[0].path();
        if len_bytes == 0 || i64::try_from(len_bytes).is_err() {
            let reason = "it cannot be mapped";
            return Err(Error::BadSize { path: path.to_owned(), got_bytes: len_bytes, reason });
        }
        let reservation = Reservation::new(len_bytes as usize, alignment_bytes)
            .map_err(|e| Error::io("reserving address space for the mapping", path, e))?;
        let mapping = Mapping {
            reservation,
            files: files.to_vec(),
            member_bytes,
            stripe,
            is_writable,
            granularity,
            flush: cpu::facts().flush,
        };
        mapping.place_members()?;
        Ok(mapping)
    }

    fn place_members(&self) -> Result<()> {
        let protection = if self.is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        for segment in self.segments(0, self.len_bytes()) {
            let file = &self.files[segment.member];
            self.reservation
                .place(segment.at_bytes as usize, file, segment.file_bytes, segment.len_bytes as usize, protection)
                .map_err(|e| Error::io("mapping", file.path(), e))?;
        }
        // Where huge pages are given on request only (fs-DAX, tmpfs mounted with huge=advise) this saves 511 of 512
        // faults; elsewhere it is refused or without effect, so the answer does not matter.
        // SAFETY: the range is this mapping's, and the advice changes no byte of it.
        let _ = unsafe { mm::madvise(self.reservation.base.cast(), self.reservation.len_bytes, Advice::LinuxHugepage) };
        Ok(())
    }

    /// The contiguous pieces of members behind a logical range.
    pub(super) fn segments(&self, offset_bytes: u64, len_bytes: u64) -> impl Iterator<Item = Segment> {
        let (stripe, end_bytes) = (self.stripe, offset_bytes + len_bytes);
        let mut at_bytes = offset_bytes;
        std::iter::from_fn(move || {
            if at_bytes >= end_bytes {
                return None;
            }
            let (member, file_bytes, follow_bytes) = stripe.locate(at_bytes);
            let len_bytes = follow_bytes.min(end_bytes - at_bytes);
            let segment = Segment { at_bytes, member: usize::from(member), file_bytes, len_bytes };
            at_bytes += len_bytes;
            Some(segment)
        })
    }

    /// The address of a range.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    #[inline]
    fn address(&self, offset_bytes: u64, len_bytes: u64) -> *mut u8 {
        let len = self.len_bytes();
        assert!(
            offset_bytes <= len && len_bytes <= len - offset_bytes,
            "{len_bytes} bytes at {offset_bytes} are not inside a mapping of {len} bytes"
        );
        self.reservation.base.wrapping_add(offset_bytes as usize)
    }

    #[inline]
    fn store_address(&self, offset_bytes: u64, len_bytes: u64) -> *mut u8 {
        assert!(self.is_writable, "a store to a mapping that is open for reading");
        self.address(offset_bytes, len_bytes)
    }

    #[inline]
    fn word(&self, address: *mut u8) -> &AtomicU64 {
        assert!(address.addr().is_multiple_of(8), "8 bytes at an address that is no multiple of 8");
        // SAFETY: `address` asserted that the word is mapped, it is aligned, it stays mapped as long as `self` is
        // borrowed, and everybody accesses words that others may change through this.
        unsafe { AtomicU64::from_ptr(address.cast()) }
    }

    /// A range rounded to whole pages, as msync and madvise want it. It stays inside the reservation.
    fn pages(&self, offset_bytes: u64, len_bytes: u64) -> (*mut c_void, usize) {
        let page = rustix::param::page_size();
        let start = self.address(offset_bytes, len_bytes);
        let before = start.addr() % page;
        (start.wrapping_sub(before).cast(), (before + len_bytes as usize).next_multiple_of(page))
    }

    /// Asks the kernel to populate, again and again if it was disturbed.
    fn populate(&self, offset_bytes: u64, len_bytes: u64, touch: Touch) -> rustix::io::Result<()> {
        let (start, pages_bytes) = self.pages(offset_bytes, len_bytes);
        populate_pages(start, pages_bytes, touch)
    }

    /// What a failed populate means: a file that shrank, a full disk, or a page that is lost.
    fn diagnose(&self, errno: Errno, offset_bytes: u64, len_bytes: u64, touch: Touch) -> Error {
        for segment in self.segments(offset_bytes, len_bytes) {
            let file = &self.files[segment.member];
            match file.len_bytes() {
                Ok(got_bytes) if got_bytes < segment.file_bytes + segment.len_bytes => {
                    let (path, expected_bytes) = (file.path().to_owned(), self.member_bytes);
                    return Error::Truncated { path, got_bytes, expected_bytes };
                }
                Ok(_) => {}
                Err(e) => return e,
            }
        }
        let bad_bytes = self.first_failure(offset_bytes, len_bytes, touch);
        let (member, file_bytes, _) = self.stripe.locate(bad_bytes);
        let file = &self.files[usize::from(member)];
        let path = file.path().to_owned();
        let is_full = file.device.is_none() && file.free_bytes() == Some(0);
        match errno {
            Errno::FAULT if touch == Touch::Store && is_full => {
                Error::FileSystemFull { path, requested_bytes: len_bytes }
            }
            Errno::FAULT | Errno::HWPOISON => Error::BadBlock { path, offset_bytes: file_bytes },
            Errno::NOSPC | Errno::DQUOT => Error::FileSystemFull { path, requested_bytes: len_bytes },
            errno => Error::io("populating the mapping", &path, errno),
        }
    }

    /// The first page of a range that cannot be populated, by halving. What works is populated already, so asking for
    /// it again is cheap.
    fn first_failure(&self, offset_bytes: u64, len_bytes: u64, touch: Touch) -> u64 {
        let page = rustix::param::page_size() as u64;
        let end_bytes = offset_bytes + len_bytes;
        let (mut first, mut pages) = (offset_bytes / page, end_bytes.div_ceil(page) - offset_bytes / page);
        while pages > 1 {
            let half = pages / 2;
            let start_bytes = (first * page).max(offset_bytes);
            let half_end_bytes = ((first + half) * page).min(end_bytes);
            if self.populate(start_bytes, half_end_bytes - start_bytes, touch).is_ok() {
                first += half;
                pages -= half;
            } else {
                pages = half;
            }
        }
        first * page
    }

    /// For kernels before 5.14, which cannot populate: asks the files instead of touching the pages. Bytes that can be
    /// read are there, and allocating again what is allocated changes nothing.
    fn guard_through_files(&self, offset_bytes: u64, len_bytes: u64, touch: Touch) -> Result<()> {
        let mut bounce = vec![0; 1 << 20];
        for segment in self.segments(offset_bytes, len_bytes) {
            let file = &self.files[segment.member];
            if file.device.is_some() {
                continue; // has no read call, and no way to ask
            }
            let mut done_bytes = 0;
            while done_bytes < segment.len_bytes {
                let piece = bounce.len().min((segment.len_bytes - done_bytes) as usize);
                file.pread(segment.file_bytes + done_bytes, &mut bounce[..piece])?;
                done_bytes += piece as u64;
            }
            if touch == Touch::Store {
                file.allocate_again(segment.file_bytes, segment.len_bytes)?;
            }
        }
        Ok(())
    }
}

/// A contiguous piece of one member.
pub(super) struct Segment {
    pub(super) at_bytes: u64,
    pub(super) member: usize,
    pub(super) file_bytes: u64,
    pub(super) len_bytes: u64,
}

impl MediaMap for Mapping {
    fn len_bytes(&self) -> u64 {
        self.reservation.len_bytes as u64
    }

    fn stripe(&self) -> Stripe {
        self.stripe
    }

    fn base(&self) -> *mut u8 {
        self.reservation.base
    }

    #[inline]
    fn load_u64(&self, offset_bytes: u64) -> u64 {
        self.word(self.address(offset_bytes, 8)).load(Ordering::Acquire)
    }

    #[inline]
    fn load_bytes(&self, offset_bytes: u64, into: &mut [u8]) {
        let from = self.address(offset_bytes, into.len() as u64);
        // SAFETY: `address` asserted that the range is mapped.
        unsafe { words::load(from, into) };
    }

    #[inline]
    fn store_u64(&self, offset_bytes: u64, value: u64) {
        self.word(self.store_address(offset_bytes, 8)).store(value, Ordering::Release);
    }

    #[inline]
    fn cas_u64(&self, offset_bytes: u64, current: u64, new: u64) -> Result<u64, u64> {
        let word = self.word(self.store_address(offset_bytes, 8));
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    #[inline]
    fn store_bytes(&self, offset_bytes: u64, from: &[u8]) {
        let to = self.store_address(offset_bytes, from.len() as u64);
        // SAFETY: `store_address` asserted that the range is mapped and writable.
        unsafe { words::store(to, from) };
    }

    #[inline]
    unsafe fn nt_copy(&self, offset_bytes: u64, from: *const u8, len_bytes: usize) {
        let to = self.store_address(offset_bytes, len_bytes as u64);
        // SAFETY: the caller says that `from` is readable; `store_address` asserted that `to` is mapped and writable.
        unsafe { CopyPlan::get().copy(to, from, len_bytes, self.granularity) };
    }

    #[inline]
    fn flush(&self, offset_bytes: u64, len_bytes: u64) {
        let start = self.address(offset_bytes, len_bytes);
        if self.granularity == Granularity::CacheLine {
            // SAFETY: `address` asserted that the range is mapped; the instruction is the one that was detected.
            unsafe { cpu::flush_range(self.flush, start, len_bytes as usize) };
        }
    }

    fn sync_range(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        let (start, pages_bytes) = self.pages(offset_bytes, len_bytes);
        // The kernel may read the pages on another CPU: non-temporal stores must have left this one.
        cpu::fence();
        if len_bytes == 0 {
            return Ok(());
        }
        if self.files[0].device.is_some() {
            // Devices have no msync; their lines are all there is to write back.
            self.flush(offset_bytes, len_bytes);
            cpu::fence();
            return Ok(());
        }
        loop {
            // SAFETY: the pages are this mapping's, and MS_SYNC changes none of them.
            match unsafe { mm::msync(start, pages_bytes, MsyncFlags::SYNC) } {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                // Some read-only file systems know no sync at all, and have nothing to write.
                Err(Errno::INVAL) if self.files[0].is_on_read_only_mount() => return Ok(()),
                Err(e) => {
                    let (member, _, _) = self.stripe.locate(offset_bytes);
                    return Err(Error::io("syncing the mapping", self.files[usize::from(member)].path(), e));
                }
            }
        }
    }

    fn sync_ranges(&self, ranges: &[(u64, u64)]) -> Result<()> {
        let is_near = |one: &(u64, u64), next: &(u64, u64)| next.0.saturating_sub(one.0 + one.1) <= NEAR_BYTES;
        ranges.chunk_by(is_near).try_for_each(|near| {
            let (start, end) = (near[0].0, near.iter().map(|(at, len)| at + len).max().expect("a chunk has ranges"));
            self.sync_range(start, end - start)
        })
    }

    fn guard(&self, offset_bytes: u64, len_bytes: u64, touch: Touch) -> Result<()> {
        if touch == Touch::Store && !self.is_writable {
            return Err(Error::NotWritable { path: self.files[0].path().to_owned() });
        }
        if len_bytes == 0 {
            return Ok(());
        }
        match self.populate(offset_bytes, len_bytes, touch) {
            Ok(()) => Ok(()),
            Err(Errno::INVAL) => self.guard_through_files(offset_bytes, len_bytes, touch),
            Err(errno) => Err(self.diagnose(errno, offset_bytes, len_bytes, touch)),
        }
    }
}

pub(super) fn populate_pages(start: *mut c_void, len_bytes: usize, touch: Touch) -> rustix::io::Result<()> {
    let advice = match touch {
        Touch::Load => Advice::LinuxPopulateRead,
        Touch::Store => Advice::LinuxPopulateWrite,
    };
    loop {
        // SAFETY: populating changes no byte and fails, instead of signalling, where a page cannot be had.
        match unsafe { mm::madvise(start, len_bytes, advice) } {
            Err(Errno::INTR | Errno::AGAIN) => {}
            result => return result,
        }
    }
}

/// The alignment that a member's mappings need.
fn check_alignment(file: &MappedFile, stripe: Stripe) -> Result<usize> {
    let Some(device) = file.device else { return Ok(1) };
    let alignment_bytes = device.alignment_bytes;
    // What is mapped on its own: a whole device, or the head and the chunks of a stripe.
    let lengths: &[u64] =
        if stripe.members == 1 { &[device.size_bytes] } else { &[Stripe::HEAD_BYTES, stripe.chunk_bytes] };
    match lengths.iter().find(|&&bytes| bytes == 0 || !bytes.is_multiple_of(alignment_bytes)) {
        Some(&got_bytes) => Err(Error::Misaligned { path: file.path().to_owned(), got_bytes, alignment_bytes }),
        None => Ok(alignment_bytes as usize),
    }
}

/// A short-lived, populated mapping of a piece of a device.
pub(super) struct Window {
    reservation: Reservation,
    start_bytes: u64,
    granularity: Granularity,
}

impl Window {
    /// `start_bytes` and `len_bytes` are multiples of the device's alignment.
    pub(super) fn new(file: &MappedFile, start_bytes: u64, len_bytes: u64, touch: Touch) -> Result<Window> {
        let alignment_bytes = file.device.map_or(HUGE_PAGE_BYTES, |device| device.alignment_bytes as usize);
        let protection = match touch {
            Touch::Load => ProtFlags::READ,
            Touch::Store => ProtFlags::READ | ProtFlags::WRITE,
        };
        let len = len_bytes as usize;
        let reservation = Reservation::new(len, alignment_bytes)
            .and_then(|r| r.place(0, file, start_bytes, len, protection).map(|()| r))
            .map_err(|e| Error::io("mapping", file.path(), e))?;
        match populate_pages(reservation.base.cast(), len, touch) {
            Ok(()) | Err(Errno::INVAL) => {}
            Err(Errno::FAULT | Errno::HWPOISON) => {
                return Err(Error::BadBlock { path: file.path().to_owned(), offset_bytes: start_bytes });
            }
            Err(e) => return Err(Error::io("populating the mapping", file.path(), e)),
        }
        Ok(Window { reservation, start_bytes, granularity: file.backing().granularity })
    }

    fn address(&self, offset_bytes: u64, len_bytes: usize) -> *mut u8 {
        let within = (offset_bytes - self.start_bytes) as usize;
        assert!(within + len_bytes <= self.reservation.len_bytes, "outside the window");
        self.reservation.base.wrapping_add(within)
    }

    pub(super) fn read(&self, offset_bytes: u64, into: &mut [u8]) {
        let from = self.address(offset_bytes, into.len());
        // SAFETY: `address` asserted that the range is mapped, and `into` is exclusive memory elsewhere.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Durable at the next fence.
    pub(super) fn write(&self, offset_bytes: u64, from: &[u8]) {
        let to = self.address(offset_bytes, from.len());
        // SAFETY: `address` asserted that the range is mapped, the window was made for stores, and `from` is a slice of
        // ordinary memory.
        unsafe { CopyPlan::get().copy(to, from.as_ptr(), from.len(), self.granularity) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::DeviceDax;
    use crate::error::ErrorCode;
    use crate::mapped::Mapped;
    use crate::media::Media;

    /// What `guard` does on a kernel that cannot populate.
    #[test]
    fn files_answer_where_the_kernel_cannot_populate() {
        let dir = tempfile::tempdir().unwrap();
        let mapped = Mapped::new();
        let path = dir.path().join("pool");
        let file = Arc::new(mapped.create(&path, 4 << 20).unwrap());
        let map = mapped.map(&[file], Stripe::SINGLE, OpenMode::Writer).unwrap();
        map.store_u64(8, 7);
        for touch in [Touch::Load, Touch::Store] {
            map.guard_through_files(0, 4 << 20, touch).unwrap();
        }
        assert_eq!((map.load_u64(8), map.files[0].len_bytes().unwrap()), (7, 4 << 20));
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        let refused = map.guard_through_files(0, 2 << 20, Touch::Store);
        assert_eq!(refused.unwrap_err().code(), ErrorCode::Truncated);
        map.guard_through_files(0, 1 << 20, Touch::Store).unwrap();
    }

    /// Devices of other sizes and alignments than the kernel makes by default.
    #[test]
    fn device_whose_alignment_does_not_fit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = Mapped::new().create(&dir.path().join("pool"), 4096).unwrap();
        let pair = |chunk_bytes| Stripe { members: 2, chunk_bytes };
        let cases = [
            (64 << 20, 2 << 20, Stripe::SINGLE, true),
            ((64 << 20) + 4096, 4096, Stripe::SINGLE, true),
            ((64 << 20) + 4096, 2 << 20, Stripe::SINGLE, false),
            (0, 2 << 20, Stripe::SINGLE, false),
            (64 << 20, 2 << 20, pair(4 << 20), true),
            (64 << 20, 2 << 20, pair(3 << 20), false),
            // The head of a stripe is mapped on its own.
            (2 << 30, 1 << 30, pair(1 << 30), false),
        ];
        for (size_bytes, alignment_bytes, stripe, fits) in cases {
            let misfit_bytes = match stripe.members {
                1 => size_bytes,
                _ if !Stripe::HEAD_BYTES.is_multiple_of(alignment_bytes) => Stripe::HEAD_BYTES,
                _ => stripe.chunk_bytes,
            };
            file.device = Some(DeviceDax { size_bytes, alignment_bytes });
            match check_alignment(&file, stripe) {
                Ok(found_bytes) => assert!(fits && found_bytes as u64 == alignment_bytes, "{:?}", file.device),
                Err(Error::Misaligned { path, got_bytes, alignment_bytes: told_bytes }) => {
                    assert!(!fits, "{:?}", file.device);
                    assert_eq!((path.as_path(), got_bytes, told_bytes), (file.path(), misfit_bytes, alignment_bytes));
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn first_failure_is_found_in_any_page() {
        let dir = tempfile::tempdir().unwrap();
        let mapped = Mapped::new();
        for pages in [0, 1, 5, 15] {
            let path = dir.path().join(pages.to_string());
            let file = Arc::new(mapped.create(&path, 16 * 4096).unwrap());
            let map = mapped.map(&[file], Stripe::SINGLE, OpenMode::Writer).unwrap();
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(pages * 4096).unwrap();
            assert_eq!(map.first_failure(0, 16 * 4096, Touch::Load), pages * 4096);
            assert_eq!(map.first_failure(pages * 4096 + 1, 2, Touch::Store), pages * 4096);
        }
    }
}
