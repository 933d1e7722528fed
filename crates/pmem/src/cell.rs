//! A record kept twice: the double cell.
//!
//! Its table is in the page on the pool format.
//!
//! # Invariants
//! 1. Slot A is durable before slot B is touched, and slot B before a write returns: at most one slot is ever torn.
//! 2. Both slots hold the same generation when a write has returned, so one damaged slot loses nothing.
//! 3. A writer that finds the slots different makes them equal before it writes anything new ([`DoubleCell::repair`]):
//!    else a torn slot A could fall back behind a generation that somebody has seen.

use crate::error::{Error, Result};
use crate::media::{Media, Touch};
use crate::set::{Offset, Pending, PoolSet};

/// Bytes of a slot's trailer.
pub const TRAILER_BYTES: usize = 16;

/// Generation and payload of a slot that checks.
pub(crate) type Slot = (u64, Vec<u8>);

/// Where the slots lie and how they are sealed.
#[derive(Clone, Copy, Debug)]
pub struct DoubleCell {
    slots: [Offset; 2],
    payload_bytes: usize,
    seed: u32,
}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellValue {
    /// The payload of the newest valid slot.
    pub payload: Vec<u8>,
    /// Its generation.
    pub generation: u64,
    /// Whether the other slot holds the same.
    pub mirrored: bool,
    /// The slot that it came from.
    newest: usize,
}

impl DoubleCell {
    /// A cell of two slots.
    ///
    /// # Panics
    /// If a slot is not aligned to 64 bytes or its size not a multiple of 8.
    pub fn new(slots: [Offset; 2], payload_bytes: usize, seed: u32) -> DoubleCell {
        assert!(slots.iter().all(|s| s.byte() % 64 == 0) && payload_bytes.is_multiple_of(8));
        DoubleCell { slots, payload_bytes, seed }
    }

    /// Unseals one slot's bytes: payload length, generation. For readers that have no mapping yet.
    pub(crate) fn unseal(bytes: &[u8], seed: u32) -> Option<u64> {
        let (sealed, trailer) = bytes.split_at(bytes.len().checked_sub(TRAILER_BYTES)? + 8);
        let crc = u32::from_le_bytes(trailer[..4].try_into().ok()?);
        let generation = u64::from_le_bytes(sealed[sealed.len() - 8..].try_into().ok()?);
        (is_generation(generation) && crc == crc32c::crc32c_append(seed, sealed)).then_some(generation)
    }

    /// The newest valid payload, or none when neither slot checks. A slot that cannot be read does not check.
    ///
    /// # Errors
    /// `Truncated`, `Io`.
    pub fn read<M: Media>(&self, set: &PoolSet<M>) -> Result<Option<CellValue>> {
        let slots = self.read_slots(set)?;
        let mirrored = slots[0].is_some() && slots[0] == slots[1];
        let generations = slots.each_ref().map(|slot| slot.as_ref().map_or(0, |slot| slot.0));
        let newest = usize::from(generations[1] > generations[0]);
        let value = slots.into_iter().nth(newest).flatten();
        Ok(value.map(|(generation, payload)| CellValue { payload, generation, mirrored, newest }))
    }

    /// Each slot's generation and payload, or none where it does not check.
    pub(crate) fn read_slots<M: Media>(&self, set: &PoolSet<M>) -> Result<[Option<Slot>; 2]> {
        let [a, b] = self.slots.map(|slot| self.read_slot(set, slot));
        Ok([a?, b?])
    }

    fn read_slot<M: Media>(&self, set: &PoolSet<M>, slot: Offset) -> Result<Option<Slot>> {
        let mut bytes = vec![0; self.payload_bytes + TRAILER_BYTES];
        match set.guard(slot, bytes.len() as u64, Touch::Load) {
            // One lost slot is what the other is for.
            Err(Error::BadBlock { .. }) => return Ok(None),
            result => result?,
        }
        set.load_bytes(slot, &mut bytes);
        let Some(generation) = Self::unseal(&bytes, self.seed) else { return Ok(None) };
        bytes.truncate(self.payload_bytes);
        Ok(Some((generation, bytes)))
    }

