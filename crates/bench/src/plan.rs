//! What is to be measured: YAML that is read, set over from the command line, and made into cells.
//!
//! ```yaml
//! name: stores
//! about: what it costs to make a line durable
//! budget: 2m            # the run ends when this is over, or every cell is precise
//! precision: 2%         # half of the 95 % interval of the median, in parts of it
//! rounds: 5 to 200      # samples of a cell, at least and at most
//! sample: 20ms          # time of a sample that takes as long as it is given
//! cells:
//! - measure: latency
//!   store: [mov8, nt64]
//!   flush: all
//!   size: 64Ki:*16:1Gi
//! figures:
//! - title: Latency of stores
//!   measure: latency
//!   y: isolated
//!   x: size
//!   series: [store, flush]
//!   where: {fence: sfence}
//!   scale: log-log
//! ```
//!
//! Where `x` is a metric, `along` names the keys whose values a line goes along. Numbers may be multiples of the last-level cache, as
//! in `size: 4llc`, and one less another, as in `threads: cpus-1`.
//!
//! Each entry of `cells` stands for all combinations of what its keys are set to. `all` are the instructions of this kind of
//! CPU. A list may name those of several kinds, as in `fence: [sfence, dsb]`: where it has one of this kind, the others are
//! left out, and where it has none, its cells cannot be measured here.

mod figure;
mod yaml;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::measure::{self, Cell, Key, Measure};
use crate::value::{self, Value};
use figure::figure;
pub use figure::{Figure, Published, Scale};
use yaml::Node;

/// A plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name, of which that of the results is made.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// When there are enough samples.
    pub enough: Enough,
    /// What is measured.
    pub experiments: Vec<Experiment>,
    /// What is drawn.
    pub figures: Vec<Figure>,
}

/// When there are enough samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, serde::Deserialize)]
pub struct Enough {
    /// The run ends when this time is over, in nanoseconds.
    pub budget_ns: u64,
    /// A cell is precise when half the 95 % interval of its first metric's median is this part of the median.
    pub precision: f64,
    /// Samples of a cell, at least: a run whose budget is over before says so.
    pub least_rounds: usize,
    /// Samples of a cell, at most.
    pub most_rounds: usize,
    /// The time of a sample that takes as long as it is given, in nanoseconds.
    pub sample_ns: u64,
}

impl Default for Enough {
    fn default() -> Enough {
        Enough { budget_ns: 300_000_000_000, precision: 0.02, least_rounds: 5, most_rounds: 100, sample_ns: 20_000_000 }
    }
}

/// A measurement and what its keys are set to.
#[derive(Clone)]
pub struct Experiment {
    measure: &'static dyn Measure,
    sets: BTreeMap<&'static str, Vec<Value>>,
    /// Keys that no option changes.
    kept: Vec<&'static str>,
}

impl std::fmt::Debug for Experiment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.measure.name(), self.sets)
    }
}

/// Most cells of a plan.
pub const MAX_CELLS: usize = 20_000;

/// The plans that come with the program.
pub const BUILT_IN: [(&str, &str); 7] = [
    ("quick", include_str!("../plans/quick.yaml")),
    ("probe", include_str!("../plans/probe.yaml")),
    ("calibrate", include_str!("../plans/calibrate.yaml")),
    ("curves", include_str!("../plans/curves.yaml")),
    ("operators", include_str!("../plans/operators.yaml")),
    ("nvm-micro", include_str!("../plans/nvm-micro.yaml")),
    ("daq", include_str!("../plans/daq.yaml")),
];

impl Enough {
    /// Sets what has this name in a plan.
    ///
    /// # Errors
    /// `Plan`, with what was expected.
    pub fn set(&mut self, name: &str, text: &str) -> Result<()> {
        self.read(name, text).map_err(|what| Error::Plan { place: format!("--{name}"), what })
    }

    fn read(&mut self, name: &str, text: &str) -> std::result::Result<(), String> {
        match name {
            "budget" => self.budget_ns = value::time_ns(text)?,
            "precision" => self.precision = value::part(text)?,
            "sample" => self.sample_ns = sample_ns(text)?,
            "rounds" => (self.least_rounds, self.most_rounds) = rounds(text)?,
            _ => return Err(format!("'{name}' is none of: budget, precision, rounds, sample")),
        }
        Ok(())
    }
}

