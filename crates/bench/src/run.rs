//! Runs a plan: cells in a random order, again and again, until each is precise or the time is over.
//!
//! Repetitions of a cell are spread over the whole run, so that what else the machine does for a while meets all cells
//! alike. No sample is dropped and none is smoothed; a cell whose samples differ too much is called noisy. What was measured is
//! written to a journal as soon as it is, from which a run goes on that was interrupted.

mod gate;
mod journal;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use report::Provenance;

use crate::clock::{Clock, monotonic_ns};
use crate::error::{Error, Result};
use crate::findings::findings;
use crate::machine::{Disturbance, Machine};
use crate::measure::{Cell, Sample};
use crate::plan::{Enough, Plan};
use crate::results::{self, CellResult, Found, Results, SCHEMA, Status};
use crate::site::Site;
use gate::Ceilings;
use journal::{Entry, Journal, Turn};

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
    /// The folder has no journal yet; all orders and data are drawn from this seed.
    New {
        /// Any number.
        seed: u64,
    },
    /// It has one, of the same plan on the same machine.
    Resumed {
        /// The run's seed, if the caller is sure of it.
        seed: Option<u64>,
    },
}

/// Values of a metric below which nothing is said of how precise it is: the interval of a few is as narrow as chance has it.
pub const LEAST_VALUES: usize = 5;

/// What becomes of a cell.
#[derive(Debug, Default)]
struct Course {
    samples: Vec<Sample>,
    disturbed: usize,
    refused: Option<String>,
    skipped: Option<String>,
    /// Why no further sample could be taken.
    failed: Option<String>,
    is_finished: bool,
    /// Half the interval in parts of the median, when it was looked at last.
    half_width: Option<f64>,
}

/// Whether so many samples are looked at: an interval that is looked at whenever there is another sample is soon narrow by chance, and
/// ends the run. Each time there are half as many again.
fn is_looked_at(samples: usize, enough: &Enough) -> bool {
    let looks =
        std::iter::successors(Some(enough.least_rounds.max(LEAST_VALUES)), |count| Some(count + count.div_ceil(2)));
    samples >= enough.most_rounds || looks.take_while(|count| *count <= samples).any(|count| count == samples)
}

