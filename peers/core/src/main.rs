//! The core beside itself: a persist through the seam and the same instructions written out, a first copy into an
//! untouched pool and into a pre-faulted one, a stripe and a single device; and opening a pool of 10,000 names and a store
//! of 10,000 arrays.
//!
//! ```text
//! cargo run --release -p peers-core [-- MEMORY [DISK]]
//! ```
//!
//! MEMORY is a folder in memory that may be mapped, /dev/shm unless told, and DISK one on a disk, that of this program
//! unless told. Both sides of a comparison run alternately in one process, A B B A. On tmpfs the figures are emulated:
//! they are those of main memory and of no persistent-memory device. What is printed are `remanent-report`'s lines:
//! name, median, quartiles, unit and where the figure comes from.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use remanent_pmem::Layout;
use scratch::Scratch;

mod names;
mod prefault;
mod print;
mod scratch;
mod seam;
mod stripe;

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

/// The exit code by which `./run bench` is told that something is missing here, and that this is no failure.
const NOT_RUN: u8 = 77;

const LAYOUT: Layout = Layout { name: "bench", version: 1 };

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let memory = arguments.next().unwrap_or_else(|| PathBuf::from("/dev/shm"));
    let disk = arguments.next().or_else(|| Some(std::env::current_exe().ok()?.parent()?.to_owned()));
    let disk = disk.unwrap_or_else(std::env::temp_dir);
    match run(&Scratch::new(&memory), &Scratch::new(&disk), &mut io::stdout().lock()) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(missing)) => {
            let _ = writeln!(io::stderr(), "peers-core: the seam was not run: {missing}");
            ExitCode::from(NOT_RUN)
        }
        Err(error) => {
            // Standard error may be the same closed pipe; then nobody is there to be told.
            let _ = writeln!(io::stderr(), "peers-core: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what can be run; what is missing for the rest.
fn run(
    memory: &Scratch,
    disk: &Scratch,
    out: &mut dyn Write,
) -> std::result::Result<Option<String>, Box<dyn std::error::Error>> {
    let missing = seam::run(memory, out)?;
    names::run(memory, out)?;
    names::run(disk, out)?;
    prefault::run(memory, out)?;
    prefault::run(disk, out)?;
    stripe::run(memory, out)?;
    Ok(missing)
}
