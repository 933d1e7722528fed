//! A run as one page of HTML that needs nothing else: figures, tables, and what the machine did meanwhile.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use report::{Axis, AxisScale, Chart, Interval, Mark, Point, Provenance, Series};

use crate::findings::Finding;
use crate::machine::Disturbance;
use crate::measure::{self, Form, Key};
use crate::plan::{Figure, Scale};
use crate::results::{CellResult, Found, Results, Status};
use crate::run::LEAST_VALUES;
use crate::value::{self, Value};

const STYLE: &str = "body{font:15px/1.45 sans-serif;max-width:62em;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0;font-size:13px}td,th{border-bottom:1px solid #ccc;padding:.2em .7em;text-align:left}\
td.n{text-align:right;font-variant-numeric:tabular-nums}.badge{display:inline-block;border-radius:3px;padding:0 .5em;\
margin:0 .3em .3em 0;background:#eee;font-size:13px}.warn{background:#fbe3b5}.bad{background:#f6c5bd}figure{margin:2em 0}\
svg{max-width:100%;height:auto}summary{cursor:pointer}";

/// What every page of a run starts with.
pub const START: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>remanent bench: ";

/// The page.
pub fn html(results: &Results) -> String {
    let mut page = String::new();
    let title = escape(&results.plan);
    let about = escape(&results.about);
    let _ = write!(
        page,
        "{START}{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>{about}</p>\n"
    );
    badges(&mut page, results);
    machine(&mut page, results);
    found(&mut page, results);
    for figure in &results.figures {
        draw(&mut page, figure, results);
    }
    let mut names: Vec<&str> = Vec::new();
    for cell in &results.cells {
        if !names.contains(&cell.cell.measure.as_str()) {
            names.push(&cell.cell.measure);
        }
    }
    names.iter().for_each(|name| table(&mut page, name, results));
    page.push_str("</body></html>\n");
    page
}

/// What whoever reads a figure must know beside it.
fn badges(page: &mut String, results: &Results) {
    let count = |status: Status| results.cells.iter().filter(|cell| cell.status == status).count();
    let mut badge = |class: &str, text: String| {
        let _ = write!(page, "<span class=\"badge {class}\">{}</span>", escape(&text));
    };
    let mut provenances: Vec<&str> = results.cells.iter().filter_map(|cell| Some(cell.provenance?.as_str())).collect();
    provenances.sort_unstable();
    provenances.dedup();
    for provenance in provenances {
        badge(if provenance == Provenance::Measured.as_str() { "" } else { "warn" }, provenance.to_owned());
    }
    if results.machine.is_virtual {
        badge("warn", "virtual machine".into());
    }
    if results.disturbance.steal_ms > 0 {
        badge("warn", format!("{} ms of CPU time went to other machines", results.disturbance.steal_ms));
    }
    match results.disturbance.migrations {
        Some(0) => {}
        Some(count) => badge("warn", format!("{count} migrations to other CPUs")),
        None => badge("", "migrations unknown".into()),
    }
    match results.machine.governor.as_deref() {
        Some("performance") => {}
        Some(governor) => badge("warn", format!("governor {governor}")),
        None => badge("", "governor unknown".into()),
    }
    let other_pages = results.cells.iter().filter(|cell| other_pages(cell).is_some()).count();
    if other_pages > 0 {
        badge("warn", format!("{other_pages} of {} cells with other pages than asked for", results.cells.len()));
    }
    let costly = results.cells.iter().filter(|cell| costly_loop(cell).is_some()).count();
    if costly > 0 {
        let most = MOST_OVERHEAD * 100.0;
        badge("warn", format!("in {costly} of {} cells the loop takes over {most} %", results.cells.len()));
    }
    if results.machine.nodes > 1 {
        badge("", "ordinary memory is that of the first CPU's NUMA node".into());
    }
    if results.machine.prefetchers != "off" {
        badge("", format!("prefetchers {}", results.machine.prefetchers));
    }
    for (status, text) in [
        (Status::Noisy, "noisy"),
        (Status::Few, "with too few samples"),
        (Status::Refused, "refused"),
        (Status::Skipped, "cannot be measured here"),
    ] {
        let (cells, class) = (count(status), if status == Status::Refused { "bad" } else { "warn" });
        if cells > 0 {
            badge(class, format!("{cells} of {} cells {text}", results.cells.len()));
        }
    }
    page.push('\n');
}