/// Runs a plan; the journal is written into a folder, which exists. A cell that cannot be measured is skipped, with its
/// reason. Before each sample `watch` is told how far the run is, and may end it.
///
/// # Errors
/// `Unavailable` when this machine has no clock to measure with, or the journal is of another plan, machine or seed;
/// `Interrupted` when `watch` has ended it; `Io` when the journal cannot be written; if no cell could be measured, why the
/// first could not that this machine seemed to have everything for.
pub fn run(
    plan: &Plan,
    folder: &Path,
    beginning: Beginning,
    keeps_samples: bool,
    mut watch: impl FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> Result<Results> {
    let began_ns = monotonic_ns();
    let machine = Machine::this();
    machine.check_clock()?;
    let cells = plan.cells()?;
    let (mut journal, entries) = match beginning {
        Beginning::New { seed } => (Journal::create(folder, &cells, plan.enough, seed, &machine)?, Vec::new()),
        Beginning::Resumed { seed } => Journal::open(folder, &cells, plan.enough, seed, &machine)?,
    };
    let mut courses: Vec<Course> = cells.iter().map(course).collect();
    for entry in &entries {
        courses[entry.cell].take_up(&entry.turn);
    }
    for (cell, course) in cells.iter().zip(&mut courses) {
        course.look(cell, &plan.enough);
    }
    let can_be: Vec<usize> = (0..cells.len()).filter(|&cell| courses[cell].skipped.is_none()).collect();
    let of_them = || can_be.iter().map(|&cell| &cells[cell]);
    let (mut site, without) = Site::for_those_that_fit(of_them(), Duration::from_nanos(plan.enough.sample_ns));
    // What this machine's caches give is no bound of a device that is not here.
    let ceilings = Ceilings::measure(&of_them().filter(|cell| cell.device().is_none()).collect::<Vec<_>>());
    let mut first_error = None;
    for (&cell, error) in can_be.iter().zip(without) {
        let without_ceiling = || ceilings.missing(&cells[cell]).map(|why| Error::unavailable(why.to_owned()));
        if let Some(error) = error.or_else(without_ceiling) {
            courses[cell].skip(error, &mut first_error);
        }
    }
    let spent_ns = entries.last().map_or(0, |entry| entry.elapsed_ns);
    let no_disturbance = Disturbance { migrations: Some(0), ..Disturbance::default() };
    let mut running = Running {
        plan,
        cells: &cells,
        site: &mut site,
        ceilings: &ceilings,
        began_ns,
        spent_ns,
        seed: journal.seed(),
        rounds: courses.iter().map(|course| course.samples.len()).max().unwrap_or(0),
        earlier: entries.last().map_or(no_disturbance, |entry| entry.disturbance),
        before: Disturbance::so_far(),
        first_error,
    };
    running.go_on(&mut courses, &mut journal, &mut watch)?;
    let (elapsed_ns, disturbance) = (running.elapsed_ns(), running.disturbance());
    if let Some(error) = running.first_error.filter(|_| courses.iter().all(Course::is_without_any)) {
        return Err(error);
    }
    let found = cells
        .into_iter()
        .zip(courses)
        .map(|(cell, course)| course.result(cell, &plan.enough, keeps_samples, &mut site))
        .collect();
    let mut results = Results {
        schema: SCHEMA.into(),
        plan: plan.name.clone(),
        about: plan.about.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_s: journal.started_s(),
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
    /// When this part of the run began, and how long those before took: together maybe longer than the machine is up.
    began_ns: u64,
    spent_ns: u64,
    seed: u64,
    /// Rounds before this part of the run.
    rounds: usize,
    /// What disturbed the parts before this one.
    earlier: Disturbance,
    /// What there was before this part.
    before: Disturbance,
    /// Why the first cell could not be measured of those that seemed to have everything.
    first_error: Option<Error>,
}

impl Running<'_> {
    fn go_on(
        &mut self,
        courses: &mut [Course],
        journal: &mut Journal,
        watch: &mut impl FnMut(&Progress<'_>) -> ControlFlow<()>,
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
                let elapsed_ns = self.elapsed_ns();
                if elapsed_ns >= self.plan.enough.budget_ns {
                    return Ok(());
                }
                if watch(&self.progress(courses, measurable, cell, elapsed_ns)).is_break() {
                    return Err(Error::Interrupted);
                }
                if let Some(previous) = previous
                    && let Err(error) = self.site.flush(&self.cells[previous])
                {
                    courses[previous].skip(error, &mut self.first_error);
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
        let turn = match cell.sample(self.site, seed) {
            Err(Error::Wrong { what }) => Turn::Refused(format!("{what} is not what it must be")),
            // Another run may have more room, so the journal knows nothing of it.
            Err(error) => {
                course.skip(error, &mut self.first_error);
                return Ok(());
            }
            Ok(sample) => match self.ceilings_of(cell).refuse(cell, &sample) {
                Some(reason) => Turn::Refused(reason),
                None => Turn::of(&sample, Disturbance::so_far().since(&before).steal_ms > 0),
            },
        };
        course.take_up(&turn);
        course.look(cell, &self.plan.enough);
        let (elapsed_ns, disturbance) = (self.elapsed_ns(), self.disturbance());
        journal.add(&Entry { cell: number, turn, elapsed_ns, disturbance })
    }

    fn ceilings_of(&self, cell: &Cell) -> Ceilings {
        if cell.device().is_some() { Ceilings::default() } else { self.ceilings.clone() }
    }

    fn elapsed_ns(&self) -> u64 {
        self.spent_ns + (monotonic_ns() - self.began_ns)
    }

    /// Of the whole run, up to now.
    fn disturbance(&self) -> Disturbance {
        Disturbance::so_far().since(&self.before).and(&self.earlier)
    }

    fn progress(&self, courses: &[Course], cells: usize, cell: usize, elapsed_ns: u64) -> Progress<'_> {
        let samples: usize = courses.iter().map(|course| course.samples.len()).sum();
        let finished = courses.iter().filter(|course| course.is_finished && course.skipped.is_none()).count();
        let enough = &self.plan.enough;
        let missing: usize =
            courses.iter().filter(|course| !course.is_finished).map(|course| course.missing(enough)).sum();
        let left_ns =
            if samples == 0 { u64::MAX } else { (elapsed_ns / samples as u64).saturating_mul(missing as u64) };
        let left = Duration::from_nanos(left_ns.min(enough.budget_ns.saturating_sub(elapsed_ns)));
        Progress { cells, finished, samples, elapsed: Duration::from_nanos(elapsed_ns), left, cell: &self.cells[cell] }
    }
}

impl Course {
    fn take_up(&mut self, turn: &Turn) {
        match turn {
            Turn::Sample { values, ticks, overhead, is_disturbed } => {
                let ticks = ticks.iter().copied().collect();
                self.samples.push(Sample { values: values.clone(), ticks, overhead: *overhead });
                self.disturbed += usize::from(*is_disturbed);
            }
            Turn::Refused(reason) => {
                self.refused = Some(reason.clone());
                self.is_finished = true;
            }
        }
    }

    /// Ends it; samples that were taken are kept.
    fn skip(&mut self, error: Error, first_error: &mut Option<Error>) {
        match self.samples.is_empty() {
            true => self.skipped = Some(error.to_string()),
            false => self.failed = Some(error.to_string()),
        }
        self.is_finished = true;
        first_error.get_or_insert(error);
    }

    /// Whether nothing at all came of it.
    fn is_without_any(&self) -> bool {
        self.skipped.is_some() || self.samples.is_empty() && self.refused.is_none()
    }

    fn values(&self, metric: usize) -> Vec<f64> {
        self.samples.iter().filter_map(|sample| sample.values.get(metric).copied().flatten()).collect()
    }

    /// What was found of the first metric that has values.
    fn first(&self, cell: &Cell) -> Option<Found> {
        cell.measure().metrics().iter().enumerate().find_map(|(number, metric)| Found::of(metric, &self.values(number)))
    }

    /// Finds out whether there are enough samples, where it is time to.
    fn look(&mut self, cell: &Cell, enough: &Enough) {
        let taken = self.samples.len();
        if self.is_finished || !is_looked_at(taken, enough) {
            return;
        }
        let first = self.first(cell);
        self.half_width = first.as_ref().map(Found::half_width);
        // Where no sample has a value, more of them will not help.
        let is_settled = first.is_none_or(|found| found.is_precise(enough.precision));
        self.is_finished = taken >= enough.most_rounds || taken >= enough.least_rounds && is_settled;
    }

    /// Samples that are still to come, about: intervals narrow with the root of their number.
    fn missing(&self, enough: &Enough) -> usize {
        let taken = self.samples.len();
        let parts = self.half_width.map_or(1.0, |half_width| half_width / enough.precision);
        let wanted = (taken as f64 * parts * parts).ceil().min(enough.most_rounds as f64) as usize;
        wanted.max(enough.least_rounds).max(taken + 1).saturating_sub(taken)
    }

    fn status(&self, cell: &Cell, enough: &Enough) -> Status {
        let first = self.first(cell);
        if self.skipped.is_some() {
            return Status::Skipped;
        } else if self.refused.is_some() {
            return Status::Refused;
        }
        match first {
            Some(found) if self.samples.len() >= enough.least_rounds && found.count >= LEAST_VALUES => {
                if found.is_precise(enough.precision) { Status::Precise } else { Status::Noisy }
            }
            _ => Status::Few,
        }
    }

    fn result(self, cell: Cell, enough: &Enough, keeps_samples: bool, site: &mut Site) -> CellResult {
        let status = self.status(&cell, enough);
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
        let is_unresolved = is_believed && !self.samples.is_empty() && self.first(&cell).is_none();
        let unresolved = is_unresolved.then(|| "no sample has a value that the clock resolves".to_owned());
        CellResult {
            status,
            reason: [&self.skipped, &self.refused, &self.failed].into_iter().flatten().next().cloned().or(unresolved),
            provenance: place.as_ref().map(|place| place.provenance),
            memory: place.as_ref().map(|place| place.text.clone()),
            page_bytes: place.as_ref().and_then(|place| place.page_bytes),
            metrics: if is_believed { metrics.collect() } else { Vec::new() },
            percentiles_ns: results::percentiles(&counts)
                .into_iter()
                .filter(|_| is_believed)
                .map(|(part, ticks)| (part, clock.ns(ticks as f64)))
                .collect(),
            overhead: self.samples.iter().filter_map(|sample| sample.overhead).reduce(f64::max),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::parse("p.yaml", text).unwrap()
    }

    fn go(plan: &Plan, folder: &Path, beginning: Beginning) -> Result<Results> {
        run(plan, folder, beginning, true, |_| ControlFlow::Continue(()))
    }

    const NEW: Beginning = Beginning::New { seed: 1 };
    const RESUMED: Beginning = Beginning::Resumed { seed: None };
    /// A device that is modelled takes no time, and gives the same figures everywhere.
    const MODELLED: &str = "cells:\n- {measure: load, memory: 'model:ddr4', size: [1Mi, 2Mi]}\n";

    fn course(values: &[Option<f64>]) -> (Course, Cell) {
        let cell = Plan::built_in("load").unwrap().cells().unwrap().remove(0);
        let mut course = Course::default();
        for value in values {
            let sample = Sample { values: vec![*value, None, None], ..Sample::default() };
            course.take_up(&Turn::of(&sample, false));
        }
        (course, cell)
    }

    #[test]
    fn a_few_values_and_none_at_all_are_never_precise() {
        let status = |values: &[Option<f64>], least_rounds: usize| {
            let (course, cell) = course(values);
            let enough = Enough { least_rounds, most_rounds: 20, ..Enough::default() };
            let mut course = course;
            course.look(&cell, &enough);
            (course.status(&cell, &enough), course.is_finished)
        };
        assert_eq!(status(&[Some(7.0)], 1), (Status::Few, false));
        assert_eq!(status(&[Some(7.0); 4], 2), (Status::Few, false));
        assert_eq!(status(&[Some(7.0); 5], 2), (Status::Precise, true));
        assert_eq!(status(&[Some(7.0); 5], 6), (Status::Few, false));
        assert_eq!(status(&[Some(1.0), Some(2.0), Some(3.0), Some(4.0), Some(5.0)], 5), (Status::Noisy, false));
        assert_eq!(status(&[Some(7.0); 6], 5), (Status::Precise, false), "it is not looked at");
        assert_eq!(status(&[Some(7.0); 8], 5), (Status::Precise, true));
        assert_eq!(status(&[None; 5], 5), (Status::Few, true), "more samples would not help");
        assert!(status(&[Some(1.0); 20], 20).1);
        let (course, cell) = course(&[None; 5]);
        let result = course.result(cell, &Enough::default(), false, &mut Site::new([], Duration::ZERO).unwrap());
        assert!(result.reason.unwrap().contains("no sample has a value") && result.metrics.is_empty());
    }

    #[test]
    fn intervals_are_looked_at_a_few_times() {
        let looks = |least_rounds, most_rounds| {
            let enough = Enough { least_rounds, most_rounds, ..Enough::default() };
            (1..=most_rounds).filter(|count| is_looked_at(*count, &enough)).collect::<Vec<_>>()
        };
        assert_eq!(looks(5, 40), [5, 8, 12, 18, 27, 40]);
        assert_eq!(looks(1, 9), [5, 8, 9]);
        assert_eq!(looks(3, 3), [3]);
    }

    #[test]
    fn what_is_still_to_come_follows_the_interval() {
        let enough = Enough { precision: 0.02, least_rounds: 5, most_rounds: 40, ..Enough::default() };
        let missing = |taken, half_width| {
            let samples = vec![Sample::default(); taken];
            Course { samples, half_width, ..Course::default() }.missing(&enough)
        };
        assert_eq!([missing(0, None), missing(3, None), missing(5, Some(0.04)), missing(5, Some(0.03))], [5, 2, 15, 7]);
        assert_eq!([missing(39, Some(1.0)), missing(8, Some(0.01))], [1, 1]);
    }

    #[test]
    fn samples_outlive_an_error_that_comes_later() {
        let (mut course, cell) = course(&[Some(7.0); 5]);
        let mut first_error = None;
        course.skip(Error::unavailable("the disk is full".into()), &mut first_error);
        assert!(course.is_finished && !course.is_without_any() && first_error.is_some());
        let result = course.result(cell, &Enough::default(), false, &mut Site::new([], Duration::ZERO).unwrap());
        assert_eq!((result.status, result.metrics[0].median), (Status::Precise, 7.0));
        assert!(result.reason.unwrap().contains("the disk is full"));
    }

    #[test]
    fn what_cannot_be_measured_is_skipped_and_the_rest_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let text = "rounds: 1\nsample: 1ms\ncells:\n- {measure: load, size: [4Ki, 32Ti]}\n\
            - {measure: join, method: durable-row, r: 10, s: 10, memory: /is/not/there}\n";
        let results = go(&plan(text), folder.path(), NEW).unwrap();
        let statuses: Vec<Status> = results.cells.iter().map(|cell| cell.status).collect();
        assert_eq!(statuses, [Status::Few, Status::Skipped, Status::Skipped]);
        for (cell, why) in results.cells[1..].iter().zip(["has room for", "/is/not/there"]) {
            let reason = cell.reason.as_deref().unwrap();
            assert!(reason.contains(why) && cell.metrics.is_empty(), "{reason}");
        }
        let other = tempfile::tempdir().unwrap();
        let error = go(&plan("cells:\n- {measure: load, size: 32Ti}\n"), other.path(), NEW).unwrap_err();
        assert!(matches!(error, Error::NoRoom { .. }), "{error}");
    }

    #[test]
    fn a_run_that_is_interrupted_goes_on_where_it_was_and_takes_no_sample_more() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(&format!("rounds: 6\n{MODELLED}"));
        let mut turns = 0;
        let interrupted = run(&plan, folder.path(), NEW, false, |_| {
            turns += 1;
            if turns > 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(interrupted, Err(Error::Interrupted)), "{interrupted:?}");
        let lines = || std::fs::read_to_string(folder.path().join("journal.jsonl")).unwrap().lines().count();
        assert_eq!(lines(), 1 + 7);
        let whole = go(&plan, folder.path(), RESUMED).unwrap();
        assert_eq!(lines(), 1 + 12);
        let again = go(&plan, folder.path(), Beginning::Resumed { seed: Some(1) }).unwrap();
        assert_eq!(lines(), 1 + 12, "it was finished");
        assert_eq!((&again.cells, again.started_s), (&whole.cells, whole.started_s));
        assert!(go(&plan, folder.path(), Beginning::Resumed { seed: Some(2) }).is_err());
        assert!(go(&plan, folder.path(), NEW).is_err(), "nothing is written over");
    }

    #[test]
    fn a_modelled_device_is_not_held_against_the_caches_of_this_machine() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let text = "rounds: 5\ncells:\n- {measure: bandwidth, memory: 'model:cxl-type-3-fast', threads: 2}\n";
        let results = go(&plan(text), folder.path(), NEW).unwrap();
        assert!(results.ceilings_gb_s.is_empty() && results.cells[0].status == Status::Precise);
        let text = format!("{text}- {{measure: bandwidth, size: 1Mi}}\nsample: 1ms\n");
        let results = go(&plan(&text), other.path(), NEW).unwrap();
        assert_eq!(results.ceilings_gb_s.keys().collect::<Vec<_>>(), [&1]);
    }

    #[test]
    fn a_refusal_and_what_disturbed_the_run_outlive_an_interruption() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(&format!("rounds: 5\n{MODELLED}"));
        let (cells, machine) = (plan.cells().unwrap(), Machine::this());
        let mut journal = Journal::create(folder.path(), &cells, plan.enough, 1, &machine).unwrap();
        let disturbance = Disturbance { steal_ms: 1 << 40, switches: 0, waits: 0, migrations: Some(1 << 40) };
        let turn = Turn::Refused("it is not true".into());
        // Longer than any machine is up.
        journal.add(&Entry { cell: 1, turn, elapsed_ns: 1 << 60, disturbance }).unwrap();
        let began_s = journal.started_s();
        drop(journal);
        let more_time = Plan { enough: Enough { budget_ns: 2 << 60, ..plan.enough }, ..plan };
        let results = go(&more_time, folder.path(), RESUMED).unwrap();
        let of = |cell: usize| (results.cells[cell].status, results.cells[cell].reason.as_deref());
        assert_eq!([of(0), of(1)], [(Status::Precise, None), (Status::Refused, Some("it is not true"))]);
        assert!(results.disturbance.steal_ms >= 1 << 40 && results.elapsed_ns >= 1 << 60);
        assert!(results.disturbance.migrations.is_none_or(|count| count >= 1 << 40));
        assert_eq!(results.started_s, began_s);
    }
}
