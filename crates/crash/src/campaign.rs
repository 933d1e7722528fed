//! A campaign: run a workload once, then recover from every image that a crash of it could leave.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pmem::Granularity;

use crate::disk::{Disk, FileId};
use crate::explore::{Allowed, Explorer};
use crate::hashed::HashedMap;
use crate::mutate::Mutation;
use crate::sim::{Sim, unit_bytes};
use crate::trace::{Call, Event, Site, Sites};
use crate::volatile::Volatile;

/// A durable protocol under test, with its model.
///
/// The workload numbers its operations from 1; state 0 is the empty machine. The model shares no code with the
/// subject: it says what must be there after so many operations.
pub trait Protocol {
    /// Runs the operations, telling the machine when each is started and acknowledged.
    fn workload(&self, sim: &Sim);

    /// Recovers from whatever is on the machine and finds out after how many operations it stands.
    ///
    /// It calls [`Sim::observed`] with that number as soon as it has shown the state to anybody, then goes on: recovers
    /// again (idempotence), writes, reopens.
    ///
    /// # Errors
    /// Says what is wrong: a state that is none of the allowed ones, an error, a leak.
    fn recover(&self, sim: &Sim, allowed: RangeInclusive<usize>) -> Result<usize, String>;

    /// Whether nobody can tell these states apart, as before and after a restart.
    fn same(&self, a: usize, b: usize) -> bool {
        a == b
    }

    /// Whether a state may be recovered where these operations are allowed.
    fn allows(&self, allowed: &RangeInclusive<usize>, state: usize) -> bool {
        allowed.contains(&state) || allowed.clone().any(|allowed| self.same(state, allowed))
    }
}

/// How thoroughly images are chosen.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Seed of everything random.
    pub seed: u64,
    /// Up to so many combinations at a point are all visited.
    pub exhaustive: usize,
    /// Random combinations at a point with more.
    pub random: usize,
    /// Random pairs at a point with more.
    pub pairs: usize,
    /// Crashes inside recovery, so deep.
    pub depth: u32,
    /// One image in so many gets its recovery crashed too.
    pub nested_every: u64,
    /// At one event in so many the program is killed and started again without a power failure; in recoveries at one
    /// in [`KILLS_IN_RECOVERY`] times as many.
    pub kill_every: u64,
    /// Stop after so many images.
    pub limit: u64,
    /// A byte range, in any file, whose stores nobody waits for.
    pub lazy: Range<u64>,
    /// Visit only the image with this number; from a violation's token.
    pub only: Option<u64>,
}

/// How much rarer kills are in recoveries that are crashed than in the workload.
pub const KILLS_IN_RECOVERY: u64 = 8;

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            seed: 1,
            exhaustive: 256,
            random: 16,
            pairs: 16,
            depth: 2,
            nested_every: 64,
            kill_every: 1,
            limit: u64::MAX,
            lazy: 0..0,
            only: None,
        }
    }
}

/// A remark about a place of the source: not wrong, but work for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lint {
    /// A flush of lines that were clean.
    CleanFlush,
    /// A fence with nothing to wait for.
    EmptyFence,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What recovery found.
    pub what: String,
    /// Number of the image; [`Policy::only`] visits it again.
    pub image: u64,
    /// The policy's seed.
    pub seed: u64,
    /// How deep in recoveries it was.
    pub nesting: u32,
}

/// How much of a campaign belongs to one operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Places in the trace where a crash was considered.
    pub points: u64,
    /// Stores.
    pub stores: u64,
    /// Fences and msyncs.
    pub fences: u64,
    /// Distinct images that were recovered from.
    pub images: u64,
}

impl Tally {
    /// Adds another one up.
    pub fn add(&mut self, other: &Tally) {
        let Tally { points, stores, fences, images } = other;
        self.points += points;
        self.stores += stores;
        self.fences += fences;
        self.images += images;
    }
}

