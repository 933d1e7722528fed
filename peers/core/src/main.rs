//! What the core costs: opening a pool of 10,000 names, and a persist through the seam beside the same instructions
//! written out.
//!
//! ```text
//! cargo run --release -p peers-core [-- DIRECTORY]
//! ```
//!
//! Both sides of a comparison run alternately in one process, A B B A. On tmpfs the figures are emulated: they are
//! those of main memory and of no persistent-memory device. What is printed are `remanent-report`'s lines: name,
//! median, quartiles, unit and where the figure comes from.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use remanent_pmem::{Granularity, Layout, Mapped, PartOptions, Pool};
use scratch::Scratch;

mod names;
mod print;
mod scratch;
mod seam;

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

const LAYOUT: Layout = Layout { name: "bench", version: 1 };

fn main() -> ExitCode {
    let directory = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    match run(&Scratch::new(&directory), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be the same closed pipe; then nobody is there to be told.
            let _ = writeln!(io::stderr(), "peers-core: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(scratch: &Scratch, out: &mut dyn Write) -> Result {
    let path = scratch.file("names")?;
    let pool = Pool::create(Mapped::new(), &path, LAYOUT, &PartOptions::single(64 << 20))?;
    names::fill(&pool)?;
    let backing = pool.info().backing;
    writeln!(out, "# {} ({}): {}", path.display(), backing.filesystem, backing.durability.as_str())?;
    if backing.granularity == Granularity::CacheLine {
        seam::run(&pool, out)?;
    }
    pool.close()?;
    names::open(&path, print::provenance(&backing), out)
}
