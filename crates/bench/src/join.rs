//! The hash join as a benchmark of memory: R's rows go into a hash table (build), and each row of S looks up its partner
//! (probe).
//!
//! Yoshioka, Goda and Kitsuregawa, *Design and implementation of a microbenchmark for non-volatile memory performance* (in
//! Japanese), section 2.2 and 3.2.2, build by several threads under one lock, which makes them slower than one; that, and
//! what scales instead, are [`Method`]s here. All of them run on any memory, join the same [`Relations`], and must find what
//! these were made to give: a join with another count or sum is an error and has no times.
//!
//! [`DurableJoin`] builds a table that survives, in a pool.
//!
//! Throughputs are rows a second: of the build |R| / t, of the probe |S| / t, of the whole (|R| + |S|) / t, where t has
//! partitioning, build and probe: that of the build has R's partitioning, that of the probe S's. Emptying the table is told
//! apart and is in none of them.

mod bucket;
#[allow(unsafe_code)] // makes arrays of bytes
mod carve;
mod chained;
mod durable;
mod in_pool;
mod linear;
#[allow(unsafe_code)] // asks for lines, and writes past the cache
mod lines;
mod measured;
#[allow(unsafe_code)] // several threads write one array
mod partition;
mod prefetch;
#[allow(unsafe_code)] // reads what several threads have written
mod radix;
#[allow(unsafe_code)] // makes rows of bytes
mod relations;
mod row;
mod table;

pub use chained::Insert;
pub use durable::{Durable, DurableTable, Inserter};
pub use in_pool::DurableJoin;
pub use measured::{Joins, beside};
pub use prefetch::Prefetch;
pub use radix::{MOST_BITS, Passes};
pub use relations::{Ids, Input, Keys, Relations, Shape};
pub use row::{Matched, Row};

use bucket::Buckets;
use carve::Carve;
use chained::Chained;
use linear::Linear;
use relations::with_shape;
use table::{Table, Work};

use crate::error::{Error, Result};
use crate::locks;
use crate::memory::Memory;

/// How it is joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// A table of chains.
    Chained(Insert),
    /// A table of chains that is built latch-free, with tags in the heads.
    Tagged,
    /// A table without chains.
    Linear,
    /// Chained buckets of two rows under latches, as commonly published; for comparison.
    BucketChained,
    /// Partition by partition.
    Radix(Passes),
}

impl Method {
    /// Its name in plans and results, where bits are a key of their own.
    pub fn name(self) -> String {
        match self {
            Method::Chained(Insert::Giant(kind)) => format!("giant-{}", kind.name()),
            Method::Chained(Insert::BitLock) => "bit-lock".into(),
            Method::Chained(Insert::LatchFree) => "latch-free".into(),
            Method::Tagged => "tagged".into(),
            Method::Linear => "linear".into(),
            Method::BucketChained => "bucket-chained".into(),
            Method::Radix(Passes::One(_)) => "radix-1".into(),
            Method::Radix(Passes::Two(..)) => "radix-2".into(),
        }
    }

    /// Every method, and radix joins whose partitions of R have about `partition_rows` rows.
    pub fn all(input: &Input, partition_rows: usize) -> Vec<Method> {
        let bits = (input.r_rows / partition_rows.max(1)).max(1).ilog2().min(2 * MOST_BITS);
        let passes = [Passes::One(bits.min(MOST_BITS)), Passes::Two(bits.div_ceil(2), bits / 2)];
        let giants = locks::Kind::ALL.into_iter().map(Insert::Giant);
        let chained = giants.chain([Insert::BitLock, Insert::LatchFree]).map(Method::Chained);
        let others = [Method::Tagged, Method::Linear, Method::BucketChained];
        chained.chain(others).chain(passes.map(Method::Radix)).collect()
    }
}

/// A join that can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Join {
    /// How.
    pub method: Method,
    /// Threads that build; that partition and join, with [`Method::Radix`].
    pub build_threads: usize,
    /// Threads that probe; unused with [`Method::Radix`].
    pub probe_threads: usize,
    /// How the build looks ahead; unused with [`Method::Radix`], whose partitions are in a cache.
    pub build_prefetch: Prefetch,
    /// How the probe looks ahead; the same.
    pub probe_prefetch: Prefetch,
}

