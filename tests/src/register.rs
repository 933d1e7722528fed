//! The smallest durable protocol: a register of 16 words that always hold the same number, kept in a double cell.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use crash::{Protocol, Sim};
use pmem::{Granularity, Media, MediaFile, MediaMap, OpenMode, Stripe};

const WORDS: u64 = 16;
const SLOTS: [u64; 2] = [0, 4096];
const FILE_BYTES: u64 = 8192;

/// A register that is written from 1 to `writes`.
pub struct Register {
    /// How often it is written.
    pub writes: usize,
    /// Leaves out the fence between the slots, which only the simulator can notice.
    pub forgetful: bool,
}

fn path() -> &'static Path {
    Path::new("/register")
}

impl Register {
    fn write(&self, sim: &Sim, map: &impl MediaMap, value: u64) {
        for at in SLOTS {
            for word in 0..WORDS {
                map.store_u64(at + word * 8, value);
            }
            map.flush(at, WORDS * 8);
            if self.forgetful && at == SLOTS[0] {
                continue;
            }
            sim.fence();
            if sim.granularity() == Granularity::Page {
                map.sync_range(at, WORDS * 8).expect("no fault is injected");
            }
        }
    }
}

/// The value of a slot, if all its words agree.
fn slot(map: &impl MediaMap, at: u64) -> Option<u64> {
    let first = map.load_u64(at);
    (1..WORDS).all(|word| map.load_u64(at + word * 8) == first).then_some(first)
}

impl Protocol for Register {
    fn workload(&self, sim: &Sim) {
        let file = Arc::new(sim.create(path(), FILE_BYTES).expect("a new file"));
        file.fsync().expect("no fault is injected");
        sim.sync_dir(path()).expect("no fault is injected");
        sim.started(1);
        sim.acknowledged(1);
        let map = sim.map(&[file], Stripe::SINGLE, OpenMode::Writer).expect("a file that was just made");
        for value in 1..=self.writes {
            sim.started(value + 1);
            self.write(sim, &map, value as u64);
            sim.acknowledged(value + 1);
        }
    }

    fn recover(&self, sim: &Sim, _allowed: RangeInclusive<usize>) -> Result<usize, String> {
        if !sim.exists(path()).map_err(|e| e.to_string())? {
            return Ok(0);
        }
        let file = Arc::new(sim.open(path(), OpenMode::Writer).map_err(|e| e.to_string())?);
        if file.len_bytes().map_err(|e| e.to_string())? < FILE_BYTES {
            return Ok(0);
        }
        let map = sim.map(&[file], Stripe::SINGLE, OpenMode::Writer).map_err(|e| e.to_string())?;
        let value = slot(&map, SLOTS[0]).max(slot(&map, SLOTS[1])).ok_or("both slots are torn")?;
        if value == 0 {
            return Ok(1);
        }
        self.write(sim, &map, value);
        sim.observed(value as usize + 1);
        Ok(value as usize + 1)
    }

    /// An empty file and none say the same.
    fn same(&self, a: usize, b: usize) -> bool {
        a.max(1) == b.max(1)
    }
}
