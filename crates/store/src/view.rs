//! Reading an object where it lies.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pmem::{Extent, Mapped, Media, PrivateMapping, Region, Touch};

use crate::descriptor::{Checksum, Descriptor, Flags, ObjectKind};
use crate::error::{Error, Result};
use crate::format::{self, HeadPlace, Refused};
use crate::holders::{Hold, Holder, Holders, Private, State};
use crate::redo::{Redo, RedoRange};
use crate::source::{Element, Source, items_at};
use crate::value::Place;

mod parts;
mod together;

pub use parts::Value;

/// Bytes that are summed at a time: they stay in the nearest cache.
const STEP_BYTES: u64 = 64 << 10;

/// An object of a store, pinned: its bytes stay as they are, and mapped, as long as this or a clone of it lives,
/// whatever becomes of the name and of the store.
///
/// # Invariants
/// 1. The region has one extent that holds the payload, or no extent and no payload; a value has any number, in which its
///    buffers lie. A redo extent comes last and is none of these.
/// 2. Nobody writes to the payload: committed extents are not overwritten but by the modules `redo` and `direct`, which keep
///    away from what a view holds.
pub struct ObjectView<M: Media = Mapped> {
    held: Arc<Held<M>>,
}

struct Held<M: Media> {
    region: HeldRegion<M>,
    descriptor: Descriptor,
    redo: Option<Redo>,
    /// Of the extents for which bytes wait: all their bytes, put together when they are asked for.
    merged: Vec<OnceLock<Lines>>,
}

/// A region of which some extents count as seen.
pub(crate) struct HeldRegion<M: Media> {
    region: Region<M>,
    holders: Arc<Holders>,
    holder: Holder,
    /// By their numbers.
    extents: Range<usize>,
}

impl<M: Media> HeldRegion<M> {
    /// `state` is that of the holders, locked since before the region was looked up.
    pub(crate) fn new(region: Region<M>, holders: &Arc<Holders>, state: &mut State) -> Self {
        let holder = state.add(region.info().born, &region.info().extents);
        let extents = 0..region.info().extents.len();
        HeldRegion { region, holders: holders.clone(), holder, extents }
    }

    /// Whether the files still reach to its end.
    pub(crate) fn check_reaches(&self) -> Result<()> {
        let (set, extents) = (self.region.set(), &self.region.info().extents);
        Ok(extents.iter().try_for_each(|extent| set.check_reaches(extent.offset, extent.len_bytes))?)
    }

    fn guard(&self) -> Result<()> {
        let extents = &self.region.info().extents[self.extents.clone()];
        Ok(extents.iter().try_for_each(|e| self.region.set().guard(e.offset, e.len_bytes, Touch::Load))?)
    }

    pub(crate) fn holder(&self) -> Holder {
        self.holder
    }

    /// One extent of it, held for itself.
    pub(crate) fn one(&self, number: usize) -> Self {
        let (region, extents) = (self.region.clone(), number..number + 1);
        let holder = self.holders.add_like(self.holder, &region.info().extents[number]);
        HeldRegion { region, holders: self.holders.clone(), holder, extents }
    }
}

/// Bytes in memory of this process, aligned as in a pool.
type Lines = Box<[Line]>;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl<M: Media> Drop for HeldRegion<M> {
    fn drop(&mut self) {
        self.holders.release(self.holder, &self.region.info().extents[self.extents.clone()]);
    }
}

impl<M: Media> Clone for ObjectView<M> {
    fn clone(&self) -> Self {
        ObjectView { held: self.held.clone() }
    }
}

impl<M: Media> std::fmt::Debug for ObjectView<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectView").field("name", &self.name()).field("descriptor", self.descriptor()).finish()
    }
}

