//! Runs a plan: cells in a random order, again and again, until each is precise or the time is over.
//!
//! Repetitions of a cell are spread over the whole run, so that what else the machine does for a while meets all cells
//! alike. No sample is dropped and none is smoothed; a cell whose samples differ too much is called noisy. What was measured is
//! written to a journal as soon as it is, from which a run goes on that was interrupted.

mod gate;
mod journal;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use report::Provenance;

use crate::clock::{Clock, monotonic_ns};
use crate::error::{Error, Result};
use crate::findings::findings;
use crate::machine::{Disturbance, Machine};
use crate::measure::{Cell, Sample};
use crate::plan::Plan;
use crate::results::{self, CellResult, Found, Results, SCHEMA, Status};
use crate::site::Site;
use gate::Ceilings;
use journal::{Entry, Journal};

/// How far a run is.
#[derive(Clone, Debug)]
pub struct Progress<'r> {
    /// Cells that can be measured here.
    pub cells: usize,
    /// Of them, those that are precise or cannot become it.
    pub finished: usize,
    /// Samples that were taken.
    pub samples: usize,
    /// Time that was spent.
    pub elapsed: Duration,
    /// Time that is left, about: at most what the plan allows.
    pub left: Duration,
    /// The cell whose turn it is.
    pub cell: &'r Cell,
}

/// Whether a run is a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// The folder has no journal yet.
    New,
    /// It has one, of the same plan on the same machine.
    Resumed,
}

/// What becomes of a cell.
#[derive(Debug, Default)]
struct Course {
    samples: Vec<Sample>,
    disturbed: usize,
    refused: Option<String>,
    skipped: Option<String>,
    is_finished: bool,
}

/// Runs a plan; the journal is written into a folder, which exists.
///
/// # Errors
/// `Unavailable` when this machine has no clock to measure with, or the journal is of another plan or machine; `Memory` when
/// there is not as much as the plan needs; `Io` when the journal cannot be written.
pub fn run(
    plan: &Plan,
    folder: &Path,
    beginning: Beginning,
    seed: u64,
    keeps_samples: bool,
    mut watch: impl FnMut(&Progress<'_>),
) -> Result<Results> {
    let machine = Machine::this();
    machine.check_clock()?;
    let cells = plan.cells()?;
    let (mut journal, entries) = match beginning {
        Beginning::New => (Journal::create(folder, &cells, seed, &machine)?, Vec::new()),
        Beginning::Resumed => Journal::open(folder, &cells, &machine)?,
    };
    let mut courses: Vec<Course> = cells.iter().map(course).collect();
    for entry in &entries {
        courses[entry.cell].take(entry.sample(), entry.is_disturbed);
    }
    let can_be: Vec<&Cell> =
        cells.iter().zip(&courses).filter(|(_, course)| course.skipped.is_none()).map(|(cell, _)| cell).collect();
    let mut site = Site::new(can_be.iter().copied(), Duration::from_nanos(plan.enough.sample_ns))?;
    let ceilings = Ceilings::measure(&can_be)?;
    let before = Disturbance::so_far();
    let spent_ns = entries.last().map_or(0, |entry| entry.elapsed_ns);
    let mut running = Running {
        plan,
        cells: &cells,
        site: &mut site,
        ceilings: &ceilings,
        began_ns: monotonic_ns().saturating_sub(spent_ns),
        seed: journal.seed(),
        rounds: courses.iter().map(|course| course.samples.len()).max().unwrap_or(0),
    };
    running.go_on(&mut courses, &mut journal, &mut watch)?;
    let elapsed_ns = monotonic_ns() - running.began_ns;
    let disturbance = Disturbance::so_far().since(&before);
    let found = cells
        .into_iter()
        .zip(courses)
        .map(|(cell, course)| course.result(cell, plan, keeps_samples, &mut site))
        .collect();
    let mut results = Results {
        schema: SCHEMA.into(),
        plan: plan.name.clone(),
        about: plan.about.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_s: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs()
            .saturating_sub(elapsed_ns / 1_000_000_000),
        elapsed_ns,
        seed: journal.seed(),
        enough: plan.enough,
        machine,
        disturbance,
        ceilings_gb_s: ceilings.gb_s().clone(),
        cells: found,
        findings: Vec::new(),
        figures: plan.figures.clone(),
    };
    results.findings = findings(&results);
    Ok(results)
}

fn course(cell: &Cell) -> Course {
    let skipped = cell.needs().err().map(|error| error.to_string());
    Course { is_finished: skipped.is_some(), skipped, ..Course::default() }
}

struct Running<'r> {
    plan: &'r Plan,
    cells: &'r [Cell],
    site: &'r mut Site,
    ceilings: &'r Ceilings,
    /// When the run began, as if it had never been interrupted.
    began_ns: u64,
    seed: u64,
    /// Rounds before this part of the run.
    rounds: usize,
}

