//! The deep crash lane: random lives of pools, striped and single, and of stores, pools that are made and removed, and durable
//! tables of joins, on memory and on page-cached files, each crashed and killed at every event. It counts by protocol, and fails when it has
//! reached less than 95 % of the calls of the seam in the source.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bench::join::Durable;
use crash::{Campaign, Policy, Protocol, Report, Tally};
use pmem::Granularity;
use remanent_tests::coverage::{self, Line};
use remanent_tests::deep::{Budget, print_counters};
use remanent_tests::inserters::TwoInserters;
use remanent_tests::join::TableSteps;
use remanent_tests::pool::PoolSteps;
use remanent_tests::removal::MakeAndRemove;
use remanent_tests::store::StoreSteps;

/// Images of one life, so that a life cannot use up the whole budget.
const LIMIT: u64 = 400_000;

/// One life in four is on page-cached files.
fn granularity(seed: u64) -> Granularity {
    if seed.is_multiple_of(4) { Granularity::Page } else { Granularity::CacheLine }
}

/// Runs the life of a seed; fails when one of its images does.
fn run(protocol: &impl Protocol, steps: &dyn std::fmt::Debug, seed: u64) -> Report {
    clean(report(protocol, seed), steps, seed)
}

fn report(protocol: &impl Protocol, seed: u64) -> Report {
    let policy = Policy {
        seed,
        nested_every: 512,
        kill_every: 1 + seed % 3,
        limit: LIMIT,
        lazy: 8192..8256,
        ..Policy::default()
    };
    Campaign::new(protocol, granularity(seed), policy).run()
}

fn clean(report: Report, steps: &dyn std::fmt::Debug, seed: u64) -> Report {
    assert!(report.is_clean(), "life {seed} ({:?}, {steps:?}): {report}", granularity(seed));
    report
}

/// What has been added up.
#[derive(Default)]
struct Sum {
    lives: u64,
    by_protocol: BTreeMap<&'static str, Tally>,
    reached: BTreeSet<Line>,
}

impl Sum {
    fn add(&mut self, report: &Report, protocol: impl Fn(Option<usize>) -> &'static str) {
        self.lives += 1;
        self.reached.extend(coverage::reached(report));
        for (&operation, tally) in &report.by_operation {
            self.by_protocol.entry(protocol(operation)).or_default().add(tally);
        }
    }

    /// Over all protocols, then of each one.
    fn print(&self) {
        let mut all = Tally::default();
        for tally in self.by_protocol.values() {
            all.add(tally);
        }
        let named = self.by_protocol.iter().map(|(protocol, tally)| (format!("{protocol}_"), tally));
        let mut counters = vec![("lives".to_owned(), self.lives)];
        for (prefix, tally) in [(String::new(), &all)].into_iter().chain(named) {
            let Tally { images, points, stores, fences } = *tally;
            let parts = [("images", images), ("points", points), ("stores", stores), ("fences", fences)];
            counters.extend(parts.map(|(part, count)| (prefix.clone() + part, count)));
        }
        let counters: Vec<(&str, u64)> = counters.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        print_counters(&counters);
    }
}

/// Each seed is the life of a pool and the life of a store, which takes a sixth of the time.
#[test]
fn random_lives_of_pools_and_stores_survive_every_image() {
    let budget = Budget::from_environment(Duration::from_secs(2));
    let mut sum = Sum::default();
    let mut seed = budget.seed.wrapping_mul(1_000_003);
    if budget.is_deep {
        // The same lives each time, crashed in another way: in them every call of the seam is made.
        seed += 1;
        for offset in 0..2 {
            sum.add(&run(&MakeAndRemove, &MakeAndRemove, seed * 4 + offset), |_| "removal");
            let life = PoolSteps { reader_first: false, ..PoolSteps::everything() };
            sum.add(&run(&life, &"everything", seed * 4 + offset), |operation| life.protocol(operation));
            for durable in [Durable::EachRow, Durable::Blocks] {
                let life = TableSteps { durable, insertions: 12 };
                sum.add(&run(&life, &durable, seed * 4 + offset), |_| "join");
                let life = TwoInserters::new(durable, 1, 3, seed + offset);
                let report = TwoInserters::judged(report(&life, seed * 4 + offset));
                sum.add(&clean(report, &life.to_string(), seed * 4 + offset), |_| "inserters");
            }
        }
        let life = PoolSteps::with_a_failed_write_back(5);
        sum.add(&run(&life, &"a failed write-back", seed * 4), |operation| life.protocol(operation));
    }
    if budget.is_deep && budget.seed.is_multiple_of(8) {
        // Logs that fill up, a long life.
        let life = PoolSteps::with_long_descriptions();
        sum.add(&run(&life, &"long descriptions", seed), |operation| life.protocol(operation));
    }
    while sum.lives == 0 || budget.is_left() {
        seed += 1;
        let steps = 6 + (seed % 7) as usize;
        let mut life = PoolSteps::random(seed, steps);
        if seed.is_multiple_of(3) {
            life.more_files = vec!["/other/member".into()];
        }
        sum.add(&run(&life, &life.steps, seed), |operation| life.protocol(operation));
        let life = StoreSteps::random(seed, steps);
        sum.add(
            &run(&life, &life.steps, seed),
            |operation| if operation.is_some() { "store" } else { "store_recovery" },
        );
    }
    sum.print();
    let calls = coverage::seam_calls();
    let missed: Vec<&Line> = calls.difference(&sum.reached).collect();
    println!("{} of {} calls of the seam were reached; not {missed:?}", calls.len() - missed.len(), calls.len());
    // Short runs, with every change, are told by another test what they must reach.
    assert!(!budget.is_deep || missed.len() * 20 <= calls.len(), "less than 95 % of the seam's calls were reached");
}
