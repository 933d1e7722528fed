//! Named regions as they are read: pinned, and where they lie.

use std::sync::Arc;

use crate::catalogue::RegionInfo;
use crate::error::Result;
use crate::media::{Media, Touch};
use crate::pins::Pin;
use crate::pool::Shared;
use crate::set::PoolSet;

/// A named region, pinned: its extents stay as they are while this lives, whatever becomes of the name.
pub struct Region<M: Media> {
    name: Arc<str>,
    info: Arc<RegionInfo>,
    pin: Pin,
    shared: Arc<Shared<M>>,
}

impl<M: Media> Clone for Region<M> {
    fn clone(&self) -> Self {
        Region { name: self.name.clone(), info: self.info.clone(), pin: self.pin.clone(), shared: self.shared.clone() }
    }
}

impl<M: Media> Region<M> {
    pub(crate) fn new(name: &str, info: Arc<RegionInfo>, pin: Pin, shared: Arc<Shared<M>>) -> Region<M> {
        Region { name: name.into(), info, pin, shared }
    }

    /// Its name when it was looked up.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the catalogue says of it.
    pub fn info(&self) -> &RegionInfo {
        &self.info
    }

    /// The generation that it is pinned at.
    pub fn generation(&self) -> u64 {
        self.pin.generation()
    }

    /// The address space that it lies in.
    pub fn set(&self) -> &PoolSet<M> {
        &self.shared.set
    }

    /// Address of the first byte of an extent; valid as long as the region lives.
    ///
    /// # Panics
    /// If there is no such extent.
    pub fn address(&self, extent: usize) -> *mut u8 {
        self.shared.set.address(self.info.extents[extent].offset)
    }

    /// Populates its extents, so that what is lost is an error here and no signal later.
    ///
    /// # Errors
    /// `BadBlock`, `Truncated`, `Io`.
    pub fn guard(&self) -> Result<()> {
        self.info.extents.iter().try_for_each(|e| self.shared.set.guard(e.offset, e.len_bytes, Touch::Load))
    }

    /// Copies bytes of an extent out.
    ///
    /// # Panics
    /// If the range leaves the extent.
    pub fn load_bytes(&self, extent: usize, offset_bytes: u64, into: &mut [u8]) {
        let e = self.info.extents[extent];
        assert!(offset_bytes + into.len() as u64 <= e.len_bytes, "the range leaves the extent");
        self.shared.set.load_bytes(e.offset.plus(offset_bytes), into);
    }
}
