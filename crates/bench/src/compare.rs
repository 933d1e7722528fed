//! Two runs of the same cells, held against one another by their intervals.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::measure::Better;
use crate::results::{CellResult, Found, Results, Status};

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
    /// What is to be thought of it.
    pub verdict: Verdict,
}

/// What is to be thought of two medians.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Their 95 % intervals meet, or they differ by less than what is tolerated.
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
    /// Cells of which one run has too few samples.
    pub too_few: Vec<String>,
    /// Cells that only the first run has figures of.
    pub only_before: Vec<String>,
    /// Cells that only the second run has figures of.
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
        let (mut changes, mut too_few) = (Vec::new(), Vec::new());
        for (name, a) in &first {
            let Some(b) = second.get(name) else { continue };
            if [a.status, b.status].contains(&Status::Few) {
                too_few.push(name.clone());
                continue;
            }
            for (number, found) in a.metrics.iter().enumerate() {
                let tolerance = if number == 0 { tolerance } else { OTHERS * tolerance };
                changes.extend(b.found(&found.metric).map(|after| change(name, found, after, tolerance)));
            }
        }
        let mut warnings = Vec::new();
        let mut differ = |what: &str, a: &str, b: &str| {
            if a != b {
                warnings.push(format!("{what}: '{a}' before, '{b}' after"));
            }
        };
        differ("CPU", &before.machine.cpu, &after.machine.cpu);
        differ("CPUs", &before.machine.cpus.to_string(), &after.machine.cpus.to_string());
        differ("kernel", &before.machine.kernel, &after.machine.kernel);
        for (name, a) in &first {
            if let Some(b) = second.get(name).filter(|b| b.page_bytes != a.page_bytes || b.provenance != a.provenance) {
                let what = |cell: &CellResult| format!("{:?} in pages of {:?} bytes", cell.provenance, cell.page_bytes);
                differ(name, &what(a), &what(b));
            }
        }
        let (only_before, only_after) = (missing(&first, &second), missing(&second, &first));
        Comparison { changes, too_few, only_before, only_after, warnings }
    }

    /// Whether something has become worse.
    pub fn has_regressed(&self) -> bool {
        self.changes.iter().any(|change| change.verdict == Verdict::Worse)
    }
}

type Named<'r> = BTreeMap<String, &'r CellResult>;

fn missing(of: &Named<'_>, other: &Named<'_>) -> Vec<String> {
    of.keys().filter(|name| !other.contains_key(*name)).cloned().collect()
}

/// Cells that have figures.
fn by_name(results: &Results) -> Named<'_> {
    let cells = results.cells.iter().filter(|cell| !cell.metrics.is_empty());
    cells.map(|cell| (cell.cell.to_string(), cell)).collect()
}

fn change(cell: &str, before: &Found, after: &Found, tolerance: f64) -> Change {
    let meet = before.median_95.low <= after.median_95.high && after.median_95.low <= before.median_95.high;
    let is_small = (after.median - before.median).abs() <= tolerance * before.median.abs();
    let verdict = match (after.median < before.median, before.better) {
        _ if meet || is_small => Verdict::Same,
        (true, Better::Less) | (false, Better::More) => Verdict::Better,
        (false, Better::Less) | (true, Better::More) => Verdict::Worse,
    };
    let (metric, unit) = (before.metric.clone(), before.unit.clone());
    Change { cell: cell.to_owned(), metric, unit, before: before.median, after: after.median, verdict }
}

#[cfg(test)]
mod tests {
    use report::Interval;

    use super::*;

    fn found(better: Better, low: f64, median: f64, high: f64) -> Found {
        let interval = Interval { low, high };
        Found {
            metric: "m".into(),
            unit: "u".into(),
            better,
            count: 5,
            median,
            quartiles: interval,
            median_95: interval,
            samples: Vec::new(),
        }
    }

    #[test]
    fn what_changes_by_more_than_intervals_and_tolerance_is_better_or_worse() {
        let verdict = |better, before: (f64, f64, f64), after: (f64, f64, f64), tolerance| {
            let (before, after) =
                (found(better, before.0, before.1, before.2), found(better, after.0, after.1, after.2));
            change("c", &before, &after, tolerance).verdict
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
    }
}
