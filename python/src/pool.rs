//! A pool as Python holds it.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use store::{
    Buffer, Checksum, DType, Descriptor, ErrorCode, Flags, Mapped, ObjectKind, ObjectView, OpenMode, Order,
    PartOptions, Store, Stripe, Value,
};

use crate::dtype::to_numpy;
use crate::error::{exception_at, raise};
use crate::memory::{Bytes, Form, Memory};
use crate::persist::{How, Item, Persisted, persist};
use crate::value::to_tree;

/// How often a thread that closes a pool looks whether the others are done with it.
const LOOK_EVERY: Duration = Duration::from_millis(1);

thread_local! {
    /// The stores into which this thread persists, each with the user's functions being called meanwhile.
    static PERSISTING: RefCell<Vec<*const Store<Mapped>>> = const { RefCell::new(Vec::new()) };
}

/// Notes, as long as it lives, that this thread persists into a store.
struct Persisting;

impl Persisting {
    fn into(store: &Arc<Store<Mapped>>) -> Persisting {
        PERSISTING.with_borrow_mut(|stores| stores.push(Arc::as_ptr(store)));
        Persisting
    }

    fn is_into(store: *const Store<Mapped>) -> bool {
        PERSISTING.with_borrow(|stores| stores.contains(&store))
    }
}

impl Drop for Persisting {
    fn drop(&mut self) {
        PERSISTING.with_borrow_mut(|stores| stores.pop());
    }
}

/// What has become of a pool.
enum State {
    /// Whoever works on the store has a clone until that is done.
    Open(Arc<Store<Mapped>>),
    /// A thread waits until it has the last clone, closes that, and then says so.
    Closing {
        by: ThreadId,
        store: Weak<Store<Mapped>>,
    },
    Closed,
}

/// An open pool. Closing it leaves the arrays that it gave out valid.
#[pyclass(frozen, module = "remanent._remanent")]
pub(crate) struct NativePool {
    /// Locked by threads that are attached to the interpreter, and only to look at it or to change it, never while Python
    /// runs: so a thread that holds it waits for nobody. A fork stops the attached threads where Python runs, or is done
    /// by the one that has the interpreter's lock; in the child nobody holds this.
    state: Mutex<State>,
    path: PathBuf,
    process_id: u32,
}

/// A restored object: name, kind, dtype, shape, order letter, memory.
type Restored<'py> = (String, &'static str, Bound<'py, PyAny>, Bound<'py, PyTuple>, char, Vec<Memory>);

impl NativePool {
    fn new(store: Store<Mapped>, path: PathBuf) -> NativePool {
        NativePool { state: Mutex::new(State::Open(Arc::new(store))), path, process_id: store::process_id() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("taking and cloning do not panic")
    }

    /// What was there comes back, so that it is not dropped under the lock.
    #[must_use = "a store that is dropped is closed"]
    fn exchange(&self, state: State) -> State {
        std::mem::replace(&mut *self.state(), state)
    }

    fn is_here(&self) -> bool {
        store::process_id() == self.process_id
    }

    fn store(&self, py: Python<'_>) -> PyResult<Arc<Store<Mapped>>> {
        let path = self.path.display();
        if !self.is_here() {
            let message = format!("{path} was opened before this process was forked; open it anew in the child");
            return Err(exception_at(py, ErrorCode::UsedAfterFork, &message, &self.path));
        }
        let message = || format!("the pool {path} is closed; open it again");
        // Let go of before the exception is made, which runs Python: that may look at this pool, in this thread or in one
        // that the interpreter goes to.
        let store = match &*self.state() {
            State::Open(store) => Some(store.clone()),
            _ => None,
        };
        store.ok_or_else(|| exception_at(py, ErrorCode::Closed, &message(), &self.path))
    }

    /// The store, for a thread that is to close it; none if it is closed already or another thread is at it.
    fn begin_to_close(&self) -> Result<Option<Arc<Store<Mapped>>>, &'static str> {
        let by = thread::current().id();
        let mut state = self.state();
        let store = match &*state {
            State::Closed => return Ok(None),
            State::Closing { by: other, .. } if *other == by => return Err("this thread closes the pool already"),
            State::Closing { store, .. } => store.clone(),
            State::Open(store) => Arc::downgrade(store),
        };
        if Persisting::is_into(store.as_ptr()) {
            return Err("this thread persists into the pool; close it when that is done");
        }
        let State::Open(open) = &*state else { return Ok(None) };
        let open = open.clone();
        *state = State::Closing { by, store };
        Ok(Some(open))
    }

