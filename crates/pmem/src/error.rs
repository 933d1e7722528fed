//! Errors of the core, and the stable codes they carry into every language.
//!
//! [`ErrorCode`] is the one table that the C, Python, R and command-line forms are made from; the text of an
//! [`Error`](enum@Error) may change between releases, its code never does.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Result of a core operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Stable identity of an error, the same in Rust, C, Python, R and on the command line.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum ErrorCode {
            $($(#[$doc])* $name = $number,)*
        }

        impl ErrorCode {
            /// Every code, in numeric order.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name,)*];

            /// The name used in messages, documentation and the `--json` envelope, for example `pool-busy`.
            pub fn name(self) -> &'static str {
                match self { $(ErrorCode::$name => $text,)* }
            }
        }
    };
}

error_codes! {
    /// An operating-system call failed in a way that no other code names.
    Io = 1, "io";
    /// The path does not exist.
    NotFound = 2, "not-found";
    /// The path exists already and nothing is ever overwritten.
    AlreadyExists = 3, "already-exists";
    /// The path is a directory.
    IsDirectory = 4, "is-directory";
    /// The path is neither a regular file nor a device-DAX character device.
    NotAFile = 5, "not-a-file";
    /// The path is a symbolic link; pools are opened by their real name.
    Symlink = 6, "symlink";
    /// The operating system denies access: owner or permissions are wrong.
    AccessDenied = 7, "access-denied";
    /// Anybody may write the file, so its content cannot be trusted.
    WorldWritable = 8, "world-writable";
    /// The file or its file system is read-only.
    ReadOnly = 9, "read-only";
    /// The file system has no room for the file.
    FileSystemFull = 10, "file-system-full";
    /// The size asked for cannot be: zero, too small, too large, or not a multiple of the device's alignment.
    BadSize = 11, "bad-size";
    /// The device, or a stripe's head or chunk on it, is no multiple of the device's alignment.
    Misaligned = 12, "misaligned";
    /// The file is no pool.
    NotAPool = 20, "not-a-pool";
    /// The pool was written by a newer version.
    NewerVersion = 21, "newer-version";
    /// The pool uses an incompatible feature that this version does not know.
    UnknownFeature = 22, "unknown-feature";
    /// The pool holds another product's layout.
    WrongLayout = 23, "wrong-layout";
    /// Neither copy of the superblock is valid.
    SuperblockLost = 24, "superblock-lost";
    /// The file is shorter than its superblock says.
    Truncated = 25, "truncated";
    /// A part belongs to another pool set.
    ForeignPart = 26, "foreign-part";
    /// A part of the pool set is missing.
    MissingPart = 27, "missing-part";
    /// The file is a part of a set, but not its first; open the first.
    NotFirstPart = 28, "not-first-part";
    /// The medium reports bad blocks, or a page is poisoned.
    BadBlock = 29, "bad-block";
    /// Stored metadata fails its check.
    Corrupt = 30, "corrupt";
    /// Another writer has the pool open.
    PoolBusy = 40, "pool-busy";
    /// The pool has no free extent of that size.
    PoolFull = 41, "pool-full";
    /// An earlier persist failed; writes are refused until the pool is opened again.
    WritesRefused = 42, "writes-refused";
    /// The pool is open for reading only.
    NotWritable = 43, "not-writable";
    /// The process was forked after the pool was opened.
    UsedAfterFork = 44, "used-after-fork";
    /// The name is not in the catalogue.
    NoSuchName = 45, "no-such-name";
    /// The name cannot be used.
    BadName = 46, "bad-name";
    /// The record is larger than its log allows.
    TooLarge = 47, "too-large";
    /// The kernel or CPU lacks something that the operation needs.
    Unsupported = 48, "unsupported";
    /// An object that somebody looks at, or changes in place.
    InUse = 49, "in-use";
    /// The store has no form for the object's type, or was not made by a version that this one understands.
    UnknownType = 60, "unknown-type";
    /// The shape and the item size make more bytes than can be addressed.
    ShapeOverflow = 61, "shape-overflow";
    /// The object's bytes are not those that were persisted.
    ChecksumMismatch = 62, "checksum-mismatch";
    /// The name holds an object of another kind than an array.
    NotAnArray = 63, "not-an-array";
    /// The bytes handed over are not as many as the object's description says.
    LengthMismatch = 64, "length-mismatch";
    /// The caller gave the operation up; nothing was changed.
    Cancelled = 65, "cancelled";
    /// The handle was closed.
    Closed = 66, "closed";
    /// A call through the C interface has an argument that cannot be, or comes in the wrong place.
    BadArgument = 67, "bad-argument";
    /// A mistake of this library was caught.
    Internal = 68, "internal";
    /// The bytes to be persisted were changed while they were copied.
    SourceChanged = 69, "source-changed";
}

