//! The catalogue in memory: what the log says, replayed.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::format::{CataloguePut, CatalogueRecord, Decoder, Encoder};
use crate::log::LogBatch;

/// Longest name in bytes.
pub const MAX_NAME_BYTES: usize = 1024;
/// Most bytes of meta data that a region carries.
pub const MAX_META_BYTES: usize = 1 << 20;
/// Most extents of one region.
pub const MAX_EXTENTS: usize = 8192;

/// Batch kind of a commit.
pub(crate) const COMMIT: u32 = 1;
/// Batch kind of a checkpoint.
pub(crate) const CHECKPOINT: u32 = 2;

/// What a name means: a region of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// The product's number for what it is.
    pub kind: u32,
    /// The product's flags.
    pub flags: u32,
    /// The generation in which it was committed.
    pub born: u64,
    /// Where it lies, in the product's order.
    pub extents: Vec<Extent>,
    /// The product's description, opaque to the core.
    pub meta: Vec<u8>,
}

impl RegionInfo {
    fn encoded_bytes(&self, name: &str) -> u64 {
        (1 + 2 + name.len() + 4 + 4 + 8 + 2 + 16 * self.extents.len() + 4 + self.meta.len()) as u64
    }
}

/// An extent that waits for older readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retired {
    pub extent: Extent,
    /// Readers that pin a generation below this may still see it.
    pub generation: u64,
}

/// Names, regions and retired extents at one generation.
#[derive(Clone, Default)]
pub(crate) struct Catalogue {
    pub names: BTreeMap<Box<str>, Arc<RegionInfo>>,
    /// By offset; they overlap neither one another nor anything live.
    pub retired: BTreeMap<u64, Retired>,
    pub generation: u64,
    /// Bytes that the names take in a checkpoint.
    encoded_bytes: u64,
}

/// One change, validated and ready to be logged and applied.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(Box<str>, Arc<RegionInfo>),
    Remove(Box<str>),
}

/// A name that the catalogue takes: 1 to 1024 bytes of UTF-8 without control characters. A commit checks its names; this
/// is for products that do much before they commit.
///
/// # Errors
/// `BadName`.
pub fn check_name(name: &str) -> Result<()> {
    let reason = match name {
        "" => "it is empty",
        _ if name.len() > MAX_NAME_BYTES => "it has more than 1024 bytes",
        _ if name.chars().any(char::is_control) => "it has a control character",
        _ => return Ok(()),
    };
    Err(Error::BadName { name: name.chars().take(64).collect(), reason })
}

impl Catalogue {
    /// Bytes of a checkpoint with this catalogue and `more_retired` further retired extents.
    pub(crate) fn checkpoint_bytes(&self, more_retired: usize) -> u64 {
        self.encoded_bytes + 25 * (self.retired.len() + more_retired) as u64
    }

    /// How the encoded size changes when this is applied.
    pub(crate) fn growth_bytes(&self, changes: &[Change]) -> i64 {
        let size_of = |name: &str| self.names.get(name).map_or(0, |r| r.encoded_bytes(name) as i64);
        changes
            .iter()
            .map(|change| match change {
                Change::Put(name, region) => region.encoded_bytes(name) as i64 - size_of(name),
                Change::Remove(name) => -size_of(name),
            })
            .sum()
    }

    /// The most extents that are retired when this is applied.
    pub(crate) fn retirements(&self, changes: &[Change]) -> usize {
        let of = |name: &str| self.names.get(name).map_or(0, |region| region.extents.len());
        changes.iter().map(|(Change::Put(name, _) | Change::Remove(name))| of(name)).sum()
    }

    pub(crate) fn encode_changes(changes: &[Change]) -> Vec<u8> {
        let mut e = Encoder::default();
        for change in changes {
            match change {
                Change::Put(name, region) => encode_put(name, region, &mut e),
                Change::Remove(name) => CatalogueRecord::Remove { name }.encode(&mut e),
            }
        }
        e.finish()
    }

    pub(crate) fn encode_checkpoint(&self, also_retired: &[Retired]) -> Vec<u8> {
        let mut e = Encoder::default();
        for (name, region) in &self.names {
            encode_put(name, region, &mut e);
        }
        for retired in self.retired.values().chain(also_retired) {
            CatalogueRecord::Retired { extent: retired.extent, generation: retired.generation }.encode(&mut e);
        }
        e.finish()
    }

    /// Applies what has been logged as `generation`.
    pub(crate) fn apply(&mut self, changes: Vec<Change>, generation: u64) {
        for change in changes {
            match change {
                Change::Put(name, region) => {
                    // What a name of the same batch has left to it does not wait to be reclaimed.
                    region.extents.iter().for_each(|&extent| self.reused(extent));
                    self.put(name, region, generation);
                }
                Change::Remove(name) => drop(self.remove(&name, generation)),
            }
        }
        self.generation = generation;
    }

