//! Store, flush, fence of a record, through the seam and written out with CLWB.

use std::io::Write;
use std::time::Instant;

use remanent_pmem::{CopyPlan, FlushInstruction, Granularity, Mapped, Pool, Touch};
use remanent_report::compare;

use crate::{Result, print};

const BATCH: usize = 2000;
const ROUNDS: usize = 41;

/// What is missing here for the comparison: both sides must execute the same instructions.
pub(crate) fn missing(pool: &Pool<Mapped>) -> Option<String> {
    let (flush, granularity) = (CopyPlan::get().flush, pool.info().backing.granularity);
    if granularity != Granularity::CacheLine {
        return Some(format!("stores become durable by {} there, not by cache line", granularity.as_str()));
    }
    (flush != FlushInstruction::Clwb).then(|| format!("the core flushes with {} here, not with clwb", flush.as_str()))
}

/// Nothing may be [`missing`].
pub(crate) fn run(pool: &Pool<Mapped>, out: &mut dyn Write) -> Result {
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

/// The same instructions without the seam.
#[cfg(target_arch = "x86_64")]
mod raw {
    use std::arch::asm;

    /// Copies a record, writes its lines back and waits.
    pub(crate) fn persist(to: *mut u8, record: &[u8]) {
        // SAFETY: `to` is a place of the benchmark's own extent, with room for the record, and nobody else uses it.
        unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), to, record.len()) };
        for line in (0..record.len()).step_by(64) {
            // SAFETY: CLWB of a mapped byte; the CPU has it, for it is what the core flushes with (`missing`).
            unsafe { asm!("clwb [{}]", in(reg) to.wrapping_add(line), options(nostack, preserves_flags)) };
        }
        // SAFETY: SFENCE is part of SSE, which every x86-64 CPU has.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }
}

/// Other CPUs have no CLWB, so that it is always missing there.
#[cfg(not(target_arch = "x86_64"))]
mod raw {
    pub(crate) fn persist(_to: *mut u8, _record: &[u8]) {
        unreachable!("nothing may be missing")
    }
}