/// Everything that can go wrong in the core.
///
/// Display says what happened and what the user can do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are named by the message above each variant
pub enum Error {
    #[error("{operation} of {path} failed: {source}")]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} does not exist; create it first")]
    NotFound { path: PathBuf },
    #[error("{path} exists already; choose another name or remove it, nothing is overwritten")]
    AlreadyExists { path: PathBuf },
    #[error("{path} is a directory; name a file in it")]
    IsDirectory { path: PathBuf },
    #[error("{path} is neither a regular file nor a device-DAX device; name one of these")]
    NotAFile { path: PathBuf },
    #[error("{path} is a symbolic link; name the file that it points to")]
    Symlink { path: PathBuf },
    #[error(
        "access to {path} is denied (owner uid {owner_uid}, mode {mode:04o}, this process has uid {process_uid}); change the owner or the mode"
    )]
    AccessDenied { path: PathBuf, owner_uid: u32, mode: u32, process_uid: u32 },
    #[error(
        "{path} can be written by anybody (mode {mode:04o}), so its content cannot be trusted; run chmod o-w on it"
    )]
    WorldWritable { path: PathBuf, mode: u32 },
    #[error("{path} is read-only; open it as a reader, or make the file and its file system writable")]
    ReadOnly { path: PathBuf },
    #[error("the file system of {path} has no room for {requested_bytes} bytes; free some space or ask for less")]
    FileSystemFull { path: PathBuf, requested_bytes: u64 },
    #[error("a size of {got_bytes} bytes cannot be used for {path}: {reason}")]
    BadSize { path: PathBuf, got_bytes: u64, reason: &'static str },
    #[error(
        "{got_bytes} bytes cannot be mapped of {path}, only multiples of {alignment_bytes} bytes; reconfigure the namespace, or choose another chunk"
    )]
    Misaligned { path: PathBuf, got_bytes: u64, alignment_bytes: u64 },
    #[error("{path} is not a pool: its first bytes are not a superblock; create one, or name another file")]
    NotAPool { path: PathBuf },
    #[error("{path} has format version {got}, this program knows up to {supported}; use a newer program")]
    NewerVersion { path: PathBuf, got: u32, supported: u32 },
    #[error("{path} uses the unknown incompatible features {bits:#x}; use a newer program")]
    UnknownFeature { path: PathBuf, bits: u64 },
    #[error(
        "{path} holds the layout {got:?} version {got_version}, expected {expected:?} version {expected_version}; open it with the product that made it"
    )]
    WrongLayout { path: PathBuf, got: String, got_version: u32, expected: String, expected_version: u32 },
    #[error("neither superblock of {path} is valid; restore the file from a copy")]
    SuperblockLost { path: PathBuf },
    #[error("{path} has {got_bytes} bytes, its superblock says {expected_bytes}; restore the file from a copy")]
    Truncated { path: PathBuf, got_bytes: u64, expected_bytes: u64 },
    #[error("{path} belongs to another pool set ({got}, expected {expected}); put the right file back")]
    ForeignPart { path: PathBuf, got: Uuid, expected: Uuid },
    #[error("part {index} of the pool set, {path}, is missing; put the file back")]
    MissingPart { path: PathBuf, index: u32 },
    #[error("{path} is part {index} of a pool set; open the first part")]
    NotFirstPart { path: PathBuf, index: u32 },
    #[error(
        "{path} has a bad block at byte {offset_bytes}; what lies there is lost, copy the rest away and replace the device"
    )]
    BadBlock { path: PathBuf, offset_bytes: u64 },
    #[error("{path} is damaged: {what} at byte {offset_bytes} fails its check; restore the file from a copy")]
    Corrupt { path: PathBuf, what: &'static str, offset_bytes: u64 },
    #[error("{path} is open in another writer; close that one, or open this as a reader")]
    PoolBusy { path: PathBuf },
    #[error(
        "the pool has no free extent of {requested_bytes} bytes (largest: {largest_free_bytes}); grow it, or remove something and reclaim"
    )]
    PoolFull { requested_bytes: u64, largest_free_bytes: u64 },
    #[error("an earlier write to {path} could not be made durable; close the pool and open it again")]
    WritesRefused { path: PathBuf },
    #[error("{path} is open for reading only; open it as a writer")]
    NotWritable { path: PathBuf },
    #[error("{path} was opened before this process was forked; open it anew in the child")]
    UsedAfterFork { path: PathBuf },
    #[error("there is no {name:?} in the pool; list the names to see what is there")]
    NoSuchName { name: String },
    #[error("{name:?} cannot be used as a name: {reason}")]
    BadName { name: String, reason: &'static str },
    #[error("{what} is too large: {got_bytes} where {limit_bytes} are allowed; split it")]
    TooLarge { what: &'static str, got_bytes: u64, limit_bytes: u64 },
    #[error("{what} is not supported here: {reason}")]
    Unsupported { what: &'static str, reason: &'static str },
}

impl Error {
    /// The stable code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::Io { .. } => ErrorCode::Io,
            Error::NotFound { .. } => ErrorCode::NotFound,
            Error::AlreadyExists { .. } => ErrorCode::AlreadyExists,
            Error::IsDirectory { .. } => ErrorCode::IsDirectory,
            Error::NotAFile { .. } => ErrorCode::NotAFile,
            Error::Symlink { .. } => ErrorCode::Symlink,
            Error::AccessDenied { .. } => ErrorCode::AccessDenied,
            Error::WorldWritable { .. } => ErrorCode::WorldWritable,
            Error::ReadOnly { .. } => ErrorCode::ReadOnly,
            Error::FileSystemFull { .. } => ErrorCode::FileSystemFull,
            Error::BadSize { .. } => ErrorCode::BadSize,
            Error::Misaligned { .. } => ErrorCode::Misaligned,
            Error::NotAPool { .. } => ErrorCode::NotAPool,
            Error::NewerVersion { .. } => ErrorCode::NewerVersion,
            Error::UnknownFeature { .. } => ErrorCode::UnknownFeature,
            Error::WrongLayout { .. } => ErrorCode::WrongLayout,
            Error::SuperblockLost { .. } => ErrorCode::SuperblockLost,
            Error::Truncated { .. } => ErrorCode::Truncated,
            Error::ForeignPart { .. } => ErrorCode::ForeignPart,
            Error::MissingPart { .. } => ErrorCode::MissingPart,
            Error::NotFirstPart { .. } => ErrorCode::NotFirstPart,
            Error::BadBlock { .. } => ErrorCode::BadBlock,
            Error::Corrupt { .. } => ErrorCode::Corrupt,
            Error::PoolBusy { .. } => ErrorCode::PoolBusy,
            Error::PoolFull { .. } => ErrorCode::PoolFull,
            Error::WritesRefused { .. } => ErrorCode::WritesRefused,
            Error::NotWritable { .. } => ErrorCode::NotWritable,
            Error::UsedAfterFork { .. } => ErrorCode::UsedAfterFork,
            Error::NoSuchName { .. } => ErrorCode::NoSuchName,
            Error::BadName { .. } => ErrorCode::BadName,
            Error::TooLarge { .. } => ErrorCode::TooLarge,
            Error::Unsupported { .. } => ErrorCode::Unsupported,
        }
    }

    /// The file or directory that it is about.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Error::Io { path, .. }
            | Error::NotFound { path }
            | Error::AlreadyExists { path }
            | Error::IsDirectory { path }
            | Error::NotAFile { path }
            | Error::Symlink { path }
            | Error::AccessDenied { path, .. }
            | Error::WorldWritable { path, .. }
            | Error::ReadOnly { path }
            | Error::FileSystemFull { path, .. }
            | Error::BadSize { path, .. }
            | Error::Misaligned { path, .. }
            | Error::NotAPool { path }
            | Error::NewerVersion { path, .. }
            | Error::UnknownFeature { path, .. }
            | Error::WrongLayout { path, .. }
            | Error::SuperblockLost { path }
            | Error::Truncated { path, .. }
            | Error::ForeignPart { path, .. }
            | Error::MissingPart { path, .. }
            | Error::NotFirstPart { path, .. }
            | Error::BadBlock { path, .. }
            | Error::Corrupt { path, .. }
            | Error::PoolBusy { path }
            | Error::WritesRefused { path }
            | Error::NotWritable { path }
            | Error::UsedAfterFork { path } => Some(path),
            Error::PoolFull { .. }
            | Error::NoSuchName { .. }
            | Error::BadName { .. }
            | Error::TooLarge { .. }
            | Error::Unsupported { .. } => None,
        }
    }

    pub(crate) fn io(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Error {
        Error::Io { operation, path: path.to_owned(), source: source.into() }
    }
}

/// A 128-bit identity, written like any UUID (RFC 9562, version 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uuid(pub [u8; 16]);

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
