//! Reading an object where it lies.

use pmem::{Mapped, Media, PrivateMapping, Region};

use crate::descriptor::{Checksum, Descriptor, ObjectKind};
use crate::error::{Error, Result};
use crate::format::{self, Refused};
use crate::source::{Element, items_at};

/// Bytes that are summed at a time: they stay in the nearest cache.
const STEP_BYTES: u64 = 64 << 10;

/// An object of a store, pinned: its bytes stay as they are, and mapped, as long as this or a clone of it lives,
/// whatever becomes of the name and of the store.
///
/// # Invariants
/// 1. The region has one extent that holds the payload, or no extent and no payload.
/// 2. Nobody writes to the payload: committed extents are never overwritten.
pub struct ObjectView<M: Media = Mapped> {
    region: Region<M>,
    descriptor: Descriptor,
}

impl<M: Media> Clone for ObjectView<M> {
    fn clone(&self) -> Self {
        ObjectView { region: self.region.clone(), descriptor: self.descriptor.clone() }
    }
}

impl<M: Media> std::fmt::Debug for ObjectView<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectView").field("name", &self.name()).field("descriptor", &self.descriptor).finish()
    }
}

impl<M: Media> ObjectView<M> {
    pub(crate) fn new(region: Region<M>) -> Result<ObjectView<M>> {
        let info = region.info();
        let descriptor = describe(region.name(), info)?;
        let fits = match info.extents[..] {
            [] => descriptor.payload_bytes() == 0,
            [extent] => descriptor.payload_bytes() <= extent.len_bytes,
            _ => false,
        };
        if !fits {
            let what = "its extent does not fit its length";
            return Err(Error::BadDescriptor { name: region.name().to_owned(), what });
        }
        Ok(ObjectView { region, descriptor })
    }

    /// The name that it was looked up by.
    pub fn name(&self) -> &str {
        self.region.name()
    }

    /// What it is.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The catalogue generation in which it was committed.
    pub fn born(&self) -> u64 {
        self.region.info().born
    }

    /// Its first byte, on files and devices at a multiple of 64; readable for the payload's length as long as the
    /// view lives. Without a payload the address is not to be read from.
    pub fn address(&self) -> *const u8 {
        match self.region.info().extents.len() {
            0 => std::ptr::without_provenance(64),
            _ => self.region.address(0),
        }
    }

    /// Populates its pages, so that what is lost is an error here and no signal later. This costs what a first pass
    /// over it would cost.
    ///
    /// # Errors
    /// `BadBlock`, `Truncated`, `Io`.
    pub fn guard(&self) -> Result<()> {
        Ok(self.region.guard()?)
    }

    /// Compares its bytes with its checksum. False when it has none.
    ///
    /// # Errors
    /// `ChecksumMismatch`; as [`ObjectView::guard`].
    pub fn verify(&self) -> Result<bool> {
        let Checksum::Crc32c(expected) = self.descriptor.checksum() else { return Ok(false) };
        self.guard()?;
        let got = sum(self.descriptor.payload_bytes(), |at, into| self.region.load_bytes(0, at, into));
        if got != expected {
            let (got, expected) = (got.into(), expected.into());
            return Err(Error::ChecksumMismatch { name: self.name().to_owned(), got, expected });
        }
        Ok(true)
    }

    /// A copy of its bytes.
    ///
    /// # Errors
    /// As [`ObjectView::guard`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.guard()?;
        let mut bytes = vec![0; self.descriptor.payload_bytes() as usize];
        if !bytes.is_empty() {
            self.region.load_bytes(0, 0, &mut bytes);
        }
        Ok(bytes)
    }

    /// A copy of its items, in the order in which they are stored.
    ///
    /// # Errors
    /// `NotAnArray`; `UnknownType` when the items are of another type; as [`ObjectView::guard`].
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.descriptor.kind() != ObjectKind::Array {
            return Err(Error::NotAnArray { name: self.name().to_owned(), got: self.descriptor.kind() });
        }
        if *self.descriptor.dtype() != T::dtype() {
            let reason = "its items have the type that its description tells, and no other";
            return Err(Error::Unreadable { name: self.name().to_owned(), reason });
        }
        self.guard()?;
        let items = self.descriptor.payload_bytes() as usize / size_of::<T>();
        if items == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: invariants 1 and 2 of the view.
        Ok(unsafe { items_at(self.address(), items) })
    }
}

impl ObjectView<Mapped> {
    /// A copy-on-write view of the payload: stores to it stay in this process. Keep this view as long as that one.
    /// None when there is no payload.
    ///
    /// # Errors
    /// `Unsupported` on device-DAX; `Io` when the process has too many mappings.
    pub fn private(&self) -> Result<Option<PrivateMapping>> {
        match self.region.info().extents[..] {
            [extent] if self.descriptor.payload_bytes() > 0 => {
                Ok(Some(self.region.set().private(extent, self.descriptor.payload_bytes())?))
            }
            _ => Ok(None),
        }
    }
}

/// The checked description of a region.
pub(crate) fn describe(name: &str, info: &pmem::RegionInfo) -> Result<Descriptor> {
    format::decode(info.kind, info.flags, &info.meta).map_err(|refused| match refused {
        Refused::Unknown(reason) => Error::Unreadable { name: name.to_owned(), reason },
        Refused::Damaged(what) => Error::BadDescriptor { name: name.to_owned(), what },
    })
}

/// CRC-32C over a payload that is copied out piece by piece.
pub(crate) fn sum(len_bytes: u64, load: impl Fn(u64, &mut [u8])) -> u32 {
    let mut buffer = vec![0; STEP_BYTES.min(len_bytes) as usize];
    let mut crc = 0;
    let mut at = 0;
    while at < len_bytes {
        let step = STEP_BYTES.min(len_bytes - at);
        let piece = &mut buffer[..step as usize];
        load(at, piece);
        crc = crc32c::crc32c_append(crc, piece);
        at += step;
    }
    crc
}
