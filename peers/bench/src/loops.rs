//! Stores, write-backs and fences in loops that know nothing of the microbenchmark: intrinsics where Rust has them, Rust's own
//! clock.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
use std::ptr;
use std::time::Instant;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::Error;

/// What is done with each line, in order.
pub(crate) struct Pass {
    /// As `remanent bench` calls it.
    pub(crate) store: &'static str,
    /// As `remanent bench` calls it.
    pub(crate) flush: &'static str,
    line: unsafe fn(*mut u8),
    is_there: fn() -> bool,
}

impl Pass {
    pub(crate) fn is_there(&self) -> bool {
        (self.is_there)()
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! line {
    ($($instructions:literal),+) => {{
        unsafe fn line(at: *mut u8) {
            // SAFETY: the caller gives a line of its own memory.
            unsafe { asm!($($instructions),+, at = in(reg) at, word = in(reg) 0x5A5A_u64, options(nostack)) }
        }
        line
    }};
}

#[cfg(target_arch = "x86_64")]
fn has(flag: &str) -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().find(|line| line.starts_with("flags")).is_some_and(|line| line.split(' ').any(|word| word == flag))
}

/// None but on x86-64: other CPUs have other instructions, for which nobody has written loops yet.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const PASSES: &[Pass] = &[];

/// All that this kind of CPU may have.
#[cfg(target_arch = "x86_64")]
pub(crate) const PASSES: &[Pass] = &[
    Pass {
        store: "mov8",
        flush: "clwb",
        line: line!("mov [{at}], {word}", "clwb [{at}]", "sfence"),
        is_there: || has("clwb"),
    },
    Pass {
        store: "mov8",
        flush: "clflushopt",
        line: line!("mov [{at}], {word}", "clflushopt [{at}]", "sfence"),
        is_there: || has("clflushopt"),
    },
    Pass {
        store: "mov8",
        flush: "clflush",
        line: line!("mov [{at}], {word}", "clflush [{at}]", "sfence"),
        is_there: || true,
    },
    Pass { store: "nt8", flush: "none", line: line!("movnti [{at}], {word}", "sfence"), is_there: || true },
];

/// Populated memory of huge pages, as far as there are.
pub(crate) struct Memory {
    base: *mut u8,
    len_bytes: usize,
}

const LINE_BYTES: usize = 64;
const HUGE_BYTES: usize = 2 << 20;

impl Memory {
    pub(crate) fn new(len_bytes: usize) -> Result<Memory, Error> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which is never given back: the program ends with it.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), len_bytes + HUGE_BYTES, protection, MapFlags::PRIVATE)?
        };
        let base = start.cast::<u8>().wrapping_add(start.cast::<u8>().align_offset(HUGE_BYTES));
        // SAFETY: pages of that mapping.
        unsafe {
            rustix::mm::madvise(base.cast(), len_bytes, Advice::LinuxHugepage)?;
            ptr::write_bytes(base, 1, len_bytes);
        }
        Ok(Memory { base, len_bytes })
    }

    /// Time of a line, of passes over the memory that take a fifth of a second together.
    pub(crate) fn store_ns(&self, pass: &Pass) -> f64 {
        let (mut lines, start) = (0u64, Instant::now());
        loop {
            for at in (0..self.len_bytes).step_by(LINE_BYTES) {
                // SAFETY: a line of the memory, and the CPU has the instructions.
                unsafe { (pass.line)(self.base.wrapping_add(at)) };
            }
            lines += (self.len_bytes / LINE_BYTES) as u64;
            let elapsed = start.elapsed();
            if elapsed.as_millis() >= 200 {
                return elapsed.as_nanos() as f64 / lines as f64;
            }
        }
    }
}
