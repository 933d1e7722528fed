//! The measurement `join`.

use pmem::Granularity;

use crate::crew;
use crate::error::{Error, Result};
use crate::locks;
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Place;
use crate::site::Site;

use super::relations::MOST_ROWS;
use super::{Durable, DurableJoin, Ids, Input, Insert, Join, Keys, MOST_BITS, Method, Passes, Prefetch, Shape, Times};

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
/// Bytes of a partition of R and its chains when nothing else is said, at most: a half of 512 KiB, which is the smallest
/// second-level cache of the servers of the last years.
const PARTITION_BYTES: usize = 256 << 10;
/// Bytes of chains for each row: the number of the next one, and about one head.
const CHAIN_BYTES: usize = 8;
/// The exponent of zipf when nothing is said.
const THETA: &str = "0.99";
/// A sample that would take longer is refused: a run ends between two samples.
const MOST_SAMPLE_NS: u64 = 300_000_000_000;

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
        const ROWS: Form = Form::Count { least: 1, most: MOST_ROWS as u64 };
        const KEYS: [Key; 14] = [
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
                name: "build-threads",
                about: "threads that build, 0 for as many as probe",
                form: Form::Count { least: 0, most: 1024 },
                default: "0",
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
                name: "keys",
                about: "the keys of R: numbers without gaps, or without any order",
                form: Form::Choice(&Keys::NAMES),
                default: "dense",
            },
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
                default: THETA,
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
        const METRICS: [Metric; 5] = [
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
                about: "million rows of R a second that are inserted, partitioning them included",
            },
            Metric {
                name: "probe",
                unit: "M/s",
                better: Better::More,
                about: "million rows of S a second that are looked up, partitioning them included",
            },
            Metric { name: "build-time", unit: "ms", better: Better::Less, about: "time of the build, as above" },
            Metric { name: "partition", unit: "ms", better: Better::Less, about: "time of partitioning R and S" },
        ];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        let (input, way) = (input(cell), way(cell));
        check_keys(cell, &way)?;
        let sample_ns = a_sample_ns(cell, &way);
        let needs =
            Needs { threads: cell.len("threads").max(cell.len("build-threads")), sample_ns, ..Needs::default() };
        let needs = match (way, cell.memory()) {
            (Way::Durable(join), Some(Place::Modelled(_, 1))) => {
                join.check_profile(cell.device().expect("it is modelled"))?;
                needs
            }
            (_, Some(Place::Modelled(_, 2..))) => {
                return Err(Error::unavailable("a pool on several modelled devices is not modelled".into()));
            }
            (Way::Volatile(_), Some(Place::Modelled(..))) => {
                let method = cell.word("method");
                let what = format!("{method} waits for no write: of a device only its writes are modelled");
                return Err(Error::unavailable(what));
            }
            (Way::Durable(_), place) if !matches!(place, Some(Place::Folder(_))) => {
                return Err(Error::unavailable(format!("{} needs a folder for its pool", cell.word("method"))));
            }
            (Way::Durable(join), _) => Needs { written_bytes: join.table_bytes(&input), ..needs },
            (Way::Volatile(join), _) => {
                if let Method::Radix(passes) = join.method {
                    passes.check(input.r_rows)?;
                }
                let memory_bytes = join.len_bytes(&input);
                Needs { memory_bytes, written_bytes: memory_bytes as u64, ..needs }
            }
        };
        if sample_ns > MOST_SAMPLE_NS {
            let (s, most_s) = (sample_ns / 1_000_000_000, MOST_SAMPLE_NS / 1_000_000_000);
            let what = format!("a sample would take about {s} s, and takes at most {most_s}: ask for fewer rows");
            return Err(Error::unavailable(what));
        }
        Ok(needs)
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
                return Ok(Sample { values: vec![None, Some(build), None, Some(ms), None], ..Sample::default() });
            }
            (Way::Durable(_), _) => return Err(Error::unavailable("a durable join needs a folder".into())),
            (Way::Volatile(join), _) => {
                let memory = site.memory(cell)?;
                memory.filled_bytes = 0;
                join.run(&relations, memory)?
            }
        };
        let (whole, build, probe) = (times.whole_per_second(), times.build_per_second(), times.probe_per_second());
        let ms = |ns: u64| Some(ns as f64 / 1e6);
        let partition = ms(times.partition_r_ns + times.partition_s_ns).filter(|ms| *ms > 0.0);
        let rates = [whole, build, probe].map(|rate| Some(rate / 1e6));
        let values = rates.into_iter().chain([ms(times.whole_build_ns()), partition]).collect();
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
    let (shape, keys) = (Shape::named(cell.word("shape")), Keys::named(cell.word("keys")));
    // One input for all samples: what differs between them is not what is joined.
    let (r_rows, s_rows) = (cell.len("r"), cell.len("s"));
    Input { r_rows, s_rows, shape, keys, ids, matching: cell.real("matching"), seed: 1 }
}