/// How long the phases of a join took that has found what it must.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Rows of R.
    pub r_rows: u64,
    /// Rows of S.
    pub s_rows: u64,
    /// What was found.
    pub matched: Matched,
    /// Emptying the table, in nanoseconds; in no throughput.
    pub clear_ns: u64,
    /// Partitioning R, in nanoseconds; 0 without.
    pub partition_r_ns: u64,
    /// Partitioning S; 0 without.
    pub partition_s_ns: u64,
    /// Inserting R, in nanoseconds.
    pub build_ns: u64,
    /// Looking up S, in nanoseconds.
    pub probe_ns: u64,
}

fn per_second(rows: u64, ns: u64) -> f64 {
    rows as f64 / ns.max(1) as f64 * 1e9
}

impl Times {
    /// Partitioning and inserting R, in nanoseconds.
    pub fn whole_build_ns(&self) -> u64 {
        self.partition_r_ns + self.build_ns
    }

    /// Partitioning and looking up S, in nanoseconds.
    pub fn whole_probe_ns(&self) -> u64 {
        self.partition_s_ns + self.probe_ns
    }

    /// |R| / (partition R + build), in rows a second.
    pub fn build_per_second(&self) -> f64 {
        per_second(self.r_rows, self.whole_build_ns())
    }

    /// |S| / (partition S + probe), in rows a second.
    pub fn probe_per_second(&self) -> f64 {
        per_second(self.s_rows, self.whole_probe_ns())
    }

    /// (|R| + |S|) / (partition + build + probe), in rows a second.
    pub fn whole_per_second(&self) -> f64 {
        per_second(self.r_rows + self.s_rows, self.whole_build_ns() + self.whole_probe_ns())
    }
}

/// The times, if the join has found what it must.
fn checked(times: Times, relations: &Relations) -> Result<Times> {
    if times.matched != relations.expected() {
        return Err(Error::Wrong { what: "what the join has found" });
    }
    Ok(times)
}

impl Join {
    /// Bytes of memory that the table, or the partitions, of a join of this input need.
    pub fn len_bytes(&self, input: &Input) -> usize {
        let (r, s) = (input.r_rows, input.s_rows);
        with_shape!(input.shape, R, S => match self.method {
            Method::Chained(_) => Chained::<R, false>::len_bytes(r),
            Method::Tagged => Chained::<R, true>::len_bytes(r),
            Method::Linear => Linear::<R>::len_bytes(r),
            Method::BucketChained => Buckets::<R>::len_bytes(r),
            Method::Radix(passes) => radix::len_bytes::<R, S>(r, s, passes, self.build_threads),
        })
    }

    /// Joins, with the table or the partitions in this memory, of which nothing is kept.
    ///
    /// # Errors
    /// `Unavailable` when there is no thread, the memory is shorter than [`Join::len_bytes`], a pass has more than
    /// [`MOST_BITS`] bits, there are more partitions than rows of R, or a thread cannot be had; `NoRoom` when there is none for the
    /// chains of partitions; `Wrong` when it has not found what it must.
    pub fn run(&self, relations: &Relations, memory: &mut Memory) -> Result<Times> {
        let input = relations.input();
        if let Method::Radix(passes) = self.method {
            passes.check(input.r_rows)?;
        }
        let needed = self.len_bytes(input);
        if self.build_threads == 0 || self.probe_threads == 0 || needed > memory.len_bytes() {
            let what = format!("{} with {} bytes of {needed}", self.method.name(), memory.len_bytes());
            return Err(Error::unavailable(what));
        }
        let times = with_shape!(input.shape, R, S => self.run_as::<R, S>(relations, memory))?;
        checked(times, relations)
    }

