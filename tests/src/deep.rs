//! The contract of a deep campaign: budget and seed from the environment, counters as one line of JSON.

use std::time::{Duration, Instant};

/// How long to work and where to begin.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    end: Instant,
    /// Seed of the first round; later rounds count on from it.
    pub seed: u64,
    /// Whether a budget was given, so that there is time for what takes long.
    pub is_deep: bool,
}

impl Budget {
    /// From `REMANENT_DEEP_BUDGET_S` and `REMANENT_DEEP_SEED`; without them `otherwise`, from seed 1.
    ///
    /// # Panics
    /// If one of them is no number.
    pub fn from_environment(otherwise: Duration) -> Budget {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is {text:?} and no number")))
        };
        let length = number("REMANENT_DEEP_BUDGET_S").map(Duration::from_secs);
        let end = Instant::now() + length.unwrap_or(otherwise);
        Budget { end, seed: number("REMANENT_DEEP_SEED").unwrap_or(1), is_deep: length.is_some() }
    }

    /// Whether there is time for another round.
    pub fn is_left(&self) -> bool {
        Instant::now() < self.end
    }
}

/// Prints the counters of a campaign.
pub fn print_counters(counters: &[(&str, u64)]) {
    let fields: Vec<String> = counters.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    println!("{{{}}}", fields.join(", "));
}
