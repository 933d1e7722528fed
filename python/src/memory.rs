//! The bytes of a restored object, through the buffer protocol.

use std::ffi::c_int;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;
use store::{Buffer, Mapped, ObjectView, PrivateMapping, Value};

/// The bytes of one object, or of one buffer of it, exported as a buffer: read-only, or private to this process and writable.
///
/// Arrays over the buffer keep this alive, and this keeps the mapping and the pin: no order of closing and deleting
/// leaves an array without its bytes.
#[pyclass(frozen, module = "remanent._remanent")]
pub(crate) struct Memory {
    private: Option<PrivateMapping>,
    of: Of,
}

/// Whose bytes they are.
enum Of {
    Object(ObjectView<Mapped>),
    Part(Arc<Value>, Buffer),
}

impl Memory {
    pub(crate) fn new(view: ObjectView<Mapped>, private: Option<PrivateMapping>) -> Memory {
        Memory { private, of: Of::Object(view) }
    }

    pub(crate) fn of_part(value: Arc<Value>, buffer: Buffer, private: Option<PrivateMapping>) -> Memory {
        Memory { private, of: Of::Part(value, buffer) }
    }

    fn bytes(&self) -> (*const u8, usize) {
        match &self.of {
            Of::Object(view) => (view.address(), view.descriptor().payload_bytes() as usize),
            Of::Part(value, buffer) => {
                let (address, len_bytes) = value.buffer(*buffer);
                (address, len_bytes as usize)
            }
        }
    }
}

#[pymethods]
impl Memory {
    /// Number of bytes.
    fn __len__(&self) -> usize {
        self.bytes().1
    }

    /// Whether stores are possible. They never reach the pool.
    #[getter]
    fn writable(&self) -> bool {
        self.private.is_some()
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
        let (address, readonly) = match &memory.private {
            Some(private) => (private.address(), 0),
            None => (memory.bytes().0.cast_mut(), 1),
        };
        let len = memory.__len__() as ffi::Py_ssize_t;
        // SAFETY: Python hands over a buffer structure; the address is readable for `len` bytes (and writable, if it is
        // private) as long as `slf` lives, which the buffer then holds a reference to; nobody writes to what is
        // exported as read-only.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address.cast(), len, readonly, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
