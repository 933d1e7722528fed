//! What a plan will take, before anything is measured.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::crew;
use crate::error::Result;
use crate::fault;
use crate::join;
use crate::measure::{Cell, Needs};
use crate::memory::Place;
use crate::plan::{Enough, Plan};
use crate::stack;

/// What a plan will take, about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Cells, those that cannot be measured here among them.
    pub cells: usize,
    /// Cells that cannot be measured here, and why.
    pub skipped: Vec<(String, String)>,
    /// Time of the fewest samples, in nanoseconds: what is beyond the budget is not taken.
    pub least_ns: u64,
    /// Bytes that the fewest samples write, and that all do that there may be.
    pub written_bytes: (u64, u64),
    /// Bytes that are needed of each place.
    pub memory_bytes: BTreeMap<String, u64>,
    /// Devices whose content is lost, also by cells that cannot be measured as the machine is now: it may be another when the run begins.
    pub devices: BTreeMap<String, Device>,
}

/// What is lost of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// Bytes of it that are used, which are at its beginning.
    pub used_bytes: u64,
    /// Bytes that the fewest samples write, and that all do that there may be.
    pub written_bytes: (u64, u64),
    /// Its cells that cannot be measured as the machine is now, of which neither is known.
    pub unknown_cells: usize,
}

/// What cells write.
#[derive(Debug, Default)]
struct Written {
    least_bytes: u64,
    most_bytes: u64,
    fastest_gb_s: f64,
}

impl Written {
    fn add(&mut self, needs: &Needs, sample_ns: u64, enough: &Enough) {
        let streamed_bytes = (needs.writes_gb_s * sample_ns as f64) as u64;
        let a_sample = needs.written_bytes.saturating_add(streamed_bytes);
        let written = |rounds: usize| a_sample.saturating_mul(rounds as u64);
        self.least_bytes = self.least_bytes.saturating_add(written(enough.least_rounds));
        self.most_bytes = self.most_bytes.saturating_add(written(enough.most_rounds));
        self.fastest_gb_s = self.fastest_gb_s.max(a_sample as f64 / sample_ns.max(1) as f64);
    }

    /// By the fewest samples, and by all: no run goes on beyond its budget, but for a sample.
    fn range(&self, enough: &Enough) -> (u64, u64) {
        let in_budget = (self.fastest_gb_s * enough.budget_ns as f64) as u64;
        (self.least_bytes, self.most_bytes.min(in_budget).max(self.least_bytes))
    }
}

/// The time of a sample's beginning and end, in parts of its window.
const AROUND_PERCENT: u64 = 20;
/// Nanoseconds that it takes to bring a line of the memory out of the caches, between two cells.
const EVICTED_NS: u64 = 5;

impl Estimate {
    /// Of a plan, on this machine.
    ///
    /// # Errors
    /// `Plan` when it has too many cells.
    pub fn of(plan: &Plan) -> Result<Estimate> {
        let enough = plan.enough;
        let mut estimate = Estimate::default();
        // Stripes of each chunk and pages of each size are mapped apart, and relations are made whatever the place.
        let mut needed: BTreeMap<(String, String), u64> = BTreeMap::new();
        let mut need = |place: String, what: String, bytes: u64| {
            let most = needed.entry((place, what)).or_default();
            *most = bytes.max(*most);
        };
        let mut written = Written::default();
        let mut of_devices: BTreeMap<String, Written> = BTreeMap::new();
        for cell in &plan.cells()? {
            estimate.cells += 1;
            let place = place_of(cell);
            let is_device = matches!(cell.memory(), Some(Place::Device(_)));
            if is_device {
                estimate.devices.entry(place.clone()).or_default();
            }
            let needs = match cell.needs() {
                Ok(needs) => needs,
                Err(error) => {
                    estimate.devices.entry(place).and_modify(|device| device.unknown_cells += 1);
                    estimate.skipped.push((cell.to_string(), error.to_string()));
                    continue;
                }
            };
            let sample_ns = sample_ns(&needs, enough.sample_ns);
            estimate.least_ns = estimate.least_ns.saturating_add(sample_ns.saturating_mul(enough.least_rounds as u64));
            written.add(&needs, sample_ns, &enough);
            if is_device {
                of_devices.entry(place.clone()).or_default().add(&needs, sample_ns, &enough);
            }
            if needs.memory_bytes > 0 {
                need(place.clone(), format!("{:?}", cell.place()), needs.memory_bytes as u64);
            }
            let (own_bytes, file_bytes) = match cell.measure.as_str() {
                "join" => join::beside(cell),
                "stack" if cell.device().is_none() => stack::beside(cell),
                "fault" => fault::beside(cell),
                _ => continue,
            };
            need("dram".into(), "beside".into(), own_bytes);
            need(if cell.device().is_some() { "dram".into() } else { place }, "file".into(), file_bytes);
        }
        estimate.written_bytes = written.range(&enough);
        for ((place, _), bytes) in needed.into_iter().filter(|(_, bytes)| *bytes > 0) {
            *estimate.memory_bytes.entry(place).or_default() += bytes;
        }
        for (place, device) in &mut estimate.devices {
            device.used_bytes = estimate.memory_bytes.get(place).copied().unwrap_or(0);
            device.written_bytes = of_devices.get(place).map_or((0, 0), |written| written.range(&enough));
        }
        Ok(estimate)
    }
}

