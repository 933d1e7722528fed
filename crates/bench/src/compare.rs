//! Two runs of the same cells, held against one another by their intervals.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use report::{Interval, Provenance};
use serde::Serialize;

use crate::clock::LEAST_STEPS;
use crate::measure::Better;
use crate::results::{CellResult, Found, Results, Status, Unresolved};
use crate::run::LEAST_VALUES;

/// How a cell of one run stands to the same of another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The cell.
    pub cell: String,
    /// The metric.
    pub metric: String,
    /// The unit of both.
    pub unit: String,
    /// The first run's median.
    pub before: f64,
    /// The second run's.
    pub after: f64,
    /// Whether the clock of the first run did not resolve it, so that its median is below what is told.
    pub is_below_before: bool,
    /// The same of the second run.
    pub is_below_after: bool,
    /// What is to be thought of it.
    pub verdict: Verdict,
}

/// What is to be thought of two medians.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Their intervals meet, or they differ by less than what is tolerated, or by a step of the clock.
    Same,
    /// They differ, for the better.
    Better,
    /// They differ, for the worse.
    Worse,
}

/// All that two runs have in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Each metric of each cell that both runs have enough samples of.
    pub changes: Vec<Change>,
    /// Cells and metrics of which one run has too few samples.
    pub too_few: Vec<String>,
    /// Cells and metrics that the first run has figures of, and the second one has measured in vain, with its reason; what has become
    /// too short for the clock is not lost.
    pub lost: Vec<String>,
    /// Cells that only the first run has.
    pub only_before: Vec<String>,
    /// Cells that only the second run has.
    pub only_after: Vec<String>,
    /// What makes the runs hard to compare, such as another machine.
    pub warnings: Vec<String>,
}

/// How much more is tolerated of a metric that is not a cell's first: a run does not go on until it is precise.
const OTHERS: f64 = 2.0;

impl Comparison {
    /// Compares; differences below `tolerance`, in parts of the first median, are none. Of metrics that are not a cell's first
    /// twice as much is tolerated.
    pub fn new(before: &Results, after: &Results, tolerance: f64) -> Comparison {
        let (first, second) = (by_name(before), by_name(after));
        let (mut pairs, mut too_few, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for (name, a) in &first {
            // Of what was too short for the clock nothing can be lost.
            let is_comparable = |b: &&CellResult| !a.metrics.is_empty() || has_figures(a) && has_figures(b);
            let Some(b) = second.get(name).copied().filter(is_comparable) else { continue };
            match &b.reason {
                _ if has_few(a) => too_few.push(name.clone()),
                None if has_few(b) => too_few.push(name.clone()),
                Some(reason) if has_few(b) => lost.push(format!("{name}: {reason}")),
                reason if !has_figures(b) => {
                    lost.push(format!("{name}: {}", reason.as_deref().unwrap_or("no figures")));
                }
                _ => {
                    let tolerances = std::iter::once(tolerance).chain(std::iter::repeat(OTHERS * tolerance));
                    for (of_a, part) in figures(before, a).into_iter().zip(tolerances) {
                        let of_b = figure(after, b, &of_a.metric);
                        if of_b.as_ref().map_or(of_a.count, |of_b| of_b.count.min(of_a.count)) < LEAST_VALUES {
                            too_few.push(format!("{} of {name}", of_a.metric));
                        } else if let Some(of_b) = of_b {
                            let step = step(before, a, &of_a).max(step(after, b, &of_a));
                            pairs.push((name, of_a, of_b, Tolerated { part, step }));
                        } else if !of_a.is_below {
                            lost.push(format!("{} of {name}: it has no value", of_a.metric));
                        }
                    }
                }
            }
        }
        let width = width_for(2 * pairs.len());
        let changes = pairs.iter().map(|(name, a, b, tolerated)| change(name, a, b, width, tolerated)).collect();
        let (only_before, only_after) = (missing(&first, &second), missing(&second, &first));
        Comparison { changes, too_few, lost, only_before, only_after, warnings: warnings(before, after) }
    }

    /// Whether something has become worse, or can no longer be measured.
    pub fn has_regressed(&self) -> bool {
        !self.lost.is_empty() || self.changes.iter().any(|change| change.verdict == Verdict::Worse)
    }
}

/// In what two runs differ, so that their figures may for that reason.
fn warnings(before: &Results, after: &Results) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut differ = |what: &str, a: &str, b: &str| {
        if a != b {
            warnings.push(format!("{what}: '{a}' before, '{b}' after"));
        }
    };
    let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
    let (a, b) = (&before.machine, &after.machine);
    differ("CPU", &a.cpu, &b.cpu);
    differ("CPUs", &a.cpus.to_string(), &b.cpus.to_string());
    differ("kernel", &a.kernel, &b.kernel);
    differ("governor", &or_unknown(&a.governor), &or_unknown(&b.governor));
    differ("huge pages", &or_unknown(&a.huge_pages), &or_unknown(&b.huge_pages));
    differ("prefetchers", &a.prefetchers, &b.prefetchers);
    differ("remanent", &before.version, &after.version);
    let time = |results: &Results| format!("{} ms", results.enough.sample_ns as f64 / 1e6);
    differ("time of a sample", &time(before), &time(after));
    let second = by_name(after);
    // Once for each memory, and not for each of its cells.
    let memory = |cell: &CellResult| Some((cell.cell.keys.get("memory")?.to_string(), cell.memory.clone()?));
    let pairs = || by_name(before).into_iter().filter_map(|(name, a)| Some((second.get(&name)?, a, name)));
    let of_both = pairs().filter_map(|(b, a, _)| Some((memory(a)?, memory(b)?.1)));
    for ((place, a), b) in of_both.collect::<BTreeSet<_>>() {
        differ(&format!("memory {place}"), &a, &b);
    }
    for (b, a, name) in pairs() {
        let place = |cell: &CellResult| {
            let pages = cell.page_bytes.map_or(String::new(), |bytes| format!(" in pages of {bytes} bytes"));
            Some(format!("{}{pages}", cell.provenance?.as_str()))
        };
        // Of a cell without figures it is not known.
        if let (Some(a), Some(b)) = (place(a), place(b)) {
            differ(&name, &a, &b);
        }
    }
    warnings
}

