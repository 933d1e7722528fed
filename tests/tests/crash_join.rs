//! Short crash campaigns over the durable table of the join.

use std::collections::BTreeSet;

use bench::join::Durable;
use crash::{Call, Campaign, Mutation, Policy, Protocol, Report, Site};
use pmem::Granularity;
use remanent_tests::coverage;
use remanent_tests::inserters::TwoInserters;
use remanent_tests::join::TableSteps;

/// The tail hint of the pool's log is stored and not waited for.
fn policy() -> Policy {
    Policy { lazy: 8192..8256, nested_every: 64, random: 8, pairs: 8, ..Policy::default() }
}

const LIVES: [TableSteps; 2] =
    [TableSteps { durable: Durable::EachRow, insertions: 6 }, TableSteps { durable: Durable::Blocks, insertions: 3 }];

fn two() -> [TwoInserters; 2] {
    [TwoInserters::new(Durable::EachRow, 1, 3), TwoInserters::new(Durable::Blocks, 2, 2)]
}

fn run(life: &impl Protocol, granularity: Granularity, mutation: Option<Mutation>) -> Report {
    let campaign = Campaign::new(life, granularity, policy());
    match mutation {
        Some(mutation) => campaign.mutated(mutation).run(),
        None => campaign.run(),
    }
}

/// Of all lives, each when it is asked for.
fn reports(granularity: Granularity, mutation: Option<Mutation>) -> impl Iterator<Item = Report> {
    let alone = LIVES.iter().map(move |life| run(life, granularity, mutation));
    let together = two().into_iter().map(move |life| {
        let mut report = run(&life, granularity, mutation);
        // What one has under way when the rows of the other are acknowledged was promised to nobody.
        report.dirty_at_acknowledgement.clear();
        report
    });
    alone.chain(together)
}

#[test]
fn a_durable_table_survives_every_image_and_keeps_acknowledged_rows() {
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        for (number, report) in reports(granularity, None).enumerate() {
            println!("{granularity:?}, {number}: {report}");
            assert!(report.is_clean(), "{granularity:?}, {number}: {report}");
            assert!(report.images > 300, "{granularity:?}, {number}: {report}");
        }
    }
}

/// Whoever finds a head changed makes its entry right and durable again before it tries once more.
#[test]
fn two_inserters_meet_at_the_head_of_a_chain() {
    for life in two() {
        let sites = run(&life, Granularity::CacheLine, None).sites();
        let lines: BTreeSet<String> = sites
            .into_iter()
            .map(|(_, site)| coverage::text_of(&(site.file().to_owned(), site.line() as usize)))
            .collect();
        for line in ["set.store_u64(next, found);", "set.flush(&mut self.pending, next, 8);"] {
            assert!(lines.contains(line), "{:?}: {line}", life.durable);
        }
    }
}

/// Each flush, fence and copy of the table taken away, each fence weakened, each store made late: something must break. But
/// for one: on page-cached files, opening stores the heads once more in case that the kernel has failed to write them back
/// before, which it does in no life here; the core's campaigns have such lives.
#[test]
fn every_mutant_of_the_durable_table_is_found() {
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        let is_own = |site: Site| site.file().contains("crates/bench/");
        let text = |site: Site| coverage::text_of(&(site.file().to_owned(), site.line() as usize));
        let is_spare = |call, site: Site| {
            granularity == Granularity::Page && call == Call::Store && text(site).contains("flush_adopted")
        };
        let calls: BTreeSet<(Call, Site)> = reports(granularity, None)
            .flat_map(|report| report.sites())
            .filter(|&(call, site)| is_own(site) && !is_spare(call, site))
            .collect();
        let mutants: Vec<Mutation> = calls.into_iter().flat_map(|(call, site)| Mutation::of(call, site)).collect();
        println!("{granularity:?}: {} mutants", mutants.len());
        let of_the_retry = mutants.iter().filter(|mutant| text(mutant.site()).contains("(next, found)")).count();
        assert!(mutants.len() >= 4 && of_the_retry > 0, "{granularity:?}: {mutants:?}");
        let is_noticed = |mutation: &Mutation| reports(granularity, Some(*mutation)).any(|report| !report.is_clean());
        let survivors = mutants.into_iter().filter(|mutation| !is_noticed(mutation));
        let survivors: Vec<String> = survivors.map(|mutation| mutation.to_string()).collect();
        assert!(survivors.is_empty(), "{granularity:?}, not noticed: {survivors:#?}");
    }
}
