//! The rules of the house that no compiler checks.
//!
//! Each rule gives a list of findings, one sentence each; an empty list passes. The lists of exceptions stand in
//! ARCHITECTURE.md, where a reviewer sees them with their reasons, and are read from there.

mod arrows;
mod docs;
mod licences;
mod lockfiles;
mod sources;
mod table;

use crate::step::Outcome;
use crate::workspace::Workspace;

/// Findings of a rule, or why it could not be applied.
type Findings = Result<Vec<String>, String>;

fn outcome(findings: Findings) -> Outcome {
    Outcome::of_findings(findings.unwrap_or_else(|reason| vec![reason]))
}

/// Dependencies between the crates are those of the table in ARCHITECTURE.md.
pub(crate) fn arrows(workspace: &Workspace) -> Outcome {
    outcome(arrows::check(workspace))
}

/// The lock files of the workspaces beside this one follow its crates.
pub(crate) fn lockfiles(workspace: &Workspace) -> Outcome {
    outcome(lockfiles::check(workspace))
}

/// Every dependency has a licence that `deny.toml` allows.
pub(crate) fn licences(workspace: &Workspace) -> Outcome {
    outcome(licences::check(workspace))
}

/// Every Rust file says at its top what it is for.
pub(crate) fn module_docs(workspace: &Workspace) -> Outcome {
    outcome(sources::module_docs(workspace))
}

/// `unsafe` stands only in the files that ARCHITECTURE.md lists.
pub(crate) fn unsafe_code(workspace: &Workspace) -> Outcome {
    outcome(sources::unsafe_code(workspace))
}

/// No source file is longer than a reader can hold.
pub(crate) fn file_length(workspace: &Workspace) -> Outcome {
    outcome(sources::file_length(workspace))
}

/// No note to oneself and no path of one machine is left in a file.
pub(crate) fn words(workspace: &Workspace) -> Outcome {
    outcome(sources::words(workspace))
}

/// Every relative link in the documents leads somewhere.
pub(crate) fn links(workspace: &Workspace) -> Outcome {
    outcome(docs::links(workspace))
}

/// The book's summary names each of its pages.
pub(crate) fn summary(workspace: &Workspace) -> Outcome {
    outcome(docs::summary(workspace))
}

/// The book explains every error code.
pub(crate) fn error_entries(workspace: &Workspace) -> Outcome {
    outcome(docs::error_entries(workspace))
}

/// The book includes the table of every `format.rs`.
pub(crate) fn format_tables(workspace: &Workspace) -> Outcome {
    outcome(docs::format_tables(workspace))
}
