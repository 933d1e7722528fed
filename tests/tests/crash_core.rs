//! Short crash campaigns over the core's protocols.

use std::collections::BTreeSet;

use bench::join::Durable;
use crash::{Campaign, Mutation, Policy, Protocol, Report};
use pmem::Granularity;
use remanent_tests::coverage;
use remanent_tests::inserters::TwoInserters;
use remanent_tests::join::TableSteps;
use remanent_tests::pool::PoolSteps;
use remanent_tests::register::Register;
use remanent_tests::removal::MakeAndRemove;
use remanent_tests::spikes::{AlikeAppend, KeyValueAppend, LogGenerations};
use remanent_tests::store::StoreSteps;

/// The tail hint is stored and not waited for.
fn policy() -> Policy {
    Policy { lazy: 8192..8256, ..Policy::default() }
}

#[test]
fn a_register_survives_every_image() {
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        let register = Register { writes: 4, forgetful: false };
        let report = Campaign::new(&register, granularity, Policy::default()).run();
        assert!(report.is_clean(), "{granularity:?}: {report}");
        assert!(report.images > 100, "{granularity:?}: {report}");
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
        let policy = Policy { nested_every: 4096, random: 4, pairs: 4, ..policy() };
        let report = Campaign::new(&PoolSteps::everything(), granularity, policy).run();
        println!("{granularity:?}: {report}");
        assert!(report.is_clean(), "{granularity:?}: {report}");
        assert!(report.images > 10_000, "{granularity:?}: {report}");
    }
}

/// Images after which a campaign with a mutant is given up.
const LIMIT: u64 = 200_000;

/// Mutants that change nothing that is promised, by the text of the line they stand in, and why.
const EQUIVALENT: [(&str, &str); 2] = [
    ("self.set.store_u64(TAIL_HINT, hint);", "the hint proves more when it is there and nothing when not"),
    ("self.set.flush(&mut Pending::new(), TAIL_HINT, 8);", "the same: nobody waits for the hint"),
];

/// The same with commits that compact the log by themselves; on memory, which has many more images of long batches, this
/// is left to the deep lane.
#[test]
fn a_pool_survives_every_image_of_logs_that_fill_up() {
    let policy = Policy { nested_every: 8192, random: 1, pairs: 1, kill_every: 16, ..policy() };
    let report = Campaign::new(&PoolSteps::with_long_descriptions(), Granularity::Page, policy).run();
    println!("{report}");
    assert!(report.is_clean() && report.images > 10_000, "{report}");
}

/// The same with a file whose pages the kernel cannot write back once, at each of its write-backs in turn.
#[test]
fn a_pool_survives_a_failed_write_back_and_a_crash_after_it() {
    let (mut images, mut failures) = (0, 0);
    for nth in 0.. {
        let policy = Policy { nested_every: 4096, random: 4, pairs: 4, kill_every: 16, ..policy() };
        let life = PoolSteps::with_a_failed_write_back(nth);
        let report = Campaign::new(&life, Granularity::Page, policy).run();
        assert!(report.is_clean(), "write-back {nth}: {report}");
        if report.failed_syncs == 0 {
            break;
        }
        failures += 1;
        images += report.images;
    }
    println!("{failures} write-backs failed in turn, {images} distinct images");
    assert!(failures > 10 && images > 10_000, "{failures} write-backs, {images} images");
}

/// A torn batch whose place is taken by one much like it, which has the same words where the torn one has none.
fn torn_and_alike(granularity: Granularity) -> Campaign<'static, AlikeAppend> {
    let policy =
        Policy { depth: 1, nested_every: 1, random: 2, pairs: 2, kill_every: 1_000_000, limit: LIMIT, ..policy() };
    Campaign::new(&AlikeAppend { records: 2 }, granularity, policy)
}

#[test]
fn a_torn_batch_is_not_completed_by_the_next_one() {
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        let report = torn_and_alike(granularity).run();
        println!("{granularity:?}: {report}");
        assert!(report.is_clean() && report.images > 1000, "{granularity:?}: {report}");
    }
}

fn made_and_removed(granularity: Granularity) -> Campaign<'static, MakeAndRemove> {
    let policy = Policy { nested_every: 64, random: 4, pairs: 4, limit: LIMIT, ..policy() };
    Campaign::new(&MakeAndRemove, granularity, policy)
}

#[test]
fn a_pool_is_removed_whole_and_a_failed_creation_leaves_nothing() {
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        let report = made_and_removed(granularity).run();
        println!("{granularity:?}: {report}");
        assert!(report.is_clean() && report.images > 400, "{granularity:?}: {report}");
    }
}

/// Takes each flush, fence, sync and copy away in turn, weakens each fence, and makes each store late: every time
/// something must break.
#[test]
fn every_mutant_of_the_pool_is_found() {
    std::thread::scope(|scope| {
        let runs = [Granularity::CacheLine, Granularity::Page].map(|g| (g, scope.spawn(move || survivors(g))));
        for (granularity, run) in runs {
            let survivors = run.join().expect("no panic");
            assert!(survivors.is_empty(), "{granularity:?}, not noticed:\n{}", survivors.join("\n"));
        }
    });
}

/// A campaign as the mutation run sees it: without a mistake, or with one.
type Judge<'a> = Box<dyn Fn(Option<Mutation>) -> Report + 'a>;

fn judge<'a, P: Protocol + 'a>(make: impl Fn() -> Campaign<'a, P> + 'a) -> Judge<'a> {
    Box::new(move |mutation| match mutation {
        None => make().run(),
        Some(mutation) => make().mutated(mutation).run(),
    })
}

