//! What a run found, as it is stored, compared and drawn.

use std::collections::BTreeMap;

use report::{Interval, Provenance, Samples};
use serde::{Deserialize, Serialize};

use crate::findings::Finding;
use crate::machine::{Disturbance, Machine};
use crate::measure::{self, Better, Cell, Metric};
use crate::plan::{Enough, Figure};
use crate::run::LEAST_VALUES;

/// The form of the file; another form has another name.
pub const SCHEMA: &str = "remanent-bench-1";

/// All that a run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// The plan's name.
    pub plan: String,
    /// What the plan is for.
    pub about: String,
    /// The version of the program.
    pub version: String,
    /// When the run began, in seconds since 1970.
    pub started_s: u64,
    /// How long it took, with the parts before it was resumed, in nanoseconds.
    pub elapsed_ns: u64,
    /// What all orders and data were drawn from.
    pub seed: u64,
    /// When there were to be enough samples.
    pub enough: Enough,
    /// The machine.
    pub machine: Machine,
    /// What took CPU time away meanwhile.
    pub disturbance: Disturbance,
    /// 10^9 bytes a second from the first-level cache by each number of threads, above which no figure is believed.
    pub ceilings_gb_s: BTreeMap<usize, f64>,
    /// What was measured.
    pub cells: Vec<CellResult>,
    /// What the cells say when they are held together.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// What is drawn of it.
    pub figures: Vec<Figure>,
}

/// What a run found of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// How it went.
    pub status: Status,
    /// Why, if there is something to say.
    pub reason: Option<String>,
    /// Where its figures come from; nothing when there are none.
    pub provenance: Option<Provenance>,
    /// What its memory really was.
    pub memory: Option<String>,
    /// The real size of its pages.
    pub page_bytes: Option<usize>,
    /// What was found of each metric; one that has no meaning in this cell, or cannot be resolved, is left out.
    pub metrics: Vec<Found>,
    /// Metrics that are too short for the clock.
    #[serde(default)]
    pub unresolved: Vec<Unresolved>,
    /// Of the isolated operations of all samples: nanoseconds at these fractions of them.
    pub percentiles_ns: BTreeMap<String, f64>,
    /// The same in ticks of the counter.
    #[serde(default)]
    pub percentiles_ticks: BTreeMap<String, u64>,
    /// The largest part of a sample's time that reading the clock and the loop took; nothing where it is not known.
    pub overhead: Option<f64>,
    /// Samples during which the hypervisor took CPU time away.
    pub disturbed: usize,
}

/// How a cell went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As precise as the plan asks for.
    Precise,
    /// There are as many samples as the plan allows, or the time was over, and they differ by more.
    Noisy,
    /// The time was over before there were as many samples as the plan asks for, or there are fewer values than it takes to say how
    /// precise they are; or the clock resolves none, of which the reason tells.
    Few,
    /// It cannot be measured on this machine.
    Skipped,
    /// A sample cannot be true: nothing of the cell is believed.
    Refused,
}

/// What was found of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The metric.
    pub metric: String,
    /// The unit of all values.
    pub unit: String,
    /// Which of two values is the better one.
    pub better: Better,
    /// The number of samples.
    pub count: usize,
    /// Their median.
    pub median: f64,
    /// First and third quartile.
    pub quartiles: Interval,
    /// The 95 % bootstrap interval of the median.
    pub median_95: Interval,
    /// The samples, in the order in which they were taken, when they were asked for; a measured time of 0 is one that the clock cannot
    /// tell from none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
}

/// A metric of which at least half the samples are shorter than the clock resolves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unresolved {
    /// The metric.
    pub metric: String,
    /// The unit that it would have.
    pub unit: String,
    /// Which of two values would be the better one.
    pub better: Better,
    /// The number of samples.
    pub count: usize,
}

impl Unresolved {
    pub(crate) fn of(metric: &Metric, count: usize) -> Unresolved {
        Unresolved { metric: metric.name.to_owned(), unit: metric.unit.to_owned(), better: metric.better, count }
    }
}

/// Any seed serves; a fixed one gives the same interval for the same samples.
const INTERVAL_SEED: u64 = 1;

