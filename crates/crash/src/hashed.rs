//! Tables keyed by what is a hash already, such as that of an image: to hash it once more is most of the work.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by hashes.
pub(crate) type HashedMap<V> = HashMap<u64, V, BuildHasherDefault<AsItIs>>;
/// A set of hashes.
pub(crate) type HashedSet = HashSet<u64, BuildHasherDefault<AsItIs>>;

/// Takes a 64-bit key for its own hash.
#[derive(Default)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys are 64-bit hashes");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
