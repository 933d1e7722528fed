//! An object that is read: its parts, and its bytes where they lie.

use std::ffi::{CString, c_char, c_void};
use std::{ptr, thread};

use store::{
    Array, Buffer, LateView, Mapped, Node, ObjectInfo, ObjectKind, ObjectView, PrivateView, Value, default_copy_threads,
};

use crate::arguments::{give, handle, items, put, release, retain, text};
use crate::dtype::DTypes;
use crate::error::{Result, c_text, entry, mistake};
use crate::listing::{CObject, describe};
use crate::mapping::MappingHandle;
use crate::node::{CNode, Nodes};
use crate::store::StoreHandle;

/// From this length on a copy is made by several threads.
const PARALLEL_FROM_BYTES: usize = 16 << 20;

/// An object of a store, as a commit left it: what others commit later does not change it. It outlives the store's handle.
/// Any thread may use it.
pub struct ViewHandle {
    object: CObject,
    nodes: Nodes,
    payload: Payload,
    _name: CString,
    _types: DTypes,
}

// SAFETY: the pointers in it lead into what it owns, or into the mapping that it keeps; nothing is changed after it is made.
unsafe impl Send for ViewHandle {}
// SAFETY: as above.
unsafe impl Sync for ViewHandle {}

/// Where the buffers are.
enum Payload {
    /// One buffer.
    Plain(ObjectView<Mapped>),
    Value(ObjectView<Mapped>, Box<Value>),
}

impl Payload {
    fn buffers(&self) -> u32 {
        match self {
            Payload::Plain(_) => 1,
            Payload::Value(_, value) => value.buffers(),
        }
    }

    fn buffer(&self, buffer: Buffer) -> (*const u8, u64) {
        match self {
            Payload::Plain(view) => (view.address(), view.descriptor().payload_bytes()),
            Payload::Value(_, value) => value.buffer(buffer),
        }
    }

    fn guard(&self, buffer: Buffer) -> Result<()> {
        match self {
            Payload::Plain(view) => Ok(view.guard()?),
            Payload::Value(_, value) => Ok(value.guard_buffer(buffer)?),
        }
    }

    fn private_late(&self, buffer: Buffer) -> Result<Option<LateView>> {
        match self {
            Payload::Plain(view) => Ok(view.private_late()?),
            Payload::Value(_, value) => Ok(value.private_late(buffer)?),
        }
    }

    fn private(&self, buffer: Buffer, room_bytes: usize) -> Result<Option<PrivateView>> {
        match self {
            Payload::Plain(view) => Ok(view.private_after(room_bytes)?),
            Payload::Value(_, value) => Ok(value.private_after(buffer, room_bytes)?),
        }
    }
}

impl ViewHandle {
    fn new(view: ObjectView<Mapped>) -> Result<ViewHandle> {
        let descriptor = view.descriptor();
        let name = c_text(view.name().to_owned());
        let info = ObjectInfo {
            name: view.name().to_owned(),
            kind: descriptor.kind() as u32,
            descriptor: Some(descriptor.clone()),
            extent_bytes: descriptor.payload_bytes(),
            born: view.born(),
        };
        let mut types = DTypes::default();
        let object = describe(&info, name.as_ptr(), &mut types);
        let plain = match descriptor.kind() {
            ObjectKind::Value => None,
            ObjectKind::Array => Some(Node::Array(Array {
                dtype: descriptor.dtype().clone(),
                shape: descriptor.shape().to_vec(),
                order: descriptor.order(),
                buffer: Buffer(0),
            })),
            kind => Some(Node::Long { is_text: kind == ObjectKind::Text, buffer: Buffer(0) }),
        };
        let payload = match plain {
            Some(_) => Payload::Plain(view),
            None => {
                let value = Box::new(view.value()?);
                Payload::Value(view, value)
            }
        };
        let at = |buffer| payload.buffer(buffer);
        let nodes = match (&plain, &payload) {
            (Some(node), _) => Nodes::of(node, at),
            (None, Payload::Value(_, value)) => Nodes::of(value.tree(), at),
            (None, Payload::Plain(_)) => unreachable!("what is no value has a plain node"),
        };
        Ok(ViewHandle { object, nodes, payload, _name: name, _types: types })
    }