    /// Notes that the log went on in a new segment: a generation without a change but for the old segment.
    pub(crate) fn compacted(&mut self, old: Retired) {
        self.retire(old);
        self.generation = old.generation;
    }

    /// Takes a batch in replay; false when its content makes no sense.
    pub(crate) fn replay(&mut self, batch: &LogBatch) -> bool {
        let first = self.generation == 0;
        if (batch.kind == CHECKPOINT) != first {
            return false;
        }
        let mut d = Decoder::new(&batch.payload);
        while !d.is_empty() {
            let Some(record) = CatalogueRecord::decode(&mut d) else { return false };
            if !self.replay_record(record, batch) {
                return false;
            }
        }
        self.generation = batch.sequence;
        true
    }

    fn replay_record(&mut self, record: CatalogueRecord<'_>, batch: &LogBatch) -> bool {
        match record {
            CatalogueRecord::Put(CataloguePut { name, kind, flags, born, extents, meta }) => {
                let sane = check_name(name).is_ok()
                    && born > 0
                    && born <= batch.sequence
                    && extents.len() <= MAX_EXTENTS
                    && meta.len() <= MAX_META_BYTES
                    && extents.iter().all(Extent::is_in_range);
                if !sane {
                    return false;
                }
                extents.iter().for_each(|extent| self.reused(*extent));
                let region = RegionInfo { kind, flags, born, extents, meta: meta.to_vec() };
                self.put(name.into(), Arc::new(region), batch.sequence);
                true
            }
            CatalogueRecord::Remove { name } => self.remove(name, batch.sequence).is_some(),
            CatalogueRecord::Retired { extent, generation } => {
                let sane = batch.kind == CHECKPOINT && generation <= batch.sequence && extent.is_in_range();
                if sane {
                    self.retire(Retired { extent, generation });
                }
                sane
            }
        }
    }

    fn put(&mut self, name: Box<str>, region: Arc<RegionInfo>, generation: u64) {
        self.encoded_bytes += region.encoded_bytes(&name);
        let kept = region.clone();
        if let Some(old) = self.names.insert(name.clone(), region) {
            self.encoded_bytes -= old.encoded_bytes(&name);
            let kept: HashSet<&Extent> = kept.extents.iter().collect();
            let gone = old.extents.iter().filter(|extent| !kept.contains(extent));
            gone.for_each(|&extent| self.retire(Retired { extent, generation }));
        }
    }

    fn remove(&mut self, name: &str, generation: u64) -> Option<()> {
        let old = self.names.remove(name)?;
        self.encoded_bytes -= old.encoded_bytes(name);
        old.extents.iter().for_each(|&extent| self.retire(Retired { extent, generation }));
        Some(())
    }

    fn retire(&mut self, retired: Retired) {
        self.retired.insert(retired.extent.offset.to_word(), retired);
    }

    /// Notes that an extent is in use. What was retired there was reclaimed before, whole, or is taken over by this
    /// very batch, so it is not waiting any more.
    pub(crate) fn reused(&mut self, extent: Extent) {
        let (start, end) = (extent.offset.to_word(), extent.offset.to_word().saturating_add(extent.len_bytes));
        while let Some((&at, _)) =
            self.retired.range(..end).next_back().filter(|(at, old)| *at + old.extent.len_bytes > start)
        {
            self.retired.remove(&at);
        }
    }

    /// Takes out the retired extents that no reader below their generation can see, given the oldest pin.
    pub(crate) fn take_unpinned(&mut self, oldest_pin: Option<u64>) -> Vec<Extent> {
        let unpinned = |_: &u64, retired: &mut Retired| oldest_pin.is_none_or(|pin| pin >= retired.generation);
        self.retired.extract_if(.., unpinned).map(|(_, retired)| retired.extent).collect()
    }

    /// The newest generation in which something was retired.
    pub(crate) fn newest_retired(&self) -> Option<u64> {
        self.retired.values().map(|retired| retired.generation).max()
    }

    /// Every extent in use: regions and retired ones.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        let live = self.names.values().flat_map(|region| region.extents.iter().copied());
        live.chain(self.retired.values().map(|retired| retired.extent))
    }
}

fn encode_put(name: &str, region: &RegionInfo, e: &mut Encoder) {
    let put = CataloguePut {
        name,
        kind: region.kind,
        flags: region.flags,
        born: region.born,
        extents: region.extents.clone(),
        meta: &region.meta,
    };
    CatalogueRecord::Put(put).encode(e);
}
