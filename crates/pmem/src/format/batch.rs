//! The header of a log batch; its table is in the parent module.

use super::{BATCH_ALIGN, Decoder, Encoder};

/// A decoded batch header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub sequence: u64,
    pub durable_tail_bytes: u64,
    pub payload_bytes: u64,
    pub kind: u32,
    pub payload_crc: u32,
}

impl BatchHeader {
    pub(crate) const BYTES: usize = 64;

    pub(crate) fn encode(&self, seed: u32) -> [u8; Self::BYTES] {
        let mut e = Encoder::default();
        e.u64(self.sequence);
        e.u64(self.durable_tail_bytes);
        e.u64(self.payload_bytes);
        e.u32(self.kind);
        e.raw(&[0; 28]);
        e.u32(self.payload_crc);
        let mut bytes = [0; Self::BYTES];
        bytes[..60].copy_from_slice(&e.finish());
        let crc = crc32c::crc32c_append(seed, &bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header, when its checksum holds.
    pub(crate) fn decode(bytes: &[u8; Self::BYTES], seed: u32) -> Option<BatchHeader> {
        let mut d = Decoder::new(bytes);
        let (sequence, durable_tail_bytes, payload_bytes, kind) = (d.u64()?, d.u64()?, d.u64()?, d.u32()?);
        d.raw(28)?;
        let payload_crc = d.u32()?;
        (d.u32()? == crc32c::crc32c_append(seed, &bytes[..60])).then_some(BatchHeader {
            sequence,
            durable_tail_bytes,
            payload_bytes,
            kind,
            payload_crc,
        })
    }
}

/// Bytes that a batch with such a payload takes in its segment.
pub(crate) fn batch_bytes(payload_bytes: u64) -> u64 {
    (BatchHeader::BYTES as u64 + payload_bytes).next_multiple_of(BATCH_ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_any_flipped_bit_or_another_seed_is_refused() {
        let header =
            BatchHeader { sequence: 5, durable_tail_bytes: 512, payload_bytes: 100, kind: 1, payload_crc: 0xABCD };
        let bytes = header.encode(3);
        assert_eq!(BatchHeader::decode(&bytes, 3), Some(header));
        assert_eq!(BatchHeader::decode(&bytes, 4), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BatchHeader::decode(&flipped, 3), None, "bit {bit}");
        }
    }
}
