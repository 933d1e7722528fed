//! A cell of `remanent bench`.

use std::ops::ControlFlow;

use remanent_bench::plan::Plan;
use remanent_bench::run::{Beginning, run};

use crate::Error;

/// The median of a metric, given as MEASUREMENT/METRIC, of the one cell that these keys are.
pub(crate) fn median(metric: &str, keys: &[(&'static str, String)]) -> Result<f64, Error> {
    let (measure, metric) = metric.split_once('/').ok_or("a metric is MEASUREMENT/METRIC")?;
    let mut plan = Plan::built_in(measure).ok_or("there is no such measurement")?;
    plan.enough.set("rounds", "5")?;
    for (key, value) in keys {
        plan.set(key, value)?;
    }
    let folder = tempfile::tempdir()?;
    let results = run(&plan, folder.path(), Beginning::New { seed: 1 }, false, |_| ControlFlow::Continue(()))?;
    let [cell] = results.cells.as_slice() else { return Err(format!("{} cells", results.cells.len()).into()) };
    let reason = || format!("{}: {:?} {}", cell.cell, cell.status, cell.reason.as_deref().unwrap_or_default());
    Ok(cell.found(metric).ok_or_else(reason)?.median)
}
