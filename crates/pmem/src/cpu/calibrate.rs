//! The measurement behind [`CopyPlan::get`]: about a millisecond, in private memory, once per process.
//!
//! Each candidate is timed several times and its best time counts, because everything that disturbs a measurement
//! makes it longer. A challenger must win clearly, so that noise does not change the choice from run to run.

use std::time::{Duration, Instant};

use super::{CopyKernel, CopyPlan, LINE_BYTES, fence};
use crate::durability::Granularity;

/// Target of the copies; larger than a first-level cache, so that lines are not warm.
const TARGET_BYTES: usize = 2 << 20;
/// Length of one copy when kernels are compared, as a payload would be.
const LONG_BYTES: usize = 64 << 10;
/// Lengths at which storing and flushing is compared with the kernel, ascending.
const SHORT_BYTES: [usize; 6] = [64, 128, 256, 512, 1024, 2048];
const ROUNDS: usize = 5;
const COPIES_PER_ROUND: usize = 16;
/// A challenger is chosen below this part of the other's time.
const CLEARLY_FASTER: f64 = 0.95;

pub(super) fn measure() -> CopyPlan {
    let mut target = vec![1u8; TARGET_BYTES];
    let source = vec![2u8; LONG_BYTES];
    let mut kernels = CopyKernel::ALL.into_iter().filter(|k| k.is_available() && *k != CopyKernel::StoreFlush);
    let Some(preferred) = kernels.next() else { return CopyPlan::fixed(CopyKernel::StoreFlush) };
    let mut best = (preferred, time(&always(preferred), &mut target, &source, LONG_BYTES));
    for kernel in kernels {
        let took = time(&always(kernel), &mut target, &source, LONG_BYTES);
        if took.as_secs_f64() < best.1.as_secs_f64() * CLEARLY_FASTER {
            best = (kernel, took);
        }
    }
    let direct_from_bytes = crossover_bytes(best.0, &mut target, &source);
    CopyPlan { direct_from_bytes, ..CopyPlan::fixed(best.0) }
}

/// The smallest length from which the kernel wins at every length tried.
fn crossover_bytes(kernel: CopyKernel, target: &mut [u8], source: &[u8]) -> usize {
    let mut from_bytes = SHORT_BYTES[SHORT_BYTES.len() - 1];
    for &len_bytes in SHORT_BYTES.iter().rev() {
        let direct = time(&always(kernel), target, source, len_bytes);
        let stored = time(&CopyPlan::fixed(CopyKernel::StoreFlush), target, source, len_bytes);
        if direct.as_secs_f64() >= stored.as_secs_f64() * CLEARLY_FASTER {
            break;
        }
        from_bytes = len_bytes;
    }
    from_bytes
}

fn always(kernel: CopyKernel) -> CopyPlan {
    CopyPlan { direct_from_bytes: LINE_BYTES, ..CopyPlan::fixed(kernel) }
}

/// Best time of a round of persists of `len_bytes` each, at places all over the target.
fn time(plan: &CopyPlan, target: &mut [u8], source: &[u8], len_bytes: usize) -> Duration {
    let slots = (target.len() - LINE_BYTES) / len_bytes;
    let start = target.as_mut_ptr();
    let aligned = start.wrapping_add(start.addr().wrapping_neg() % LINE_BYTES);
    let mut slot = 0;
    (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..COPIES_PER_ROUND {
                // An odd step visits every slot of a power of two, far from its neighbours.
                slot = (slot + 193) % slots;
                // SAFETY: the slot ends at most LINE_BYTES - 1 after `slots * len_bytes`, which is inside the target,
                // `len_bytes` is at most the source's length, and both are this function's own.
                unsafe {
                    plan.copy(aligned.add(slot * len_bytes), source.as_ptr(), len_bytes, Granularity::CacheLine);
                }
                fence();
            }
            begin.elapsed()
        })
        .min()
        .unwrap_or_default()
}
