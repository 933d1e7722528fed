//! Short crash campaigns over the store.

use crash::{Call, Campaign, Mutation, Policy, Site};
use pmem::Granularity;
use remanent_tests::store::StoreSteps;

/// The tail hint is stored and not waited for.
fn policy() -> Policy {
    Policy { lazy: 8192..8256, nested_every: 1024, random: 4, pairs: 4, ..Policy::default() }
}

#[test]
fn a_store_survives_every_image_of_everything_it_does() {
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        let report = Campaign::new(&StoreSteps::everything(), granularity, policy()).run();
        println!("{granularity:?}: {report}");
        assert!(report.is_clean(), "{granularity:?}: {report}");
        assert!(report.images > 5_000, "{granularity:?}: {report}");
    }
}

#[test]
fn random_lives_survive() {
    for seed in 1..=4 {
        for granularity in [Granularity::CacheLine, Granularity::Page] {
            let policy = Policy { seed, limit: 10_000, ..policy() };
            let report = Campaign::new(&StoreSteps::random(seed, 12), granularity, policy).run();
            assert!(report.is_clean(), "seed {seed}, {granularity:?}: {report}");
        }
    }
}

/// The store's own calls and those of the copy that it asks for, taken away or made late one by one: something must
/// break each time. On memory two fences follow the copy, the copying thread's own and the store's, and either is
/// enough; on page-cached files only the store's waits for the kernel.
#[test]
fn every_mutant_of_the_store_is_found() {
    let protocol = StoreSteps::everything();
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        let sites = Campaign::new(&protocol, granularity, Policy { limit: 2000, ..policy() }).run().sites();
        let is_own = |site: &Site| site.file().contains("crates/store/") || site.file().ends_with("pmem/src/copy.rs");
        let is_spare = |call: &Call, site: &Site| {
            let is_copys = site.file().ends_with("pmem/src/copy.rs");
            *call == Call::Fence && (granularity == Granularity::CacheLine || is_copys)
        };
        let own: Vec<_> = sites.into_iter().filter(|(call, site)| is_own(site) && !is_spare(call, site)).collect();
        println!("{granularity:?}: {} mutants", own.len());
        assert!(!own.is_empty(), "{granularity:?}: no call of the seam was seen");
        for (call, site) in own {
            let mutation = Mutation { call, site };
            let policy = Policy { limit: 200_000, ..policy() };
            let report = Campaign::new(&protocol, granularity, policy).mutated(mutation).run();
            assert!(!report.is_clean(), "{granularity:?}: {mutation} was not noticed in {} images", report.images);
        }
    }
}