impl Running<'_> {
    fn go_on(
        &mut self,
        courses: &mut [Course],
        journal: &mut Journal,
        watch: &mut impl FnMut(&Progress<'_>),
    ) -> Result<()> {
        let measurable = courses.iter().filter(|course| course.skipped.is_none()).count();
        let mut previous: Option<usize> = None;
        for round in self.rounds.. {
            let mut rng = Rng::with_seed(self.seed ^ (round as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut order: Vec<usize> = (0..self.cells.len()).filter(|&cell| !courses[cell].is_finished).collect();
            rng.shuffle(&mut order);
            if order.is_empty() {
                return Ok(());
            }
            for cell in order {
                let elapsed_ns = monotonic_ns() - self.began_ns;
                if elapsed_ns >= self.plan.enough.budget_ns {
                    return Ok(());
                }
                watch(&self.progress(courses, measurable, cell, elapsed_ns));
                if let Some(previous) = previous {
                    self.site.flush(&self.cells[previous])?;
                }
                previous = Some(cell);
                self.sample(cell, &mut courses[cell], rng.u64(..), journal)?;
            }
        }
        Ok(())
    }

    fn sample(&mut self, number: usize, course: &mut Course, seed: u64, journal: &mut Journal) -> Result<()> {
        let cell = &self.cells[number];
        let before = Disturbance::so_far();
        let sample = match cell.sample(self.site, seed) {
            Err(Error::Wrong { what }) => {
                course.refuse(format!("{what} is not what it must be"));
                return Ok(());
            }
            sample => sample?,
        };
        if let Some(reason) = self.ceilings.refuse(cell, &sample) {
            course.refuse(reason);
            return Ok(());
        }
        let is_disturbed = Disturbance::so_far().since(&before).steal_ms > 0;
        journal.add(&Entry::new(number, &sample, is_disturbed, monotonic_ns() - self.began_ns))?;
        course.take(sample, is_disturbed);
        course.is_finished = course.is_enough(cell, self.plan);
        Ok(())
    }

    fn progress(&self, courses: &[Course], cells: usize, cell: usize, elapsed_ns: u64) -> Progress<'_> {
        let samples: usize = courses.iter().map(|course| course.samples.len()).sum();
        let finished = courses.iter().filter(|course| course.is_finished && course.skipped.is_none()).count();
        let enough = &self.plan.enough;
        // As if each cell that is not finished needed as many again as the least, but no more than there may be.
        let missing: usize = courses
            .iter()
            .filter(|course| !course.is_finished)
            .map(|course| {
                enough.least_rounds.max(course.samples.len() + 1).min(enough.most_rounds)
                    - course.samples.len().min(enough.most_rounds)
            })
            .sum();
        let left_ns =
            if samples == 0 { u64::MAX } else { (elapsed_ns / samples as u64).saturating_mul(missing as u64) };
        let left = Duration::from_nanos(left_ns.min(enough.budget_ns.saturating_sub(elapsed_ns)));
        Progress { cells, finished, samples, elapsed: Duration::from_nanos(elapsed_ns), left, cell: &self.cells[cell] }
    }
}

impl Course {
    fn take(&mut self, sample: Sample, is_disturbed: bool) {
        self.disturbed += usize::from(is_disturbed);
        self.samples.push(sample);
    }

    fn refuse(&mut self, reason: String) {
        self.refused = Some(reason);
        self.is_finished = true;
    }

    fn values(&self, metric: usize) -> Vec<f64> {
        self.samples.iter().filter_map(|sample| sample.values.get(metric).copied().flatten()).collect()
    }

    /// What was found of the first metric that has values.
    fn first(&self, cell: &Cell) -> Option<Found> {
        cell.measure().metrics().iter().enumerate().find_map(|(number, metric)| Found::of(metric, &self.values(number)))
    }

    fn is_enough(&self, cell: &Cell, plan: &Plan) -> bool {
        let enough = &plan.enough;
        let is_precise = || self.first(cell).is_none_or(|found| found.half_width() <= enough.precision);
        self.samples.len() >= enough.most_rounds || self.samples.len() >= enough.least_rounds && is_precise()
    }

    fn status(&self, cell: &Cell, plan: &Plan) -> Status {
        let is_precise = || self.first(cell).is_none_or(|found| found.half_width() <= plan.enough.precision);
        if self.skipped.is_some() {
            Status::Skipped
        } else if self.refused.is_some() {
            Status::Refused
        } else if self.samples.len() < plan.enough.least_rounds {
            Status::Few
        } else if is_precise() {
            Status::Precise
        } else {
            Status::Noisy
        }
    }

    fn result(self, cell: Cell, plan: &Plan, keeps_samples: bool, site: &mut Site) -> CellResult {
        let status = self.status(&cell, plan);
        let is_believed = !matches!(status, Status::Skipped | Status::Refused);
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for (ticks, count) in self.samples.iter().flat_map(|sample| &sample.ticks) {
            *counts.entry(*ticks).or_default() += count;
        }
        let clock = Clock::get();
        let metrics = cell.measure().metrics().iter().enumerate();
        let metrics = metrics.filter_map(|(number, metric)| {
            let values = self.values(number);
            let found = Found::of(metric, &values)?;
            Some(Found { samples: if keeps_samples { values } else { Vec::new() }, ..found })
        });
        let place = if is_believed { site.describe(&cell) } else { None };
        CellResult {
            status,
            reason: self.skipped.clone().or(self.refused.clone()),
            provenance: place.as_ref().map(|place| place.provenance),
            memory: place.as_ref().map(|place| place.text.clone()),
            page_bytes: place.as_ref().and_then(|place| place.page_bytes),
            metrics: if is_believed { metrics.collect() } else { Vec::new() },
            percentiles_ns: results::percentiles(&counts)
                .into_iter()
                .filter(|_| is_believed)
                .map(|(part, ticks)| (part, clock.ns(ticks as f64)))
                .collect(),
            overhead: self.samples.iter().map(|sample| sample.overhead).fold(0.0, f64::max),
            disturbed: self.disturbed,
            cell,
        }
    }
}

/// What a cell's memory really was.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// In words.
    pub text: String,
    /// Where figures of it come from.
    pub provenance: Provenance,
    /// The size of its pages; nothing when the cell uses no memory of the site.
    pub page_bytes: Option<usize>,
}
