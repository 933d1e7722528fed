//! What every measurement is to the plan, the runner and the reports: keys, metrics, and a sample of a cell.
//!
//! A *cell* is one combination of a measurement's keys. A *sample* is one repetition of a cell: a value of each metric.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use pmem::DeviceProfile;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::memory::{Pages, Place};
use crate::model;
use crate::pattern::Pattern;
use crate::room::MOST_BYTES;
use crate::site::Site;
use crate::value::{self, Value};
use crate::{bandwidth, burst, chain, fault, join, latency, loaded, locks, mixed, operations, reload, stack, topology};

/// A measurement.
pub trait Measure: Sync {
    /// Its name in plans.
    fn name(&self) -> &'static str;
    /// What it measures, in a line.
    fn about(&self) -> &'static str;
    /// What can be set, in the order in which reports name it.
    fn keys(&self) -> &'static [Key];
    /// What a sample has a value of; the first decides when there are enough samples.
    fn metrics(&self) -> &'static [Metric];
    /// What a cell needs, or why it cannot be measured here.
    ///
    /// # Errors
    /// `Unavailable`, when this machine has not what it takes.
    fn needs(&self, cell: &Cell) -> Result<Needs>;
    /// One sample.
    ///
    /// # Errors
    /// `Wrong` when what was read back is not what was there.
    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample>;
    /// What a sample would be on a device that is modelled.
    ///
    /// # Errors
    /// `Unavailable` when the model, or the device's profile, says nothing of it.
    fn model(&self, _cell: &Cell, _device: &'static DeviceProfile, _seed: u64) -> Result<Sample> {
        Err(Error::unavailable(format!("'{}' is not of the device, and has no modelled form", self.name())))
    }
    /// By how many steps of the clock two values of a metric differ whose times differ by one: 1 for a single time between two readings, 0
    /// where so many operations lie between them that a step is nothing.
    fn clock_steps(&self, _cell: &Cell, _metric: &str) -> f64 {
        0.0
    }
    /// Whether a device that is modelled is waited for in real time: then [`Measure::sample`] runs on it, not
    /// [`Measure::model`].
    fn waits_for_devices(&self) -> bool {
        false
    }
}

/// All measurements.
pub static ALL: [&dyn Measure; 14] = [
    &latency::Latency,
    &chain::Chains,
    &bandwidth::Bandwidth,
    &bandwidth::Iops,
    &stack::Stack,
    &loaded::Loaded,
    &mixed::Mixed,
    &operations::Operations,
    &reload::Reload,
    &burst::Burst,
    &fault::Fault,
    &locks::Locks,
    &join::Joins,
    &topology::Topology,
];

/// The measurement of a name.
pub fn named(name: &str) -> Option<&'static dyn Measure> {
    ALL.into_iter().find(|measure| measure.name() == name)
}

/// Something that can be set.
#[derive(Debug)]
pub struct Key {
    /// Its name in plans, and that of the option.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// What it can be set to.
    pub form: Form,
    /// What it is when nothing is said.
    pub default: &'static str,
}

/// What a key can be set to.
#[derive(Debug)]
pub enum Form {
    /// A number of bytes, a multiple of this one and not 0, up to [`MOST_BYTES`].
    Bytes {
        /// 1 where any number will do.
        multiple_of: u64,
    },
    /// A number between these two; `cpus` stands for how many there are.
    Count {
        /// At least.
        least: u64,
        /// At most.
        most: u64,
    },
    /// A real number between these two.
    Real {
        /// At least.
        least: f64,
        /// At most.
        most: f64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An instruction.
    Instruction {
        /// Those of this kind of CPU.
        here: &'static [&'static str],
        /// Those of every kind.
        known: &'static [&'static str],
    },
    /// An order of lines or blocks.
    Order,
    /// `dram`, a folder, a device or `model:PROFILE`.
    Place,
    /// Operations, one after the other.
    Chain,
}

