//! The self-certifying log: batches that prove themselves, one fence each.
//!
//! # Protocol
//! ```text
//! append:  store header + payload  ->  flush  ->  fence  ->  acknowledged
//! recover: take batches from the start while sequence and checksums hold; persist the last one; go on there
//! ```
//!
//! # Invariants
//! 1. Checksums are seeded with the owner's UUID and the segment generation: bytes of an earlier use of the segment,
//!    or of another pool, never check.
//! 2. A batch is written only after everything below it was made durable, and says so (durable tail). A batch that
//!    does not check, with a valid one above it that says it was durable, is corruption and not a torn end.
//! 3. The last batch that recovery finds may be visible without being durable (a killed process leaves its stores in
//!    the cache), so recovery makes it durable before anything is built on it.
//! 4. The header of a torn batch is wiped before anything is appended in its place: the next batch may well have the
//!    same words where the torn one had none, and would complete it.

use std::path::PathBuf;

use crate::error::{Error, Result, Uuid};
use crate::extent::Extent;
use crate::format::{self, BATCH_ALIGN, BatchHeader, batch_bytes};
use crate::media::{Media, MediaFile, Touch};
use crate::set::{Offset, Pending, PoolSet};

/// Sequence numbers stay below this, which no log reaches: it leaves room for arithmetic.
pub(crate) const MAX_SEQUENCE: u64 = 1 << 60;

/// Of a large payload so much is checked at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Identity of one log segment: where it lies and what its checksums are seeded with.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    extent: Extent,
    seed: u32,
    first_sequence: u64,
}

impl Segment {
    /// A segment in these bytes.
    ///
    /// `owner` and `generation` tell this use of the bytes from every other, whatever lay there before: the owner is a
    /// UUID of this log alone, or the pool's where it has one log only, and the generation grows each time the log uses
    /// the same bytes again. The pool's own log is another owner.
    ///
    /// # Panics
    /// If sequence numbers could overflow: the first is below 2^60.
    pub fn new(extent: Extent, owner: Uuid, generation: u64, first_sequence: u64) -> Segment {
        assert!(first_sequence < MAX_SEQUENCE, "sequence numbers start below 2^60");
        Segment::with_seed(extent, format::product_seed(owner, generation), first_sequence)
    }

    /// The segment of a pool's own log.
    pub(crate) fn of_pool(extent: Extent, set: Uuid, generation: u64, first_sequence: u64) -> Segment {
        Segment::with_seed(extent, format::seed(set, generation), first_sequence)
    }

    /// Batches are whole multiples of their alignment, so a rest at the end is left out.
    fn with_seed(extent: Extent, seed: u32, first_sequence: u64) -> Segment {
        let len_bytes = extent.len_bytes / BATCH_ALIGN * BATCH_ALIGN;
        Segment { extent: Extent { len_bytes, ..extent }, seed, first_sequence }
    }
}

/// Appends to a segment.
#[derive(Clone, Debug)]
pub struct SelfCertifyingLog {
    segment: Segment,
    tail_bytes: u64,
    next_sequence: u64,
}

/// One batch that checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBatch {
    /// Sequence number.
    pub sequence: u64,
    /// The owner's word for what it is.
    pub kind: u32,
    /// Contents.
    pub payload: Vec<u8>,
}

impl SelfCertifyingLog {
    /// Starts an empty segment. Nothing is written: stale bytes do not check.
    pub fn start(segment: Segment) -> SelfCertifyingLog {
        SelfCertifyingLog { segment, tail_bytes: 0, next_sequence: segment.first_sequence }
    }

    /// Whether a payload of this size still fits.
    pub fn fits(&self, payload_bytes: u64) -> bool {
        batch_bytes(payload_bytes) <= self.segment.extent.len_bytes - self.tail_bytes
    }

    /// The sequence number that the next batch will get.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Bytes in use.
    pub fn tail_bytes(&self) -> u64 {
        self.tail_bytes
    }

