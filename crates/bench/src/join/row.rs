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
    /// What [`Matched`] takes of a row of R.
    #[inline(always)]
    pub(super) fn mix(&self) -> u64 {
        mix(self.key, self.value.into_iter())
    }
}

/// A row's key and words in one, in which each word has another weight.
#[inline(always)]
pub(super) fn mix(key: u64, words: impl Iterator<Item = u64>) -> u64 {
    (1..).zip(words).fold(key, |sum, (at, word): (u32, u64)| sum.wrapping_add(word.rotate_left(3 * at)))
}

/// Fibonacci hashing (Knuth, *The Art of Computer Programming*, volume 3, section 6.4): the upper bits of the product are
/// the ones to use. Keys without gaps are spread more evenly than by chance.
#[inline(always)]
pub(super) fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Pairs that were found, and a sum of products, each of what R's row says and of the first word of S's: with a sum of sums it would
/// not matter whose partner a row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// How many.
    pub count: u64,
    /// Modulo 2^64.
    pub sum: u64,
}

impl Matched {
    #[inline(always)]
    pub(super) fn add(&mut self, r_mix: u64, s_word: u64) {
        self.count += 1;
        // An odd factor loses nothing of the other one.
        self.sum = self.sum.wrapping_add(r_mix.wrapping_mul(s_word << 1 | 1));
    }

    /// Both together.
    pub(super) fn and(self, other: Matched) -> Matched {
        Matched { count: self.count + other.count, sum: self.sum.wrapping_add(other.sum) }
    }
}
