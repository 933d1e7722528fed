//! The DAX lane: real MAP_SYNC mappings, in virtual machines whose NVDIMMs are files.
//!
//! | module | what it answers for |
//! | --- | --- |
//! | `packages` | Debian packages, fetched and not installed |
//! | `kernel` | Debian's kernel and the modules that the guest loads |
//! | `programs` | what runs in the guest (`tests/guest` and the core's tests), linked statically |
//! | `initramfs` | the archive that the kernel boots into |
//! | `images` | the files that are the devices |
//! | `site` | the folder that holds all of these for one run |
//! | `machine` | one run of QEMU and its end |
//! | `scenes` | checks in a guest, a machine for each kind of platform |
//! | `powercut` | a store through a chain of power cuts, with the control that must lose |

mod images;
mod initramfs;
mod kernel;
mod machine;
mod packages;
mod powercut;
mod programs;
mod scenes;
mod site;

use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::counts::Counts;
use crate::deep::Slice;
use crate::step::Outcome;
use crate::workspace::Workspace;
use powercut::{Chain, Cut};
use site::Site;

/// Cuts in the lane; the deep lane has no limit.
const CUTS: usize = 3;
/// In the deep lane, one boot of so many is cut before it acknowledges anything.
const EARLY_EVERY: u64 = 4;
/// Then it begins again with new devices: a store that is full of old pages has little to lose.
const BOOTS_A_CHAIN: u64 = 12;
/// Programs that the lane calls, each with a word that makes it explain itself.
const TOOLS: [(&str, &str); 6] = [
    ("qemu-system-x86_64", "--version"),
    ("ndctl", "--version"),
    ("mkfs.ext4", "-V"),
    ("setpriv", "--version"),
    ("fallocate", "--version"),
    ("dpkg", "--version"),
];

/// Runs the lane.
pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let site = match prepare(workspace) {
        Ok(site) => site,
        Err(outcome) => return outcome,
    };
    let (mut counts, mut failures) = scenes::run(&site);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64 % 1_000_000);
    match cut_some(&site, seed) {
        Ok(()) => counts.passed += CUTS as u64,
        Err(reason) => {
            counts.failed += 1;
            failures.push(reason);
        }
    }
    if failures.is_empty() { Outcome::Done(counts) } else { Outcome::Failed(counts, failures.join("\n")) }
}

/// The deep lane: cuts for as long as it is told. Returns what they add up to.
pub(crate) fn cut_for(workspace: &Workspace, budget: Duration, seed: u64) -> Slice {
    let (start, mut sums) = (Instant::now(), Sums::default());
    let site = match prepare(workspace) {
        Ok(site) => site,
        Err(outcome) => return (outcome, Map::new()),
    };
    let mut result = Ok(());
    while result.is_ok() && (start.elapsed() < budget || sums.cuts == 0) {
        // Every chain has a seed of its own, and no two slices share one.
        let seed = seed << 16 | sums.chains;
        sums.chains += 1;
        result = cut_chain(&site, seed, &mut sums, || start.elapsed() >= budget);
    }
    let outcome = match result {
        Ok(()) => Outcome::Done(Counts::ONE_PASSED),
        Err(reason) => failed(reason),
    };
    (outcome, sums.counters())
}

fn cut_chain(site: &Site, seed: u64, sums: &mut Sums, is_over: impl Fn() -> bool) -> Result<(), String> {
    let last = chained(site, seed, |chain| {
        for boot in 1..=BOOTS_A_CHAIN {
            if boot % EARLY_EVERY == 0 {
                sums.early_cuts += 1;
                sums.add(chain.cut_early()?);
            } else {
                sums.add(chain.cut()?);
            }
            if is_over() {
                break;
            }
        }
        Ok(())
    })?;
    sums.add(last);
    Ok(())
}

fn cut_some(site: &Site, seed: u64) -> Result<(), String> {
    let mut cuts = Vec::new();
    let last = chained(site, seed, |chain| {
        for _ in 0..CUTS {
            cuts.extend(chain.cut()?);
        }
        Ok(())
    })?;
    cuts.extend(last);
    for (index, cut) in cuts.iter().enumerate() {
        println!("dax: power cut {} of seed {seed}: {cut}: ok", index + 1);
    }
    if cuts.len() == CUTS { Ok(()) } else { Err(format!("{} of {CUTS} cuts had something to lose", cuts.len())) }
}

/// Runs a chain of cuts to its last boot; a failure names the seed and the logs.
fn chained(
    site: &Site,
    seed: u64,
    work: impl FnOnce(&mut Chain<'_>) -> Result<(), String>,
) -> Result<Option<Cut>, String> {
    let mut chain = Chain::start(site, seed)?;
    let result = work(&mut chain).and_then(|()| chain.look());
    result.map_err(|reason| {
        let logs = chain.machines().map(|machine| site.keep_logs(&machine));
        format!("power cuts, seed {seed}: {reason}\n{}", logs.collect::<Vec<_>>().join("\n"))
    })
}

/// What the cuts of a slice add up to.
#[derive(Default)]
struct Sums {
    /// Stores that were made anew.
    chains: u64,
    /// Cuts with acknowledgements, judged by the boot after them.
    cuts: u64,
    /// Cuts between power-on and the first acknowledgements.
    early_cuts: u64,
    acknowledged: u64,
    one_more: u64,
    controls_lost: u64,
}

impl Sums {
    fn add(&mut self, cut: Option<Cut>) {
        let Some(cut) = cut else { return };
        self.cuts += 1;
        self.acknowledged += cut.acknowledged;
        self.one_more += u64::from(cut.one_more);
        // A control that loses nothing is no verdict but an error.
        self.controls_lost += 1;
    }

    fn counters(&self) -> Map<String, Value> {
        let counters = json!({
            "chains": self.chains,
            "cuts": self.cuts,
            "early_cuts": self.early_cuts,
            "acknowledged": self.acknowledged,
            "one_more": self.one_more,
            "controls_lost": self.controls_lost,
        });
        counters.as_object().cloned().unwrap_or_default()
    }
}

fn prepare(workspace: &Workspace) -> Result<Site<'_>, Outcome> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(Outcome::NotRun("the guests are for x86-64".into()));
    }
    for (tool, word) in TOOLS {
        let mut command = workspace.command(tool);
        if command.arg(word).stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            return Err(Outcome::NotRun(format!("there is no {tool}; ./run installs it")));
        }
    }
    Site::prepare(workspace)
}

fn failed(reason: String) -> Outcome {
    Outcome::Failed(Counts::ONE_FAILED, reason)
}