/// What a campaign did and found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Places in the trace where a crash was considered, recoveries included.
    pub points: u64,
    /// Stores in the traces.
    pub stores: u64,
    /// Flushes in the traces.
    pub flushes: u64,
    /// Fences and msyncs in the traces.
    pub fences: u64,
    /// Distinct images that were recovered from.
    pub images: u64,
    /// Images that were met again, and compared with what is allowed there. The few of them whose recovery is now crashed
    /// deeper are visited once more.
    pub pruned: u64,
    /// Injected write-back failures that the traces have met.
    pub failed_syncs: u64,
    /// The same counts by what the workload was doing; recoveries, and lives after a kill, are none of its operations.
    pub by_operation: BTreeMap<Option<usize>, Tally>,
    /// Broken promises; the walk stops at the first few.
    pub violations: Vec<Violation>,
    /// Stores that were not durable when an operation was acknowledged: file, offset, operation. Each is a bug.
    pub dirty_at_acknowledgement: BTreeSet<(FileId, u64, usize)>,
    sites: Sites,
    lints: BTreeMap<(Lint, Site), u64>,
}

/// Violations after which a campaign stops.
pub(crate) const ENOUGH: usize = 3;

impl Report {
    pub(crate) fn note(&mut self, lint: Lint, site: Site) {
        *self.lints.entry((lint, site)).or_default() += 1;
    }

    /// An image that was recovered from before is reached again where its state is not allowed.
    pub(crate) fn stale(&mut self, image: u64, state: usize, allowed: &Allowed, policy: &Policy) {
        if self.violations.len() < ENOUGH {
            let what = format!("it recovers to state {state} and can be left where {allowed:?} are allowed");
            self.violations.push(Violation { what, image, seed: policy.seed, nesting: 0 });
        }
    }

    /// Calls of the seam that were made, by kind and place.
    pub fn sites(&self) -> BTreeSet<(Call, Site)> {
        self.sites.iter().map(|(&(call, _), &site)| (call, site)).collect()
    }

    /// Performance notes: what, where, how often.
    pub fn lints(&self) -> impl Iterator<Item = (Lint, Site, u64)> + '_ {
        self.lints.iter().map(|(&(lint, site), &count)| (lint, site, count))
    }

    /// Whether every promise was kept.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.dirty_at_acknowledgement.is_empty()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { images, pruned, points, stores, flushes, fences, .. } = self;
        write!(f, "{images} distinct images ({pruned} more pruned) at {points} points: ")?;
        write!(f, "{stores} stores, {flushes} flushes, {fences} fences")?;
        for violation in &self.violations {
            let Violation { what, image, seed, nesting } = violation;
            write!(f, "\nVIOLATION in image {image} of seed {seed}, {nesting} recoveries deep: {what}")?;
        }
        for (file, offset, operation) in &self.dirty_at_acknowledgement {
            write!(f, "\nNOT DURABLE when operation {operation} was acknowledged: file {file}, offset {offset}")?;
        }
        Ok(())
    }
}

/// A protocol, a granularity and a policy.
pub struct Campaign<'p, P: Protocol> {
    protocol: &'p P,
    granularity: Granularity,
    policy: Policy,
    mutations: Vec<Mutation>,
}

impl<'p, P: Protocol> Campaign<'p, P> {
    /// A campaign on memory (`CacheLine`) or on page-cached files (`Page`).
    pub fn new(protocol: &'p P, granularity: Granularity, policy: Policy) -> Campaign<'p, P> {
        Campaign { protocol, granularity, policy, mutations: Vec::new() }
    }

    /// The same with one deliberate mistake more.
    pub fn mutated(mut self, mutation: Mutation) -> Campaign<'p, P> {
        self.mutations.push(mutation);
        self
    }

