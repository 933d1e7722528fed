//! The bytes of a restored object, through the buffer protocol.

use std::ffi::c_int;
use std::sync::Arc;

use crate::pool::NativePool;
use pyo3::ffi;
use pyo3::prelude::*;
use store::{Buffer, DirectView, ErrorCode, Mapped, ObjectKind, ObjectView, PrivateView, Result, Value};

/// Private objects below this size are copies: a mapping each would cost more.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;

/// The bytes of one object, or of one buffer of it, exported as a buffer: where they lie and read-only, or private to this
/// process and writable, or a copy.
///
/// Arrays over the buffer keep this alive, and this keeps the mapping and the pin: no order of closing and deleting
/// leaves an array without its bytes. It keeps no more than it shows: a view of the object beside a private one would be in
/// the way when that is persisted again.
#[pyclass(frozen, module = "remanent._remanent")]
pub(crate) struct Memory {
    bytes: Bytes,
    /// Stores to memory of the pool itself are worth nothing when nobody has the pool open any more, so that keeps it.
    _pool: Option<Py<NativePool>>,
    len_bytes: usize,
    is_writable: bool,
    is_small: bool,
}

/// What is exported.
pub(crate) enum Bytes {
    Object(ObjectView<Mapped>),
    Part(Arc<Value>, Buffer),
    Private(PrivateView),
    /// Where it lies, to be written to.
    Direct(DirectView),
    Copied(Vec<u8>),
}

/// In which form objects are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Where they lie, read-only.
    Shared,
    /// Copied page by page when they are stored to, which nobody else sees.
    Private,
    /// Copied to memory of this process.
    Copied,
}

impl Memory {
    /// What the form asks for beside the objects, which are restored together: private views of large ones, and copies. Values
    /// have parts, and nothing here.
    pub(crate) fn bytes_of(views: &[ObjectView<Mapped>], form: Form) -> Result<Vec<Option<Bytes>>> {
        let is_one = |view: &ObjectView<Mapped>| view.descriptor().kind() != ObjectKind::Value;
        // Where it lies in pieces, putting it together page by page costs least.
        let is_private = |view: &&ObjectView<Mapped>| match form {
            Form::Private => is_one(view) && is_large(view),
            Form::Shared => is_one(view) && view.has_waiting_bytes(),
            Form::Copied => false,
        };
        let is_copied = |view: &&ObjectView<Mapped>| match form {
            Form::Private => is_one(view) && !is_large(view),
            Form::Shared => false,
            Form::Copied => is_one(view),
        };
        let these =
            |which: &dyn Fn(&&ObjectView<Mapped>) -> bool| views.iter().filter(which).cloned().collect::<Vec<_>>();
        let privates = none_on_devices(ObjectView::private_each(&these(&is_private)).map(Some))?;
        let mut privates = privates.unwrap_or_default().into_iter();
        let mut copies = ObjectView::to_bytes_each(&these(&is_copied))?.into_iter();
        let bytes = |view: &ObjectView<Mapped>| match is_private(&view) {
            true => privates.next().flatten().map(Bytes::Private),
            false if is_copied(&view) => copies.next().map(Bytes::Copied),
            false => None,
        };
        Ok(views.iter().map(bytes).collect())
    }

    /// `bytes` as [`Memory::bytes_of`] has them.
    pub(crate) fn new(view: ObjectView<Mapped>, bytes: Option<Bytes>, form: Form) -> Memory {
        let len_bytes = view.descriptor().payload_bytes();
        Memory::over(bytes.unwrap_or(Bytes::Object(view)), len_bytes, form, false)
    }

    pub(crate) fn of_part(value: Arc<Value>, buffer: Buffer, form: Form) -> Result<Memory> {
        let (len_bytes, is_small) = (value.len_bytes(buffer), value.shares_pages(buffer));
        let bytes = match form {
            Form::Copied => Bytes::Copied(value.to_bytes(buffer)?),
            Form::Private => match none_on_devices(value.private(buffer))? {
                Some(private) => Bytes::Private(private),
                None => Bytes::Part(value, buffer),
            },
            Form::Shared => Bytes::Part(value, buffer),
        };
        Ok(Memory::over(bytes, len_bytes, form, is_small))
    }

    /// Memory of the pool itself.
    pub(crate) fn direct(view: DirectView, pool: Py<NativePool>) -> Memory {
        let len_bytes = view.len_bytes();
        Memory { bytes: Bytes::Direct(view), _pool: Some(pool), len_bytes, is_writable: true, is_small: false }
    }

    fn over(bytes: Bytes, len_bytes: u64, form: Form, is_small: bool) -> Memory {
        let is_own = matches!(bytes, Bytes::Private(_) | Bytes::Copied(_));
        let is_writable = is_own && form != Form::Shared;
        Memory { bytes, _pool: None, len_bytes: len_bytes as usize, is_writable, is_small }
    }

    fn address(&self) -> *mut u8 {
        match &self.bytes {
            Bytes::Private(private) => private.address(),
            Bytes::Direct(direct) => direct.address(),
            Bytes::Copied(copied) => copied.as_ptr().cast_mut(),
            Bytes::Object(view) => view.address().cast_mut(),
            Bytes::Part(value, buffer) => value.buffer(*buffer).0.cast_mut(),
        }
    }
}

/// Whether an object has a private form.
fn is_large(view: &ObjectView<Mapped>) -> bool {
    view.descriptor().payload_bytes() >= SMALL_BYTES
}

/// Device-DAX has no private mappings; what is restored is read-only there.
fn none_on_devices<T>(private: Result<Option<T>>) -> Result<Option<T>> {
    match private {
        Err(error) if error.code() == ErrorCode::Unsupported => Ok(None),
        result => result,
    }
}

#[pymethods]
impl Memory {
    /// Number of bytes.
    fn __len__(&self) -> usize {
        self.len_bytes
    }

    /// Whether stores are possible. They reach the pool only in memory of the pool itself.
    #[getter]
    fn writable(&self) -> bool {
        self.is_writable
    }

    /// Whether it shares its pages with other buffers, so that it has no private form.
    #[getter]
    fn is_small(&self) -> bool {
        self.is_small
    }

    /// Populates the pages, so that what is lost is an error here and no signal later.
    fn populate(&self, py: Python<'_>) -> PyResult<()> {
        let guarded = py.detach(|| match &self.bytes {
            Bytes::Object(view) => view.guard(),
            Bytes::Part(value, buffer) => value.guard_buffer(*buffer),
            Bytes::Private(private) => private.guard(),
            // Populated when it was made.
            Bytes::Direct(_) | Bytes::Copied(_) => Ok(()),
        });
        guarded.map_err(|error| crate::error::raise(py, &error))
    }

    /// # Safety
    /// Called by Python with a buffer to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = slf.get();
        let (address, readonly) = (memory.address(), c_int::from(!memory.is_writable));
        let len = memory.len_bytes as ffi::Py_ssize_t;
        // SAFETY: Python hands over a buffer structure; the address is readable for `len` bytes (and writable, if it is
        // private, direct or a copy) as long as `slf` lives, which the buffer then holds a reference to; nobody writes to what is
        // exported as read-only.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address.cast(), len, readonly, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
