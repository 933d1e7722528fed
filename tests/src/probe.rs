//! What a recovery commits itself: one operation after whatever it found, so that it is not lost or torn either.

use std::ops::RangeInclusive;

/// The name that it commits.
pub const PROBE: &str = "probe";

/// Operation n with the probe is operation n + `PROBED`.
const PROBED: usize = 1 << 20;

/// The operation that the probe makes of one that may have it already.
pub fn probed(operation: usize) -> usize {
    unprobed(operation) + PROBED
}

/// The operation without it.
pub fn unprobed(operation: usize) -> usize {
    operation % PROBED
}

/// Whether an operation has the probe.
pub fn is_probed(operation: usize) -> bool {
    operation >= PROBED
}

/// Whether a state may be recovered where these are allowed, when `same` tells which cannot be told apart.
pub fn allows(allowed: &RangeInclusive<usize>, state: usize, same: impl Fn(usize, usize) -> bool) -> bool {
    if state == 0 {
        return allowed.contains(&0);
    }
    candidates(allowed, is_probed(state)).any(|operation| operation == state || same(operation, state))
}

/// The allowed operations from 1 on that have the probe, or that have it not; the newest first.
pub fn candidates(allowed: &RangeInclusive<usize>, has_probe: bool) -> impl Iterator<Item = usize> + use<> {
    let (start, end) = ((*allowed.start()).max(1), *allowed.end());
    // A recovery has shown one state before it begins with the probe.
    let range = match (has_probe, is_probed(end)) {
        (true, true) => end..=end,
        (false, true) if !is_probed(start) => start..=start,
        (false, false) => start..=end,
        _ => RangeInclusive::new(1, 0),
    };
    range.rev()
}