impl Found {
    /// Sums up samples; nothing when there are none.
    pub(crate) fn of(metric: &Metric, values: &[f64]) -> Option<Found> {
        let samples = Samples::new(values.to_vec())?;
        Some(Found {
            metric: metric.name.to_owned(),
            unit: metric.unit.to_owned(),
            better: metric.better,
            count: samples.count(),
            median: samples.median(),
            quartiles: samples.quartiles(),
            median_95: samples.median_interval(INTERVAL_SEED),
            samples: Vec::new(),
        })
    }

    /// Whether there are enough values, and half of the 95 % interval of their median is such a part of it.
    pub fn is_precise(&self, precision: f64) -> bool {
        self.count >= LEAST_VALUES && self.half_width() <= precision
    }

    /// Half of the 95 % interval, in parts of the median.
    pub fn half_width(&self) -> f64 {
        let Interval { low, high } = self.median_95;
        if high == low { 0.0 } else { (high - low) / 2.0 / self.median.abs() }
    }
}

impl Results {
    /// Results that were read, with keys that measurements had not yet when they were written: set to what they are where nothing is
    /// said.
    ///
    /// # Errors
    /// What keeps them from being understood: a measurement that this version does not know, or a key that it cannot do without.
    pub fn understood(mut self) -> Result<Results, String> {
        for cell in self.cells.iter_mut().map(|result| &mut result.cell) {
            let measure =
                measure::named(&cell.measure).ok_or_else(|| format!("no measurement is called '{}'", cell.measure))?;
            for key in measure.keys() {
                if cell.keys.contains_key(key.name) {
                    continue;
                }
                match &key.values(key.default)?[..] {
                    [default] => _ = cell.keys.insert(key.name.to_owned(), default.clone()),
                    _ => return Err(format!("a cell of {} has no key '{}'", cell.measure, key.name)),
                }
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
impl Results {
    /// A run without cells.
    pub(crate) fn for_test() -> Results {
        Results {
            schema: SCHEMA.into(),
            plan: "test".into(),
            about: String::new(),
            version: "0".into(),
            started_s: 0,
            elapsed_ns: 0,
            seed: 1,
            enough: Enough::default(),
            machine: Machine::default(),
            disturbance: Disturbance::default(),
            ceilings_gb_s: BTreeMap::new(),
            cells: Vec::new(),
            findings: Vec::new(),
            figures: Vec::new(),
        }
    }
}

impl CellResult {
    /// A cell with these medians, for tests of what is made of them.
    #[cfg(test)]
    pub(crate) fn for_test(medians: &[(&str, f64)], cell: Cell) -> CellResult {
        let metrics = cell.measure().metrics().iter();
        let found = |metric: &Metric| {
            let median = medians.iter().find(|(name, _)| *name == metric.name)?.1;
            Found::of(metric, &[median; 5])
        };
        CellResult {
            metrics: metrics.filter_map(found).collect(),
            unresolved: Vec::new(),
            status: Status::Precise,
            reason: None,
            provenance: Some(Provenance::Measured),
            memory: None,
            page_bytes: None,
            percentiles_ns: BTreeMap::new(),
            percentiles_ticks: BTreeMap::new(),
            overhead: None,
            disturbed: 0,
            cell,
        }
    }

    /// What was found of a metric.
    pub fn found(&self, metric: &str) -> Option<&Found> {
        self.metrics.iter().find(|found| found.metric == metric)
    }
}

/// The value that so large a part of all does not exceed, of how often each came.
pub fn percentile(counts: &BTreeMap<u64, u64>, part: f64) -> Option<u64> {
    let all: u64 = counts.values().sum();
    let rank = ((all as f64 * part).ceil() as u64).max(1);
    let mut so_far = 0;
    counts
        .iter()
        .find(|(_, count)| {
            so_far += **count;
            so_far >= rank
        })
        .map(|(value, _)| *value)
}

/// The parts of which percentiles are told; one that fewer values than its reciprocal would decide is left out.
pub const PARTS: [(&str, f64); 6] =
    [("50", 0.5), ("90", 0.9), ("99", 0.99), ("99.9", 0.999), ("99.99", 0.9999), ("100", 1.0)];

/// The percentiles that these counts can tell.
pub fn percentiles(counts: &BTreeMap<u64, u64>) -> BTreeMap<String, u64> {
    let all: u64 = counts.values().sum();
    let is_told = |part: f64| all > 0 && (part == 1.0 || all as f64 * (1.0 - part) >= 1.0);
    let told = PARTS.iter().filter(|(_, part)| is_told(*part));
    told.filter_map(|(name, part)| Some(((*name).to_owned(), percentile(counts, *part)?))).collect()
}

/// One line for each metric of each cell, with a first line of names (RFC 4180).
pub fn csv(results: &Results) -> String {
    let mut keys: Vec<&str> = Vec::new();
    for cell in &results.cells {
        let new =
            cell.cell.measure().keys().iter().map(|key| key.name).filter(|key| !keys.contains(key)).collect::<Vec<_>>();
        keys.extend(new);
    }
    let mut lines = vec![format!(
        "measure,{},metric,unit,provenance,status,count,median,low_95,high_95,quartile_1,quartile_3,page_bytes,overhead,disturbed,reason",
        keys.join(",")
    )];
    for result in &results.cells {
        let value = |key: &&str| result.cell.keys.get(*key).map(ToString::to_string).unwrap_or_default();
        let keys: Vec<String> = keys.iter().map(value).map(|text| field(&text)).collect();
        let provenance = result.provenance.map_or("", Provenance::as_str);
        let status = serde_json::to_value(result.status).expect("a name");
        let status = status.as_str().unwrap_or_default();
        let start = format!("{},{}", result.cell.measure, keys.join(","));
        let page_bytes = result.page_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        let overhead = result.overhead.map(|part| part.to_string()).unwrap_or_default();
        let reason = field(result.reason.as_deref().unwrap_or_default());
        let end = format!("{page_bytes},{overhead},{},{reason}", result.disturbed);
        if result.metrics.is_empty() {
            lines.push(format!("{start},,,{provenance},{status},0,,,,,,{end}"));
        }
        for found in &result.metrics {
            let Found { metric, unit, count, median, quartiles, median_95, .. } = found;
            lines.push(format!(
                "{start},{metric},{unit},{provenance},{status},{count},{median},{},{},{},{},{end}",
                median_95.low, median_95.high, quartiles.low, quartiles.high
            ));
        }
    }
    lines.join("\r\n") + "\r\n"
}

fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_told_as_far_as_the_values_reach() {
        let counts: BTreeMap<u64, u64> = [(10, 90), (20, 9), (500, 1)].into();
        assert_eq!(percentile(&counts, 0.5), Some(10));
        assert_eq!(percentile(&counts, 0.9), Some(10));
        assert_eq!(percentile(&counts, 0.91), Some(20));
        assert_eq!(percentile(&counts, 1.0), Some(500));
        let told = percentiles(&counts);
        assert_eq!(told.keys().collect::<Vec<_>>(), ["100", "50", "90", "99"]);
        assert_eq!(told["99"], 20);
        assert!(percentiles(&BTreeMap::new()).is_empty() && percentile(&BTreeMap::new(), 0.5).is_none());
    }

    #[test]
    fn results_of_earlier_versions_are_understood() {
        let cell = crate::plan::Plan::built_in("load").unwrap().cells().unwrap().remove(0);
        let without = |name: &str| {
            let mut cell = cell.clone();
            cell.keys.remove(name);
            Results { cells: vec![CellResult::for_test(&[], cell)], ..Results::for_test() }.understood()
        };
        assert_eq!(without("chains").unwrap().cells[0].cell, cell);
        assert_eq!(without("size").unwrap_err(), "a cell of load has no key 'size'");
        let mut unknown = without("chains").unwrap();
        unknown.cells[0].cell.measure = "speed".into();
        assert_eq!(unknown.understood().unwrap_err(), "no measurement is called 'speed'");
    }

    #[test]
    fn fields_are_quoted_where_they_must() {
        assert_eq!(["a", "a,b", "a\"b"].map(field), ["a", "\"a,b\"", "\"a\"\"b\""]);
    }
}