impl Plan {
    /// A plan that comes with the program, or a measurement with its defaults.
    pub fn built_in(name: &str) -> Option<Plan> {
        let text = BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        if let Some(text) = text {
            return Some(Plan::parse(name, text).expect("a test reads every plan that comes with the program"));
        }
        let measure = measure::named(name)?;
        let experiment = Experiment::new(measure);
        let about = measure.about().to_owned();
        let figures = Vec::new();
        Some(Plan { name: name.to_owned(), about, enough: Enough::default(), experiments: vec![experiment], figures })
    }

    /// Reads a plan; `origin` is the name of its file in errors.
    ///
    /// # Errors
    /// `Plan`, with line, column and what was expected.
    pub fn parse(origin: &str, text: &str) -> Result<Plan> {
        let document = yaml::document(origin, text)?;
        let top = Node::new(origin, &document);
        let stem = origin.rsplit('/').next().unwrap_or(origin);
        let name = stem.strip_suffix(".yaml").or(stem.strip_suffix(".yml")).unwrap_or(stem).to_owned();
        let (experiments, figures) = (Vec::new(), Vec::new());
        let mut plan = Plan { name, about: String::new(), enough: Enough::default(), experiments, figures };
        for (key, at, node) in top.entries()? {
            match key.as_str() {
                "name" => plan.name = node.parsed(file_name)?,
                "about" => plan.about = node.text()?,
                "budget" | "precision" | "sample" | "rounds" => {
                    let text = node.text()?;
                    plan.enough.read(&key, &text).map_err(|what| node.refuse(what))?;
                }
                "cells" => plan.experiments = node.list()?.iter().map(Experiment::read).collect::<Result<_>>()?,
                "figures" => plan.figures = node.list()?.iter().map(figure).collect::<Result<_>>()?,
                _ => {
                    return Err(at.refuse(format!(
                        "'{key}' is none of: name, about, budget, precision, rounds, sample, cells, figures"
                    )));
                }
            }
        }
        if plan.experiments.is_empty() {
            return Err(top.refuse("nothing is measured: expected a list of cells under 'cells'"));
        }
        Ok(plan)
    }

    /// Sets a key of every measurement that has it and does not keep it.
    ///
    /// # Errors
    /// `Plan` when there is none, or it cannot be set to this.
    pub fn set(&mut self, name: &str, texts: &str) -> Result<()> {
        let refuse = |what| Error::Plan { place: format!("--{name}"), what };
        let mut is_met = false;
        for experiment in &mut self.experiments {
            if let Some(key) = experiment.key(name).filter(|key| !experiment.kept.contains(&key.name)) {
                let values = key.list(texts.split(',').map(|text| key.values(text))).map_err(refuse)?;
                experiment.sets.insert(key.name, values);
                is_met = true;
            }
        }
        if is_met { Ok(()) } else { Err(refuse("no measurement of this plan has this key, or it keeps it".into())) }
    }

    /// All cells, those of an entry one after the other; one that is there already does not come again.
    ///
    /// # Errors
    /// `Plan` when there are more than [`MAX_CELLS`].
    pub fn cells(&self) -> Result<Vec<Cell>> {
        let mut cells: Vec<Cell> = Vec::new();
        let mut known = std::collections::BTreeSet::new();
        for experiment in &self.experiments {
            let sets = experiment.all_sets();
            let count = sets.iter().try_fold(1usize, |count, (_, values)| count.checked_mul(values.len().max(1)));
            if count.is_none_or(|count| count > MAX_CELLS - cells.len()) {
                let what = format!("with those of {} there are more than {MAX_CELLS} cells", experiment.measure.name());
                return Err(Error::Plan { place: self.name.clone(), what });
            }
            for keys in combinations(&sets) {
                let cell = Cell { measure: experiment.measure.name().to_owned(), keys };
                if known.insert(cell.to_string()) {
                    cells.push(cell);
                }
            }
        }
        Ok(cells)
    }
}

impl Experiment {
    fn new(measure: &'static dyn Measure) -> Experiment {
        Experiment { measure, sets: BTreeMap::new(), kept: Vec::new() }
    }

