//! A device's profile from the cells of a run: what the model of it is then made of.

use std::collections::BTreeMap;

use report::Interval;

use crate::error::{Error, Result};
use crate::model::{ProfileFile, SCHEMA};
use crate::results::{CellResult, Found, Results, Status};

/// The profile of the one memory that a run of the plan `calibrate` has measured.
///
/// A figure of a cell that is not precise is unknown. A memory that was modelled gives a profile too, for that is what the plan
/// has named; its `source` says so.
///
/// # Errors
/// `Unavailable` when there is not exactly one memory, or it has none of the figures.
pub fn profile(results: &Results, name: &str) -> Result<ProfileFile> {
    let mut memories: Vec<String> =
        results.cells.iter().filter_map(|cell| Some(cell.cell.keys.get("memory")?.to_string())).collect();
    memories.sort_unstable();
    memories.dedup();
    let [memory] = &memories[..] else {
        return Err(Error::unavailable(format!("a profile is of one memory, not of {}", memories.len())));
    };
    let mut intervals = BTreeMap::new();
    let mut figure = |field: &str, found: Option<&Found>| {
        let found = found?;
        intervals.insert(field.to_owned(), found.median_95);
        Some(found.median)
    };
    let flushed = ["clwb", "clflushopt", "dc-cvadp", "dc-cvap", "dc-cvac"]
        .into_iter()
        .find_map(|flush| find(results, "latency", &[("store", "vec64"), ("flush", flush)], "isolated"));
    let random_read_ns = figure("random_read_ns", find(results, "load", &[], "latency"));
    let flush_persist_ns = figure("flush_persist_ns", flushed);
    let nt_persist_ns = figure("nt_persist_ns", find(results, "latency", &[("store", "nt64")], "isolated"));
    let sequential = |access| find(results, "bandwidth", &[("access", access), ("order", "sequential")], "bandwidth");
    let read_gb_s = figure("read_gb_s", sequential("load"));
    let write_gb_s = figure("write_gb_s", sequential("nt"));
    if intervals.is_empty() {
        return Err(Error::unavailable(
            "the run has none of the figures of a profile precisely: it takes more time, or a quieter machine, and the plan \
             calibrate"
                .into(),
        ));
    }
    let finding =
        |what: &str| results.findings.iter().find(|finding| finding.what == what).and_then(|finding| finding.value);
    let described = results.cells.iter().find_map(|cell| cell.memory.clone()).unwrap_or_default();
    let mut provenances: Vec<&str> = results.cells.iter().filter_map(|cell| Some(cell.provenance?.as_str())).collect();
    provenances.sort_unstable();
    provenances.dedup();
    Ok(ProfileFile {
        schema: SCHEMA.into(),
        name: name.to_owned(),
        random_read_ns,
        flush_persist_ns,
        nt_persist_ns,
        read_gb_s,
        write_gb_s,
        granule_bytes: finding("granule of writes").map(|bytes| bytes as u64),
        write_queue_bytes: finding("buffered bytes").map(|bytes| bytes as u64),
        source: format!(
            "{} by remanent bench calibrate {} of {memory} ({described}) on {}, {} CPUs{}",
            provenances.join(" and "),
            results.version,
            results.machine.cpu,
            results.machine.cpus,
            if results.machine.is_virtual { ", a virtual machine" } else { "" }
        ),
        intervals: intervals.into_iter().collect::<BTreeMap<String, Interval>>(),
    })
}

