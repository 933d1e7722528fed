//! Short crash campaigns over the core's protocols.

use std::collections::BTreeSet;

use crash::{Campaign, Mutation, Policy, Site};
use pmem::Granularity;
use remanent_tests::pool::PoolSteps;
use remanent_tests::register::Register;
use remanent_tests::spikes::{AlikeAppend, KeyValueAppend, LogGenerations};

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

/// The line of the source that a site stands in.
fn source_line(site: Site) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let text = std::fs::read_to_string(format!("{root}/{}", site.file())).expect("a file of this workspace");
    text.lines().nth(site.line() as usize - 1).expect("a line of the file").trim().to_owned()
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

/// Takes each flush, fence, sync and copy away in turn, and makes each store late: every time something must break.
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

/// The mutants that no campaign notices and nobody has argued away.
fn survivors(granularity: Granularity) -> Vec<String> {
    let lives = [true, false].map(|reader_first| PoolSteps { reader_first, ..PoolSteps::everything() });
    let policy = || Policy { nested_every: 4096, random: 4, pairs: 4, limit: LIMIT, ..policy() };
    let reached = |life| {
        let report = Campaign::new(life, granularity, policy()).run();
        assert!(report.images < LIMIT, "the limit would hide what comes late in a life: {report}");
        report.sites()
    };
    let mut survivors = Vec::new();
    for (call, site) in lives.iter().flat_map(reached).collect::<BTreeSet<_>>() {
        let line = source_line(site);
        let mutation = Mutation { call, site };
        let notices_by = |policy, life| !Campaign::new(life, granularity, policy).mutated(mutation).run().is_clean();
        // Most are noticed by a look that is ten times as quick.
        let quick = || Policy { kill_every: 64, random: 0, pairs: 0, exhaustive: 64, ..policy() };
        let notices = |life| notices_by(quick(), life) || notices_by(policy(), life);
        let equivalent = EQUIVALENT.iter().any(|(text, _)| line.starts_with(text));
        let alike_notices = || !torn_and_alike(granularity).mutated(mutation).run().is_clean();
        if !equivalent && !lives.iter().any(notices) && !alike_notices() {
            survivors.push(format!("{mutation}: {line}"));
        }
    }
    survivors
}

/// What is never called in a campaign is never tested by one: the calls of the seam in the source are all reached.
#[test]
fn the_campaigns_reach_every_seam_call_of_the_core() {
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
        let sites = Campaign::new(&life, granularity, policy).run().sites();
        reached.extend(sites.into_iter().map(|(_, site)| (site.file().to_owned(), site.line() as usize)));
    }
    let mut missed = Vec::new();
    for file in ["cell", "commit", "creation", "log", "opening", "pool"] {
        let name = format!("crates/pmem/src/{file}.rs");
        let text = std::fs::read_to_string(format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"))).expect("a source file");
        let calls = [
            ".store_bytes(",
            ".store_u64(",
            ".nt_copy(",
            ".flush(",
            ".flush_adopted(",
            ".fence(",
            ".fsync(",
            ".sync_dir(",
        ];
        for (number, line) in (1..).zip(text.lines()) {
            // A damaged copy in a further member is no crash's work; tests of flipped bytes reach that fence.
            let is_other = line.contains("member.fence(");
            let is_call =
                !is_other && calls.iter().any(|call| line.contains(call)) && !line.trim_start().starts_with("//");
            if is_call && !reached.contains(&(name.clone(), number)) {
                missed.push(format!("{name}:{number}: {}", line.trim()));
            }
        }
    }
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
