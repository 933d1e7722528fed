//! The persistent-memory core.
#![deny(unsafe_code)]

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("pool files are little-endian and 64-bit");

mod catalogue;
mod cell;
mod check;
mod commit;
#[allow(unsafe_code)] // shares a raw source among threads
mod copy;
#[allow(unsafe_code)] // cache-line primitives
mod cpu;
mod creation;
mod detect;
mod durability;
mod error;
mod extent;
mod format;
#[allow(unsafe_code)] // implements the one unsafe method of the seam
mod heap;
mod log;
#[allow(unsafe_code)] // mapping and locks
mod mapped;
#[allow(unsafe_code)] // declares the one unsafe method of the seam
mod media;
mod members;
mod memory;
#[allow(unsafe_code)] // implements the one unsafe method of the seam
mod modelled;
mod opening;
mod pins;
mod platform;
mod pool;
mod prefault;
mod process;
mod profile;
mod region;
mod remove;
#[allow(unsafe_code)] // hands raw sources on to the copy
mod set;

pub use catalogue::{MAX_EXTENTS, MAX_META_BYTES, MAX_NAME_BYTES, RegionInfo, check_name};
pub use cell::{CellValue, DoubleCell, TRAILER_BYTES};
pub use check::{CheckProgress, CheckReport, Finding, Severity, check};
pub use commit::{Committed, RedoBatch, RegionSpec};
pub use copy::{CopyProgress, copy_parallel, copy_threads, default_copy_threads};
pub use cpu::{CopyKernel, CopyOrder, CopyPlan, FlushInstruction, LINE_BYTES, LONG_COPY_BYTES, PlanOrigin, prefetch};
pub use creation::{MAX_MEMBERS, MIN_FILE_BYTES, PartOptions};
pub use durability::{Backing, Durability, Granularity, Provenance};
pub use error::{Error, ErrorCode, Result, Uuid};
pub use extent::{Extent, Published, Reservation};
pub use format::FORMAT_VERSION;
pub use heap::{Heap, HeapFile, HeapMap};
pub use log::{LogBatch, Segment, SelfCertifyingLog};
pub use mapped::{
    DirectMapping, KernelFeatures, Mapped, MappedFile, Mapping, PageScan, PrivateMapping, Probe, changed_pages, forks,
};
pub use media::{LockKind, Media, MediaFile, MediaMap, OpenMode, Stripe, Touch};
pub use memory::zeroed;
pub use modelled::{Modelled, ModelledFile, ModelledMap};
pub use pins::Pin;
pub use platform::{MemoryRegion, NumaNode, Platform};
pub use pool::{Layout, PartInfo, Pool, PoolInfo};
pub use prefault::{Prefault, PrefaultProgress};
pub use process::process_id;
pub use profile::{DeviceClock, DeviceProfile, LongerPersist, ModelledWrite, PROFILES};
pub use region::Region;
pub use remove::{Removal, remove_pool};
pub use set::{MAX_PARTS, Offset, Pending, PoolSet};
