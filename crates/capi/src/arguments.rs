//! What C hands over, made into what Rust can trust.

use std::ffi::{CStr, OsStr, c_char};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
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

/// A structure that a program fills in and that begins with its own size in a `u64`.
///
/// It grows at its end only, and what is zero there is what the field means to a program that does not know it.
///
/// # Safety
/// The type is laid out as in C, its first field is its size, and it is valid when all of its bytes are zero.
pub(crate) unsafe trait Sized64: Copy {
    /// The size that it had in the first version of the interface: no program knows a smaller one.
    const FIRST_BYTES: usize;
    /// What C calls it.
    const NAME: &'static str;
}

/// How many bytes of a structure the program has, of those that this library knows.
fn known_bytes<T: Sized64>(pointer: *const T) -> Result<usize> {
    const { assert!(T::FIRST_BYTES >= size_of::<u64>() && T::FIRST_BYTES <= size_of::<T>()) };
    // Only the size itself is sure to be there.
    let size_bytes = *handle(pointer.cast::<u64>(), T::NAME)?;
    if size_bytes < T::FIRST_BYTES as u64 {
        return Err(mistake(format!("size_bytes is {size_bytes}; set it to sizeof({})", T::NAME)));
    }
    Ok(size_bytes.min(size_of::<T>() as u64) as usize)
}

/// A structure that a program of any version has filled in; what it does not know is zero.
pub(crate) fn sized<T: Sized64>(pointer: *const T) -> Result<T> {
    let bytes = known_bytes(pointer)?;
    let mut made = MaybeUninit::<T>::zeroed();
    // SAFETY: C promises as many bytes as the structure's size says, and there are at least as many here. The type is valid
    // with zeros in the place of those that C does not have, which its implementation of the trait promises.
    unsafe {
        ptr::copy_nonoverlapping(pointer.cast::<u8>(), made.as_mut_ptr().cast::<u8>(), bytes);
        Ok(made.assume_init())
    }
}

/// Fills in a structure of a program of any version, as far as the program knows it; its size stays.
pub(crate) fn put_sized<T: Sized64>(out: *mut T, value: &T) -> Result<()> {
    let bytes = known_bytes(out.cast_const())?;
    let size = size_of::<u64>();
    // SAFETY: C promises as many bytes as the structure's size says; the value has at least as many.
    unsafe {
        let (from, to) = (ptr::from_ref(value).cast::<u8>(), out.cast::<u8>());
        ptr::copy_nonoverlapping(from.add(size), to.add(size), bytes - size);
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A structure as the first version has it, and as a later one does.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct First {
        size_bytes: u64,
        threads: u64,
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Later {
        size_bytes: u64,
        threads: u64,
        added: u64,
    }

    // SAFETY: numbers, as in C, the first of which is the size.
    unsafe impl Sized64 for Later {
        const FIRST_BYTES: usize = size_of::<First>();
        const NAME: &'static str = "later";
    }

    #[test]
    fn a_structure_of_an_older_program_is_read_as_far_as_it_goes() {
        // What follows the older structure is another's.
        let older = [size_of::<First>() as u64, 3, u64::MAX];
        assert_eq!(sized(older.as_ptr().cast::<Later>()).ok(), Some(Later { size_bytes: 16, threads: 3, added: 0 }));
        let same = [size_of::<Later>() as u64, 3, 4];
        assert_eq!(sized(same.as_ptr().cast::<Later>()).ok(), Some(Later { size_bytes: 24, threads: 3, added: 4 }));
        let newer = [64, 3, 4, 5, 6, 7, 8, 9_u64];
        assert_eq!(sized(newer.as_ptr().cast::<Later>()).ok().map(|read| read.added), Some(4));
    }

    #[test]
    fn a_structure_of_an_older_program_is_filled_in_as_far_as_it_goes() {
        let value = Later { size_bytes: 24, threads: 5, added: 6 };
        let mut older = [size_of::<First>() as u64, 0, u64::MAX];
        assert!(put_sized(older.as_mut_ptr().cast::<Later>(), &value).is_ok());
        assert_eq!(older, [16, 5, u64::MAX]);
        let mut newer = [64, 0, 0, 7, 7, 7, 7, 7_u64];
        assert!(put_sized(newer.as_mut_ptr().cast::<Later>(), &value).is_ok());
        assert_eq!(newer, [64, 5, 6, 7, 7, 7, 7, 7]);
    }

    #[test]
    fn a_size_that_was_never_set_is_a_mistake() {
        let unset = [0_u64; 3];
        assert!(sized(unset.as_ptr().cast::<Later>()).is_err());
        assert!(sized(ptr::null::<Later>()).is_err());
    }
}
