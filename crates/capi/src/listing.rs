//! What there is in a pool, and what the pool is.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use store::{Checksum, ObjectInfo, Order};

use crate::arguments::{Sized64, give, handle, put, put_sized, release, retain, text};
use crate::dtype::{CDType, DTypes};
use crate::error::{c_text, entry, mistake};
use crate::store::StoreHandle;

/// What an object is: remanent_object.kind.
#[repr(u32)]
#[derive(Clone, Copy)]
#[allow(missing_docs, dead_code, non_camel_case_types)]
pub enum Kind {
    REMANENT_ARRAY = 1,
    REMANENT_BYTES = 2,
    /// UTF-8.
    REMANENT_TEXT = 3,
    /// A tree of parts.
    REMANENT_VALUE = 4,
}

/// An object. What it points to lives as long as the list or the view that it was asked from.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CObject {
    /// Its name in UTF-8.
    pub name: *const c_char,
    /// What it is: a remanent_object_kind, or a number that a later version has given.
    pub kind: u32,
    /// 1 when its items lie in column-major order.
    pub is_column_major: u32,
    /// 1 when the payload has a checksum; for values that is not known before they are read.
    pub has_checksum: u32,
    /// 1 when this version can read it.
    pub is_known: u32,
    /// The generation of the commit that made it.
    pub generation: u64,
    /// Bytes that it takes in the pool.
    pub extent_bytes: u64,
    /// Bytes of its payload.
    pub payload_bytes: u64,
    /// Of an array: the type of its items; else null.
    pub dtype: *const CDType,
    /// Of an array: length of each dimension.
    pub shape: *const u64,
    /// Of an array: how many dimensions.
    pub dimensions: u64,
}

/// The objects of one generation.
pub struct ListHandle {
    objects: Vec<CObject>,
    _names: Vec<CString>,
    _types: DTypes,
}

/// A description of an object in C, and what it points to.
pub(crate) fn describe(object: &ObjectInfo, name: *const c_char, types: &mut DTypes) -> CObject {
    let mut made = CObject {
        name,
        kind: object.kind,
        is_column_major: 0,
        has_checksum: 0,
        is_known: 0,
        generation: object.born,
        extent_bytes: object.extent_bytes,
        payload_bytes: 0,
        dtype: ptr::null(),
        shape: ptr::null(),
        dimensions: 0,
    };
    if let Some(descriptor) = &object.descriptor {
        made.is_known = 1;
        made.payload_bytes = descriptor.payload_bytes();
        made.has_checksum = u32::from(descriptor.checksum() != Checksum::None);
        if descriptor.kind() == store::ObjectKind::Array {
            made.is_column_major = u32::from(descriptor.order() == Order::ColumnMajor);
            made.dtype = types.keep(descriptor.dtype());
            made.shape = types.keep_shape(descriptor.shape());
            made.dimensions = descriptor.shape().len() as u64;
        }
    }
    made
}

/// Lists the objects whose names begin with prefix, by name; all of them when it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_list(
    store: *const StoreHandle,
    prefix: *const c_char,
    out: *mut *mut ListHandle,
) -> i32 {
    entry(|| {
        put(out, "list", ptr::null_mut())?;
        let prefix = if prefix.is_null() { "" } else { text(prefix, "prefix")? };
        let mut found = handle(store, "store")?.open()?.ls()?;
        found.retain(|object| object.name.starts_with(prefix));
        let names: Vec<CString> = found.iter().map(|object| c_text(object.name.clone())).collect();
        let mut types = DTypes::default();
        let describe = |(object, name): (&ObjectInfo, &CString)| describe(object, name.as_ptr(), &mut types);
        let objects = found.iter().zip(&names).map(describe).collect();
        give(out, "list", ListHandle { objects, _names: names, _types: types })
    })
}

/// How many objects the list has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_list_count(list: *const ListHandle) -> u64 {
    handle(list, "list").map_or(0, |list| list.objects.len() as u64)
}

