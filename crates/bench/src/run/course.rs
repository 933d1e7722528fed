//! What becomes of a cell in the course of a run.

use std::collections::BTreeMap;

use super::journal::{Entry, Turn};
use super::{Described, LEAST_VALUES};
use crate::clock::Clock;
use crate::error::Error;
use crate::measure::{Cell, Sample};
use crate::plan::Enough;
use crate::results::{self, CellResult, Found, Status, Unresolved};
use crate::site::Site;

/// A cell's samples, and how it stands.
#[derive(Debug, Default)]
pub(super) struct Course {
    pub(super) samples: Vec<Sample>,
    disturbed: usize,
    refused: Option<String>,
    pub(super) skipped: Option<String>,
    /// Why no further sample could be taken.
    failed: Option<String>,
    pub(super) is_finished: bool,
    /// Half the interval in parts of the median, when it was looked at last.
    half_width: Option<f64>,
    /// What its memory was when its first sample was taken.
    pub(super) memory: Option<Described>,
}

/// Whether so many samples are looked at: an interval that is looked at whenever there is another sample is soon narrow by chance, and
/// ends the run. Each time there are half as many again.
fn is_looked_at(samples: usize, enough: &Enough) -> bool {
    let looks =
        std::iter::successors(Some(enough.least_rounds.max(LEAST_VALUES)), |count| Some(count + count.div_ceil(2)));
    samples >= enough.most_rounds || looks.take_while(|count| *count <= samples).any(|count| count == samples)
}

impl Course {
    pub(super) fn new(cell: &Cell) -> Course {
        let skipped = cell.needs().err().map(|error| error.to_string());
        Course { is_finished: skipped.is_some(), skipped, ..Course::default() }
    }

    /// Takes up what an earlier part of the run has written.
    pub(super) fn go_on_with(&mut self, entry: &Entry) {
        self.take_up(&entry.turn);
        if entry.memory.is_some() {
            self.memory.clone_from(&entry.memory);
        }
    }