fn build_threads(cell: &Cell) -> usize {
    match cell.len("build-threads") {
        0 => cell.len("threads"),
        threads => threads,
    }
}

/// # Errors
/// `Unavailable` when a key says what its method or its ids have no use for, so that cells that differ in nothing else would be the
/// same, or a lock is wanted by more threads than there are CPUs that goes to one certain thread. Threads that build may be as many
/// as probe by either of two words, and pages are what a place has.
fn check_keys(cell: &Cell, way: &Way) -> Result<()> {
    let (method, threads, build) = (cell.word("method"), cell.len("threads"), build_threads(cell));
    let cpus = crew::cpus().len();
    let is_radix = matches!(way, Way::Volatile(Join { method: Method::Radix(_), .. }));
    let is_zipf = cell.word("ids") == "zipf";
    let refused = match way {
        _ if !is_zipf && cell.real("theta") != THETA.parse::<f64>().expect("a number") => {
            format!("ids that are drawn '{}' have no exponent, and no use for 'theta'", cell.word("ids"))
        }
        _ if cell.number("bits") > 0 && !is_radix => format!("{method} has no radix, and no use for 'bits'"),
        _ if build != threads && is_radix => {
            format!(
                "{method} is built and probed by the same threads, partition by partition, not by {build} and {threads}"
            )
        }
        Way::Durable(_) if cell.word("prefetch") != "none" => format!("{method} asks for no lines ahead"),
        _ if cell.word("prefetch") != "none" && is_radix => {
            format!("{method} asks for no lines ahead: its partitions are in a cache")
        }
        Way::Volatile(Join { method: Method::Chained(Insert::Giant(kind)), .. })
            if kind.is_handed_on() && build > cpus =>
        {
            format!(
                "{method} hands its lock to a thread that may not run: with {build} on {cpus} CPUs each row may wait for a time slice"
            )
        }
        _ => return Ok(()),
    };
    Err(Error::unavailable(refused))
}

/// How long a sample takes, about: of rows some ten million a second by each thread that has a CPU, of a lock that several want a
/// third as many by all together, and durable rows as long as what they wait for.
fn a_sample_ns(cell: &Cell, way: &Way) -> u64 {
    const ROW_NS: u64 = 100;
    let (r, s) = (cell.number("r"), cell.number("s"));
    let shared = |rows: u64, threads: usize| ROW_NS * rows / threads.min(crew::cpus().len()) as u64;
    let (build, probe) = (build_threads(cell), shared(s, cell.len("threads")));
    let built = match way {
        Way::Volatile(Join { method: Method::Chained(Insert::Giant(_)), .. }) if build > 1 => 3 * ROW_NS * r,
        Way::Volatile(_) => shared(r, build),
        Way::Durable(join) => {
            let row_bytes = 8 * (2 + input(cell).shape.words().0 as u64);
            let waits = match join.durable {
                Durable::EachRow => 2 * r,
                Durable::Blocks => 2 * r.div_ceil((256 / row_bytes).max(1)),
            };
            // Threads may have to wait for the same device.
            ROW_NS * r + waits * a_wait_ns(cell)
        }
    };
    built + probe
}

