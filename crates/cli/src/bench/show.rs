//! What the commands of `bench` say.

use std::fmt::Write as _;
use std::path::Path;

use bench::compare::{Comparison, Verdict};
use bench::estimate::{Device, Estimate};
use bench::machine::Machine;
use bench::measure::{self, Measure};
use bench::model::ProfileFile;
use bench::page::short;
use bench::plan::{self, Plan};
use bench::results::{CellResult, Results, Status};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Report;
use crate::units::{self, Fields};

/// The lines of a table whose columns are as wide as they must.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// What a run found: a table of each measurement, without the keys that all its cells have in common.
pub(super) fn measured(results: &Results, folder: &Path) -> Report {
    let mut text = String::new();
    let mut names: Vec<&str> = Vec::new();
    for cell in &results.cells {
        if !names.contains(&cell.cell.measure.as_str()) {
            names.push(&cell.cell.measure);
        }
    }
    for name in names {
        let cells: Vec<&CellResult> = results.cells.iter().filter(|cell| cell.cell.measure == name).collect();
        text += &table(name, &cells);
        text.push('\n');
    }
    for finding in &results.findings {
        let _ = writeln!(text, "{}: {}: {} ({})", finding.memory, finding.what, finding.found, finding.because);
    }
    let machine = &results.machine;
    let virtual_ = if machine.is_virtual { ", a virtual machine" } else { "" };
    let _ = writeln!(
        text,
        "{}, {}{virtual_}; {:.0} s",
        machine.cpu,
        units::count(machine.cpus, "CPU"),
        results.elapsed_ns as f64 / 1e9
    );
    let _ = writeln!(text, "{}", bench::page::meanwhile(&results.disturbance));
    let _ = writeln!(text, "{}", folder.join("report.html").display());
    Report::answer(json!({ "folder": folder, "results": results }), text)
}

fn table(name: &str, cells: &[&CellResult]) -> String {
    let measure = cells[0].cell.measure();
    let (fixed, varied): (Vec<_>, Vec<_>) = measure
        .keys()
        .iter()
        .partition(|key| cells.iter().all(|cell| cell.cell.keys[key.name] == cells[0].cell.keys[key.name]));
    let said: Vec<String> = fixed.iter().map(|key| format!("{}={}", key.name, cells[0].cell.text(key))).collect();
    let mut rows = vec![varied.iter().map(|key| key.name.to_owned()).collect::<Vec<_>>()];
    rows[0].extend(measure.metrics().iter().map(|metric| format!("{} {}", metric.name, metric.unit)));
    rows[0].extend(["+-%".into(), String::new()]);
    for cell in cells {
        let mut row: Vec<String> = varied.iter().map(|key| cell.cell.text(key)).collect();
        row.extend(
            measure
                .metrics()
                .iter()
                .map(|metric| cell.found(metric.name).map_or("-".into(), |found| short(found.median))),
        );
        let told = cell.metrics.first().filter(|found| found.count >= bench::run::LEAST_VALUES);
        row.push(told.map_or(String::new(), |found| format!("{:.1}", 100.0 * found.half_width())));
        row.push(bench::page::remark(cell));
        rows.push(row);
    }
    format!("{name} {}\n{}", said.join(" "), aligned(&rows))
}

/// A profile, and what it was made of.
pub(super) fn calibrated(profile: &ProfileFile, results: &Results, path: &Path) -> Report {
    let mut fields = Fields::default();
    for (name, value, unit) in [
        ("load from random places", profile.random_read_ns, "ns"),
        ("store, write-back and fence", profile.flush_persist_ns, "ns"),
        ("store past the cache and fence", profile.nt_persist_ns, "ns"),
        ("loads of all CPUs", profile.read_gb_s, "GB/s"),
        ("stores of all CPUs", profile.write_gb_s, "GB/s"),
    ] {
        fields.add(name, value.map_or("unknown".into(), |value| format!("{} {unit}", short(value))));
    }
    fields
        .add("granule", profile.granule_bytes.map_or("unknown".into(), |bytes| format!("{bytes} bytes")))
        .add("buffers", profile.write_queue_bytes.map_or("unknown".into(), units::size));
    let mut text = fields.to_text();
    let noisy = results.cells.iter().filter(|cell| matches!(cell.status, Status::Noisy | Status::Few)).count();
    if noisy > 0 {
        let _ = writeln!(
            text,
            "{noisy} of {} cells were noisy, and what they would tell is unknown: more time, or a quieter machine, tells more",
            results.cells.len()
        );
    }
    let _ = writeln!(text, "{}", path.display());
    Report::answer(json!({ "profile": profile, "file": path, "noisy_cells": noisy }), text)
}