    /// Appends one batch; durable on return. Whatever was flushed into `pending` before becomes durable with it,
    /// but must not be needed by a reader of the batch: the order of the two is open until the fence.
    ///
    /// # Errors
    /// `Io`, `WritesRefused`; the batch is then in an unknown state and the log must be recovered before the next append.
    ///
    /// # Panics
    /// If it does not fit: ask [`SelfCertifyingLog::fits`] first.
    pub fn append<M: Media>(
        &mut self,
        set: &PoolSet<M>,
        pending: &mut Pending,
        kind: u32,
        payload: &[u8],
    ) -> Result<u64> {
        assert!(self.fits(payload.len() as u64), "a payload of {} bytes does not fit", payload.len());
        let header = BatchHeader {
            sequence: self.next_sequence,
            durable_tail_bytes: self.tail_bytes,
            payload_bytes: payload.len() as u64,
            kind,
            payload_crc: crc32c::crc32c_append(self.segment.seed, payload),
        };
        let at = self.segment.extent.offset.plus(self.tail_bytes);
        let body = at.plus(BatchHeader::BYTES as u64);
        set.store_bytes(at, &header.encode(self.segment.seed));
        set.store_bytes(body, payload);
        set.flush(pending, at, (BatchHeader::BYTES + payload.len()) as u64);
        if let Err(error) = set.fence(pending) {
            // The caller will be told that it failed, so nobody should find it in the page cache.
            set.store_bytes(at, &[0; BatchHeader::BYTES]);
            return Err(error);
        }
        self.tail_bytes += batch_bytes(payload.len() as u64);
        self.next_sequence += 1;
        Ok(header.sequence)
    }

    /// Reads the whole segment, hands every batch to `each` in order, and returns a log that goes on at its end.
    /// `each` returns false to refuse a batch whose contents make no sense.
    ///
    /// # Errors
    /// `Corrupt` when a batch that was durable does not check (invariant 2), or when `each` refuses one. `Io` when there
    /// is no memory for a batch that checks.
    pub fn replay<M: Media>(
        set: &PoolSet<M>,
        segment: Segment,
        mut each: impl FnMut(LogBatch) -> bool,
    ) -> Result<SelfCertifyingLog> {
        let mut log = SelfCertifyingLog::start(segment);
        loop {
            let batch = match log.read_at_tail(set)? {
                Some(batch) => batch,
                None if log.something_valid_lies_above(set) => {
                    // A writer in another process may have completed this very batch meanwhile.
                    log.read_at_tail(set)?.ok_or_else(|| log.corrupt(set, "a log batch"))?
                }
                None => return Ok(log),
            };
            let bytes = batch_bytes(batch.payload.len() as u64);
            if !each(batch) {
                return Err(log.corrupt(set, "the content of a log batch"));
            }
            log.tail_bytes += bytes;
            log.next_sequence += 1;
        }
    }

    /// Flushes everything that a replay has taken; it is durable after the next fence of `pending` (invariant 3).
    pub fn flush_replayed<M: Media>(&self, set: &PoolSet<M>, pending: &mut Pending) {
        set.flush_adopted(pending, self.segment.extent.offset, self.tail_bytes);
    }

    /// Prepares a replayed log for appends: flushes what was taken, and wipes the header of a batch that was torn. Both
    /// are durable after the next fence of `pending`, which comes before the first append (invariants 3 and 4).
    ///
    /// # Errors
    /// `BadBlock`, `Truncated`, `FileSystemFull`, `Io`: the log cannot be written to, and was not.
    pub fn resume<M: Media>(&self, set: &PoolSet<M>, pending: &mut Pending) -> Result<()> {
        self.wipe_torn_end(set, pending)?;
        self.flush_replayed(set, pending);
        Ok(())
    }

    /// As [`SelfCertifyingLog::resume`], for a log of which all that was taken is known to be durable.
    pub(crate) fn wipe_torn_end<M: Media>(&self, set: &PoolSet<M>, pending: &mut Pending) -> Result<()> {
        let used_bytes = (self.tail_bytes + BATCH_ALIGN).min(self.segment.extent.len_bytes);
        set.guard(self.segment.extent.offset, used_bytes, Touch::Store)?;
        let mut header = [0; BatchHeader::BYTES];
        if self.segment.extent.len_bytes - self.tail_bytes >= header.len() as u64 {
            set.load_bytes(self.tail(), &mut header);
            if header != [0; BatchHeader::BYTES] {
                set.store_bytes(self.tail(), &[0; BatchHeader::BYTES]);
            }
            set.flush(pending, self.tail(), BatchHeader::BYTES as u64);
        }
        Ok(())
    }

