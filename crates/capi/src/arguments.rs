//! What C hands over, made into what Rust can trust.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;

use crate::error::{Result, mistake};

/// A handle that C holds one count of.
pub(crate) fn handle<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: a pointer that is not null is one that this library gave out and that was not released since: the
    // promise that the header asks for. Handles are shared references only.
    unsafe { pointer.as_ref() }.ok_or_else(|| mistake(format!("the {what} is null")))
}

/// Hands a handle out with one count.
pub(crate) fn give<T>(out: *mut *mut T, what: &str, value: T) -> Result<()> {
    put(out, what, Arc::into_raw(Arc::new(value)).cast_mut())
}

/// Counts a handle once more.
pub(crate) fn retain<T>(pointer: *const T) {
    if !pointer.is_null() {
        // SAFETY: as for `handle`; every handle lies in an Arc.
        unsafe { Arc::increment_strong_count(pointer) }
    }
}

/// Counts a handle down; null is allowed, as for free(3).
pub(crate) fn release<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: as for `handle`; the count that C gives back is its own.
        drop(unsafe { Arc::from_raw(pointer) });
    }
}

/// Writes a result to where C wants it.
pub(crate) fn put<T>(out: *mut T, what: &str, value: T) -> Result<()> {
    if out.is_null() {
        return Err(mistake(format!("there is no place for the {what}: the pointer is null")));
    }
    // SAFETY: the pointer is not null, and C promises that it has room for the type that the header names.
    unsafe { out.write(value) };
    Ok(())
}

/// As [`put`], for a result that need not be asked for.
pub(crate) fn put_if<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: as for `put`.
        unsafe { out.write(value) }
    }
}

/// A text that ends with a NUL.
pub(crate) fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(mistake(format!("the {what} is null")));
    }
    // SAFETY: not null, and C promises that it ends with a NUL and stays as it is during the call.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map_err(|error| mistake(format!("the {what} is not UTF-8: {error}")))
}

/// A path, which may have any bytes.
pub(crate) fn path(pointer: *const c_char) -> Result<PathBuf> {
    if pointer.is_null() {
        return Err(mistake("the path is null"));
    }
    // SAFETY: as for `text`.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    Ok(PathBuf::from(OsStr::from_bytes(bytes.to_bytes())))
}

/// Items that C lends for the call. Null is allowed where there are none.
pub(crate) fn items<'a, T>(pointer: *const T, len: usize, what: &str) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(mistake(format!("the {what} are null or not aligned")));
    }
    if len.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(mistake(format!("{len} {what} cannot be")));
    }
    // SAFETY: not null, aligned, of a possible length, and C promises that they are there during the call.
    Ok(unsafe { slice::from_raw_parts(pointer, len) })
}

/// Bytes that C lends until a later call; only looked at for null.
pub(crate) fn lent(pointer: *const u8, len_bytes: u64, what: &str) -> Result<(*const u8, u64)> {
    if pointer.is_null() && len_bytes > 0 {
        return Err(mistake(format!("the {what} is null")));
    }
    if len_bytes > isize::MAX as u64 {
        return Err(mistake(format!("the {what} cannot have {len_bytes} bytes")));
    }
    Ok((pointer, len_bytes))
}
