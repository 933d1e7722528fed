//! The persistent-memory core.
#![deny(unsafe_code)]

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("pool files are little-endian and 64-bit");

#[allow(unsafe_code)] // shares a raw source among threads
mod copy;
#[allow(unsafe_code)] // cache-line primitives
mod cpu;
mod detect;
mod durability;
mod error;
#[allow(unsafe_code)] // mapping and locks
mod mapped;
#[allow(unsafe_code)] // declares the one unsafe method of the seam
mod media;
mod platform;
mod prefault;

pub use copy::{copy_parallel, default_copy_threads};
pub use cpu::{CopyKernel, CopyPlan, FlushInstruction, LINE_BYTES, PlanOrigin};
pub use durability::{Backing, Durability, Granularity, Provenance};
pub use error::{Error, ErrorCode, Result, Uuid};
pub use mapped::{Mapped, MappedFile, Mapping};
pub use media::{LockKind, Media, MediaFile, MediaMap, OpenMode, Stripe, Touch};
pub use platform::{MemoryRegion, NumaNode, Platform};
pub use prefault::{Prefault, PrefaultProgress};
