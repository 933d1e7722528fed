//! The microbenchmark beside others that measure the same: loops written without it, fio, and multichase and multiload where
//! they were built.
//!
//! ```text
//! cargo run --release -p peers-bench [-- [--multichase FOLDER] [--rounds N]]
//! ```
//!
//! Both sides take turns, A B B A. A round of a side is a program, or a plan of one cell, of its own; what is printed is the
//! median of each side and that of the ratios, with the quartiles, as lines of `remanent-report`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use programs::{Fio, Multichase};
use remanent_report::{Comparison, Provenance, Record, Samples, compare};

mod loops;
mod ours;
mod programs;

type Error = Box<dyn std::error::Error>;

/// The exit code by which `./run bench` is told that something is missing here, and that this is no failure.
const NOT_RUN: u8 = 77;

/// What is measured on both sides.
struct Pair<'p> {
    name: String,
    unit: &'static str,
    provenance: Provenance,
    ours: Vec<(&'static str, String)>,
    metric: &'static str,
    theirs: &'p mut dyn FnMut() -> Result<f64, Error>,
}

fn main() -> ExitCode {
    let (mut multichase, mut rounds) = (None, 7);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--multichase", Some(folder)) => multichase = Some(PathBuf::from(folder)),
            ("--rounds", Some(text)) => match text.parse() {
                Ok(number) => rounds = number,
                Err(error) => return failed(&format!("--rounds {text}: {error}")),
            },
            _ => return failed(&format!("{argument} is none of: --multichase FOLDER, --rounds N")),
        }
    }
    match run(multichase, rounds) {
        Ok(missing) if missing.is_empty() => ExitCode::SUCCESS,
        Ok(missing) => {
            eprintln!("peers-bench: not run: {}", missing.join("; "));
            ExitCode::from(NOT_RUN)
        }
        Err(error) => failed(&error.to_string()),
    }
}

fn failed(reason: &str) -> ExitCode {
    eprintln!("peers-bench: {reason}");
    ExitCode::FAILURE
}

/// Runs what can be run; what is missing for the rest.
fn run(multichase: Option<PathBuf>, rounds: usize) -> Result<Vec<String>, Error> {
    let mut missing = Vec::new();
    match cfg!(target_arch = "x86_64") {
        true => stores(rounds)?,
        false => missing.push("the loops of stores are written for x86-64 only".to_owned()),
    }
    match Fio::find() {
        Some(fio) => blocks(&fio, rounds)?,
        None => missing.push("fio is not installed".to_owned()),
    }
    match multichase.map(Multichase::find).transpose()? {
        Some(multichase) => chases(&multichase, rounds)?,
        None => missing.push("--multichase does not say where multichase and multiload were built".to_owned()),
    }
    Ok(missing)
}

/// A store, its write-back and a fence.
fn stores(rounds: usize) -> Result<(), Error> {
    let memory = loops::Memory::new(16 << 20)?;
    for pass in loops::PASSES.iter().filter(|pass| pass.is_there()) {
        measured(
            rounds,
            Pair {
                name: format!("{} + {} + sfence", pass.store, pass.flush),
                unit: "ns",
                provenance: Provenance::Measured,
                ours: [("store", pass.store), ("flush", pass.flush), ("fence", "sfence"), ("size", "16Mi")]
                    .map(|(key, value)| (key, value.to_owned()))
                    .into(),
                metric: "latency/sustained",
                theirs: &mut || Ok(memory.store_ns(pass)),
            },
        )?;
    }
    Ok(())
}

/// Blocks of a file in memory.
fn blocks(fio: &Fio, rounds: usize) -> Result<(), Error> {
    for (block, kind, access) in
        [("4Ki", "read", "load"), ("4Ki", "write", "store"), ("1Mi", "read", "load"), ("1Mi", "write", "store")]
    {
        measured(
            rounds,
            Pair {
                name: format!("{block} {kind}, 1 thread, mapped file"),
                unit: "GB/s",
                provenance: Provenance::Emulated,
                ours: [
                    ("access", access),
                    ("block", block),
                    ("memory", "/dev/shm"),
                    ("pages", "4Ki"),
                    ("size", "512Mi"),
                ]
                .map(|(key, value)| (key, value.to_owned()))
                .into(),
                metric: "bandwidth/bandwidth",
                theirs: &mut || fio.gb_s(kind, block),
            },
        )?;
    }
    Ok(())
}

/// Dependent loads, and streams.
fn chases(multichase: &Multichase, rounds: usize) -> Result<(), Error> {
    for size in ["16Ki", "512Ki", "8Mi", "256Mi", "1Gi"] {
        measured(
            rounds,
            Pair {
                name: format!("dependent load, {size}, 4 KiB pages, 256 KiB locality"),
                unit: "ns",
                provenance: Provenance::Measured,
                ours: [("size", size), ("pages", "4Ki"), ("locality", "256Ki")]
                    .map(|(key, value)| (key, value.to_owned()))
                    .into(),
                metric: "load/latency",
                theirs: &mut || multichase.load_ns(size),
            },
        )?;
    }
    // Their loop loads 16 bytes at a time; memset keeps what it stores from being loaded first, as stores past the cache do.
    for (load, access, width) in [("stream-sum", "load", "16"), ("memset-libc", "nt", "widest")] {
        measured(
            rounds,
            Pair {
                name: format!("{load} and {access} of width {width}, 1 thread, 512 MiB"),
                unit: "GB/s",
                provenance: Provenance::Measured,
                ours: [("access", access), ("width", width), ("pages", "4Ki"), ("size", "512Mi")]
                    .map(|(key, value)| (key, value.to_owned()))
                    .into(),
                metric: "bandwidth/bandwidth",
                theirs: &mut || multichase.gb_s(load),
            },
        )?;
    }
    Ok(())
}

/// Measures a pair and prints it. The first error of a side ends it.
fn measured(rounds: usize, pair: Pair<'_>) -> Result<(), Error> {
    let Pair { name, unit, provenance, ours, metric, theirs } = pair;
    let mut error = None;
    let mut keep = |value: Result<f64, Error>| match value {
        Ok(value) => value,
        Err(found) => {
            error = Some(found);
            f64::NAN
        }
    };
    let keep = std::cell::RefCell::new(&mut keep);
    let comparison =
        compare(rounds, || (keep.borrow_mut())(theirs()), || (keep.borrow_mut())(ours::median(metric, &ours)));
    if let Some(error) = error {
        return Err(error);
    }
    let comparison = comparison.ok_or("a side has measured nothing")?;
    print(&name, unit, provenance, &comparison)?;
    Ok(())
}

fn print(name: &str, unit: &'static str, provenance: Provenance, comparison: &Comparison) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut line =
        |name: String, unit, samples: &Samples| writeln!(out, "{}", Record::new(&name, unit, provenance, samples));
    line(format!("{name}: the other"), unit, &comparison.a)?;
    line(format!("{name}: remanent bench"), unit, &comparison.b)?;
    line("  ratio of the second to the first".to_owned(), "times", &comparison.ratios)
}
