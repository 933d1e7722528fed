//! The store's errors as the package's exceptions.

use std::path::Path;

use pyo3::prelude::*;
use store::ErrorCode;

/// Every error code with its number: what `remanent.errors` makes its classes from.
#[pyfunction]
pub(crate) fn error_codes() -> Vec<(&'static str, u16)> {
    ErrorCode::ALL.iter().map(|code| (code.name(), *code as u16)).collect()
}

/// The exception of a code.
pub(crate) fn exception(py: Python<'_>, code: ErrorCode, message: &str) -> PyErr {
    made(py, code, message, None, None)
}

/// The exception of a code that is about a file.
pub(crate) fn exception_at(py: Python<'_>, code: ErrorCode, message: &str, path: &Path) -> PyErr {
    made(py, code, message, Some(path), None)
}

/// The exception of a store's error.
pub(crate) fn raise(py: Python<'_>, error: &store::Error) -> PyErr {
    let (path, errno) = match error {
        store::Error::Pool(error) => (error.path(), system_errno(error)),
        _ => (None, None),
    };
    made(py, error.code(), &error.to_string(), path, errno)
}

/// The system's own number of what failed; the other errors have one of their class.
fn system_errno(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    error.source()?.downcast_ref::<std::io::Error>()?.raw_os_error()
}

fn made(py: Python<'_>, code: ErrorCode, message: &str, path: Option<&Path>, errno: Option<i32>) -> PyErr {
    let made = py
        .import("remanent.errors")
        .and_then(|module| module.getattr("of_code"))
        .and_then(|of_code| of_code.call1((code.name(), message, path, errno)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
