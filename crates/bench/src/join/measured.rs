//! The measurement `join`.

use crate::error::{Error, Result};
use crate::locks;
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Place;
use crate::site::Site;

use super::{Durable, DurableJoin, Ids, Input, Insert, Join, MOST_BITS, Method, Passes, Prefetch, Shape, Times};

/// The measurement `join`.
#[derive(Debug)]
pub struct Joins;

const METHODS: [&str; 17] = [
    "giant-pthread-spin",
    "giant-pthread-mutex",
    "giant-tas",
    "giant-aaf",
    "giant-ttas",
    "giant-ticket",
    "giant-mcs",
    "giant-bit",
    "bit-lock",
    "latch-free",
    "tagged",
    "linear",
    "bucket-chained",
    "radix-1",
    "radix-2",
    "durable-row",
    "durable-block",
];
const PREFETCHES: [&str; 7] = ["none", "group-8", "group-16", "group-32", "ahead-8", "ahead-16", "ahead-32"];
/// Rows of R for each partition when nothing else is said: they fit into a second-level cache.
const PARTITION_ROWS: usize = 8192;

/// A cell's method.
enum Way {
    Volatile(Join),
    Durable(DurableJoin),
}

impl Measure for Joins {
    fn name(&self) -> &'static str {
        "join"
    }

    fn about(&self) -> &'static str {
        "how many rows a second a hash join builds its table of, and looks up"
    }

    fn keys(&self) -> &'static [Key] {
        const ROWS: Form = Form::Count { least: 1, most: 1 << 32 };
        const KEYS: [Key; 12] = [
            Key::MEMORY,
            Key::PAGES,
            Key {
                name: "method",
                about: "the table and what keeps its builders apart",
                form: Form::Choice(&METHODS),
                default: "latch-free",
            },
            Key {
                name: "threads",
                about: "threads that build, and that probe",
                form: Form::Count { least: 1, most: 1024 },
                default: "1",
            },
            Key {
                name: "prefetch",
                about: "how build and probe ask for lines ahead",
                form: Form::Choice(&PREFETCHES),
                default: "none",
            },
            Key { name: "r", about: "rows of R, which the table is built of", form: ROWS, default: "1Mi" },
            Key { name: "s", about: "rows of S, which are looked up", form: ROWS, default: "4Mi" },
            Key { name: "shape", about: "how wide rows are", form: Form::Choice(&Shape::NAMES), default: "yoshioka" },
            Key {
                name: "ids",
                about: "which rows of R those of S refer to",
                form: Form::Choice(&["evenly", "uniform", "zipf"]),
                default: "uniform",
            },
            Key {
                name: "theta",
                about: "the exponent of zipf",
                form: Form::Real { least: 0.0, most: 5.0 },
                default: "0.99",
            },
            Key {
                name: "matching",
                about: "the share of S's rows that refer to a row of R",
                form: Form::Real { least: 0.0, most: 1.0 },
                default: "1",
            },
            Key {
                name: "bits",
                about: "bits of a radix, 0 for what the rows suggest",
                form: Form::Count { least: 0, most: 2 * MOST_BITS as u64 },
                default: "0",
            },
        ];
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 4] = [
            Metric {
                name: "whole",
                unit: "M/s",
                better: Better::More,
                about: "million rows of R and S a second, partitioning, build and probe",
            },
            Metric {
                name: "build",
                unit: "M/s",
                better: Better::More,
                about: "million rows of R a second that are inserted",
            },
            Metric {
                name: "probe",
                unit: "M/s",
                better: Better::More,
                about: "million rows of S a second that are looked up",
            },
            Metric { name: "build-time", unit: "ms", better: Better::Less, about: "time of the build" },
        ];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        let (input, threads) = (input(cell), cell.len("threads"));
        // As if ten million rows were built and looked up in a second.
        let sample_ns = 100 * (input.r_rows + input.s_rows) as u64;
        let needs = Needs { threads, sample_ns, ..Needs::default() };
        match (way(cell), cell.memory()) {
            (Way::Durable(join), Some(Place::Modelled(_, 1))) => {
                join.check_profile(cell.device().expect("it is modelled"))?;
                Ok(needs)
            }
            (_, Some(Place::Modelled(_, 2..))) => {
                Err(Error::unavailable("a pool on several modelled devices is not modelled".into()))
            }
            (Way::Volatile(_), Some(Place::Modelled(..))) => {
                let method = cell.word("method");
                Err(Error::unavailable(format!(
                    "{method} waits for no write: of a device only its writes are modelled"
                )))
            }
            (Way::Durable(_), place) if !matches!(place, Some(Place::Folder(_))) => {
                Err(Error::unavailable(format!("{} needs a folder for its pool", cell.word("method"))))
            }
            (Way::Durable(join), _) => Ok(Needs { written_bytes: join.table_bytes(&input), ..needs }),
            (Way::Volatile(join), _) => {
                if let Method::Radix(passes) = join.method
                    && !passes.is_possible()
                {
                    return Err(Error::unavailable(format!("a pass of a radix has at most {MOST_BITS} bits")));
                }
                let memory_bytes = join.len_bytes(&input);
                Ok(Needs { memory_bytes, written_bytes: memory_bytes as u64, ..needs })
            }
        }
    }

    fn waits_for_devices(&self) -> bool {
        true
    }

    fn sample(&self, cell: &Cell, site: &mut Site, _seed: u64) -> Result<Sample> {
        let relations = site.relations(&input(cell))?;
        let times: Times = match (way(cell), cell.memory()) {
            (Way::Durable(join), Some(Place::Folder(folder))) => join.run(&relations, &folder)?,
            (Way::Durable(join), Some(Place::Modelled(..))) => {
                let times = join.run_modelled(&relations, cell.device().expect("it is modelled"))?;
                let (build, ms) = (times.build_per_second() / 1e6, times.build_ns as f64 / 1e6);
                // Looking rows up takes what it does in main memory.
                return Ok(Sample { values: vec![None, Some(build), None, Some(ms)], ..Sample::default() });
            }
            (Way::Durable(_), _) => return Err(Error::unavailable("a durable join needs a folder".into())),
            (Way::Volatile(join), _) => {
                let memory = site.memory(cell)?;
                memory.filled_bytes = 0;
                join.run(&relations, memory)?
            }
        };
        let (whole, build, probe) = (times.whole_per_second(), times.build_per_second(), times.probe_per_second());
        let values = vec![Some(whole / 1e6), Some(build / 1e6), Some(probe / 1e6), Some(times.build_ns as f64 / 1e6)];
        Ok(Sample { values, ..Sample::default() })
    }
}

