//! Copies of bulk payload by several threads.
//!
//! One core cannot write as fast as the memory takes it. The payload is dealt in pieces, so that a core that others
//! disturb takes fewer of them; each thread fences its own stores, because a fence orders no other thread's.
//!
//! A device takes no more than it writes, once its queue of some KiB is full. So on a stripe all devices must get
//! something at any time: pieces that lie on different members are dealt one after the other, and when there are fewer
//! threads than members, each takes several of them and copies a step of each in turn.

use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::media::{Media, MediaMap, Stripe};

/// The unit of dealing; its boundaries lie at multiples in the mapping, so no huge page is shared by two threads.
const PIECE_BYTES: u64 = 2 << 20;
const _: () = assert!(Stripe::HEAD_BYTES == PIECE_BYTES, "a piece lies on one member");

/// What a thread with several pieces copies of one before it turns to the next: about what a device's queue takes, and
/// the four pages that the copy kernels write side by side.
const STEP_BYTES: u64 = 16 << 10;

/// Most pieces that a thread copies in turn: more streams than this slow a core down.
const MAX_IN_TURN: u64 = 8;

/// Below this length one thread is faster: starting another takes as long as copying a few hundred KiB.
const PARALLEL_FROM_BYTES: u64 = 4 << 20;

/// How many threads a copy uses when nobody says otherwise: 8, at most the CPUs that this process may use when it asks first.
pub fn default_copy_threads() -> NonZeroUsize {
    const EIGHT: NonZeroUsize = NonZeroUsize::new(8).unwrap();
    static THREADS: OnceLock<NonZeroUsize> = OnceLock::new();
    // The answer comes from files of the control groups.
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(NonZeroUsize::MIN, |cpus| cpus.min(EIGHT)))
}

/// So many threads as somebody wants, at most the CPUs: more than those only take turns. The default when nobody says.
pub fn copy_threads(wanted: Option<NonZeroUsize>) -> NonZeroUsize {
    let cpus = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    wanted.map_or_else(default_copy_threads, |wanted| wanted.min(cpus()))
}

/// Is told the bytes of a copy that are done, and may give it up.
pub type CopyProgress<'p> = &'p (dyn Fn(u64) -> ControlFlow<()> + Sync);

/// Copies `len_bytes` to `offset_bytes` of the mapping with up to `threads` threads. What other threads than the caller's
/// have copied is fenced when this returns; all of it is at the caller's next fence: durable where the granularity is cache
/// line or byte. With page granularity [`MediaMap::sync_range`] is still to be called.
///
/// `progress` is told the bytes that are done so far, by any of the threads, about every 2 MiB. Where it breaks, nothing
/// more is begun; what lies in the range is then a mixture.
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
    progress: Option<CopyProgress<'_>>,
) {
    let source = Source(from);
    let range = offset_bytes..offset_bytes + len_bytes as u64;
    let threads = if (len_bytes as u64) < PARALLEL_FROM_BYTES { 1 } else { threads.get().min(pieces(&range).count()) };
    let deal = Deal::new(map.stripe(), range, threads);
    let done_bytes = AtomicU64::new(0);
    let work = || {
        while let Some(mut hand) = deal.next_hand() {
            let hand_bytes = hand.iter().map(|piece| piece.end - piece.start).sum();
            while let Some(step) = next_step(&mut hand) {
                let at_bytes = step.start - offset_bytes;
                // SAFETY: the step lies inside the caller's range: `deal` cuts that and nothing else.
                unsafe { map.nt_copy(step.start, source.at(at_bytes), (step.end - step.start) as usize) };
            }
            let told = progress.map(|tell| tell(done_bytes.fetch_add(hand_bytes, Ordering::Relaxed) + hand_bytes));
            if told == Some(ControlFlow::Break(())) {
                deal.stop();
            }
        }
    };
    let help = || {
        work();
        media.fence(); // its own stores, which the caller's fence does not order
    };
    let helpers = threads - 1;
    if helpers == 0 {
        return work();
    }
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            // A thread that cannot be had leaves its pieces to the others.
            if std::thread::Builder::new().spawn_scoped(scope, help).is_err() {
                break;
            }
        }
        work();
    });
}

/// The pieces that a range of the target touches, by their numbers.
fn pieces(range: &Range<u64>) -> Range<usize> {
    (range.start / PIECE_BYTES) as usize..range.end.div_ceil(PIECE_BYTES) as usize
}

/// Cuts a range at the multiples of [`PIECE_BYTES`] and hands the pieces out once each.
struct Deal {
    range: Range<u64>,
    /// In which order: an index for each piece, and some for pieces of the first and the last row outside the range.
    indices: Range<u64>,
    order: Order,
    /// How many pieces at once.
    hand: u64,
    next: AtomicU64,
}

impl Deal {
    fn new(stripe: Stripe, range: Range<u64>, threads: usize) -> Deal {
        let touched = pieces(&range);
        let mut order = Order::of(stripe);
        if (touched.len() as u64) < order.row_pieces() {
            // There is less than a row, of which whole members may be missing.
            order = Order::of(Stripe::SINGLE);
        }
        let indices = order.row_of(touched.start as u64).start..order.row_of(touched.end.max(1) as u64 - 1).end;
        let hand = order.members.div_ceil(threads as u64).min(MAX_IN_TURN);
        Deal { range, next: AtomicU64::new(indices.start), indices, order, hand }
    }

    /// Hands nothing out any more.
    fn stop(&self) {
        self.next.store(self.indices.end, Ordering::Relaxed);
    }

