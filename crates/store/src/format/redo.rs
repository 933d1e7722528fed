//! The head of a redo extent: where the bytes belong that wait in it.

use super::{Input, Refused};
use crate::redo::{Redo, RedoRange};

/// Bytes before the ranges: their number and checksum.
pub(crate) const REDO_START_BYTES: usize = 8;
/// Bytes of a range.
const RANGE_BYTES: usize = 24;
/// What waits starts at multiples of this.
const DATA_ALIGN: u64 = 64;

/// Where in a redo extent with so many ranges the first bytes wait.
pub(crate) fn redo_data_at(ranges: usize) -> u64 {
    ((REDO_START_BYTES + RANGE_BYTES * ranges) as u64).next_multiple_of(DATA_ALIGN)
}

/// Where the bytes after a range of this length wait, which waits at `at_bytes`.
pub(crate) fn redo_data_after(at_bytes: u64, len_bytes: u64) -> u64 {
    (at_bytes + len_bytes).next_multiple_of(DATA_ALIGN)
}

/// The head.
pub(crate) fn encode_redo(ranges: &[RedoRange]) -> Vec<u8> {
    let mut table = Vec::with_capacity(RANGE_BYTES * ranges.len());
    for range in ranges {
        table.extend(range.extent.to_le_bytes());
        table.extend(0u32.to_le_bytes());
        table.extend(range.offset_bytes.to_le_bytes());
        table.extend(range.len_bytes.to_le_bytes());
    }
    let mut out = Vec::with_capacity(REDO_START_BYTES + table.len());
    out.extend((ranges.len() as u32).to_le_bytes());
    out.extend(crc32c::crc32c(&table).to_le_bytes());
    out.extend(table);
    out
}

/// How many bytes the head has that starts like this, and the checksum of its ranges.
pub(crate) fn decode_redo_start(start: [u8; REDO_START_BYTES]) -> (u64, u32) {
    let [a, b, c, d, e, f, g, h] = start;
    let ranges = u64::from(u32::from_le_bytes([a, b, c, d]));
    (REDO_START_BYTES as u64 + RANGE_BYTES as u64 * ranges, u32::from_le_bytes([e, f, g, h]))
}

/// Reads a head, trusting nothing. The lengths are those of the object's extents, the redo extent last.
pub(crate) fn decode_redo(head: &[u8], extent_bytes: &[u64]) -> Result<Redo, Refused> {
    let damaged = Refused::Damaged("what waits to be copied home makes no sense");
    let mut input = Input(head);
    let (count, crc) = (input.u32().ok_or(damaged)?, input.u32().ok_or(damaged)?);
    // A redo extent in which nothing waits is one that was lost: zeros check.
    if count == 0 || input.0.len() != RANGE_BYTES * count as usize || crc32c::crc32c(input.0) != crc {
        return Err(damaged);
    }
    let (redo_bytes, homes) = extent_bytes.split_last().ok_or(damaged)?;
    let mut ranges = Vec::with_capacity(count as usize);
    let mut at_bytes = redo_data_at(count as usize);
    let mut free_from = (0, 0);
    for _ in 0..count {
        let (extent, zero) = (input.u32().ok_or(damaged)?, input.u32().ok_or(damaged)?);
        let (offset_bytes, len_bytes) = (input.u64().ok_or(damaged)?, input.u64().ok_or(damaged)?);
        let home = homes.get(extent as usize).ok_or(damaged)?;
        let fits = offset_bytes.checked_add(len_bytes).is_some_and(|end| end <= *home)
            && at_bytes.checked_add(len_bytes).is_some_and(|end| end <= *redo_bytes);
        if zero != 0 || len_bytes == 0 || !fits || (extent, offset_bytes) < free_from {
            return Err(damaged);
        }
        free_from = (extent, offset_bytes + len_bytes);
        ranges.push(RedoRange { extent, offset_bytes, len_bytes, at_bytes });
        at_bytes = redo_data_after(at_bytes, len_bytes);
    }
    Ok(Redo { ranges })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_back_and_any_change_of_it_is_refused() {
        let at = redo_data_at(2);
        let ranges = vec![
            RedoRange { extent: 0, offset_bytes: 4096, len_bytes: 100, at_bytes: at },
            RedoRange { extent: 1, offset_bytes: 0, len_bytes: 4096, at_bytes: at + 128 },
        ];
        let lengths = [8192, 4096, at + 128 + 4096];
        let bytes = encode_redo(&ranges);
        assert_eq!(decode_redo_start(bytes[..8].try_into().unwrap()).0, bytes.len() as u64);
        let swapped = encode_redo(&[ranges[1], ranges[0]]);
        let twice = encode_redo(&[ranges[0], RedoRange { offset_bytes: 4195, ..ranges[0] }]);
        for bad in [swapped, twice, encode_redo(&[]), vec![0; 8]] {
            assert!(decode_redo(&bad, &lengths).is_err(), "{bad:?}");
        }
        assert_eq!(decode_redo(&bytes, &lengths), Ok(Redo { ranges }));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_redo(&changed, &lengths).is_err(), "bit {bit}");
        }
        for short in [[4195, 4096, at + 4224], [8192, 4095, at + 4224], [8192, 4096, at + 4223]] {
            assert!(decode_redo(&bytes, &short).is_err(), "{short:?}");
        }
        assert!(decode_redo(&bytes, &lengths[1..]).is_err() && decode_redo(&bytes, &[]).is_err());
    }
}