    fn checked(&self, number: u32) -> Result<Buffer> {
        let count = self.payload.buffers();
        if number < count {
            Ok(Buffer(number))
        } else {
            Err(mistake(format!("there is no buffer {number} of {count}")))
        }
    }
}

/// Looks an object up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_get(
    store: *const StoreHandle,
    name: *const c_char,
    out: *mut *mut ViewHandle,
) -> i32 {
    entry(|| {
        put(out, "view", ptr::null_mut())?;
        let name = text(name, "name")?;
        let view = handle(store, "store")?.open()?.get(name)?;
        give(out, "view", ViewHandle::new(view)?)
    })
}

/// Looks several objects up in one generation: what one commit made visible together is seen together. out has room for
/// count views; all of them are null when this fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_get_many(
    store: *const StoreHandle,
    names: *const *const c_char,
    count: u64,
    out: *mut *mut ViewHandle,
) -> i32 {
    entry(|| {
        let names = items(names, count as usize, "names")?;
        if names.is_empty() {
            return Ok(());
        }
        (0..names.len()).try_for_each(|index| put(out.wrapping_add(index), "views", ptr::null_mut()))?;
        let names = names.iter().map(|&name| text(name, "name")).collect::<Result<Vec<_>>>()?;
        let views = handle(store, "store")?.open()?.get_all(&names)?;
        let views = views.into_iter().map(ViewHandle::new).collect::<Result<Vec<_>>>()?;
        views.into_iter().enumerate().try_for_each(|(index, view)| give(out.wrapping_add(index), "views", view))
    })
}

/// Counts the view once more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_view_retain(view: *const ViewHandle) {
    retain(view);
}

/// Counts the view down. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_view_release(view: *mut ViewHandle) {
    entry(|| {
        release(view);
        Ok(())
    });
}

/// What the object is; extent_bytes is not told here. It lives as long as the view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_view_object(view: *const ViewHandle, out: *mut *const CObject) -> i32 {
    entry(|| put(out, "object", ptr::from_ref(&handle(view, "view")?.object)))
}

/// How many nodes the object has: node 0 is the whole, and the children of each node have numbers in a row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_view_node_count(view: *const ViewHandle) -> u32 {
    handle(view, "view").map_or(0, |view| view.nodes.nodes.len() as u32)
}

/// A node, which lives as long as the view. Arrays, texts and bytes that are objects of their own are one node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_view_node(view: *const ViewHandle, number: u32, out: *mut *const CNode) -> i32 {
    entry(|| {
        let nodes = &handle(view, "view")?.nodes.nodes;
        let node = nodes.get(number as usize);
        let node = node.ok_or_else(|| mistake(format!("there is no node {number} of {}", nodes.len())))?;
        put(out, "node", ptr::from_ref(node))
    })
}

/// A buffer where it lies, at a multiple of 64: readable as long as the view lives, and never to be written to. On
/// persistent memory a page that is lost is a signal (SIGBUS) when it is read; remanent_view_guard makes it an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_view_buffer(
    view: *const ViewHandle,
    number: u32,
    data: *mut *const c_void,
    len_bytes: *mut u64,
) -> i32 {
    entry(|| {
        let view = handle(view, "view")?;
        let (address, len) = view.payload.buffer(view.checked(number)?);
        put(data, "data", address.cast())?;
        put(len_bytes, "length", len)
    })
}

/// Touches the pages of a buffer, so that what is lost is an error here. This costs what a first pass over it would.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_view_guard(view: *const ViewHandle, number: u32) -> i32 {
    entry(|| {
        let view = handle(view, "view")?;
        view.payload.guard(view.checked(number)?)
    })
}

