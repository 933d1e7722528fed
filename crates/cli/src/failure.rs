//! What went wrong, its exit code, and what the user can do.

use std::path::Path;
use std::process::ExitCode;

use pmem::ErrorCode;
use serde_json::{Value, json};
use store::Error;

/// The page of the book that says of every code what the user can do; hints are taken from it, so there is one text.
const ERRORS: &str = include_str!("../../../docs/src/errors.md");

/// Exit codes; `remanent --help` and the book list them.
pub(crate) const DAMAGE_FOUND: u8 = 3;
pub(crate) const FAILED: u8 = 1;
const USAGE: u8 = 2;
const NOT_CONFIRMED: u8 = 4;

/// Why a command did not do what it was asked for.
pub(crate) enum Failure {
    /// A product, or the core under it, refused or could not.
    Refused(Error),
    /// Something cannot be measured.
    Measurement(bench::Error),
    /// The arguments fit the grammar, but not each other or the world.
    Usage(String),
    /// The user said no, or nobody was there to ask.
    NotConfirmed(String),
    /// A signal of this number has ended the work in order.
    Interrupted(u8, String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Refused(error)
    }
}

impl From<bench::Error> for Failure {
    fn from(error: bench::Error) -> Failure {
        match error {
            bench::Error::Pool(error) => error.into(),
            bench::Error::Plan { .. } => Failure::Usage(error.to_string()),
            bench::Error::Io { path, source } => Failure::io("write", &path, source),
            error => Failure::Measurement(error),
        }
    }
}

impl From<pmem::Error> for Failure {
    fn from(error: pmem::Error) -> Failure {
        Failure::Refused(error.into())
    }
}

impl Failure {
    /// An operating-system error that the command itself has met.
    pub(crate) fn io(operation: &'static str, path: &Path, source: std::io::Error) -> Failure {
        let path = path.to_owned();
        Failure::from(match source.kind() {
            std::io::ErrorKind::AlreadyExists => pmem::Error::AlreadyExists { path },
            std::io::ErrorKind::NotFound => pmem::Error::NotFound { path },
            _ => pmem::Error::Io { operation, path, source },
        })
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Refused(_) | Failure::Measurement(_) => FAILED,
            Failure::Usage(_) => USAGE,
            Failure::NotConfirmed(_) => NOT_CONFIRMED,
            // As a shell says that a signal has ended a program.
            Failure::Interrupted(signal, _) => 128 + signal,
        })
    }

    /// The stable name.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Failure::Refused(error) => error.code().name(),
            Failure::Measurement(error) => error.name(),
            Failure::Usage(_) => "usage",
            Failure::NotConfirmed(_) => "not-confirmed",
            Failure::Interrupted(..) => "interrupted",
        }
    }

    pub(crate) fn message(&self) -> String {
        match self {
            Failure::Refused(error) => error.to_string(),
            Failure::Measurement(error) => error.to_string(),
            Failure::Usage(message) | Failure::NotConfirmed(message) | Failure::Interrupted(_, message) => {
                message.clone()
            }
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Failure::Refused(error) => hint(error.code()),
            Failure::Usage(_) => Some("`remanent --help` and the help of each command have examples".to_owned()),
            Failure::Measurement(_) => Some("`remanent bench doctor` says what this machine can measure".to_owned()),
            Failure::NotConfirmed(_) | Failure::Interrupted(..) => None,
        }
    }

    /// The lines for people.
    pub(crate) fn to_text(&self) -> String {
        let hint = self.hint().map(|hint| format!("\n  hint: {hint}")).unwrap_or_default();
        format!("remanent: error[{}]: {}{hint}\n", self.code(), self.message())
    }

    /// The `error` of the envelope. The number of an error that only the command line knows is 0.
    pub(crate) fn to_json(&self) -> Value {
        let (number, path) = match self {
            Failure::Refused(error) => (error.code() as u16, path_of(error).map(|path| path.display().to_string())),
            Failure::Measurement(_) | Failure::Usage(_) | Failure::NotConfirmed(_) | Failure::Interrupted(..) => {
                (0, None)
            }
        };
        json!({ "code": self.code(), "number": number, "message": self.message(), "path": path, "hint": self.hint() })
    }
}

fn path_of(error: &Error) -> Option<&Path> {
    match error {
        Error::Pool(error) => error.path(),
        _ => None,
    }
}

/// What the book says that the user can do, in one paragraph: what holds in rarer cases only stands below it.
fn hint(code: ErrorCode) -> Option<String> {
    let heading = format!("\n## {} ({})\n", code.name(), code as u16);
    let (_, entry) = ERRORS.split_once(&heading)?;
    let (_, advice) = entry.split_once("**What you can do.**")?;
    let paragraph = advice.split("\n\n").next()?;
    Some(paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_hint_of_its_own_entry() {
        for &code in ErrorCode::ALL {
            let hint = hint(code).unwrap_or_else(|| panic!("{} has no hint", code.name()));
            assert!(!hint.is_empty() && !hint.contains("**") && !hint.contains('\n'), "{}: {hint}", code.name());
        }
        assert_eq!(
            hint(ErrorCode::AlreadyExists).as_deref(),
            Some("Choose another name, or remove the file yourself.")
        );
        assert_eq!(hint(ErrorCode::IsDirectory).as_deref(), Some("Name a file in it."));
    }
}
