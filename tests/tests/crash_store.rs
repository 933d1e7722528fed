//! Short crash campaigns over the store.

use std::collections::BTreeSet;

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
        for protocol in [StoreSteps::everything(), StoreSteps::direct()] {
            let report = Campaign::new(&protocol, granularity, policy()).run();
            println!("{granularity:?}: {report}");
            assert!(report.is_clean(), "{granularity:?}: {report}");
            assert!(report.images > 5_000, "{granularity:?}: {report}");
        }
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
/// must break each time. But for one: where lines are flushed, what an interrupted change has left is fenced by the commit
/// that says so, before it is shown; on page-cached files the same fence syncs pages, and is noticed.
#[test]
fn every_mutant_of_the_store_is_found() {
    let protocols = [StoreSteps::direct(), StoreSteps::everything()];
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        let sites = |protocol| Campaign::new(protocol, granularity, Policy { limit: 2000, ..policy() }).run().sites();
        let is_own = |site: Site| site.file().contains("crates/store/") || site.file().ends_with("pmem/src/copy.rs");
        let is_spare = |call, site: Site| {
            granularity == Granularity::CacheLine && call == Call::Fence && site.file().ends_with("store/src/direct.rs")
        };
        let calls: BTreeSet<(Call, Site)> = protocols.iter().flat_map(sites).collect();
        let mutants: Vec<Mutation> = calls
            .into_iter()
            .filter(|&(call, site)| is_own(site) && !is_spare(call, site))
            .flat_map(|(call, site)| Mutation::of(call, site))
            .collect();
        println!("{granularity:?}: {} mutants", mutants.len());
        assert!(!mutants.is_empty(), "{granularity:?}: no call of the seam was seen");
        for mutation in mutants {
            let is_noticed = |protocol| {
                let policy = Policy { limit: 200_000, ..policy() };
                !Campaign::new(protocol, granularity, policy).mutated(mutation).run().is_clean()
            };
            assert!(protocols.iter().any(is_noticed), "{granularity:?}: {mutation} was not noticed");
        }
    }
}
