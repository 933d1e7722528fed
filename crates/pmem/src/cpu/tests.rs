//! Every copy kernel that this CPU has, against a plain model with guard zones.

use super::*;

const GUARD_BYTES: usize = 128;
const FILL: u8 = 0xA5;

fn available() -> impl Iterator<Item = CopyKernel> {
    CopyKernel::ALL.into_iter().filter(|kernel| kernel.is_available())
}

/// Every plan for long copies.
fn long_plans() -> impl Iterator<Item = CopyPlan> {
    let orders = [CopyOrder::OneStream, CopyOrder::FourStreams];
    let of =
        move |kernel| orders.map(|order| CopyPlan { direct_from_bytes: LINE_BYTES, order, ..CopyPlan::fixed(kernel) });
    available().flat_map(of)
}

fn pattern(len_bytes: usize) -> Vec<u8> {
    (0..len_bytes).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// Copies into the middle of a filled buffer and compares all of it with the plain model.
fn check(plan: &CopyPlan, granularity: Granularity, offset: usize, source: &[u8], target: &mut [u8]) {
    target.fill(FILL);
    let base = target.as_mut_ptr();
    let first = base.addr().wrapping_neg() % LINE_BYTES + GUARD_BYTES + offset;
    assert!(first + source.len() + GUARD_BYTES <= target.len());
    // SAFETY: the assertion above keeps the copy inside the target.
    unsafe { plan.copy(base.add(first), source.as_ptr(), source.len(), granularity) };
    fence();
    let (before, rest) = target.split_at(first);
    let (copied, after) = rest.split_at(source.len());
    let place = (plan.kernel, plan.order, granularity, offset, source.len());
    assert!(copied == source, "wrong bytes: {place:?}");
    assert!(before.iter().chain(after).all(|&byte| byte == FILL), "bytes outside were written: {place:?}");
}

#[test]
fn every_kernel_copies_every_short_shape() {
    let source = pattern(300 + 7);
    let mut target = vec![0; 300 + 130 + 2 * GUARD_BYTES + LINE_BYTES];
    for kernel in available() {
        for direct_from_bytes in [LINE_BYTES, DEFAULT_DIRECT_FROM_BYTES] {
            let plan = CopyPlan { direct_from_bytes, ..CopyPlan::fixed(kernel) };
            for offset in 0..=130 {
                for len in 0..=300 {
                    let skew = (offset + len) % 8;
                    check(&plan, Granularity::CacheLine, offset, &source[skew..skew + len], &mut target);
                }
            }
        }
    }
}

#[test]
fn every_kernel_copies_long_shapes_with_every_granularity() {
    let source = pattern((1 << 20) + 200);
    let mut target = vec![0; source.len() + 2 * GUARD_BYTES + 2 * LINE_BYTES];
    for plan in long_plans() {
        for granularity in [Granularity::Byte, Granularity::CacheLine, Granularity::Page] {
            for (offset, skew, len) in [(0, 0, 1 << 20), (1, 3, (1 << 20) + 63), (63, 64, 5568), (8, 1, 65_537)] {
                check(&plan, granularity, offset, &source[skew..skew + len], &mut target);
            }
        }
    }
}

#[test]
fn flush_accepts_every_range_of_a_page() {
    let bytes = vec![7u8; 8192];
    let flush = facts().flush;
    for len_bytes in [0, 1, 63, 64, 65, 4096] {
        for offset in 0..130 {
            // SAFETY: the range is inside `bytes`, and the instruction is the one that was detected.
            unsafe { flush_range(flush, bytes.as_ptr().add(offset), len_bytes) };
        }
    }
    fence();
    assert!(bytes.iter().all(|&byte| byte == 7));
}

#[test]
fn environment_fixes_the_kernel() {
    for kernel in available() {
        let plan = CopyPlan::choose(Some(kernel.as_str()));
        assert_eq!((plan.kernel, plan.origin), (kernel, PlanOrigin::Environment));
    }
    assert_eq!(CopyPlan::choose(Some("clwb")).direct_from_bytes, usize::MAX);
}

#[test]
fn unknown_name_in_the_environment_is_reported() {
    let plan = CopyPlan::choose(Some("warp"));
    assert_eq!(plan.origin, PlanOrigin::EnvironmentIgnored);
    assert!(plan.kernel.is_available());
}

#[test]
fn calibration_is_the_default_and_picks_an_available_kernel() {
    for wanted in [None, Some("")] {
        let plan = CopyPlan::choose(wanted);
        assert_eq!(plan.origin, PlanOrigin::Calibrated);
        assert!(plan.kernel.is_available());
        assert!(plan.direct_from_bytes >= LINE_BYTES);
    }
}

#[test]
fn facts_are_plausible() {
    let facts = facts();
    assert!(facts.line_bytes.is_power_of_two(), "{facts:?}");
    assert!(facts.flush == FlushInstruction::Missing || !facts.instructions.is_empty());
}
