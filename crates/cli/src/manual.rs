//! Completions and manual pages, made from the same grammar that reads the command line.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::Shell;
use serde_json::json;

use crate::args;
use crate::failure::Failure;
use crate::output::Report;
use crate::units;

const COMPLETIONS_HELP: &str = "\
Examples:
  remanent completions bash > /etc/bash_completion.d/remanent
  remanent completions zsh > ~/.zfunc/_remanent
  remanent completions fish > ~/.config/fish/completions/remanent.fish";

const MAN_HELP: &str = "\
Examples:
  remanent man | man -l -
  remanent man /usr/local/share/man/man1";

/// What `completions` is told.
#[derive(Args)]
#[command(after_long_help = COMPLETIONS_HELP)]
pub(crate) struct CompletionArguments {
    /// The shell
    shell: CompletedShell,
}

/// The shells whose completions are tested.
#[derive(Clone, Copy, ValueEnum)]
enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

/// What `man` is told.
#[derive(Args)]
#[command(after_long_help = MAN_HELP)]
pub(crate) struct ManArguments {
    /// Where to write a page for each command; it must exist. Without it the main page is printed
    directory: Option<PathBuf>,
}

pub(crate) fn completions(arguments: &CompletionArguments) -> Report {
    let shell = match arguments.shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Zsh => Shell::Zsh,
        CompletedShell::Fish => Shell::Fish,
    };
    // Into memory first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::grammar(), "remanent", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    Report::answer(json!({ "shell": shell.to_string(), "script": script }), script)
}

pub(crate) fn man(arguments: &ManArguments) -> Result<Report, Failure> {
    let Some(directory) = &arguments.directory else {
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(args::grammar()).render(&mut page);
        rendered.expect("memory takes every write");
        let page = String::from_utf8_lossy(&page).into_owned();
        return Ok(Report::answer(json!({ "page": page }), page));
    };
    if !directory.is_dir() {
        return Err(Failure::Usage(format!("{} is no directory; make it first", directory.display())));
    }
    clap_mangen::generate_to(args::grammar(), directory)
        .map_err(|error| Failure::io("writing the manual pages", directory, error))?;
    let text = format!("wrote the manual pages into {}\n", directory.display());
    Ok(Report::confirmation(json!({ "directory": units::path(directory) }), text))
}