/// What a cell takes beside its memory: bytes of relations, which are in ordinary memory, and of the pool in its folder, or in
/// ordinary memory where its device is modelled.
pub fn beside(cell: &Cell) -> (u64, u64) {
    let input = input(cell);
    let pool_bytes = match way(cell) {
        Way::Durable(join) => join.pool_bytes(&input),
        Way::Volatile(_) => 0,
    };
    (input.len_bytes(), pool_bytes)
}

fn input(cell: &Cell) -> Input {
    let ids = match cell.word("ids") {
        "evenly" => Ids::Evenly,
        "zipf" => Ids::Zipf(cell.real("theta")),
        _ => Ids::Uniform,
    };
    // One input for all samples: what differs between them is not what is joined.
    let (r_rows, s_rows) = (cell.len("r"), cell.len("s"));
    Input { r_rows, s_rows, shape: Shape::named(cell.word("shape")), ids, matching: cell.real("matching"), seed: 1 }
}

fn way(cell: &Cell) -> Way {
    let threads = cell.len("threads");
    let durable = |durable| Way::Durable(DurableJoin { durable, build_threads: threads, probe_threads: threads });
    let bits = match cell.number("bits") as u32 {
        0 => (cell.len("r") / PARTITION_ROWS).max(1).ilog2(),
        bits => bits,
    };
    let method = match cell.word("method") {
        "durable-row" => return durable(Durable::EachRow),
        "durable-block" => return durable(Durable::Blocks),
        "bit-lock" => Method::Chained(Insert::BitLock),
        "latch-free" => Method::Chained(Insert::LatchFree),
        "tagged" => Method::Tagged,
        "linear" => Method::Linear,
        "bucket-chained" => Method::BucketChained,
        "radix-1" => Method::Radix(Passes::One(bits)),
        "radix-2" => Method::Radix(Passes::Two(bits.div_ceil(2), bits / 2)),
        giant => {
            let kind = giant.strip_prefix("giant-").expect("the plan was checked");
            Method::Chained(Insert::Giant(locks::Kind::named(kind)))
        }
    };
    let rows = |text: &str| text.parse().expect("the names above have numbers");
    let prefetch = match cell.word("prefetch").split_once('-') {
        Some(("group", number)) => Prefetch::Group(rows(number)),
        Some((_, number)) => Prefetch::Ahead(rows(number)),
        None => Prefetch::None,
    };
    Way::Volatile(Join {
        method,
        build_threads: threads,
        probe_threads: threads,
        build_prefetch: prefetch,
        probe_prefetch: prefetch,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::Plan;

    #[test]
    fn every_method_is_measured_where_it_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = Plan::built_in("join").unwrap();
        let memory = format!("dram,{},model:optane-100-dimm", folder.path().display());
        for (key, text) in [
            ("memory", memory.as_str()),
            ("method", "all"),
            ("r", "100"),
            ("s", "300"),
            ("threads", "2"),
            ("prefetch", "none,ahead-8"),
        ] {
            plan.set(key, text).unwrap();
        }
        for cell in plan.cells().unwrap() {
            let is_durable = cell.word("method").starts_with("durable");
            match Joins.needs(&cell) {
                Err(error) if cell.device().is_some() => assert!(!is_durable, "{cell}: {error}"),
                Err(error) => assert!(is_durable && cell.word("memory") == "dram", "{cell}: {error}"),
                Ok(_) => {
                    let mut site = Site::new([&cell], Duration::ZERO).unwrap();
                    let sample = Joins.sample(&cell, &mut site, 1).unwrap();
                    let told = sample.values.iter().flatten();
                    assert!(told.clone().all(|value| *value > 0.0), "{cell}");
                    assert_eq!(told.count(), if cell.device().is_some() { 2 } else { 4 }, "{cell}");
                }
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_radix_that_cannot_be_is_refused() {
        let mut plan = Plan::built_in("join").unwrap();
        plan.set("method", "radix-1").unwrap();
        plan.set("bits", "15").unwrap();
        assert!(Joins.needs(&plan.cells().unwrap()[0]).is_err());
    }
}