impl Form {
    /// What can be said, in a few words.
    pub fn expected(&self) -> String {
        match self {
            Form::Bytes { multiple_of: 1 } => "bytes".into(),
            Form::Bytes { multiple_of } => format!("multiples of {multiple_of} bytes"),
            Form::Count { least, most } => format!("{least} to {most}"),
            Form::Real { least, most } => format!("{least} to {most}"),
            Form::Choice(words) | Form::Instruction { here: words, .. } => words.join(", "),
            Form::Order => "sequential, random, stride:BYTES, zipf:EXPONENT, same-line".into(),
            Form::Place => "dram, a folder, a device, model:PROFILE".into(),
            Form::Chain => "ACCESS:BYTES[/FENCE], joined by +".into(),
        }
    }
}

impl Key {
    /// Where the memory comes from.
    pub const MEMORY: Key = Key {
        name: "memory",
        about: "dram, a folder for a new file, a device-DAX device, or model: and a profile",
        form: Form::Place,
        default: "dram",
    };
    /// How large its pages are.
    pub const PAGES: Key = Key {
        name: "pages",
        about: "4Ki or 2Mi, as far as the place has them",
        form: Form::Choice(&Pages::NAMES),
        default: "2Mi",
    };
    /// Threads.
    pub const THREADS: Key = Key {
        name: "threads",
        about: "threads, each on a CPU of its own while there are enough",
        form: Form::Count { least: 1, most: 1024 },
        default: "1",
    };

    /// What several texts say that it is set to. Of instructions those of other kinds of CPUs are left out beside one of this
    /// kind: a plan names the counterparts next to each other.
    ///
    /// # Errors
    /// As [`Key::values`].
    pub(crate) fn list<E>(&self, values: impl IntoIterator<Item = Result<Vec<Value>, E>>) -> Result<Vec<Value>, E> {
        let mut values = values.into_iter().collect::<Result<Vec<_>, E>>()?.concat();
        if let Form::Instruction { here, .. } = self.form {
            let is_here = |value: &Value| here.iter().any(|word| *value == Value::from(*word));
            if values.iter().any(is_here) {
                values.retain(is_here);
            }
        }
        Ok(values)
    }

    /// What a text says that it is set to: one value, a range, or `all` words.
    ///
    /// # Errors
    /// What was expected instead.
    pub fn values(&self, text: &str) -> Result<Vec<Value>, String> {
        let text = text.trim();
        match &self.form {
            Form::Bytes { multiple_of } => {
                let is_one = |bytes: &u64| *bytes > 0 && bytes.is_multiple_of(*multiple_of);
                let found = value::numbers(text)?;
                if let Some(bytes) = found.iter().find(|bytes| **bytes > MOST_BYTES) {
                    return Err(format!("{bytes} bytes are more than 64 TiB, the most that can be mapped"));
                }
                match found.iter().find(|bytes| !is_one(bytes)) {
                    Some(bytes) => Err(format!("{bytes} is no positive multiple of {multiple_of}")),
                    None => Ok(found.into_iter().map(Value::Number).collect()),
                }
            }
            Form::Count { least, most } => {
                let found = value::numbers(text)?;
                match found.iter().find(|count| !(least..=most).contains(count)) {
                    Some(count) => Err(format!("{count} is not between {least} and {most}")),
                    None => Ok(found.into_iter().map(Value::Number).collect()),
                }
            }
            Form::Real { least, most } => match value::real(text)? {
                real if (*least..=*most).contains(&real) => Ok(vec![Value::Real(real)]),
                real => Err(format!("{real} is not between {least} and {most}")),
            },
            Form::Choice(words) => choice(words, words, text),
            Form::Instruction { here, known } => choice(here, known, text),
            Form::Order => Pattern::named(text).map(|_| vec![Value::from(text)]),
            Form::Place => Place::named(text).map(|_| vec![Value::from(text)]),
            Form::Chain => operations::steps(text).map(|_| vec![Value::from(text)]),
        }
    }
}