/// How long what was written is waited for, about.
fn a_wait_ns(cell: &Cell) -> u64 {
    match cell.memory() {
        // Pages are written back by the kernel.
        Some(Place::Folder(folder)) => match pmem::Mapped::new().probe(&folder) {
            Ok(found) if found.backing.granularity == Granularity::Page => 100_000,
            _ => 500,
        },
        _ => 500,
    }
}

/// Bits of a radix whose partitions of R, with their chains, are no larger than [`PARTITION_BYTES`].
fn enough_bits(input: &Input) -> u32 {
    let row_bytes = 8 * (1 + input.shape.words().0) + CHAIN_BYTES;
    let partitions = (input.r_rows * row_bytes).div_ceil(PARTITION_BYTES).next_power_of_two();
    partitions.ilog2().min(input.r_rows.next_power_of_two().ilog2())
}

fn way(cell: &Cell) -> Way {
    let (build_threads, probe_threads) = (build_threads(cell), cell.len("threads"));
    let durable = |durable| Way::Durable(DurableJoin { durable, build_threads, probe_threads });
    // What is asked for is refused where it cannot be, and not made less.
    let bits = |most: u32| match cell.number("bits") as u32 {
        0 => enough_bits(&input(cell)).min(most),
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
        "radix-1" => Method::Radix(Passes::One(bits(MOST_BITS))),
        "radix-2" => {
            let bits = bits(2 * MOST_BITS);
            Method::Radix(Passes::Two(bits.div_ceil(2), bits / 2))
        }
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
    Way::Volatile(Join { method, build_threads, probe_threads, build_prefetch: prefetch, probe_prefetch: prefetch })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::locks::Kind;
    use crate::plan::Plan;

    fn cells(keys: &[(&str, &str)]) -> Vec<Cell> {
        let mut plan = Plan::built_in("join").unwrap();
        keys.iter().for_each(|(key, text)| plan.set(key, text).unwrap());
        plan.cells().unwrap()
    }

    /// What nothing says that it cannot be is measured, and the rest is told.
    #[test]
    fn every_method_is_measured_where_it_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let memory = format!("dram,{},model:optane-100-dimm", folder.path().display());
        let keys = [("memory", memory.as_str()), ("method", "all"), ("r", "100"), ("s", "300")];
        let keys = [&keys[..], &[("threads", "1,2"), ("prefetch", "none,ahead-8"), ("keys", "all")]].concat();
        for cell in cells(&keys) {
            let (is_durable, is_modelled) = (cell.word("method").starts_with("durable"), cell.device().is_some());
            let looks_ahead = cell.word("prefetch") != "none";
            let has_no_use = looks_ahead && (is_durable || cell.word("method").starts_with("radix"));
            let can_be = match (is_durable, is_modelled) {
                (true, true) => cell.number("threads") == 1,
                (false, true) => false,
                (true, false) => cell.word("memory") != "dram",
                (false, false) => Kind::ALL.iter().all(|kind| {
                    !kind.is_handed_on()
                        || cell.len("threads") <= crew::cpus().len()
                        || cell.word("method") != format!("giant-{}", kind.name())
                }),
            };
            match Joins.needs(&cell) {
                Err(error) => assert!(!can_be || has_no_use, "{cell}: {error}"),
                Ok(needs) => {
                    assert!(can_be && !has_no_use && needs.sample_ns > 0, "{cell}");
                    let mut site = Site::new([&cell], Duration::ZERO).unwrap();
                    let sample = Joins.sample(&cell, &mut site, 1).unwrap();
                    let told = sample.values.iter().flatten();
                    assert!(told.clone().all(|value| *value > 0.0), "{cell}");
                    let is_radix = cell.word("method").starts_with("radix");
                    assert_eq!(told.count(), if is_modelled { 2 } else { 4 + usize::from(is_radix) }, "{cell}");
                }
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    fn refused(keys: &[(&str, &str)]) -> String {
        Joins.needs(&cells(keys)[0]).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_or_has_no_meaning_is_refused() {
        assert!(refused(&[("method", "radix-1"), ("bits", "15")]).contains("at most 14 bits"));
        assert!(refused(&[("method", "radix-2"), ("bits", "28"), ("r", "100")]).contains("it has at most 7"));
        assert!(refused(&[("method", "linear"), ("bits", "5")]).contains("no use for 'bits'"));
        for ids in ["evenly", "uniform"] {
            assert!(refused(&[("ids", ids), ("theta", "0.5")]).contains("no use for 'theta'"));
            assert!(Joins.needs(&cells(&[("ids", ids), ("theta", "0.99")])[0]).is_ok());
        }
        assert!(Joins.needs(&cells(&[("ids", "zipf"), ("theta", "0.5")])[0]).is_ok());
        let more = Plan::built_in("join").unwrap().set("r", "2147483649").unwrap_err().to_string();
        assert!(more.contains("is not between 1 and 2147483648"), "numbers of rows have 32 bits: {more}");
        assert!(refused(&[("method", "radix-2"), ("build-threads", "2")]).contains("the same threads"));
        let many = (crew::cpus().len() + 1).to_string();
        for method in ["giant-ticket", "giant-mcs"] {
            assert!(refused(&[("method", method), ("threads", &many)]).contains("may not run"));
            assert!(Joins.needs(&cells(&[("method", method)])[0]).is_ok());
            let probed = [("method", method), ("threads", &*many), ("build-threads", "1")];
            assert!(Joins.needs(&cells(&probed)[0]).is_ok(), "probes need no lock");
        }
        assert!(refused(&[("method", "giant-tas"), ("threads", "2"), ("r", "2Gi")]).contains("ask for fewer rows"));
    }

    #[test]
    fn a_radix_is_as_wide_as_its_rows_ask_for_and_never_wider_than_can_be() {
        let passes = |method: &str, r: &str, shape: &str| match way(&cells(&[
            ("method", method),
            ("r", r),
            ("shape", shape),
        ])[0])
        {
            Way::Volatile(Join { method: Method::Radix(passes), .. }) => passes,
            _ => panic!("{method}"),
        };
        assert_eq!(passes("radix-1", "16Mi", "narrow"), Passes::One(11));
        assert_eq!(passes("radix-1", "1Mi", "yoshioka"), Passes::One(7));
        assert_eq!(passes("radix-1", "1Mi", "payload-128"), Passes::One(10));
        assert_eq!(passes("radix-1", "1Gi", "yoshioka"), Passes::One(MOST_BITS));
        assert_eq!(passes("radix-2", "1Gi", "yoshioka"), Passes::Two(9, 8));
        assert_eq!(passes("radix-2", "1", "yoshioka"), Passes::Two(0, 0));
    }

    #[test]
    fn a_method_is_called_what_plans_call_it() {
        for cell in cells(&[("method", "all")]) {
            match way(&cell) {
                Way::Volatile(join) => assert_eq!(join.method.name(), cell.word("method")),
                Way::Durable(_) => assert!(cell.word("method").starts_with("durable-")),
            }
        }
    }

    #[test]
    fn the_plans_that_come_with_the_program_ask_for_joins_that_can_be() {
        for (name, _) in crate::plan::BUILT_IN {
            for cell in Plan::built_in(name).unwrap().cells().unwrap().iter().filter(|cell| cell.measure == "join") {
                let (needs, method) = (Joins.needs(cell), cell.word("method"));
                let has_no_use = cell.word("prefetch") != "none" && method.starts_with("radix");
                assert!(needs.is_ok() != (method.starts_with("durable") || has_no_use), "{name}: {cell}: {needs:?}");
            }
        }
    }

    #[test]
    fn a_table_is_built_by_other_threads_than_it_is_probed_by() {
        match way(&cells(&[("method", "linear"), ("threads", "64"), ("build-threads", "2")])[0]) {
            Way::Volatile(join) => assert_eq!((join.build_threads, join.probe_threads), (2, 64)),
            Way::Durable(_) => panic!("it is not durable"),
        }
    }
}
