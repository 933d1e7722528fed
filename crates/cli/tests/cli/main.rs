//! The real binary, run as a user runs it.

mod doctor;
mod errors;
mod harness;
mod manual;
mod output;
mod pool;