/// A word, or all `words` of this machine; more are `known`.
fn choice(words: &[&str], known: &[&str], text: &str) -> Result<Vec<Value>, String> {
    match text {
        "all" => Ok(words.iter().map(|word| Value::from(*word)).collect()),
        _ if known.contains(&text) => Ok(vec![Value::from(text)]),
        _ => Err(format!("'{text}' is none of: {}, all", words.join(", "))),
    }
}

/// What a sample has a value of.
#[derive(Debug)]
pub struct Metric {
    /// Its name in results.
    pub name: &'static str,
    /// The unit of its values.
    pub unit: &'static str,
    /// Which of two values is the better one.
    pub better: Better,
    /// What it is, in a line.
    pub about: &'static str,
}

/// Which of two values is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// The smaller one.
    Less,
    /// The larger one.
    More,
}

/// What a cell needs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Needs {
    /// Bytes of memory at its place.
    pub memory_bytes: usize,
    /// Threads that work at a time; 0 stands for one.
    pub threads: usize,
    /// Bytes that a sample writes there, about, however long it takes.
    pub written_bytes: u64,
    /// 10^9 bytes that it writes in a second beside that, at most about.
    pub writes_gb_s: f64,
    /// How long a sample takes, about, in nanoseconds; 0 when it takes as long as the runner says.
    pub sample_ns: u64,
}

/// One repetition of a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// A value of each metric, in their order; none where it has no meaning in this cell. A measured time of 0 is one that the clock
    /// cannot tell from none.
    pub values: Vec<Option<f64>>,
    /// How often a single operation took so many ticks of the clock.
    pub ticks: BTreeMap<u64, u64>,
    /// The part of the time between two readings of the clock that reading it took, and what is around the accesses: at most,
    /// for that runs beside them where memory is waited for. Nothing where that is not known.
    pub overhead: Option<f64>,
}

/// A combination of a measurement's keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The measurement's name.
    pub measure: String,
    /// What each of its keys is set to.
    pub keys: BTreeMap<String, Value>,
}

