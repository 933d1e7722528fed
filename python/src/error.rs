//! The store's errors as the package's exceptions.

use pyo3::prelude::*;
use store::ErrorCode;

/// Every error code with its number: what `remanent.errors` makes its classes from.
#[pyfunction]
pub(crate) fn error_codes() -> Vec<(&'static str, u16)> {
    ErrorCode::ALL.iter().map(|code| (code.name(), *code as u16)).collect()
}

/// The exception of a code.
pub(crate) fn exception(py: Python<'_>, code: ErrorCode, message: &str) -> PyErr {
    let made = py
        .import("remanent.errors")
        .and_then(|module| module.getattr("of_code"))
        .and_then(|of_code| of_code.call1((code.name(), message)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The exception of a store's error.
pub(crate) fn raise(py: Python<'_>, error: &store::Error) -> PyErr {
    exception(py, error.code(), &error.to_string())
}
