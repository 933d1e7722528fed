//! A private mapping as a counted handle of its own: it often outlives the view that it was made from.

use std::ffi::c_void;
use std::slice;

use store::{LateView, PrivateView};

use crate::arguments::{handle, put, release, retain};
use crate::error::{entry, mistake};

/// A private mapping of a buffer; see remanent_view_private.
pub enum MappingHandle {
    Mapped(PrivateView),
    Late(LateView),
}

/// Where the buffer is, which is mapped now if it was not: readable and writable as long as the mapping lives.
///
/// REMANENT_IO with ENOMEM when the process has as many mappings as it may; remanent_mapping_copy has the bytes all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_mapping_data(mapping: *const MappingHandle, data: *mut *mut c_void) -> i32 {
    entry(|| {
        let private = match handle(mapping, "mapping")? {
            MappingHandle::Mapped(private) => private,
            MappingHandle::Late(late) => late.mapped()?,
        };
        put(data, "data", private.address().cast())
    })
}

/// Copies a buffer that is mapped late to where there are len_bytes of room, which must be its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_mapping_copy(mapping: *const MappingHandle, to: *mut c_void, len_bytes: u64) -> i32 {
    entry(|| {
        let MappingHandle::Late(late) = handle(mapping, "mapping")? else {
            return Err(mistake("it was mapped when it was made; copy from there"));
        };
        if to.is_null() {
            return Err(mistake("the place to copy to is null"));
        }
        if len_bytes != late.len_bytes() {
            return Err(store::Error::LengthMismatch { got_bytes: len_bytes, expected_bytes: late.len_bytes() }.into());
        }
        // SAFETY: C promises the room, which nobody else uses meanwhile; it is bytes, whatever they are.
        let into = unsafe { slice::from_raw_parts_mut(to.cast(), len_bytes as usize) };
        Ok(late.copy_to(into)?)
    })
}

/// Counts the mapping once more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_mapping_retain(mapping: *const MappingHandle) {
    retain(mapping);
}

/// Counts the mapping down; the last count unmaps it. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_mapping_release(mapping: *mut MappingHandle) {
    entry(|| {
        release(mapping);
        Ok(())
    });
}
