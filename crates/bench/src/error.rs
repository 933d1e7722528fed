//! What can go wrong in a benchmark.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Result of a benchmark's step.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are named by the message above each variant
pub enum Error {
    #[error(transparent)]
    Pool(#[from] pmem::Error),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("no memory to measure: {what}; ask for less, or for another place")]
    Memory { what: String },
    #[error(
        "{place} has room for {} MiB now, and {} MiB are needed; ask for less, or for another place",
        free_bytes >> 20, needed_bytes.div_ceil(1 << 20)
    )]
    NoRoom { place: String, needed_bytes: u64, free_bytes: u64 },
    #[error("the run was interrupted")]
    Interrupted,
    #[error("it cannot be measured here: {what}")]
    Unavailable { what: String },
    #[error("{what} is not what it must be; the figure is not used")]
    Wrong { what: &'static str },
    #[error("{place}: {what}")]
    Plan { place: String, what: String },
}

impl Error {
    /// The name that the command line prints.
    pub fn name(&self) -> &'static str {
        match self {
            Error::Pool(error) => error.code().name(),
            Error::Io { .. } => "io",
            Error::Memory { .. } | Error::NoRoom { .. } => "no-memory",
            Error::Interrupted => "interrupted",
            Error::Unavailable { .. } => "not-measurable",
            Error::Wrong { .. } => "wrong-result",
            Error::Plan { .. } => "bad-plan",
        }
    }

    pub(crate) fn io(path: &Path, source: std::io::Error) -> Error {
        Error::Io { path: path.to_owned(), source }
    }

    pub(crate) fn memory(what: String) -> Error {
        Error::Memory { what }
    }

    pub(crate) fn unavailable(what: String) -> Error {
        Error::Unavailable { what }
    }
}
