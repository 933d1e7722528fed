//! The measurement `locks`.

use std::collections::BTreeMap;

use super::{Contention, Kind};
use crate::clock::Clock;
use crate::crew;
use crate::error::Result;
use crate::latency::told;
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::site::Site;

/// The measurement `locks`.
#[derive(Debug)]
pub struct Locks;

impl Measure for Locks {
    fn name(&self) -> &'static str {
        "locks"
    }

    fn about(&self) -> &'static str {
        "how often threads get a lock, how evenly, and how long it takes from one to the next"
    }

    fn keys(&self) -> &'static [Key] {
        const KEYS: [Key; 5] = [
            Key { name: "lock", about: "the kind of lock", form: Form::Choice(&Kind::NAMES), default: "all" },
            Key { default: "1:*2:cpus", ..Key::THREADS },
            Key {
                name: "locks",
                about: "locks, of which a random one is wanted each time",
                form: Form::Count { least: 1, most: 1 << 20 },
                default: "1",
            },
            Key {
                name: "inside",
                about: "nanoseconds of work with the lock held",
                form: Form::Count { least: 0, most: 1_000_000 },
                default: "20",
            },
            Key {
                name: "outside",
                about: "nanoseconds of work between two locks",
                form: Form::Count { least: 0, most: 1_000_000 },
                default: "50",
            },
        ];
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 4] = [
            Metric {
                name: "rate",
                unit: "M/s",
                better: Better::More,
                about: "million acquisitions a second of all threads",
            },
            Metric {
                name: "hand-off",
                unit: "ns",
                better: Better::Less,
                about: "median time from a release to the next acquisition, by another thread that was waiting",
            },
            Metric {
                name: "fairness",
                unit: "",
                better: Better::More,
                about: "Jain's index of the threads' acquisitions: 1 when all have as many",
            },
            Metric {
                name: "hand-off-ticks",
                unit: "ticks",
                better: Better::Less,
                about: "time of a hand-off in ticks of the counter",
            },
        ];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        Ok(Needs { threads: cell.len("threads"), ..Needs::default() })
    }

    fn clock_steps(&self, _cell: &Cell, metric: &str) -> f64 {
        if ["hand-off", "hand-off-ticks"].contains(&metric) { 1.0 } else { 0.0 }
    }

    /// The overhead is that of throughput. Half of the time goes to either: throughput with no clock inside, and hand-offs with it.
    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let contention = Contention {
            kind: Kind::named(cell.word("lock")),
            threads: cell.len("threads"),
            locks: cell.len("locks"),
            inside_ns: cell.number("inside") as u32,
            outside_ns: cell.number("outside") as u32,
        };
        let shares = contention.run(site.sample_time / 2, seed)?;
        let ticks = match contention.threads {
            1 => BTreeMap::new(),
            _ => contention.hand_offs(site.sample_time / 2, seed)?,
        };
        let clock = Clock::get();
        let hand_off = told(clock, &ticks);
        let per_second = shares.per_second();
        // Of the time of all threads that have a CPU.
        let at_a_time = contention.threads.min(crew::cpus().len());
        let overhead = per_second * Contention::turn_ns() / 1e9 / at_a_time as f64;
        // Where no turn has ended in the window there is nothing to tell.
        let told = |value: f64| (per_second > 0.0).then_some(value);
        let hand_off_ns = hand_off.map(|ticks| clock.ns(ticks));
        let values = vec![told(per_second / 1e6), hand_off_ns, told(shares.fairness()), hand_off];
        Ok(Sample { values, ticks, overhead: Some(overhead) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::Plan;

    #[test]
    fn every_lock_is_measured_alone_and_wanted_by_two() {
        let mut plan = Plan::built_in("locks").unwrap();
        plan.set("threads", "1,2").unwrap();
        for cell in plan.cells().unwrap() {
            let mut site = Site::new([&cell], Duration::from_millis(2)).unwrap();
            let sample = Locks.sample(&cell, &mut site, 1).unwrap();
            // On a busy machine a window may close before a thread has had its CPU.
            assert!(sample.values[0].is_none_or(|rate| rate > 0.0 && sample.overhead.unwrap() > 0.0), "{cell}");
            assert!(sample.values[1].is_none_or(|ns| ns >= 0.0), "{cell}");
            assert_eq!(sample.values[3].map(|ticks| Clock::get().ns(ticks)), sample.values[1], "{cell}");
            let is_alone = cell.number("threads") == 1;
            assert!(!is_alone || sample.values[1].is_none(), "{cell}");
            assert!(!is_alone || sample.values[2].is_none_or(|fairness| fairness == 1.0), "{cell}");
        }
    }
}