/// All names.
pub(super) fn listed() -> Report {
    let plans: Vec<(&str, String)> = plan::BUILT_IN
        .iter()
        .map(|(name, _)| (*name, Plan::built_in(name).map(|plan| plan.about).unwrap_or_default()))
        .collect();
    let row = |name: &str, about: &str| vec![format!("  {name}"), about.to_owned()];
    let mut rows: Vec<Vec<String>> = vec![vec!["Plans".into()]];
    rows.extend(plans.iter().map(|(name, about)| row(name, about)));
    rows.push(vec!["Measurements, each of which is a plan too".into()]);
    rows.extend(measure::ALL.iter().map(|measure| row(measure.name(), measure.about())));
    let text = rows.iter().filter(|row| row.len() == 1).map(|row| row[0].clone()).collect::<Vec<_>>();
    let (first, second) = rows[1..].split_at(plans.len());
    let text = format!(
        "{}\n{}{}\n{}The keys of a measurement: remanent bench list NAME\n",
        text[0],
        aligned(first),
        text[1],
        aligned(&second[1..])
    );
    let json = json!({
        "plans": plans.iter().map(|(name, about)| json!({ "name": name, "about": about })).collect::<Vec<_>>(),
        "measurements": measure::ALL.iter().map(|measure| measure_json(*measure)).collect::<Vec<_>>(),
    });
    Report::answer(json, text)
}

fn measure_json(measure: &dyn Measure) -> serde_json::Value {
    let keys = measure.keys().iter().map(
        |key| json!({ "name": key.name, "about": key.about, "values": key.form.expected(), "default": key.default }),
    );
    let metrics = measure
        .metrics()
        .iter()
        .map(|metric| json!({ "name": metric.name, "unit": metric.unit, "about": metric.about }));
    json!({ "name": measure.name(), "about": measure.about(), "keys": keys.collect::<Vec<_>>(), "metrics": metrics.collect::<Vec<_>>() })
}

/// The keys of a measurement.
pub(super) fn keys_of(measure: &dyn Measure) -> Report {
    let keys = measure.keys().iter().map(|key| {
        vec![
            format!("  {}", key.name),
            key.about.to_owned(),
            format!("{} [default: {}]", key.form.expected(), key.default),
        ]
    });
    let metrics = measure
        .metrics()
        .iter()
        .map(|metric| vec![format!("  {}", metric.name), metric.unit.to_owned(), metric.about.to_owned()]);
    let (keys, metrics): (Vec<_>, Vec<_>) = (keys.collect(), metrics.collect());
    let text =
        format!("{}: {}\nKeys\n{}Metrics\n{}", measure.name(), measure.about(), aligned(&keys), aligned(&metrics));
    Report::answer(measure_json(measure), text)
}

/// What a plan would do.
pub(super) fn explained(plan: &Plan) -> Result<Report, Failure> {
    let estimate = Estimate::of(plan)?;
    let enough = &plan.enough;
    let seconds = |ns: u64| format!("{:.1} s", ns as f64 / 1e9);
    let (least_bytes, most_bytes) = estimate.written_bytes;
    let mut fields = Fields::default();
    fields
        .add("plan", format!("{}: {}", plan.name, plan.about))
        .add("cells", estimate.cells.to_string())
        .add("cannot be measured here", estimate.skipped.len().to_string())
        .add("samples of a cell", format!("{} to {}", enough.least_rounds, enough.most_rounds))
        .add("time of the fewest", format!("about {}", seconds(estimate.least_ns)))
        .add("time, at most", seconds(enough.budget_ns))
        .add("written", format!("about {} to {}", units::size(least_bytes), units::size(most_bytes)));
    for (place, bytes) in &estimate.memory_bytes {
        fields.add(format!("memory, {place}"), units::size(*bytes));
    }
    let mut text = fields.to_text();
    if estimate.least_ns > enough.budget_ns {
        text +=
            "The time is over before all cells have the fewest samples: it takes a larger --budget, or fewer cells.\n";
    }
    for (cell, why) in &estimate.skipped {
        let _ = writeln!(text, "not run: {cell}: {why}");
    }
    let json = json!({
        "plan": plan.name,
        "cells": plan.cells()?,
        "skipped": estimate.skipped.iter().map(|(cell, why)| json!({ "cell": cell, "reason": why })).collect::<Vec<_>>(),
        "least_ns": estimate.least_ns,
        "budget_ns": enough.budget_ns,
        "written_bytes": least_bytes,
        "written_at_most_bytes": most_bytes,
        "memory_bytes": estimate.memory_bytes,
    });
    Ok(Report::answer(json, text))
}