impl<M: Media> ObjectView<M> {
    pub(crate) fn new(held: HeldRegion<M>) -> Result<ObjectView<M>> {
        let (region, info) = (&held.region, held.region.info());
        let descriptor = describe(region.name(), info)?;
        let redo = match descriptor.flags().contains(Flags::REDO) {
            true => Some(Redo::read(region)?.map_err(|refused| refuse(region.name(), refused))?),
            false => None,
        };
        let payload = &info.extents[..info.extents.len() - usize::from(redo.is_some())];
        let fits = match payload {
            _ if descriptor.kind() == ObjectKind::Value => {
                let extents = payload.iter().try_fold(0u64, |sum, extent| sum.checked_add(extent.len_bytes));
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
        let merged = redo.iter().flat_map(|_| payload).map(|_| OnceLock::new()).collect();
        Ok(ObjectView { held: Arc::new(Held { region: held, descriptor, redo, merged }) })
    }

    pub(crate) fn region(&self) -> &Region<M> {
        &self.held.region.region
    }

    /// Whether some of its bytes do not lie where the others do, since a change of it is under way: then a private view is
    /// cheap, and its address costs a copy.
    pub fn has_waiting_bytes(&self) -> bool {
        self.redo().is_some()
    }

    /// Has a private view that shows what this object has in an extent hold this one.
    pub(crate) fn take_over(&self, extent: Extent, holder: Holder) {
        if let Some(number) = self.extents().iter().position(|own| *own == extent) {
            let region = self.held.region.one(number);
            let (holders, new) = (region.holders.clone(), region.holder);
            holders.exchange(holder, new, Box::new(region));
        }
    }

    pub(crate) fn holder(&self) -> Holder {
        self.held.region.holder
    }

    /// An extent, held for itself.
    pub(crate) fn one(&self, number: usize) -> HeldRegion<M> {
        self.held.region.one(number)
    }

    /// The extents that are no redo extent.
    pub(crate) fn extents(&self) -> &[Extent] {
        let extents = &self.region().info().extents;
        &extents[..extents.len() - usize::from(self.held.redo.is_some())]
    }

    /// What waits to be copied home.
    pub(crate) fn redo(&self) -> Option<&Redo> {
        self.held.redo.as_ref()
    }

    /// Copies bytes of an extent out, as they are by now.
    fn load(&self, extent: usize, offset_bytes: u64, into: &mut [u8]) {
        self.region().load_bytes(extent, offset_bytes, into);
        if let Some(redo) = self.redo() {
            redo.put_over(extent, offset_bytes, into, |at, into| self.load_redo(at, into));
        }
    }

    fn load_redo(&self, at_bytes: u64, into: &mut [u8]) {
        self.region().load_bytes(self.region().info().extents.len() - 1, at_bytes, into);
    }

    /// First byte of an extent's bytes.
    fn address_of(&self, extent: usize) -> *const u8 {
        match self.redo() {
            Some(redo) if redo.touches(extent) => {
                self.held.merged[extent].get_or_init(|| self.merge(extent)).as_ptr().cast()
            }
            _ => self.region().address(extent).cast_const(),
        }
    }

    /// All bytes that lie in an extent, also where others wait; the view must be kept as long as the source.
    pub(crate) fn source(&self, extent: usize) -> Source<'static> {
        let len_bytes = self.extents()[extent].len_bytes;
        // SAFETY: the extent is mapped as long as the view lives, which the caller answers for.
        unsafe { Source::from_raw(self.region().address(extent).cast_const(), len_bytes) }
    }

    /// Populates the redo extent, as [`ObjectView::guard`].
    pub(crate) fn guard_redo(&self) -> Result<()> {
        let Some(redo) = self.region().info().extents.last() else { return Ok(()) };
        Ok(self.region().set().guard(redo.offset, redo.len_bytes, Touch::Load)?)
    }

    /// The bytes that wait, as [`ObjectView::source`].
    pub(crate) fn waiting(&self, range: &RedoRange) -> Source<'static> {
        let redo = self.region().info().extents.len() - 1;
        let from = self.region().address(redo).wrapping_add(range.at_bytes as usize);
        // SAFETY: the range was checked to lie in the redo extent, which is mapped as long as the view lives.
        unsafe { Source::from_raw(from, range.len_bytes) }
    }

