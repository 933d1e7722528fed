//! The measurement behind [`CopyPlan::get`]: one or two milliseconds, in private memory, once per process.
//!
//! Each candidate is timed several times, in turn with the others, and its best time counts, because everything that
//! disturbs a measurement makes it longer. A kernel must beat the preferred one clearly, so that noise does not change
//! the choice from run to run.

use std::time::{Duration, Instant};

use super::{CopyKernel, CopyOrder, CopyPlan, FlushInstruction, LINE_BYTES, fence, flush_range};
use crate::durability::Granularity;

/// Target of the copies; larger than a first-level cache, so that lines are not warm.
const TARGET_BYTES: usize = 1 << 20;
/// Length of one copy when kernels are compared, as a payload would be.
const LONG_BYTES: usize = 64 << 10;
/// Lengths at which storing and flushing is compared with the kernel, ascending. From the last on the kernel is used
/// whatever the clock says: storing would read every line first.
const SHORT_BYTES: [usize; 3] = [64, 128, 256];
/// Length of one copy when orders are compared: of several pages' streams, from memory that is in no cache.
const COLD_BYTES: usize = 128 << 10;
const ROUNDS: usize = 5;
const LONG_COPIES_PER_ROUND: usize = 4;
const SHORT_COPIES_PER_ROUND: usize = 16;
/// A kernel or an order is chosen below this part of the preferred one's time.
const CLEARLY_FASTER: f64 = 0.95;

pub(super) fn measure() -> CopyPlan {
    let mut target = vec![1u8; TARGET_BYTES];
    let source = vec![2u8; LONG_BYTES];
    let kernels: Vec<CopyKernel> =
        CopyKernel::ALL.into_iter().filter(|k| k.is_available() && *k != CopyKernel::StoreFlush).collect();
    let plans: Vec<CopyPlan> = kernels.iter().map(|&kernel| always(kernel)).collect();
    let times = best_times(&plans, &mut target, &source, LONG_BYTES);
    let Some((&preferred, &preferred_time)) = kernels.first().zip(times.first()) else {
        return CopyPlan::fixed(CopyKernel::StoreFlush);
    };
    let mut best = (preferred, preferred_time.mul_f64(CLEARLY_FASTER));
    for (&kernel, &time) in kernels.iter().zip(&times).skip(1) {
        if time < best.1 {
            best = (kernel, time);
        }
    }
    let direct_from_bytes = crossover_bytes(best.0, &mut target, &source);
    order_of(CopyPlan { direct_from_bytes, ..CopyPlan::fixed(best.0) })
}

/// The plan with the order in which its kernel is faster from memory that is in no cache, as a payload's usually is not.
pub(super) fn order_of(plan: CopyPlan) -> CopyPlan {
    if plan.kernel == CopyKernel::StoreFlush {
        return plan;
    }
    let mut target = vec![1u8; COLD_BYTES + LINE_BYTES];
    let source = vec![2u8; COLD_BYTES];
    let start = target.as_mut_ptr();
    let aligned = start.wrapping_add(start.addr().wrapping_neg() % LINE_BYTES);
    let time = |order| {
        // SAFETY: the source is this function's; every CPU with more than one order has the instruction.
        unsafe { flush_range(FlushInstruction::Clflush, source.as_ptr(), COLD_BYTES) };
        fence();
        let begin = Instant::now();
        // SAFETY: the target has COLD_BYTES from its first line on, and the source as many.
        unsafe { CopyPlan { order, ..plan }.copy(aligned, source.as_ptr(), COLD_BYTES, Granularity::CacheLine) };
        fence();
        begin.elapsed()
    };
    let (mut four, mut one) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        four = four.min(time(CopyOrder::FourStreams));
        one = one.min(time(CopyOrder::OneStream));
    }
    let order = if one < four.mul_f64(CLEARLY_FASTER) { CopyOrder::OneStream } else { CopyOrder::FourStreams };
    CopyPlan { order, ..plan }
}

/// The smallest length from which the kernel wins at every length tried.
fn crossover_bytes(kernel: CopyKernel, target: &mut [u8], source: &[u8]) -> usize {
    let plans = [always(kernel), CopyPlan::fixed(CopyKernel::StoreFlush)];
    let mut from_bytes = SHORT_BYTES[SHORT_BYTES.len() - 1];
    for &len_bytes in SHORT_BYTES.iter().rev() {
        let times = best_times(&plans, target, source, len_bytes);
        if times[0] > times[1] {
            break;
        }
        from_bytes = len_bytes;
    }
    from_bytes
}

fn always(kernel: CopyKernel) -> CopyPlan {
    CopyPlan { direct_from_bytes: LINE_BYTES, ..CopyPlan::fixed(kernel) }
}

/// Best time, for each plan, of a round of persists of `len_bytes` each, at places all over the target.
fn best_times(plans: &[CopyPlan], target: &mut [u8], source: &[u8], len_bytes: usize) -> Vec<Duration> {
    let slots = (target.len() - LINE_BYTES) / len_bytes;
    let start = target.as_mut_ptr();
    let aligned = start.wrapping_add(start.addr().wrapping_neg() % LINE_BYTES);
    let copies = if len_bytes < LONG_BYTES { SHORT_COPIES_PER_ROUND } else { LONG_COPIES_PER_ROUND };
    let mut first_slot = 0;
    let mut round = |plan: &CopyPlan| {
        // An odd step visits every slot of a power of two, far from its neighbours.
        first_slot = (first_slot + 193) % slots;
        let places = (0..copies).map(|copy| (first_slot + copy * 193) % slots * len_bytes);
        if len_bytes < LONG_BYTES {
            // A persist usually goes to lines that are in no cache: new space, or what was long ago.
            let evict = FlushInstruction::Clflush;
            // SAFETY: as below; every CPU with more than one way to copy has this instruction.
            places.clone().for_each(|place| unsafe { flush_range(evict, aligned.add(place), len_bytes) });
            fence();
        }
        let begin = Instant::now();
        for place in places {
            // SAFETY: the place ends at most LINE_BYTES - 1 after `slots * len_bytes`, which is inside the target,
            // `len_bytes` is at most the source's length, and both are the caller's own.
            unsafe { plan.copy(aligned.add(place), source.as_ptr(), len_bytes, Granularity::CacheLine) };
            fence();
        }
        begin.elapsed()
    };
    let mut best = vec![Duration::MAX; plans.len()];
    for _ in 0..ROUNDS {
        for (plan, best) in plans.iter().zip(&mut best) {
            *best = round(plan).min(*best);
        }
    }
    best
}
