//! A warm mapping, a source, and the arithmetic of paired measurements.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use remanent_pmem::{CopyPlan, Mapped, Mapping, Media, MediaFile, MediaMap, OpenMode, Stripe, Touch};

pub(crate) const TARGET_BYTES: usize = 1 << 30;
pub(crate) const SOURCE_BYTES: usize = 512 << 20;

pub(crate) struct Fixture {
    pub(crate) mapped: Mapped,
    pub(crate) map: Mapping,
    pub(crate) source: Vec<u8>,
    label: String,
}

impl Fixture {
    pub(crate) fn new(directory: &Path) -> Fixture {
        let mapped = Mapped::new();
        let path = directory.join(format!("persist-{}.tmp", std::process::id()));
        let file = Arc::new(mapped.create(&path, TARGET_BYTES as u64).expect("room for the target"));
        mapped.remove(&path).expect("the name is ours");
        let backing = file.backing();
        let plan = CopyPlan::get();
        let label = format!(
            "{} on {}, kernel {} from {} B, {}, {}",
            backing.provenance.as_str(),
            backing.filesystem,
            plan.kernel.as_str(),
            plan.direct_from_bytes,
            plan.order.as_str(),
            plan.flush.as_str()
        );
        let map = mapped.map(&[file], Stripe::SINGLE, OpenMode::Writer).expect("a mapping");
        map.guard(0, TARGET_BYTES as u64, Touch::Store).expect("every page");
        let mut state = 88_172_645_463_325_252u64;
        let source =
            std::iter::repeat_with(|| next(&mut state).to_le_bytes()).take(SOURCE_BYTES / 8).flatten().collect();
        Fixture { mapped, map, source, label }
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }
}

/// The next number of a xorshift generator (Marsaglia, "Xorshift RNGs", 2003).
pub(crate) fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Both sides' times of each round.
pub(crate) struct Paired {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Paired {
    /// Runs both sides alternately, changing who is first from round to round.
    pub(crate) fn measure(rounds: usize, mut ours: impl FnMut(), mut theirs: impl FnMut()) -> Paired {
        let time = |side: &mut dyn FnMut()| {
            let begin = Instant::now();
            side();
            begin.elapsed().as_secs_f64()
        };
        let mut paired = Paired { ours: Vec::new(), theirs: Vec::new() };
        for round in 0..rounds + 1 {
            let (our_s, their_s) = if round % 2 == 0 {
                let our_s = time(&mut ours);
                (our_s, time(&mut theirs))
            } else {
                let their_s = time(&mut theirs);
                (time(&mut ours), their_s)
            };
            // The first round warms up both.
            if round > 0 {
                paired.ours.push(our_s);
                paired.theirs.push(their_s);
            }
        }
        paired
    }

    pub(crate) fn medians_s(&self) -> (f64, f64) {
        (quantile(&self.ours, 0.5), quantile(&self.theirs, 0.5))
    }

    /// Quartiles of ours / theirs.
    pub(crate) fn time_ratio(&self) -> [f64; 3] {
        let ratios: Vec<f64> = self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs).collect();
        [0.25, 0.5, 0.75].map(|q| quantile(&ratios, q))
    }

    /// Quartiles of one side, ours first.
    pub(crate) fn spreads_s(&self) -> [[f64; 2]; 2] {
        [&self.ours, &self.theirs].map(|side| [quantile(side, 0.25), quantile(side, 0.75)])
    }
}

fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}