    fn merge(&self, extent: usize) -> Lines {
        let mut lines = vec![Line([0; 64]); (self.extents()[extent].len_bytes / 64) as usize].into_boxed_slice();
        // SAFETY: lines are bytes without padding, and nobody else knows these.
        let bytes = unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<u8>(), 64 * lines.len()) };
        self.region().load_bytes(extent, 0, bytes);
        let redo = self.redo().expect("it is asked for with one");
        redo.put_over(extent, 0, bytes, |at, into| self.load_redo(at, into));
        lines
    }

    /// The name that it was looked up by.
    pub fn name(&self) -> &str {
        self.region().name()
    }

    /// What it is.
    pub fn descriptor(&self) -> &Descriptor {
        &self.held.descriptor
    }

    /// The catalogue generation in which it was committed.
    pub fn born(&self) -> u64 {
        self.region().info().born
    }

    /// Its first byte, on files and devices at a multiple of 64; readable for the payload's length as long as the
    /// view lives. Without a payload the address is not to be read from.
    pub fn address(&self) -> *const u8 {
        match self.extents() {
            [] => std::ptr::without_provenance(64),
            _ => self.address_of(0),
        }
    }

    /// Populates its pages, so that what is lost is an error here and no signal later. This costs what a first pass
    /// over it would cost.
    ///
    /// # Errors
    /// `BadBlock`, `Truncated`, `Io`.
    pub fn guard(&self) -> Result<()> {
        Ok(self.region().guard()?)
    }

    /// The tree and the buffers of a value.
    ///
    /// # Errors
    /// `Unreadable` when it is no value, or of a later version; `BadDescriptor`, `BadBlock`, `Truncated`, `Io`.
    pub fn value(&self) -> Result<Value<M>> {
        let name = || self.name().to_owned();
        if self.descriptor().kind() != ObjectKind::Value {
            return Err(Error::Unreadable { name: name(), reason: "it is one thing, and has no parts" });
        }
        let damaged = |what| Error::BadDescriptor { name: name(), what };
        let (info, extents) = (self.region().info(), self.extents());
        let meta = format::decode_meta(&info.meta).map_err(|refused| refuse(self.name(), refused))?;
        let head = match meta.head {
            HeadPlace::Meta(at) => Cow::Borrowed(&info.meta[at..]),
            HeadPlace::Extent(number) => {
                let fits = |extent: &&Extent| meta.head_bytes <= extent.len_bytes;
                let extent = extents.get(number).filter(fits).ok_or_else(|| damaged("its head leaves its extent"))?;
                self.region().set().guard(extent.offset, meta.head_bytes, Touch::Load)?;
                // No bytes of a head ever wait: each commit writes one of its own. And no memory for what does not check.
                if sum(meta.head_bytes, |at, into| self.region().load_bytes(number, at, into)) != meta.head_crc {
                    return Err(damaged("its head does not check"));
                }
                let mut head = vec![0; meta.head_bytes as usize];
                self.region().load_bytes(number, 0, &mut head);
                Cow::Owned(head)
            }
        };
        if crc32c::crc32c(&head) != meta.head_crc {
            return Err(damaged("its head does not check"));
        }
        let (places, tree) = format::decode_head(&head).map_err(|refused| refuse(self.name(), refused))?;
        let is_inside = |place: &Place| {
            let extent = extents.get(place.extent as usize);
            let end = place.offset_bytes.checked_add(place.len_bytes);
            place.len_bytes == 0 || extent.zip(end).is_some_and(|(extent, end)| end <= extent.len_bytes)
        };
        if !places.iter().all(is_inside) {
            return Err(damaged("a buffer leaves its extent"));
        }
        let lengths: Vec<u64> = places.iter().map(|place| place.len_bytes).collect();
        tree.check(&lengths).map_err(damaged)?;
        if lengths.iter().try_fold(0u64, |sum, len| sum.checked_add(*len)) != Some(self.descriptor().payload_bytes()) {
            return Err(damaged("its length is not that of its buffers"));
        }
        Ok(Value { view: self.clone(), tree, places })
    }

    /// Compares its bytes with its checksum, those of a value buffer by buffer. False when it has none.
    ///
    /// # Errors
    /// `ChecksumMismatch`; as [`ObjectView::guard`].
    pub fn verify(&self) -> Result<bool> {
        if self.descriptor().kind() == ObjectKind::Value {
            return self.value()?.verify();
        }
        let Checksum::Crc32c(expected) = self.descriptor().checksum() else { return Ok(false) };
        self.guard()?;
        let got = sum(self.descriptor().payload_bytes(), |at, into| self.load(0, at, into));
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
        if self.descriptor().kind() == ObjectKind::Value {
            return Err(Error::Unreadable { name: self.name().to_owned(), reason: "its bytes lie in parts" });
        }
        self.guard()?;
        Ok(self.copied())
    }

    /// A copy of the bytes of what is no value, of which nothing is lost.
    fn copied(&self) -> Vec<u8> {
        let mut bytes = pmem::zeroed(self.descriptor().payload_bytes() as usize);
        if !bytes.is_empty() {
            self.load(0, 0, &mut bytes);
        }
        bytes
    }

    /// A copy of its items, in the order in which they are stored.
    ///
    /// # Errors
    /// `NotAnArray`; `UnknownType` when the items are of another type; as [`ObjectView::guard`].
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.descriptor().kind() != ObjectKind::Array {
            return Err(Error::NotAnArray { name: self.name().to_owned(), got: self.descriptor().kind() });
        }
        if *self.descriptor().dtype() != T::dtype() {
            let reason = "its items have the type that its description tells, and no other";
            return Err(Error::Unreadable { name: self.name().to_owned(), reason });
        }
        self.guard()?;
        let items = self.descriptor().payload_bytes() as usize / size_of::<T>();
        if items == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: invariants 1 and 2 of the view.
        Ok(unsafe { items_at(self.address(), items) })
    }
}