type Named<'r> = BTreeMap<String, &'r CellResult>;

fn missing(of: &Named<'_>, other: &Named<'_>) -> Vec<String> {
    of.keys().filter(|name| !other.contains_key(*name)).cloned().collect()
}

fn by_name(results: &Results) -> Named<'_> {
    results.cells.iter().map(|cell| (cell.cell.to_string(), cell)).collect()
}

/// How much wider than one by itself intervals have to be, so that all of so many hold together with 95 %, by Bonferroni's inequality
/// (Dunn, *Multiple comparisons among means*, 1961). It is a rule of thumb: bootstrap intervals of medians are scaled here as those of
/// a normal variable would be.
fn width_for(count: usize) -> f64 {
    two_sided(0.05 / count.max(1) as f64) / two_sided(0.05)
}

/// The distance from the mean, in standard deviations, beyond which a normal variable lies with this probability (Abramowitz and
/// Stegun, *Handbook of Mathematical Functions*, 26.2.23; its error is below 0.00045).
fn two_sided(probability: f64) -> f64 {
    let t = (-2.0 * (probability / 2.0).ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

fn has_figures(cell: &CellResult) -> bool {
    !cell.metrics.is_empty() || !cell.unresolved.is_empty()
}

/// Whether there are too few samples of a cell to tell of it; not whether its first metric is too short for the clock.
fn has_few(cell: &CellResult) -> bool {
    cell.status == Status::Few && (!cell.metrics.is_empty() || cell.unresolved.is_empty())
}

/// A metric as two runs are compared by it.
struct Compared<'r> {
    found: Cow<'r, Found>,
    /// Whether its median is below what is told.
    is_below: bool,
}

impl std::ops::Deref for Compared<'_> {
    type Target = Found;

    fn deref(&self) -> &Found {
        &self.found
    }
}

/// All metrics of a cell that are there or too short for the clock.
fn figures<'r>(results: &Results, cell: &'r CellResult) -> Vec<Compared<'r>> {
    let found = cell.metrics.iter().map(|found| Compared { found: Cow::Borrowed(found), is_below: false });
    found.chain(cell.unresolved.iter().map(|unresolved| below(results, cell, unresolved))).collect()
}

