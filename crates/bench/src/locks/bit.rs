//! A lock of one bit in a word that has something else to say, so that a table has one in each bucket's head.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Lock, between};

/// Waits for the bits of `mask`, which are no more than one, and sets them; tells what else the word says.
#[inline]
fn acquire(word: &AtomicU64, mask: u64) -> u64 {
    loop {
        if word.load(Ordering::Relaxed) & mask == 0 {
            let before = word.fetch_or(mask, Ordering::Acquire);
            if before & mask == 0 {
                return before;
            }
        }
        spin_loop();
    }
}

/// Has the word to itself by the bit `mask`: the work is told the word without the bit, and what it returns is stored there
/// by the same store that frees the bit.
///
/// The work must not panic: what the word should say would then not be known, and the bit stays set.
///
/// # Panics
/// If the work returns a word with the bit.
#[inline]
pub fn hold_bit(word: &AtomicU64, mask: u64, work: impl FnOnce(u64) -> u64) {
    let after = work(acquire(word, mask));
    assert_eq!(after & mask, 0, "the bit is the lock's");
    word.store(after, Ordering::Release);
}

/// A lock of one bit of a word of its own, to be compared with the others.
#[derive(Debug)]
pub struct Bit(AtomicU64);

const BIT: u64 = 1 << 63;

// SAFETY: only who has set the bit works, and only it clears the bit, releasing what it has written.
unsafe impl Lock for Bit {
    type Waiter = ();

    fn new() -> Bit {
        Bit(AtomicU64::new(0))
    }

    #[inline]
    fn hold<R>(&self, (): &mut (), work: impl FnOnce() -> R) -> R {
        let release = || self.0.store(self.0.load(Ordering::Relaxed) & !BIT, Ordering::Release);
        let acquire = || {
            acquire(&self.0, BIT);
        };
        between(acquire, release, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew;

    #[test]
    fn a_word_under_its_bit_loses_no_change() {
        let word = AtomicU64::new(5);
        let add = || {
            let word = &word;
            move || (0..10_000).for_each(|_| hold_bit(word, BIT, |value| value + 1))
        };
        crew::once_together(vec![add(), add()]).unwrap();
        assert_eq!(word.into_inner(), 20_005);
    }
}
