//! Opening a pool of 10,000 names, and a store of 10,000 arrays.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use remanent_pmem::{Backing, Mapped, OpenMode, PartOptions, Pool, RedoBatch, RegionSpec};
use remanent_report::Samples;
use remanent_store::{Object, PersistOptions, Store};

use crate::scratch::Scratch;
use crate::{LAYOUT, Result, print};

const NAMES: usize = 10_000;
/// Names that are given with each commit.
const TOGETHER: usize = 100;
/// 1 KiB each.
const ARRAY: [f64; 128] = [0.5; 128];
const FILE_BYTES: u64 = 64 << 20;
const ROUNDS: usize = 41;

pub(crate) fn run(scratch: &Scratch, out: &mut dyn Write) -> Result {
    let path = scratch.file("names")?;
    let backing = fill_pool(&path)?;
    print::place(out, &path, &backing)?;
    measure(out, &format!("open {NAMES} names"), &backing, |mode| {
        let start = Instant::now();
        let pool = Pool::open(Mapped::new(), &path, Some(LAYOUT), mode)?;
        let elapsed_ms = start.elapsed().as_secs_f64() * 1e3;
        assert_eq!(pool.info().names, NAMES);
        pool.close()?;
        Ok(elapsed_ms)
    })?;
    let path = scratch.file("arrays")?;
    let backing = fill_store(&path)?;
    measure(out, &format!("open {NAMES} arrays of 1 KiB"), &backing, |mode| {
        let start = Instant::now();
        let store = Store::open(Mapped::new(), &path, mode)?;
        let elapsed_ms = start.elapsed().as_secs_f64() * 1e3;
        assert_eq!(store.info().names, NAMES);
        store.close()?;
        Ok(elapsed_ms)
    })
}

fn name(number: usize) -> String {
    format!("experiment/{number:05}")
}

fn fill_pool(path: &Path) -> std::result::Result<Backing, Box<dyn std::error::Error>> {
    let pool = Pool::create(Mapped::new(), path, LAYOUT, &PartOptions::single(FILE_BYTES))?;
    for first in (0..NAMES).step_by(TOGETHER) {
        let mut batch = RedoBatch::new();
        for number in first..first + TOGETHER {
            let add = vec![pool.reserve(1000)?];
            batch.put(&name(number), RegionSpec { kind: 1, meta: vec![7; 64], add, ..RegionSpec::default() });
        }
        pool.commit(batch)?;
    }
    let backing = pool.info().backing;
    pool.close()?;
    Ok(backing)
}

fn fill_store(path: &Path) -> std::result::Result<Backing, Box<dyn std::error::Error>> {
    let store = Store::create(Mapped::new(), path, &PartOptions::single(FILE_BYTES))?;
    for first in (0..NAMES).step_by(TOGETHER) {
        let mut transaction = store.transaction();
        for number in first..first + TOGETHER {
            transaction.put(&name(number), Object::array(&ARRAY, &[ARRAY.len() as u64])?);
        }
        transaction.commit(&PersistOptions::default())?;
    }
    let backing = store.info().backing;
    store.close()?;
    Ok(backing)
}

/// Opens as reader and as writer, each in turn many times.
fn measure(
    out: &mut dyn Write,
    what: &str,
    backing: &Backing,
    open_ms: impl Fn(OpenMode) -> std::result::Result<f64, Box<dyn std::error::Error>>,
) -> Result {
    for (mode, who) in [(OpenMode::Reader, "reader"), (OpenMode::Writer, "writer")] {
        let times_ms = (0..ROUNDS).map(|_| open_ms(mode)).collect::<std::result::Result<Vec<_>, _>>()?;
        let samples = Samples::new(times_ms).ok_or("no finite sample")?;
        print::samples(out, &format!("{what}, {who}"), "ms", print::provenance(backing), &samples)?;
    }
    Ok(())
}
