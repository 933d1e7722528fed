//! A set of measured values and its order statistics.

use serde::{Deserialize, Serialize};

/// Values of one quantity, at least one, all finite, in ascending order.
///
/// Invariants:
/// 1. The set is never empty, so that a median always exists.
/// 2. Every value is finite, and `sorted[i] <= sorted[i + 1]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    sorted: Vec<f64>,
}

/// A range of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Draws for an interval: enough for its ends to be steady in the second digit.
const RESAMPLES: usize = 2000;

impl Samples {
    /// Takes values in any order; nothing when there are none, or one is not finite.
    pub fn new(mut values: Vec<f64>) -> Option<Samples> {
        if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        values.sort_by(f64::total_cmp);
        Some(Samples { sorted: values })
    }

    /// Number of values.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The value that half of the values do not exceed.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// First and third quartile.
    pub fn quartiles(&self) -> Interval {
        Interval { low: self.quantile(0.25), high: self.quantile(0.75) }
    }

    /// The quantile of a fraction, linear between neighbours (definition 7 of Hyndman and Fan, *Sample quantiles in
    /// statistical packages*, 1996, which R and NumPy use by default).
    ///
    /// # Panics
    /// When the fraction is not between 0 and 1.
    pub fn quantile(&self, fraction: f64) -> f64 {
        assert!((0.0..=1.0).contains(&fraction), "a quantile's fraction lies between 0 and 1, not at {fraction}");
        let place = fraction * (self.sorted.len() - 1) as f64;
        let below = self.sorted[place.floor() as usize];
        let above = self.sorted[place.ceil() as usize];
        below + (above - below) * place.fract()
    }

    /// The 95 % bootstrap percentile interval of the median (Efron and Tibshirani, *An Introduction to the Bootstrap*,
    /// 1993, chapter 13). The same seed gives the same interval.
    pub fn median_interval(&self, seed: u64) -> Interval {
        let mut random = Random(seed);
        let mut draw = || {
            let values = self.sorted.iter().map(|_| self.sorted[random.below(self.sorted.len())]).collect();
            Samples::new(values).expect("a draw from a set that is not empty").median()
        };
        let medians = Samples::new((0..RESAMPLES).map(|_| draw()).collect()).expect("medians are finite");
        Interval { low: medians.quantile(0.025), high: medians.quantile(0.975) }
    }
}

/// SplitMix64 (Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, 2014): ten lines, against a
/// dependency for every product.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The high half of a product: its bias is below count / 2^64.
    fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_computed_by_hand() {
        let odd = Samples::new(vec![10.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((odd.median(), odd.quartiles()), (3.0, Interval { low: 2.0, high: 4.0 }));
        let even = Samples::new(vec![1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!((even.median(), even.quartiles()), (2.5, Interval { low: 1.75, high: 3.25 }));
        assert_eq!((even.quantile(0.0), even.quantile(1.0)), (1.0, 4.0));
        assert_eq!(Samples::new(vec![7.0]).unwrap().quartiles(), Interval { low: 7.0, high: 7.0 });
    }

    #[test]
    fn sets_without_a_median_are_refused() {
        assert_eq!(Samples::new(vec![]), None);
        assert_eq!(Samples::new(vec![1.0, f64::NAN]), None);
        assert_eq!(Samples::new(vec![f64::INFINITY]), None);
    }

    #[test]
    fn the_interval_holds_the_median_and_follows_the_seed_alone() {
        let samples = Samples::new((1..=41).map(f64::from).collect()).unwrap();
        let interval = samples.median_interval(1);
        // The binomial interval of order statistics for n = 41 is the 14th to the 28th value (2 * pbinom(13, 41, 0.5)).
        assert!((13.0..=16.0).contains(&interval.low) && (26.0..=29.0).contains(&interval.high), "{interval:?}");
        assert_eq!(interval, samples.median_interval(1));
        let same = Samples::new(vec![5.0; 9]).unwrap().median_interval(3);
        assert_eq!(same, Interval { low: 5.0, high: 5.0 });
    }

    #[test]
    fn the_generator_is_splitmix64() {
        // First outputs for the seed 1234567, as published with the reference implementation.
        let mut random = Random(1234567);
        assert_eq!([random.next(), random.next()], [6457827717110365317, 3203168211198807973]);
    }
}
