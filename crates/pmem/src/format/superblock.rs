//! The superblock of a file; its table is in the parent module.

use super::{CHECKSUM_CRC32C, Decoder, Encoder, FORMAT_VERSION, SUPERBLOCK_BYTES};
use crate::cell::TRAILER_BYTES;
use crate::error::Uuid;
use crate::media::Stripe;

const MAGIC: &[u8; 8] = b"REMANENT";
const LAYOUT_BYTES: usize = 32;
/// Room for the names.
pub(crate) const NAMES_BYTES: usize = SUPERBLOCK_BYTES - TRAILER_BYTES - 176;

/// Whether the pool was closed in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartState {
    /// Closed; the log must end at the clean tail exactly.
    Clean,
    /// Open, or not closed in order; the log may end torn.
    Dirty,
    /// A further part that was linked to the one before. Until then it is `Clean`.
    Linked,
}

/// A decoded superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub version: u32,
    pub compatible: u64,
    pub read_only_compatible: u64,
    pub incompatible: u64,
    pub set: Uuid,
    pub part: Uuid,
    pub index: u32,
    pub stripe: Stripe,
    pub member: u16,
    pub length_bytes: u64,
    pub layout_version: u32,
    pub state: PartState,
    pub clean_tail: u64,
    pub created_s: u64,
    pub layout: String,
    pub next: Option<NextPart>,
    pub member_names: Vec<Vec<u8>>,
}

/// The link to the part that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NextPart {
    pub part: Uuid,
    pub length_bytes: u64,
    pub name: Vec<u8>,
}

impl Superblock {
    /// Bytes of a superblock without its cell trailer.
    pub(crate) const BYTES: usize = SUPERBLOCK_BYTES - TRAILER_BYTES;

    /// Whether a layout name can be stored.
    pub(crate) fn layout_fits(layout: &str) -> bool {
        !layout.is_empty() && layout.len() <= LAYOUT_BYTES && !layout.contains('\0')
    }

    /// Whether this is what an interrupted growth has left of a set: a part of it that was never linked.
    pub(crate) fn is_orphan_of(&self, set: Uuid, index: u32) -> bool {
        self.set == set && self.index == index && self.state == PartState::Clean
    }

    /// Whether the names can be stored.
    pub(crate) fn names_fit(&self) -> bool {
        let next = self.next.as_ref().map_or(0, |n| n.name.len());
        2 + next + self.member_names.iter().map(|n| 2 + n.len()).sum::<usize>() <= NAMES_BYTES
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut e = Encoder::default();
        e.raw(MAGIC);
        e.u32(self.version);
        e.u32(CHECKSUM_CRC32C);
        e.u64(self.compatible);
        e.u64(self.read_only_compatible);
        e.u64(self.incompatible);
        e.raw(&self.set.0);
        e.raw(&self.part.0);
        e.u32(self.index);
        e.u16(self.stripe.members);
        e.u16(self.member);
        e.u64(self.stripe.chunk_bytes);
        e.u64(self.length_bytes);
        e.u32(self.layout_version);
        e.u32(match self.state {
            PartState::Clean => 1,
            PartState::Dirty => 2,
            PartState::Linked => 3,
        });
        e.u64(self.clean_tail);
        e.u64(self.created_s);
        let mut layout = [0; LAYOUT_BYTES];
        layout[..self.layout.len()].copy_from_slice(self.layout.as_bytes());
        e.raw(&layout);
        let (next, next_length, next_name) =
            self.next.as_ref().map_or((Uuid::default(), 0, &[][..]), |n| (n.part, n.length_bytes, &n.name[..]));
        e.raw(&next.0);
        e.u64(next_length);
        debug_assert_eq!(e.len(), 176);
        e.short_bytes(next_name);
        for name in &self.member_names {
            e.short_bytes(name);
        }
        let mut bytes = e.finish();
        assert!(bytes.len() <= Self::BYTES, "names were checked to fit");
        bytes.resize(Self::BYTES, 0);
        bytes
    }