    fn read(node: &Node<'_>) -> Result<Experiment> {
        let entries = node.entries()?;
        let names = || measure::ALL.map(Measure::name).join(", ");
        let Some((_, _, name)) = entries.iter().find(|(key, ..)| key == "measure") else {
            return Err(node.refuse(format!("expected 'measure: NAME', where NAME is one of: {}", names())));
        };
        let measure =
            name.parsed(|name| measure::named(name).ok_or_else(|| format!("'{name}' is none of: {}", names())))?;
        let mut experiment = Experiment::new(measure);
        for (key, at, node) in entries.iter().filter(|(key, ..)| key != "measure") {
            if key == "keep" {
                let kept = |item: &Node<'_>| item.parsed(|name| Ok(experiment.known(name)?.name));
                experiment.kept = node.items().iter().map(kept).collect::<Result<_>>()?;
                continue;
            }
            let Some(known) = experiment.key(key) else {
                let keys: Vec<&str> = measure.keys().iter().map(|key| key.name).collect();
                return Err(at.refuse(format!("'{key}' is no key of {}; it has: {}", measure.name(), keys.join(", "))));
            };
            let values = known.list(node.values()?.iter().map(|item| item.parsed(|text| known.values(text))))?;
            experiment.sets.insert(known.name, values);
        }
        Ok(experiment)
    }

    fn known(&self, name: &str) -> Result<&'static Key, String> {
        self.key(name).ok_or_else(|| format!("'{name}' is no key of {}", self.measure.name()))
    }

    fn key(&self, name: &str) -> Option<&'static Key> {
        self.measure.keys().iter().find(|key| key.name == name)
    }

    /// Every key, with its default if nothing is said of it.
    fn all_sets(&self) -> Vec<(&'static str, Vec<Value>)> {
        let set = |key: &'static Key| {
            let values = self.sets.get(key.name).cloned();
            (
                key.name,
                values.unwrap_or_else(|| key.values(key.default).expect("a test asks every key for its default")),
            )
        };
        self.measure.keys().iter().map(set).collect()
    }
}

