//! Crash campaigns over the protocols of the product crates, and the golden files of their formats.
//!
//! Each protocol comes with a model that shares no code with it. The campaigns run short in `cargo test` and long in
//! the deep lane.
#![deny(unsafe_code)]

pub mod coverage;
pub mod deep;
pub mod golden;
pub mod inserters;
pub mod join;
pub mod kill;
pub mod pool;
pub mod probe;
pub mod register;
pub mod removal;
pub mod spikes;
pub mod store;
