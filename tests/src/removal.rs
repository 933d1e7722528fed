//! A pool that is made at the second attempt, and removed.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crash::{Fault, Protocol, Sim};
use pmem::{Error, Layout, MIN_FILE_BYTES, Media, OpenMode, PartOptions, Pool, RedoBatch, RegionSpec, remove_pool};

const LAYOUT: Layout = Layout { name: "removal", version: 1 };
const NAME: &str = "a";

/// Operation 1 makes a striped pool of two parts with a name in it, operation 2 removes it. States 0 and 2 are no pool.
#[derive(Debug)]
pub struct MakeAndRemove;

fn path() -> &'static Path {
    Path::new("/pools/p")
}

/// All files of the pool, in the order in which they are removed.
fn files() -> [PathBuf; 3] {
    ["/pools/p.1", "/other/member", "/pools/p"].map(PathBuf::from)
}

fn make(sim: &Sim) -> Result<(), Error> {
    let options = PartOptions { more_files: vec![files()[1].clone()], ..PartOptions::single(MIN_FILE_BYTES) };
    let pool = Pool::create(sim.clone(), path(), LAYOUT, &options)?;
    pool.grow(None, &PartOptions::single(MIN_FILE_BYTES))?;
    let mut batch = RedoBatch::new();
    batch.put(NAME, RegionSpec { kind: 1, ..RegionSpec::default() });
    pool.commit(batch)?;
    pool.close()
}

impl Protocol for MakeAndRemove {
    fn workload(&self, sim: &Sim) {
        sim.started(1);
        sim.inject(Fault::WriteBack(0));
        assert!(matches!(make(sim), Err(Error::Io { .. })), "the injected failure");
        make(sim).expect("the fault is over");
        sim.acknowledged(1);
        sim.started(2);
        remove_pool(sim.clone(), path()).expect("nobody uses it");
        sim.acknowledged(2);
    }

    fn recover(&self, sim: &Sim, allowed: RangeInclusive<usize>) -> Result<usize, String> {
        let text = |e: Error| format!("{e} [{}]", e.code().name());
        match Pool::open(sim.clone(), path(), Some(LAYOUT), OpenMode::Writer) {
            Ok(pool) => {
                if *allowed.start() == 1 {
                    pool.region(NAME).map_err(text)?;
                }
                // It may be a pool without the name yet; then that is what it stays.
                pool.close().map_err(text)?;
                Ok(1)
            }
            Err(Error::NotFound { .. }) if allowed.contains(&0) => Ok(0),
            Err(Error::NotFound { .. }) => {
                sim.observed(2);
                let left = files().into_iter().find(|file| sim.exists(file).unwrap_or(true));
                left.map_or(Ok(2), |left| Err(format!("{} is left without its pool", left.display())))
            }
            Err(Error::MissingPart { .. }) if allowed.contains(&2) => {
                remove_pool(sim.clone(), path()).map_err(text)?;
                sim.observed(2);
                if sim.exists(path()).map_err(text)? {
                    return Err("the first file is left".into());
                }
                Ok(2)
            }
            Err(error) => Err(text(error)),
        }
    }
}