    /// Writes both slots, one after the other; durable on return.
    ///
    /// # Errors
    /// `BadBlock`, `Truncated`, `FileSystemFull`, `Io`: the cell cannot be written to, and was not; `Corrupt`: nor with
    /// this generation, which no cell can have reached. After a write-back that failed, `Io` and `WritesRefused`: it holds
    /// the old or the new value, and the pool refuses further writes.
    pub fn write<M: Media>(&self, set: &PoolSet<M>, generation: u64, payload: &[u8]) -> Result<()> {
        if !is_generation(generation) {
            let path = set.path().to_owned();
            return Err(Error::Corrupt { path, what: "a generation", offset_bytes: self.slots[0].byte() });
        }
        self.guard(set)?;
        for slot in self.slots {
            self.write_slot(set, slot, generation, payload)?;
        }
        Ok(())
    }

    /// Makes sure that both slots can be written to, so that no store to the second one fails after the first.
    pub(crate) fn guard<M: Media>(&self, set: &PoolSet<M>) -> Result<()> {
        self.slots.iter().try_for_each(|&slot| set.guard(slot, self.slot_bytes(), Touch::Store))
    }

    fn slot_bytes(&self) -> u64 {
        (self.payload_bytes + TRAILER_BYTES) as u64
    }

    /// Makes both slots equal; they are durable after the next fence of `pending`. Idempotent.
    ///
    /// A slot that was read may be visible without being durable (its writer was killed before the fence), so the
    /// newest is persisted as it is before the other one is touched.
    pub fn repair<M: Media>(&self, set: &PoolSet<M>, value: &CellValue, pending: &mut Pending) -> Result<()> {
        self.guard(set)?;
        let slot_bytes = self.slot_bytes();
        let [newest, other] = if value.newest == 0 { self.slots } else { [self.slots[1], self.slots[0]] };
        set.flush_adopted(pending, newest, slot_bytes);
        if value.mirrored {
            set.flush_adopted(pending, other, slot_bytes);
            return Ok(());
        }
        set.fence(pending)?;
        self.write_slot(set, other, value.generation, &value.payload)
    }

    /// Flushes both slots as they are, but for one that is lost; they are durable after the next fence of `pending`.
    ///
    /// # Errors
    /// `Truncated`, `Io`.
    pub fn flush_slots<M: Media>(&self, set: &PoolSet<M>, pending: &mut Pending) -> Result<()> {
        let slot_bytes = self.slot_bytes();
        for slot in self.slots {
            match set.guard(slot, slot_bytes, Touch::Load) {
                Err(Error::BadBlock { .. }) => {}
                result => result.map(|()| set.flush(pending, slot, slot_bytes))?,
            }
        }
        Ok(())
    }

    /// Writes a slot that was guarded.
    fn write_slot<M: Media>(&self, set: &PoolSet<M>, slot: Offset, generation: u64, payload: &[u8]) -> Result<()> {
        assert!(payload.len() == self.payload_bytes && is_generation(generation));
        let mut bytes = Vec::with_capacity(self.payload_bytes + TRAILER_BYTES);
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(&generation.to_le_bytes());
        let crc = crc32c::crc32c_append(self.seed, &bytes);
        bytes.extend_from_slice(&u64::from(crc).to_le_bytes());
        let mut pending = Pending::new();
        set.store_bytes(slot, &bytes);
        set.flush(&mut pending, slot, bytes.len() as u64);
        set.fence(&mut pending)
    }
}

/// Generations stay below this, which no cell reaches by being written; one that claims more does not check.
const MAX_GENERATION: u64 = 1 << 60;

fn is_generation(generation: u64) -> bool {
    (1..MAX_GENERATION).contains(&generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_that_nobody_can_have_written_does_not_check() {
        let sealed = |generation: u64| {
            let mut bytes = vec![7; 40];
            bytes.extend(generation.to_le_bytes());
            let crc = crc32c::crc32c_append(5, &bytes);
            bytes.extend(u64::from(crc).to_le_bytes());
            DoubleCell::unseal(&bytes, 5)
        };
        assert_eq!([1, MAX_GENERATION - 1].map(sealed), [Some(1), Some(MAX_GENERATION - 1)]);
        assert_eq!([0, MAX_GENERATION, u64::MAX].map(sealed), [None; 3]);
    }
}
