//! A campaign comes out the same every time it is run.

use crash::{Campaign, Policy};
use pmem::Granularity;
use remanent_tests::pool::PoolSteps;

#[test]
fn two_runs_of_a_campaign_visit_the_same_images() {
    let run = || {
        let policy = Policy { nested_every: 128, kill_every: 5, limit: 20_000, lazy: 8192..8256, ..Policy::default() };
        let report = Campaign::new(&PoolSteps::everything(), Granularity::CacheLine, policy).run();
        (report.images, report.pruned, report.points, report.stores, report.flushes, report.fences)
    };
    assert_eq!(run(), run());
}