impl ObjectView<Mapped> {
    /// A copy-on-write view of the payload: stores to it stay in this process. It lives for itself, and only without this
    /// view beside it can it be persisted again by its changed pages. None when there is no payload.
    ///
    /// # Errors
    /// `Unsupported` on device-DAX; `Io` when the process has too many mappings.
    pub fn private(&self) -> Result<Option<PrivateView>> {
        self.private_after(0)
    }

    /// The length of a payload that lies in one extent.
    fn one_payload(&self) -> Option<u64> {
        let len_bytes = self.descriptor().payload_bytes();
        (self.extents().len() == 1 && len_bytes > 0).then_some(len_bytes)
    }

    /// As [`ObjectView::private`], mapped when it is first asked for its address.
    ///
    /// # Errors
    /// As [`ObjectView::private`].
    pub fn private_late(&self) -> Result<Option<LateView>> {
        self.one_payload().map(|len_bytes| self.late_of(0, len_bytes)).transpose()
    }

    /// As [`ObjectView::private`], with that many bytes of writable memory directly before the payload.
    ///
    /// # Errors
    /// As [`ObjectView::private`].
    pub fn private_after(&self, room_bytes: usize) -> Result<Option<PrivateView>> {
        self.one_payload().map(|len_bytes| self.private_of(0, len_bytes, room_bytes)).transpose()
    }

    fn private_of(&self, number: usize, len_bytes: u64, room_bytes: usize) -> Result<PrivateView> {
        let extent = self.extents()[number];
        // Held before it is mapped, as everything that is seen.
        let region = self.held.region.one(number);
        let mapping = region.private_after(len_bytes, room_bytes)?;
        let waiting = self.redo().map_or(&[][..], |redo| redo.of(number));
        if !waiting.is_empty() {
            self.guard_redo()?;
        }
        for range in waiting {
            self.region().set().guard(extent.offset.plus(range.offset_bytes), range.len_bytes, Touch::Load)?;
            let mut bytes = vec![0; range.len_bytes as usize];
            self.load_redo(range.at_bytes, &mut bytes);
            let end = mapping.len_bytes().min((range.offset_bytes + range.len_bytes) as usize);
            let len = end.saturating_sub(range.offset_bytes as usize);
            let to = mapping.address().wrapping_add(range.offset_bytes as usize);
            // SAFETY: `len` bytes from there on lie in the mapping, which nobody else knows yet, and `bytes` has as many.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len) };
        }
        Ok(PrivateView::new(region, len_bytes, mapping))
    }

