//! Reading the parts of a value where they lie.

use pmem::{Mapped, Media, Touch};

use super::{LateView, ObjectView, PrivateView, sum};
use crate::error::Result;
use crate::put::OWN_EXTENT_FROM_BYTES;
use crate::value::{Buffer, Node, Place};

/// What a value is made of. It holds the view.
pub struct Value<M: Media = Mapped> {
    pub(super) view: ObjectView<M>,
    pub(super) tree: Node,
    pub(super) places: Vec<Place>,
}

impl<M: Media> Value<M> {
    /// Its tree. Every buffer that a node names is there and as long as the node says.
    pub fn tree(&self) -> &Node {
        &self.tree
    }

    pub(crate) fn places(&self) -> &[Place] {
        &self.places
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
                let start = self.view.address_of(place.extent as usize);
                (start.wrapping_add(place.offset_bytes as usize), len_bytes)
            }
        }
    }

    /// How long a buffer is.
    ///
    /// # Panics
    /// If no node names it.
    pub fn len_bytes(&self, buffer: Buffer) -> u64 {
        self.places[buffer.0 as usize].len_bytes
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
        let mut bytes = pmem::zeroed(place.len_bytes as usize);
        if !bytes.is_empty() {
            self.guard(place)?;
            self.view.load(place.extent as usize, place.offset_bytes, &mut bytes);
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
        if self.view.redo().is_some_and(|redo| redo.touches(place.extent as usize)) {
            return self.view.guard();
        }
        let start = self.view.extents()[place.extent as usize].offset.plus(place.offset_bytes);
        Ok(self.view.region().set().guard(start, place.len_bytes, Touch::Load)?)
    }

    pub(super) fn verify(&self) -> Result<bool> {
        for place in &self.places {
            let Some(expected) = place.crc else { return Ok(false) };
            if place.len_bytes > 0 {
                self.guard(place)?;
            }
            let load = |at, into: &mut [u8]| {
                self.view.load(place.extent as usize, place.offset_bytes + at, into);
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
    pub fn private(&self, buffer: Buffer) -> Result<Option<PrivateView>> {
        self.private_after(buffer, 0)
    }

    /// As [`Value::private`], mapped when it is first asked for its address.
    ///
    /// # Errors
    /// As [`Value::private`].
    ///
    /// # Panics
    /// If no node names it.
    pub fn private_late(&self, buffer: Buffer) -> Result<Option<LateView>> {
        if self.shares_pages(buffer) {
            return Ok(None);
        }
        let place = &self.places[buffer.0 as usize];
        Ok(Some(self.view.late_of(place.extent as usize, place.len_bytes)?))
    }

    /// As [`Value::private`], with that many bytes of writable memory directly before the buffer.
    ///
    /// # Errors
    /// As [`Value::private`].
    ///
    /// # Panics
    /// If no node names it.
    pub fn private_after(&self, buffer: Buffer, room_bytes: usize) -> Result<Option<PrivateView>> {
        if self.shares_pages(buffer) {
            return Ok(None);
        }
        let place = &self.places[buffer.0 as usize];
        Ok(Some(self.view.private_of(place.extent as usize, place.len_bytes, room_bytes)?))
    }
}
