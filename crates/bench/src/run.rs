//! Runs a plan: cells in a random order, again and again, until each is precise or the time is over.
//!
//! Repetitions of a cell are spread over the whole run, so that what else the machine does for a while meets all cells
//! alike. No sample is dropped and none is smoothed; a cell whose samples differ too much is called noisy. What was measured is
//! written to a journal as soon as it is, from which a run goes on that was interrupted.

mod course;
mod gate;
mod journal;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use report::Provenance;
use serde::{Deserialize, Serialize};

use crate::clock::monotonic_ns;
use crate::error::{Error, Result};
use crate::findings::findings;
use crate::machine::{Disturbance, Machine};
use crate::measure::Cell;
use crate::plan::Plan;
use crate::results::{Results, SCHEMA};
use crate::site::Site;
use course::Course;
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
    let mut courses: Vec<Course> = cells.iter().map(Course::new).collect();
    for entry in &entries {
        courses[entry.cell].go_on_with(entry);
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
    same_memory(&cells, &courses, &mut site)?;
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
        round: entries.last().map_or(0, |entry| entry.round + 1),
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

/// Refuses to go on where other memory is now than that of samples that there are, as when a file system is not mounted: what is
/// still to come would be of that. A place that cannot be used now says nothing, nor one of which everything was measured.
fn same_memory(cells: &[Cell], courses: &[Course], site: &mut Site) -> Result<()> {
    let place = |cell: &Cell| cell.keys.get("memory").map(ToString::to_string);
    let all = || cells.iter().zip(courses);
    let goes_on: BTreeSet<_> =
        all().filter(|(_, course)| !course.is_finished).filter_map(|(cell, _)| place(cell)).collect();
    for (cell, course) in all().filter(|(cell, _)| place(cell).is_some_and(|place| goes_on.contains(&place))) {
        if let (Some(before), Some(now)) = (&course.memory, site.describe(cell))
            && *before != now
        {
            let place = place(cell).unwrap_or_default();
            let what =
                format!("the journal is of a run in which {place} was another memory: {before}; now it is {now}");
            return Err(Error::unavailable(what));
        }
    }
    Ok(())
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
    /// The round, counted from the run's begin: none comes again, for orders and data are drawn from its number.
    round: u64,
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
        loop {
            let mut rng = Rng::with_seed(self.seed ^ self.round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
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
            self.round += 1;
        }
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
        // Once for a cell: another memory is not gone on with.
        let memory = if course.memory.is_none() { self.site.describe(cell) } else { None };
        course.memory = course.memory.take().or_else(|| memory.clone());
        let (elapsed_ns, disturbance) = (self.elapsed_ns(), self.disturbance());
        journal.add(&Entry { cell: number, round: self.round, turn, memory, elapsed_ns, disturbance })
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

/// What a cell's memory really was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Described {
    /// In words.
    pub text: String,
    /// Where figures of it come from.
    pub provenance: Provenance,
    /// The size of its pages; nothing when the cell uses no memory of the site.
    pub page_bytes: Option<usize>,
}

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.text, self.provenance.as_str())?;
        self.page_bytes.map_or(Ok(()), |bytes| write!(f, ", pages of {bytes} bytes"))?;
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use crate::plan::Enough;
    use crate::results::Status;

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
        let entry = Entry { cell: 1, round: 0, turn, memory: None, elapsed_ns: 1 << 60, disturbance };
        journal.add(&entry).unwrap();
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

    /// The journal of a run whose first cell has a sample, of this memory, in the round with this number.
    fn begun(plan: &Plan, folder: &Path, memory: Option<Described>, round: u64) {
        let mut journal = Journal::create(folder, &plan.cells().unwrap(), plan.enough, 1, &Machine::this()).unwrap();
        let turn = Turn::of(&Sample { values: vec![Some(7.0), None, None], ..Sample::default() }, false);
        let disturbance = Disturbance::default();
        journal.add(&Entry { cell: 0, round, turn, memory, elapsed_ns: 1, disturbance }).unwrap();
    }

    fn described(text: &str) -> Option<Described> {
        Some(Described { text: text.into(), provenance: Provenance::Emulated, page_bytes: Some(4096) })
    }

    #[test]
    fn samples_of_two_memories_are_not_put_together() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(&format!("rounds: 5\n{MODELLED}"));
        begun(&plan, folder.path(), described("persistent memory"), 0);
        let error = go(&plan, folder.path(), RESUMED).unwrap_err().to_string();
        assert!(error.contains("model:ddr4 was another memory: persistent memory (emulated, pages of"), "{error}");
    }

    #[test]
    fn figures_are_of_the_memory_that_was_there_when_they_were_taken() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan("rounds: 5\ncells:\n- {measure: load, memory: /is/not/there, size: 4Ki}\n");
        begun(&plan, folder.path(), described("persistent memory"), 0);
        let cell = go(&plan, folder.path(), RESUMED).unwrap().cells.remove(0);
        assert_eq!((cell.status, cell.metrics[0].count), (Status::Few, 1));
        assert_eq!((cell.provenance, cell.page_bytes), (Some(Provenance::Emulated), Some(4096)));
        assert!(cell.memory.unwrap() == "persistent memory" && cell.reason.unwrap().contains("/is/not/there"));
    }

    /// Else orders and data come again that were drawn before.
    #[test]
    fn no_round_comes_again_after_an_interruption() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(&format!("rounds: 5\n{MODELLED}"));
        // An interruption within a round leaves fewer samples than there were rounds.
        begun(&plan, folder.path(), None, 40);
        go(&plan, folder.path(), RESUMED).unwrap();
        let text = std::fs::read_to_string(folder.path().join("journal.jsonl")).unwrap();
        let entries: Vec<Entry> = text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(entries.iter().map(|entry| entry.round).min(), Some(40));
        assert!(entries.len() == 10 && entries[1..].iter().all(|entry| entry.round > 40));
        let with_memory = entries.iter().filter(|entry| entry.memory.is_some()).count();
        assert_eq!(with_memory, 2, "what it was is told once for each cell");
    }
}
