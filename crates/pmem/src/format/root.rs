//! The root cell of part 0: where the catalogue's log segment lies.
//!
//! | offset | size | field | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 8 | segment | offset of the log segment |
//! | 8 | 8 | length | bytes of the log segment |
//! | 16 | 8 | generation | of the segment; seeds the checksums of its batches |
//! | 24 | 8 | first | sequence of the segment's first batch, a checkpoint |
//! | 32 | 208 | | reserved, zero |
//! | 240 | 16 | trailer | of the double cell |

use super::{Decoder, Encoder, ROOT_BYTES};
use crate::cell::TRAILER_BYTES;
use crate::extent::Extent;
use crate::set::Offset;

/// A decoded root cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub segment: Extent,
    pub segment_generation: u64,
    pub first_sequence: u64,
}

impl Root {
    /// Bytes of a root cell without its trailer.
    pub(crate) const BYTES: usize = ROOT_BYTES - TRAILER_BYTES;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut e = Encoder::default();
        e.u64(self.segment.offset.to_word());
        e.u64(self.segment.len_bytes);
        e.u64(self.segment_generation);
        e.u64(self.first_sequence);
        let mut bytes = e.finish();
        bytes.resize(Self::BYTES, 0);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Root> {
        let mut d = Decoder::new(bytes);
        let segment = Extent { offset: Offset::from_word(d.u64()?), len_bytes: d.u64()? };
        let (segment_generation, first_sequence) = (d.u64()?, d.u64()?);
        (segment.len_bytes != 0).then_some(Root { segment, segment_generation, first_sequence })
    }
}
