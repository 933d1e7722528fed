//! A store as a counted handle: opening and closing, names, space.

use std::cell::RefCell;
use std::ffi::c_char;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use store::{Mapped, OpenMode, PartOptions, Store, Stripe};

use crate::arguments::{Sized64, give, handle, items, path, put, put_if, release, retain, sized, text};
use crate::error::{Failure, Result, entry, mistake};

/// How a pool is opened: remanent_store_open.
#[repr(u32)]
#[derive(Clone, Copy)]
#[allow(dead_code, non_camel_case_types)]
pub enum Mode {
    /// Any number of processes, beside the writer.
    REMANENT_READER = 0,
    /// One process at a time.
    REMANENT_WRITER = 1,
    /// Without a lock and without recovery: to look at what others have open.
    REMANENT_INSPECT = 2,
}

/// How a pool is made, or a further file of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CreateOptions {
    /// sizeof(remanent_create_options).
    pub size_bytes: u64,
    /// Bytes of each file: a multiple of 4096, at least 4 MiB.
    pub file_bytes: u64,
    /// Further files, usually on other devices, over which it is striped; null for none.
    pub more_files: *const *const c_char,
    /// How many further files.
    pub more_count: u64,
    /// Bytes of a stripe chunk, a multiple of 2 MiB; 0 for 2 MiB.
    pub chunk_bytes: u64,
}

// SAFETY: as in C, its size first; numbers, and a pointer that may be null.
unsafe impl Sized64 for CreateOptions {
    const FIRST_BYTES: usize = 40;
    const NAME: &'static str = "remanent_create_options";
}

/// What a verification found.
#[repr(C)]
pub struct Verified {
    /// Objects whose bytes are what their checksums say.
    pub matching: u64,
    /// Objects without a checksum.
    pub without_checksum: u64,
}

/// An open pool of named objects. Any thread may use it.
pub struct StoreHandle {
    state: Mutex<State>,
    idle: Condvar,
    path: PathBuf,
    process_id: u32,
}

struct State {
    store: Option<Arc<Store<Mapped>>>,
    /// Calls that are under way.
    users: usize,
    is_closing: bool,
}

thread_local! {
    /// The handles that this thread works on, innermost last: a progress function may call in again.
    static USED: RefCell<Vec<*const StoreHandle>> = const { RefCell::new(Vec::new()) };
}

/// A call that is under way; the store is not closed before it ends.
pub(crate) struct Use<'h> {
    handle: &'h StoreHandle,
    store: Option<Arc<Store<Mapped>>>,
}

impl std::ops::Deref for Use<'_> {
    type Target = Store<Mapped>;

    fn deref(&self) -> &Store<Mapped> {
        self.store.as_ref().expect("it is taken when this is dropped")
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        drop(self.store.take());
        let _ = USED.try_with(|used| used.borrow_mut().pop());
        self.handle.state().users -= 1;
        self.handle.idle.notify_all();
    }
}

impl StoreHandle {
    fn new(store: Store<Mapped>, path: PathBuf) -> StoreHandle {
        let state = State { store: Some(Arc::new(store)), users: 0, is_closing: false };
        StoreHandle { state: Mutex::new(state), idle: Condvar::new(), path, process_id: store::process_id() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_here(&self) -> bool {
        self.process_id == store::process_id()
    }

    /// The store, for one call. In a forked child the lock is not even looked at: its holder may be missing.
    pub(crate) fn open(&self) -> Result<Use<'_>> {
        if !self.is_here() {
            return Err(Failure::Forked(self.path.clone()));
        }
        let mut state = self.state();
        if state.is_closing {
            return Err(Failure::Closed(self.path.clone()));
        }
        let store = state.store.clone().ok_or_else(|| Failure::Closed(self.path.clone()))?;
        state.users += 1;
        USED.with_borrow_mut(|used| used.push(self));
        Ok(Use { handle: self, store: Some(store) })
    }

    fn close(&self) -> Result<()> {
        if !self.is_here() {
            return Err(Failure::Forked(self.path.clone()));
        }
        if USED.with_borrow(|used| used.contains(&std::ptr::from_ref(self))) {
            return Err(mistake("this thread works on the pool; close it when that is done"));
        }
        let mut state = self.state();
        state.is_closing = true;
        while state.users > 0 {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let store = state.store.take();
        drop(state);
        match store.and_then(Arc::into_inner) {
            Some(store) => Ok(store.close()?),
            None => Ok(()),
        }
    }
}

fn options(given: *const CreateOptions) -> Result<PartOptions> {
    let given = sized(given)?;
    let more = items(given.more_files, given.more_count as usize, "further files")?;
    Ok(PartOptions {
        file_bytes: given.file_bytes,
        more_files: more.iter().map(|&file| path(file)).collect::<Result<_>>()?,
        chunk_bytes: if given.chunk_bytes == 0 { Stripe::HEAD_BYTES } else { given.chunk_bytes },
    })
}

/// Makes a pool and opens it as its writer. Nothing that exists is replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_create(
    file: *const c_char,
    how: *const CreateOptions,
    out: *mut *mut StoreHandle,
) -> i32 {
    entry(|| {
        put(out, "store", std::ptr::null_mut())?;
        let (file, how) = (path(file)?, options(how)?);
        let store = Store::create(Mapped::new(), &file, &how)?;
        give(out, "store", StoreHandle::new(store, file))
    })
}

/// Opens a pool; mode is a remanent_mode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_open(file: *const c_char, mode: u32, out: *mut *mut StoreHandle) -> i32 {
    entry(|| {
        put(out, "store", std::ptr::null_mut())?;
        let mode = match mode {
            0 => OpenMode::Reader,
            1 => OpenMode::Writer,
            2 => OpenMode::Inspect,
            other => return Err(mistake(format!("there is no mode {other}"))),
        };
        let file = path(file)?;
        let store = Store::open(Mapped::new(), &file, mode)?;
        give(out, "store", StoreHandle::new(store, file))
    })
}