fn sample_ns(needs: &Needs, given_ns: u64) -> u64 {
    let evicted_ns = needs.memory_bytes as u64 / 64 * EVICTED_NS;
    let window_ns = match needs.sample_ns {
        0 => {
            let window = crew::window_time(needs.threads.max(1), crew::cpus().len(), Duration::from_nanos(given_ns));
            (window.as_nanos() as u64).saturating_mul(100 + AROUND_PERCENT) / 100
        }
        ns => ns,
    };
    window_ns.saturating_add(evicted_ns)
}

fn place_of(cell: &Cell) -> String {
    cell.keys.get("memory").map(ToString::to_string).unwrap_or_else(|| "none".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_rounds_take_more_and_nothing_overflows() {
        let mut plan = Plan::built_in("bandwidth").unwrap();
        plan.set("access", "nt").unwrap();
        plan.set("size", "1Mi").unwrap();
        plan.enough.set("rounds", "5").unwrap();
        let few = Estimate::of(&plan).unwrap();
        assert!(few.least_ns > 5 * plan.enough.sample_ns && few.written_bytes.0 > 0, "{few:?}");
        assert_eq!((few.written_bytes.0, few.memory_bytes["dram"]), (few.written_bytes.1, 1 << 20));
        plan.enough.set("rounds", "5 to 50").unwrap();
        let more = Estimate::of(&plan).unwrap();
        assert_eq!(
            (more.least_ns, more.written_bytes),
            (few.least_ns, (few.written_bytes.0, 10 * few.written_bytes.0))
        );
        plan.enough.set("budget", "1s").unwrap();
        assert!(Estimate::of(&plan).unwrap().written_bytes.1 < more.written_bytes.1);
        plan.set("threads", "1024").unwrap();
        plan.set("size", "1Gi").unwrap();
        for (name, text) in [("rounds", "1000000"), ("sample", "60s"), ("budget", "200000h")] {
            plan.enough.set(name, text).unwrap();
        }
        let most = Estimate::of(&plan).unwrap();
        assert!(most.least_ns > 50_000_000_000_000_000 && most.written_bytes.1 > more.written_bytes.1, "{most:?}");
    }

    #[test]
    fn more_threads_than_cpus_take_longer() {
        let time = |threads: String| {
            let mut plan = Plan::built_in("bandwidth").unwrap();
            plan.set("threads", &threads).unwrap();
            Estimate::of(&plan).unwrap().least_ns
        };
        // No more than the key takes.
        let (cpus, most) = (crew::cpus().len(), 1024);
        if cpus >= most {
            println!("not run: {cpus} CPUs are not fewer than the threads that there may be");
            return;
        }
        assert!(time((16 * cpus).min(most).to_string()) > time(cpus.to_string()));
    }

    /// Prefetchers may be off when the run begins, which makes a cell measurable that was not.
    #[test]
    fn a_device_is_told_whose_cells_cannot_be_measured_now() {
        let mut plan = Plan::built_in("latency").unwrap();
        for (key, text) in [("state", "cold"), ("order", "sequential"), ("memory", "dram,/dev/dax9.9")] {
            plan.set(key, text).unwrap();
        }
        let estimate = Estimate::of(&plan).unwrap();
        let device = &estimate.devices["/dev/dax9.9"];
        let are_off = crate::prefetchers::state() == "off";
        assert_eq!((estimate.skipped.len(), device.unknown_cells), if are_off { (0, 0) } else { (2, 1) });
        assert_eq!(device.used_bytes > 0, are_off);
    }

    /// Bursts of 16 lines, 64 of them in a sample.
    #[test]
    fn what_is_written_to_a_device_is_told_apart_from_other_memory() {
        let mut plan = Plan::built_in("burst").unwrap();
        for (key, text) in [("memory", "dram,/dev/dax9.9"), ("lines", "16"), ("size", "1Mi")] {
            plan.set(key, text).unwrap();
        }
        plan.enough.set("rounds", "5 to 10").unwrap();
        let estimate = Estimate::of(&plan).unwrap();
        assert_eq!(estimate.written_bytes, (10 << 16, 20 << 16));
        let device = Device { used_bytes: 1 << 20, written_bytes: (5 << 16, 10 << 16), unknown_cells: 0 };
        assert_eq!(estimate.devices, [("/dev/dax9.9".to_owned(), device)].into());
    }

    #[test]
    fn every_file_is_counted() {
        let memory_bytes = |name: &str, keys: &[(&str, &str)]| {
            let mut plan = Plan::built_in(name).unwrap();
            keys.iter().for_each(|(key, text)| plan.set(key, text).unwrap());
            Estimate::of(&plan).unwrap().memory_bytes
        };
        let striped = |layouts: &str, chunks: &str| {
            let keys = [("memory", "./a+./b"), ("size", "64Mi"), ("layout", layouts), ("chunk", chunks)];
            memory_bytes("topology", &keys)["./a+./b"]
        };
        assert_eq!(striped("interleaved", "2Mi,4Mi"), 2 * striped("interleaved", "2Mi"));
        let both = striped("interleaved", "2Mi") + striped("separate", "2Mi");
        assert_eq!(striped("interleaved,separate", "2Mi"), both);
        assert_eq!(memory_bytes("fault", &[("memory", "dram,./a"), ("size", "64Mi")])["./a"], 64 << 20);
    }
}
