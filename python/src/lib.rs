//! The extension module `remanent._remanent`: pools, and the memory behind restored arrays.
//!
//! It is as thin as can be: names, types and bytes. What a user sees is the Python layer in `remanent/`.

mod dtype;
mod error;
#[allow(unsafe_code)] // the buffer protocol
mod memory;
#[allow(unsafe_code)] // hands the user's buffers on as raw sources
mod persist;
mod pool;
mod value;

use pyo3::prelude::*;

/// The native half of the package. It needs no lock of the interpreter: what handles share is behind locks of their own.
#[pymodule(gil_used = false)]
mod _remanent {
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    const SMALL_BYTES: u64 = crate::memory::SMALL_BYTES;

    #[pymodule_export]
    use crate::error::error_codes;
    #[pymodule_export]
    use crate::memory::Memory;
    #[pymodule_export]
    use crate::pool::NativePool;
}
