//! Tests that need what not every machine has. Where it is missing they are reported as ignored, with the reason.

#[allow(unsafe_code)] // the calls under test are unsafe
mod device;
mod mounted;
#[allow(unsafe_code)] // makes a page look lost, by ioctl
mod poison;
#[path = "../pool_errors/scene.rs"]
mod scene;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// A name, and what passes or panics.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    let groups = [
        (mounted::no_mount(), mounted::TESTS_OF_MOUNTS),
        (mounted::no_frozen_files(), mounted::TESTS_OF_FROZEN_FILES),
        (poison::missing(), poison::TESTS),
        (device::missing(), device::TESTS),
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
