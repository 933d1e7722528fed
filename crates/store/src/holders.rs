//! Who in this process sees an extent, so that nobody's bytes are written over.
//!
//! A commit that writes changed bytes back to where they belong must know that no view would see them change: neither
//! those of other processes, which the pool knows, nor those of this one, which are counted here. The view whose private
//! pages the changes come from sees its own pages there, whatever becomes of the file's. A child that was forked has the
//! views of its parent, without those pages that were changed since, so views from before a fork are always in the way.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pmem::{DirectMapping, Extent, Reservation, forks, process_id};

use crate::direct::Draft;
use crate::source::Source;

/// All views that were given out and live.
pub(crate) struct Holders {
    /// A forked child may find the lock taken by a thread that it has not.
    process_id: u32,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    next: u64,
    /// By the first byte of an extent, and by the holder.
    extents: BTreeMap<u64, BTreeMap<Holder, Held>>,
    /// Private mappings by their first address.
    privates: BTreeMap<usize, Private>,
    /// Views to which stores go straight into the pool, by their first address.
    directs: BTreeMap<usize, Direct>,
}

/// A view to which stores go straight.
pub(crate) struct Direct {
    pub(crate) extent: Extent,
    pub(crate) len_bytes: u64,
    pub(crate) straight: Straight,
    /// None where stores go through the pool's own.
    pub(crate) mapping: Option<Arc<DirectMapping>>,
    /// Of an object that is changed in place.
    pub(crate) holder: Option<Holder>,
    pub(crate) hold: Hold,
    /// How often the process had forked when it was mapped.
    pub(crate) forks: u64,
}

/// What stores go to.
pub(crate) enum Straight {
    /// Space that no object has, but for a commit that has it just now.
    Draft(Option<Reservation>),
    /// An object's bytes.
    InPlace,
}

/// A view, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder(u64);

/// What a holder has of one extent.
#[derive(Clone, Copy)]
struct Held {
    /// The catalogue generation in which its object was committed.
    born: u64,
    /// How often the process had forked.
    forks: u64,
}

/// A private mapping of a whole extent.
#[derive(Clone)]
pub(crate) struct Private {
    pub(crate) extent: Extent,
    pub(crate) len_bytes: u64,
    pub(crate) holder: Holder,
    pub(crate) hold: Hold,
    /// The pages of the mapping that were copied when it was last persisted, and may have what the extent has.
    pub(crate) copied: Arc<Vec<Range<u64>>>,
}

/// What keeps an extent from being reclaimed and from being written over: the region that a mapping holds. It is
/// exchanged when the object is committed again with what the mapping shows.
pub(crate) type Hold = Arc<Mutex<Box<dyn Any + Send + Sync>>>;

impl Holders {
    pub(crate) fn new() -> Holders {
        Holders { process_id: process_id(), state: Mutex::default() }
    }

    /// As long as this is held nobody becomes a holder.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, but for a forked child: what it has inherited is pinned by locks.
    fn change(&self, change: impl FnOnce(&mut State)) {
        if process_id() == self.process_id {
            change(&mut self.lock());
        }
    }

    /// A new holder of one extent of another one's, since as many forks: what a child has inherited of that one it can map
    /// itself. In a forked child there is none to count.
    pub(crate) fn add_like(&self, other: Holder, extent: &Extent) -> Holder {
        let mut holder = other;
        self.change(|state| {
            let held = state.extents.get(&start(extent)).and_then(|held| held.get(&other)).copied();
            holder = state.add_held(held.expect("what is held for itself was held before"), slice::from_ref(extent));
        });
        holder
    }

    /// Forgets a holder.
    pub(crate) fn release(&self, holder: Holder, extents: &[Extent]) {
        self.change(|state| {
            for start in extents.iter().map(start) {
                let held = state.extents.get_mut(&start).expect("it was added");
                held.remove(&holder);
                if held.is_empty() {
                    state.extents.remove(&start);
                }
            }
        });
    }

    /// Notes a private mapping of the first bytes of an extent, whose holder sees nothing else of it.
    pub(crate) fn add_private(&self, address: usize, private: Private) {
        self.change(|state| {
            state.privates.insert(address, private);
        });
    }

