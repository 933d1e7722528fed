//! The real binary, run as a user runs it.

mod bench;
mod doctor;
mod errors;
mod harness;
mod manual;
#[allow(unsafe_code)] // a filter of system calls between fork and exec
mod media;
mod output;
mod pool;
mod store;
