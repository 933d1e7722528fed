//! Persist latency and copy bandwidth, beside libpmem, memcpy and a raw loop of non-temporal stores.
//!
//! ```text
//! cargo run --release -p peers-persist [-- DIRECTORY [ROUNDS]]
//! ```
//!
//! libpmem reads its settings when it is loaded, so each setting has a process of its own; inside it both sides run
//! alternately, A B B A, in batches of a fraction of a millisecond, and the ratio is taken batch by batch. Printed are
//! the median of each side, and the median and the quartiles of the ratio: remanent's time divided by the peer's, so
//! below 1 is faster; for bandwidth remanent's rate divided by the peer's, so above 1 is faster.
//!
//! On tmpfs the figures are emulated: they are those of main memory and of no persistent-memory device.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

mod bandwidth;
mod fixture;
mod latency;
mod libpmem;

/// libpmem's settings that are tried; the best of them at each length is what "tuned" means.
const SETTINGS: [(&str, &[(&str, &str)]); 4] = [
    ("libpmem default", &[]),
    ("libpmem MOVDIR64B=0", &[("PMEM_MOVDIR64B", "0")]),
    ("libpmem AVX512F=0", &[("PMEM_MOVDIR64B", "0"), ("PMEM_AVX512F", "0")]),
    ("libpmem NT from 1 KiB", &[("PMEM_MOVDIR64B", "0"), ("PMEM_MOVNT_THRESHOLD", "1024")]),
];

const SETTING: &str = "REMANENT_PEER_SETTING";

/// The exit code by which `./run bench` is told that something is missing here, and that this is no failure.
const NOT_RUN: u8 = 77;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let directory = arguments.next().map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let rounds = arguments.next().and_then(|n| n.to_str()?.parse().ok()).unwrap_or(41);
    match std::env::var(SETTING) {
        Ok(setting) => run_setting(&setting, &directory, rounds),
        Err(_) => run_all(&directory, rounds),
    }
}

fn run_all(directory: &Path, rounds: usize) -> ExitCode {
    let program = std::env::current_exe().expect("this program has a path");
    for (setting, variables) in SETTINGS {
        let mut child = Command::new(&program);
        child.arg(directory).arg(rounds.to_string()).env(SETTING, setting).env("PMEM_IS_PMEM_FORCE", "1");
        child.envs(variables.iter().copied());
        match child.status() {
            Ok(status) if status.success() => {}
            // It has said why, and the other settings would say the same.
            Ok(status) if status.code() == Some(NOT_RUN.into()) => return ExitCode::from(NOT_RUN),
            Ok(status) => {
                eprintln!("{setting}: {status}");
                return ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("{setting} does not start: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn run_setting(setting: &str, directory: &Path, rounds: usize) -> ExitCode {
    let peer = match libpmem::Libpmem::load() {
        Ok(peer) => peer,
        Err(error) => {
            eprintln!("not run: {error}; install libpmem1");
            return ExitCode::from(NOT_RUN);
        }
    };
    let fixture = fixture::Fixture::new(directory);
    println!("\n# {setting}; {}", fixture.label());
    latency::copies(&fixture, &peer, rounds);
    latency::flushes(&fixture, &peer, rounds);
    if setting == SETTINGS[0].0 {
        bandwidth::run(&fixture, &peer, rounds);
    }
    ExitCode::SUCCESS
}
