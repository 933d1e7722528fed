//! Opening a pool of 10,000 names.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use remanent_pmem::{Mapped, OpenMode, Pool, RedoBatch, RegionSpec};
use remanent_report::{Provenance, Samples};

use crate::{LAYOUT, Result, print};

const NAMES: usize = 10_000;
const ROUNDS: usize = 41;

/// Gives a pool its names, a hundred with each commit.
pub(crate) fn fill(pool: &Pool<Mapped>) -> Result {
    for hundred in 0..NAMES / 100 {
        let mut batch = RedoBatch::new();
        for i in 0..100 {
            let add = vec![pool.reserve(1000)?];
            let name = format!("experiment/{:05}", hundred * 100 + i);
            batch.put(&name, RegionSpec { kind: 1, meta: vec![7; 64], add, ..RegionSpec::default() });
        }
        pool.commit(batch)?;
    }
    Ok(())
}

/// Measures how long it takes to open it.
pub(crate) fn open(path: &Path, provenance: Provenance, out: &mut dyn Write) -> Result {
    for (mode, who) in [(OpenMode::Reader, "reader"), (OpenMode::Writer, "writer")] {
        let mut times_ms = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let pool = Pool::open(Mapped::new(), path, Some(LAYOUT), mode)?;
            times_ms.push(start.elapsed().as_secs_f64() * 1e3);
            assert_eq!(pool.info().names, NAMES);
            pool.close()?;
        }
        let samples = Samples::new(times_ms).ok_or("no finite sample")?;
        print::samples(out, &format!("open {NAMES} names, {who}"), "ms", provenance, &samples)?;
    }
    Ok(())
}
