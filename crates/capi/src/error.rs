//! Errors as numbers, with a text for each thread's last one.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr;

use store::ErrorCode;

/// What a function returns when all went well.
pub const REMANENT_OK: i32 = 0;

/// What a function returns else. The numbers and names are the same in every language; the book's page "Errors" says what
/// each of them means and what can be done.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, dead_code, non_camel_case_types, clippy::upper_case_acronyms)] // explained in the book
pub enum Failing {
    REMANENT_IO = 1,
    REMANENT_NOT_FOUND = 2,
    REMANENT_ALREADY_EXISTS = 3,
    REMANENT_IS_DIRECTORY = 4,
    REMANENT_NOT_A_FILE = 5,
    REMANENT_SYMLINK = 6,
    REMANENT_ACCESS_DENIED = 7,
    REMANENT_WORLD_WRITABLE = 8,
    REMANENT_READ_ONLY = 9,
    REMANENT_FILE_SYSTEM_FULL = 10,
    REMANENT_BAD_SIZE = 11,
    REMANENT_MISALIGNED = 12,
    REMANENT_NOT_A_POOL = 20,
    REMANENT_NEWER_VERSION = 21,
    REMANENT_UNKNOWN_FEATURE = 22,
    REMANENT_WRONG_LAYOUT = 23,
    REMANENT_SUPERBLOCK_LOST = 24,
    REMANENT_TRUNCATED = 25,
    REMANENT_FOREIGN_PART = 26,
    REMANENT_MISSING_PART = 27,
    REMANENT_NOT_FIRST_PART = 28,
    REMANENT_BAD_BLOCK = 29,
    REMANENT_CORRUPT = 30,
    REMANENT_POOL_BUSY = 40,
    REMANENT_POOL_FULL = 41,
    REMANENT_WRITES_REFUSED = 42,
    REMANENT_NOT_WRITABLE = 43,
    REMANENT_USED_AFTER_FORK = 44,
    REMANENT_NO_SUCH_NAME = 45,
    REMANENT_BAD_NAME = 46,
    REMANENT_TOO_LARGE = 47,
    REMANENT_UNSUPPORTED = 48,
    REMANENT_IN_USE = 49,
    REMANENT_UNKNOWN_TYPE = 60,
    REMANENT_SHAPE_OVERFLOW = 61,
    REMANENT_CHECKSUM_MISMATCH = 62,
    REMANENT_NOT_AN_ARRAY = 63,
    REMANENT_LENGTH_MISMATCH = 64,
    REMANENT_CANCELLED = 65,
    REMANENT_CLOSED = 66,
    REMANENT_BAD_ARGUMENT = 67,
    REMANENT_INTERNAL = 68,
    REMANENT_SOURCE_CHANGED = 69,
}

/// Why a call failed.
pub(crate) enum Failure {
    Store(store::Error),
    /// An argument, or a call in the wrong place.
    Argument(String),
    Closed(PathBuf),
    Forked(PathBuf),
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Failure {
        Failure::Store(error)
    }
}

/// A mistake of the calling program.
pub(crate) fn mistake(message: impl Into<String>) -> Failure {
    Failure::Argument(message.into())
}

impl Failure {
    fn code(&self) -> ErrorCode {
        match self {
            Failure::Store(error) => error.code(),
            Failure::Argument(_) => ErrorCode::BadArgument,
            Failure::Closed(_) => ErrorCode::Closed,
            Failure::Forked(_) => ErrorCode::UsedAfterFork,
        }
    }

    fn message(&self) -> String {
        match self {
            Failure::Store(error) => error.to_string(),
            Failure::Argument(message) => message.clone(),
            Failure::Closed(path) => format!("the pool {} is closed; open it again", path.display()),
            Failure::Forked(path) => {
                format!("{} was opened before this process was forked; open it anew in the child", path.display())
            }
        }
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Failure::Store(store::Error::Pool(error)) => error.path(),
            Failure::Closed(path) | Failure::Forked(path) => Some(path),
            _ => None,
        }
    }

    /// The system's own number of what failed.
    fn errno(&self) -> i32 {
        let Failure::Store(store::Error::Pool(error)) = self else { return 0 };
        let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
        source.and_then(std::io::Error::raw_os_error).unwrap_or(0)
    }
}

