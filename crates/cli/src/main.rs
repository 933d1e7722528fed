//! The `remanent` command: arguments in, calls to the products, text or JSON out. It holds no logic of its own.
//!
//! | module | what it answers for |
//! | --- | --- |
//! | `args` | the command line as a whole; each group of commands owns its own arguments |
//! | `pool`, `bench`, `doctor`, `manual` | the groups |
//! | `failure` | exit codes, and how an error is told |
//! | `interrupt` | Ctrl-C, SIGTERM, SIGHUP and SIGQUIT, for work that ends in order |
//! | `output` | the `--json` envelope, standard output, broken pipes |
//! | `progress` | bars and spinners |
//! | `units` | sizes and times, read and written |

mod args;
mod bench;
mod doctor;
mod failure;
#[allow(unsafe_code)] // handles signals
mod interrupt;
mod manual;
mod output;
mod pool;
mod progress;
mod units;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Cli, Command};
use failure::Failure;
use output::{Output, Report};
use progress::Progress;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = match args::parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => return output::refuse_usage(&error, &arguments),
    };
    let output = Output { json: cli.json, quiet: cli.quiet };
    let schema = cli.command.schema();
    match run(cli) {
        Ok(report) => output.tell(schema, &report),
        Err(failure) => output.fail(schema, &failure),
    }
}

fn run(cli: Cli) -> Result<Report, Failure> {
    let progress = if cli.json || cli.quiet { Progress::Hidden } else { Progress::OnTerminal };
    match cli.command {
        Command::Pool(group) => pool::run(group, progress, cli.json),
        Command::Bench(group) => bench::run(group, progress),
        Command::Doctor(arguments) => Ok(doctor::run(&arguments)),
        Command::Completions(arguments) => Ok(manual::completions(&arguments)),
        Command::Man(arguments) => manual::man(&arguments),
    }
}
