//! The command line as a whole.

use std::ffi::OsString;
use std::sync::OnceLock;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{bench, doctor, manual, pool};

const AFTER_HELP: &str = "\
Examples:
  remanent doctor /mnt/pmem0              what this machine and this place offer
  remanent pool create /mnt/pmem0/a --size 1GiB
  remanent pool info /mnt/pmem0/a
  remanent --json pool check /mnt/pmem0/a
  remanent bench run quick                what this machine's memory can do

Exit codes:
  0  done
  1  the operation failed; the error has a code, such as pool-busy
  2  the command line cannot be understood
  3  pool check found damage
  4  not confirmed; nothing was done
  5  bench compare found something that became worse

Environment:
  REMANENT_ASSUME_PERSISTENT  paths, separated by `:`, that count as power-fail safe although nothing here can tell;
                              the administrator's assertion, repeated in every report
  REMANENT_COPY               the copy instructions: avx512, avx2, sse2, movdir64b or clwb
  NO_COLOR                    no colours in help and error texts";

/// Keeps data in persistent memory, and says how safe it is there.
#[derive(Parser)]
#[command(name = "remanent", after_long_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Prints one JSON object instead of text, also for errors, on standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Prints no progress and no confirmations; what was asked for and errors are still printed
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The groups of commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Makes, examines, checks, grows and removes pools
    #[command(subcommand)]
    Pool(pool::Group),
    /// Measures memory and what databases do on it
    #[command(subcommand)]
    Bench(bench::Group),
    /// Says what this machine offers, how durable a path is and why, and what would make it better
    Doctor(doctor::Arguments),
    /// Prints a completion script for a shell
    Completions(manual::CompletionArguments),
    /// Prints the manual page, or writes all pages into a directory
    Man(manual::ManArguments),
}

impl Command {
    /// The name in the JSON envelope.
    pub(crate) fn schema(&self) -> &'static str {
        match self {
            Command::Pool(group) => group.schema(),
            Command::Bench(group) => group.schema(),
            Command::Doctor(_) => "remanent.doctor/1",
            Command::Completions(_) => "remanent.completions/1",
            Command::Man(_) => "remanent.man/1",
        }
    }
}

/// The command line's grammar, with the version that only a running program can put together.
pub(crate) fn grammar() -> clap::Command {
    static VERSION: OnceLock<String> = OnceLock::new();
    let version = || format!("{} (pool format {})", env!("CARGO_PKG_VERSION"), pmem::FORMAT_VERSION);
    Cli::command().version(VERSION.get_or_init(version).as_str())
}

pub(crate) fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut grammar = grammar();
    let matches = grammar.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut grammar))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        grammar().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        fn check(command: &clap::Command) {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:\n  remanent "), "{} has no examples", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&grammar());
    }
}
