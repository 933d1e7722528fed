//! Reading an object where it lies.

use std::borrow::Cow;

use pmem::{Mapped, Media, PrivateMapping, Region, Touch};

use crate::descriptor::{Checksum, Descriptor, ObjectKind};
use crate::error::{Error, Result};
use crate::format::{self, HeadPlace, Refused};
use crate::source::{Element, items_at};
use crate::transaction::OWN_EXTENT_FROM_BYTES;
use crate::value::{Buffer, Node, Place};

/// Bytes that are summed at a time: they stay in the nearest cache.
const STEP_BYTES: u64 = 64 << 10;

/// An object of a store, pinned: its bytes stay as they are, and mapped, as long as this or a clone of it lives,
/// whatever becomes of the name and of the store.
///
/// # Invariants
/// 1. The region has one extent that holds the payload, or no extent and no payload; a value has any number, in which its
///    buffers lie.
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
            _ if descriptor.kind() == ObjectKind::Value => {
                let extents = info.extents.iter().try_fold(0u64, |sum, extent| sum.checked_add(extent.len_bytes));
                extents.is_some_and(|bytes| descriptor.payload_bytes() <= bytes)
            }
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

    /// The tree and the buffers of a value.
    ///
    /// # Errors
    /// `Unreadable` when it is no value, or of a later version; `BadDescriptor`, `BadBlock`, `Truncated`, `Io`.
    pub fn value(&self) -> Result<Value<M>> {
        let name = || self.name().to_owned();
        if self.descriptor.kind() != ObjectKind::Value {
            return Err(Error::Unreadable { name: name(), reason: "it is one thing, and has no parts" });
        }
        let damaged = |what| Error::BadDescriptor { name: name(), what };
        let info = self.region.info();
        let meta = format::decode_meta(&info.meta).map_err(|refused| refuse(self.name(), refused))?;
        let head = match meta.head {
            HeadPlace::Meta(at) => Cow::Borrowed(&info.meta[at..]),
            HeadPlace::Extent => {
                let fits = |extent: &&pmem::Extent| meta.head_bytes <= extent.len_bytes;
                let extent = info.extents.first().filter(fits).ok_or_else(|| damaged("its head leaves its extent"))?;
                self.region.set().guard(extent.offset, meta.head_bytes, Touch::Load)?;
                let mut head = vec![0; meta.head_bytes as usize];
                self.region.load_bytes(0, 0, &mut head);
                Cow::Owned(head)
            }
        };
        if crc32c::crc32c(&head) != meta.head_crc {
            return Err(damaged("its head does not check"));
        }
        let (places, tree) = format::decode_head(&head).map_err(|refused| refuse(self.name(), refused))?;
        let is_inside = |place: &Place| {
            let extent = info.extents.get(place.extent as usize);
            let end = place.offset_bytes.checked_add(place.len_bytes);
            place.len_bytes == 0 || extent.zip(end).is_some_and(|(extent, end)| end <= extent.len_bytes)
        };
        if !places.iter().all(is_inside) {
            return Err(damaged("a buffer leaves its extent"));
        }
        let lengths: Vec<u64> = places.iter().map(|place| place.len_bytes).collect();
        tree.check(&lengths).map_err(damaged)?;
        if lengths.iter().try_fold(0u64, |sum, len| sum.checked_add(*len)) != Some(self.descriptor.payload_bytes()) {
            return Err(damaged("its length is not that of its buffers"));
        }
        Ok(Value { view: self.clone(), tree, places })
    }

    /// Compares its bytes with its checksum, those of a value buffer by buffer. False when it has none.
    ///
    /// # Errors
    /// `ChecksumMismatch`; as [`ObjectView::guard`].
    pub fn verify(&self) -> Result<bool> {
        if self.descriptor.kind() == ObjectKind::Value {
            return self.value()?.verify();
        }
        let Checksum::Crc32c(expected) = self.descriptor.checksum() else { return Ok(false) };
        self.guard()?;
        let got = sum(self.descriptor.payload_bytes(), |at, into| self.region.load_bytes(0, at, into));
        self.compare(got, expected)?;
        Ok(true)
    }

    fn compare(&self, got: u32, expected: u32) -> Result<()> {
        if got == expected {
            return Ok(());
        }
        let (got, expected) = (got.into(), expected.into());
        Err(Error::ChecksumMismatch { name: self.name().to_owned(), got, expected })
    }

    /// A copy of its bytes.
    ///
    /// # Errors
    /// `Unreadable` for a value, whose bytes lie in parts; as [`ObjectView::guard`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        if self.descriptor.kind() == ObjectKind::Value {
            return Err(Error::Unreadable { name: self.name().to_owned(), reason: "its bytes lie in parts" });
        }
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
        self.private_after(0)
    }

    /// As [`ObjectView::private`], with that many bytes of writable memory directly before the payload.
    ///
    /// # Errors
    /// As [`ObjectView::private`].
    pub fn private_after(&self, room_bytes: usize) -> Result<Option<PrivateMapping>> {
        match self.region.info().extents[..] {
            [extent] if self.descriptor.payload_bytes() > 0 => {
                Ok(Some(self.region.set().private_after(extent, self.descriptor.payload_bytes(), room_bytes)?))
            }
            _ => Ok(None),
        }
    }
}

