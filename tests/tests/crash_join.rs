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

/// Two that take one step each, and two of which one goes on for eight, about.
const SEEDS: [u64; 2] = [8, 20];

fn two() -> impl Iterator<Item = TwoInserters> {
    let of_seed =
        |seed| [TwoInserters::new(Durable::EachRow, 1, 3, seed), TwoInserters::new(Durable::Blocks, 2, 2, seed)];
    SEEDS.into_iter().flat_map(of_seed)
}

fn run(life: &impl Protocol, granularity: Granularity, mutation: Option<Mutation>) -> Report {
    let campaign = Campaign::new(life, granularity, policy());
    match mutation {
        Some(mutation) => campaign.mutated(mutation).run(),
        None => campaign.run(),
    }
}

/// Of all lives, each when it is asked for, and what it was.
fn reports(granularity: Granularity, mutation: Option<Mutation>) -> impl Iterator<Item = (String, Report)> {
    let alone = LIVES.iter().map(move |life| (format!("{:?}", life.durable), run(life, granularity, mutation)));
    let together = two().map(move |life| (life.to_string(), TwoInserters::judged(run(&life, granularity, mutation))));
    alone.chain(together)
}

#[test]
fn a_durable_table_survives_every_image_and_keeps_acknowledged_rows() {
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        for (life, report) in reports(granularity, None) {
            println!("{granularity:?}, {life}: {report}");
            assert!(report.is_clean(), "{granularity:?}, {life}: {report}");
            assert!(report.images > 300, "{granularity:?}, {life}: {report}");
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
            assert!(lines.contains(line), "{life}: {line}");
        }
    }
}

/// A row is durable once a later one that leads to it is, whoever was to wait for its own head.
#[test]
fn rows_are_acknowledged_on_top_of_heads_that_nobody_has_waited_for_yet() {
    for durable in [Durable::EachRow, Durable::Blocks] {
        let overtaken = |life: TwoInserters| {
            run(&life, Granularity::CacheLine, None);
            life.overtaken()
        };
        let found: Vec<usize> = two().filter(|life| life.durable == durable).map(overtaken).collect();
        assert!(found.iter().any(|rows| *rows > 0), "{durable:?}: {found:?}");
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
            .flat_map(|(_, report)| report.sites())
            .filter(|&(call, site)| is_own(site) && !is_spare(call, site))
            .collect();
        let mutants: Vec<Mutation> = calls.into_iter().flat_map(|(call, site)| Mutation::of(call, site)).collect();
        println!("{granularity:?}: {} mutants", mutants.len());
        let of_the_retry = mutants.iter().filter(|mutant| text(mutant.site()).contains("(next, found)")).count();
        assert!(mutants.len() >= 4 && of_the_retry > 0, "{granularity:?}: {mutants:?}");
        let is_noticed =
            |mutation: &Mutation| reports(granularity, Some(*mutation)).any(|(_, report)| !report.is_clean());
        let survivors = mutants.into_iter().filter(|mutation| !is_noticed(mutation));
        let survivors: Vec<String> = survivors.map(|mutation| mutation.to_string()).collect();
        assert!(survivors.is_empty(), "{granularity:?}, not noticed: {survivors:#?}");
    }
}
