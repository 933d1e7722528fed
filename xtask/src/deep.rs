//! Deep lanes: they run for as long as they are given, and what they find adds up over many runs.
//!
//! A campaign is a program of the tree. It is told `REMANENT_DEEP_BUDGET_S` and `REMANENT_DEEP_SEED`, works for that
//! long from that seed, and prints one line with a JSON object of counters, for example `{"images": 120000}`; the last
//! such line counts. It fails by its exit code, and says then which seed replays the failure. The budget is cut into
//! slices, and each is entered into the journal when it ends, so that an interrupted run loses one slice at most. The
//! power cuts are a campaign inside this program.

mod chroot;
mod freethreaded;
mod journal;
mod mutants;
mod settings;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use crate::counts::Counts;
use crate::dax;
use crate::r;
use crate::step::Outcome;
use crate::workspace::Workspace;
use journal::{Entry, Journal};

pub(crate) const DEFAULT_BUDGET: Duration = Duration::from_secs(10 * 60);

/// The longest stretch of work that an interruption can lose.
const SLICE: Duration = Duration::from_secs(5 * 60);

/// A lane of the table.
pub(crate) struct DeepLane {
    name: &'static str,
    about: &'static str,
    /// What the lane tests: a change in one of these files or folders sets its sums back to zero.
    protocol: &'static [&'static str],
    work: Work,
}

/// What became of a slice of work, and its counters.
pub(crate) type Slice = (Outcome, Map<String, Value>);