/// What a value is made of. It holds the view.
pub struct Value<M: Media = Mapped> {
    view: ObjectView<M>,
    tree: Node,
    places: Vec<Place>,
}

impl<M: Media> Value<M> {
    /// Its tree. Every buffer that a node names is there and as long as the node says.
    pub fn tree(&self) -> &Node {
        &self.tree
    }

    /// How many buffers it has.
    pub fn buffers(&self) -> u32 {
        self.places.len() as u32
    }

    /// Whether a buffer is so small that it shares its pages with others.
    ///
    /// # Panics
    /// If no node names it.
    pub fn shares_pages(&self, buffer: Buffer) -> bool {
        let place = &self.places[buffer.0 as usize];
        place.len_bytes < OWN_EXTENT_FROM_BYTES || place.offset_bytes != 0
    }

    /// A buffer: its first byte, at a multiple of 64 on files and devices, and its length. Readable as long as the view
    /// lives; an empty one is not to be read from.
    ///
    /// # Panics
    /// If no node names it.
    pub fn buffer(&self, buffer: Buffer) -> (*const u8, u64) {
        let place = &self.places[buffer.0 as usize];
        match place.len_bytes {
            0 => (std::ptr::without_provenance(64), 0),
            len_bytes => {
                let start = self.view.region.address(place.extent as usize);
                (start.wrapping_add(place.offset_bytes as usize).cast_const(), len_bytes)
            }
        }
    }

    /// A copy of a buffer's bytes.
    ///
    /// # Errors
    /// `BadBlock`, `Truncated`, `Io`.
    ///
    /// # Panics
    /// If no node names it.
    pub fn to_bytes(&self, buffer: Buffer) -> Result<Vec<u8>> {
        let place = &self.places[buffer.0 as usize];
        let mut bytes = vec![0; place.len_bytes as usize];
        if !bytes.is_empty() {
            self.guard(place)?;
            self.view.region.load_bytes(place.extent as usize, place.offset_bytes, &mut bytes);
        }
        Ok(bytes)
    }

    /// Populates a buffer's pages; see [`ObjectView::guard`].
    ///
    /// # Errors
    /// `BadBlock`, `Truncated`, `Io`.
    ///
    /// # Panics
    /// If no node names it.
    pub fn guard_buffer(&self, buffer: Buffer) -> Result<()> {
        let place = &self.places[buffer.0 as usize];
        if place.len_bytes == 0 { Ok(()) } else { self.guard(place) }
    }

    fn guard(&self, place: &Place) -> Result<()> {
        let start = self.view.region.info().extents[place.extent as usize].offset.plus(place.offset_bytes);
        Ok(self.view.region.set().guard(start, place.len_bytes, Touch::Load)?)
    }

    fn verify(&self) -> Result<bool> {
        for place in &self.places {
            let Some(expected) = place.crc else { return Ok(false) };
            if place.len_bytes > 0 {
                self.guard(place)?;
            }
            let load = |at, into: &mut [u8]| {
                self.view.region.load_bytes(place.extent as usize, place.offset_bytes + at, into);
            };
            self.view.compare(sum(place.len_bytes, load), expected)?;
        }
        Ok(!self.places.is_empty())
    }
}

impl Value<Mapped> {
    /// A copy-on-write view of a buffer; see [`ObjectView::private`]. None for a small one, which shares its pages with
    /// others.
    ///
    /// # Errors
    /// `Unsupported` on device-DAX; `Io` when the process has too many mappings.
    ///
    /// # Panics
    /// If no node names it.
    pub fn private(&self, buffer: Buffer) -> Result<Option<PrivateMapping>> {
        self.private_after(buffer, 0)
    }

    /// As [`Value::private`], with that many bytes of writable memory directly before the buffer.
    ///
    /// # Errors
    /// As [`Value::private`].
    ///
    /// # Panics
    /// If no node names it.
    pub fn private_after(&self, buffer: Buffer, room_bytes: usize) -> Result<Option<PrivateMapping>> {
        if self.shares_pages(buffer) {
            return Ok(None);
        }
        let place = &self.places[buffer.0 as usize];
        let region = &self.view.region;
        let extent = region.info().extents[place.extent as usize];
        Ok(Some(region.set().private_after(extent, place.len_bytes, room_bytes)?))
    }
}

/// The checked description of a region.
pub(crate) fn describe(name: &str, info: &pmem::RegionInfo) -> Result<Descriptor> {
    format::decode(info.kind, info.flags, &info.meta).map_err(|refused| refuse(name, refused))
}

fn refuse(name: &str, refused: Refused) -> Error {
    match refused {
        Refused::Unknown(reason) => Error::Unreadable { name: name.to_owned(), reason },
        Refused::Damaged(what) => Error::BadDescriptor { name: name.to_owned(), what },
    }
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