/// One of them.
fn figure<'r>(results: &Results, cell: &'r CellResult, metric: &str) -> Option<Compared<'r>> {
    figures(results, cell).into_iter().find(|figure| figure.metric == metric)
}

/// What is known of a time that the clock does not resolve: that it lies between nothing and the shortest that is resolved.
fn below<'r>(results: &Results, cell: &CellResult, unresolved: &Unresolved) -> Compared<'r> {
    let Unresolved { metric, unit, better, count } = unresolved.clone();
    let most = LEAST_STEPS * step_in(&unit, results, cell, &metric);
    let interval = Interval { low: 0.0, high: most };
    let (quartiles, median_95) = (interval, interval);
    let found = Found { metric, unit, better, count, median: most, quartiles, median_95, samples: Vec::new() };
    Compared { found: Cow::Owned(found), is_below: true }
}

/// What a step of the clock is in a metric's unit; 0 where that is nothing to it.
fn step(results: &Results, cell: &CellResult, found: &Found) -> f64 {
    // No clock has told what was computed.
    match cell.provenance {
        Some(Provenance::Modelled) => 0.0,
        _ => step_in(&found.unit, results, cell, &found.metric),
    }
}

fn step_in(unit: &str, results: &Results, cell: &CellResult, metric: &str) -> f64 {
    let (clock, steps) = (&results.machine, cell.cell.measure().clock_steps(&cell.cell, metric));
    let ticks = steps * clock.step_ticks as f64;
    if unit == "ns" && ticks > 0.0 { ticks / clock.ticks_per_ns } else { ticks }
}

/// Differences that are none.
struct Tolerated {
    /// In parts of the first median.
    part: f64,
    /// A step of the clock: where all samples have the same number of steps, their interval is a point.
    step: f64,
}

