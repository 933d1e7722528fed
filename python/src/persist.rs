//! Persisting what Python hands over: buffers, with the interpreter free to run meanwhile.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::thread;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyTuple;
use store::{
    Checksums, Descriptor, ErrorCode, Mapped, Object, Order, PageScan, PersistOptions, Progress, Source, Store, Way,
    copy_threads,
};

use crate::dtype::from_numpy;
use crate::error::{exception, raise};
use crate::value::from_tree;

/// The user's progress function is called about so often, however much is copied.
const CALLS: u64 = 128;

/// One object to persist.
#[derive(FromPyObject)]
pub(crate) enum Item<'py> {
    /// Name, dtype, shape, order letter, bytes.
    Array(String, Bound<'py, PyAny>, Vec<u64>, char, PyBuffer<u8>),
    /// Name, kind, bytes: those of a text are UTF-8.
    Plain(String, String, PyBackedBytes),
    /// Name, tree, buffers.
    Value(String, Bound<'py, PyTuple>, Vec<PyBuffer<u8>>),
}

impl Item<'_> {
    fn name(&self) -> &str {
        let (Item::Array(name, ..) | Item::Plain(name, ..) | Item::Value(name, ..)) = self;
        name
    }

    /// The object, over the memory of the item.
    fn object(&self, py: Python<'_>) -> PyResult<Object<'_>> {
        match self {
            Item::Array(_, dtype, shape, order, buffer) => array(py, dtype, shape, *order, buffer),
            Item::Plain(_, kind, bytes) if kind == "text" => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Object::text(text)),
                Err(error) => Err(PyValueError::new_err(error.to_string())),
            },
            Item::Plain(_, _, bytes) => Ok(Object::bytes(bytes)),
            Item::Value(_, tree, buffers) => {
                let sources = buffers.iter().map(|buffer| source(py, buffer)).collect::<PyResult<_>>()?;
                Object::value(from_tree(tree)?, sources).map_err(|error| raise(py, &error))
            }
        }
    }
}

fn array<'a>(
    py: Python<'_>,
    dtype: &Bound<'_, PyAny>,
    shape: &[u64],
    order: char,
    buffer: &'a PyBuffer<u8>,
) -> PyResult<Object<'a>> {
    let order = if order == 'F' { Order::ColumnMajor } else { Order::RowMajor };
    let descriptor = Descriptor::array(from_numpy(dtype)?, shape, order).map_err(|error| raise(py, &error))?;
    Object::from_source(descriptor, source(py, buffer)?).map_err(|error| raise(py, &error))
}

fn source<'a>(py: Python<'_>, buffer: &'a PyBuffer<u8>) -> PyResult<Source<'a>> {
    if !buffer.is_c_contiguous() {
        return Err(exception(py, ErrorCode::LengthMismatch, "the bytes of an array must lie side by side"));
    }
    let (from, len) = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes() as u64);
    // SAFETY: the buffer's export, which is borrowed as long as the source lives, keeps its contiguous bytes where they
    // are, readable. Other threads of the user may write to them.
    Ok(unsafe { Source::from_raw(from, len) })
}

/// How to persist.
pub(crate) struct How {
    pub(crate) threads: Option<usize>,
    pub(crate) checksum: bool,
    pub(crate) progress: Option<Py<PyAny>>,
}

/// The generation of a commit; of each object its name, which way it was written, and how many bytes were copied.
pub(crate) type Persisted = (u64, Vec<(String, &'static str, u64)>);

/// Persists and removes in one commit.
pub(crate) fn persist(
    py: Python<'_>,
    store: &Store<Mapped>,
    items: &[Item<'_>],
    removes: &[String],
    how: &How,
) -> PyResult<Persisted> {
    let mut transaction = store.transaction();
    for item in items {
        transaction.put(item.name(), item.object(py)?);
    }
    for name in removes {
        transaction.remove(name);
    }
    let failure = Mutex::new(None);
    let told = Mutex::new(None);
    let caller = thread::current().id();
    let tell = |progress: Progress| tell(how.progress.as_ref(), caller, &told, &failure, progress);
    let options = PersistOptions {
        threads: copy_threads(how.threads.and_then(NonZeroUsize::new)),
        checksums: if how.checksum { Checksums::Crc32c } else { Checksums::Off },
        progress: how.progress.is_some().then_some(&tell),
        ..PersistOptions::default()
    };
    let result = py.detach(|| transaction.commit(&options));
    match failure.into_inner().expect("only the caller's thread locks it") {
        Some(error) => Err(error),
        None => {
            let committed = result.map_err(|error| raise(py, &error))?;
            let written =
                committed.written.into_iter().map(|object| (object.name, way(object.way), object.copied_bytes));
            Ok((committed.generation, written.collect()))
        }
    }
}

/// As [`store::Way`], in a word.
fn way(way: Way) -> &'static str {
    match way {
        Way::Whole => "whole",
        Way::InPlace => "in place",
        Way::Changed(None) => "changed",
        Way::Changed(Some(PageScan::PagemapScan)) => "changed pages, by PAGEMAP_SCAN",
        Way::Changed(Some(_)) => "changed pages, by /proc/self/pagemap",
    }
}

/// Calls the user's function, from the thread that called us only, and not too often: it needs the interpreter, and
/// the copy would wait for it. What it raises ends the commit.
fn tell(
    callback: Option<&Py<PyAny>>,
    caller: thread::ThreadId,
    told: &Mutex<Option<u64>>,
    failure: &Mutex<Option<PyErr>>,
    progress: Progress,
) -> ControlFlow<()> {
    let Some(callback) = callback.filter(|_| thread::current().id() == caller) else {
        return ControlFlow::Continue(());
    };
    if !is_due(&mut told.lock().expect("only the caller's thread locks it"), progress) {
        return ControlFlow::Continue(());
    }
    // Neither lock is held while Python runs.
    let called = Python::attach(|py| callback.call1(py, (progress.done_bytes, progress.total_bytes)).map(drop));
    match called {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            *failure.lock().expect("only the caller's thread locks it") = Some(error);
            ControlFlow::Break(())
        }
    }
}

/// Whether enough is done since the user's function was called, which then has been.
fn is_due(told: &mut Option<u64>, progress: Progress) -> bool {
    let is_due = told.is_none_or(|told| progress.done_bytes >= told + progress.total_bytes / CALLS);
    if is_due {
        *told = Some(progress.done_bytes);
    }
    is_due
}