    /// Runs it.
    pub fn run(&self) -> Report {
        let mut report = Report::default();
        let sim = Sim::new(self.granularity);
        sim.lock().mutations.clone_from(&self.mutations);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.protocol.workload(&sim))) {
            report.violations.push(Violation {
                what: format!("the workload panicked: {}", message(&panic)),
                image: 0,
                seed: self.policy.seed,
                nesting: 0,
            });
            return report;
        }
        let (trace, mut disk) = take(&sim, &mut report);
        let newest: Vec<Vec<u8>> = (0..disk.file_count()).map(|file| disk.content(file).to_vec()).collect();
        disk.forget();
        let mut explorer = Explorer {
            policy: &self.policy,
            report: &mut report,
            rng: &mut fastrand::Rng::with_seed(self.policy.seed),
            seen: &mut HashedMap::default(),
            allows: &|allowed, state| self.protocol.allows(allowed, state),
            depth: self.policy.depth,
            operation: None,
        };
        let volatile = Volatile::new(unit_bytes(self.granularity), 0);
        let mut visit =
            |explorer: &mut Explorer<'_>, disk: &mut Disk, hash, allowed| self.visit(explorer, disk, hash, allowed);
        let mut restart = |explorer: &mut Explorer<'_>, disk: &mut Disk, allowed| {
            let image = explorer.report.images;
            self.recover(explorer, disk, image, &allowed).1
        };
        explorer.walk(&mut disk, volatile, &trace, 0..=0, &mut visit, Some(&mut restart));
        let told = (0..disk.file_count()).all(|file| disk.content(file) == newest[file]);
        if !told && report.violations.is_empty() && self.mutations.is_empty() {
            report.violations.push(Violation {
                what: "the medium holds bytes that no call of the seam has stored".into(),
                image: 0,
                seed: self.policy.seed,
                nesting: 0,
            });
        }
        report
    }

    /// Recovers from the image on the disk, and crashes some of the recoveries. Tells the recovered state.
    fn visit(&self, explorer: &mut Explorer<'_>, disk: &mut Disk, hash: u64, allowed: Allowed) -> Option<usize> {
        if explorer.is_done() {
            return None;
        }
        explorer.report.images += 1;
        explorer.tally().images += 1;
        let image = explorer.report.images;
        if self.policy.only.is_some_and(|only| only != image) && explorer.depth == 0 {
            return None;
        }
        let (state, trace) = self.recover(explorer, disk, image, &allowed);
        if state.is_some() && explorer.depth > 0 && image.is_multiple_of(self.policy.nested_every) {
            let mark = disk.mark();
            let volatile = Volatile::new(unit_bytes(self.granularity), hash);
            let mut visit =
                |explorer: &mut Explorer<'_>, disk: &mut Disk, hash, allowed| self.visit(explorer, disk, hash, allowed);
            let mut restart =
                |explorer: &mut Explorer<'_>, disk: &mut Disk, allowed| self.recover(explorer, disk, image, &allowed).1;
            explorer.depth -= 1;
            explorer.walk(disk, volatile, &trace, allowed, &mut visit, Some(&mut restart));
            explorer.depth += 1;
            disk.rollback(mark);
        }
        state
    }

    /// Runs one recovery on the disk, which is as before afterwards. Reports what goes wrong.
    fn recover(
        &self,
        explorer: &mut Explorer<'_>,
        disk: &mut Disk,
        image: u64,
        allowed: &Allowed,
    ) -> (Option<usize>, Vec<Event>) {
        let nesting = self.policy.depth - explorer.depth;
        let mark = disk.mark();
        let sim = Sim::over(std::mem::take(disk), self.granularity, nesting + 1);
        sim.lock().mutations.clone_from(&self.mutations);
        let result = catch_unwind(AssertUnwindSafe(|| self.protocol.recover(&sim, allowed.clone())));
        let (trace, recovered) = take(&sim, explorer.report);
        *disk = recovered;
        disk.rollback(mark);
        let what = match result {
            Ok(Ok(state)) if (explorer.allows)(allowed, state) => return (Some(state), trace),
            Ok(Ok(state)) => format!("state {state} was recovered, allowed are {allowed:?}"),
            Ok(Err(what)) => format!("{what} (allowed {allowed:?})"),
            Err(panic) => format!("recovery panicked: {} (allowed {allowed:?})", message(&panic)),
        };
        explorer.report.violations.push(Violation { what, image, seed: self.policy.seed, nesting });
        (None, Vec::new())
    }
}

/// Takes trace, disk and sites out of a machine.
fn take(sim: &Sim, report: &mut Report) -> (Vec<Event>, Disk) {
    let mut state = sim.lock();
    report.sites.extend(state.sites.drain());
    (std::mem::take(&mut state.trace), std::mem::take(&mut state.disk))
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
