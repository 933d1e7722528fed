//! Every byte of the durable table of the join.
#![doc = include_str!("../../../docs/src/formats/join.md")]

use crate::join::Row;

/// The version that this code writes and reads.
const VERSION: u32 = 1;
/// The region's kind.
pub(crate) const KIND: u32 = 1;
/// Bytes of a block: what a common medium writes at once.
pub(crate) const BLOCK_BYTES: u64 = 256;

/// Where the fields of the head of the meta data lie.
mod at {
    pub(super) const VERSION: usize = 0;
    pub(super) const WORDS: usize = 4;
    pub(super) const CHAINS: usize = 8;
    pub(super) const BLOCKS: usize = 16;
    pub(super) const END: usize = 24;
}

/// Where the fields of an entry lie.
pub(crate) mod entry_at {
    pub(crate) const NEXT: u64 = 0;
    pub(crate) const KEY: u64 = 8;
    pub(crate) const VALUE: u64 = 16;
}

const _: () = {
    assert!(at::WORDS == at::VERSION + 4 && at::CHAINS == at::WORDS + 4 && at::BLOCKS == at::CHAINS + 8);
    assert!(at::END == at::BLOCKS + 8);
    assert!(entry_at::KEY == entry_at::NEXT + 8 && entry_at::VALUE == entry_at::KEY + 8);
};

/// Where everything in the extent lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    words: u32,
    /// How many heads.
    pub(crate) chains: u64,
    /// How many blocks.
    pub(crate) blocks: u64,
}

impl Places {
    /// For rows of so many words beside the key; none when they do not fit into a block.
    pub(crate) fn new(words: usize, chains: u64, blocks: u64) -> Option<Places> {
        let fits = (1..=(BLOCK_BYTES - entry_at::VALUE) as usize / 8).contains(&words);
        let is_sound = fits && chains.is_power_of_two() && (2..1 << 40).contains(&chains) && blocks < 1 << 40;
        is_sound.then_some(Places { words: words as u32, chains, blocks })
    }

    pub(crate) fn decode(meta: &[u8]) -> Option<Places> {
        if meta.len() != at::END {
            return None;
        }
        let u32_at = |at: usize| u32::from_le_bytes(meta[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(meta[at..at + 8].try_into().expect("8 bytes"));
        if u32_at(at::VERSION) != VERSION {
            return None;
        }
        Places::new(u32_at(at::WORDS) as usize, u64_at(at::CHAINS), u64_at(at::BLOCKS))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut meta = Vec::with_capacity(at::END);
        meta.extend(VERSION.to_le_bytes());
        meta.extend(self.words.to_le_bytes());
        meta.extend(self.chains.to_le_bytes());
        meta.extend(self.blocks.to_le_bytes());
        meta
    }

    pub(crate) fn words(&self) -> usize {
        self.words as usize
    }

    /// Bytes of the heads.
    pub(crate) fn heads_bytes(&self) -> u64 {
        8 * self.chains
    }

    fn blocks_at(&self) -> u64 {
        self.heads_bytes().next_multiple_of(BLOCK_BYTES)
    }

    /// Bytes of the extent.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.blocks_at() + self.blocks * BLOCK_BYTES
    }

    pub(crate) fn entry_bytes(&self) -> u64 {
        entry_at::VALUE + 8 * u64::from(self.words)
    }

    /// Entries in a block.
    pub(crate) fn block_entries(&self) -> u64 {
        BLOCK_BYTES / self.entry_bytes()
    }

    /// Number of a block's first entry.
    pub(crate) fn first_entry(&self, block: u64) -> u64 {
        block * self.block_entries() + 1
    }

    /// The block of an entry.
    pub(crate) fn block_of(&self, entry: u64) -> u64 {
        (entry - 1) / self.block_entries()
    }

    /// Whether there is an entry of this number.
    pub(crate) fn has_entry(&self, entry: u64) -> bool {
        entry > 0 && self.block_of(entry) < self.blocks
    }

    /// Where a head lies in the extent.
    pub(crate) fn head_at(&self, chain: u64) -> u64 {
        8 * chain
    }

    /// Where an entry lies in the extent.
    pub(crate) fn entry_at(&self, entry: u64) -> u64 {
        let within = (entry - 1) % self.block_entries();
        self.blocks_at() + self.block_of(entry) * BLOCK_BYTES + within * self.entry_bytes()
    }
}

/// Appends the bytes of an entry.
pub(crate) fn encode_entry<const W: usize>(next: u64, row: &Row<W>, into: &mut Vec<u8>) {
    into.extend(next.to_le_bytes());
    into.extend(row.key.to_le_bytes());
    row.value.iter().for_each(|word| into.extend(word.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_anything_else_is_refused() {
        let places = Places::new(2, 8, 5).unwrap();
        let meta = places.encode();
        assert_eq!(Places::decode(&meta), Some(places));
        assert_eq!(Places::decode(&meta[1..]), None);
        for (at, byte) in [(0, 2), (4, 0), (4, 31), (8, 7), (8, 1), (13, 1), (21, 1)] {
            let mut meta = meta.clone();
            meta[at] = byte;
            assert_eq!(Places::decode(&meta), None, "byte {at} is {byte}");
        }
    }

    #[test]
    fn entries_lie_side_by_side_in_blocks() {
        for (words, entries) in [(1, 10), (2, 8), (4, 5), (9, 2), (16, 1), (30, 1)] {
            let places = Places::new(words, 2, 3).unwrap();
            assert_eq!(places.block_entries(), entries);
            let last = 3 * entries;
            assert!(
                places.has_entry(1) && places.has_entry(last) && !places.has_entry(0) && !places.has_entry(last + 1)
            );
            assert_eq!(places.entry_at(1), 256);
            assert_eq!(places.entry_at(entries + 1), 512);
            assert_eq!((places.block_of(entries), places.block_of(entries + 1)), (0, 1));
            assert!(places.entry_at(last) + places.entry_bytes() <= places.len_bytes());
        }
    }
}
