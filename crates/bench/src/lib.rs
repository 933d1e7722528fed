//! Microbenchmark for persistent memory and for what database operators do on it.

pub mod bandwidth;
#[allow(unsafe_code)] // runs the code that is measured
pub mod burst;
pub mod calibrate;
#[allow(unsafe_code)] // follows addresses
pub mod chain;
pub mod clock;
#[allow(unsafe_code)] // the instructions that are measured
pub mod code;
pub mod compare;
pub mod crew;
pub mod error;
pub mod estimate;
#[allow(unsafe_code)] // maps what it touches
pub mod fault;
pub mod findings;
mod format;
pub mod join;
#[allow(unsafe_code)] // runs the code that is measured
pub mod latency;
pub mod loaded;
#[allow(unsafe_code)] // promises that one thread at a time works, and relies on it
pub mod locks;
#[allow(unsafe_code)] // asks for the process's usage
pub mod machine;
pub mod measure;
#[allow(unsafe_code)] // maps it
pub mod memory;
pub mod mixed;
pub mod model;
mod nameless;
mod names;
#[allow(unsafe_code)] // runs the code that is measured
pub mod operations;
pub mod page;
pub mod pattern;
pub mod plan;
pub mod prefetchers;
#[allow(unsafe_code)] // runs the code that is measured
pub mod reload;
pub mod results;
pub mod room;
pub mod run;
pub mod site;
#[allow(unsafe_code)] // calls what is compared
pub mod stack;
#[allow(unsafe_code)] // runs the code that is measured
pub mod stream;
pub mod topology;
pub mod value;

pub use error::{Error, Result};