    fn run_as<const R: usize, const S: usize>(&self, relations: &Relations, memory: &mut Memory) -> Result<Times> {
        let carve = &mut Carve::new(memory);
        let (r, s) = (relations.r::<R>(), relations.s::<S>());
        match self.method {
            Method::Chained(insert) => {
                self.by_table(r, s, Chained::<R, false>::carve(carve, r.len()).inserting(insert))
            }
            Method::Tagged => self.by_table(r, s, Chained::<R, true>::carve(carve, r.len())),
            Method::Linear => self.by_table(r, s, Linear::carve(carve, r.len())),
            Method::BucketChained => self.by_table(r, s, Buckets::carve(carve, r.len())),
            Method::Radix(passes) => self.by_partitions(r, s, carve, passes),
        }
    }

    fn by_table<'m, const R: usize, const S: usize>(
        &self,
        r: &[Row<R>],
        s: &[Row<S>],
        mut table: impl Table<'m, R>,
    ) -> Result<Times> {
        let clear_ns = table::clear(&mut table, self.build_threads)?;
        let build_ns = table.build(r, Work { threads: self.build_threads, prefetch: self.build_prefetch })?;
        let work = Work { threads: self.probe_threads, prefetch: self.probe_prefetch };
        let (matched, probe_ns) = table::probe(&table, s, work)?;
        let (r_rows, s_rows) = (r.len() as u64, s.len() as u64);
        Ok(Times { r_rows, s_rows, matched, clear_ns, build_ns, probe_ns, ..Times::default() })
    }

    fn by_partitions<const R: usize, const S: usize>(
        &self,
        r: &[Row<R>],
        s: &[Row<S>],
        carve: &mut Carve<'_>,
        passes: Passes,
    ) -> Result<Times> {
        let joined = radix::join(carve, r, s, passes, self.build_threads)?;
        let radix::Joined { matched, partition_r_ns, partition_s_ns, build_ns, probe_ns } = joined;
        let (r_rows, s_rows) = (r.len() as u64, s.len() as u64);
        Ok(Times { r_rows, s_rows, matched, clear_ns: 0, partition_r_ns, partition_s_ns, build_ns, probe_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Pages, Place};

    fn join(method: Method, threads: usize, prefetch: Prefetch) -> Join {
        Join {
            method,
            build_threads: threads,
            probe_threads: threads,
            build_prefetch: prefetch,
            probe_prefetch: prefetch,
        }
    }

    /// `Wrong` is what a run says that has not found what a plain map finds; see the tests of the relations.
    fn run_all(input: &Input, threads: &[usize], prefetches: &[Prefetch]) {
        let relations = input.make().unwrap();
        let len = |join: &Join| join.len_bytes(input);
        let methods = Method::all(input, 50);
        let most = methods.iter().map(|&method| len(&join(method, 5, Prefetch::None))).max().unwrap();
        let mut memory = Memory::new(&Place::Dram, Pages::Small, most.max(64)).unwrap();
        for &method in &methods {
            for &threads in threads {
                for &prefetch in prefetches {
                    let times = join(method, threads, prefetch).run(&relations, &mut memory);
                    let times = times.unwrap_or_else(|error| panic!("{method:?}, {threads}, {input:?}: {error}"));
                    assert_eq!(times.matched, relations.expected());
                    assert_eq!((times.r_rows, times.s_rows), (input.r_rows as u64, input.s_rows as u64));
                }
            }
        }
    }

    #[test]
    fn every_method_finds_what_it_must_for_relations_of_all_sizes() {
        for (r_rows, s_rows) in [(0, 0), (0, 10), (1, 10), (1, 0), (777, 0), (777, 1000), (1024, 333)] {
            let input = Input { r_rows, s_rows, matching: 0.7, ids: Ids::Uniform, ..Input::narrow(1, 3) };
            run_all(&input, &[1, 2, 5], &[Prefetch::None, Prefetch::Group(16)]);
        }
    }

    #[test]
    fn every_method_finds_what_it_must_with_skew_duplicates_and_no_match() {
        for ids in [Ids::Evenly, Ids::Uniform, Ids::Zipf(1.2)] {
            for matching in [0.0, 0.5, 1.0] {
                for keys in Keys::ALL {
                    let input = Input { r_rows: 1001, s_rows: 3003, keys, ids, matching, ..Input::narrow(1, 11) };
                    run_all(&input, &[2], &[Prefetch::Ahead(7)]);
                }
            }
        }
    }

    #[test]
    fn every_method_finds_what_it_must_with_rows_of_every_shape() {
        for shape in Shape::ALL {
            let (keys, ids) = (Keys::Sparse, Ids::Uniform);
            let input = Input { r_rows: 500, s_rows: 900, shape, keys, ids, matching: 0.9, seed: 5 };
            run_all(&input, &[3], &[Prefetch::Group(8)]);
        }
    }

    /// Many rows in few chains, and buckets that overflow.
    #[test]
    fn many_threads_that_insert_at_once_lose_no_row() {
        let input = Input::narrow(30_000, 9);
        run_all(&input, &[2], &[Prefetch::None]);
    }

    #[test]
    fn a_join_that_finds_something_else_is_an_error() {
        let mut relations = Input::narrow(100, 1).make().unwrap();
        relations.expect(Matched { count: 100, sum: 0 });
        let join = join(Method::Linear, 1, Prefetch::None);
        let mut memory = Memory::new(&Place::Dram, Pages::Small, join.len_bytes(relations.input())).unwrap();
        assert!(matches!(join.run(&relations, &mut memory), Err(Error::Wrong { .. })));
    }

    /// The sum of all words stays what it is.
    #[test]
    fn a_join_that_pairs_rows_wrongly_is_an_error() {
        for shape in Shape::ALL {
            let input = Input { shape, ..Input::narrow(100, 1) };
            let mut relations = input.make().unwrap();
            relations.swap_payloads(3, 70);
            for method in Method::all(&input, 10) {
                let join = join(method, 1, Prefetch::None);
                let mut memory = Memory::new(&Place::Dram, Pages::Small, join.len_bytes(&input)).unwrap();
                let found = join.run(&relations, &mut memory);
                assert!(matches!(found, Err(Error::Wrong { .. })), "{method:?}, {shape:?}: {found:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_joined_is_refused() {
        let relations = Input::narrow(100, 1).make().unwrap();
        let mut memory = Memory::new(&Place::Dram, Pages::Small, 1 << 20).unwrap();
        let mut short = Memory::new(&Place::Dram, Pages::Small, 64).unwrap();
        let possible = join(Method::Linear, 1, Prefetch::None);
        let refused = |join: Join, memory: &mut Memory| {
            assert!(matches!(join.run(&relations, memory), Err(Error::Unavailable { .. })), "{join:?}");
        };
        refused(possible, &mut short);
        refused(Join { build_threads: 0, ..possible }, &mut memory);
        refused(Join { probe_threads: 0, ..possible }, &mut memory);
        refused(Join { method: Method::Radix(Passes::One(MOST_BITS + 1)), ..possible }, &mut memory);
        refused(Join { method: Method::Radix(Passes::Two(7, 1)), ..possible }, &mut memory);
    }

    #[test]
    fn a_join_runs_in_a_mapped_file() {
        let relations = Input::narrow(100, 1).make().unwrap();
        for method in Method::all(relations.input(), 10) {
            let join = join(method, 2, Prefetch::None);
            let place = Place::Folder(std::env::temp_dir());
            let mut memory = Memory::new(&place, Pages::Small, join.len_bytes(relations.input())).unwrap();
            join.run(&relations, &mut memory).unwrap();
        }
    }

    #[test]
    fn throughputs_are_rows_by_time() {
        let matched = Matched::default();
        let (partition_r_ns, partition_s_ns) = (1, 3);
        let times = Times {
            r_rows: 10,
            s_rows: 30,
            matched,
            clear_ns: 5,
            partition_r_ns,
            partition_s_ns,
            build_ns: 2,
            probe_ns: 7,
        };
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
        assert!(close(times.build_per_second(), 10e9 / 3.0) && close(times.probe_per_second(), 3e9));
        assert!(close(times.whole_per_second(), 40e9 / 13.0));
    }
}
