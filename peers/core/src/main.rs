//! What the core costs: opening a pool of 10,000 names, and a persist through the seam beside the same instructions
//! written out.
//!
//! ```text
//! cargo run --release -p peers-core [-- DIRECTORY]
//! ```
//!
//! Both sides of a comparison run alternately in one process, A B B A. On tmpfs the figures are emulated: they are
//! those of main memory and of no persistent-memory device.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use remanent_pmem::{Granularity, Layout, Mapped, OpenMode, PartOptions, Pool, RedoBatch, RegionSpec};
use remanent_report::{Samples, compare};

const LAYOUT: Layout = Layout { name: "bench", version: 1 };
const NAMES: usize = 10_000;
const ROUNDS: usize = 41;

fn main() -> ExitCode {
    let directory = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let path = directory.join(format!("remanent-peers-core-{}", std::process::id()));
    let result = run(&path);
    let removed = std::fs::remove_file(&path);
    match (result, removed) {
        (Ok(()), Ok(())) => ExitCode::SUCCESS,
        (Err(error), _) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        (Ok(()), Err(error)) => {
            eprintln!("{} is left behind: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

fn run(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::create(Mapped::new(), path, LAYOUT, &PartOptions::single(64 << 20))?;
    for hundred in 0..NAMES / 100 {
        let mut batch = RedoBatch::new();
        for i in 0..100 {
            let add = vec![pool.reserve(1000)?];
            let name = format!("experiment/{:05}", hundred * 100 + i);
            batch.put(&name, RegionSpec { kind: 1, meta: vec![7; 64], add, ..RegionSpec::default() });
        }
        pool.commit(batch)?;
    }
    let backing = pool.info().backing;
    println!("{}: {}, {} granularity", path.display(), backing.provenance.as_str(), backing.granularity.as_str());
    if backing.granularity == Granularity::CacheLine {
        seam(&pool)?;
    }
    pool.close()?;
    for mode in [OpenMode::Reader, OpenMode::Writer] {
        open(path, mode)?;
    }
    Ok(())
}

fn open(path: &Path, mode: OpenMode) -> Result<(), Box<dyn std::error::Error>> {
    let mut times_ms = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let pool = Pool::open(Mapped::new(), path, Some(LAYOUT), mode)?;
        times_ms.push(start.elapsed().as_secs_f64() * 1e3);
        assert_eq!(pool.info().names, NAMES);
        pool.close()?;
    }
    let samples = Samples::new(times_ms).ok_or("no finite sample")?;
    let quartiles = samples.quartiles();
    println!(
        "open {NAMES} names as {mode:?}: median {:.2} ms, quartiles {:.2} to {:.2} ms",
        samples.median(),
        quartiles.low,
        quartiles.high
    );
    Ok(())
}

/// Store, flush, fence of a record, through the seam and written out.
fn seam(pool: &Pool<Mapped>) -> Result<(), Box<dyn std::error::Error>> {
    const BATCH: usize = 2000;
    let reservation = pool.reserve(1 << 20)?;
    let offset = reservation.extent().offset;
    let base = pool.set().address(offset);
    pool.set().prefault(offset, 1 << 20, remanent_pmem::Touch::Store, 1)?.join()?;
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
        let spread = comparison.ratio_spread();
        println!(
            "store + flush + fence of {bytes} B: seam {:.0} ns, written out {:.0} ns, ratio {:.3} ({:.3} to {:.3})",
            comparison.b.median(),
            comparison.a.median(),
            comparison.ratio(),
            spread.low,
            spread.high
        );
    }
    Ok(())
}

/// The same instructions without the seam.
mod raw {
    use std::arch::asm;

    /// Copies a record, writes its lines back and waits.
    pub(crate) fn persist(to: *mut u8, record: &[u8]) {
        // SAFETY: `to` is a place of the benchmark's own extent, with room for the record, and nobody else uses it.
        unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), to, record.len()) };
        for line in (0..record.len()).step_by(64) {
            // SAFETY: CLWB of a mapped byte; the program runs on CPUs that have it, which the caller's figures show.
            unsafe { asm!("clwb [{}]", in(reg) to.wrapping_add(line), options(nostack, preserves_flags)) };
        }
        // SAFETY: SFENCE is part of SSE, which every x86-64 CPU has.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }
}
