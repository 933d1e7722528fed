//! Two kinds of traffic at a time, each by its own threads: what either leaves of the other.

use pmem::DeviceProfile;

use crate::code::{Access, Fence, Width};
use crate::crew::{self, Done};
use crate::error::{Error, Result};
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Memory;
use crate::model;
use crate::site::Site;
use crate::stream::{self, Kind, Stream};

/// The measurement `mixed`.
#[derive(Debug)]
pub struct Mixed;

/// Bytes between two looks at whether the time is over.
const TURN_BYTES: usize = 1 << 20;

const fn block(name: &'static str, about: &'static str) -> Key {
    Key { name, about, form: Form::Bytes { multiple_of: 64 }, default: "4Ki" }
}

const fn threads(name: &'static str, about: &'static str) -> Key {
    Key { name, about, form: Form::Count { least: 0, most: 512 }, default: "1" }
}

impl Measure for Mixed {
    fn name(&self) -> &'static str {
        "mixed"
    }

    fn about(&self) -> &'static str {
        "how many bytes a second two kinds of traffic move at a time"
    }

    fn keys(&self) -> &'static [Key] {
        const KEYS: [Key; 10] = [
            Key::MEMORY,
            Key::PAGES,
            Key {
                name: "size",
                about: "bytes of the working set of either",
                form: Form::Bytes { multiple_of: 64 },
                default: "256Mi",
            },
            Key { name: "order", about: "the order of the blocks of both", form: Form::Order, default: "sequential" },
            Key { name: "first", about: "what the first threads do", form: Access::FORM, default: "load" },
            block("first-block", "bytes of their blocks"),
            threads("first-threads", "how many they are"),
            Key {
                name: "second",
                about: "what the second threads do",
                form: Access::FORM,
                default: Access::PAST_CACHE.name(),
            },
            block("second-block", "bytes of their blocks"),
            threads("second-threads", "how many they are"),
        ];
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 3] = [
            Metric { name: "both", unit: "GB/s", better: Better::More, about: "10^9 bytes a second of all threads" },
            Metric {
                name: "first",
                unit: "GB/s",
                better: Better::More,
                about: "10^9 bytes a second of the first threads",
            },
            Metric {
                name: "second",
                unit: "GB/s",
                better: Better::More,
                about: "10^9 bytes a second of the second threads",
            },
        ];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        let len_bytes = cell.len("size");
        for which in ["first", "second"] {
            let kind = kind(cell, which);
            kind.check()?;
            let threads = cell.len(&format!("{which}-threads"));
            if len_bytes / threads.max(1) < kind.block_bytes {
                return Err(Error::unavailable(format!(
                    "{len_bytes} bytes for {threads} threads in blocks of {}",
                    kind.block_bytes
                )));
            }
        }
        let threads = cell.number("first-threads") + cell.number("second-threads");
        if threads == 0 {
            return Err(Error::unavailable("nobody is there who would do anything".into()));
        }
        let writes_gb_s = 10.0 * threads as f64;
        let written_bytes = 2 * len_bytes as u64;
        Ok(Needs { memory_bytes: 2 * len_bytes, threads: threads as usize, written_bytes, writes_gb_s, sample_ns: 0 })
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let (len_bytes, time) = (cell.len("size"), site.sample_time);
        let memory = site.memory(cell)?;
        stream::fill(memory, 2 * len_bytes);
        let mut streams = streams(memory, cell, "first", 0, seed);
        let firsts = streams.len();
        streams.extend(self::streams(memory, cell, "second", len_bytes, seed ^ 1));
        let done = crew::work_together(streams.iter_mut().map(|stream| || stream.turn()).collect(), time)?;
        if !streams.iter().all(Stream::is_right) {
            return Err(Error::Wrong { what: stream::MOVED });
        }
        Ok(Sample { overhead: Some(stream::overhead(&streams, &done)?), ..values(&done, firsts) })
    }

    fn model(&self, cell: &Cell, device: &'static DeviceProfile, seed: u64) -> Result<Sample> {
        let programs = |which: &str, from_bytes: usize, seed: u64| {
            let (kind, threads) = (kind(cell, which), cell.len(&format!("{which}-threads")));
            kind.pattern.check(kind.block_bytes)?;
            let part_bytes = cell.len("size") / threads.max(1);
            let program = |number: usize| {
                model::stream(device, &kind, from_bytes + number * part_bytes, part_bytes, seed + number as u64)
            };
            (0..threads).map(program).collect::<Result<Vec<_>>>()
        };
        let mut threads = programs("first", 0, seed)?;
        let firsts = threads.len();
        threads.extend(programs("second", cell.len("size"), seed ^ 1)?);
        Ok(values(&model::simulate(device, threads), firsts))
    }
}

fn values(done: &[Done], firsts: usize) -> Sample {
    let gb_s = |done: &[Done]| done.iter().map(Done::per_second).sum::<f64>() / 1e9;
    let of = |done: &[Done]| if done.is_empty() { None } else { Some(gb_s(done)) };
    Sample { values: vec![Some(gb_s(done)), of(&done[..firsts]), of(&done[firsts..])], ..Sample::default() }
}

fn kind(cell: &Cell, which: &str) -> Kind {
    Kind {
        access: Access::named(cell.word(which)),
        width: Width::widest(),
        fence: Fence::None,
        block_bytes: cell.len(&format!("{which}-block")),
        pattern: cell.order(),
    }
}

/// The streams of one kind, in the memory from an offset on.
fn streams<'m>(memory: &'m Memory, cell: &Cell, which: &str, from_bytes: usize, seed: u64) -> Vec<Stream<'m>> {
    let (kind, threads) = (kind(cell, which), cell.len(&format!("{which}-threads")));
    let part_bytes = cell.len("size") / threads.max(1) / kind.block_bytes * kind.block_bytes;
    let part = |number: usize| from_bytes + number * part_bytes..from_bytes + (number + 1) * part_bytes;
    (0..threads).map(|number| Stream::new(&kind, memory, part(number), TURN_BYTES, seed + number as u64)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::Plan;

    #[test]
    fn both_kinds_are_told_apart_and_one_may_be_missing() {
        let mut plan = Plan::built_in("mixed").unwrap();
        for (key, text) in
            [("size", "1Mi"), ("first-threads", "0,1"), ("second", "store,movsq"), ("second-block", "5568")]
        {
            plan.set(key, text).unwrap();
        }
        for cell in plan.cells().unwrap() {
            if let Err(error) = Mixed.needs(&cell) {
                println!("not run: {cell}: {error}");
                continue;
            }
            let mut site = Site::new([&cell], Duration::from_millis(1)).unwrap();
            let sample = Mixed.sample(&cell, &mut site, 1).unwrap();
            let [both, first, second] = sample.values[..] else { panic!("{sample:?}") };
            assert_eq!(first.is_some(), cell.number("first-threads") > 0);
            assert!((both.unwrap() - first.unwrap_or(0.0) - second.unwrap()).abs() < 1e-6, "{sample:?}");
        }
        plan.set("first-threads", "0").unwrap();
        plan.set("second-threads", "0").unwrap();
        assert!(Mixed.needs(&plan.cells().unwrap()[0]).is_err());
    }
}
