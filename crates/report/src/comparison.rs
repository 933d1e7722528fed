//! Two things measured side by side.

use crate::samples::{Interval, Samples};

/// Results of two things that ran in turn in one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Values of the first.
    pub a: Samples,
    /// Values of the second.
    pub b: Samples,
    /// `b / a`, one for each round: what disturbs the machine disturbs both sides of a round.
    pub ratios: Samples,
}

impl Comparison {
    /// How many times the second's value is of the first's: the median over the rounds.
    pub fn ratio(&self) -> f64 {
        self.ratios.median()
    }

    /// First and third quartile of the ratio.
    pub fn ratio_spread(&self) -> Interval {
        self.ratios.quartiles()
    }
}

/// Measures two things in turn, for a number of rounds; the one that begins changes from round to round (A B, B A, …),
/// so that neither always finds the caches the other left. One round more is run first, and thrown away.
///
/// Each closure runs its side once and gives a positive value, for example seconds. Nothing is returned when there are
/// no rounds, or a value is not positive and finite.
pub fn compare(rounds: usize, mut a: impl FnMut() -> f64, mut b: impl FnMut() -> f64) -> Option<Comparison> {
    let (mut of_a, mut of_b) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
    for round in 0..=rounds {
        let (value_a, value_b) = if round % 2 == 0 {
            let first = a();
            (first, b())
        } else {
            let first = b();
            (a(), first)
        };
        if round > 0 {
            of_a.push(value_a);
            of_b.push(value_b);
        }
    }
    if !of_a.iter().chain(&of_b).all(|value| *value > 0.0) {
        return None;
    }
    let ratios = of_a.iter().zip(&of_b).map(|(a, b)| b / a).collect();
    Some(Comparison { a: Samples::new(of_a)?, b: Samples::new(of_b)?, ratios: Samples::new(ratios)? })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_order_alternates_and_the_first_round_is_thrown_away() {
        let calls = RefCell::new(String::new());
        let side = |name: char, value: f64| {
            calls.borrow_mut().push(name);
            if calls.borrow().len() <= 2 { 1000.0 } else { value }
        };
        let comparison = compare(3, || side('a', 2.0), || side('b', 6.0)).unwrap();
        assert_eq!(*calls.borrow(), "abbaabba");
        assert_eq!((comparison.a.count(), comparison.a.median(), comparison.b.median()), (3, 2.0, 6.0));
        assert_eq!(comparison.ratio(), 3.0);
    }

    #[test]
    fn the_ratio_is_taken_round_by_round() {
        // Rounds 1 to 3 are (1, 2), (10, 40), (100, 300): ratios 2, 4, 3. The ratio of the medians would be 4.
        let (mut a, mut b) = ([1.0, 1.0, 10.0, 100.0].into_iter(), [1.0, 2.0, 40.0, 300.0].into_iter());
        let comparison = compare(3, || a.next().unwrap(), || b.next().unwrap()).unwrap();
        assert_eq!((comparison.ratio(), comparison.ratio_spread()), (3.0, Interval { low: 2.5, high: 3.5 }));
    }

    #[test]
    fn a_comparison_without_meaning_is_refused() {
        assert_eq!(compare(0, || 1.0, || 1.0), None);
        assert_eq!(compare(2, || 0.0, || 1.0), None);
        assert_eq!(compare(2, || 1.0, || f64::NAN), None);
    }
}
