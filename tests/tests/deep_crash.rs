//! The deep crash lane: random lives of pools, striped and single, on memory and on page-cached files, each crashed
//! and killed at every event.

use std::time::Duration;

use crash::{Campaign, Policy};
use pmem::Granularity;
use remanent_tests::deep::{Budget, print_counters};
use remanent_tests::pool::PoolSteps;

/// Images of one life, so that a life cannot use up the whole budget.
const LIMIT: u64 = 400_000;

#[test]
fn random_lives_of_pools_survive_every_image() {
    let budget = Budget::from_environment(Duration::from_secs(2));
    let (mut images, mut points, mut stores, mut fences, mut lives) = (0, 0, 0, 0, 0);
    let mut seed = budget.seed.wrapping_mul(1_000_003);
    while budget.is_left() {
        seed += 1;
        let mut life = PoolSteps::random(seed, 6 + (seed % 7) as usize);
        if seed.is_multiple_of(3) {
            life.more_files = vec!["/other/member".into()];
        }
        let granularity = if seed.is_multiple_of(4) { Granularity::Page } else { Granularity::CacheLine };
        let policy = Policy {
            seed,
            nested_every: 512,
            kill_every: 1 + seed % 3,
            limit: LIMIT,
            lazy: 8192..8256,
            ..Policy::default()
        };
        let report = Campaign::new(&life, granularity, policy).run();
        assert!(report.is_clean(), "life {seed} ({granularity:?}, {:?}): {report}", life.steps);
        lives += 1;
        images += report.images;
        points += report.points;
        stores += report.stores;
        fences += report.fences;
    }
    assert!(images > 0, "the budget was not enough for one life");
    let counters = [("images", images), ("lives", lives), ("points", points), ("stores", stores), ("fences", fences)];
    print_counters(&counters);
}
