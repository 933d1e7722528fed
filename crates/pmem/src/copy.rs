//! Copies of bulk payload by several threads.
//!
//! One core cannot write as fast as the memory takes it. The payload is dealt in pieces, so that a core that others
//! disturb takes fewer of them; each thread fences its own stores, because a fence orders no other thread's.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::media::{Media, MediaMap};

/// The unit of dealing; its boundaries lie at multiples in the mapping, so no huge page is shared by two threads.
const PIECE_BYTES: u64 = 2 << 20;

/// Below this length one thread is faster: starting another takes as long as copying a few hundred KiB.
const PARALLEL_FROM_BYTES: u64 = 4 << 20;

/// How many threads a copy uses when nobody says otherwise: 8, at most the CPUs this process may use.
pub fn default_copy_threads() -> NonZeroUsize {
    const EIGHT: NonZeroUsize = NonZeroUsize::new(8).unwrap();
    std::thread::available_parallelism().map_or(NonZeroUsize::MIN, |cpus| cpus.min(EIGHT))
}

/// Copies `len_bytes` to `offset_bytes` of the mapping with up to `threads` threads, and returns when all of it is
/// fenced: durable where the granularity is cache line or byte; with page granularity [`MediaMap::sync_range`] is
/// still to be called.
///
/// `progress` is told the bytes that are done so far, by any of the threads, about every 2 MiB.
///
/// # Panics
/// If the range is not inside the mapping, or the mapping is read-only.
///
/// # Safety
/// `from` is readable for `len_bytes` bytes until this returns. It may change meanwhile; then some mixture arrives.
pub unsafe fn copy_parallel<M: Media>(
    media: &M,
    map: &M::Map,
    offset_bytes: u64,
    from: *const u8,
    len_bytes: usize,
    threads: NonZeroUsize,
    progress: Option<&(dyn Fn(u64) + Sync)>,
) {
    let source = Source(from);
    let deal = Deal::new(offset_bytes, len_bytes as u64);
    let done_bytes = AtomicU64::new(0);
    let work = || {
        while let Some((at_bytes, piece_bytes)) = deal.next_piece() {
            // SAFETY: the piece lies inside the caller's range: `deal` cuts [0, len_bytes) and nothing else.
            unsafe { map.nt_copy(offset_bytes + at_bytes, source.at(at_bytes), piece_bytes as usize) };
            if let Some(progress) = progress {
                progress(done_bytes.fetch_add(piece_bytes, Ordering::Relaxed) + piece_bytes);
            }
        }
        media.fence();
    };
    let helpers = if (len_bytes as u64) < PARALLEL_FROM_BYTES { 0 } else { (threads.get() - 1).min(deal.pieces() - 1) };
    if helpers == 0 {
        return work();
    }
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            // A thread that cannot be had leaves its pieces to the others.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
}

/// Cuts `[0, len_bytes)` at the multiples of [`PIECE_BYTES`] of the target and hands the pieces out once each.
struct Deal {
    offset_bytes: u64,
    end_bytes: u64,
    next: AtomicU64,
}

impl Deal {
    fn new(offset_bytes: u64, len_bytes: u64) -> Deal {
        Deal { offset_bytes, end_bytes: offset_bytes + len_bytes, next: AtomicU64::new(offset_bytes / PIECE_BYTES) }
    }

    fn pieces(&self) -> usize {
        (self.end_bytes.div_ceil(PIECE_BYTES) - self.offset_bytes / PIECE_BYTES) as usize
    }

    /// Start, from the beginning of the payload, and length of a piece.
    fn next_piece(&self) -> Option<(u64, u64)> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let start_bytes = (index * PIECE_BYTES).max(self.offset_bytes);
        let end_bytes = ((index + 1) * PIECE_BYTES).min(self.end_bytes);
        (start_bytes < end_bytes).then(|| (start_bytes - self.offset_bytes, end_bytes - start_bytes))
    }
}

/// The payload, shared by the copying threads.
#[derive(Clone, Copy)]
struct Source(*const u8);

impl Source {
    fn at(&self, at_bytes: u64) -> *const u8 {
        self.0.wrapping_add(at_bytes as usize)
    }
}

// SAFETY: the threads only read through the pointer, and end before `copy_parallel` returns, until when its caller
// promises that the payload is readable.
unsafe impl Sync for Source {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_payload_once_and_end_at_multiples() {
        for (offset, len) in [(0, 0), (0, 1), (5, 64), (PIECE_BYTES - 1, 2), (777, 3 * PIECE_BYTES), (0, PIECE_BYTES)] {
            let deal = Deal::new(offset, len);
            let mut covered = 0;
            let mut count = 0;
            while let Some((start, piece)) = deal.next_piece() {
                assert_eq!(start, covered, "offset {offset}, length {len}");
                covered += piece;
                count += 1;
                assert!(covered == len || (offset + covered).is_multiple_of(PIECE_BYTES));
            }
            assert_eq!(covered, len);
            assert!(count <= deal.pieces());
        }
    }

    #[test]
    fn default_is_at_most_eight_and_at_most_the_cpus() {
        let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        assert_eq!(default_copy_threads().get(), cpus.min(8));
    }
}
