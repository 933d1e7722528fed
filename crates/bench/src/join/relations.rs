//! The relations that are joined, made from a seed together with what their join must give.

use fastrand::Rng;

use super::row::{Matched, Row, mix};
use crate::error::{Error, Result};
use crate::memory::{Memory, Pages, Place};
use crate::names::names;
use crate::pattern::{Pattern, Walk};

/// How wide the rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// R: key and 8 bytes; S: id and 8 bytes. As in Balkesen, Teubner, Alonso and Özsu, *Main-memory hash joins on multi-core
    /// CPUs*, 2013, section 5.1, with keys of 8 bytes.
    Narrow,
    /// R: key and 16 bytes; S: id, and beside it its own key and 16 integers of 4 bytes. As in Yoshioka et al., table 1.
    Yoshioka,
    /// R: key and 32 bytes; S as in `Narrow`.
    Payload32,
    /// R: key and 64 bytes; S as in `Narrow`.
    Payload64,
    /// R: key and 128 bytes; S as in `Narrow`.
    Payload128,
}

names!(Shape {
    Narrow = "narrow",
    Yoshioka = "yoshioka",
    Payload32 = "payload-32",
    Payload64 = "payload-64",
    Payload128 = "payload-128",
});

impl Shape {
    /// Words beside the key in rows of R and of S.
    pub fn words(self) -> (usize, usize) {
        match self {
            Shape::Narrow => (1, 1),
            Shape::Yoshioka => (2, 9),
            Shape::Payload32 => (4, 1),
            Shape::Payload64 => (8, 1),
            Shape::Payload128 => (16, 1),
        }
    }
}

/// An expression for the numbers of words that a [`Shape`] says.
macro_rules! with_shape {
    ($shape:expr, $r:ident, $s:ident => $of:expr) => {
        match $shape {
            Shape::Narrow => {
                const $r: usize = 1;
                const $s: usize = 1;
                $of
            }
            Shape::Yoshioka => {
                const $r: usize = 2;
                const $s: usize = 9;
                $of
            }
            Shape::Payload32 => {
                const $r: usize = 4;
                const $s: usize = 1;
                $of
            }
            Shape::Payload64 => {
                const $r: usize = 8;
                const $s: usize = 1;
                $of
            }
            Shape::Payload128 => {
                const $r: usize = 16;
                const $s: usize = 1;
                $of
            }
        }
    };
}
pub(super) use with_shape;

/// What the keys of R are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// The numbers from 1 on, as the papers have them. Fibonacci hashing spreads them more evenly than by chance, and the lower
    /// bits of a key are a perfect hash.
    Dense,
    /// Numbers without any order, no two the same: chains and partitions are as long as chance has it.
    Sparse,
}

names!(Keys { Dense = "dense", Sparse = "sparse" });

impl Keys {
    /// The key of a row by its number, from 1. No two numbers have the same one, and none has 0.
    fn of(self, number: u64) -> u64 {
        match self {
            Keys::Dense => number,
            Keys::Sparse => mixed(number),
        }
    }
}

/// The finalizer of MurmurHash3 (Appleby), which has an inverse and leaves 0 where it is.
fn mixed(mut number: u64) -> u64 {
    number = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    number = (number ^ number >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ number >> 33
}

/// Which rows of R the ids of S refer to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ids {
    /// Each as often as any other, in a random order: with |R| = |S| each once.
    Evenly,
    /// Any, each time.
    Uniform,
    /// The k-th of a random order with a probability proportional to 1 / k^theta.
    Zipf(f64),
}

/// What is joined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// Rows of R, in a random order.
    pub r_rows: usize,
    /// Rows of S.
    pub s_rows: usize,
    /// How wide they are.
    pub shape: Shape,
    /// The keys of R.
    pub keys: Keys,
    /// Which rows of R they refer to.
    pub ids: Ids,
    /// The share of S's rows that refer to a row of R, from 0 to 1; the others' ids are no keys.
    pub matching: f64,
    /// The same seed gives the same rows.
    pub seed: u64,
}

impl Input {
    /// The default input of the joins of Balkesen et al. at |R| = |S|.
    pub fn narrow(rows: usize, seed: u64) -> Input {
        let (shape, keys, ids) = (Shape::Narrow, Keys::Dense, Ids::Evenly);
        Input { r_rows: rows, s_rows: rows, shape, keys, ids, matching: 1.0, seed }
    }

