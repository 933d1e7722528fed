//! Short crash campaigns over the store.

use crash::{Campaign, Mutation, Policy, Site};
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

/// The store's own calls and those of the copy that it asks for, taken away, weakened or made late one by one: something
/// must break each time.
#[test]
fn every_mutant_of_the_store_is_found() {
    let protocol = StoreSteps::everything();
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        let sites = Campaign::new(&protocol, granularity, Policy { limit: 2000, ..policy() }).run().sites();
        let is_own = |site: Site| site.file().contains("crates/store/") || site.file().ends_with("pmem/src/copy.rs");
        let mutants: Vec<Mutation> = sites
            .into_iter()
            .filter(|(_, site)| is_own(site))
            .flat_map(|(call, site)| Mutation::of(call, site))
            .collect();
        println!("{granularity:?}: {} mutants", mutants.len());
        assert!(!mutants.is_empty(), "{granularity:?}: no call of the seam was seen");
        let campaign = || Campaign::new(&protocol, granularity, Policy { limit: 200_000, ..policy() });
        for mutation in mutants {
            let report = campaign().mutated(mutation).run();
            assert!(!report.is_clean(), "{granularity:?}: {mutation} was not noticed in {} images", report.images);
        }
    }
}
