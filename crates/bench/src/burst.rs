//! How long a burst of stores takes until all have left: as long as they fit into the buffers on their way, a line costs
//! little, and beyond that as much as the medium needs.

use pmem::{DeviceClock, DeviceProfile};
use report::Samples;

use crate::clock::{Clock, ticks};
use crate::code::{self, Access, Blocks, Fence, Line, STORED, Scatter, Width};
use crate::crew;
use crate::error::{Error, Result};
use crate::latency;
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::model::{self, Touch};
use crate::pattern::Pattern;
use crate::site::Site;

/// The measurement `burst`.
#[derive(Debug)]
pub struct Burst;

/// Bursts of a sample.
const BURSTS: usize = 64;

impl Measure for Burst {
    fn name(&self) -> &'static str {
        "burst"
    }

    fn about(&self) -> &'static str {
        "how long stores take that come at once after a pause, until a fence has waited for them"
    }

    fn keys(&self) -> &'static [Key] {
        const KEYS: [Key; 6] = [
            Key::MEMORY,
            Key::PAGES,
            Key {
                name: "access",
                about: "how lines are stored",
                form: Access::FORM,
                default: Access::PAST_CACHE.name(),
            },
            Key {
                name: "lines",
                about: "lines of a burst",
                form: Form::Count { least: 1, most: 1 << 20 },
                default: "1:*2:4096",
            },
            Key {
                name: "pause",
                about: "nanoseconds before a burst",
                form: Form::Count { least: 0, most: 1_000_000 },
                default: "10000",
            },
            Key {
                name: "size",
                about: "bytes of the working set",
                form: Form::Bytes { multiple_of: 64 },
                default: "256Mi",
            },
        ];
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 4] = [
            Metric {
                name: "burst",
                unit: "ns",
                better: Better::Less,
                about: "median time of a burst, without that of an empty one",
            },
            Metric { name: "line", unit: "ns", better: Better::Less, about: "the same, divided by its lines" },
            Metric {
                name: "burst-ticks",
                unit: "ticks",
                better: Better::Less,
                about: "time of a burst in ticks of the counter",
            },
            Metric { name: "line-ticks", unit: "ticks", better: Better::Less, about: "the same, divided by its lines" },
        ];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        let access = Access::named(cell.word("access"));
        if access == Access::Load || !access.is_available(Width::widest()) {
            return Err(Error::unavailable(format!("'{}' stores nothing here", access.name())));
        }
        let burst_bytes = 64 * cell.len("lines");
        if cell.len("size") < 2 * burst_bytes {
            return Err(Error::unavailable(format!("{} bytes for bursts of {burst_bytes}", cell.len("size"))));
        }
        let sample_ns = BURSTS as u64 * (cell.number("pause") + 100 * cell.number("lines"));
        Ok(Needs {
            memory_bytes: cell.len("size"),
            threads: 1,
            written_bytes: (BURSTS * burst_bytes) as u64,
            sample_ns,
            ..Needs::default()
        })
    }

    fn clock_steps(&self, cell: &Cell, metric: &str) -> f64 {
        if ["line", "line-ticks"].contains(&metric) { 1.0 / cell.real("lines") } else { 1.0 }
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let clock = Clock::get();
        let (access, lines) = (Access::named(cell.word("access")), cell.len("lines"));
        let pause_ticks = (cell.real("pause") * clock.ticks_per_ns) as u64;
        let memory = site.memory(cell)?;
        let _alone = crew::alone()?;
        let scatter = Scatter::new(memory.base(), 64 * lines, cell.len("size") / (64 * lines), seed);
        let time = |number: u64, lines: usize| {
            let start = ticks();
            while ticks() - start < pause_ticks {
                std::hint::spin_loop();
            }
            let block = [scatter.address(number % scatter.blocks())];
            code::wait();
            let start = ticks();
            // SAFETY: the burst lies in the memory, which is borrowed alone; `needs` asked whether the CPU has the
            // instructions.
            unsafe {
                code::blocks(
                    access,
                    Width::widest(),
                    Fence::OF_STORES,
                    Blocks::List(&block),
                    lines,
                    &mut Line([STORED; 8]),
                )
            };
            code::wait();
            ticks() - start
        };
        let times = |lines: usize| (0..BURSTS as u64).map(|number| time(number, lines)).collect::<Vec<u64>>();
        let median = |times: &[u64]| {
            Samples::new(times.iter().map(|&ticks| ticks as f64).collect()).expect("there are some").median()
        };
        let (nothing, all) = (median(&times(0)), times(lines));
        // Of what is told nothing of it is left; but the more there was, the less is known of the rest.
        let overhead = (nothing / median(&all).max(1.0)).min(1.0);
        let rest = all.into_iter().map(|ticks| ticks.saturating_sub(nothing as u64)).collect();
        let ticks = latency::counts(rest);
        let burst = latency::told(clock, &ticks);
        let ns = burst.map(|ticks| clock.ns(ticks));
        let of_line = |time: Option<f64>| time.map(|time| time / lines as f64);
        Ok(Sample { values: vec![ns, of_line(ns), burst, of_line(burst)], ticks, overhead: Some(overhead) })
    }

    fn model(&self, cell: &Cell, device: &'static DeviceProfile, seed: u64) -> Result<Sample> {
        let (access, lines) = (Access::named(cell.word("access")), cell.number("lines"));
        let touch = Touch::new(device, access, Fence::Sfence, 64 * lines as usize, false)?;
        let mut walk = model::walk(Pattern::Random, cell.len("size"), 64 * lines as usize, seed)?;
        let mut clock = DeviceClock::new(device);
        let (pause_ns, mut now_ns) = (cell.real("pause"), 0.0);
        let bursts = (0..BURSTS).map(|_| {
            let start_ns = now_ns + pause_ns;
            now_ns = touch.run_on(&mut clock, start_ns, 64 * lines * walk.next_line() as u64);
            now_ns - start_ns
        });
        let burst = Samples::new(bursts.collect()).expect("there are some").median();
        Ok(Sample { values: vec![Some(burst), Some(burst / lines as f64), None, None], ..Sample::default() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::code::STORED;
    use crate::plan::Plan;

    fn cells(keys: &[(&str, &str)]) -> Vec<Cell> {
        let mut plan = Plan::built_in("burst").unwrap();
        keys.iter().for_each(|(key, text)| plan.set(key, text).unwrap());
        plan.cells().unwrap()
    }

    #[test]
    fn bursts_are_measured_and_what_they_store_arrives() {
        for cell in cells(&[("lines", "64"), ("pause", "0"), ("size", "8Ki"), ("access", "all")]) {
            if let Err(error) = Burst.needs(&cell) {
                println!("not run: {cell}: {error}");
                continue;
            }
            let mut site = Site::new([&cell], Duration::ZERO).unwrap();
            let sample = Burst.sample(&cell, &mut site, 1).unwrap();
            let [burst, line, ticks, line_ticks] = sample.values[..] else { panic!("{sample:?}") };
            assert!(
                sample.overhead.is_some_and(|part| part > 0.0 && part <= 1.0),
                "reading the clock was subtracted: {sample:?}"
            );
            // 0 where the clock cannot tell a burst from none.
            let (burst, line) = (burst.unwrap(), line.unwrap());
            assert!(
                burst >= 0.0 && (burst - 64.0 * line).abs() < 1e-6 && (burst > 0.0) == (ticks > Some(0.0)),
                "{cell}"
            );
            assert_eq!(line_ticks.map(|of_line| 64.0 * of_line), ticks, "{cell}");
            assert_eq!(sample.ticks.values().sum::<u64>(), BURSTS as u64, "{cell}");
            let memory = site.memory(&cell).unwrap();
            assert!((0..8 << 10).step_by(8).all(|at| memory.word(at) == STORED), "{cell}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for keys in [[("access", "load"), ("lines", "1")], [("lines", "4096"), ("size", "256Ki")]] {
            assert!(matches!(Burst.needs(&cells(&keys)[0]), Err(Error::Unavailable { .. })), "{keys:?}");
        }
        let modelled = [("memory", "model:optane-100-dimm"), ("lines", "4096"), ("size", "64Ki")];
        assert!(matches!(cells(&modelled)[0].needs(), Err(Error::Unavailable { .. })));
    }
}
