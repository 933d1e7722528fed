//! Short crash campaigns over the durable table of the join.

use std::collections::BTreeSet;

use bench::join::Durable;
use crash::{Call, Campaign, Mutation, Policy, Site};
use pmem::Granularity;
use remanent_tests::coverage;
use remanent_tests::join::TableSteps;

/// The tail hint of the pool's log is stored and not waited for.
fn policy() -> Policy {
    Policy { lazy: 8192..8256, nested_every: 64, random: 8, pairs: 8, ..Policy::default() }
}

const LIVES: [TableSteps; 2] =
    [TableSteps { durable: Durable::EachRow, insertions: 6 }, TableSteps { durable: Durable::Blocks, insertions: 3 }];

#[test]
fn a_durable_table_survives_every_image_and_keeps_acknowledged_rows() {
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        for life in &LIVES {
            let report = Campaign::new(life, granularity, policy()).run();
            println!("{granularity:?}, {:?}: {report}", life.durable);
            assert!(report.is_clean(), "{granularity:?}, {:?}: {report}", life.durable);
            assert!(report.images > 300, "{granularity:?}, {:?}: {report}", life.durable);
        }
    }
}

/// Each flush, fence and copy of the table taken away, each fence weakened, each store made late: something must break. But
/// for one: on page-cached files, opening stores the heads once more in case that the kernel has failed to write them back
/// before, which it does in no life here; the core's campaigns have such lives.
#[test]
fn every_mutant_of_the_durable_table_is_found() {
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        let sites = |life| Campaign::new(life, granularity, policy()).run().sites();
        let is_own = |site: Site| site.file().contains("crates/bench/");
        let is_spare = |call, site: Site| {
            let line = coverage::text_of(&(site.file().to_owned(), site.line() as usize));
            granularity == Granularity::Page && call == Call::Store && line.contains("flush_adopted")
        };
        let calls: BTreeSet<(Call, Site)> = LIVES.iter().flat_map(sites).filter(|&(_, site)| is_own(site)).collect();
        let mutants: Vec<Mutation> = calls
            .into_iter()
            .filter(|&(call, site)| !is_spare(call, site))
            .flat_map(|(call, site)| Mutation::of(call, site))
            .collect();
        println!("{granularity:?}: {} mutants", mutants.len());
        assert!(mutants.len() >= 4, "{granularity:?}: {mutants:?}");
        let is_noticed = |mutation| {
            LIVES.iter().any(|life| !Campaign::new(life, granularity, policy()).mutated(mutation).run().is_clean())
        };
        let survivors = mutants.into_iter().filter(|&mutation| !is_noticed(mutation));
        let survivors: Vec<String> = survivors.map(|mutation| mutation.to_string()).collect();
        assert!(survivors.is_empty(), "{granularity:?}, not noticed: {survivors:#?}");
    }
}
