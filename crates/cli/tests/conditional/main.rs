//! Tests of the real binary that need what not every machine has. Where it is missing they are reported as ignored, with
//! the reason.

#[path = "../cli/harness.rs"]
#[allow(dead_code)] // the tests that always run use the rest
mod harness;
mod memory;
mod terminal;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// A name, and what passes or panics.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    let groups = [
        (terminal::missing(), terminal::TESTS),
        (memory::no_mount(), memory::TESTS_OF_MOUNTS),
        (memory::no_shared_memory(), memory::TESTS_OF_SHARED_MEMORY),
    ];
    let mut trials = Vec::new();
    for (missing, tests) in groups {
        if let Some(reason) = &missing {
            println!("not run: {reason}");
        }
        for &(name, run) in tests {
            let trial = Trial::test(name, move || {
                run();
                Ok(())
            });
            trials.push(trial.with_ignored_flag(missing.is_some()));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