    /// Forgets a private mapping, which is still there.
    pub(crate) fn remove_private(&self, address: usize) {
        self.change(|state| {
            state.privates.remove(&address);
        });
    }

    /// The private mapping that has exactly these bytes.
    pub(crate) fn private_at(&self, address: usize, len_bytes: u64) -> Option<Private> {
        self.lock().privates.get(&address).filter(|private| private.len_bytes == len_bytes).cloned()
    }

    /// Notes which pages of a private mapping are its own by now.
    pub(crate) fn note_copied(&self, address: usize, pages: Vec<Range<u64>>) {
        self.change(|state| {
            if let Some(private) = state.privates.get_mut(&address) {
                private.copied = Arc::new(pages);
            }
        });
    }

    /// Has a mapping hold another region of its extent in place of the one that it holds.
    pub(crate) fn exchange(&self, old: Holder, new: Holder, region: Box<dyn Any + Send + Sync>) {
        let hold = {
            let mut state = self.lock();
            let State { privates, directs, extents, .. } = &mut *state;
            let privates = privates.values_mut().map(|p| (p.extent, &mut p.holder, &p.hold));
            let in_place = directs.values_mut().filter_map(|d| Some((d.extent, d.holder.as_mut()?, &d.hold)));
            privates.chain(in_place).find(|(_, holder, _)| **holder == old).map(|(extent, holder, hold)| {
                *holder = new;
                // A child that has the mapping has it still.
                if let Some(held) = extents.get_mut(&start(&extent))
                    && let Some(forks) = held.get(&old).map(|held| held.forks)
                    && let Some(held) = held.get_mut(&new)
                {
                    held.forks = forks;
                }
                hold.clone()
            })
        };
        // What is let go of takes the lock itself.
        if let Some(hold) = hold {
            replace(&hold, region);
        }
    }

    /// Notes a view to which stores go straight.
    pub(crate) fn add_direct(&self, address: usize, direct: Direct) {
        self.lock().directs.insert(address, direct);
    }

    /// Whether stores to a view go straight; never in a forked child.
    pub(crate) fn has_direct(&self, address: usize) -> bool {
        let is_straight = |direct: &Direct| !matches!(direct.straight, Straight::Draft(None));
        process_id() == self.process_id && self.lock().directs.get(&address).is_some_and(is_straight)
    }

    /// Forgets a view, whose mapping is still there.
    pub(crate) fn remove_direct(&self, address: usize) {
        let mut removed = None;
        self.change(|state| {
            state.privates.remove(&address);
            removed = state.directs.remove(&address);
        });
        // What it holds may take the lock.
        drop(removed);
    }

    /// The space of the draft whose bytes these are, all of them, unless a commit has it.
    pub(crate) fn take_draft(self: &Arc<Self>, source: &Source<'_>) -> Option<Draft> {
        let mut state = self.lock();
        let direct = state.directs.get_mut(&source.address());
        let direct = direct.filter(|direct| direct.len_bytes == source.len_bytes())?;
        Draft::new(source.address(), self, direct)
    }

    pub(crate) fn give_back(&self, address: usize, space: Reservation) {
        let mut state = self.lock();
        match state.directs.get_mut(&address) {
            Some(Direct { straight: Straight::Draft(slot), .. }) => *slot = Some(space),
            // It is detached, or gone.
            _ => {
                drop(state);
                drop(space);
            }
        }
    }

    /// The extent of the object that a view changes in place whose bytes these are, all of them.
    pub(crate) fn in_place_at(&self, source: &Source<'_>) -> Option<(Extent, Holder)> {
        let state = self.lock();
        let direct = state.directs.get(&source.address());
        direct.filter(|direct| direct.len_bytes == source.len_bytes()).and_then(|d| Some((d.extent, d.holder?)))
    }

    /// Whether a view changes an object in place that has this extent.
    pub(crate) fn is_changed_in_place(&self, extent: Extent) -> bool {
        self.lock().directs.values().any(|direct| direct.holder.is_some() && direct.extent == extent)
    }

