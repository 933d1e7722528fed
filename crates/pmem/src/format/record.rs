//! The records that make up the payload of a catalogue batch; its table is in the parent module.

use super::{Decoder, Encoder};
use crate::extent::Extent;
use crate::set::Offset;

/// One catalogue record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CatalogueRecord<'a> {
    /// The name now means this region.
    Put(CataloguePut<'a>),
    /// The name is gone.
    Remove { name: &'a str },
    /// An extent that is free for all but older readers.
    Retired { extent: Extent, generation: u64 },
}

/// The body of a put record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CataloguePut<'a> {
    pub name: &'a str,
    pub kind: u32,
    pub flags: u32,
    pub born: u64,
    pub extents: Vec<Extent>,
    pub meta: &'a [u8],
}

impl<'a> CatalogueRecord<'a> {
    pub(crate) fn encode(&self, e: &mut Encoder) {
        match self {
            CatalogueRecord::Put(put) => {
                e.u8(1);
                e.short_bytes(put.name.as_bytes());
                e.u32(put.kind);
                e.u32(put.flags);
                e.u64(put.born);
                e.u16(u16::try_from(put.extents.len()).expect("the number of extents was checked"));
                for extent in &put.extents {
                    encode_extent(extent, e);
                }
                e.u32(u32::try_from(put.meta.len()).expect("the size of the meta bytes was checked"));
                e.raw(put.meta);
            }
            CatalogueRecord::Remove { name } => {
                e.u8(2);
                e.short_bytes(name.as_bytes());
            }
            CatalogueRecord::Retired { extent, generation } => {
                e.u8(3);
                encode_extent(extent, e);
                e.u64(*generation);
            }
        }
    }

    /// The next record, `None` when the bytes make no sense. The payload has passed its checksum by then.
    pub(crate) fn decode(d: &mut Decoder<'a>) -> Option<CatalogueRecord<'a>> {
        match d.u8()? {
            1 => {
                let name = std::str::from_utf8(d.short_bytes()?).ok()?;
                let (kind, flags, born, count) = (d.u32()?, d.u32()?, d.u64()?, d.u16()?);
                let extents = (0..count).map(|_| decode_extent(d)).collect::<Option<Vec<_>>>()?;
                let meta_bytes = usize::try_from(d.u32()?).ok()?;
                let meta = d.raw(meta_bytes)?;
                Some(CatalogueRecord::Put(CataloguePut { name, kind, flags, born, extents, meta }))
            }
            2 => Some(CatalogueRecord::Remove { name: std::str::from_utf8(d.short_bytes()?).ok()? }),
            3 => Some(CatalogueRecord::Retired { extent: decode_extent(d)?, generation: d.u64()? }),
            _ => None,
        }
    }
}

fn encode_extent(extent: &Extent, e: &mut Encoder) {
    e.u64(extent.offset.to_word());
    e.u64(extent.len_bytes);
}

fn decode_extent(d: &mut Decoder<'_>) -> Option<Extent> {
    Some(Extent { offset: Offset::from_word(d.u64()?), len_bytes: d.u64()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_what_it_encoded_and_nothing_cut_short() {
        let extent = Extent { offset: Offset::new(1, 4096), len_bytes: 128 };
        let records = [
            CatalogueRecord::Put(CataloguePut {
                name: "temperature",
                kind: 3,
                flags: 1,
                born: 12,
                extents: vec![extent],
                meta: b"f8",
            }),
            CatalogueRecord::Remove { name: "x" },
            CatalogueRecord::Retired { extent, generation: 9 },
        ];
        for record in records {
            let mut e = Encoder::default();
            record.encode(&mut e);
            let bytes = e.finish();
            assert_eq!(CatalogueRecord::decode(&mut Decoder::new(&bytes)), Some(record));
            for cut in 0..bytes.len() {
                assert_eq!(CatalogueRecord::decode(&mut Decoder::new(&bytes[..cut])), None, "cut at {cut}");
            }
        }
    }
}
