//! The bytes of a restored object, through the buffer protocol.

use std::ffi::c_int;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;
use store::{Buffer, ErrorCode, Mapped, ObjectView, PrivateView, Result, Value};

/// The bytes of one object, or of one buffer of it, exported as a buffer: where they lie and read-only, or private to this
/// process and writable, or a copy.
///
/// Arrays over the buffer keep this alive, and this keeps the mapping and the pin: no order of closing and deleting
/// leaves an array without its bytes.
#[pyclass(frozen, module = "remanent._remanent")]
pub(crate) struct Memory {
    bytes: Bytes,
    len_bytes: usize,
    of: Of,
}

/// What is exported.
enum Bytes {
    Shared,
    Private(PrivateView),
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

/// Whose bytes they are.
enum Of {
    Object(ObjectView<Mapped>),
    Part(Arc<Value>, Buffer),
}

impl Memory {
    /// Small ones have no private form, and are read-only.
    pub(crate) fn new(view: ObjectView<Mapped>, form: Form, small_bytes: u64) -> Result<Memory> {
        let len_bytes = view.descriptor().payload_bytes();
        let bytes = match form {
            Form::Private if len_bytes >= small_bytes => shared_on_devices(view.private())?,
            Form::Copied => Bytes::Copied(view.to_bytes()?),
            _ => Bytes::Shared,
        };
        Ok(Memory { bytes, len_bytes: len_bytes as usize, of: Of::Object(view) })
    }

    pub(crate) fn of_part(value: Arc<Value>, buffer: Buffer, form: Form) -> Result<Memory> {
        let bytes = match form {
            Form::Private => shared_on_devices(value.private(buffer))?,
            Form::Copied => Bytes::Copied(value.to_bytes(buffer)?),
            Form::Shared => Bytes::Shared,
        };
        let len_bytes = value.len_bytes(buffer) as usize;
        Ok(Memory { bytes, len_bytes, of: Of::Part(value, buffer) })
    }

    fn address(&self) -> *mut u8 {
        match (&self.bytes, &self.of) {
            (Bytes::Private(private), _) => private.address(),
            (Bytes::Copied(copied), _) => copied.as_ptr().cast_mut(),
            (Bytes::Shared, Of::Object(view)) => view.address().cast_mut(),
            (Bytes::Shared, Of::Part(value, buffer)) => value.buffer(*buffer).0.cast_mut(),
        }
    }
}

/// Device-DAX has no private mappings; what is restored is read-only there.
fn shared_on_devices(private: Result<Option<PrivateView>>) -> Result<Bytes> {
    match private {
        Err(error) if error.code() == ErrorCode::Unsupported => Ok(Bytes::Shared),
        result => Ok(result?.map_or(Bytes::Shared, Bytes::Private)),
    }
}

#[pymethods]
impl Memory {
    /// Number of bytes.
    fn __len__(&self) -> usize {
        self.len_bytes
    }

    /// Whether stores are possible. They never reach the pool.
    #[getter]
    fn writable(&self) -> bool {
        !matches!(self.bytes, Bytes::Shared)
    }

    /// Whether it shares its pages with other buffers, so that it has no private form.
    #[getter]
    fn is_small(&self) -> bool {
        matches!(&self.of, Of::Part(value, buffer) if value.shares_pages(*buffer))
    }

    /// Populates the pages, so that what is lost is an error here and no signal later.
    fn populate(&self, py: Python<'_>) -> PyResult<()> {
        let guarded = py.detach(|| match &self.of {
            Of::Object(view) => view.guard(),
            Of::Part(value, buffer) => value.guard_buffer(*buffer),
        });
        guarded.map_err(|error| crate::error::raise(py, &error))
    }

    /// # Safety
    /// Called by Python with a buffer to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = slf.get();
        let (address, readonly) = (memory.address(), c_int::from(!memory.writable()));
        let len = memory.len_bytes as ffi::Py_ssize_t;
        // SAFETY: Python hands over a buffer structure; the address is readable for `len` bytes (and writable, if it is
        // private or a copy) as long as `slf` lives, which the buffer then holds a reference to; nobody writes to what is
        // exported as read-only.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address.cast(), len, readonly, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
