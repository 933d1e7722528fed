//! A device's profile from the cells of a run: what the model of it is then made of.

use std::collections::BTreeMap;

use report::Interval;

use crate::error::{Error, Result};
use crate::model::{ProfileFile, SCHEMA};
use crate::results::{CellResult, Found, Results};

/// The profile of the one memory that a run of the plan `calibrate` has measured.
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
            "the run has none of the figures of a profile: it is not one of the plan calibrate".into(),
        ));
    }
    let finding =
        |what: &str| results.findings.iter().find(|finding| finding.what == what).and_then(|finding| finding.value);
    let described = results.cells.iter().find_map(|cell| cell.memory.clone()).unwrap_or_default();
    Ok(ProfileFile {
        schema: SCHEMA.into(),
        name: name.to_owned(),
        random_read_ns,
        flush_persist_ns,
        nt_persist_ns,
        read_gb_s,
        write_gb_s,
        granule_bytes: finding("granule of writes").map_or(64, |bytes| bytes as u64),
        write_queue_bytes: finding("buffered bytes").map_or(0, |bytes| bytes as u64),
        source: format!(
            "remanent bench calibrate {} of {memory} ({described}) on {}, {} CPUs{}",
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
    results.cells.iter().filter(is_one).find_map(|cell| cell.found(metric))
}