enum Work {
    /// Repeated with new seeds until the budget is spent; it needs the file that comes first.
    Campaign(&'static str, &'static [&'static str]),
    /// The same, inside this program: told the budget and the seed, it returns its counters.
    Own(fn(&Workspace, Duration, u64) -> Slice),
    /// Has an end of its own.
    Once(fn(&Workspace) -> Outcome),
}

const LANES: &[DeepLane] = &[
    DeepLane {
        name: "crash",
        about: "crash images of every durable protocol",
        protocol: &["crates/pmem", "crates/crash", "crates/store", "tests/src", "tests/tests/deep_crash.rs"],
        work: Work::Campaign(
            "tests/tests/deep_crash.rs",
            &["test", "--locked", "--release", "-p", "remanent-tests", "--test", "deep_crash", "--", "--nocapture"],
        ),
    },
    DeepLane {
        name: "fuzz",
        about: "every parser and opener on hostile input",
        protocol: FUZZED,
        work: Work::Campaign(
            "fuzz/Cargo.toml",
            &[
                "run",
                "--config",
                "fuzz/.cargo/config.toml",
                "--locked",
                "--release",
                "--manifest-path",
                "fuzz/Cargo.toml",
                "--bin",
                "deep_fuzz",
            ],
        ),
    },
    DeepLane {
        name: "kill",
        about: "kill -9 of real processes at random moments",
        protocol: &["crates/pmem", "crates/store", "tests/src", "tests/tests/deep_kill.rs"],
        work: Work::Campaign(
            "tests/tests/deep_kill.rs",
            &["test", "--locked", "--release", "-p", "remanent-tests", "--test", "deep_kill", "--", "--nocapture"],
        ),
    },
    DeepLane {
        name: "powercut",
        about: "power cuts of a virtual machine with DAX mappings",
        protocol: &["crates/pmem", "crates/store", "tests/guest", "xtask/src/dax.rs", "xtask/src/dax"],
        work: Work::Own(dax::cut_for),
    },
    DeepLane {
        name: "mutants",
        about: "the checks of core and store taken away one by one",
        protocol: &["crates/pmem", "crates/crash", "tests", "xtask/src/deep/mutants.rs"],
        work: Work::Once(mutants::run),
    },
    DeepLane {
        name: "asan",
        about: "the core's tests under AddressSanitizer",
        protocol: &["crates", "Cargo.lock"],
        work: Work::Once(asan),
    },
    DeepLane {
        name: "miri",
        about: "the core's tests on the heap backend under Miri",
        protocol: &["crates", "Cargo.lock"],
        work: Work::Once(miri),
    },
    DeepLane {
        name: "aarch64",
        about: "the products compile for 64-bit Arm",
        protocol: &["crates", "Cargo.toml", "Cargo.lock"],
        work: Work::Once(aarch64),
    },
    DeepLane {
        name: "rcheck",
        about: "R CMD check of the R package",
        protocol: &["crates/capi", "r"],
        work: Work::Once(r::check),
    },
    DeepLane {
        name: "freethreaded",
        about: "the Python package's tests on a free-threaded interpreter",
        protocol: &["crates/pmem", "crates/store", "python", "Cargo.lock", "xtask/src/deep/freethreaded.rs"],
        work: Work::Once(freethreaded::run),
    },
    DeepLane {
        name: "peers-build",
        about: "the side-by-side benchmarks compile",
        protocol: &["crates", "peers"],
        work: Work::Once(peers_build),
    },
    DeepLane {
        name: "chroot",
        about: "./run on a bare Debian 12, with and without root",
        // All that a run there builds, tests or shows.
        protocol: &["run", ".cargo", "Cargo.toml", "Cargo.lock", "crates", "examples", "python", "r", "tests", "xtask"],
        work: Work::Once(chroot::run),
    },
];

/// What hostile bytes reach: the heap stands in for mappings, so neither those nor the CPU's instructions.
const FUZZED: &[&str] = &[
    "crates/pmem/src/catalogue.rs",
    "crates/pmem/src/cell.rs",
    "crates/pmem/src/check",
    "crates/pmem/src/check.rs",
    "crates/pmem/src/commit.rs",
    "crates/pmem/src/creation.rs",
    "crates/pmem/src/extent.rs",
    "crates/pmem/src/format",
    "crates/pmem/src/format.rs",
    "crates/pmem/src/heap.rs",
    "crates/pmem/src/log.rs",
    "crates/pmem/src/media.rs",
    "crates/pmem/src/members.rs",
    "crates/pmem/src/opening.rs",
    "crates/pmem/src/pins.rs",
    "crates/pmem/src/pool.rs",
    "crates/pmem/src/set.rs",
    "crates/store/src",
    "fuzz/Cargo.lock",
    "fuzz/src",
];

pub(crate) fn find(name: &str) -> Option<&'static DeepLane> {
    LANES.iter().find(|lane| lane.name == name)
}

/// Lists the lanes and what each has added up to; tells whether the journal could be read.
pub(crate) fn list(workspace: &Workspace) -> bool {
    let journal = match Journal::open(workspace) {
        Ok(journal) => journal,
        Err(reason) => {
            eprintln!("{reason}");
            return false;
        }
    };
    for lane in LANES {
        println!("{:12} {}", lane.name, lane.about);
        println!("{:12} {}", "", journal.sum(lane.name, &journal::fingerprint(workspace, lane.protocol)));
    }
    true
}

/// Goes on with a lane for the budget; tells whether nothing failed.
pub(crate) fn run(workspace: &Workspace, lane: &DeepLane, budget: Duration) -> bool {
    let result = Journal::open(workspace).map(|mut journal| run_journaled(workspace, lane, budget, &mut journal));
    let counts = result.unwrap_or_else(|reason| {
        eprintln!("{reason}");
        Counts::ONE_FAILED
    });
    println!("{counts}");
    counts.failed == 0
}

fn run_journaled(workspace: &Workspace, lane: &DeepLane, budget: Duration, journal: &mut Journal) -> Counts {
    let protocol = journal::fingerprint(workspace, lane.protocol);
    let (start, mut sum) = (Instant::now(), Counts::default());
    while sum.failed == 0 && sum.skipped == 0 {
        let left = budget.saturating_sub(start.elapsed());
        if left < Duration::from_secs(1) {
            break;
        }
        let (slice, seed) = (Instant::now(), journal.next_seed(lane.name));
        let (outcome, counters) = work(workspace, &lane.work, left.min(SLICE), seed);
        println!("{}", outcome.report(lane.name, slice.elapsed().as_secs_f64()));
        sum += outcome.counts(crate::step::under_ci());
        if let Outcome::Done(_) | Outcome::Failed(..) = outcome {
            let entry = Entry::new(workspace, lane.name, &protocol, seed, slice.elapsed(), &outcome, counters);
            if let Err(reason) = journal.append(entry) {
                println!("{reason}");
                sum += Counts::ONE_FAILED;
            }
        }
        if matches!(lane.work, Work::Once(_)) {
            break;
        }
    }
    println!("{}: {}", lane.name, journal.sum(lane.name, &protocol));
    sum
}

fn work(workspace: &Workspace, work: &Work, budget: Duration, seed: u64) -> Slice {
    match work {
        Work::Once(run) => (run(workspace), Map::new()),
        Work::Own(run) => run(workspace, budget, seed),
        Work::Campaign(needed, _) if !workspace.has(needed) => {
            (Outcome::NotBuilt(format!("{needed} is not there yet")), Map::new())
        }
        Work::Campaign(_, arguments) => {
            let mut command = workspace.cargo();
            command.args(*arguments);
            command.env("REMANENT_DEEP_BUDGET_S", budget.as_secs().to_string());
            command.env("REMANENT_DEEP_SEED", seed.to_string());
            campaign(command)
        }
    }
}

fn campaign(mut command: Command) -> Slice {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return (Outcome::Failed(Counts::ONE_FAILED, format!("{command:?}: {error}")), Map::new()),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let said = format!("{}{text}", String::from_utf8_lossy(&output.stderr));
    match (output.status.success(), counters(&text)) {
        (true, Some(counters)) => (Outcome::Done(Counts::ONE_PASSED), counters),
        (true, None) => (Outcome::Failed(Counts::ONE_FAILED, format!("{said}\nno line of counters")), Map::new()),
        (false, counters) => (Outcome::Failed(Counts::ONE_FAILED, said), counters.unwrap_or_default()),
    }
}

/// The JSON object that ends the last line that has one; cargo's test runner may have begun that line.
fn counters(output: &str) -> Option<Map<String, Value>> {
    output.lines().rev().find_map(|line| match serde_json::from_str(&line[line.find('{')?..]) {
        Ok(Value::Object(counters)) => Some(counters),
        _ => None,
    })
}

/// `90s`, `40m` or `2h`.
pub(crate) fn parse_budget(text: &str) -> Option<Duration> {
    let unit_s = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return None,
    };
    let number: u64 = text[..text.len() - 1].parse().ok()?;
    number.checked_mul(unit_s).map(Duration::from_secs)
}

