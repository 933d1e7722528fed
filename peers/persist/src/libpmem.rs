//! The three calls of libpmem that are compared, from the shared library.

use std::ffi::c_void;

use libloading::{Error, Library, Symbol};

type MemcpyPersist = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;
type Persist = unsafe extern "C" fn(*const c_void, usize);

pub(crate) struct Libpmem {
    memcpy_persist: MemcpyPersist,
    persist: Persist,
    _library: Library,
}

impl Libpmem {
    pub(crate) fn load() -> Result<Libpmem, Error> {
        // SAFETY: libpmem's constructor reads the environment and the CPU's features; the signatures are those of
        // pmem_memcpy_persist(3) and pmem_persist(3); the pointers are kept no longer than the library.
        unsafe {
            let library = Library::new("libpmem.so.1")?;
            let memcpy_persist: Symbol<MemcpyPersist> = library.get(b"pmem_memcpy_persist\0")?;
            let persist: Symbol<Persist> = library.get(b"pmem_persist\0")?;
            Ok(Libpmem { memcpy_persist: *memcpy_persist, persist: *persist, _library: library })
        }
    }

    /// # Safety
    /// As memcpy.
    #[inline]
    pub(crate) unsafe fn memcpy_persist(&self, to: *mut u8, from: *const u8, len_bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { (self.memcpy_persist)(to.cast(), from.cast(), len_bytes) };
    }

    /// # Safety
    /// The range is mapped.
    #[inline]
    pub(crate) unsafe fn persist(&self, start: *const u8, len_bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { (self.persist)(start.cast(), len_bytes) };
    }
}
