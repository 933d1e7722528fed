//! In which order lines are visited.

use fastrand::Rng;

use crate::error::{Error, Result};

/// An order of lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// Each line once before any comes again, in an order that no prefetcher knows.
    Random,
    /// That many bytes apart, and from the next line on again when the end is reached.
    Stride(usize),
    /// Line k with a probability proportional to 1 / k^theta, the lines in a random order.
    Zipf(f64),
    /// The same line always.
    SameLine,
}

impl Pattern {
    /// Whether blocks of so many bytes can come in this order.
    ///
    /// # Errors
    /// `Unavailable` when they are to be so far apart that one would begin within another.
    pub(crate) fn check(self, block_bytes: usize) -> Result<()> {
        match self {
            Pattern::Stride(bytes) if !bytes.is_multiple_of(block_bytes) => Err(Error::unavailable(format!(
                "a stride of {bytes} bytes goes from the begin of no block of {block_bytes} bytes to that of another"
            ))),
            _ => Ok(()),
        }
    }

    /// The order of blocks of so many bytes that [`Walk`] takes for lines. A stride is rounded down to whole blocks, and to one
    /// at least: see `Pattern::check`.
    #[must_use]
    pub fn of_blocks(self, block_bytes: usize) -> Pattern {
        match self {
            Pattern::Stride(bytes) => Pattern::Stride((bytes / block_bytes).max(1) * LINE_BYTES),
            other => other,
        }
    }
}

/// Goes through the lines of a working set.
#[derive(Clone, Debug)]
pub struct Walk {
    lines: usize,
    next: Next,
}

#[derive(Clone, Debug)]
enum Next {
    Step { at: usize, by: usize },
    Permuted(Permutation, usize),
    Zipf { zipf: Zipf, order: Permutation, rng: Rng },
    Same,
}

const LINE_BYTES: usize = 64;

impl Walk {
    /// Through that many lines, at least one.
    pub fn new(pattern: Pattern, lines: usize, seed: u64) -> Walk {
        assert!(lines > 0, "a working set has a line");
        let next = match pattern {
            Pattern::Sequential => Next::Step { at: 0, by: 1 },
            Pattern::Stride(bytes) => Next::Step { at: 0, by: (bytes / LINE_BYTES).max(1) },
            Pattern::Random => Next::Permuted(Permutation::new(lines, seed), 0),
            Pattern::Zipf(theta) => Next::Zipf {
                zipf: Zipf::new(lines as u64, theta),
                order: Permutation::new(lines, seed),
                rng: Rng::with_seed(seed),
            },
            Pattern::SameLine => Next::Same,
        };
        Walk { lines, next }
    }

    /// The number of the next line.
    pub fn next_line(&mut self) -> usize {
        let lines = self.lines;
        match &mut self.next {
            Next::Step { at, by } => {
                let line = *at;
                *at += *by;
                if *at >= lines {
                    // The next row of a stride starts a line further.
                    *at = (line % *by + 1) % (*by).min(lines);
                }
                line
            }
            Next::Permuted(order, at) => {
                let line = order.line(*at);
                *at = (*at + 1) % lines;
                line
            }
            Next::Zipf { zipf, order, rng } => order.line(zipf.draw(rng) as usize),
            Next::Same => 0,
        }
    }
}

/// A bijection of 0..lines that needs no memory: four rounds of a Feistel network over the next even power of two, walked
/// on where it leaves the range (Black and Rogaway, *Ciphers with arbitrary finite domains*, 2002).
#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    lines: usize,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    pub(crate) fn new(lines: usize, seed: u64) -> Permutation {
        let bits = usize::BITS - (lines.max(2) - 1).leading_zeros();
        let mut rng = Rng::with_seed(seed);
        Permutation { lines, half_bits: bits.div_ceil(2), keys: std::array::from_fn(|_| rng.u64(..) | 1) }
    }

    /// Where an index below the number of lines goes.
    pub(crate) fn line(&self, index: usize) -> usize {
        let mask = (1u64 << self.half_bits) - 1;
        let mut value = index as u64;
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for key in self.keys {
                let mixed = (right.wrapping_mul(key) ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29;
                (left, right) = (right, left ^ mixed & mask);
            }
            value = left << self.half_bits | right;
            if value < self.lines as u64 {
                return value as usize;
            }
        }
    }
}

