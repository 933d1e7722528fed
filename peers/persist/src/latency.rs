//! One persist after the other, at random places of a warm mapping.

use remanent_pmem::{Media, MediaMap};

use crate::fixture::{Fixture, Paired, next};
use crate::libpmem::Libpmem;

/// The part of the target that persists go to: larger than the caches' share of one core, small enough for the TLB not
/// to be all that is measured.
const AREA_BYTES: usize = 256 << 20;

/// Bytes a batch writes at least.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_OPERATIONS: usize = 512;

fn lengths() -> impl Iterator<Item = usize> {
    (6..=20).map(|power| 1 << power)
}

fn operations(len_bytes: usize) -> usize {
    (BATCH_BYTES / len_bytes).clamp(4, BATCH_OPERATIONS)
}

/// Runs one batch: `persist` gets offsets that the seed determines.
fn batch(seed: &mut u64, len_bytes: usize, mut persist: impl FnMut(usize)) {
    let slots = (AREA_BYTES / len_bytes) as u64;
    for _ in 0..operations(len_bytes) {
        persist((next(seed) % slots) as usize * len_bytes);
    }
}

fn print(len_bytes: usize, paired: &Paired) {
    let per_ns = 1e9 / operations(len_bytes) as f64;
    let (ours, theirs) = paired.medians_s();
    let [our_spread, their_spread] = paired.spreads_s().map(|side| side.map(|s| s * per_ns));
    let [low, middle, high] = paired.time_ratio();
    println!(
        "{len_bytes:>8} {:>9.0} [{:>7.0} {:>7.0}] {:>9.0} [{:>7.0} {:>7.0}]   {middle:.3} [{low:.3} {high:.3}]",
        ours * per_ns,
        our_spread[0],
        our_spread[1],
        theirs * per_ns,
        their_spread[0],
        their_spread[1],
    );
}

/// `nt_copy` and `fence` beside `pmem_memcpy_persist`.
pub(crate) fn copies(fixture: &Fixture, peer: &Libpmem, rounds: usize) {
    println!("copy and persist, ns      remanent [quartiles]      pmem_memcpy_persist [quartiles]   ratio [quartiles]");
    let (map, from) = (&fixture.map, fixture.source.as_ptr());
    let base = map.base();
    for len_bytes in lengths() {
        let (mut our_seed, mut their_seed) = (7, 7);
        let paired = Paired::measure(
            rounds,
            || {
                batch(&mut our_seed, len_bytes, |offset| {
                    // SAFETY: the source is longer than any length.
                    unsafe { map.nt_copy(offset as u64, from, len_bytes) };
                    fixture.mapped.fence();
                })
            },
            || {
                batch(&mut their_seed, len_bytes, |offset| {
                    // SAFETY: every slot lies inside the area, which lies inside the mapping.
                    unsafe { peer.memcpy_persist(base.add(offset), from, len_bytes) }
                })
            },
        );
        print(len_bytes, &paired);
    }
}

/// `store_bytes`, `flush` and `fence` beside memcpy and `pmem_persist`.
pub(crate) fn flushes(fixture: &Fixture, peer: &Libpmem, rounds: usize) {
    println!("store, flush, fence, ns   remanent [quartiles]      memcpy + pmem_persist [quartiles] ratio [quartiles]");
    let (map, source) = (&fixture.map, fixture.source.as_slice());
    let base = map.base();
    for len_bytes in lengths() {
        let (mut our_seed, mut their_seed) = (7, 7);
        let paired = Paired::measure(
            rounds,
            || {
                batch(&mut our_seed, len_bytes, |offset| {
                    map.store_bytes(offset as u64, &source[..len_bytes]);
                    map.flush(offset as u64, len_bytes as u64);
                    fixture.mapped.fence();
                })
            },
            || {
                batch(&mut their_seed, len_bytes, |offset| {
                    // SAFETY: every slot lies inside the area, which lies inside the mapping.
                    unsafe {
                        std::ptr::copy_nonoverlapping(source.as_ptr(), base.add(offset), len_bytes);
                        peer.persist(base.add(offset), len_bytes);
                    }
                })
            },
        );
        print(len_bytes, &paired);
    }
}
