//! The deep crash lane: random lives of pools, striped and single, and of stores, on memory and on page-cached files,
//! each crashed and killed at every event.

use std::time::Duration;

use crash::{Campaign, Policy, Protocol, Report};
use pmem::Granularity;
use remanent_tests::deep::{Budget, print_counters};
use remanent_tests::pool::PoolSteps;
use remanent_tests::store::StoreSteps;

/// Images of one life, so that a life cannot use up the whole budget.
const LIMIT: u64 = 400_000;

/// Runs the life of a seed; fails when one of its images does.
fn run(protocol: &impl Protocol, steps: &dyn std::fmt::Debug, seed: u64) -> Report {
    let granularity = if seed.is_multiple_of(4) { Granularity::Page } else { Granularity::CacheLine };
    let policy = Policy {
        seed,
        nested_every: 512,
        kill_every: 1 + seed % 3,
        limit: LIMIT,
        lazy: 8192..8256,
        ..Policy::default()
    };
    let report = Campaign::new(protocol, granularity, policy).run();
    assert!(report.is_clean(), "life {seed} ({granularity:?}, {steps:?}): {report}");
    report
}

/// What has been added up: over everything, and how much of it belongs to stores.
#[derive(Default)]
struct Sum {
    lives: u64,
    images: u64,
    points: u64,
    stores: u64,
    fences: u64,
    store_lives: u64,
    store_images: u64,
}

impl Sum {
    fn add(&mut self, report: &Report) {
        self.lives += 1;
        self.images += report.images;
        self.points += report.points;
        self.stores += report.stores;
        self.fences += report.fences;
    }
}

/// Each seed is the life of a pool and the life of a store, which takes a sixth of the time.
#[test]
fn random_lives_of_pools_and_stores_survive_every_image() {
    let budget = Budget::from_environment(Duration::from_secs(2));
    let mut sum = Sum::default();
    let mut seed = budget.seed.wrapping_mul(1_000_003);
    if budget.is_deep && budget.seed.is_multiple_of(8) {
        // Logs that fill up: the same life each time, crashed in another way, and a long one.
        sum.add(&run(&PoolSteps::with_long_descriptions(), &"long descriptions", seed));
    }
    while sum.lives == 0 || budget.is_left() {
        seed += 1;
        let steps = 6 + (seed % 7) as usize;
        let mut life = PoolSteps::random(seed, steps);
        if seed.is_multiple_of(3) {
            life.more_files = vec!["/other/member".into()];
        }
        sum.add(&run(&life, &life.steps, seed));
        let life = StoreSteps::random(seed, steps);
        let report = run(&life, &life.steps, seed);
        sum.add(&report);
        sum.store_lives += 1;
        sum.store_images += report.images;
    }
    print_counters(&[
        ("images", sum.images),
        ("lives", sum.lives),
        ("points", sum.points),
        ("stores", sum.stores),
        ("fences", sum.fences),
        ("store_images", sum.store_images),
        ("store_lives", sum.store_lives),
    ]);
}
