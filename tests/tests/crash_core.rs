//! Short crash campaigns over the core's protocols.

use std::time::Instant;

use crash::{Campaign, Policy};
use pmem::Granularity;
use remanent_tests::pool::PoolSteps;
use remanent_tests::register::Register;

/// The tail hint is stored and not waited for.
fn policy() -> Policy {
    Policy { lazy: vec![8192..8256], ..Policy::default() }
}

#[test]
fn a_register_survives_every_image() {
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        let register = Register { writes: 4, forgetful: false };
        let report = Campaign::new(&register, granularity, Policy::default()).run();
        assert!(report.is_clean(), "{granularity:?}: {report}");
        assert!(report.images > 500, "{granularity:?}: {report}");
    }
}

#[test]
fn a_forgotten_fence_is_found() {
    let register = Register { writes: 4, forgetful: true };
    let report = Campaign::new(&register, Granularity::CacheLine, Policy::default()).run();
    assert!(!report.is_clean(), "{report}");
}

#[test]
fn a_pool_survives_every_image_of_everything_it_does() {
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        let start = Instant::now();
        let report = Campaign::new(&PoolSteps::everything(), granularity, policy()).run();
        println!("{granularity:?} {:?}: {report}", start.elapsed());
        for (lint, site, count) in report.lints() {
            println!("  {lint:?} at {site}: {count}");
        }
        assert!(report.is_clean(), "{granularity:?}: {report}");
    }
}
