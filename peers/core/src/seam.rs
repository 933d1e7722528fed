//! Store, flush, fence of a record, through the seam and written out: the same stores, CLWB of each line, SFENCE.
//!
//! What the seam adds is calls and checks, and with them stores to the stack. At 4 KiB these make it the faster side:
//! six stores between the last CLWB and SFENCE are enough to do the same for the loop that is written out.

use std::io::Write;
use std::time::Instant;

use remanent_pmem::{CopyPlan, FlushInstruction, Granularity, MIN_FILE_BYTES, Mapped, PartOptions, Pool, Touch};
use remanent_report::compare;

use crate::scratch::Scratch;
use crate::{LAYOUT, Result, print};

const BATCH: usize = 2000;
const ROUNDS: usize = 41;

/// Compares them, or tells what is missing.
pub(crate) fn run(
    scratch: &Scratch,
    out: &mut dyn Write,
) -> std::result::Result<Option<String>, Box<dyn std::error::Error>> {
    let path = scratch.file("seam")?;
    let pool = Pool::create(Mapped::new(), &path, LAYOUT, &PartOptions::single(MIN_FILE_BYTES))?;
    print::place(out, &path, &pool.info().backing)?;
    let missing = missing(&pool);
    if missing.is_none() {
        compare_persists(&pool, out)?;
    }
    pool.close()?;
    Ok(missing)
}

/// What is missing here for the comparison: both sides must execute the same instructions.
fn missing(pool: &Pool<Mapped>) -> Option<String> {
    let (flush, granularity) = (CopyPlan::get().flush, pool.info().backing.granularity);
    if granularity != Granularity::CacheLine {
        return Some(format!("stores become durable by {} there, not by cache line", granularity.as_str()));
    }
    if flush != FlushInstruction::Clwb {
        return Some(format!("the core flushes with {} here, not with clwb", flush.as_str()));
    }
    (!raw::has_line_stores()).then(|| "the CPU has no AVX-512F, by which the stores are written out".into())
}

/// Nothing may be [`missing`].
fn compare_persists(pool: &Pool<Mapped>, out: &mut dyn Write) -> Result {
    let reservation = pool.reserve(1 << 20)?;
    let offset = reservation.extent().offset;
    let base = pool.set().address(offset);
    pool.set().prefault(offset, 1 << 20, Touch::Store, 1)?.join()?;
    for bytes in [64usize, 256, 1024, 4096] {
        let record = vec![0x5A; bytes];
        let slots = (1 << 20) / bytes;
        let per_call_ns = |start: Instant| start.elapsed().as_nanos() as f64 / BATCH as f64;
        let through = || {
            let start = Instant::now();
            for i in 0..BATCH {
                let at = offset.plus((i % slots * bytes) as u64);
                pool.set().store_bytes(at, &record);
                pool.set().persist(at, bytes as u64).expect("memory does not fail");
            }
            per_call_ns(start)
        };
        let written_out = || {
            let start = Instant::now();
            for i in 0..BATCH {
                raw::persist(base.wrapping_add(i % slots * bytes), &record);
            }
            per_call_ns(start)
        };
        let comparison = compare(ROUNDS, written_out, through).ok_or("no finite sample")?;
        let names = [format!("persist {bytes} B, written out"), format!("persist {bytes} B, through the seam")];
        let provenance = print::provenance(&pool.info().backing);
        print::comparison(out, names.each_ref().map(String::as_str), "ns", provenance, &comparison)?;
    }
    Ok(())
}

/// The same instructions without the seam. Records begin at a line and are whole lines long.
#[cfg(target_arch = "x86_64")]
mod raw {
    use std::arch::asm;
    use std::sync::atomic::{AtomicU64, Ordering};

    const LINE_BYTES: usize = 64;

    /// From this length on the core stores whole lines at once, and words below it. memcpy would choose by rules of its
    /// own, such as REP MOVSB, and the comparison would be one of ways to store.
    const LINES_FROM_BYTES: usize = 512;

    /// Whether the CPU stores a line with one instruction, as the core then does.
    pub(crate) fn has_line_stores() -> bool {
        std::is_x86_feature_detected!("avx512f")
    }

    /// Stores a record, writes its lines back and waits.
    pub(crate) fn persist(to: *mut u8, record: &[u8]) {
        let lines = record.len() / LINE_BYTES;
        if record.len() < LINES_FROM_BYTES {
            for (number, word) in record.chunks_exact(8).enumerate() {
                let word = u64::from_ne_bytes(word.try_into().expect("8 bytes"));
                // SAFETY: `to` is an aligned place of the benchmark's own extent, with room for the record.
                unsafe { AtomicU64::from_ptr(to.add(number * 8).cast()) }.store(word, Ordering::Relaxed);
            }
        } else {
            // SAFETY: the place as above, and `missing` has asked for the instruction.
            unsafe { store_lines(to, record.as_ptr(), lines) };
        }
        // SAFETY: the lines of the record; the CPU has CLWB, for it is what the core flushes with (`missing`).
        unsafe { flush_lines(to, lines) };
        // SAFETY: SFENCE is part of SSE, which every x86-64 CPU has.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }

    /// # Safety
    /// `lines` lines from `start`, one at least, are mapped; the CPU has CLWB.
    #[inline(always)]
    unsafe fn flush_lines(start: *const u8, lines: usize) {
        // As assembly: of the core's own source the compiler makes a longer loop here.
        // SAFETY: CLWB of mapped bytes.
        unsafe {
            asm!(
                ".p2align 4",
                "2:",
                "clwb [{line}]",
                "add {line}, 64",
                "dec {lines}",
                "jnz 2b",
                line = inout(reg) start => _,
                lines = inout(reg) lines => _,
                options(nostack),
            );
        }
    }

    /// # Safety
    /// `to` is aligned to a line and writable, `from` is readable, for `lines` lines, of which there is one; the CPU has
    /// AVX-512F.
    #[inline(never)]
    unsafe fn store_lines(to: *mut u8, from: *const u8, lines: usize) {
        // SAFETY: reads `lines` lines at `from` and writes as many at `to`, and nothing else.
        unsafe {
            asm!(
                ".p2align 4",
                "2:",
                "vmovdqu64 zmm0, [{from}]",
                "vmovdqa64 [{to}], zmm0",
                "add {from}, 64",
                "add {to}, 64",
                "dec {lines}",
                "jnz 2b",
                "vzeroupper",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                lines = inout(reg) lines => _,
                out("xmm0") _,
                options(nostack),
            );
        }
    }
}

/// Other CPUs have no CLWB, so that it is always missing there.
#[cfg(not(target_arch = "x86_64"))]
mod raw {
    pub(crate) fn has_line_stores() -> bool {
        false
    }

    pub(crate) fn persist(_to: *mut u8, _record: &[u8]) {
        unreachable!("nothing may be missing")
    }
}