/// One object of the list, which lives as long as the list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_list_object(list: *const ListHandle, index: u64, out: *mut *const CObject) -> i32 {
    entry(|| {
        let list = handle(list, "list")?;
        let object = list.objects.get(index as usize);
        let object = object.ok_or_else(|| mistake(format!("the list has no object {index}")))?;
        put(out, "object", ptr::from_ref(object))
    })
}

/// Counts the list once more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_list_retain(list: *const ListHandle) {
    retain(list);
}

/// Counts the list down. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_list_release(list: *mut ListHandle) {
    entry(|| {
        release(list);
        Ok(())
    });
}

/// What a pool is and how full it is. Texts are in UTF-8; what does not fit is cut.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CInfo {
    /// To be set before the call: sizeof(remanent_info).
    pub size_bytes: u64,
    /// Seconds since 1970-01-01 UTC.
    pub created_s: u64,
    /// Of the newest commit that is seen.
    pub generation: u64,
    /// How many objects there are.
    pub objects: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Bytes that can be used.
    pub free_bytes: u64,
    /// The largest that fits in one piece.
    pub largest_free_bytes: u64,
    /// Bytes that wait for readers.
    pub retired_bytes: u64,
    /// How many parts it has grown to.
    pub parts: u64,
    /// 1 when it was closed in order.
    pub is_clean: u32,
    /// 1 when a writer has it open, this handle included.
    pub has_writer: u32,
    /// Identity of the pool.
    pub uuid: [c_char; 40],
    /// What a commit is worth: "power-fail safe", "mapped, persistence unknown", "process-crash safe" or "volatile".
    pub durability: [c_char; 40],
    /// The unit in which stores become durable: "byte", "cache line" or "page".
    pub granularity: [c_char; 40],
    /// How figures measured on it are to be labelled: "measured" or "emulated".
    pub provenance: [c_char; 40],
    /// Type of the file system, or "device-dax".
    pub filesystem: [c_char; 40],
    /// Why the durability is what it is, in a sentence.
    pub reason: [c_char; 256],
    /// The first file.
    pub file: [c_char; 256],
}

// SAFETY: as in C, its size first; numbers and characters.
unsafe impl Sized64 for CInfo {
    const FIRST_BYTES: usize = 792;
    const NAME: &'static str = "remanent_info";
}

fn cut<const N: usize>(text: &[u8]) -> [c_char; N] {
    let mut made = [0; N];
    // Not within a character.
    let mut len = text.len().min(N - 1);
    while len < text.len() && len > 0 && text[len] & 0xC0 == 0x80 {
        len -= 1;
    }
    for (to, from) in made.iter_mut().zip(&text[..len]) {
        *to = *from as c_char;
    }
    made
}

/// Tells what the pool is and how full it is. The caller sets size_bytes of what is filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_info(store: *const StoreHandle, out: *mut CInfo) -> i32 {
    entry(|| {
        let info = handle(store, "store")?.open()?.info();
        let file = info.parts.first().and_then(|part| part.files.first());
        let made = CInfo {
            size_bytes: size_of::<CInfo>() as u64,
            created_s: info.created_s,
            generation: info.generation,
            objects: info.names as u64,
            total_bytes: info.total_bytes,
            free_bytes: info.free_bytes,
            largest_free_bytes: info.largest_free_bytes,
            retired_bytes: info.retired_bytes,
            parts: info.parts.len() as u64,
            is_clean: u32::from(info.is_clean),
            has_writer: u32::from(info.has_writer),
            uuid: cut(info.set.to_string().as_bytes()),
            durability: cut(info.backing.durability.as_str().as_bytes()),
            granularity: cut(info.backing.granularity.as_str().as_bytes()),
            provenance: cut(info.backing.provenance.as_str().as_bytes()),
            filesystem: cut(info.backing.filesystem.as_bytes()),
            reason: cut(info.backing.reason.as_bytes()),
            file: cut(file.map_or(&[], |file| file.as_os_str().as_bytes())),
        };
        put_sized(out, &made)
    })
}
