//! What a backing promises: durability, granularity and the provenance of a figure measured on it.

/// The strongest promise a backing keeps (glossary: durability).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Durability {
    /// Gone with the process.
    Volatile,
    /// Survives the end of the process, not of the power (tmpfs, ramfs).
    ProcessCrashSafe,
    /// Nothing here can tell whether it survives a power failure: the platform is silent about the mapped memory, or
    /// another file system or server keeps the bytes.
    PersistenceUnknown,
    /// Survives a power failure.
    PowerFailSafe,
}

impl Durability {
    /// The words used in every report.
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Volatile => "volatile",
            Durability::ProcessCrashSafe => "process-crash safe",
            Durability::PersistenceUnknown => "mapped, persistence unknown",
            Durability::PowerFailSafe => "power-fail safe",
        }
    }
}

/// The unit in which stores become durable (the terms of libpmem2's `pmem2_map_get_store_granularity(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Granularity {
    /// A store is durable when it is visible and fenced (eADR).
    Byte,
    /// Flush and fence.
    CacheLine,
    /// msync or fdatasync.
    Page,
}

impl Granularity {
    /// The words used in every report.
    pub fn as_str(self) -> &'static str {
        match self {
            Granularity::Byte => "byte",
            Granularity::CacheLine => "cache line",
            Granularity::Page => "page",
        }
    }
}

/// Where a figure comes from; stands beside every figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// Measured on the device it speaks of.
    Measured,
    /// Measured on memory that stands in for a device (tmpfs, heap).
    Emulated,
    /// Computed by the device model.
    Modelled,
}

impl Provenance {
    /// The label printed beside a figure.
    pub fn as_str(self) -> &'static str {
        match self {
            Provenance::Measured => "measured",
            Provenance::Emulated => "emulated",
            Provenance::Modelled => "modelled",
        }
    }
}

/// What was found out about the storage behind a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backing {
    /// The promise.
    pub durability: Durability,
    /// The unit of the promise.
    pub granularity: Granularity,
    /// How figures measured on it are labelled.
    pub provenance: Provenance,
    /// File-system type, `device-dax`, `heap` or `simulated`.
    pub filesystem: String,
    /// Why the durability is what it is, in a sentence for the user.
    pub reason: String,
}