    /// Places in the target; on a stripe they lie on different members. Some may be empty.
    fn next_hand(&self) -> Option<Vec<Range<u64>>> {
        let first = self.next.fetch_add(self.hand, Ordering::Relaxed);
        let indices = first..(first + self.hand).min(self.indices.end);
        let piece = |index| {
            let start = self.order.piece(index) * PIECE_BYTES;
            let end = (start + PIECE_BYTES).min(self.range.end);
            start.max(self.range.start).min(end)..end
        };
        (!indices.is_empty()).then(|| indices.map(piece).collect())
    }
}

/// Cuts the next step off a hand, a step of each piece in turn, and a single piece as a whole.
fn next_step(hand: &mut Vec<Range<u64>>) -> Option<Range<u64>> {
    hand.retain(|piece| !piece.is_empty());
    let step_bytes = if hand.len() == 1 { PIECE_BYTES } else { STEP_BYTES };
    let piece = hand.first_mut()?;
    let step = piece.start..((piece.start / step_bytes + 1) * step_bytes).min(piece.end);
    piece.start = step.end;
    hand.rotate_left(1);
    Some(step)
}

/// Which piece comes when: neighbours in the order lie on different members.
///
/// A row is a chunk of each member. The head, which is piece 0, comes before the first row.
struct Order {
    members: u64,
    chunk_pieces: u64,
}

impl Order {
    fn of(stripe: Stripe) -> Order {
        match stripe.members {
            1 => Order { members: 1, chunk_pieces: 1 },
            members => Order { members: u64::from(members), chunk_pieces: stripe.chunk_bytes / PIECE_BYTES },
        }
    }

    fn row_pieces(&self) -> u64 {
        self.members * self.chunk_pieces
    }

    /// The row of a piece; its pieces have the same numbers as its indices.
    fn row_of(&self, piece: u64) -> Range<u64> {
        let Some(behind_head) = piece.checked_sub(1) else { return 0..1 };
        let start = 1 + behind_head / self.row_pieces() * self.row_pieces();
        start..start + self.row_pieces()
    }

    fn piece(&self, index: u64) -> u64 {
        let row = self.row_of(index);
        if index == 0 {
            return 0;
        }
        let within = index - row.start;
        row.start + within % self.members * self.chunk_pieces + within / self.members
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

    const MIB: u64 = 1 << 20;

    fn stripe(members: u16, chunk_bytes: u64) -> Stripe {
        Stripe { members, chunk_bytes }
    }

    /// Every step that one thread of several is dealt.
    fn steps(stripe: Stripe, range: &Range<u64>, threads: usize) -> Vec<Range<u64>> {
        let deal = Deal::new(stripe, range.clone(), threads);
        let hands = std::iter::from_fn(|| deal.next_hand());
        hands.flat_map(|mut hand| std::iter::from_fn(move || next_step(&mut hand)).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn steps_cover_the_payload_once_and_lie_on_one_member_each() {
        let stripes = [Stripe::SINGLE, stripe(2, 2 * MIB), stripe(2, 6 * MIB), stripe(5, 4 * MIB), stripe(64, 2 * MIB)];
        let ranges = [(0, 0), (0, 1), (5, 64), (PIECE_BYTES - 1, 2), (777, 3 * PIECE_BYTES), (0, PIECE_BYTES)];
        let long = [(777, 301 * MIB), (9 * MIB + 5, 64 * MIB), (40 * MIB, 24 * MIB + 1)];
        for stripe in stripes {
            for (offset, len) in ranges.into_iter().chain(long) {
                for threads in [1, 2, 7] {
                    let mut steps = steps(stripe, &(offset..offset + len), threads);
                    steps.sort_by_key(|step| step.start);
                    let mut covered = offset;
                    for step in steps {
                        assert_eq!(step.start, covered, "{stripe:?}, offset {offset}, length {len}");
                        assert!(step.end - step.start <= stripe.locate(step.start).2);
                        assert!(step.end == offset + len || step.end.is_multiple_of(STEP_BYTES));
                        covered = step.end;
                    }
                    assert_eq!(covered, offset + len);
                }
            }
        }
    }

    #[test]
    fn neighbours_lie_on_different_members() {
        for stripe in [stripe(2, 2 * MIB), stripe(2, 16 * MIB), stripe(3, 4 * MIB)] {
            let deal = Deal::new(stripe, 2 * MIB..2 * MIB + 960 * MIB, usize::from(stripe.members));
            let hands = std::iter::from_fn(|| deal.next_hand());
            let members = hands.map(|hand| stripe.locate(hand[0].start).0).collect::<Vec<_>>();
            assert_eq!(members.len(), 480);
            assert!(members.windows(2).all(|pair| pair[0] != pair[1]), "{stripe:?}: {members:?}");
            let alone = steps(stripe, &(2 * MIB..2 * MIB + 960 * MIB), 1);
            assert!(alone.windows(2).all(|pair| stripe.locate(pair[0].start).0 != stripe.locate(pair[1].start).0));
        }
    }

    #[test]
    fn one_file_is_copied_in_whole_pieces_from_start_to_end() {
        let wanted = [5..PIECE_BYTES, PIECE_BYTES..2 * PIECE_BYTES, 2 * PIECE_BYTES..2 * PIECE_BYTES + 9];
        assert_eq!(steps(Stripe::SINGLE, &(5..2 * PIECE_BYTES + 9), 2), wanted);
    }

    #[test]
    fn default_is_at_most_eight_and_at_most_the_cpus() {
        let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        assert_eq!(default_copy_threads().get(), cpus.min(8));
    }
}
