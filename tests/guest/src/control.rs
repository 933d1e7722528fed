//! The negative control of the power cuts: a program that does almost everything right.
//!
//! It flushes and fences every record before it says that the record is durable, but its file is sparse, mapped
//! without MAP_SYNC, and never synced. The blocks that the stores went to belong to the file in the page cache only, so
//! a power cut loses the records. A machine that kept them would prove nothing by keeping those of a pool.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Every record stands in a cache line of its own.
const RECORD_BYTES: usize = 64;
const RECORDS: usize = 1 << 14;

pub(crate) struct Control {
    base: *mut u8,
    records: usize,
}

fn path(boot: u64) -> PathBuf {
    Path::new("/second").join(format!("control-{boot}"))
}

impl Control {
    /// A new file for this boot, whose name and length are durable.
    pub(crate) fn create(boot: u64) -> Control {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path(boot)).unwrap();
        file.set_len((RECORDS * RECORD_BYTES) as u64).unwrap();
        file.sync_all().unwrap();
        File::open("/second").unwrap().sync_all().unwrap();
        let (len, protection) = (RECORDS * RECORD_BYTES, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping, which nothing refers to and which is never unmapped.
        let base = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0) }.unwrap();
        Control { base: base.cast(), records: 0 }
    }

    /// Writes one record, as far as the CPU is concerned; returns how many there are.
    pub(crate) fn append(&mut self) -> usize {
        if self.records < RECORDS {
            let record = self.base.wrapping_add(self.records * RECORD_BYTES);
            self.records += 1;
            // SAFETY: the record lies inside the mapping, which lives as long as the process, and is aligned to 64.
            unsafe {
                ptr::write_volatile(record.cast::<u64>(), self.records as u64);
                flush_and_fence(record);
            }
        }
        self.records
    }
}

/// # Safety
/// The line is mapped.
#[cfg(target_arch = "x86_64")]
unsafe fn flush_and_fence(line: *mut u8) {
    use std::arch::x86_64::{_mm_clflush, _mm_sfence};
    // SAFETY: handed on to the caller.
    unsafe {
        _mm_clflush(line);
        _mm_sfence();
    }
}

/// Compiled, and never run: the lane's machines are x86-64.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn flush_and_fence(_line: *mut u8) {}

/// The records that are left of those that another boot has written.
pub(crate) fn left_of(boot: u64) -> usize {
    let mut bytes = vec![0; RECORDS * RECORD_BYTES];
    File::open(path(boot)).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    let is_there = |(index, record): &(usize, &[u8])| record[..8] == (*index as u64 + 1).to_le_bytes();
    bytes.chunks(RECORD_BYTES).enumerate().take_while(is_there).count()
}