    /// Where the next batch will lie.
    pub fn tail(&self) -> Offset {
        self.segment.extent.offset.plus(self.tail_bytes)
    }

    fn header_at<M: Media>(&self, set: &PoolSet<M>, at_bytes: u64) -> Option<BatchHeader> {
        if at_bytes + BatchHeader::BYTES as u64 > self.segment.extent.len_bytes {
            return None;
        }
        let mut bytes = [0; BatchHeader::BYTES];
        set.load_bytes(self.segment.extent.offset.plus(at_bytes), &mut bytes);
        BatchHeader::decode(&bytes, self.segment.seed)
    }

    fn read_at_tail<M: Media>(&self, set: &PoolSet<M>) -> Result<Option<LogBatch>> {
        let Some(header) = self.header_at(set, self.tail_bytes) else { return Ok(None) };
        let room = self.segment.extent.len_bytes - self.tail_bytes;
        if header.sequence != self.next_sequence
            || header.payload_bytes > room
            || batch_bytes(header.payload_bytes) > room
            || !self.is_worth_reading(set, &header)
        {
            return Ok(None);
        }
        let mut payload = Vec::new();
        let len = usize::try_from(header.payload_bytes).expect("a mapped segment is addressable");
        if payload.try_reserve_exact(len).is_err() {
            let path = self.path(set);
            return Err(Error::io("reading a log batch into memory", &path, std::io::ErrorKind::OutOfMemory));
        }
        payload.resize(len, 0);
        set.load_bytes(self.tail().plus(BatchHeader::BYTES as u64), &mut payload);
        let checks = crc32c::crc32c_append(self.segment.seed, &payload) == header.payload_crc;
        Ok(checks.then_some(LogBatch { sequence: header.sequence, kind: header.kind, payload }))
    }

    /// Whether a large payload checks. A length that nothing vouches for yet gets no memory of its size.
    fn is_worth_reading<M: Media>(&self, set: &PoolSet<M>, header: &BatchHeader) -> bool {
        if header.payload_bytes <= PIECE_BYTES {
            return true;
        }
        let (mut crc, mut at_bytes) = (self.segment.seed, 0);
        let mut piece = vec![0; PIECE_BYTES as usize];
        while at_bytes < header.payload_bytes {
            let len = (header.payload_bytes - at_bytes).min(PIECE_BYTES);
            let piece = &mut piece[..len as usize];
            set.load_bytes(self.tail().plus(BatchHeader::BYTES as u64 + at_bytes), piece);
            crc = crc32c::crc32c_append(crc, piece);
            at_bytes += len;
        }
        crc == header.payload_crc
    }

    fn something_valid_lies_above<M: Media>(&self, set: &PoolSet<M>) -> bool {
        let end = self.segment.extent.len_bytes;
        let mut at = self.tail_bytes + BATCH_ALIGN;
        let plausible = self.next_sequence + 1..self.next_sequence + end / BATCH_ALIGN;
        while at < end {
            // The sequence number comes first in the header and is a quarter of a line's worth of work to refuse.
            if plausible.contains(&set.load_u64(self.segment.extent.offset.plus(at)))
                && let Some(header) = self.header_at(set, at)
                && header.sequence > self.next_sequence
                && header.durable_tail_bytes > self.tail_bytes
            {
                return true;
            }
            at += BATCH_ALIGN;
        }
        false
    }

    fn corrupt<M: Media>(&self, set: &PoolSet<M>, what: &'static str) -> Error {
        Error::Corrupt { path: self.path(set), what, offset_bytes: self.tail().byte() }
    }

    fn path<M: Media>(&self, set: &PoolSet<M>) -> PathBuf {
        let part = set.part(self.segment.extent.offset.part());
        part.map_or_else(PathBuf::new, |part| part.files[0].path().to_owned())
    }
}