    /// Bytes of the rows.
    pub fn len_bytes(&self) -> u64 {
        let (r_words, s_words) = self.shape.words();
        8 * ((self.r_rows * (1 + r_words)) as u64 + (self.s_rows * (1 + s_words)) as u64)
    }

    /// Makes the rows, in ordinary memory.
    ///
    /// # Errors
    /// `Memory` when there is not enough; `Unavailable` when there are more than 2^31 rows, or the share is none.
    pub fn make(&self) -> Result<Relations> {
        if self.r_rows.max(self.s_rows) > MOST_ROWS || !(0.0..=1.0).contains(&self.matching) {
            return Err(Error::unavailable(format!("a join of {self:?}")));
        }
        let (r_words, s_words) = self.shape.words();
        let memory =
            |rows: usize, words: usize| Memory::new(&Place::Dram, Pages::Huge, (rows.max(1) * 8 * (1 + words)).max(64));
        let (r, s) = (memory(self.r_rows, r_words)?, memory(self.s_rows, s_words)?);
        let mut relations = Relations { input: *self, r, s, expected: Matched::default() };
        with_shape!(self.shape, R, S => {
            relations.fill_r::<R>();
            relations.fill_s::<R, S>();
        });
        Ok(relations)
    }
}

/// Numbers of rows fit into 32 bits with one to spare for nothing.
pub(super) const MOST_ROWS: usize = 1 << 31;

/// The relations, and what their join gives.
#[derive(Debug)]
pub struct Relations {
    input: Input,
    r: Memory,
    s: Memory,
    expected: Matched,
}

/// A word of R's row with this key.
#[inline(always)]
fn value_of(key: u64, word: usize) -> u64 {
    (key ^ (word as u64) << 48).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29)
}

/// A word of S's row of this number.
#[inline(always)]
fn s_word(number: usize, word: usize) -> u64 {
    (number as u64 + 1).wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(word as u64)
}

impl Relations {
    /// What they were made from.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// What every join of them must find; worked out while they were made, without a hash table.
    pub fn expected(&self) -> Matched {
        self.expected
    }

    /// The rows of R.
    ///
    /// # Panics
    /// If rows have another number of words.
    pub fn r<const R: usize>(&self) -> &[Row<R>] {
        assert_eq!(self.input.shape.words().0, R);
        // SAFETY: the memory was made for so many rows of this type, is never written again, and any bytes are a row.
        unsafe { std::slice::from_raw_parts(self.r.base().cast(), self.input.r_rows) }
    }