/// Zipf's distribution over 0..n, by rejection from its integral (Hormann and Derflinger, *Rejection-inversion to generate
/// variates from monotone discrete distributions*, 1996).
#[derive(Clone, Debug)]
struct Zipf {
    n: f64,
    theta: f64,
    low: f64,
    high: f64,
}

impl Zipf {
    fn new(n: u64, theta: f64) -> Zipf {
        let zipf = Zipf { n: n as f64, theta, low: 0.0, high: 0.0 };
        Zipf { low: zipf.integral(1.5) - 1.0, high: zipf.integral(n as f64 + 0.5), ..zipf }
    }

    /// Of x^-theta, from 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        if (self.theta - 1.0).abs() < 1e-9 { log } else { ((1.0 - self.theta) * log).exp_m1() / (1.0 - self.theta) }
    }

    fn inverse(&self, y: f64) -> f64 {
        if (self.theta - 1.0).abs() < 1e-9 {
            y.exp()
        } else {
            ((y * (1.0 - self.theta)).max(-1.0).ln_1p() / (1.0 - self.theta)).exp()
        }
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.high + rng.f64() * (self.low - self.high);
            let k = self.inverse(u).round().clamp(1.0, self.n);
            if u >= self.integral(k + 0.5) - (-self.theta * k.ln()).exp() {
                return k as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn walk(pattern: Pattern, lines: usize, steps: usize) -> Vec<usize> {
        let mut walk = Walk::new(pattern, lines, 7);
        (0..steps).map(|_| walk.next_line()).collect()
    }

    #[test]
    fn each_order_is_what_it_says() {
        assert_eq!(walk(Pattern::Sequential, 3, 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(walk(Pattern::Stride(128), 5, 6), [0, 2, 4, 1, 3, 0]);
        assert_eq!(walk(Pattern::Stride(256), 2, 3), [0, 1, 0]);
        assert_eq!(walk(Pattern::Stride(1024).of_blocks(256), 16, 3), [0, 4, 8]);
        assert_eq!(walk(Pattern::Stride(64).of_blocks(256), 16, 3), [0, 1, 2]);
        assert_eq!(walk(Pattern::SameLine, 9, 3), [0, 0, 0]);
        assert_eq!(walk(Pattern::Random, 1, 2), [0, 0]);
    }

    #[test]
    fn a_stride_that_is_not_whole_blocks_is_refused() {
        assert!(Pattern::Stride(4096).check(256).is_ok() && Pattern::Random.check(5568).is_ok());
        let refused = Pattern::Stride(4096).check(5568).unwrap_err().to_string();
        assert!(refused.contains("a stride of 4096 bytes") && refused.contains("5568"), "{refused}");
    }

    #[test]
    fn a_random_walk_meets_every_line_once_and_goes_no_steady_way() {
        for lines in [2, 3, 64, 1000, 4097] {
            let met = walk(Pattern::Random, lines, 2 * lines);
            assert_eq!(met[..lines].iter().collect::<BTreeSet<_>>().len(), lines);
            assert_eq!(met[..lines], met[lines..]);
            let steady = met.windows(3).filter(|w| w[2] as isize - w[1] as isize == w[1] as isize - w[0] as isize);
            assert!(lines < 64 || steady.count() < lines / 8, "{lines}");
        }
    }

    /// The share of the first rank is 1 / H(n, theta).
    #[test]
    fn zipf_draws_ranks_as_often_as_it_should() {
        for theta in [0.5, 0.99, 1.0, 1.2] {
            let (n, draws) = (1000u64, 200_000);
            let zipf = Zipf::new(n, theta);
            let mut rng = Rng::with_seed(3);
            let mut counts = vec![0u32; n as usize];
            (0..draws).for_each(|_| counts[zipf.draw(&mut rng) as usize] += 1);
            let harmonic: f64 = (1..=n).map(|k| (k as f64).powf(-theta)).sum();
            for rank in [1usize, 2, 10] {
                let expected = (rank as f64).powf(-theta) / harmonic;
                let got = f64::from(counts[rank - 1]) / f64::from(draws);
                let error = 5.0 * (expected / f64::from(draws)).sqrt();
                assert!((got - expected).abs() < error, "theta {theta}, rank {rank}: {got}, expected {expected}");
            }
        }
    }
}