fn machine(page: &mut String, results: &Results) {
    let machine = &results.machine;
    let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
    let rows = [
        ("CPU", format!("{}, {} CPUs, {} NUMA nodes", machine.cpu, machine.cpus, machine.nodes)),
        ("Caches", machine.caches.join(", ")),
        ("Instructions", machine.instructions.join(" ")),
        (
            "Memory",
            format!(
                "{:.1} GB, transparent huge pages {}",
                machine.memory_bytes as f64 / 1e9,
                or_unknown(&machine.huge_pages)
            ),
        ),
        ("Kernel, governor", format!("{}, {}", machine.kernel, or_unknown(&machine.governor))),
        (
            "Clock",
            format!(
                "{:.4} ticks a nanosecond, in steps of {} ticks; two readings are {} ticks apart",
                machine.ticks_per_ns, machine.step_ticks, machine.pair_ticks
            ),
        ),
        ("Meanwhile", meanwhile(&results.disturbance)),
        (
            "Run",
            format!(
                "{}; {:.0} s of at most {:.0} s, {} to {} samples of a cell, until half the 95 % interval is {} % of the \
                 median; seed {}; remanent {}",
                report::utc(results.started_s),
                results.elapsed_ns as f64 / 1e9,
                results.enough.budget_ns as f64 / 1e9,
                results.enough.least_rounds,
                results.enough.most_rounds,
                results.enough.precision * 100.0,
                results.seed,
                results.version
            ),
        ),
    ];
    page.push_str("<table>\n");
    for (name, text) in rows {
        let _ = writeln!(page, "<tr><th>{name}</th><td>{}</td></tr>", escape(&text));
    }
    page.push_str("</table>\n");
}

/// What disturbed a run, in words.
pub fn meanwhile(disturbance: &Disturbance) -> String {
    let Disturbance { steal_ms, switches, waits, migrations } = disturbance;
    let migrations = migrations.map_or("an unknown number of".into(), |count| count.to_string());
    format!(
        "{steal_ms} ms of CPU time went to other machines; threads had to give their CPU to others {switches} times, and waited \
         {waits} times; threads that were to stay on theirs came to another CPU {migrations} times"
    )
}

fn found(page: &mut String, results: &Results) {
    if results.findings.is_empty() {
        return;
    }
    page.push_str("<h2>What this says</h2>\n<table>\n");
    for Finding { memory, what, found, because, .. } in &results.findings {
        let [memory, what, found, because] = [memory, what, found, because].map(|text| escape(text));
        let _ = writeln!(page, "<tr><td>{memory}</td><th>{what}</th><td>{found}</td><td>{because}</td></tr>");
    }
    page.push_str("</table>\n");
}

fn draw(page: &mut String, figure: &Figure, results: &Results) {
    let _ = writeln!(page, "<figure><h2>{}</h2>", escape(&figure.title));
    let charts = charts(figure, results);
    let drawn: Vec<String> = charts.iter().filter_map(Chart::svg).collect();
    if drawn.is_empty() {
        page.push_str("<p>No cell of this run has a figure for it.</p>");
    }
    drawn.iter().for_each(|svg| page.push_str(svg));
    let mut points = charts.iter().flat_map(|chart| &chart.series).flat_map(|series| &series.points);
    if points.any(|point| point.mark == Mark::Hollow) {
        page.push_str(
            "<p>Hollow points, pale crosses and pale bars are of cells that are noisy or have too few samples, or less precise \
             than the plan asks for.</p>",
        );
    }
    if !figure.published.is_empty() {
        page.push_str("<table><tr><th>published, not measured here</th><th></th><th>source</th></tr>\n");
        for published in &figure.published {
            let (what, source) = (escape(&published.what), escape(&published.source));
            let _ = writeln!(
                page,
                "<tr><td>{what}</td><td class=\"n\">{}</td><td>{source}</td></tr>",
                short(published.value)
            );
        }
        page.push_str("</table>\n");
    }
    page.push_str("</figure>\n");
}

/// The charts of a figure, from the cells that it selects: what a model says never stands in one with what was measured.
pub fn charts(figure: &Figure, results: &Results) -> Vec<Chart> {
    let is_modelled = |cell: &CellResult| cell.provenance == Some(Provenance::Modelled);
    [false, true]
        .into_iter()
        .filter_map(|modelled| chart(figure, results, |cell| is_modelled(cell) == modelled))
        .collect()
}

