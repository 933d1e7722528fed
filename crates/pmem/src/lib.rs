//! The persistent-memory core.
#![deny(unsafe_code)]

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("pool files are little-endian and 64-bit");

mod durability;
mod error;
#[allow(unsafe_code)] // declares the one unsafe method of the seam
mod media;

pub use durability::{Backing, Durability, Granularity, Provenance};
pub use error::{Error, ErrorCode, Result, Uuid};
pub use media::{LockKind, Media, MediaFile, MediaMap, OpenMode, Stripe, Touch};
