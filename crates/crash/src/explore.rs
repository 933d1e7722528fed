//! Walks a trace and visits the images that a crash could leave at each of its points.

use std::ops::RangeInclusive;

use crate::campaign::{ENOUGH, KILLS_IN_RECOVERY, Lint, Policy, Report, Tally};
use crate::disk::{Disk, FileId};
use crate::hashed::HashedMap;
use crate::trace::Event;
use crate::volatile::{NameChange, Volatile, mix, selections};

/// Which states recovery may show: from the last acknowledged to the last started operation.
pub(crate) type Allowed = RangeInclusive<usize>;

/// What is known of an image.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    /// Nesting that was left when it was visited.
    depth: u32,
    /// The state that was recovered; none if that went wrong, and was reported.
    state: Option<usize>,
    /// Its number.
    image: u64,
}

/// What the walk needs besides the trace.
pub(crate) struct Explorer<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) report: &'a mut Report,
    pub(crate) rng: &'a mut fastrand::Rng,
    /// Images that were recovered from, by the hash of their content.
    pub(crate) seen: &'a mut HashedMap<Seen>,
    /// Whether a state may be recovered where these are allowed.
    pub(crate) allows: &'a dyn Fn(&Allowed, usize) -> bool,
    /// Nesting that is left.
    pub(crate) depth: u32,
    /// What the workload is doing; none in recoveries.
    pub(crate) operation: Option<usize>,
}

/// Called with the disk set to an image and the hash of it; must leave it as it was. Tells the recovered state.
pub(crate) type Visit<'v> = dyn FnMut(&mut Explorer<'_>, &mut Disk, u64, Allowed) -> Option<usize> + 'v;

/// Runs recovery on what is on the disk and gives its trace back; leaves the disk as it was.
pub(crate) type Restart<'v> = dyn FnMut(&mut Explorer<'_>, &mut Disk, Allowed) -> Vec<Event> + 'v;