/// The cells that a figure selects and that have a figure for it.
fn drawn<'r>(figure: &Figure, results: &'r Results) -> Vec<&'r CellResult> {
    let is_drawn = |cell: &&CellResult| {
        let fits =
            |(key, values): (&String, &Vec<Value>)| cell.cell.keys.get(key).is_some_and(|value| values.contains(value));
        cell.cell.measure == figure.measure && figure.filter.iter().all(fits) && cell.found(&figure.y).is_some()
    };
    results.cells.iter().filter(is_drawn).collect()
}

/// The keys that tell lines apart: those that the figure names, and others in which cells differ, so that no line joins what does
/// not belong together.
fn line_keys<'f>(figure: &'f Figure, keys: &'static [Key], cells: &[&CellResult]) -> Vec<&'f str> {
    let named = figure.series.iter().map(String::as_str);
    let is_free = |name: &&str| {
        let is_named = |names: &[String]| names.iter().any(|known| known == name);
        *name != figure.x && !is_named(&figure.series) && !is_named(&figure.along)
    };
    let varies = |name: &&str| cells.iter().any(|cell| cell.cell.keys[*name] != cells[0].cell.keys[*name]);
    named.chain(keys.iter().map(|key| key.name).filter(is_free).filter(varies)).collect()
}

fn chart(figure: &Figure, results: &Results, is_of_it: impl Fn(&CellResult) -> bool) -> Option<Chart> {
    let measure = measure::named(&figure.measure)?;
    let metric = measure.metrics().iter().find(|metric| metric.name == figure.y)?;
    let key = measure.keys().iter().find(|key| key.name == figure.x);
    let x_metric = measure.metrics().iter().find(|metric| metric.name == figure.x);
    let mut cells: Vec<&CellResult> = drawn(figure, results).into_iter().filter(|cell| is_of_it(cell)).collect();
    if cells.is_empty() || key.is_none() && x_metric.is_none() {
        return None;
    }
    // A curve over a metric may turn back; it follows its keys.
    let along = |cell: &CellResult| figure.along.iter().map(|key| cell.cell.keys.get(key).cloned()).collect::<Vec<_>>();
    cells.sort_by(|a, b| along(a).partial_cmp(&along(b)).unwrap_or(std::cmp::Ordering::Equal));
    let words = key.and_then(|key| words_of(key, &cells));
    let place = |cell: &CellResult| {
        let Some(key) = key else { return Some(cell.found(&figure.x)?.median) };
        match (&cell.cell.keys[key.name], &words) {
            (value, Some(words)) => words.iter().position(|word| *word == value.to_string()).map(|at| at as f64),
            (Value::Number(number), None) => Some(*number as f64),
            (Value::Real(real), None) => Some(*real),
            (Value::Word(_), None) => None,
        }
    };
    let keys = line_keys(figure, measure.keys(), &cells);
    let mut series: Vec<(String, Vec<Point>)> = Vec::new();
    for cell in &cells {
        let Some(x) = place(cell) else { continue };
        let name = keys.iter().map(|key| named(key, &cell.cell.keys)).collect::<Vec<_>>().join(", ");
        let found = cell.found(&figure.y)?;
        // A cell is precise by its first metric, but this may be another.
        let is_precise = cell.status == Status::Precise && found.is_precise(results.enough.precision);
        let mark = if is_precise { Mark::Full } else { Mark::Hollow };
        let point = Point { x, y: found.median, interval: told_interval(found), mark };
        match series.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => series.push((name, vec![point])),
        }
    }
    if key.is_some() {
        for (_, points) in &mut series {
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
    }
    let is_log_x = matches!(figure.scale, Scale::LogX | Scale::LogLog);
    let x_scale = match (words, key.map(|key| &key.form)) {
        (Some(words), _) => AxisScale::Words(words),
        (None, Some(Form::Bytes { .. } | Form::Count { .. })) if is_log_x => AxisScale::Log2,
        (None, Some(Form::Count { .. })) => AxisScale::Count,
        (None, _) if is_log_x => AxisScale::Log10,
        _ => AxisScale::Linear,
    };
    let y_scale =
        if matches!(figure.scale, Scale::LogY | Scale::LogLog) { AxisScale::Log10 } else { AxisScale::Linear };
    let provenances: std::collections::BTreeSet<&str> =
        cells.iter().filter_map(|cell| Some(cell.provenance?.as_str())).collect();
    let provenances = provenances.into_iter().collect::<Vec<_>>().join(" and ");
    Some(Chart {
        title: format!("{} ({provenances})", metric.about),
        x: Axis {
            label: x_metric.filter(|_| key.is_none()).map_or(figure.x.clone(), |x| format!("{}, {}", x.name, x.unit)),
            scale: x_scale,
        },
        y: Axis { label: format!("{}, {}", metric.name, metric.unit), scale: y_scale },
        series: series.into_iter().map(|(name, points)| Series { name, points }).collect(),
    })
}

