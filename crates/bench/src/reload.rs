//! Whether a line is still in the cache when it has been written back: how long a load of it takes then.

use crate::chain::Cycle;
use crate::clock::Clock;
use crate::code::{self, Fence, Flush, Operation, Store};
use crate::crew;
use crate::error::{Error, Result};
use crate::measure::{Better, Cell, Key, Measure, Metric, Needs, Sample};
use crate::site::Site;

/// The measurement `reload`.
#[derive(Debug)]
pub struct Reload;

/// Lines that are stored to, written back and loaded again: half a first-level cache.
const LEN_BYTES: usize = 16 << 10;
/// How often in a sample.
const TURNS: usize = 32;

impl Measure for Reload {
    fn name(&self) -> &'static str {
        "reload"
    }

    fn about(&self) -> &'static str {
        "how long a load takes of a line that was stored to and written back"
    }

    fn keys(&self) -> &'static [Key] {
        const KEYS: [Key; 3] = [
            Key::MEMORY,
            Key { default: "4Ki", ..Key::PAGES },
            Key { name: "flush", about: "what has written the line back", form: Flush::FORM, default: "all" },
        ];
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 2] = [
            Metric { name: "latency", unit: "ns", better: Better::Less, about: "time of a dependent load" },
            Metric {
                name: "latency-ticks",
                unit: "ticks",
                better: Better::Less,
                about: "the same in ticks of the counter",
            },
        ];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        if let Some(name) = operation(cell).missing() {
            return Err(Error::unavailable(format!("this CPU has no {name}")));
        }
        Ok(Needs {
            memory_bytes: LEN_BYTES,
            threads: 1,
            written_bytes: (TURNS * LEN_BYTES) as u64,
            sample_ns: 2_000_000,
            ..Needs::default()
        })
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let clock = Clock::get();
        let operation = operation(cell);
        let mut cycle = Cycle::new(site.memory(cell)?, LEN_BYTES, LEN_BYTES, 1, seed);
        let _alone = crew::alone()?;
        let base = cycle.memory().base();
        let lines: Vec<*mut u8> = (0..LEN_BYTES / 64).map(|line| base.wrapping_add(64 * line)).collect();
        let (mut taken, mut steps) = (0, 0);
        for _ in 0..TURNS {
            cycle.touch();
            // SAFETY: lines of the memory, which the cycle has borrowed alone; nothing is stored, so the cycle stays.
            unsafe { code::sustained(operation, &lines) };
            code::wait();
            let (turn, of) = cycle.follow(lines.len());
            taken += turn.saturating_sub(clock.pair_ticks);
            steps += of;
        }
        let ticks = taken as f64 / steps as f64;
        let overhead = clock.pair_ticks as f64 * TURNS as f64 / taken.max(1) as f64;
        Ok(Sample { values: vec![Some(clock.ns(ticks)), Some(ticks)], overhead: Some(overhead), ..Sample::default() })
    }
}

fn operation(cell: &Cell) -> Operation {
    Operation { store: Store::Nothing, flush: Flush::named(cell.word("flush")), fence: Fence::None }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::Plan;

    #[test]
    fn every_write_back_that_there_is_is_followed_by_loads() {
        for cell in Plan::built_in("reload").unwrap().cells().unwrap() {
            if let Err(error) = Reload.needs(&cell) {
                println!("not run: {cell}: {error}");
                continue;
            }
            let sample = Reload.sample(&cell, &mut Site::new([&cell], Duration::ZERO).unwrap(), 1).unwrap();
            assert!(sample.values.iter().all(|value| value.unwrap() > 0.0) && sample.overhead.unwrap() > 0.0, "{cell}");
        }
    }

    #[test]
    fn a_write_back_that_this_cpu_has_not_is_refused() {
        let mut plan = Plan::built_in("reload").unwrap();
        plan.set("flush", if cfg!(target_arch = "aarch64") { "clwb" } else { "dc-cvac" }).unwrap();
        assert!(matches!(Reload.needs(&plan.cells().unwrap()[0]), Err(Error::Unavailable { .. })));
    }
}