    /// Has the detached view of a draft be a private view of an object that holds a region of it.
    pub(crate) fn adopt(&self, address: usize, holder: Holder, region: Box<dyn Any + Send + Sync>) {
        let hold = {
            let mut state = self.lock();
            let Some(direct) = state.directs.remove(&address) else { return };
            let Direct { extent, len_bytes, hold, mapping, forks, .. } = direct;
            if let Some(held) = state.extents.get_mut(&start(&extent)).and_then(|held| held.get_mut(&holder)) {
                held.forks = forks;
            }
            if mapping.is_some() {
                let private = Private { extent, len_bytes, holder, hold: hold.clone(), copied: Arc::default() };
                state.privates.insert(address, private);
            }
            hold
        };
        replace(&hold, region);
    }

    /// Copies what a view shows to memory, so that it needs nothing of the pool.
    pub(crate) fn copy_out(&self, address: usize) {
        let removed = self.lock().directs.remove(&address);
        if let Some(mapping) = removed.and_then(|direct| direct.mapping) {
            // Without memory the view stays private, over space that may become another object's.
            let _ = mapping.copy_out();
        }
    }

    /// Detaches all views, and forgets those with which that succeeds. The first error, when all have been tried.
    pub(crate) fn take_directs(&self, detach: impl Fn(&Direct) -> pmem::Result<()>) -> pmem::Result<()> {
        let (mut result, mut detached) = (Ok(()), Vec::new());
        self.change(|state| {
            for (address, direct) in std::mem::take(&mut state.directs) {
                match detach(&direct) {
                    Ok(()) => detached.push(direct),
                    Err(error) => {
                        state.directs.insert(address, direct);
                        result = Err(error);
                    }
                }
            }
        });
        // What they hold takes the lock itself.
        drop(detached);
        result
    }
}

impl State {
    /// A new holder of an object's extents.
    pub(crate) fn add(&mut self, born: u64, extents: &[Extent]) -> Holder {
        self.add_held(Held { born, forks: forks() }, extents)
    }

    fn add_held(&mut self, held: Held, extents: &[Extent]) -> Holder {
        self.next += 1;
        let holder = Holder(self.next);
        for start in extents.iter().map(start) {
            self.extents.entry(start).or_default().insert(holder, held);
        }
        holder
    }

    /// Whether nobody sees the bytes of an extent that lie there now, as far as its object was committed before
    /// `generation`; but for these holders, unless a child may have what they have.
    pub(crate) fn is_free(&self, extent: Extent, generation: u64, but: &[Holder]) -> bool {
        let Some(held) = self.extents.get(&start(&extent)) else { return true };
        held.iter()
            .filter(|(_, held)| held.born < generation)
            .all(|(holder, held)| but.contains(holder) && held.forks == forks())
    }
}

/// Lets go of what was held before.
fn replace(hold: &Hold, region: Box<dyn Any + Send + Sync>) {
    drop(std::mem::replace(&mut *hold.lock().unwrap_or_else(PoisonError::into_inner), region));
}

fn start(extent: &Extent) -> u64 {
    extent.offset.to_word()
}

#[cfg(test)]
mod tests {
    use pmem::Offset;

    use super::*;

    #[test]
    fn an_extent_is_free_for_the_one_private_view_that_is_there() {
        let extent = Extent { offset: Offset::new(0, 1 << 21), len_bytes: 4096 };
        let holders = Holders::new();
        let free = |but: &[Holder]| holders.lock().is_free(extent, 5, but);
        assert!(free(&[]));
        let one = holders.lock().add(4, &[extent]);
        assert!(free(&[one]) && !free(&[]));
        let hold: Hold = Arc::new(Mutex::new(Box::new("a region")));
        holders.add_private(0x1000, Private { extent, len_bytes: 4096, holder: one, hold, copied: Arc::default() });
        assert!(holders.private_at(0x1000, 4096).is_some_and(|private| private.holder == one));
        assert!(holders.private_at(0x1000, 64).is_none(), "a part of it");
        let later = holders.lock().add(5, &[extent]);
        assert!(free(&[one]), "it knows what was changed");
        let two = holders.lock().add(3, &[extent]);
        assert!(!free(&[one]));
        holders.release(two, &[extent]);
        assert!(free(&[one]));
        holders.remove_private(0x1000);
        holders.release(one, &[extent]);
        holders.release(later, &[extent]);
        assert!(holders.lock().extents.is_empty() && holders.lock().privates.is_empty());
    }
}