    /// Closes the store as soon as nobody else works on it.
    fn close_when_idle(&self, py: Python<'_>, mut store: Arc<Store<Mapped>>) -> PyResult<()> {
        loop {
            store = match Arc::try_unwrap(store) {
                Ok(store) => {
                    let result = py.detach(|| store.close());
                    drop(self.exchange(State::Closed));
                    return result.map_err(|error| raise(py, &error));
                }
                Err(store) => store,
            };
            if let Err(interrupted) = let_others_go_on(py) {
                drop(self.exchange(State::Open(store)));
                return Err(interrupted);
            }
        }
    }

    /// Runs something on the store while other Python threads go on.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        action: impl FnOnce(&Store<Mapped>) -> store::Result<T> + Send,
    ) -> PyResult<T> {
        let store = self.store(py)?;
        py.detach(|| action(&store)).map_err(|error| raise(py, &error))
    }
}

impl Drop for NativePool {
    /// A pool that nobody has any more is closed in order: what was changed in place is made durable.
    fn drop(&mut self) {
        if self.is_here()
            && let State::Open(store) = self.exchange(State::Closed)
            && let Ok(store) = Arc::try_unwrap(store)
        {
            // There is nobody to tell. While the interpreter ends no thread may let go of it and come back.
            let mut store = Some(store);
            let mut close = || store.take().map(|store| store.close());
            if Python::try_attach(|py| py.detach(&mut close)).is_none() {
                close();
            }
        }
    }
}

/// Gives other threads, and handlers of signals, a moment.
fn let_others_go_on(py: Python<'_>) -> PyResult<()> {
    py.detach(|| thread::sleep(LOOK_EVERY));
    py.check_signals()
}

fn options(size: u64, stripe: Vec<PathBuf>, chunk: Option<u64>) -> PartOptions {
    PartOptions { file_bytes: size, more_files: stripe, chunk_bytes: chunk.unwrap_or(Stripe::HEAD_BYTES) }
}