/// What is kept of a thread's last failure.
#[derive(Default)]
struct Last {
    code: i32,
    errno: i32,
    message: CString,
    path: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Runs what is behind a function of the interface.
pub(crate) fn entry(action: impl FnOnce() -> Result<()>) -> i32 {
    let last = match catch_unwind(AssertUnwindSafe(action)) {
        Ok(Ok(())) => return REMANENT_OK,
        Ok(Err(failure)) => Last {
            code: failure.code() as i32,
            errno: failure.errno(),
            message: c_text(failure.message()),
            path: failure.path().and_then(|path| CString::new(path.as_os_str().as_bytes()).ok()),
        },
        Err(panic) => Last {
            code: ErrorCode::Internal as i32,
            message: c_text(format!("a mistake in this library: {}; please report it", said(&*panic))),
            ..Last::default()
        },
    };
    let code = last.code;
    // A thread that is about to end has no place for it any more.
    let _ = LAST.try_with(|kept| kept.replace(last));
    code
}

fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a text")
}

/// A text for C; what is behind a NUL is left out.
pub(crate) fn c_text(text: String) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

fn with_last<T>(read: impl FnOnce(&Last) -> T, without: T) -> T {
    LAST.try_with(|last| read(&last.borrow())).unwrap_or(without)
}

/// The number of this thread's last failure; 0 before the first. Calls that go well leave it as it is.
#[unsafe(no_mangle)]
pub extern "C" fn remanent_error_code() -> i32 {
    with_last(|last| last.code, 0)
}

/// What happened at this thread's last failure and what can be done, in UTF-8; empty before the first. It is there until
/// the thread's next failure.
#[unsafe(no_mangle)]
pub extern "C" fn remanent_error_message() -> *const c_char {
    with_last(|last| last.message.as_ptr(), c"".as_ptr())
}

/// The file that this thread's last failure is about, or null. It is there until the thread's next failure.
#[unsafe(no_mangle)]
pub extern "C" fn remanent_error_path() -> *const c_char {
    with_last(|last| last.path.as_ref().map_or(ptr::null(), |path| path.as_ptr()), ptr::null())
}

/// The system's own number (errno) of this thread's last failure; 0 when no call to the system failed.
#[unsafe(no_mangle)]
pub extern "C" fn remanent_error_errno() -> i32 {
    with_last(|last| last.errno, 0)
}

/// The stable name of an error, for example "pool-full"; null for a number that this version does not know.
#[unsafe(no_mangle)]
pub extern "C" fn remanent_error_name(code: i32) -> *const c_char {
    let known = NAMES.iter().find(|(number, _)| *number == code);
    known.map_or(ptr::null(), |(_, name)| name.as_ptr())
}

/// The version of this library, for example "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn remanent_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no NUL in it"),
    };
    VERSION.as_ptr()
}

/// The version of this interface. Functions that are added raise it; a program that was built for a smaller number works
/// with a larger one.
pub const REMANENT_ABI_VERSION: u32 = 1;

/// The version of the interface that this library has: at least the REMANENT_ABI_VERSION that a program was built with.
#[unsafe(no_mangle)]
pub extern "C" fn remanent_abi_version() -> u32 {
    REMANENT_ABI_VERSION
}

/// The names that C gets, from the table that all languages share.
static NAMES: std::sync::LazyLock<Vec<(i32, CString)>> = std::sync::LazyLock::new(|| {
    let name = |code: &ErrorCode| (*code as i32, c_text(code.name().to_owned()));
    ErrorCode::ALL.iter().map(name).collect()
});