/// Refuses a plan that would write over a device that nobody has named.
pub(super) fn confirm_devices(plan: &Plan, named: &[String]) -> Result<(), Failure> {
    let estimate = Estimate::of(plan)?;
    let is_named = |(name, _): &(&String, &Device)| named.contains(name);
    let lost: Vec<String> =
        estimate.devices.iter().filter(|device| !is_named(device)).map(|(name, device)| loss(name, device)).collect();
    if lost.is_empty() { Ok(()) } else { Err(Failure::NotConfirmed(lost.join("; "))) }
}

/// What is lost of a device, and how the user says that it may be.
fn loss(name: &str, device: &Device) -> String {
    let (least, most) = device.written_bytes;
    let known = match device.unknown_cells {
        0 => String::new(),
        cells => {
            format!(", as far as is known: {} cannot be measured as the machine is now", units::count(cells, "cell"))
        }
    };
    format!(
        "{name} would be written over, and what is there be lost: of its bytes {} would be used, and about {} to {} written{known}; \
         --overwrite {name} says that it may be",
        units::size(device.used_bytes),
        units::size(least),
        units::size(most)
    )
}

/// What this machine can measure.
pub(super) fn doctor() -> Report {
    let machine = Machine::this();
    let clock = machine.check_clock();
    let unknown = || "unknown".to_owned();
    let mut fields = Fields::default();
    fields
        .add("CPU", format!("{}, {}", machine.cpu, units::count(machine.cpus, "CPU")))
        .add("caches", machine.caches.join(", "))
        .add("instructions", machine.instructions.join(" "))
        .add("NUMA nodes", machine.nodes.to_string())
        .add("kernel", machine.kernel.clone())
        .add(
            "clock",
            format!(
                "{:.4} ticks a nanosecond, steps of {} ticks, two readings {} ticks apart",
                machine.ticks_per_ns, machine.step_ticks, machine.pair_ticks
            ),
        )
        .add("governor", machine.governor.clone().unwrap_or_else(unknown))
        .add("huge pages", machine.huge_pages.clone().unwrap_or_else(unknown))
        .add("prefetchers", machine.prefetchers.clone());
    let mut doubts: Vec<String> = clock.err().map(|error| error.to_string()).into_iter().collect();
    if machine.is_virtual {
        doubts.push("this is a virtual machine: others share its caches, memory and CPUs".into());
    }
    if machine.governor.as_deref().is_some_and(|governor| governor != "performance") {
        doubts
            .push("the governor changes the CPU's frequency: `cpupower frequency-set -g performance` holds it".into());
    }
    if machine.prefetchers == "unknown" {
        doubts.push(
            "whether the prefetchers work cannot be told here: sequential loads may be faster than the memory".into(),
        );
    }
    if machine.cpus < 2 {
        doubts.push("there is one CPU: whatever else runs is in every figure".into());
    }
    let mut text = fields.to_text();
    if !doubts.is_empty() {
        text += "\nWhat makes figures doubtful\n";
    }
    doubts.iter().for_each(|doubt| _ = writeln!(text, "  - {doubt}"));
    Report::answer(json!({ "machine": machine, "doubts": doubts }), text)
}

/// How two runs stand to one another.
pub(super) fn compared(comparison: &Comparison) -> Report {
    let count = |verdict| comparison.changes.iter().filter(|change| change.verdict == verdict).count();
    let mut text = String::new();
    comparison.warnings.iter().for_each(|warning| _ = writeln!(text, "warning: {warning}"));
    let told = comparison.changes.iter().filter(|change| change.verdict != Verdict::Same);
    let rows: Vec<Vec<String>> = told
        .map(|change| {
            let verdict = if change.verdict == Verdict::Worse { "worse" } else { "better" };
            let part = format!("{:+.1} %", 100.0 * (change.after / change.before - 1.0));
            let told = |median, is_below| format!("{}{}", if is_below { "below " } else { "" }, short(median));
            let before = told(change.before, change.is_below_before);
            let after = told(change.after, change.is_below_after);
            vec![
                verdict.into(),
                part,
                format!("{before} -> {after} {}", change.unit),
                format!("{} of {}", change.metric, change.cell),
            ]
        })
        .collect();
    text += &aligned(&rows);
    let _ = writeln!(
        text,
        "{} better, {} worse, {} the same",
        count(Verdict::Better),
        count(Verdict::Worse),
        count(Verdict::Same)
    );
    comparison.lost.iter().for_each(|cell| _ = writeln!(text, "no longer measured: {cell}"));
    if !comparison.too_few.is_empty() {
        let _ = writeln!(text, "{} too few samples to tell of", comparison.too_few.len());
    }
    for (cells, which) in [(&comparison.only_before, "first"), (&comparison.only_after, "second")] {
        if !cells.is_empty() {
            let _ = writeln!(text, "{} only in the {which} run", units::count(cells.len(), "cell"));
        }
    }
    Report::answer(json!(comparison), text)
}
