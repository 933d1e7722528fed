//! A result as it is printed and stored.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::samples::{Interval, Samples};

/// Where a figure comes from; it is never left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Measured on the device it speaks of.
    Measured,
    /// Measured on memory that stands in for a device.
    Emulated,
    /// Computed by a model of a device.
    Modelled,
}

impl Provenance {
    /// The label that stands beside a figure.
    pub fn as_str(self) -> &'static str {
        match self {
            Provenance::Measured => "measured",
            Provenance::Emulated => "emulated",
            Provenance::Modelled => "modelled",
        }
    }
}

/// One result: a line of a table, or an object of a JSON file.
///
/// | field | meaning |
/// | --- | --- |
/// | `schema` | `remanent-record-1`; another form has another name |
/// | `name` | what was measured |
/// | `unit` | unit of all values |
/// | `provenance` | `measured`, `emulated` or `modelled` |
/// | `count` | number of values |
/// | `median` | their median |
/// | `quartiles` | first and third quartile, `low` and `high` |
/// | `median_95` | 95 % bootstrap interval of the median, `low` and `high` |
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    schema: &'static str,
    name: String,
    unit: &'static str,
    provenance: Provenance,
    count: usize,
    median: f64,
    quartiles: Interval,
    median_95: Interval,
}

/// Any seed serves; a fixed one gives the same report for the same values.
const INTERVAL_SEED: u64 = 1;

impl Record {
    /// Sums up samples.
    pub fn new(name: &str, unit: &'static str, provenance: Provenance, samples: &Samples) -> Record {
        Record {
            schema: "remanent-record-1",
            name: name.to_owned(),
            unit,
            provenance,
            count: samples.count(),
            median: samples.median(),
            quartiles: samples.quartiles(),
            median_95: samples.median_interval(INTERVAL_SEED),
        }
    }

    /// The record as JSON, in one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a record holds finite numbers and strings only")
    }
}

/// A line of a plain table: name, median, quartiles, unit and where the figure comes from.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interval { low, high } = self.quartiles;
        let spread = format!("[{low:.4} .. {high:.4}]");
        write!(f, "{:<32} {:>14.4} {spread:>28} {:<8} {}", self.name, self.median, self.unit, self.provenance.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let samples = Samples::new(vec![4.0, 4.0, 4.0]).unwrap();
        Record::new("persist 64 B", "ns", Provenance::Emulated, &samples)
    }

    #[test]
    fn the_json_form_is_the_documented_one() {
        let expected = "{\"schema\":\"remanent-record-1\",\"name\":\"persist 64 B\",\"unit\":\"ns\",\
            \"provenance\":\"emulated\",\"count\":3,\"median\":4.0,\"quartiles\":{\"low\":4.0,\"high\":4.0},\
            \"median_95\":{\"low\":4.0,\"high\":4.0}}";
        assert_eq!(record().to_json(), expected);
    }

    #[test]
    fn a_line_names_unit_and_provenance() {
        let line = record().to_string();
        assert!(line.starts_with("persist 64 B ") && line.ends_with("ns       emulated"), "{line}");
        assert!(line.contains("4.0000") && line.contains("[4.0000 .. 4.0000]"), "{line}");
    }
}
