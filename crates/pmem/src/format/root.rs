//! The root cell of part 0; its table is in the parent module.

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
