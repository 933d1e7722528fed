//! What no figure can be: a bandwidth above that of the first-level cache is that of code which does not run.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::bandwidth::Transfer;
use crate::code::{Access, Fence, Width};
use crate::crew::Done;
use crate::error::Result;
use crate::measure::{Cell, Sample};
use crate::memory::{Memory, Pages, Place};
use crate::pattern::Pattern;

/// The most that any number of this machine's threads can move; what is modelled is another machine's.
#[derive(Clone, Debug, Default)]
pub(super) struct Ceilings {
    gb_s: BTreeMap<usize, f64>,
    /// Numbers of threads that cannot be had, and why.
    without: BTreeMap<usize, String>,
}

/// A working set that every first-level cache has, for each thread.
const CACHED_BYTES: usize = 8 << 10;
const TIME: Duration = Duration::from_millis(5);
const TRIES: usize = 4;
/// The unit of what has a ceiling.
const UNIT: &str = "GB/s";
/// The ceiling is a measurement too, and frequencies change.
const MARGIN: f64 = 1.5;

impl Ceilings {
    /// Measures the ceiling of each number of threads that these cells have.
    pub(super) fn measure(cells: &[&Cell]) -> Ceilings {
        let mut ceilings = Ceilings::default();
        for threads in cells.iter().filter(|cell| has_ceiling(cell)).filter_map(|cell| threads_of(cell).ok()) {
            if ceilings.gb_s.contains_key(&threads) || ceilings.without.contains_key(&threads) {
                continue;
            }
            match cached_gb_s(threads) {
                Ok(gb_s) => _ = ceilings.gb_s.insert(threads, MARGIN * gb_s),
                Err(error) => _ = ceilings.without.insert(threads, error.to_string()),
            }
        }
        ceilings
    }

    /// Why nothing of a cell could be believed: what its threads can move at most could not be measured.
    pub(super) fn missing(&self, cell: &Cell) -> Option<&str> {
        let threads = threads_of(cell).ok().filter(|_| has_ceiling(cell))?;
        self.without.get(&threads).map(String::as_str)
    }

    pub(super) fn gb_s(&self) -> &BTreeMap<usize, f64> {
        &self.gb_s
    }

    /// Why a sample cannot be true.
    pub(super) fn refuse(&self, cell: &Cell, sample: &Sample) -> Option<String> {
        let threads = if has_ceiling(cell) { threads_of(cell).ok() } else { None };
        let ceiling = threads.and_then(|threads| self.gb_s.get(&threads));
        for (metric, value) in cell.measure().metrics().iter().zip(&sample.values) {
            let Some(value) = *value else { continue };
            if !value.is_finite() || value < 0.0 {
                return Some(format!("{} of {value} {}", metric.name, metric.unit));
            }
            if let Some(ceiling) = ceiling.filter(|ceiling| metric.unit == UNIT && value > **ceiling) {
                return Some(format!(
                    "{} of {value:.0} GB/s, more than the first-level caches give ({ceiling:.0})",
                    metric.name
                ));
            }
        }
        None
    }
}

fn has_ceiling(cell: &Cell) -> bool {
    cell.device().is_none() && cell.measure().metrics().iter().any(|metric| metric.unit == UNIT)
}

fn threads_of(cell: &Cell) -> Result<usize> {
    Ok(cell.needs()?.threads.max(1))
}

/// What threads load from, or store into, their first-level caches: the larger of both.
fn cached_gb_s(threads: usize) -> Result<f64> {
    let mut memory = Memory::new(&Place::Dram, Pages::Small, CACHED_BYTES * threads)?;
    let mut most = 0.0f64;
    // Several times, for a machine that is busy meanwhile has a lower one, and figures would be refused that are true.
    for access in [Access::Load, Access::Store].repeat(TRIES) {
        let transfer = Transfer {
            access,
            width: Width::widest(),
            fence: Fence::None,
            block_bytes: CACHED_BYTES,
            pattern: Pattern::SameLine,
            len_bytes: CACHED_BYTES * threads,
            threads,
        };
        let done = transfer.run(&mut memory, TIME, 1)?.done;
        most = most.max(done.iter().map(Done::per_second).sum::<f64>() / 1e9);
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    /// 56,256 GiB/s is what a loop said that the compiler had removed.
    #[test]
    fn figures_that_cannot_be_are_refused() {
        let cells = Plan::built_in("bandwidth").unwrap().cells().unwrap();
        let ceilings = Ceilings { gb_s: [(1, 400.0)].into(), ..Ceilings::default() };
        let refuse = |gb_s: f64| {
            ceilings.refuse(&cells[0], &Sample { values: vec![Some(gb_s), None, None], ..Sample::default() })
        };
        assert_eq!(refuse(399.0), None);
        assert_eq!(refuse(60_404.0).unwrap(), "bandwidth of 60404 GB/s, more than the first-level caches give (400)");
        assert!(refuse(f64::NAN).is_some() && refuse(f64::INFINITY).is_some() && refuse(-1.0).is_some());
    }

    #[test]
    fn a_modelled_figure_has_no_ceiling_of_this_machine() {
        let mut plan = Plan::built_in("bandwidth").unwrap();
        plan.set("memory", "model:optane-100-six-dimms").unwrap();
        let cells = plan.cells().unwrap();
        assert!(Ceilings::measure(&[&cells[0]]).gb_s().is_empty());
        let ceilings = Ceilings { gb_s: [(1, 4.0)].into(), ..Ceilings::default() };
        let refuse =
            |value| ceilings.refuse(&cells[0], &Sample { values: vec![Some(value), None, None], ..Sample::default() });
        assert!(refuse(39.4).is_none() && refuse(f64::INFINITY).is_some());
    }

    /// As many threads as no process may have.
    #[test]
    fn threads_that_cannot_be_had_cost_their_cells_only() {
        let mut plan = Plan::built_in("bandwidth").unwrap();
        plan.set("threads", "1,2").unwrap();
        let cells = plan.cells().unwrap();
        let ceilings = Ceilings { gb_s: [(1, 4.0)].into(), without: [(2, "no thread".into())].into() };
        let of = |threads| cells.iter().find(|cell| cell.number("threads") == threads).unwrap();
        assert_eq!((ceilings.missing(of(1)), ceilings.missing(of(2))), (None, Some("no thread")));
    }

    #[test]
    fn the_ceiling_is_above_what_memory_gives() {
        let cells = Plan::built_in("bandwidth").unwrap().cells().unwrap();
        let ceilings = Ceilings::measure(&[&cells[0]]);
        assert!(ceilings.gb_s()[&1] > 1.0, "{ceilings:?}");
    }
}
