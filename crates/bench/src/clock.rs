//! Time, in ticks of the CPU's counter and in nanoseconds.
//!
//! On x86-64 the counter is the TSC. RDTSCP waits until everything before it has been executed, and the LFENCE after it keeps
//! what follows from starting earlier (Intel SDM volume 2, RDTSCP). Neither waits for stores to leave the store buffer, so a
//! measurement that ends with a store ends with a fence of its own. Elsewhere the counter is CNTVCT_EL0 or
//! CLOCK_MONOTONIC_RAW.
//!
//! What a counter can tell is found out, not assumed: virtual machines may advance it in steps of many ticks, and a pair of
//! reads takes as long as the operations that are measured.
#![allow(unsafe_code)] // reads the counter

use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

use crate::crew;

/// The counter of this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Ticks in a nanosecond.
    pub ticks_per_ns: f64,
    /// The smallest step that the counter was seen to make.
    pub step_ticks: u64,
    /// What two reads with nothing between them are apart, at the median.
    pub pair_ticks: u64,
}

/// Over how long the counter is compared with the system's clock: the error of two readings of that, some 100 ns, is then
/// 1 part in 10^5.
const CALIBRATED_OVER_NS: u64 = 20_000_000;
/// Steps of the counter from which on a single interval can be told from none.
pub(crate) const LEAST_STEPS: f64 = 3.0;
/// Pairs of readings; an odd number.
const PAIRS: usize = 2001;

impl Clock {
    /// The clock of this process; the first call calibrates it, which takes 20 ms.
    pub fn get() -> &'static Clock {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        CLOCK.get_or_init(Clock::calibrate)
    }

    fn calibrate() -> Clock {
        // Where it cannot be kept on a CPU it is calibrated all the same.
        let _alone = crew::alone();
        let mut pairs: Vec<u64> = (0..PAIRS)
            .map(|_| {
                let start = ticks();
                ticks() - start
            })
            .collect();
        pairs.sort_unstable();
        let reads: Vec<u64> = (0..PAIRS).map(|_| ticks_at_once()).collect();
        let steps: Vec<u64> = reads.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        let step_ticks = step(&steps, &pairs);
        let (start_ticks, start_ns) = both();
        let (end_ticks, end_ns) = loop {
            let (now_ticks, now_ns) = both();
            if now_ns - start_ns >= CALIBRATED_OVER_NS {
                break (now_ticks, now_ns);
            }
            std::hint::spin_loop();
        };
        let ticks_per_ns = (end_ticks - start_ticks) as f64 / (end_ns - start_ns) as f64;
        Clock { ticks_per_ns, step_ticks, pair_ticks: pairs[PAIRS / 2] }
    }

    /// Ticks as nanoseconds.
    pub fn ns(&self, ticks: f64) -> f64 {
        ticks / self.ticks_per_ns
    }

    /// Whether a single interval of this length can be told from none.
    pub fn resolves(&self, ticks: f64) -> bool {
        ticks >= LEAST_STEPS * self.step_ticks as f64
    }
}

/// The step of a counter of which reads one after the other were so far apart, and pairs of exact readings, in ascending order.
/// Where reads come quicker than steps, many see no time pass, and the others one step. Else it divides what pairs are
/// apart; a distance that hardly ever comes is none of the counter's.
fn step(reads: &[u64], pairs: &[u64]) -> u64 {
    let often = |count: usize, of: usize| count * 100 >= of;
    let moved = reads.iter().copied().filter(|ticks| *ticks > 0);
    if often(moved.clone().count().min(reads.len() - moved.clone().count()), reads.len()) {
        return moved.min().expect("some moved");
    }
    let distances = pairs.chunk_by(|a, b| a == b).filter(|same| same[0] > 0 && often(same.len(), pairs.len()));
    distances.map(|same| same[0]).reduce(greatest_common_divisor).unwrap_or(1)
}

/// Euclid's.
fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The counter and the system's clock at one time: of three readings the one that took least.
fn both() -> (u64, u64) {
    let read = |_| {
        let before = ticks();
        let ns = monotonic_ns();
        let after = ticks();
        (after - before, before + (after - before) / 2, ns)
    };
    let (_, ticks, ns) = (0..3).map(read).min().expect("three readings");
    (ticks, ns)
}

/// CLOCK_MONOTONIC_RAW, which nobody adjusts.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::MonotonicRaw);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The counter, when everything before has been executed and nothing after has begun.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn ticks() -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: reads the counter, which Linux lets programs do; no memory is touched. Without `nomem` the compiler moves no
    // access across it.
    unsafe {
        std::arch::asm!("rdtscp", "lfence", out("rax") low, out("rdx") high, out("rcx") _, options(nostack, preserves_flags));
    }
    high << 32 | low
}

/// The counter, whatever goes on: the quickest way to read it.
#[cfg(target_arch = "x86_64")]
fn ticks_at_once() -> u64 {
    // SAFETY: reads the counter, which Linux lets programs do.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The counter, whatever goes on.
#[cfg(not(target_arch = "x86_64"))]
fn ticks_at_once() -> u64 {
    ticks()
}

/// The counter, when everything before has been executed and nothing after has begun.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: reads the virtual counter, which Linux lets programs do; no memory is touched.
    unsafe {
        std::arch::asm!("isb", "mrs {}, cntvct_el0", "isb", out(reg) ticks, options(nostack, preserves_flags));
    }
    ticks
}

/// Nanoseconds, where no counter is known.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn ticks() -> u64 {
    monotonic_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_never_goes_back_and_the_calibration_makes_sense() {
        let clock = Clock::get();
        assert!(clock.ticks_per_ns > 0.001 && clock.ticks_per_ns < 20.0, "{clock:?}");
        assert!(clock.step_ticks >= 1 && clock.pair_ticks < 100_000, "{clock:?}");
        assert!(!clock.resolves(0.0) && clock.resolves(3.0 * clock.step_ticks as f64));
        let mut last = ticks();
        for _ in 0..1000 {
            let now = ticks();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn the_step_is_what_reads_show_or_distances_are_multiples_of() {
        let pairs = [26, 52].map(|ticks| vec![ticks; 150]).concat();
        assert_eq!(step(&[0, 26, 0, 52], &pairs), 26, "reads that see no time pass show it");
        let uneven: Vec<u64> = [0, 28, 0, 29].repeat(9);
        assert_eq!(step(&uneven, &[[56; 50], [57; 50]].concat()), 28, "a step that is no whole number of ticks");
        assert_eq!(step(&[24; 40], &pairs), 26);
        let odd = [pairs.clone(), vec![7301]].concat();
        assert_eq!(step(&[24; 40], &odd), 26, "one distance that an interrupt made");
        assert_eq!(step(&[24; 40], &[[50; 9], [51; 9]].concat()), 1);
        assert_eq!(step(&[24; 40], &[0; 9]), 1);
    }
}