/// The words that a key is set to, in the order in which they first come; nothing for a key of numbers.
fn words_of(key: &Key, cells: &[&CellResult]) -> Option<Vec<String>> {
    if matches!(key.form, Form::Bytes { .. } | Form::Count { .. } | Form::Real { .. }) {
        return None;
    }
    let mut words: Vec<String> = Vec::new();
    for cell in cells {
        let word = cell.cell.keys[key.name].to_string();
        if !words.contains(&word) {
            words.push(word);
        }
    }
    Some(words)
}

/// A key's value with what makes it understood in a legend.
fn named(key: &str, keys: &BTreeMap<String, Value>) -> String {
    match keys.get(key) {
        Some(Value::Number(number)) => format!("{key} {}", value::short_bytes(*number)),
        Some(Value::Word(word)) if word == "none" => format!("no {key}"),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}

fn table(page: &mut String, name: &str, results: &Results) {
    let Some(measure) = measure::named(name) else { return };
    let cells: Vec<&CellResult> = results.cells.iter().filter(|cell| cell.cell.measure == name).collect();
    // A key that all cells agree on stands above the table.
    let is_fixed = |key: &&Key| cells.iter().all(|cell| cell.cell.keys[key.name] == cells[0].cell.keys[key.name]);
    let (fixed, varied): (Vec<&Key>, Vec<&Key>) = measure.keys().iter().partition(is_fixed);
    let text = |key: &Key, cell: &CellResult| cell.cell.text(key);
    let said: Vec<String> = fixed.iter().map(|key| format!("{} {}", key.name, text(key, cells[0]))).collect();
    let _ = writeln!(
        page,
        "<h2>{}</h2>\n<p>{}.<br>{}.</p>",
        escape(name),
        escape(measure.about()),
        escape(&said.join(", "))
    );
    page.push_str("<table><tr>");
    varied.iter().for_each(|key| _ = write!(page, "<th>{}</th>", key.name));
    for metric in measure.metrics() {
        let _ = write!(page, "<th title=\"{}\">{}, {}</th>", escape(metric.about), metric.name, metric.unit);
    }
    page.push_str("<th>samples</th><th></th></tr>\n");
    for cell in &cells {
        page.push_str("<tr>");
        varied.iter().for_each(|key| _ = write!(page, "<td>{}</td>", escape(&text(key, cell))));
        for metric in measure.metrics() {
            match cell.found(metric.name) {
                Some(found) => {
                    let title = told_interval(found).map_or(String::new(), |interval| {
                        format!(" title=\"95 %: {} to {}\"", short(interval.low), short(interval.high))
                    });
                    let _ = write!(page, "<td class=\"n\"{title}>{}</td>", short(found.median));
                }
                None => page.push_str("<td></td>"),
            }
        }
        let count = cell.metrics.first().map_or(0, |found| found.count);
        let _ = writeln!(page, "<td class=\"n\">{count}</td><td>{}</td></tr>", escape(&remark(cell)));
    }
    page.push_str("</table>\n");
    percentiles(page, &cells);
}

/// The interval of a median; none of few values, whose interval is as narrow as chance has it.
fn told_interval(found: &Found) -> Option<Interval> {
    (found.count >= LEAST_VALUES).then_some(found.median_95)
}

/// What is to be said beside a cell's figures.
pub fn remark(cell: &CellResult) -> String {
    let status = match cell.status {
        Status::Precise => "",
        Status::Noisy => "noisy",
        Status::Few => "too few samples",
        Status::Skipped => "not run",
        Status::Refused => "refused",
    };
    let provenance = cell.provenance.filter(|provenance| *provenance != Provenance::Measured).map(Provenance::as_str);
    let (pages, overhead) = (other_pages(cell), costly_loop(cell));
    let said = [provenance, pages.as_deref(), overhead.as_deref(), Some(status).filter(|text| !text.is_empty())];
    let said = said.into_iter().flatten().collect::<Vec<_>>().join(", ");
    [Some(said).filter(|said| !said.is_empty()), cell.reason.clone()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(": ")
}

/// The pages of a cell that has others than it was asked for.
fn other_pages(cell: &CellResult) -> Option<String> {
    let real = value::short_bytes(cell.page_bytes? as u64);
    (cell.cell.keys.get("pages")?.to_string() != real).then(|| format!("{real} pages"))
}

/// The part of a sample's time that reading the clock and the loop around the accesses may take before it is told.
const MOST_OVERHEAD: f64 = 0.01;

/// What the loop of a cell takes, where that is much.
fn costly_loop(cell: &CellResult) -> Option<String> {
    let overhead = cell.overhead.filter(|overhead| *overhead > MOST_OVERHEAD)?;
    Some(format!("loop up to {} %", short(100.0 * overhead)))
}

fn percentiles(page: &mut String, cells: &[&CellResult]) {
    let told: Vec<&&CellResult> = cells.iter().filter(|cell| !cell.percentiles_ns.is_empty()).collect();
    if told.is_empty() {
        return;
    }
    page.push_str("<details><summary>Percentiles of single operations, ns and ticks</summary><table><tr><th>cell</th>");
    crate::results::PARTS.iter().for_each(|(name, _)| _ = write!(page, "<th>{name} %</th>"));
    page.push_str("</tr>\n");
    for cell in told {
        let _ = write!(page, "<tr><td>{}</td>", escape(&cell.cell.to_string()));
        for (name, _) in crate::results::PARTS {
            let ns = cell.percentiles_ns.get(name).map(|ns| short(*ns));
            // Results of earlier versions have none.
            let ticks = cell.percentiles_ticks.get(name).map(ToString::to_string);
            let text = [ns, ticks].into_iter().flatten().collect::<Vec<_>>();
            let _ = write!(page, "<td class=\"n\">{}</td>", text.join(" / "));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></details>\n");
}

/// A number in three or four digits, however small it is.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        0.0 => "0".into(),
        size if size >= 1e-6 => format!("{value:.*}", (3.0 - size.log10().floor()) as usize),
        _ => format!("{value:.3e}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    /// A run of the plan's cells, with these values.
    fn results(text: &str, medians: impl Fn(&CellResult) -> Vec<(&'static str, f64)>) -> Results {
        let plan = Plan::parse("p.yaml", text).unwrap();
        let result = |cell: crate::measure::Cell| {
            let empty = CellResult::for_test(&[], cell.clone());
            CellResult::for_test(&medians(&empty), cell)
        };
        let cells = plan.cells().unwrap().into_iter().map(result).collect();
        Results { cells, figures: plan.figures, ..Results::for_test() }
    }

    fn names(chart: &Chart) -> Vec<&str> {
        chart.series.iter().map(|series| series.name.as_str()).collect()
    }

    #[test]
    fn no_line_joins_cells_that_differ_in_more_than_what_goes_right() {
        let text = "cells:\n- {measure: load, memory: [dram, /dev/shm], pages: all, size: [4Ki, 8Ki], chains: [1, 2]}\n\
            figures:\n- {title: t, measure: load, y: latency, x: size, series: memory, where: {chains: 1}}";
        let mut results = results(text, |cell| vec![("latency", cell.cell.number("size") as f64)]);
        let charts = charts(&results.figures[0], &results);
        assert_eq!(names(&charts[0]), ["dram, 4Ki", "dram, 2Mi", "/dev/shm, 4Ki", "/dev/shm, 2Mi"]);
        assert!(charts[0].series.iter().all(|series| series.points.len() == 2));
        assert!(!html(&results).contains("Hollow"));
        results.cells[0].status = Status::Noisy;
        let charts = super::charts(&results.figures[0], &results);
        let marks = charts[0].series.iter().flat_map(|series| &series.points).map(|point| point.mark);
        assert_eq!(marks.filter(|mark| *mark == Mark::Hollow).count(), 1);
        assert!(html(&results).contains("Hollow"));
        // The second metric of a precise cell may be imprecise by itself.
        results.cells[0].status = Status::Precise;
        results.figures[0].y = "latency-ticks".into();
        let mut ticks = results.cells[0].metrics[0].clone();
        (ticks.metric, ticks.median_95) = ("latency-ticks".into(), Interval { low: 0.0, high: 1e9 });
        results.cells[0].metrics.push(ticks);
        assert!(html(&results).contains("Hollow"));
    }

    #[test]
    fn of_few_values_no_interval_is_told() {
        let text =
            "cells:\n- {measure: load, size: [4Ki, 8Ki]}\nfigures:\n- {title: t, measure: load, y: latency, x: size}";
        let mut results = results(text, |_| vec![("latency", 7.0)]);
        let told = |results: &Results| {
            let drawn = charts(&results.figures[0], results).remove(0).series.remove(0).points;
            let drawn = drawn.iter().filter(|point| point.interval.is_some()).count();
            (html(results).matches("title=\"95 %: 7.00 to 7.00\"").count(), drawn)
        };
        assert_eq!(told(&results), (2, 2));
        results.cells[0].metrics[0].count = LEAST_VALUES - 1;
        assert_eq!(told(&results), (1, 1));
    }

    #[test]
    fn small_numbers_keep_their_digits() {
        let numbers = [0.0, 0.5, 0.00056, 0.00003, -0.00056, 1.0, 99.999, 12_345.6, 3e-9];
        let texts = ["0", "0.5000", "0.0005600", "0.00003000", "-0.0005600", "1.00", "100.00", "12346", "3.000e-9"];
        assert_eq!(numbers.map(short), texts);
    }

    #[test]
    fn a_curve_over_a_metric_follows_its_keys_and_may_turn_back() {
        let text = "cells:\n- {measure: loaded, loads: [10, 5], pause: [100, 0, 10]}\nfigures:\n\
            - {title: t, measure: loaded, y: latency, x: bandwidth, along: pause, series: loads}";
        let results = results(text, |cell| match cell.cell.number("pause") {
            0 => vec![("latency", 300.0), ("bandwidth", 9.0)],
            10 => vec![("latency", 200.0), ("bandwidth", 10.0)],
            _ => vec![("latency", 100.0), ("bandwidth", 1.0)],
        });
        let chart = &charts(&results.figures[0], &results)[0];
        assert_eq!((names(chart), chart.x.label.as_str()), (vec!["loads 10", "loads 5"], "bandwidth, GB/s"));
        for series in &chart.series {
            let points: Vec<(f64, f64)> = series.points.iter().map(|point| (point.x, point.y)).collect();
            assert_eq!(points, [(9.0, 300.0), (10.0, 200.0), (1.0, 100.0)]);
        }
    }

    #[test]
    fn what_makes_figures_doubtful_stands_beside_them() {
        let text = "cells:\n- {measure: load, size: 4Ki}";
        let mut results = results(text, |_| vec![("latency", 7.0)]);
        let cell = &mut results.cells[0];
        cell.page_bytes = Some(2 << 20);
        assert_eq!(remark(cell), "");
        cell.page_bytes = Some(4096);
        assert_eq!(remark(cell), "4Ki pages");
        cell.status = Status::Few;
        cell.provenance = Some(Provenance::Emulated);
        cell.reason = Some("a < b".into());
        assert_eq!(remark(cell), "emulated, 4Ki pages, too few samples: a < b");
        cell.overhead = Some(0.01);
        assert!(!remark(cell).contains("loop"));
        cell.overhead = Some(0.034);
        assert_eq!(remark(cell), "emulated, 4Ki pages, loop up to 3.40 %, too few samples: a < b");
        results.machine.governor = Some("powersave".into());
        results.disturbance.migrations = Some(3);
        results.disturbance.waits = 77;
        let page = html(&results);
        for text in [
            "governor powersave",
            "3 migrations to other CPUs",
            "waited 77 times",
            "1 of 1 cells with other pages",
            "in 1 of 1 cells the loop takes over 1 %",
            "a &lt; b",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
        (results.cells[0].percentiles_ns, results.cells[0].percentiles_ticks) =
            ([("50".into(), 20.0)].into(), [("50".into(), 42)].into());
        let page = html(&results);
        assert!(page.contains("<th>50 %</th>") && page.contains("<td class=\"n\">20.00 / 42</td>"), "{page}");
        results.disturbance.migrations = None;
        results.machine.governor = None;
        let page = html(&results);
        assert!(page.contains("migrations unknown") && page.contains("governor unknown") && page.starts_with(START));
        let csv = crate::results::csv(&results);
        assert!(csv.lines().next().unwrap().ends_with(",page_bytes,overhead,disturbed,reason"));
        assert!(csv.lines().nth(1).unwrap().ends_with(",4096,0.034,0,a < b"), "{csv}");
    }
}
