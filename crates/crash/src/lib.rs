//! Crash-image simulator for persistent-memory protocols.
//!
//! Killing a process, or a virtual machine, cannot lose what lies in the CPU's caches; only a simulator finds a missing
//! flush or fence. Three states are told apart: WORK is what the program sees, PENDING what it has flushed, DURABLE
//! what a crash cannot take. A flush marks the stores of a line as pending; a fence makes the pending stores of its
//! thread durable. At a crash every line holds its durable value and some of the stores since, any prefix of them or out
//! of their order, torn at 8 bytes; with page granularity the same holds of 512-byte sectors, until msync. File creation,
//! lengths and renames may be lost in any combination until they are synced.
//!
//! [`Campaign::run`] runs a workload once on a [`Sim`], then walks its trace and recovers from each distinct image.
//! Recoveries are traced and crashed in their turn.
#![deny(unsafe_code)]

mod campaign;
mod disk;
mod explore;
mod hashed;
mod mutate;
mod sim;
mod trace;
mod volatile;

pub use campaign::{Campaign, KILLS_IN_RECOVERY, Lint, Policy, Protocol, Report, Tally, Violation};
pub use mutate::Mutation;
pub use sim::{Fault, Sim, SimFile, SimMap};
pub use trace::{Call, Site};