impl Explorer<'_> {
    /// Visits the images of a trace on top of `disk`, which is left with everything committed.
    ///
    /// If `restart` is given, the program is also killed at events: it starts again on what was visible, and the
    /// walk goes on through the images of that, in which stores from before the kill are still not durable.
    pub(crate) fn walk(
        &mut self,
        disk: &mut Disk,
        mut volatile: Volatile,
        trace: &[Event],
        mut allowed: Allowed,
        visit: &mut Visit<'_>,
        mut restart: Option<&mut Restart<'_>>,
    ) {
        let is_workload = self.depth == self.policy.depth && restart.is_some();
        let kill_every = if is_workload { self.policy.kill_every } else { self.policy.kill_every * KILLS_IN_RECOVERY };
        let operation_around = self.operation;
        for (number, event) in trace.iter().enumerate() {
            if self.report.violations.len() >= ENOUGH {
                break;
            }
            self.operation = is_workload.then_some(*allowed.end());
            // At the limit of images the walk goes on: what is not durable when it is acknowledged is noted all the same.
            if let Some(restart) = restart.as_deref_mut()
                && (number as u64).is_multiple_of(kill_every)
                && !self.is_done()
            {
                self.kill(disk, &volatile, &allowed, visit, restart);
            }
            self.report.points += 1;
            self.tally().points += 1;
            match event {
                Event::Store { file, offset_bytes, bytes, non_temporal, thread } => {
                    self.report.stores += 1;
                    self.tally().stores += 1;
                    let by = non_temporal.then_some(*thread);
                    let changed = volatile.store(disk, *file, *offset_bytes, bytes, by);
                    self.images(disk, &volatile, &changed, &allowed, visit);
                }
                Event::Flush { file, offset_bytes, len_bytes, thread, site } => {
                    self.report.flushes += 1;
                    if volatile.flush(*file, *offset_bytes, *len_bytes, *thread) == 0 {
                        self.report.note(Lint::CleanFlush, site);
                    }
                }
                Event::Fence { thread, site, is_weak } => {
                    self.report.fences += 1;
                    self.tally().fences += 1;
                    if volatile.fence(disk, *thread, *is_weak) == 0 {
                        self.report.note(Lint::EmptyFence, site);
                    }
                }
                Event::Sync { file, offset_bytes, len_bytes, is_weak } => {
                    self.report.fences += 1;
                    self.tally().fences += 1;
                    volatile.sync(disk, *file, *offset_bytes, *len_bytes, *is_weak);
                }
                Event::SyncFailed { file, offset_bytes, len_bytes } => {
                    self.report.failed_syncs += 1;
                    volatile.give_up(*file, *offset_bytes, *len_bytes);
                }
                Event::Fsync { file } => {
                    volatile.fsync(disk, *file);
                    self.all_images(disk, &volatile, &allowed, visit);
                }
                Event::Create { path, len_bytes } => {
                    let file = disk.new_file(*len_bytes);
                    disk.set_len(file, 0);
                    volatile.name_op(vec![NameChange::Bind(path.clone(), Some(file))], Some(path));
                    volatile.name_op(vec![NameChange::Len(file, *len_bytes)], None);
                    self.all_images(disk, &volatile, &allowed, visit);
                }
                Event::Rename { from, to, file } => {
                    let changes = vec![NameChange::Bind(from.clone(), None), NameChange::Bind(to.clone(), Some(*file))];
                    volatile.name_op(changes, Some(to));
                    self.all_images(disk, &volatile, &allowed, visit);
                }
                Event::Remove { path } => {
                    volatile.name_op(vec![NameChange::Bind(path.clone(), None)], Some(path));
                    self.all_images(disk, &volatile, &allowed, visit);
                }
                Event::SyncDir { path } => {
                    volatile.sync_dir(disk, path);
                    self.all_images(disk, &volatile, &allowed, visit);
                }
                Event::Started(operation) => allowed = *allowed.start()..=*operation,
                Event::Acknowledged(operation) => {
                    allowed = *operation..=(*allowed.end()).max(*operation);
                    if is_workload {
                        self.lint_dirty(&volatile, *operation);
                    }
                    self.all_images(disk, &volatile, &allowed, visit);
                }
                Event::Observed(operation) => {
                    allowed = *operation..=*operation;
                    self.all_images(disk, &volatile, &allowed, visit);
                }
            }
        }
        self.all_images(disk, &volatile, &allowed, visit);
        volatile.commit_all(disk);
        self.operation = operation_around;
    }

    /// Whether enough was found, or seen.
    pub(crate) fn is_done(&self) -> bool {
        self.report.violations.len() >= ENOUGH || self.report.images >= self.policy.limit
    }

    pub(crate) fn tally(&mut self) -> &mut Tally {
        self.report.by_operation.entry(self.operation).or_default()
    }

    fn kill(
        &mut self,
        disk: &mut Disk,
        volatile: &Volatile,
        allowed: &Allowed,
        visit: &mut Visit<'_>,
        restart: &mut Restart<'_>,
    ) {
        let mark = disk.mark();
        volatile.show_all(disk);
        let trace = restart(self, disk, allowed.clone());
        disk.rollback(mark);
        let depth = std::mem::take(&mut self.depth);
        // The fences of the new process answer for no flush of the old one.
        self.walk(disk, volatile.without_pending(), &trace, allowed.clone(), visit, None);
        self.depth = depth;
        disk.rollback(mark);
    }

    fn lint_dirty(&mut self, volatile: &Volatile, operation: usize) {
        // What was given up was reported, and is nobody's until it is stored to again.
        for (&(file, unit), _) in volatile.units.iter().filter(|(_, unit)| !unit.is_given_up) {
            let at = volatile.offset_of(unit);
            if !self.policy.lazy.contains(&at) {
                self.report.dirty_at_acknowledgement.insert((file, at, operation));
            }
        }
    }

    fn all_images(&mut self, disk: &mut Disk, volatile: &Volatile, allowed: &Allowed, visit: &mut Visit<'_>) {
        let all: Vec<_> = volatile.units.keys().copied().collect();
        self.images(disk, volatile, &all, allowed, visit);
    }

    /// Visits images in which at least the changed units take part.
    fn images(
        &mut self,
        disk: &mut Disk,
        volatile: &Volatile,
        changed: &[(FileId, u64)],
        allowed: &Allowed,
        visit: &mut Visit<'_>,
    ) {
        if self.is_done() {
            return;
        }
        let units: Vec<_> = volatile.units.iter().map(|(&key, unit)| (key, &unit.options[..])).collect();
        let changed: Vec<usize> =
            units.iter().enumerate().filter(|(_, (key, _))| changed.contains(key)).map(|(i, _)| i).collect();
        let counts: Vec<usize> = units.iter().map(|(_, options)| options.len()).collect();
        let names = volatile.names.clone();
        selections(names.len(), |chosen| {
            let before_names = disk.mark();
            names.iter().zip(chosen).filter(|(_, on)| **on).for_each(|(op, _)| op.apply(disk));
            let names_hash = disk.names_hash();
            self.choices(&counts, &changed, |explorer, choice| {
                if explorer.is_done() {
                    return;
                }
                let picked = units.iter().zip(choice).filter(|(_, option)| **option > 0);
                let hash = picked.clone().fold(volatile.hash, |hash, ((_, options), option)| {
                    hash.wrapping_add(options[*option].hash).wrapping_sub(options[0].hash)
                });
                if explorer.is_known(mix(hash, names_hash), allowed) {
                    return;
                }
                let mark = disk.mark();
                for ((key, options), option) in picked {
                    disk.write(key.0, volatile.offset_of(key.1), &options[*option].bytes);
                }
                // The visit counts itself, and those that it nests after itself.
                let image = explorer.report.images + 1;
                let state = visit(explorer, disk, hash, allowed.clone());
                explorer.seen.insert(mix(hash, names_hash), Seen { depth: explorer.depth, state, image });
                disk.rollback(mark);
            });
            disk.rollback(before_names);
        });
    }

    /// Whether the image was recovered from before, with crashes nested as deep. What it recovers to is then known
    /// and only compared with what is allowed at this point.
    fn is_known(&mut self, hash: u64, allowed: &Allowed) -> bool {
        let Some(&Seen { depth, state, image }) = self.seen.get(&hash) else { return false };
        if let Some(state) = state
            && !(self.allows)(allowed, state)
        {
            self.report.stale(image, state, allowed, self.policy);
        }
        self.report.pruned += 1;
        depth >= self.depth
    }

    /// Option numbers for each unit: all combinations when there are few, else families and samples.
    fn choices(&mut self, counts: &[usize], changed: &[usize], mut f: impl FnMut(&mut Self, &[usize])) {
        let mut choice = vec![0; counts.len()];
        let combinations = counts.iter().try_fold(1usize, |product, &count| product.checked_mul(count));
        if combinations.is_some_and(|combinations| combinations <= self.policy.exhaustive) {
            loop {
                f(self, &choice);
                let Some(i) = (0..counts.len()).find(|&i| choice[i] + 1 < counts[i]) else { return };
                choice[..i].fill(0);
                choice[i] += 1;
            }
        }
        let full: Vec<usize> = counts.iter().map(|count| count - 1).collect();
        let none = vec![0; counts.len()];
        for background in [&none, &full] {
            choice.clone_from(background);
            f(self, &choice);
            for &unit in changed {
                for option in 0..counts[unit] {
                    choice[unit] = option;
                    f(self, &choice);
                }
                choice[unit] = background[unit];
            }
        }
        for end in 1..counts.len() {
            let prefix = |i: usize| if i < end { full[i] } else { 0 };
            (0..counts.len()).for_each(|i| choice[i] = prefix(i));
            f(self, &choice);
            (0..counts.len()).for_each(|i| choice[i] = full[i] - prefix(i));
            f(self, &choice);
        }
        for _ in 0..self.policy.pairs {
            let (a, b) = (self.rng.usize(..counts.len()), self.rng.usize(..counts.len()));
            choice.clone_from(&none);
            (choice[a], choice[b]) = (full[a], full[b]);
            f(self, &choice);
            choice.clone_from(&full);
            (choice[a], choice[b]) = (0, 0);
            f(self, &choice);
        }
        for _ in 0..self.policy.random {
            for (i, &count) in counts.iter().enumerate() {
                choice[i] = self.rng.usize(..count);
            }
            f(self, &choice);
        }
    }
}