#[pymethods]
impl NativePool {
    #[staticmethod]
    fn create(
        py: Python<'_>,
        path: PathBuf,
        size: u64,
        stripe: Vec<PathBuf>,
        chunk: Option<u64>,
    ) -> PyResult<NativePool> {
        let options = options(size, stripe, chunk);
        let store = py.detach(|| Store::create(Mapped::new(), &path, &options));
        Ok(NativePool::new(store.map_err(|error| raise(py, &error))?, path))
    }

    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, mode: &str) -> PyResult<NativePool> {
        let mode = match mode {
            "r" => OpenMode::Reader,
            "r+" => OpenMode::Writer,
            _ => return Err(PyValueError::new_err("mode is 'r' or 'r+'")),
        };
        let store = py.detach(|| Store::open(Mapped::new(), &path, mode));
        Ok(NativePool::new(store.map_err(|error| raise(py, &error))?, path))
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    #[getter]
    fn closed(&self) -> bool {
        !matches!(*self.state(), State::Open(_))
    }

    /// Closes the pool when what other threads do with it is done; nothing new is begun meanwhile. Where another thread
    /// closes it this waits for that, and goes on if that one was interrupted.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_here() {
            // The threads that use it, or close it, stayed in the process that forked.
            drop(self.exchange(State::Closed));
            return Ok(());
        }
        loop {
            if let Some(store) = self.begin_to_close().map_err(PyRuntimeError::new_err)? {
                return self.close_when_idle(py, store);
            }
            if matches!(*self.state(), State::Closed) {
                return Ok(());
            }
            let_others_go_on(py)?;
        }
    }

    /// In a forked child: leaves the writer's lock to the parent and pins for the child what it has inherited. Where
    /// that cannot be done the locks are shared, as without this, so an error has no consequence. Where a thread of the
    /// parent has the last clone, and closes it, there is nothing to ask: it gives the lock back for both.
    fn settle_in_child(&self) {
        let store = match &*self.state() {
            State::Open(store) => Some(store.clone()),
            State::Closing { store, .. } => store.upgrade(),
            State::Closed => None,
        };
        if let Some(store) = store {
            let _ = store.pool().settle_in_child();
        }
    }

    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.run(py, |store| store.names())
    }

    fn count(&self, py: Python<'_>) -> PyResult<usize> {
        self.run(py, |store| Ok(store.info().names))
    }

    fn contains(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.run(py, |store| store.contains(name))
    }

    fn persist(
        &self,
        py: Python<'_>,
        items: Vec<Item<'_>>,
        removes: Vec<String>,
        threads: Option<usize>,
        checksum: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Persisted> {
        let store = self.store(py)?;
        let _persisting = Persisting::into(&store);
        persist(py, &store, &items, &removes, &How { threads, checksum, progress })
    }

    fn rename(&self, py: Python<'_>, old: &str, new: &str, replace: bool) -> PyResult<u64> {
        self.run(py, |store| if replace { store.rename_over(old, new) } else { store.rename(old, new) })
    }

    /// Objects of one generation; all of them when no names are given.
    fn restore<'py>(&self, py: Python<'py>, names: Option<Vec<String>>, form: &str) -> PyResult<Vec<Restored<'py>>> {
        let form = match form {
            "shared" => Form::Shared,
            "private" => Form::Private,
            "copied" => Form::Copied,
            other => return Err(PyValueError::new_err(format!("there is no form {other:?}"))),
        };
        // Other threads get the interpreter once, and not again for each object.
        let parts = self.run(py, |store| {
            let views = match names {
                Some(names) => store.get_all(&names.iter().map(String::as_str).collect::<Vec<_>>())?,
                None => store.get_every()?,
            };
            let bytes = Memory::bytes_of(&views, form)?;
            let parts = views.into_iter().zip(bytes).map(|(view, bytes)| Parts::new(view, bytes, form));
            parts.collect::<store::Result<Vec<_>>>()
        })?;
        let mut dtypes = Dtypes::default();
        parts.into_iter().map(|parts| restored(py, parts, &mut dtypes)).collect()
    }

    /// Memory of the pool for something that is made there.
    fn draft(slf: &Bound<'_, Self>, len_bytes: u64) -> PyResult<Memory> {
        if len_bytes == 0 {
            return Err(PyValueError::new_err("memory of no bytes"));
        }
        let view = slf.get().run(slf.py(), |store| store.draft(len_bytes))?;
        Ok(Memory::direct(view, slf.clone().unbind()))
    }

    /// Arrays that are changed where they lie; all objects when no names are given.
    fn in_place<'py>(slf: &Bound<'py, Self>, names: Option<Vec<String>>) -> PyResult<Vec<Restored<'py>>> {
        let py = slf.py();
        let views = slf.get().run(py, |store| {
            let names = names.map_or_else(|| store.names(), Ok)?;
            names.into_iter().map(|name| Ok((store.in_place(&name)?, name))).collect::<store::Result<Vec<_>>>()
        })?;
        let restored = |(view, name): (store::DirectView, String)| {
            let descriptor = view.descriptor().expect("it is an object's").clone();
            let (dtype, shape) = (to_numpy(py, descriptor.dtype())?, PyTuple::new(py, descriptor.shape())?);
            let order = order_letter(&descriptor);
            Ok((name, kind_name(&descriptor), dtype, shape, order, vec![Memory::direct(view, slf.clone().unbind())]))
        };
        views.into_iter().map(restored).collect()
    }

    /// What there is, one dict an object.
    fn ls<'py>(&self, py: Python<'py>, prefix: &str) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let mut objects = self.run(py, |store| store.ls())?;
        objects.retain(|object| object.name.starts_with(prefix));
        let describe = |object: store::ObjectInfo| {
            let dict = PyDict::new(py);
            dict.set_item("name", object.name)?;
            dict.set_item("born", object.born)?;
            dict.set_item("extent_bytes", object.extent_bytes)?;
            if let Some(descriptor) = &object.descriptor {
                dict.set_item("kind", kind_name(descriptor))?;
                // One that NumPy cannot express here must not hide the others.
                dict.set_item("dtype", to_numpy(py, descriptor.dtype()).ok())?;
                dict.set_item("shape", PyTuple::new(py, descriptor.shape())?)?;
                dict.set_item("order", order_letter(descriptor))?;
                dict.set_item("nbytes", descriptor.payload_bytes())?;
                dict.set_item("checksum", descriptor.checksum() != Checksum::None)?;
                dict.set_item("in_place", descriptor.flags().contains(Flags::IN_PLACE))?;
                dict.set_item("interrupted", descriptor.flags().contains(Flags::INTERRUPTED))?;
            }
            Ok(dict)
        };
        objects.into_iter().map(describe).collect()
    }

    /// What the pool is and how full it is.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = self.run(py, |store| Ok(store.info()))?;
        let dict = PyDict::new(py);
        let layout = PyDict::new(py);
        layout.set_item("name", info.layout.0)?;
        layout.set_item("version", info.layout.1)?;
        dict.set_item("uuid", info.set.to_string())?;
        dict.set_item("layout", layout)?;
        dict.set_item("is_clean", info.is_clean)?;
        dict.set_item("has_writer", info.has_writer)?;
        dict.set_item("created_s", info.created_s)?;
        dict.set_item("generation", info.generation)?;
        dict.set_item("names", info.names)?;
        dict.set_item("total_bytes", info.total_bytes)?;
        dict.set_item("free_bytes", info.free_bytes)?;
        dict.set_item("largest_free_bytes", info.largest_free_bytes)?;
        dict.set_item("retired_bytes", info.retired_bytes)?;
        dict.set_item("durability", info.backing.durability.as_str())?;
        dict.set_item("granularity", info.backing.granularity.as_str())?;
        dict.set_item("provenance", info.backing.provenance.as_str())?;
        dict.set_item("filesystem", info.backing.filesystem)?;
        dict.set_item("reason", info.backing.reason)?;
        let files: Vec<PathBuf> = info.parts.into_iter().flat_map(|part| part.files).collect();
        dict.set_item("files", files)?;
        Ok(dict)
    }

    fn grow(
        &self,
        py: Python<'_>,
        size: u64,
        path: Option<PathBuf>,
        stripe: Vec<PathBuf>,
        chunk: Option<u64>,
    ) -> PyResult<()> {
        let options = options(size, stripe, chunk);
        self.run(py, |store| store.grow(path.as_deref(), &options))
    }

    fn gc(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |store| store.gc())
    }

    fn refresh(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |store| store.refresh())
    }

    /// Objects that match their checksum, and objects without one.
    fn verify(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        let found = self.run(py, |store| store.verify())?;
        Ok((found.matching, found.without_checksum))
    }

    fn prefault(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |store| store.prefault())
    }

    fn prefault_progress(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let progress = self.run(py, |store| Ok(store.prefault_progress()))?;
        Ok((progress.done_bytes, progress.total_bytes))
    }

    fn prefault_is_finished(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, |store| Ok(store.prefault_is_finished()))
    }

    fn wait_for_prefault(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |store| store.wait_for_prefault())
    }
}