    fn late_of(&self, number: usize, len_bytes: u64) -> Result<LateView> {
        let (mapped, mut waits) = (OnceLock::new(), None);
        // Bytes that wait elsewhere are put into the mapping at once: they may be home when it is asked for.
        if self.redo().is_some_and(|redo| redo.touches(number)) {
            let _ = mapped.set(self.private_of(number, len_bytes, 0)?);
        } else {
            self.region().set().check_private(self.extents()[number])?;
            waits = Some(self.held.region.one(number));
        }
        Ok(LateView { mapped, waits: Mutex::new(waits), len_bytes })
    }
}

impl HeldRegion<Mapped> {
    /// The one extent that it holds.
    fn extent(&self) -> Extent {
        self.region.info().extents[self.extents.start]
    }

    fn private_after(&self, len_bytes: u64, room_bytes: usize) -> Result<PrivateMapping> {
        Ok(self.region.set().private_after(self.extent(), len_bytes, room_bytes)?)
    }
}

/// A copy-on-write view that is mapped when it is first asked for. Until then it holds the object's bytes, and costs the process
/// nothing else.
pub struct LateView {
    mapped: OnceLock<PrivateView>,
    /// What it holds until it is mapped.
    waits: Mutex<Option<HeldRegion<Mapped>>>,
    len_bytes: u64,
}

impl LateView {
    /// The view, mapped now if it was not.
    ///
    /// # Errors
    /// `Io` when the process has too many mappings; it may be asked again.
    pub fn mapped(&self) -> Result<&PrivateView> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(region) = waits.take() {
            match region.private_after(self.len_bytes, 0) {
                Ok(mapping) => drop(self.mapped.set(PrivateView::new(region, self.len_bytes, mapping))),
                Err(error) => {
                    *waits = Some(region);
                    return Err(error);
                }
            }
        }
        Ok(self.mapped.get().expect("it is mapped when nothing waits"))
    }

    /// Length of the view.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Copies the object's bytes without a mapping, as long as there is none.
    ///
    /// # Errors
    /// `BadBlock`, `Truncated`, `Io`; `LengthMismatch` when there is not room for exactly all of them.
    pub fn copy_to(&self, into: &mut [u8]) -> Result<()> {
        if into.len() as u64 != self.len_bytes {
            return Err(Error::LengthMismatch { got_bytes: into.len() as u64, expected_bytes: self.len_bytes });
        }
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = &*waits {
            held.guard()?;
            held.region.load_bytes(held.extents.start, 0, into);
            return Ok(());
        }
        drop(waits);
        let view = self.mapped()?;
        // SAFETY: the mapping has as many bytes, and `into` is no part of it: nobody else can have it.
        unsafe { std::ptr::copy_nonoverlapping(view.address(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }
}

/// A copy-on-write view of an object's bytes: stores to it stay in this process. When it is persisted again under its name,
/// only what was stored to need be copied, as long as nobody else has the object.
pub struct PrivateView {
    mapping: PrivateMapping,
    holders: Arc<Holders>,
    hold: Hold,
}

impl PrivateView {
    /// `region` holds the one extent that is mapped.
    fn new(region: HeldRegion<Mapped>, len_bytes: u64, mapping: PrivateMapping) -> PrivateView {
        let (extent, holders, holder) = (region.extent(), region.holders.clone(), region.holder);
        let hold: Hold = Arc::new(Mutex::new(Box::new(region)));
        let private = Private { extent, len_bytes, holder, hold: hold.clone(), copied: Arc::default() };
        holders.add_private(mapping.address().addr(), private);
        PrivateView { mapping, holders, hold }
    }

    /// First byte; readable and writable for [`PrivateView::len_bytes`], as long as the value lives.
    pub fn address(&self) -> *mut u8 {
        self.mapping.address()
    }

    /// Length of the view.
    pub fn len_bytes(&self) -> usize {
        self.mapping.len_bytes()
    }

    /// Populates the pages under it; see [`ObjectView::guard`].
    ///
    /// # Errors
    /// `BadBlock`, `Truncated`, `Io`.
    pub fn guard(&self) -> Result<()> {
        let hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        let held = hold.downcast_ref::<HeldRegion<Mapped>>().expect("what is mapped is held by what is mapped");
        held.guard()
    }
}

impl Drop for PrivateView {
    fn drop(&mut self) {
        // While the mapping is there still: nobody else can have its address.
        self.holders.remove_private(self.mapping.address().addr());
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