impl Cell {
    /// The measurement.
    ///
    /// # Panics
    /// If there is none of that name: a plan has checked it.
    pub fn measure(&self) -> &'static dyn Measure {
        named(&self.measure).unwrap_or_else(|| panic!("no measurement is called {}", self.measure))
    }

    /// What it needs, or why it cannot be measured here.
    ///
    /// # Errors
    /// `Unavailable`, when this machine, or a modelled device, has not what it takes.
    pub fn needs(&self) -> Result<Needs> {
        match self.virtual_device() {
            Some(device) => {
                self.measure().model(self, device, 1).map(|_| Needs { sample_ns: 1_000_000, ..Needs::default() })
            }
            None => self.measure().needs(self),
        }
    }

    /// One sample.
    ///
    /// # Errors
    /// `Wrong` when what was read back is not what was there.
    pub fn sample(&self, site: &mut Site, seed: u64) -> Result<Sample> {
        match self.virtual_device() {
            Some(device) => self.measure().model(self, device, seed),
            None => self.measure().sample(self, site, seed),
        }
    }

    /// The device that is modelled for it.
    pub fn device(&self) -> Option<&'static DeviceProfile> {
        match self.memory()? {
            Place::Modelled(name, _) => Some(model::profile(&name).expect("the plan was checked")),
            _ => None,
        }
    }

    /// The device whose time is computed, and not waited for.
    fn virtual_device(&self) -> Option<&'static DeviceProfile> {
        self.device().filter(|_| !self.measure().waits_for_devices())
    }

    /// # Panics
    /// If the key is not set to a number.
    pub fn number(&self, key: &str) -> u64 {
        match self.keys.get(key) {
            Some(Value::Number(number)) => *number,
            other => panic!("{key} of {} is {other:?}", self.measure),
        }
    }

    /// As [`Cell::number`], for what lies in memory.
    pub fn len(&self, key: &str) -> usize {
        self.number(key) as usize
    }

    /// # Panics
    /// If the key is not set to a real number.
    pub fn real(&self, key: &str) -> f64 {
        match self.keys.get(key) {
            Some(Value::Real(real)) => *real,
            Some(Value::Number(number)) => *number as f64,
            other => panic!("{key} of {} is {other:?}", self.measure),
        }
    }

    /// # Panics
    /// If the key is not set to a word.
    pub fn word(&self, key: &str) -> &str {
        match self.keys.get(key) {
            Some(Value::Word(word)) => word,
            other => panic!("{key} of {} is {other:?}", self.measure),
        }
    }

    /// What a key is set to, as people write it.
    pub fn text(&self, key: &Key) -> String {
        match (self.keys.get(key.name), &key.form) {
            (Some(Value::Number(bytes)), Form::Bytes { .. }) => value::short_bytes(*bytes),
            (Some(value), _) => value.to_string(),
            (None, _) => String::new(),
        }
    }

    /// What the key `order` is set to.
    pub fn order(&self) -> Pattern {
        Pattern::named(self.word("order")).expect("the plan was checked")
    }

    /// What the key `memory` is set to; nothing for a measurement that uses none.
    pub fn memory(&self) -> Option<Place> {
        let is_set = self.keys.contains_key("memory");
        is_set.then(|| match Place::named(self.word("memory")).expect("the plan was checked") {
            Place::Striped(folders, _) => {
                let chunk_bytes = topology::chunk_bytes(self, &folders);
                Place::Striped(folders, chunk_bytes)
            }
            place => place,
        })
    }

    /// Where its memory comes from, and in which pages.
    ///
    /// # Panics
    /// If the measurement has not both.
    pub fn place(&self) -> (Place, Pages) {
        let place = self.memory().expect("a measurement that needs memory says where");
        let pages = Pages::named(self.word("pages")).expect("the plan was checked");
        // Files and devices have the pages that they have: mapping one twice would be another of the same.
        let pages = if matches!(place, Place::Dram | Place::Node(_)) { pages } else { Pages::Huge };
        (place, pages)
    }

    /// The cell without these keys, to find those that differ in nothing else.
    pub fn without(&self, keys: &[&str]) -> BTreeMap<&str, &Value> {
        self.keys.iter().map(|(key, value)| (key.as_str(), value)).filter(|(key, _)| !keys.contains(key)).collect()
    }
}

/// The measurement and its keys, in the order in which the measurement names them.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.measure)?;
        self.measure().keys().iter().try_for_each(|key| write!(f, " {}={}", key.name, self.text(key)))
    }
}

impl Place {
    /// `dram`, a device or a folder.
    pub(crate) fn named(text: &str) -> Result<Place, String> {
        let path = PathBuf::from(text);
        match text {
            "dram" => Ok(Place::Dram),
            "" => Err("expected dram, a folder, a device or model:PROFILE".into()),
            _ if text.starts_with("model:") => {
                let (name, devices) = text["model:".len()..].split_once('*').unwrap_or((&text["model:".len()..], "1"));
                let devices = match value::number(devices)? {
                    devices @ 1..=64 => devices as usize,
                    devices => return Err(format!("{devices} devices are not between 1 and 64")),
                };
                model::profile(name).map(|_| Place::Modelled(name.to_owned(), devices))
            }
            _ if text.starts_with("dram@") => match value::number(&text["dram@".len()..])? {
                node @ 0..=1023 => Ok(Place::Node(node as usize)),
                node => Err(format!("{node} is no NUMA node")),
            },
            _ if text.contains('+') => {
                let folder = |text: &str| match Place::named(text.trim())? {
                    Place::Folder(path) => Ok(path),
                    _ => Err(format!("'{text}' is no folder: only folders are put together by +")),
                };
                let folders = text.split('+').map(folder).collect::<Result<Vec<_>, String>>()?;
                Ok(Place::Striped(folders, 2 << 20))
            }
            _ if text.starts_with("/dev/dax") => Ok(Place::Device(path)),
            // A word without a slash is more often a mistake than a folder.
            _ if !text.contains('/') && !text.starts_with('.') => {
                Err(format!("'{text}' is neither dram nor a path: a folder here is ./{text}"))
            }
            _ => Ok(Place::Folder(path)),
        }
    }
}

