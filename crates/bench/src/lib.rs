//! Microbenchmark for persistent memory and for what database operators do on it.

#[allow(unsafe_code)] // runs the code that is measured
pub mod bandwidth;
#[allow(unsafe_code)] // follows addresses
pub mod chain;
pub mod clock;
#[allow(unsafe_code)] // the instructions that are measured
pub mod code;
pub mod crew;
pub mod error;
mod format;
pub mod join;
#[allow(unsafe_code)] // runs the code that is measured
pub mod latency;
#[allow(unsafe_code)] // promises that one thread at a time works, and relies on it
pub mod locks;
#[allow(unsafe_code)] // maps it
pub mod memory;
pub mod pattern;

pub use error::{Error, Result};