/// The mutants that no campaign notices and nobody has argued away.
fn survivors(granularity: Granularity) -> Vec<String> {
    let lives = [true, false].map(|reader_first| PoolSteps { reader_first, ..PoolSteps::everything() });
    let policy = || Policy { nested_every: 4096, random: 4, pairs: 4, limit: LIMIT, ..policy() };
    let lives_under = |policy: Policy| {
        let of = |life| {
            let policy = policy.clone();
            judge(move || Campaign::new(life, granularity, policy.clone()))
        };
        lives.iter().map(of).collect::<Vec<_>>()
    };
    // Most are noticed by a look that is ten times as quick; so it comes first.
    let mut judges = lives_under(Policy { kill_every: 64, random: 0, pairs: 0, exhaustive: 64, ..policy() });
    judges.push(judge(move || torn_and_alike(granularity)));
    judges.push(judge(move || made_and_removed(granularity)));
    judges.extend(lives_under(policy()));
    let judges: Vec<_> = judges.into_iter().map(|judge| (judge(None), judge)).collect();
    for (report, _) in &judges {
        assert!(report.images < LIMIT, "the limit would hide what comes late in a life: {report}");
    }
    let calls: BTreeSet<_> = judges.iter().flat_map(|(report, _)| report.sites()).collect();
    let mut survivors = Vec::new();
    for (call, site) in calls {
        let line = coverage::text_of(&(site.file().to_owned(), site.line() as usize));
        let reach = |(report, _): &&(Report, Judge<'_>)| report.sites().contains(&(call, site));
        for mutation in Mutation::of(call, site) {
            let equivalent = EQUIVALENT.iter().any(|(text, _)| line.starts_with(text));
            if !equivalent && !judges.iter().filter(reach).any(|(_, judge)| !judge(Some(mutation)).is_clean()) {
                survivors.push(format!("{mutation}: {line}"));
            }
        }
    }
    survivors
}

/// What is never called in a campaign is never tested by one: the calls of the seam are all reached.
#[test]
fn the_campaigns_reach_every_seam_call() {
    let mut reached = BTreeSet::new();
    let everything = |reader_first| PoolSteps { reader_first, ..PoolSteps::everything() };
    let lives = [
        (Granularity::CacheLine, everything(true)),
        (Granularity::Page, everything(false)),
        // This write-back is that of a log batch.
        (Granularity::Page, PoolSteps::with_a_failed_write_back(5)),
    ];
    for (granularity, life) in lives {
        let policy = Policy { nested_every: 4096, kill_every: 8, random: 0, pairs: 0, ..policy() };
        reached.extend(coverage::reached(&Campaign::new(&life, granularity, policy).run()));
    }
    reached.extend(coverage::reached(&made_and_removed(Granularity::Page).run()));
    let policy = Policy { limit: 2000, random: 0, pairs: 0, ..policy() };
    for life in [StoreSteps::everything(), StoreSteps::direct()] {
        let policy = policy.clone();
        reached.extend(coverage::reached(&Campaign::new(&life, Granularity::CacheLine, policy).run()));
    }
    for durable in [Durable::EachRow, Durable::Blocks] {
        let life = TableSteps { durable, insertions: 2 };
        let policy = Policy { limit: u64::MAX, nested_every: 4096, ..policy.clone() };
        reached.extend(coverage::reached(&Campaign::new(&life, Granularity::CacheLine, policy.clone()).run()));
        let two = TwoInserters::new(durable, 1, 1, 1);
        reached.extend(coverage::reached(&Campaign::new(&two, Granularity::CacheLine, policy).run()));
    }
    let missed: Vec<String> = coverage::seam_calls()
        .into_iter()
        .filter(|line| !reached.contains(line))
        .map(|line| format!("{}:{}: {}", line.0, line.1, coverage::text_of(&line)))
        .collect();
    assert!(missed.is_empty(), "never reached:\n{}", missed.join("\n"));
}

#[test]
fn small_users_of_the_seam_survive_every_image() {
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        let policy = || Policy { nested_every: 1024, ..policy() };
        let report = Campaign::new(&KeyValueAppend { records: 5 }, granularity, policy()).run();
        assert!(report.is_clean() && report.images > 1000, "{granularity:?}: {report}");
        let report = Campaign::new(&LogGenerations { numbers: 8 }, granularity, policy()).run();
        assert!(report.is_clean() && report.images > 1000, "{granularity:?}: {report}");
    }
}

/// Flushes and fences that may be for nothing, by the text of the line: all of them take over what another process has
/// left visible, which may or may not be durable.
const TAKING_OVER: [&str; 6] = [
    "set.flush_adopted(pending, newest, slot_bytes);",
    "set.flush_adopted(pending, other, slot_bytes);",
    "result => result.map(|()| set.flush(pending, slot, slot_bytes))?,",
    "set.flush_adopted(pending, self.segment.extent.offset, self.tail_bytes);",
    "set.flush(pending, self.tail(), BatchHeader::BYTES as u64);",
    "set.fence(&mut pending)",
];

#[test]
fn no_commit_flushes_or_waits_for_nothing() {
    let policy = Policy { nested_every: 4096, kill_every: 64, random: 0, pairs: 0, exhaustive: 16, ..policy() };
    let report = Campaign::new(&PoolSteps::everything(), Granularity::CacheLine, policy).run();
    let notes: Vec<_> = report.lints().map(|(lint, site, _)| (lint, site.file(), site.line() as usize)).collect();
    assert!(!notes.is_empty(), "recoveries flush what is durable already, and the simulator notes it");
    for (lint, file, number) in notes {
        let text = coverage::text_of(&(file.to_owned(), number));
        assert!(TAKING_OVER.iter().any(|line| text.starts_with(line)), "{lint:?} at {file}:{number}: {text}");
    }
}
