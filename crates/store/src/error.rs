//! Errors of the store. Their codes continue the core's table.

use pmem::ErrorCode;
use thiserror::Error;

use crate::descriptor::ObjectKind;

/// Result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong in a store. After any of them the catalogue is as it was before the call, unless the
/// core's `Io` says that it is unknown.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are named by the message above each variant
pub enum Error {
    #[error(transparent)]
    Pool(#[from] pmem::Error),
    #[error("{what} cannot be kept in a store: {reason}")]
    UnknownType { what: String, reason: &'static str },
    #[error(
        "the object {name:?} cannot be read as what was asked for: {reason}; use a version that knows it, or ask for the others by name"
    )]
    Unreadable { name: String, reason: &'static str },
    #[error("the shape {shape:?} with {item_bytes} bytes an item makes more bytes than can be addressed")]
    ShapeOverflow { shape: Vec<u64>, item_bytes: u64 },
    #[error(
        "the bytes of {name:?} are not those that were persisted (checksum {got:#010x}, expected {expected:#010x}); restore the file from a copy"
    )]
    ChecksumMismatch { name: String, got: u64, expected: u64 },
    #[error("{name:?} is no array but {got}; ask for it by its kind")]
    NotAnArray { name: String, got: ObjectKind },
    #[error("{got_bytes} bytes were handed over for an object of {expected_bytes} bytes")]
    LengthMismatch { got_bytes: u64, expected_bytes: u64 },
    #[error("the description of {name:?} is damaged: {what}; restore the file from a copy")]
    BadDescriptor { name: String, what: &'static str },
    #[error("there is an object {name:?} already; choose another name, or ask for it to be replaced")]
    NameTaken { name: String },
    #[error(
        "the object {name:?} is in use: it is changed in place, or somebody has a view of it; try again when that is gone"
    )]
    InUse { name: String },
    #[error(
        "the bytes of {name:?} were changed while they were copied; nothing was persisted; keep others from changing them"
    )]
    SourceChanged { name: String },
    #[error("the operation was given up by its caller; nothing was changed")]
    Cancelled,
}

impl Error {
    /// The stable code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::Pool(error) => error.code(),
            Error::UnknownType { .. } | Error::Unreadable { .. } => ErrorCode::UnknownType,
            Error::ShapeOverflow { .. } => ErrorCode::ShapeOverflow,
            Error::ChecksumMismatch { .. } => ErrorCode::ChecksumMismatch,
            Error::NotAnArray { .. } => ErrorCode::NotAnArray,
            Error::LengthMismatch { .. } => ErrorCode::LengthMismatch,
            Error::BadDescriptor { .. } => ErrorCode::Corrupt,
            Error::NameTaken { .. } => ErrorCode::AlreadyExists,
            Error::InUse { .. } => ErrorCode::InUse,
            Error::SourceChanged { .. } => ErrorCode::SourceChanged,
            Error::Cancelled => ErrorCode::Cancelled,
        }
    }

    pub(crate) fn unknown_type(what: impl Into<String>, reason: &'static str) -> Error {
        Error::UnknownType { what: what.into(), reason }
    }
}
