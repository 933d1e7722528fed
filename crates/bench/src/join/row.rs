//! Rows, and how their keys are hashed.

/// A row: a key and `W` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Row<const W: usize> {
    /// The column that is joined. No key is 0.
    pub key: u64,
    /// Everything else.
    pub value: [u64; W],
}

impl<const W: usize> Row<W> {
    /// The sum of the words beside the key.
    #[inline(always)]
    pub(super) fn sum(&self) -> u64 {
        self.value.iter().fold(0, |sum, word| sum.wrapping_add(*word))
    }
}

/// Fibonacci hashing (Knuth, *The Art of Computer Programming*, volume 3, section 6.4): the upper bits of the product are
/// the ones to use. Keys without gaps are spread more evenly than by chance.
#[inline(always)]
pub(super) fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Pairs that were found, and the sum of what their rows say: all words of R's rows, and the first of S's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// How many.
    pub count: u64,
    /// Modulo 2^64.
    pub sum: u64,
}

impl Matched {
    #[inline(always)]
    pub(super) fn add(&mut self, r_sum: u64, s_word: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(r_sum).wrapping_add(s_word);
    }

    /// Both together.
    pub(super) fn and(self, other: Matched) -> Matched {
        Matched { count: self.count + other.count, sum: self.sum.wrapping_add(other.sum) }
    }
}