fn kind_name(descriptor: &Descriptor) -> &'static str {
    match descriptor.kind() {
        ObjectKind::Array => "array",
        ObjectKind::Text => "text",
        ObjectKind::Value => "value",
        _ => "bytes",
    }
}

fn order_letter(descriptor: &Descriptor) -> char {
    match descriptor.order() {
        Order::RowMajor => 'C',
        Order::ColumnMajor => 'F',
    }
}

/// What is known of an object without the interpreter.
struct Parts {
    name: String,
    descriptor: Descriptor,
    value: Option<Arc<Value>>,
    memories: Vec<Memory>,
}

impl Parts {
    fn new(view: ObjectView<Mapped>, bytes: Option<Bytes>, form: Form) -> store::Result<Parts> {
        let (name, descriptor) = (view.name().to_owned(), view.descriptor().clone());
        if descriptor.kind() != ObjectKind::Value {
            return Ok(Parts { name, descriptor, value: None, memories: vec![Memory::new(view, bytes, form)] });
        }
        let value = Arc::new(view.value()?);
        let memory = |number| Memory::of_part(value.clone(), Buffer(number), form);
        let memories = (0..value.buffers()).map(memory).collect::<store::Result<_>>()?;
        Ok(Parts { name, descriptor, value: Some(value), memories })
    }
}

/// The last dtype that was asked for: objects that are restored together are often of one.
#[derive(Default)]
struct Dtypes<'py>(Option<(DType, Bound<'py, PyAny>)>);

impl<'py> Dtypes<'py> {
    fn get(&mut self, py: Python<'py>, dtype: &DType) -> PyResult<Bound<'py, PyAny>> {
        match &self.0 {
            Some((last, made)) if last == dtype => Ok(made.clone()),
            _ => {
                let made = to_numpy(py, dtype)?;
                self.0 = Some((dtype.clone(), made.clone()));
                Ok(made)
            }
        }
    }
}

/// The object for the Python layer. Of a value, its tree stands in the place of the dtype, and each buffer has a memory.
fn restored<'py>(py: Python<'py>, parts: Parts, dtypes: &mut Dtypes<'py>) -> PyResult<Restored<'py>> {
    let Parts { name, descriptor, value, memories } = parts;
    let (kind, order) = (kind_name(&descriptor), order_letter(&descriptor));
    if let Some(value) = value {
        let tree = to_tree(py, value.tree())?.into_any();
        return Ok((name, kind, tree, PyTuple::empty(py), order, memories));
    }
    let dtype = dtypes.get(py, descriptor.dtype())?;
    Ok((name, kind, dtype, PyTuple::new(py, descriptor.shape())?, order, memories))
}