impl Pages {
    /// Their names in plans.
    pub const NAMES: [&str; 2] = ["4Ki", "2Mi"];

    pub(crate) fn named(text: &str) -> Option<Pages> {
        [Pages::Small, Pages::Huge].into_iter().zip(Self::NAMES).find(|(_, name)| *name == text).map(|(pages, _)| pages)
    }
}

impl Pattern {
    /// `sequential`, `random`, `same-line`, `stride:256` or `zipf:0.99`.
    pub(crate) fn named(text: &str) -> Result<Pattern, String> {
        let expected =
            || format!("'{text}' is no order: expected sequential, random, stride:256, zipf:0.99 or same-line");
        match text.split_once(':') {
            None => match text {
                "sequential" => Ok(Pattern::Sequential),
                "random" => Ok(Pattern::Random),
                "same-line" => Ok(Pattern::SameLine),
                _ => Err(expected()),
            },
            Some(("stride", bytes)) => match value::number(bytes)? {
                bytes if bytes > 0 && bytes.is_multiple_of(64) => Ok(Pattern::Stride(bytes as usize)),
                bytes => Err(format!("a stride is a positive multiple of 64, not {bytes}")),
            },
            Some(("zipf", theta)) => match value::real(theta)? {
                theta if (0.0..=5.0).contains(&theta) => Ok(Pattern::Zipf(theta)),
                theta => Err(format!("the exponent lies between 0 and 5, not at {theta}")),
            },
            Some(_) => Err(expected()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::crew;

    #[test]
    fn every_key_takes_its_own_default_and_no_name_comes_twice() {
        let mut names = BTreeSet::new();
        for measure in ALL {
            assert!(names.insert(measure.name()) && !measure.metrics().is_empty());
            let mut keys = BTreeSet::new();
            for key in measure.keys() {
                assert!(keys.insert(key.name), "{} of {}", key.name, measure.name());
                assert!(!key.values(key.default).unwrap().is_empty(), "{} of {}", key.name, measure.name());
            }
        }
    }

    #[test]
    fn every_time_is_told_in_nanoseconds_and_in_ticks() {
        for measure in ALL {
            let has = |name: &str, unit: &str| {
                measure.metrics().iter().any(|metric| (metric.name, metric.unit) == (name, unit))
            };
            for metric in measure.metrics().iter().filter(|metric| metric.unit == "ns") {
                assert!(has(&format!("{}-ticks", metric.name), "ticks"), "{} of {}", metric.name, measure.name());
            }
        }
    }

    #[test]
    fn what_a_key_cannot_be_is_refused_with_what_was_expected() {
        let bytes = Key { form: Form::Bytes { multiple_of: 64 }, ..Key::MEMORY };
        assert_eq!(bytes.values("64:*2:128").unwrap().len(), 2);
        assert_eq!(bytes.values("100").unwrap_err(), "100 is no positive multiple of 64");
        assert_eq!(bytes.values("0").unwrap_err(), "0 is no positive multiple of 64");
        assert!(bytes.values("9223372036854779904").unwrap_err().contains("more than 64 TiB"));
        assert_eq!(Key::PAGES.values("1Gi").unwrap_err(), "'1Gi' is none of: 4Ki, 2Mi, all");
        assert_eq!(Key::PAGES.values("all").unwrap().len(), 2);
        assert_eq!(Key::THREADS.values("0").unwrap_err(), "0 is not between 1 and 1024");
        assert_eq!(Key::THREADS.values("cpus").unwrap(), [Value::Number(crew::cpus().len() as u64)]);
        assert!(Key::MEMORY.values("ram").unwrap_err().contains("./ram"));
        for order in ["stride:100", "stride:", "zipf:9", "backwards", "stride:0", "x:1"] {
            assert!(Pattern::named(order).is_err(), "{order}");
        }
    }
}
