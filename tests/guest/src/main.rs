//! The program inside the virtual machine of the DAX lane: its first process, and all that it starts.
//!
//! As the first process it mounts the devices, runs the checks of the scene that the kernel's command line names, each
//! in a process of its own, reports over the second serial line, and powers off. So a check that is killed by a signal
//! is a check that failed, and nothing else.
#![deny(unsafe_code)]

mod checks;
#[allow(unsafe_code)] // maps a sparse file as a user would
mod control;
#[allow(unsafe_code)] // poisons a page of a mapping of its own
mod damage;
mod device;
mod machine;
mod powercut;
mod report;
mod samples;
mod storage;
mod stripe;
mod workload;

use std::process::ExitCode;

use checks::Check;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        _ if std::process::id() == 1 => machine::run_and_power_off(),
        ["check", name] => Check::find(name).run_here(),
        ["damage", path, offset_bytes] => damage::poison_own_mapping(path, offset_bytes),
        _ => {
            eprintln!("this program is the first process of a virtual machine; ./run test --dax starts it");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
