//! What reaches standard output and standard error.
//!
//! With `--json` it is one object: `{"schema": "remanent.<command>/1", "ok": true, "result": {...}}`, or
//! `{"schema": ..., "ok": false, "error": {"code", "number", "message", "path", "hint"}}`. A field is never removed or
//! changed in its meaning without a new number after the slash; fields may be added.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::failure::Failure;

/// What a command has to say.
pub(crate) struct Report {
    pub(crate) kind: ReportKind,
    /// The `result` of the envelope.
    pub(crate) result: Value,
    /// The same for people.
    pub(crate) text: String,
    /// The exit code.
    pub(crate) exit: u8,
}

/// Whether `--quiet` leaves the text out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportKind {
    /// The text is what was asked for.
    Answer,
    /// The text says that it was done.
    Confirmation,
}

impl Report {
    pub(crate) fn answer(result: Value, text: String) -> Report {
        Report { kind: ReportKind::Answer, result, text, exit: 0 }
    }

    pub(crate) fn confirmation(result: Value, text: String) -> Report {
        Report { kind: ReportKind::Confirmation, result, text, exit: 0 }
    }
}

/// How to speak.
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

impl Output {
    pub(crate) fn tell(&self, schema: &str, report: &Report) -> ExitCode {
        let told = if self.json {
            print_json(&json!({ "schema": schema, "ok": true, "result": report.result }))
        } else if self.quiet && report.kind == ReportKind::Confirmation {
            Ok(())
        } else {
            print(&report.text)
        };
        told.map_or_else(|failure| failure, |()| ExitCode::from(report.exit))
    }

    pub(crate) fn fail(&self, schema: &str, failure: &Failure) -> ExitCode {
        if self.json {
            let told = print_json(&json!({ "schema": schema, "ok": false, "error": failure.to_json() }));
            return told.map_or_else(|failure| failure, |()| failure.exit_code());
        }
        complain(&failure.to_text());
        failure.exit_code()
    }
}

/// Help, the version, or a command line that cannot be understood.
pub(crate) fn refuse_usage(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    let wants_json = arguments.iter().any(|argument| argument == "--json");
    if !error.use_stderr() || !wants_json {
        // Nobody is left to be told when this fails.
        let _ = error.print();
        return ExitCode::from(error.exit_code() as u8);
    }
    let message = error.to_string();
    let message = message.trim().strip_prefix("error: ").unwrap_or(&message);
    Output { json: true, quiet: false }.fail("remanent.usage/1", &Failure::Usage(message.to_owned()))
}

/// Prints to standard error; whoever closed it does not want to know.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

fn print_json(value: &Value) -> Result<(), ExitCode> {
    print(&format!("{value:#}\n"))
}

/// A reader that has gone away, as in `remanent pool ls | head -1`, has what it wanted: that is no error.
fn print(text: &str) -> Result<(), ExitCode> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            complain(&format!("remanent: error[io]: writing the output failed: {error}\n"));
            Err(ExitCode::FAILURE)
        }
        _ => Ok(()),
    }
}