    pub(super) fn take_up(&mut self, turn: &Turn) {
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
    pub(super) fn skip(&mut self, error: Error, first_error: &mut Option<Error>) {
        match self.samples.is_empty() {
            true => self.skipped = Some(error.to_string()),
            false => self.failed = Some(error.to_string()),
        }
        self.is_finished = true;
        first_error.get_or_insert(error);
    }

    /// Whether nothing at all came of it.
    pub(super) fn is_without_any(&self) -> bool {
        self.skipped.is_some() || self.samples.is_empty() && self.refused.is_none()
    }

    fn values(&self, metric: usize) -> Vec<f64> {
        self.samples.iter().filter_map(|sample| sample.values.get(metric).copied().flatten()).collect()
    }

    /// What was found of a metric, if it is not too short for the clock.
    fn found(&self, cell: &Cell, number: usize) -> Option<Found> {
        let found = Found::of(&cell.measure().metrics()[number], &self.values(number));
        found.filter(|_| self.unresolved(cell, number).is_none())
    }

    /// A metric that is too short for the clock. A measured time of 0 is one that it cannot tell from none: it counts as less than
    /// all others, and where half of all are such, the median is, and nothing was found.
    fn unresolved(&self, cell: &Cell, number: usize) -> Option<Unresolved> {
        let (metric, values) = (&cell.measure().metrics()[number], self.values(number));
        let is_measured_time = cell.device().is_none() && ["ns", "ticks"].contains(&metric.unit);
        let unresolved = values.iter().filter(|value| **value == 0.0).count();
        let is_too_short = is_measured_time && !values.is_empty() && 2 * unresolved >= values.len();
        is_too_short.then(|| Unresolved::of(metric, values.len()))
    }

    /// What was found of the first metric of which something was.
    fn first(&self, cell: &Cell) -> Option<Found> {
        (0..cell.measure().metrics().len()).find_map(|number| self.found(cell, number))
    }

    /// Finds out whether there are enough samples, where it is time to.
    pub(super) fn look(&mut self, cell: &Cell, enough: &Enough) {
        let taken = self.samples.len();
        if self.is_finished || !is_looked_at(taken, enough) {
            return;
        }
        let first = self.first(cell);
        self.half_width = first.as_ref().map(Found::half_width);
        let is_settled = match first {
            Some(found) => found.is_precise(enough.precision),
            // Where no sample has a value, more of them will not help.
            None => !self.samples.iter().flat_map(|sample| &sample.values).flatten().any(|value| *value > 0.0),
        };
        self.is_finished = taken >= enough.most_rounds || taken >= enough.least_rounds && is_settled;
    }

    /// Samples that are still to come, about: intervals narrow with the root of their number.
    pub(super) fn missing(&self, enough: &Enough) -> usize {
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

    /// Ticks at fractions of the single operations, where the clock can tell the median of them from none.
    fn percentiles(&self, clock: &Clock) -> BTreeMap<String, u64> {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for (ticks, count) in self.samples.iter().flat_map(|sample| &sample.ticks) {
            *counts.entry(*ticks).or_default() += count;
        }
        let is_resolved = results::percentile(&counts, 0.5).is_some_and(|ticks| clock.resolves(ticks as f64));
        if is_resolved { results::percentiles(&counts) } else { BTreeMap::new() }
    }

    pub(super) fn result(self, cell: Cell, enough: &Enough, keeps_samples: bool, site: &mut Site) -> CellResult {
        let (status, clock) = (self.status(&cell, enough), Clock::get());
        let is_believed = !matches!(status, Status::Skipped | Status::Refused);
        let percentiles = if is_believed { self.percentiles(clock) } else { BTreeMap::new() };
        let metrics = (0..cell.measure().metrics().len()).filter_map(|number| {
            let found = self.found(&cell, number)?;
            Some(Found { samples: if keeps_samples { self.values(number) } else { Vec::new() }, ..found })
        });
        let unresolved = (0..cell.measure().metrics().len()).filter_map(|number| self.unresolved(&cell, number));
        // Figures are of the memory that was there when they were taken, which may be gone since.
        let now = |site: &mut Site| site.describe(&cell);
        let memory = if is_believed { self.memory.clone().or_else(|| now(site)) } else { None };
        let has_nothing = is_believed && !self.samples.is_empty() && self.first(&cell).is_none();
        let nothing =
            has_nothing.then(|| "at most half of the samples have a value that the clock resolves".to_owned());
        CellResult {
            status,
            reason: [&self.skipped, &self.refused, &self.failed].into_iter().flatten().next().cloned().or(nothing),
            provenance: memory.as_ref().map(|memory| memory.provenance),
            memory: memory.as_ref().map(|memory| memory.text.clone()),
            page_bytes: memory.as_ref().and_then(|memory| memory.page_bytes),
            metrics: if is_believed { metrics.collect() } else { Vec::new() },
            unresolved: if is_believed { unresolved.collect() } else { Vec::new() },
            percentiles_ns: percentiles.iter().map(|(part, ticks)| (part.clone(), clock.ns(*ticks as f64))).collect(),
            percentiles_ticks: percentiles,
            overhead: self.samples.iter().filter_map(|sample| sample.overhead).reduce(f64::max),
            disturbed: self.disturbed,
            cell,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::Plan;

    fn course(values: &[Option<f64>]) -> (Course, Cell) {
        let cell = Plan::built_in("load").unwrap().cells().unwrap().remove(0);
        let mut course = Course::default();
        for value in values {
            let sample = Sample { values: vec![*value, None, None], ..Sample::default() };
            course.take_up(&Turn::of(&sample, false));
        }
        (course, cell)
    }

    fn nowhere() -> Site {
        Site::new([], Duration::ZERO).unwrap()
    }

    #[test]
    fn a_few_values_and_none_at_all_are_never_precise() {
        let status = |values: &[Option<f64>], least_rounds: usize| {
            let (mut course, cell) = course(values);
            let enough = Enough { least_rounds, most_rounds: 20, ..Enough::default() };
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
        assert_eq!(status(&[Some(0.0); 5], 5), (Status::Few, true), "nor where the clock resolves none");
        let some = [Some(0.0), Some(9.0), Some(0.0), Some(0.0), Some(9.0)];
        assert_eq!(status(&some, 5), (Status::Few, false), "others may lie above what it resolves");
        assert!(status(&[Some(1.0); 20], 20).1);
        let (course, cell) = course(&[None; 5]);
        let result = course.result(cell, &Enough::default(), false, &mut nowhere());
        assert!(result.reason.unwrap().contains("at most half of the samples") && result.metrics.is_empty());
        assert!(result.unresolved.is_empty(), "it has no time that could be too short");
    }

    /// A median of those alone that the clock resolves would be too large.
    #[test]
    fn samples_below_what_the_clock_resolves_count_as_less_than_the_others() {
        let found = |values: &[f64]| {
            let (course, cell) = course(&values.iter().map(|value| Some(*value)).collect::<Vec<_>>());
            course.found(&cell, 0)
        };
        let some = found(&[0.0, 30.0, 0.0, 32.0, 34.0]).unwrap();
        assert_eq!((some.count, some.median, some.median_95.low), (5, 30.0, 0.0));
        assert_eq!(found(&[0.0, 0.0, 0.0, 32.0, 34.0]), None);
        assert_eq!(found(&[0.0, 0.0, 32.0, 34.0]), None, "the middle of none and some is no time");
        let (course, cell) = course(&[Some(0.0), Some(0.0), Some(0.0), Some(32.0), Some(34.0)]);
        let result = course.result(cell, &Enough::default(), false, &mut nowhere());
        assert_eq!(result.unresolved.iter().map(|one| (&*one.metric, one.count)).collect::<Vec<_>>(), [("latency", 5)]);
        let mut plan = Plan::built_in("load").unwrap();
        plan.set("memory", "model:ddr4").unwrap();
        let modelled = plan.cells().unwrap().remove(0);
        let (course, _) = self::course(&[Some(0.0); 5]);
        assert_eq!(course.found(&modelled, 0).unwrap().median, 0.0, "no clock tells what is computed");
    }

    #[test]
    fn percentiles_are_of_all_samples_and_told_with_their_median() {
        let clock = Clock { ticks_per_ns: 1.0, step_ticks: 10, pair_ticks: 20 };
        let percentiles = |ticks: &[(u64, u64)]| {
            let mut course = Course::default();
            for ticks in ticks {
                course.take_up(&Turn::of(&Sample { ticks: [*ticks].into(), ..Sample::default() }, false));
            }
            course.percentiles(&clock)
        };
        let told = percentiles(&[(10, 40), (40, 60)]);
        assert_eq!((told["50"], told["90"], told["100"]), (40, 40, 40));
        assert!(percentiles(&[(10, 60), (40, 40)]).is_empty() && percentiles(&[]).is_empty());
    }

    #[test]
    fn percentiles_are_told_in_nanoseconds_and_ticks() {
        let (mut course, cell) = course(&[Some(7.0); 5]);
        let clock = Clock::get();
        let ticks = 1000 * clock.step_ticks;
        course.samples[0].ticks = [(ticks, 10)].into();
        let result = course.result(cell, &Enough::default(), false, &mut nowhere());
        assert_eq!((result.percentiles_ticks["50"], result.percentiles_ns["50"]), (ticks, clock.ns(ticks as f64)));
        assert_eq!(result.percentiles_ticks.len(), result.percentiles_ns.len());
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
        let result = course.result(cell, &Enough::default(), false, &mut nowhere());
        assert_eq!((result.status, result.metrics[0].median), (Status::Precise, 7.0));
        assert!(result.reason.unwrap().contains("the disk is full"));
    }
}
