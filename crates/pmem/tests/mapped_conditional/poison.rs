//! A page that the hardware has lost is an error from `guard`, and the process lives.
//!
//! The page is made to look lost by userfaultfd (UFFDIO_POISON, ioctl_userfaultfd(2), Linux 6.6): only this process
//! sees it, and no memory is taken from the machine, as MADV_HWPOISON would do.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use remanent_pmem::{Error, Mapped, Mapping, Media, MediaFile, MediaMap, OpenMode, Prefault, Stripe, Touch};

use crate::Test;

const PAGE_BYTES: u64 = 4096;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_POISON: u64 = 0xc020_aa08;
const FEATURE_POISON: u64 = 1 << 14;
const MODE_MISSING: u64 = 1;
const USER_MODE_ONLY: i32 = 1;

/// Marks a page of the mapping that was not touched yet.
fn poison(map: &Mapping, offset_bytes: u64) -> io::Result<()> {
    // SAFETY: userfaultfd(2) takes flags and gives a new descriptor.
    let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor as i32) };
    let start = map.base().addr() as u64 + offset_bytes;
    call(&descriptor, UFFDIO_API, &mut [0xaa, FEATURE_POISON, 0, 0])?;
    call(&descriptor, UFFDIO_REGISTER, &mut [start, PAGE_BYTES, MODE_MISSING, 0])?;
    // Closing the descriptor ends the registration; the mark stays.
    call(&descriptor, UFFDIO_POISON, &mut [start, PAGE_BYTES, 0, 0])
}

/// The argument of each of these calls is a struct of three or four 64-bit fields.
fn call(descriptor: &OwnedFd, request: u64, argument: &mut [u64; 4]) -> io::Result<()> {
    // SAFETY: the kernel reads and writes at most the 32 bytes of `argument`, and marks pages of a live mapping.
    match unsafe { libc::ioctl(descriptor.as_raw_fd(), request as _, argument.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A mapping of shared memory whose page at `bad_bytes` is lost, or the reason why there is none.
fn damaged(len_bytes: u64, bad_bytes: u64) -> Result<Mapping, String> {
    let place = Path::new("/dev/shm");
    let dir = tempfile::tempdir_in(place).map_err(|error| format!("{}: {error}", place.display()))?;
    let mapped = Mapped::new();
    let file = Arc::new(mapped.create(&dir.path().join("pool"), len_bytes).unwrap());
    assert_eq!(file.len_bytes().unwrap(), len_bytes);
    let map = mapped.map(&[file], Stripe::SINGLE, OpenMode::Writer).unwrap();
    poison(&map, bad_bytes).map_err(|error| format!("this kernel marks no page as lost: {error}"))?;
    Ok(map)
}

fn assert_bad(result: Result<(), Error>, bad_bytes: u64) {
    match result {
        Err(Error::BadBlock { offset_bytes, .. }) => assert_eq!(offset_bytes, bad_bytes),
        other => panic!("{other:?}"),
    }
}

pub(crate) const TESTS: &[Test] = &[
    ("lost_page_is_a_bad_block_at_its_offset", lost_page_is_a_bad_block_at_its_offset),
    ("lost_page_ends_a_prefault", lost_page_ends_a_prefault),
];

/// Why no page can be made to look lost here.
pub(crate) fn missing() -> Option<String> {
    damaged(PAGE_BYTES, 0).err()
}

fn lost_page_is_a_bad_block_at_its_offset() {
    for bad_page in [0, 1, 511, 700, 1023] {
        let bad_bytes = bad_page * PAGE_BYTES;
        let map = damaged(4 << 20, bad_bytes).unwrap();
        for touch in [Touch::Load, Touch::Store] {
            assert_bad(map.guard(0, map.len_bytes(), touch), bad_bytes);
            assert_bad(map.guard(bad_bytes + 100, 1, touch), bad_bytes);
            map.guard(0, bad_bytes, touch).unwrap();
            map.guard(bad_bytes + PAGE_BYTES, map.len_bytes() - bad_bytes - PAGE_BYTES, touch).unwrap();
        }
    }
}

fn lost_page_ends_a_prefault() {
    let bad_bytes = 3 << 20;
    let map = Arc::new(damaged(8 << 20, bad_bytes).unwrap());
    assert_bad(Prefault::start(&map, 0..8 << 20, Touch::Store, 2).unwrap().join(), bad_bytes);
}
