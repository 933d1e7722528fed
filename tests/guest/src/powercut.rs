//! The side of a power cut that has no power: finds out what is left, says so, and goes on until the next cut.

use std::path::Path;

use pmem::Mapped;

use crate::control::{self, Control};
use crate::report::Report;
use crate::workload::Run;

/// More steps than a host ever waits for.
const MOST_STEPS: u64 = 1 << 20;

/// The store lies on the first device, the control on the second: a file system's journal writes out more than it was
/// asked to, and the store asks it for much.
pub(crate) fn run(report: &mut Report, seed: u64, boot: u64, control: Option<u64>) {
    if let Err(reason) = run_until_cut(report, seed, boot, control) {
        report.line(&format!("fail power cut: {reason}"));
    }
    report.line("end");
}

fn run_until_cut(report: &mut Report, seed: u64, boot: u64, control: Option<u64>) -> Result<(), String> {
    // With huge pages a file system enters 512 pages at once as written. Both must hold, and small ones lose more.
    let small_pages = boot.is_multiple_of(2);
    rustix::thread::disable_transparent_huge_pages(small_pages).map_err(|error| error.to_string())?;
    let mut run = Run::start(Mapped::new(), Path::new("/first/store"), seed, boot)?;
    let control_left = control.map_or(0, control::left_of);
    report.line(&format!("found {} {control_left}", run.steps()));
    let mut control = Control::create(boot);
    for _ in 0..MOST_STEPS {
        run.step().map_err(|error| format!("step {}: {error}", run.steps()))?;
        report.line(&format!("ack {} {}", run.steps(), control.append()));
    }
    Ok(())
}