fn asan(workspace: &Workspace) -> Outcome {
    const PLATFORM: &str = "x86_64-unknown-linux-gnu";
    // Debian's rustc comes without the sanitizer's run-time library; rustup's has it, behind an unstable flag.
    if !target_libraries(workspace, PLATFORM).join("librustc-stable_rt.asan.a").exists() {
        return Outcome::NotRun("this toolchain has no AddressSanitizer for this machine".into());
    }
    let mut command = workspace.cargo();
    command.args(["test", "--locked", "--release", "--lib", "--tests", "-p", "remanent-pmem", "--target", PLATFORM]);
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    Outcome::of_tests(&mut command, Counts::of_cargo_test)
}

/// Instructions and types of another CPU: no test here meets them, and a slip would be found by its users.
fn aarch64(workspace: &Workspace) -> Outcome {
    const PLATFORM: &str = "aarch64-unknown-linux-gnu";
    if !target_libraries(workspace, PLATFORM).exists() {
        return Outcome::NotRun(format!("this toolchain has no standard library for {PLATFORM}"));
    }
    let mut command = workspace.cargo();
    command.args(["check", "--quiet", "--locked", "--release", "--target", PLATFORM]);
    command.args(["-p", "remanent-pmem", "-p", "remanent-store", "-p", "remanent-crash", "-p", "remanent-cli"]);
    Outcome::of_command(command.env("RUSTFLAGS", "-D warnings"))
}

/// Where the toolchain has its libraries for a platform, if it has them.
fn target_libraries(workspace: &Workspace, platform: &str) -> PathBuf {
    let sysroot = workspace.command("rustc").args(["--print", "sysroot"]).output().map(|output| output.stdout);
    let sysroot = String::from_utf8_lossy(&sysroot.unwrap_or_default()).trim().to_owned();
    Path::new(&sysroot).join("lib/rustlib").join(platform).join("lib")
}

fn miri(workspace: &Workspace) -> Outcome {
    let version = workspace.cargo().args(["miri", "--version"]).output();
    if !version.is_ok_and(|output| output.status.success()) {
        return Outcome::NotRun("this toolchain has no Miri".into());
    }
    let mut command = workspace.cargo();
    Outcome::of_tests(command.args(["miri", "test", "--locked", "-p", "remanent-pmem"]), Counts::of_cargo_test)
}

fn peers_build(workspace: &Workspace) -> Outcome {
    if !workspace.has("peers/Cargo.toml") {
        return Outcome::NotBuilt("peers/Cargo.toml is not there yet".into());
    }
    let mut command = workspace.cargo();
    Outcome::of_command(command.args(["build", "--locked", "--release", "--manifest-path", "peers/Cargo.toml"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_needs_its_unit() {
        assert_eq!(parse_budget("90s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_budget("40m"), Some(Duration::from_secs(2400)));
        assert_eq!(parse_budget("2h"), Some(Duration::from_secs(7200)));
        for wrong in ["", "40", "m", "-1m", "1.5h", "9999999999999999999h", "5µ"] {
            assert_eq!(parse_budget(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn counters_are_the_last_object_even_behind_a_test_name() {
        let output = "{\"images\": 1}\ntest deep ... {\"images\": 7}\nok\n{broken\ntest result: ok. 1 passed\n";
        assert_eq!(counters(output).unwrap()["images"], 7);
        assert_eq!(counters("nothing\n"), None);
    }

    #[test]
    fn a_campaign_without_counters_fails_however_it_ended() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            campaign(command)
        };
        assert!(matches!(shell("echo done").0, Outcome::Failed(..)));
        assert!(matches!(shell("echo '{\"images\": 3}'").0, Outcome::Done(_)));
        let (outcome, counters) = shell("echo '{\"images\": 3}'; echo seed 9 >&2; exit 1");
        assert!(matches!(outcome, Outcome::Failed(_, said) if said.contains("seed 9")));
        assert_eq!(counters["images"], 3);
    }
}