fn find<'r>(results: &'r Results, measure: &str, words: &[(&str, &str)], metric: &str) -> Option<&'r Found> {
    let is_one = |cell: &&CellResult| {
        let has = |(key, word): &(&str, &str)| cell.cell.keys.get(*key).is_some_and(|value| value.to_string() == *word);
        cell.cell.measure == measure && words.iter().all(has)
    };
    let precise = results.cells.iter().filter(|cell| cell.status == Status::Precise);
    let found = precise.filter(is_one).filter_map(|cell| cell.found(metric));
    // A cell is precise by its first metric, but this may be another.
    found.into_iter().find(|found| found.is_precise(results.enough.precision))
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::plan::Plan;
    use crate::run::{self, Beginning};

    fn calibrated(memory: &str) -> Results {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = Plan::built_in("calibrate").unwrap();
        plan.set("memory", memory).unwrap();
        plan.enough.set("rounds", "5").unwrap();
        run::run(&plan, folder.path(), Beginning::New { seed: 1 }, false, |_| ControlFlow::Continue(())).unwrap()
    }

    /// Calibrating a modelled device gives the profile that it was modelled by.
    #[test]
    fn every_shipped_profile_comes_out_of_its_own_model() {
        for device in pmem::PROFILES {
            let profile = profile(&calibrated(&format!("model:{}", device.name)), "p").unwrap();
            let figures = [
                (profile.random_read_ns, device.random_read_ns),
                (profile.flush_persist_ns, device.flush_persist_ns),
                (profile.nt_persist_ns, device.nt_persist_ns),
                (profile.read_gb_s, device.read_gb_s),
                (profile.write_gb_s, device.write_gb_s),
            ];
            for (number, (got, expected)) in figures.into_iter().enumerate() {
                let (got, expected) = (got.unwrap_or(0.0), expected.unwrap_or(0.0));
                assert!((got - expected).abs() <= 0.02 * expected, "{} {number}: {got}, {expected}", device.name);
            }
            // What the profile says nothing of is unknown. One thread that is known to be slower than the device never fills its queue.
            let is_full = device.longer.is_empty() && device.write_queue_bytes > 0 && device.nt_persist_ns.is_some();
            assert_eq!(profile.write_queue_bytes, is_full.then_some(device.write_queue_bytes), "{}", device.name);
            let granule_bytes = device.write_gb_s.map(|_| device.granule_bytes);
            assert_eq!(profile.granule_bytes, granule_bytes, "{}", device.name);
            assert!(profile.source.starts_with("modelled by "), "{}", profile.source);
        }
    }

    /// Its buffer is more than one thread fills, and so unknown.
    #[test]
    fn a_calibrated_device_combines_what_several_threads_do_as_it_did() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("six.json");
        let found = profile(&calibrated("model:optane-100-six-dimms"), "six").unwrap();
        assert_eq!(found.write_queue_bytes, None);
        std::fs::write(&path, serde_json::to_string(&found).unwrap()).unwrap();
        let source = crate::model::profile(path.to_str().unwrap()).unwrap().source;
        assert!(source.ends_with("; its buffers are not known, and left out"), "{source}");
        for access in ["nt", "load"] {
            let gb_s = |profile: &str| {
                let mut plan = Plan::built_in("bandwidth").unwrap();
                let memory = format!("model:{profile}");
                for (key, text) in [
                    ("memory", memory.as_str()),
                    ("access", access),
                    ("block", "64"),
                    ("threads", "2"),
                    ("size", "64Mi"),
                ] {
                    plan.set(key, text).unwrap();
                }
                let cell = plan.cells().unwrap().remove(0);
                cell.measure().model(&cell, cell.device().unwrap(), 1).unwrap().values[0].unwrap()
            };
            let (before, after) = (gb_s("optane-100-six-dimms"), gb_s(path.to_str().unwrap()));
            assert!((after / before - 1.0).abs() < 0.02, "{access}: {before} and {after} GB/s");
        }
    }

    #[test]
    fn what_is_not_precise_is_unknown() {
        let mut results = calibrated("model:optane-100-dimm");
        for cell in results.cells.iter_mut().filter(|cell| cell.cell.measure == "load") {
            cell.status = Status::Noisy;
        }
        let found = profile(&results, "p").unwrap();
        assert_eq!((found.random_read_ns, found.intervals.contains_key("random_read_ns")), (None, false));
        assert!(found.nt_persist_ns.is_some());
        let without = Results { findings: Vec::new(), ..results.clone() };
        let unknown = profile(&without, "p").unwrap();
        assert_eq!((unknown.granule_bytes, unknown.write_queue_bytes), (None, None));
        results.cells.iter_mut().for_each(|cell| cell.status = Status::Few);
        assert!(profile(&results, "p").is_err());
    }
}
