//! Persisting what Python hands over: buffers, with the interpreter free to run meanwhile.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::thread;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use store::{
    Checksums, Descriptor, ErrorCode, Mapped, Object, Order, PersistOptions, Progress, Store, default_copy_threads,
};

use crate::dtype::from_numpy;
use crate::error::{exception, raise};

/// The user's progress function is called about so often, however much is copied.
const CALLS: u64 = 128;

/// One array: name, dtype, shape, order letter, bytes.
#[derive(FromPyObject)]
pub(crate) struct Item<'py>(String, Bound<'py, PyAny>, Vec<u64>, char, PyBuffer<u8>);

/// How to persist.
pub(crate) struct How {
    pub(crate) threads: Option<usize>,
    pub(crate) checksum: bool,
    pub(crate) progress: Option<Py<PyAny>>,
}

/// Persists and removes in one commit. Returns the generation.
pub(crate) fn persist(
    py: Python<'_>,
    store: &Store<Mapped>,
    items: &[Item<'_>],
    removes: &[String],
    how: &How,
) -> PyResult<u64> {
    let mut transaction = store.transaction();
    for Item(name, dtype, shape, order, buffer) in items {
        let order = if *order == 'F' { Order::ColumnMajor } else { Order::RowMajor };
        let descriptor = Descriptor::array(from_numpy(dtype)?, shape, order).map_err(|error| raise(py, &error))?;
        if !buffer.is_c_contiguous() {
            return Err(exception(py, ErrorCode::LengthMismatch, "the bytes of an array must lie side by side"));
        }
        let (from, len) = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes() as u64);
        // SAFETY: `items` holds the buffer's export until this function returns, so its contiguous bytes stay where
        // they are, readable; the transaction ends before that. Other threads of the user may write to them.
        let object = unsafe { Object::from_raw(descriptor, from, len) }.map_err(|error| raise(py, &error))?;
        transaction.put(name, object);
    }
    for name in removes {
        transaction.remove(name);
    }
    let failure = Mutex::new(None);
    let told = Mutex::new(None);
    let caller = thread::current().id();
    let tell = |progress: Progress| tell(how.progress.as_ref(), caller, &told, &failure, progress);
    let options = PersistOptions {
        threads: threads(how.threads),
        checksums: if how.checksum { Checksums::Crc32c } else { Checksums::Off },
        progress: how.progress.is_some().then_some(&tell),
    };
    let result = py.detach(|| transaction.commit(&options));
    match failure.into_inner().expect("only the caller's thread locks it") {
        Some(error) => Err(error),
        None => result.map_err(|error| raise(py, &error)),
    }
}

/// At most the CPUs: more threads than those only take turns.
fn threads(wanted: Option<usize>) -> NonZeroUsize {
    let cpus = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    wanted.and_then(NonZeroUsize::new).map_or_else(default_copy_threads, |wanted| wanted.min(cpus))
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
    let mut told = told.lock().expect("only the caller's thread locks it");
    let is_early = told.is_some_and(|told: u64| progress.done_bytes < told + progress.total_bytes / CALLS);
    if is_early {
        return ControlFlow::Continue(());
    }
    *told = Some(progress.done_bytes);
    let called = Python::attach(|py| callback.call1(py, (progress.done_bytes, progress.total_bytes)).map(drop));
    match called {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            *failure.lock().expect("only the caller's thread locks it") = Some(error);
            ControlFlow::Break(())
        }
    }
}
