//! Libraries that are used where they are installed, and never required.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libloading::Library;

use crate::error::{Error, Result};

/// libpmem(7), of which one call is needed.
pub(super) struct Libpmem {
    memcpy_persist: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void,
    _library: Library,
}

/// A pool of libpmemblk(7).
pub(super) struct Libpmemblk {
    pool: *mut c_void,
    write: unsafe extern "C" fn(*mut c_void, *const c_void, i64) -> c_int,
    read: unsafe extern "C" fn(*mut c_void, *mut c_void, i64) -> c_int,
    close: unsafe extern "C" fn(*mut c_void),
    /// Blocks that it has.
    pub(super) blocks: u64,
    _library: Library,
}

// SAFETY: "the libpmemblk APIs are thread-safe" for blocks that differ and for the same (libpmemblk(7), ATOMICITY).
unsafe impl Send for Libpmemblk {}
// SAFETY: as above.
unsafe impl Sync for Libpmemblk {}

fn missing(name: &str, error: &libloading::Error) -> Error {
    Error::unavailable(format!("{name} is not installed: {error}"))
}

/// Opens a library and looks symbols up, in one go.
macro_rules! load {
    ($name:literal, $($symbol:literal),*) => {
        // SAFETY: the constructors of the libraries of PMDK read the environment and the CPU's features; the signatures are
        // those of their manual pages, and the pointers are kept no longer than the library.
        unsafe {
            let library = Library::new($name).map_err(|error| missing($name, &error))?;
            let symbols = ($(*library.get($symbol).map_err(|error| missing($name, &error))?,)*);
            (library, symbols)
        }
    };
}

impl Libpmem {
    pub(super) fn load() -> Result<Libpmem> {
        let (_library, (memcpy_persist,)) = load!("libpmem.so.1", b"pmem_memcpy_persist\0");
        Ok(Libpmem { memcpy_persist, _library })
    }

    /// # Safety
    /// As memcpy(3).
    pub(super) unsafe fn memcpy_persist(&self, to: *mut u8, from: *const u8, len_bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { (self.memcpy_persist)(to.cast(), from.cast(), len_bytes) };
    }
}

type Create = unsafe extern "C" fn(*const c_char, usize, usize, u32) -> *mut c_void;

impl Libpmemblk {
    pub(super) fn is_installed() -> Result<()> {
        // SAFETY: as in `load`.
        unsafe { Library::new("libpmemblk.so.1") }.map(drop).map_err(|error| missing("libpmemblk.so.1", &error))
    }

    /// A new pool in a file that is there, empty and as long as it is to be.
    pub(super) fn create(path: &Path, block_bytes: usize) -> Result<Libpmemblk> {
        let (library, (create, nblock, write, read, close)) = load!(
            "libpmemblk.so.1",
            b"pmemblk_create\0",
            b"pmemblk_nblock\0",
            b"pmemblk_write\0",
            b"pmemblk_read\0",
            b"pmemblk_close\0"
        );
        let (create, nblock): (Create, unsafe extern "C" fn(*mut c_void) -> usize) = (create, nblock);
        let name =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::unavailable("a path with a NUL".into()))?;
        // SAFETY: a string, and sizes, of which 0 is that of the file; the pool is checked before it is used.
        let pool = unsafe { create(name.as_ptr(), block_bytes, 0, 0o600) };
        if pool.is_null() {
            return Err(Error::io(path, std::io::Error::last_os_error()));
        }
        // SAFETY: the pool is open.
        let blocks = unsafe { nblock(pool) } as u64;
        Ok(Libpmemblk { pool, write, read, close, blocks, _library: library })
    }

    /// `from` has a block.
    pub(super) fn write(&self, number: u64, from: &[u8]) -> std::io::Result<()> {
        // SAFETY: the pool is open, and the caller's bytes are a block.
        match unsafe { (self.write)(self.pool, from.as_ptr().cast(), number as i64) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// `into` has room for a block.
    pub(super) fn read(&self, number: u64, into: &mut [u8]) -> std::io::Result<()> {
        // SAFETY: as above.
        match unsafe { (self.read)(self.pool, into.as_mut_ptr().cast(), number as i64) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Drop for Libpmemblk {
    fn drop(&mut self) {
        // SAFETY: the pool is open, and nobody uses it any more.
        unsafe { (self.close)(self.pool) };
    }
}