    /// The rows of S.
    ///
    /// # Panics
    /// If rows have another number of words.
    pub fn s<const S: usize>(&self) -> &[Row<S>] {
        assert_eq!(self.input.shape.words().1, S);
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.s.base().cast(), self.input.s_rows) }
    }

    /// Expects something else, to see whether it is noticed.
    #[cfg(test)]
    pub(super) fn expect(&mut self, expected: Matched) {
        self.expected = expected;
    }

    /// Has two rows of R exchange what they have beside their keys.
    #[cfg(test)]
    pub(super) fn swap_payloads(&mut self, one: usize, other: usize) {
        with_shape!(self.input.shape, R, _S => {
            // SAFETY: the memory was made for so many rows, and is borrowed alone.
            let r: &mut [Row<R>] = unsafe { std::slice::from_raw_parts_mut(self.r.base().cast(), self.input.r_rows) };
            (r[one].value, r[other].value) = (r[other].value, r[one].value);
        });
    }

    fn fill_r<const R: usize>(&mut self) {
        let rows = self.input.r_rows;
        // SAFETY: the memory was made for so many rows, and is borrowed alone.
        let r: &mut [Row<R>] = unsafe { std::slice::from_raw_parts_mut(self.r.base().cast(), rows) };
        let mut order = Walk::new(Pattern::Random, rows.max(1), self.input.seed);
        for row in r {
            let key = self.input.keys.of(order.next_line() as u64 + 1);
            *row = Row { key, value: std::array::from_fn(|word| value_of(key, word)) };
        }
    }

    fn fill_s<const R: usize, const S: usize>(&mut self) {
        let Input { r_rows, s_rows, keys, ids, matching, seed, .. } = self.input;
        let mut rng = Rng::with_seed(seed ^ 0x5);
        let pattern = match ids {
            Ids::Evenly | Ids::Uniform => Pattern::Random,
            Ids::Zipf(theta) => Pattern::Zipf(theta),
        };
        let mut order = Walk::new(pattern, r_rows.max(1), seed.wrapping_add(1));
        let mut expected = Matched::default();
        // SAFETY: the memory was made for so many rows, and is borrowed alone.
        let s: &mut [Row<S>] = unsafe { std::slice::from_raw_parts_mut(self.s.base().cast(), s_rows) };
        for (number, row) in s.iter_mut().enumerate() {
            let is_in_r = r_rows > 0 && (matching >= 1.0 || rng.f64() < matching);
            let id = keys.of(match ids {
                _ if !is_in_r => r_rows as u64 + 1 + rng.u64(..r_rows.max(1) as u64),
                Ids::Uniform => rng.u64(..r_rows as u64) + 1,
                Ids::Evenly | Ids::Zipf(_) => order.next_line() as u64 + 1,
            });
            let value = std::array::from_fn(|word| s_word(number, word));
            *row = Row { key: id, value };
            if is_in_r {
                expected.add(mix(id, (0..R).map(|word| value_of(id, word))), row.value[0]);
            }
        }
        self.expected = expected;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use super::*;

    /// What is expected, found again with a plain map.
    fn found<const R: usize, const S: usize>(relations: &Relations) -> Matched {
        let r: HashMap<u64, u64> = relations.r::<R>().iter().map(|row| (row.key, row.mix())).collect();
        let mut found = Matched::default();
        for row in relations.s::<S>() {
            if let Some(sum) = r.get(&row.key) {
                found.add(*sum, row.value[0]);
            }
        }
        found
    }

    #[test]
    fn what_is_expected_is_what_a_plain_map_finds() {
        for (r_rows, s_rows) in [(0, 0), (0, 9), (1, 5), (1000, 0), (1000, 3001), (777, 777)] {
            for ids in [Ids::Evenly, Ids::Uniform, Ids::Zipf(0.99)] {
                for matching in [0.0, 0.3, 1.0] {
                    for (shape, keys) in Shape::ALL.into_iter().zip([Keys::Dense, Keys::Sparse].into_iter().cycle()) {
                        let input = Input { r_rows, s_rows, shape, keys, ids, matching, seed: 3 };
                        let relations = input.make().unwrap();
                        let found = with_shape!(shape, R, S => found::<R, S>(&relations));
                        assert_eq!(relations.expected(), found, "{input:?}");
                        assert!(matching < 1.0 || r_rows == 0 || found.count == s_rows as u64, "{input:?}");
                        assert!(matching > 0.0 || found.count == 0, "{input:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn keys_are_unique_and_ids_are_spread_as_asked() {
        let relations = Input::narrow(1000, 7).make().unwrap();
        let keys: BTreeSet<u64> = relations.r::<1>().iter().map(|row| row.key).collect();
        assert_eq!((keys.len(), keys.first(), keys.last()), (1000, Some(&1), Some(&1000)));
        let ids: BTreeSet<u64> = relations.s::<1>().iter().map(|row| row.key).collect();
        assert_eq!(ids, keys);
        let sparse = Input { keys: Keys::Sparse, ..Input::narrow(1000, 7) }.make().unwrap();
        let keys: BTreeSet<u64> = sparse.r::<1>().iter().map(|row| row.key).collect();
        assert!(keys.len() == 1000 && keys.last() > Some(&(1 << 60)) && !keys.contains(&0));
        let ids: BTreeSet<u64> = sparse.s::<1>().iter().map(|row| row.key).collect();
        assert_eq!(ids, keys);
        let skewed = Input { ids: Ids::Zipf(1.2), ..Input::narrow(1000, 7) }.make().unwrap();
        let ids: BTreeSet<u64> = skewed.s::<1>().iter().map(|row| row.key).collect();
        assert!(ids.len() < 500, "{} ids", ids.len());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for input in [
            Input { matching: 1.5, ..Input::narrow(1, 1) },
            Input { matching: f64::NAN, ..Input::narrow(1, 1) },
            Input::narrow(MOST_ROWS + 1, 1),
        ] {
            assert!(matches!(input.make(), Err(Error::Unavailable { .. })), "{input:?}");
        }
    }
}