    /// Whether the bytes begin like a superblock, whatever its version.
    pub(crate) fn has_magic(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// The version field, which keeps its place in every version.
    pub(crate) fn version_of(bytes: &[u8]) -> u32 {
        u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"))
    }

    /// Decodes what passed its checksum; `None` when a field makes no sense all the same.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Superblock> {
        let mut d = Decoder::new(bytes);
        if d.raw(8)? != MAGIC {
            return None;
        }
        let version = d.u32()?;
        if version != FORMAT_VERSION || d.u32()? != CHECKSUM_CRC32C {
            return None;
        }
        let (compatible, read_only_compatible, incompatible) = (d.u64()?, d.u64()?, d.u64()?);
        let (set, part, index) = (d.uuid()?, d.uuid()?, d.u32()?);
        let (members, member, chunk_bytes) = (d.u16()?, d.u16()?, d.u64()?);
        if members == 0 || member >= members || chunk_bytes == 0 || chunk_bytes % Stripe::HEAD_BYTES != 0 {
            return None;
        }
        let (length_bytes, layout_version) = (d.u64()?, d.u32()?);
        let state = match d.u32()? {
            1 => PartState::Clean,
            2 => PartState::Dirty,
            3 => PartState::Linked,
            _ => return None,
        };
        let (clean_tail, created_s) = (d.u64()?, d.u64()?);
        let layout = d.raw(LAYOUT_BYTES)?;
        let layout = String::from_utf8(layout[..layout.iter().position(|&b| b == 0).unwrap_or(LAYOUT_BYTES)].to_vec());
        let (next_part, next_length) = (d.uuid()?, d.u64()?);
        let next_name = d.short_bytes()?.to_vec();
        let next = (next_part != Uuid::default()).then_some(NextPart {
            part: next_part,
            length_bytes: next_length,
            name: next_name,
        });
        let mut member_names = Vec::new();
        if member == 0 {
            for _ in 1..members {
                member_names.push(d.short_bytes()?.to_vec());
            }
        }
        Some(Superblock {
            version,
            compatible,
            read_only_compatible,
            incompatible,
            set,
            part,
            index,
            stripe: Stripe { members, chunk_bytes },
            member,
            length_bytes,
            layout_version,
            state,
            clean_tail,
            created_s,
            layout: layout.ok()?,
            next,
            member_names,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            version: FORMAT_VERSION,
            compatible: 1,
            read_only_compatible: 2,
            incompatible: 4,
            set: Uuid([1; 16]),
            part: Uuid([2; 16]),
            index: 3,
            stripe: Stripe { members: 2, chunk_bytes: 4 << 20 },
            member: 0,
            length_bytes: 1 << 30,
            layout_version: 7,
            state: PartState::Dirty,
            clean_tail: 99,
            created_s: 1_700_000_000,
            layout: "store".into(),
            next: Some(NextPart { part: Uuid([5; 16]), length_bytes: 1 << 20, name: b"p.1".to_vec() }),
            member_names: vec![b"/mnt/b/p".to_vec()],
        }
    }

    #[test]
    fn decodes_what_it_encoded_at_the_documented_positions() {
        let bytes = sample().encode();
        assert_eq!(Superblock::decode(&bytes), Some(sample()));
        assert_eq!(&bytes[..8], b"REMANENT");
        assert_eq!(bytes[40..56], [1; 16]);
        assert_eq!(u64::from_le_bytes(bytes[88..96].try_into().unwrap()), 1 << 30);
        assert_eq!(u64::from_le_bytes(bytes[104..112].try_into().unwrap()), 99);
        assert_eq!(&bytes[120..125], b"store");
        assert_eq!(bytes[152..168], [5; 16]);
        assert_eq!(&bytes[178..181], b"p.1");
    }

    #[test]
    fn refuses_members_and_states_that_make_no_sense() {
        for (offset, value) in [(76, 0), (78, 2), (100, 4), (0, b'r'), (12, 9)] {
            let mut bytes = sample().encode();
            bytes[offset] = value;
            assert_eq!(Superblock::decode(&bytes), None, "byte {offset}");
        }
    }
}
