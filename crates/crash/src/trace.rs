//! What a program did to its medium, in order.

use std::panic::Location;
use std::path::PathBuf;

use crate::disk::FileId;

/// Where in the source a call of the seam was made.
pub type Site = &'static Location<'static>;

/// The kind of a seam call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// `store_u64`, `store_bytes`, `cas_u64`.
    Store,
    /// `nt_copy`.
    NtCopy,
    /// `flush`.
    Flush,
    /// `fence`.
    Fence,
    /// `sync_range`.
    Sync,
    /// `fsync`.
    Fsync,
    /// `sync_dir`.
    SyncDir,
    /// `create`.
    Create,
    /// `rename`.
    Rename,
    /// `remove`.
    Remove,
}

impl Call {
    /// The name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Call::Store => "store",
            Call::NtCopy => "non-temporal copy",
            Call::Flush => "flush",
            Call::Fence => "fence",
            Call::Sync => "msync",
            Call::Fsync => "fsync",
            Call::SyncDir => "directory sync",
            Call::Create => "creation",
            Call::Rename => "renaming",
            Call::Remove => "removal",
        }
    }
}

/// Seam calls that were made, by kind and address of their place, which is much cheaper to compare than its text.
pub(crate) type Sites = std::collections::HashMap<(Call, usize), Site>;

/// One thing that happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Store {
        file: FileId,
        offset_bytes: u64,
        bytes: Box<[u8]>,
        non_temporal: bool,
        thread: u16,
    },
    Flush {
        file: FileId,
        offset_bytes: u64,
        len_bytes: u64,
        thread: u16,
        site: Site,
    },
    Fence {
        thread: u16,
        site: Site,
        is_weak: bool,
    },
    Sync {
        file: FileId,
        offset_bytes: u64,
        len_bytes: u64,
        is_weak: bool,
    },
    /// A `sync_range` or `fsync` that failed.
    SyncFailed {
        file: FileId,
        offset_bytes: u64,
        len_bytes: u64,
    },
    Create {
        path: PathBuf,
        len_bytes: u64,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        file: FileId,
    },
    Remove {
        path: PathBuf,
    },
    Fsync {
        file: FileId,
    },
    SyncDir {
        path: PathBuf,
    },
    /// From here on the workload's operations up to this number may be seen.
    Started(usize),
    /// From here on they must be seen.
    Acknowledged(usize),
    /// Somebody has seen exactly this state: it may not change any more.
    Observed(usize),
}
