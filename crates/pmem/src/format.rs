//! Every byte that the core puts on a medium: positions, sizes and encodings, and nothing else knows them.
#![doc = include_str!("../../../docs/src/formats/pool.md")]

mod batch;
mod codec;
mod record;
mod root;
mod superblock;

pub(crate) use batch::{BatchHeader, batch_bytes};
pub(crate) use codec::{Decoder, Encoder};
pub(crate) use record::{CataloguePut, CatalogueRecord};
pub(crate) use root::Root;
pub(crate) use superblock::{NextPart, PartState, Superblock};

use crate::error::Uuid;
use crate::media::Stripe;

/// Bytes at the start of each file that hold no extents.
pub(crate) const HEAD_BYTES: u64 = Stripe::HEAD_BYTES;
/// Where the two superblocks lie in each file.
pub(crate) const SUPERBLOCK_AT: [u64; 2] = [0, 1 << 20];
/// Bytes of a superblock slot, its cell trailer included.
pub(crate) const SUPERBLOCK_BYTES: usize = 4096;
/// Where the two root cells lie in part 0.
pub(crate) const ROOT_AT: [u64; 2] = [4096, (1 << 20) + 4096];
/// Bytes of a root slot, its cell trailer included.
pub(crate) const ROOT_BYTES: usize = 256;
/// Where the tail hint lies in part 0.
pub(crate) const TAIL_HINT_AT: u64 = 8192;
/// The format version that this code writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;
/// Incompatible features that this code knows: none yet.
pub(crate) const KNOWN_INCOMPATIBLE: u64 = 0;
/// Read-only-compatible features that this code knows: none yet.
pub(crate) const KNOWN_READ_ONLY_COMPATIBLE: u64 = 0;
/// Checksum algorithm 1: CRC-32C (Castagnoli, RFC 3720 appendix B.4).
pub(crate) const CHECKSUM_CRC32C: u32 = 1;
/// Batches of a log start at multiples of this: the write granule of the devices that combine most (Optane).
pub(crate) const BATCH_ALIGN: u64 = 256;
/// Extents are multiples of this.
pub(crate) const EXTENT_ALIGN: u64 = 64;
/// Extents of at least this size are aligned to it, so that huge pages can map them.
pub(crate) const LARGE_EXTENT: u64 = 2 << 20;

const _: () = {
    assert!(SUPERBLOCK_AT[0] + SUPERBLOCK_BYTES as u64 <= ROOT_AT[0]);
    assert!(ROOT_AT[0] + ROOT_BYTES as u64 <= TAIL_HINT_AT);
    assert!(SUPERBLOCK_AT[1] + SUPERBLOCK_BYTES as u64 <= ROOT_AT[1]);
    assert!(ROOT_AT[1] + ROOT_BYTES as u64 <= HEAD_BYTES);
    assert!(BATCH_ALIGN.is_multiple_of(EXTENT_ALIGN) && LARGE_EXTENT.is_multiple_of(BATCH_ALIGN));
};

/// CRC seed of everything that belongs to one incarnation of a structure: bytes left over from another pool, or from
/// an earlier use of the same place, never check.
pub(crate) fn seed(owner: Uuid, generation: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&owner.0), &generation.to_le_bytes())
}

/// As [`seed`], for the logs of products: what looks like one of theirs is never taken for the pool's own.
pub(crate) fn product_seed(owner: Uuid, generation: u64) -> u32 {
    crc32c::crc32c_append(seed(owner, generation), b"product")
}

/// The tail hint: the low 40 bits of the newest durable sequence number below 24 bits of CRC.
///
/// It is stored after each commit and not waited for. A hint that checks proves that the commit it names was durable.
pub(crate) fn encode_tail_hint(seed: u32, sequence: u64) -> u64 {
    let low = sequence & TAIL_HINT_MASK;
    low | u64::from(crc32c::crc32c_append(seed, &low.to_le_bytes()) >> 8) << 40
}

/// The sequence number's low 40 bits, or none when the hint does not check.
pub(crate) fn decode_tail_hint(seed: u32, word: u64) -> Option<u64> {
    (encode_tail_hint(seed, word) == word).then_some(word & TAIL_HINT_MASK)
}

/// The bits of a sequence number that a tail hint keeps.
pub(crate) const TAIL_HINT_MASK: u64 = (1 << 40) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_hint_with_any_flipped_bit_does_not_check() {
        let word = encode_tail_hint(7, 123_456_789);
        assert_eq!(decode_tail_hint(7, word), Some(123_456_789));
        assert_eq!(decode_tail_hint(8, word), None);
        for bit in 0..64 {
            assert_eq!(decode_tail_hint(7, word ^ 1 << bit), None, "bit {bit}");
        }
    }
}