/// Copies a buffer to where there are len_bytes of room, which must be its length; large ones with several threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_view_copy(
    view: *const ViewHandle,
    number: u32,
    to: *mut c_void,
    len_bytes: u64,
) -> i32 {
    entry(|| {
        let view = handle(view, "view")?;
        let buffer = view.checked(number)?;
        let (from, expected_bytes) = view.payload.buffer(buffer);
        if len_bytes != expected_bytes {
            return Err(store::Error::LengthMismatch { got_bytes: len_bytes, expected_bytes }.into());
        }
        if len_bytes == 0 {
            return Ok(());
        }
        if to.is_null() {
            return Err(mistake("the place to copy to is null"));
        }
        view.payload.guard(buffer)?;
        copy(Raw(from.cast_mut()), Raw(to.cast()), len_bytes as usize);
        Ok(())
    })
}

/// An address that threads share.
#[derive(Clone, Copy)]
struct Raw(*mut u8);

// SAFETY: the threads that get it touch ranges that do not overlap.
unsafe impl Send for Raw {}

impl Raw {
    fn plus(self, bytes: usize) -> Raw {
        Raw(self.0.wrapping_add(bytes))
    }
}

fn copy(from: Raw, to: Raw, len: usize) {
    // SAFETY: the view's buffer is readable for its length and nobody writes to it; C promises the room, which does not
    // overlap the pool's mapping.
    let piece = |from: Raw, to: Raw, len| unsafe { ptr::copy_nonoverlapping(from.0, to.0, len) };
    if len < PARALLEL_FROM_BYTES {
        return piece(from, to, len);
    }
    let step = len.div_ceil(default_copy_threads().get()).next_multiple_of(4096);
    thread::scope(|scope| {
        for at in (0..len).step_by(step) {
            let (from, to, len) = (from.plus(at), to.plus(at), step.min(len - at));
            scope.spawn(move || piece(from, to, len));
        }
    });
}

/// Maps a buffer privately: readable and writable, and what is written stays in this process and costs memory by the page.
/// The mapping holds the object; the pointer lives as long as the mapping. room_bytes of writable memory lie directly
/// before the data, for programs that need a header there.
///
/// The mapping is null, without an error, where there is none: a buffer that shares its pages with others, being smaller
/// than 1 MiB, or empty. REMANENT_UNSUPPORTED on device-DAX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_view_private(
    view: *const ViewHandle,
    number: u32,
    room_bytes: u64,
    out: *mut *mut MappingHandle,
    data: *mut *mut c_void,
) -> i32 {
    entry(|| {
        put(out, "mapping", ptr::null_mut())?;
        put(data, "data", ptr::null_mut())?;
        let view = handle(view, "view")?;
        let room_bytes = usize::try_from(room_bytes).ok().filter(|room| *room <= 1 << 20);
        let room_bytes = room_bytes.ok_or_else(|| mistake("there is room for at most 1 MiB before the data"))?;
        let private = view.payload.private(view.checked(number)?, room_bytes)?;
        let Some(private) = private else { return Ok(()) };
        put(data, "data", private.address().cast())?;
        give(out, "mapping", MappingHandle::Mapped(private))
    })
}

/// As remanent_view_private, but mapped when remanent_mapping_data is first asked for it. Until then it holds the object's
/// bytes, and costs the process nothing else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_view_private_late(
    view: *const ViewHandle,
    number: u32,
    out: *mut *mut MappingHandle,
) -> i32 {
    entry(|| {
        put(out, "mapping", ptr::null_mut())?;
        let view = handle(view, "view")?;
        match view.payload.private_late(view.checked(number)?)? {
            Some(late) => give(out, "mapping", MappingHandle::Late(late)),
            None => Ok(()),
        }
    })
}

/// Compares the object with its checksum; tells whether it has one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_view_verify(view: *const ViewHandle, has_checksum: *mut bool) -> i32 {
    entry(|| {
        let (Payload::Plain(object) | Payload::Value(object, _)) = &handle(view, "view")?.payload;
        put(has_checksum, "answer", object.verify()?)
    })
}

/// The CRC-32C of bytes, which the pool's own checksums are too: begun with the sum 0, or gone on with from the sum of the
/// bytes before. Null is no bytes. For streams that a language cannot read safely when they are damaged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_crc32c(sum: u32, data: *const c_void, len_bytes: u64) -> u32 {
    let bytes: &[u8] = items(data.cast(), len_bytes as usize, "bytes").unwrap_or_default();
    crc32c::crc32c_append(sum, bytes)
}