/// Counts the handle once more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_retain(store: *const StoreHandle) {
    retain(store);
}

/// Counts the handle down. The last count closes the pool, and no error is told. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_release(store: *mut StoreHandle) {
    entry(|| {
        release(store);
        Ok(())
    });
}

/// Marks the pool clean and lets others write to it. Waits for the calls of other threads; the handle then answers
/// REMANENT_CLOSED, and is still to be released. Views stay valid. A pool that is closed is closed again without an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_close(store: *const StoreHandle) -> i32 {
    entry(|| handle(store, "store")?.close())
}

/// To be called in a child of fork(2) that lives on: leaves the writer's lock to the parent. In the child everything else
/// on the handle answers REMANENT_USED_AFTER_FORK, but for its release; views that it inherited stay readable. Without
/// this, a child that outlives its parent keeps the next writer out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_settle_in_child(store: *const StoreHandle) -> i32 {
    entry(|| {
        let handle = handle(store, "store")?;
        // A thread of the parent may have had the lock at the fork; then the locks stay shared.
        let Ok(state) = handle.state.try_lock() else { return Ok(()) };
        match state.store.as_ref() {
            Some(store) => Ok(store.pool().settle_in_child().map(drop).map_err(store::Error::from)?),
            None => Ok(()),
        }
    })
}

/// Adds a file to the pool: beside the first one when file is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_grow(
    store: *const StoreHandle,
    file: *const c_char,
    how: *const CreateOptions,
) -> i32 {
    entry(|| {
        let file = if file.is_null() { None } else { Some(path(file)?) };
        let how = options(how)?;
        Ok(handle(store, "store")?.open()?.grow(file.as_deref(), &how)?)
    })
}

/// Tells whether there is an object of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_contains(
    store: *const StoreHandle,
    name: *const c_char,
    out: *mut bool,
) -> i32 {
    entry(|| {
        let is_there = handle(store, "store")?.open()?.contains(text(name, "name")?)?;
        put(out, "answer", is_there)
    })
}

/// Removes an object, in a commit of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_remove(store: *const StoreHandle, name: *const c_char) -> i32 {
    entry(|| {
        handle(store, "store")?.open()?.remove(text(name, "name")?)?;
        Ok(())
    })
}

/// Gives an object another name, in one atomic step and without a copy. REMANENT_ALREADY_EXISTS when the name is taken,
/// unless what has it is to be replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_rename(
    store: *const StoreHandle,
    old_name: *const c_char,
    new_name: *const c_char,
    replace: bool,
) -> i32 {
    entry(|| {
        let (old, new) = (text(old_name, "old name")?, text(new_name, "new name")?);
        let store = handle(store, "store")?.open()?;
        if replace {
            store.rename_over(old, new)?
        } else {
            store.rename(old, new)?
        };
        Ok(())
    })
}

/// Frees what was replaced or removed and that nobody views any more; tells its bytes, unless that is null. Every commit does
/// so too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_gc(store: *const StoreHandle, freed_bytes: *mut u64) -> i32 {
    entry(|| {
        let freed = handle(store, "store")?.open()?.gc()?;
        put_if(freed_bytes, freed);
        Ok(())
    })
}

/// Moves a reader on to the newest commit; views keep what they have. Tells its generation, unless that is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_refresh(store: *const StoreHandle, generation: *mut u64) -> i32 {
    entry(|| {
        let now = handle(store, "store")?.open()?.refresh()?;
        put_if(generation, now);
        Ok(())
    })
}

/// Compares every object that has a checksum with it. REMANENT_CHECKSUM_MISMATCH for the first that differs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_verify(store: *const StoreHandle, found: *mut Verified) -> i32 {
    entry(|| {
        let verified = handle(store, "store")?.open()?.verify()?;
        let (matching, without_checksum) = (verified.matching as u64, verified.without_checksum as u64);
        put_if(found, Verified { matching, without_checksum });
        Ok(())
    })
}

/// Has the system allocate the pool's pages ahead of use, in threads of its own; waits for them if it is asked to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_store_prefault(store: *const StoreHandle, wait: bool) -> i32 {
    entry(|| {
        let store = handle(store, "store")?.open()?;
        store.prefault()?;
        if wait { Ok(store.wait_for_prefault()?) } else { Ok(()) }
    })
}