fn combinations(sets: &[(&'static str, Vec<Value>)]) -> Vec<BTreeMap<String, Value>> {
    let mut all = vec![BTreeMap::new()];
    for (key, values) in sets {
        let with = |keys: &BTreeMap<String, Value>| {
            let keys = keys.clone();
            values
                .iter()
                .map(move |value| {
                    let mut keys = keys.clone();
                    keys.insert((*key).to_owned(), value.clone());
                    keys
                })
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

/// A name that can be one of a folder.
fn file_name(text: &str) -> Result<String, String> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !text.is_empty() && text.len() <= 64 && !text.starts_with('.') && text.chars().all(is_fit) {
        Ok(text.to_owned())
    } else {
        Err(format!("'{text}' is no name: expected at most 64 letters, digits, '-', '_' and '.'"))
    }
}

fn sample_ns(text: &str) -> Result<u64, String> {
    match value::time_ns(text)? {
        ns @ 100_000..=60_000_000_000 => Ok(ns),
        _ => Err(format!("{text} is not between 100us and 60s")),
    }
}

fn rounds(text: &str) -> Result<(usize, usize), String> {
    let (least, most) = text.split_once(" to ").unwrap_or((text, text));
    match (value::number(least.trim())?, value::number(most.trim())?) {
        (least @ 1.., most @ ..=1_000_000) if least <= most => Ok((least as usize, most as usize)),
        _ => Err(format!("'{text}' are no rounds: expected such as '5 to 100'")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::code::{Fence, Flush};

    fn refused(text: &str) -> String {
        Plan::parse("dir/p.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn every_plan_that_comes_with_the_program_has_cells_and_figures_of_them() {
        for (name, _) in BUILT_IN {
            let plan = Plan::built_in(name).unwrap();
            let cells = plan.cells().unwrap();
            assert!(plan.name == name && !plan.about.is_empty() && !cells.is_empty() && !plan.figures.is_empty());
            for figure in &plan.figures {
                let fits = |cell: &&Cell| {
                    let has = |(key, values): (&String, &Vec<Value>)| values.contains(&cell.keys[key]);
                    cell.measure == figure.measure && figure.filter.iter().all(has)
                };
                assert!(cells.iter().any(|cell| fits(&cell)), "{}", figure.title);
            }
        }
        for measure in measure::ALL {
            assert!(!Plan::built_in(measure.name()).unwrap().cells().unwrap().is_empty());
        }
        assert!(Plan::built_in("slow").is_none());
    }

    #[test]
    fn cells_are_all_combinations_and_none_comes_twice() {
        let text = "cells:\n- measure: latency\n  store: [mov8, none]\n  flush: all\n  size: 64:*2:256\n- {measure: latency, size: 64, store: mov8}";
        let cells = Plan::parse("dir/p.yaml", text).unwrap().cells().unwrap();
        assert_eq!(cells.len(), 2 * Flush::NAMES.len() * 3);
        assert_eq!(
            cells[0].to_string(),
            "latency memory=dram pages=2Mi store=mov8 flush=none fence=none state=left order=sequential size=64"
        );
    }

    /// The same plan means something on each kind of CPU.
    #[test]
    fn of_instructions_those_of_other_kinds_of_cpus_are_left_out() {
        let mut plan = Plan::built_in("latency").unwrap();
        let mut fences = |texts: &str| {
            plan.set("fence", texts).unwrap();
            plan.cells().unwrap().iter().map(|cell| cell.word("fence").to_owned()).collect::<Vec<_>>()
        };
        let known = Fence::KNOWN.join(",");
        assert_eq!(fences(&known), Fence::NAMES);
        assert_eq!(fences("all"), Fence::NAMES);
        let foreign: Vec<&str> = Fence::KNOWN.into_iter().filter(|name| !Fence::NAMES.contains(name)).collect();
        assert_eq!(fences(&foreign.join(",")), foreign);
        let cells = plan.cells().unwrap();
        assert!(cells.iter().all(|cell| matches!(cell.needs(), Err(Error::Unavailable { .. }))));
        assert!(plan.set("fence", "fences").is_err());
    }

    #[test]
    fn keys_are_set_over_where_a_measurement_has_them() {
        let mut plan = Plan::built_in("quick").unwrap();
        plan.set("threads", "2,3").unwrap();
        plan.set("size", "1Mi").unwrap();
        plan.set("access", "load,store").unwrap();
        let cells = plan.cells().unwrap();
        assert!(cells.iter().all(|cell| cell.number("size") == 1 << 20));
        assert_eq!(cells.iter().filter(|cell| cell.measure == "bandwidth").count(), 2 * 2);
        assert_eq!(
            plan.set("speed", "1").unwrap_err().to_string(),
            "--speed: no measurement of this plan has this key, or it keeps it"
        );
        assert_eq!(plan.set("threads", "0").unwrap_err().to_string(), "--threads: 0 is not between 1 and 1024");
    }

    #[test]
    fn sizes_that_nothing_can_have_are_refused() {
        let mut plan = Plan::built_in("bandwidth").unwrap();
        for size in ["18446744073709551552", "65Ti"] {
            let error = plan.set("size", size).unwrap_err().to_string();
            assert!(error.contains("are more than 64 TiB"), "{error}");
        }
        plan.set("size", "64Ti").unwrap();
        assert!(refused("cells:\n- {measure: load, size: 65Ti}").contains("p.yaml:2:25: 71468255805440 bytes"));
    }

    #[test]
    fn a_key_that_is_kept_is_no_option() {
        let text = "cells:\n- {measure: load, size: 64, memory: /a}\n- {measure: load, memory: /b, keep: memory}";
        let mut plan = Plan::parse("dir/p.yaml", text).unwrap();
        plan.set("memory", "dram").unwrap();
        let memories = |plan: &Plan| {
            plan.cells().unwrap().iter().map(|cell| cell.word("memory").to_owned()).collect::<BTreeSet<_>>()
        };
        assert_eq!(memories(&plan), BTreeSet::from(["dram".to_owned(), "/b".to_owned()]));
        let text = "cells:\n- {measure: load, memory: /b, keep: [size, memory]}";
        let mut plan = Plan::parse("dir/p.yaml", text).unwrap();
        assert!(
            plan.set("memory", "dram").is_err() && plan.set("size", "64").is_err() && plan.set("chains", "2").is_ok()
        );
        assert_eq!(memories(&plan), BTreeSet::from(["/b".to_owned()]));
    }

    #[test]
    fn a_bad_plan_is_refused_with_its_line_and_what_was_expected() {
        let expected = [
            ("", "dir/p.yaml:1:1: the plan is empty: expected a list of cells under 'cells'"),
            ("budget: 5m", "dir/p.yaml:1:1: nothing is measured: expected a list of cells under 'cells'"),
            (
                "cells:\n- measure: fast",
                "dir/p.yaml:2:12: 'fast' is none of: latency, load, bandwidth, iops, stack, loaded, mixed, operations, reload, burst, fault, locks, join, topology",
            ),
            ("cells:\n- measure: load\n  size: [64,\n    65]", "dir/p.yaml:4:5: 65 is no positive multiple of 64"),
            (
                "cells:\n- measure: load\n  speed: 1",
                "dir/p.yaml:3:3: 'speed' is no key of load; it has: memory, pages, size, chains, locality",
            ),
            (
                "cells:\n- {measure: load, size: []}",
                "dir/p.yaml:2:25: expected a value, or a list of some: this list is empty",
            ),
            (
                "cells:\n- {measure: load}\nfigures:\n- {title: t, measure: load, y: latency, x: size, where: {size: []}}",
                "dir/p.yaml:4:64: expected a value, or a list of some: this list is empty",
            ),
            ("cells:\n- {measure: load, keep: speed}", "dir/p.yaml:2:25: 'speed' is no key of load"),
            ("cells: 7", "dir/p.yaml:1:8: expected a list"),
            ("cells: [7]", "dir/p.yaml:1:9: expected names with values, such as 'measure: latency'"),
            ("rounds: 5 to 4\ncells: []", "dir/p.yaml:1:9: '5 to 4' are no rounds: expected such as '5 to 100'"),
            ("precision: 2", "dir/p.yaml:1:12: 2 is not between 0 and 1: expected a part such as 2%"),
            ("sample: 1h", "dir/p.yaml:1:9: 1h is not between 100us and 60s"),
            ("name: ../x", "dir/p.yaml:1:7: '../x' is no name: expected at most 64 letters, digits, '-', '_' and '.'"),
            (
                "cells:\n- {measure: load}\nfigures:\n- {title: t, measure: load, y: latency}",
                "dir/p.yaml:4:3: a figure needs 'x'",
            ),
            (
                "cells:\n- {measure: load}\nfigures:\n- {title: t, measure: load, y: speed, x: size}",
                "dir/p.yaml:4:32: 'speed' is none of: latency, latency-ticks, loads",
            ),
            (
                "cells:\n- {measure: load}\nfigures:\n- {title: t, measure: load, y: latency, x: speed}",
                "dir/p.yaml:4:44: 'speed' is neither a key nor a metric of load",
            ),
            (
                "cells:\n- {measure: load}\nfigures:\n- {title: t, measure: load, y: latency, x: loads}",
                "dir/p.yaml:4:44: the metric 'loads' needs 'along': the keys that a line goes along",
            ),
            (
                "cells:\n- {measure: load}\nfigures:\n- {title: t, measure: load, y: latency, x: size, along: chains}",
                "dir/p.yaml:4:44: only a metric needs 'along'",
            ),
        ];
        for (text, message) in expected {
            assert_eq!(refused(text), message, "{text}");
        }
        // What the parser says is its own business; that it says where is ours.
        for text in ["cells: [", "a: 1\na: 2", "cells:\n\t- x", "x: &a [*a]", "--- 1\n--- 2", "\u{0}"] {
            assert!(refused(text).starts_with("dir/p.yaml:"), "{text}: {}", refused(text));
        }
        assert!(
            refused(&format!("cells:\n- measure: load\n  size: {}", "64:*2:1Gi ".repeat(3))).contains("p.yaml:3:9")
        );
    }

    #[test]
    fn entries_add_up() {
        let text = "cells:\n- {measure: load, size: '64:+64:64000'}\n- {measure: bandwidth, size: '64:+64:64000'}";
        assert_eq!(Plan::parse("p", text).unwrap().cells().unwrap().len(), 2000);
    }

    #[test]
    fn plans_with_too_many_cells_are_refused() {
        let sizes = "64:+64:64000";
        let text = format!(
            "cells:\n- {{measure: latency, size: '{sizes}', store: all, flush: all, fence: all, state: all, pages: all, order: [sequential, random]}}"
        );
        let error = Plan::parse("p", &text).unwrap().cells().unwrap_err().to_string();
        assert_eq!(error, "p: with those of latency there are more than 20000 cells");
    }
}
