//! A payload of 512 MiB into a warm mapping, with one and with two threads.

use std::num::NonZeroUsize;

use peers_raw::{self as raw, CopyPiece, in_parts};
use remanent_pmem::{MediaMap, copy_parallel};

use crate::fixture::{Fixture, Paired, SOURCE_BYTES};
use crate::libpmem::Libpmem;

/// A block of the data-acquisition experiment whose buffers the capture product follows.
const BLOCK_BYTES: usize = 5568;

pub(crate) fn run(fixture: &Fixture, peer: &Libpmem, rounds: usize) {
    println!("512 MiB, GiB/s            remanent   peer        rate ratio [quartiles]");
    // SAFETY: `in_parts` hands out ranges inside the source and the mapping.
    let raw_copy: CopyPiece = &|to, from, len| unsafe { raw::copy(to, from, len) };
    // SAFETY: the same.
    let interleaved_copy: CopyPiece = &|to, from, len| unsafe { raw::copy_interleaved(to, from, len) };
    // SAFETY: the same.
    let pmem_copy: CopyPiece = &|to, from, len| unsafe { peer.memcpy_persist(to, from, len) };
    // SAFETY: the same.
    let plain_copy: CopyPiece = &|to, from, len| unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    let peers = [
        ("raw non-temporal", raw_copy),
        ("raw, four pages", interleaved_copy),
        ("pmem_memcpy_persist", pmem_copy),
        ("memcpy, not durable", plain_copy),
    ];
    let from = fixture.source.as_ptr();
    for threads in [1, 2] {
        for (name, copy) in peers {
            let paired = Paired::measure(
                rounds.div_ceil(2),
                || {
                    let threads = NonZeroUsize::new(threads).expect("not zero");
                    // SAFETY: the source has that many bytes.
                    unsafe { copy_parallel(&fixture.mapped, &fixture.map, 0, from, SOURCE_BYTES, threads, None) };
                },
                || in_parts(fixture.map.base(), from, SOURCE_BYTES, threads, copy),
            );
            print(&format!("{name}, {threads} threads"), &paired, SOURCE_BYTES);
        }
    }
    blocks(fixture, rounds);
}

/// Blocks of 5568 bytes, a fence every 64: the shape of the capture product.
fn blocks(fixture: &Fixture, rounds: usize) {
    use remanent_pmem::Media;
    let from = fixture.source.as_ptr();
    let count = SOURCE_BYTES / BLOCK_BYTES / 64 * 64;
    let base = fixture.map.base();
    let paired = Paired::measure(
        rounds.div_ceil(2),
        || {
            for block in 0..count {
                let at = block * BLOCK_BYTES;
                // SAFETY: the block lies inside the source.
                unsafe { fixture.map.nt_copy(at as u64, from.add(at), BLOCK_BYTES) };
                if block % 64 == 63 {
                    fixture.mapped.fence();
                }
            }
        },
        || {
            for group in 0..count / 64 {
                let at = group * 64 * BLOCK_BYTES;
                // SAFETY: the group lies inside the source and the mapping; its length is a multiple of 256.
                unsafe { raw::copy(base.add(at), from.add(at), 64 * BLOCK_BYTES) };
            }
        },
    );
    print("raw, fence every 64 blocks of 5568 B", &paired, count * BLOCK_BYTES);
}

fn print(name: &str, paired: &Paired, bytes: usize) {
    let gib = bytes as f64 / (1u64 << 30) as f64;
    let (ours, theirs) = paired.medians_s();
    let [low, middle, high] = paired.time_ratio();
    println!(
        "{name:<38} {:>6.2} {:>6.2}   {:.3} [{:.3} {:.3}]",
        gib / ours,
        gib / theirs,
        1.0 / middle,
        1.0 / high,
        1.0 / low
    );
}