/// Two medians, whose intervals are taken so much wider.
fn change(cell: &str, before: &Compared<'_>, after: &Compared<'_>, width: f64, tolerated: &Tolerated) -> Change {
    let ends = |found: &Found| {
        let Found { median, median_95, .. } = found;
        (median - width * (median - median_95.low), median + width * (median_95.high - median))
    };
    let ((low_before, high_before), (low_after, high_after)) = (ends(before), ends(after));
    let meet = low_before <= high_after && low_after <= high_before;
    let difference = (after.median - before.median).abs();
    // The step is what divisions have made of it.
    let is_small = difference <= tolerated.part * before.median.abs() || difference <= 1.001 * tolerated.step;
    let verdict = match (after.median < before.median, before.better) {
        _ if meet || is_small => Verdict::Same,
        (true, Better::Less) | (false, Better::More) => Verdict::Better,
        (false, Better::Less) | (true, Better::More) => Verdict::Worse,
    };
    Change {
        cell: cell.to_owned(),
        metric: before.metric.clone(),
        unit: before.unit.clone(),
        before: before.median,
        after: after.median,
        is_below_before: before.is_below,
        is_below_after: after.is_below,
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    fn found(better: Better, low: f64, median: f64, high: f64) -> Compared<'static> {
        let interval = Interval { low, high };
        let found = Found {
            metric: "m".into(),
            unit: "u".into(),
            better,
            count: 5,
            median,
            quartiles: interval,
            median_95: interval,
            samples: Vec::new(),
        };
        Compared { found: Cow::Owned(found), is_below: false }
    }

    #[test]
    fn what_changes_by_more_than_intervals_and_tolerance_is_better_or_worse() {
        let verdict = |better, before: (f64, f64, f64), after: (f64, f64, f64), tolerance| {
            let (before, after) =
                (found(better, before.0, before.1, before.2), found(better, after.0, after.1, after.2));
            change("c", &before, &after, 1.0, &Tolerated { part: tolerance, step: 0.0 }).verdict
        };
        let (ten, eleven) = ((9.9, 10.0, 10.1), (10.9, 11.0, 11.1));
        assert_eq!(verdict(Better::Less, ten, eleven, 0.02), Verdict::Worse);
        assert_eq!(verdict(Better::More, ten, eleven, 0.02), Verdict::Better);
        assert_eq!(verdict(Better::Less, eleven, ten, 0.02), Verdict::Better);
        assert_eq!(verdict(Better::More, eleven, ten, 0.02), Verdict::Worse);
        assert_eq!(verdict(Better::Less, ten, eleven, 0.2), Verdict::Same, "a tenth is tolerated");
        assert_eq!(verdict(Better::Less, (9.0, 10.0, 10.9), eleven, 0.0), Verdict::Same, "the intervals meet");
        assert_eq!(verdict(Better::Less, ten, ten, 0.0), Verdict::Same);
    }

    /// Quantiles of the normal distribution, from a table: 1.96 at 5 %, 3.2905 at 0.1 %.
    #[test]
    fn intervals_are_wider_the_more_there_are() {
        assert!((two_sided(0.05) - 1.959_96).abs() < 5e-4 && (two_sided(0.001) - 3.290_5).abs() < 5e-4);
        assert!(width_for(0) == 1.0 && width_for(1) == 1.0);
        assert!((width_for(50) - 3.290_5 / 1.959_96).abs() < 5e-4);
        let (before, after) = (found(Better::Less, 9.9, 10.0, 10.1), found(Better::Less, 10.2, 10.3, 10.4));
        let verdict = |width| change("c", &before, &after, width, &Tolerated { part: 0.0, step: 0.0 }).verdict;
        assert_eq!((verdict(1.0), verdict(width_for(50))), (Verdict::Worse, Verdict::Same));
    }

    fn runs(name: &str, medians: &[(&str, f64)]) -> Results {
        let cell = crate::plan::Plan::built_in(name).unwrap().cells().unwrap().remove(0);
        Results { cells: vec![CellResult::for_test(medians, cell)], ..Results::for_test() }
    }

    /// A pair has two intervals, so those of one are wider than one by itself.
    #[test]
    fn both_intervals_of_a_pair_hold_together() {
        let with = |low: f64, high: f64| {
            let mut results = runs("load", &[("latency", (low + high) / 2.0)]);
            results.cells[0].metrics[0].median_95 = Interval { low, high };
            results
        };
        // Alone each ends where the other begins, but for a tenth of its half.
        let comparison = Comparison::new(&with(9.0, 11.0), &with(11.1, 13.1), 0.0);
        assert_eq!(comparison.changes[0].verdict, Verdict::Same);
        let comparison = Comparison::new(&with(9.0, 11.0), &with(11.4, 13.4), 0.0);
        assert_eq!(comparison.changes[0].verdict, Verdict::Worse);
    }

    /// Two ticks a nanosecond, in steps of 26.
    #[test]
    fn a_step_of_the_clock_is_no_difference() {
        let verdicts = |name: &str, before: &[(&str, f64)], after: &[(&str, f64)]| {
            let [before, after] = [before, after].map(|medians| {
                let mut results = runs(name, medians);
                (results.machine.step_ticks, results.machine.ticks_per_ns) = (26, 2.0);
                results
            });
            let changes = Comparison::new(&before, &after, 0.02).changes;
            changes.into_iter().map(|change| change.verdict).collect::<Vec<_>>()
        };
        let before = [("sustained", 91.0), ("isolated", 91.0), ("isolated-ticks", 182.0)];
        let step_later = [("sustained", 104.0), ("isolated", 104.0), ("isolated-ticks", 208.0)];
        let two_later = [("sustained", 117.0), ("isolated", 117.0), ("isolated-ticks", 234.0)];
        use Verdict::{Same, Worse};
        assert_eq!(verdicts("latency", &before, &step_later), [Worse, Same, Same]);
        assert_eq!(verdicts("latency", &before, &two_later), [Worse; 3]);
        let burst = |ns| [("burst", ns), ("line", ns), ("burst-ticks", 2.0 * ns), ("line-ticks", 2.0 * ns)];
        assert_eq!(verdicts("burst", &burst(91.0), &burst(104.0)), [Same; 4], "it has one line");
        let hand_off = |ns| [("hand-off", ns), ("hand-off-ticks", 2.0 * ns)];
        assert_eq!(verdicts("locks", &hand_off(91.0), &hand_off(104.0)), [Same; 2]);
    }

    /// Two ticks a nanosecond, in steps of 26: three steps are 39 ns, and four 52.
    #[test]
    fn what_became_too_short_for_the_clock_is_not_lost() {
        let with = |sustained: f64, isolated: Option<f64>| {
            let medians = [("sustained", sustained), ("isolated", isolated.unwrap_or_default())];
            let mut results = runs("latency", &medians[..1 + usize::from(isolated.is_some())]);
            (results.machine.step_ticks, results.machine.ticks_per_ns) = (26, 2.0);
            if isolated.is_none() {
                let [_, isolated, ..] = results.cells[0].cell.measure().metrics() else { panic!("two metrics") };
                results.cells[0].unresolved = vec![Unresolved::of(isolated, 5)];
            }
            results
        };
        let of_isolated = |before: Option<f64>, after: Option<f64>| {
            let comparison = Comparison::new(&with(20.0, before), &with(20.0, after), 0.02);
            assert_eq!((comparison.lost.len(), comparison.too_few.len(), comparison.changes.len()), (0, 0, 2));
            assert_eq!(comparison.has_regressed(), comparison.changes[1].verdict == Verdict::Worse);
            comparison.changes[1].clone()
        };
        assert_eq!(of_isolated(Some(39.0), None).verdict, Verdict::Same);
        assert_eq!(of_isolated(Some(52.0), None).verdict, Verdict::Same, "it was a step above what is resolved");
        let change = of_isolated(Some(65.0), None);
        assert_eq!((change.verdict, change.after), (Verdict::Better, 39.0));
        assert_eq!((change.is_below_before, change.is_below_after), (false, true));
        assert_eq!(of_isolated(None, Some(52.0)).verdict, Verdict::Same);
        let change = of_isolated(None, Some(65.0));
        assert_eq!((change.verdict, change.before, change.is_below_before), (Verdict::Worse, 39.0, true));
        assert_eq!(of_isolated(None, None).verdict, Verdict::Same);
        // A cell of which nothing is resolved has no status but `few`.
        let mut nothing = with(20.0, None);
        nothing.cells[0].metrics.clear();
        (nothing.cells[0].status, nothing.cells[0].reason) = (Status::Few, Some("nothing is resolved".into()));
        let mut one = with(20.0, Some(52.0));
        one.cells[0].metrics.remove(0);
        for (before, after) in [(&one, &nothing), (&nothing, &one)] {
            let comparison = Comparison::new(before, after, 0.02);
            assert_eq!((comparison.lost.len(), comparison.changes[0].verdict), (0, Verdict::Same));
        }
        nothing.cells[0].unresolved[0].count = 4;
        assert_eq!(Comparison::new(&one, &nothing, 0.02).too_few.len(), 1);
    }

    #[test]
    fn no_step_is_tolerated_of_what_was_computed() {
        let changes = |provenance| {
            let [before, after] = [91.0, 104.0].map(|isolated| {
                let mut results = runs("latency", &[("sustained", 20.0), ("isolated", isolated)]);
                (results.machine.step_ticks, results.machine.ticks_per_ns) = (26, 2.0);
                results.cells[0].provenance = Some(provenance);
                results
            });
            Comparison::new(&before, &after, 0.02).changes[1].verdict
        };
        assert_eq!(
            [Provenance::Measured, Provenance::Emulated, Provenance::Modelled].map(changes),
            [Verdict::Same, Verdict::Same, Verdict::Worse]
        );
    }

    #[test]
    fn what_makes_runs_hard_to_compare_is_told() {
        let before = runs("load", &[("latency", 10.0)]);
        assert_eq!(warnings(&before, &before), [""; 0]);
        let mut after = before.clone();
        after.version = "1".into();
        after.enough.sample_ns *= 2;
        let machine = &mut after.machine;
        (machine.prefetchers, machine.governor) = ("off".into(), Some("powersave".into()));
        machine.huge_pages = Some("never".into());
        after.cells[0].page_bytes = Some(4096);
        let told = warnings(&before, &after);
        for what in [
            "governor: 'unknown' before, 'powersave' after",
            "huge pages: ",
            "prefetchers: '' before, 'off' after",
            "remanent: '0' before, '1' after",
            "time of a sample: '20 ms' before, '40 ms' after",
            "'measured' before, 'measured in pages of 4096 bytes' after",
        ] {
            assert!(told.iter().any(|told| told.contains(what)), "{what}: {told:?}");
        }
        // Another file system at the same path, or another source of a profile.
        let with_memory = |text: &str| {
            let mut results = runs("load", &[("latency", 10.0)]);
            results.cells.push(results.cells[0].clone());
            results.cells[1].cell.keys.insert("size".into(), Value::Number(64));
            results.cells.iter_mut().for_each(|cell| cell.memory = Some(text.into()));
            results
        };
        let told = warnings(&with_memory("page cache over ext4"), &with_memory("page cache over xfs"));
        assert_eq!(told, ["memory dram: 'page cache over ext4' before, 'page cache over xfs' after"]);
        // A cell without figures has no memory that could be another.
        let mut without = before.clone();
        (without.cells[0].provenance, without.cells[0].page_bytes) = (None, None);
        assert_eq!((warnings(&before, &without).len(), warnings(&without, &before).len()), (0, 0));
    }

    #[test]
    fn what_cannot_be_measured_any_more_is_told() {
        let before = runs("load", &[("latency", 10.0), ("loads", 100.0)]);
        let lost = |after: &Results| {
            let comparison = Comparison::new(&before, after, 0.02);
            assert_eq!(comparison.has_regressed(), !comparison.lost.is_empty());
            comparison.lost
        };
        let without = lost(&runs("load", &[("latency", 10.0)]));
        assert!(without.len() == 1 && without[0].starts_with("loads of load "), "{without:?}");
        let mut few = runs("load", &[]);
        few.cells[0].status = Status::Few;
        assert_eq!(lost(&few), [""; 0], "there was no time");
        few.cells[0].reason = Some("nothing is resolved".into());
        assert!(lost(&few)[0].ends_with(": nothing is resolved"));
    }

    #[test]
    fn every_metric_counts_and_a_run_is_the_same_as_itself() {
        let cells = crate::plan::Plan::built_in("load").unwrap().cells().unwrap();
        let results = |latency: f64, loads: f64, status| Results {
            cells: vec![CellResult {
                status,
                ..CellResult::for_test(&[("latency", latency), ("loads", loads)], cells[0].clone())
            }],
            ..Results::for_test()
        };
        let before = results(10.0, 100.0, Status::Precise);
        let has_regressed = |after: &Results| Comparison::new(&before, after, 0.02).has_regressed();
        assert!(!has_regressed(&before));
        assert!(has_regressed(&results(10.3, 100.0, Status::Precise)));
        assert!(has_regressed(&results(10.0, 95.0, Status::Noisy)), "the second metric counts too");
        assert!(!has_regressed(&results(10.0, 97.0, Status::Noisy)), "but is tolerated twice as much");
        assert!(!has_regressed(&results(9.0, 110.0, Status::Precise)));
        let few = Comparison::new(&before, &results(20.0, 1.0, Status::Few), 0.02);
        assert!(few.changes.is_empty() && few.too_few.len() == 1 && few.only_before.is_empty());
        let mut one_value = results(20.0, 1.0, Status::Precise);
        one_value.cells[0].metrics[0].count = 1;
        let few = Comparison::new(&before, &one_value, 0.02);
        assert_eq!(
            (few.changes.len(), few.too_few.len()),
            (1, 1),
            "one value says nothing, whatever the cell's status"
        );
        let mut refused = results(10.0, 100.0, Status::Refused);
        (refused.cells[0].metrics, refused.cells[0].reason) = (Vec::new(), Some("it is not true".into()));
        let lost = Comparison::new(&before, &refused, 0.02);
        assert!(lost.has_regressed() && lost.lost[0].ends_with(": it is not true"));
        for after in [&before, &refused] {
            assert!(!Comparison::new(&refused, after, 0.02).has_regressed(), "there was nothing to lose");
        }
    }
}
