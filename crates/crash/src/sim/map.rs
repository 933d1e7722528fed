//! Mappings of a simulated machine.

use std::ops::Range;
use std::panic::Location;
use std::path::PathBuf;

use pmem::{Error, Granularity, MediaMap, Result, Stripe, Touch};

use super::{Sim, State, io_error, thread};
use crate::disk::FileId;
use crate::mutate::Verdict;
use crate::trace::{Call, Event, Site};

/// A mapping on a simulated machine.
pub struct SimMap {
    pub(super) sim: Sim,
    pub(super) files: Vec<FileId>,
    pub(super) stripe: Stripe,
    pub(super) len_bytes: u64,
    pub(super) path: PathBuf,
}

impl SimMap {
    /// Runs `f(state, file, offset in the file, range of the caller's bytes)` over the pieces of a logical range.
    fn pieces(&self, offset_bytes: u64, len_bytes: u64, mut f: impl FnMut(&mut State, FileId, u64, Range<usize>)) {
        let end = offset_bytes.checked_add(len_bytes);
        assert!(end.is_some_and(|end| end <= self.len_bytes), "{len_bytes} bytes at {offset_bytes} leave the mapping");
        let mut state = self.sim.lock();
        let mut done = 0;
        while done < len_bytes {
            let (member, at, room) = self.stripe.locate(offset_bytes + done);
            let n = room.min(len_bytes - done);
            f(&mut state, self.files[usize::from(member)], at, done as usize..(done + n) as usize);
            done += n;
        }
    }

    /// As [`SimMap::pieces`], in pieces of at most 8 bytes where other threads may run in between.
    fn accesses(&self, offset_bytes: u64, len_bytes: u64, mut f: impl FnMut(&mut State, FileId, u64, Range<usize>)) {
        if self.sim.switch.is_none() {
            return self.pieces(offset_bytes, len_bytes, f);
        }
        let mut done = 0;
        while done < len_bytes {
            let n = (8 - (offset_bytes + done) % 8).min(len_bytes - done);
            self.sim.step();
            self.pieces(offset_bytes + done, n, |state, file, at, range| {
                f(state, file, at, done as usize + range.start..done as usize + range.end);
            });
            done += n;
        }
    }

    fn store(&self, offset_bytes: u64, from: &[u8], site: Site) {
        let verdict = self.store_verdict(site);
        let store = |state: &mut State, file, at, range: Range<usize>| state.stored(verdict, file, at, &from[range]);
        self.accesses(offset_bytes, from.len() as u64, store);
    }

    fn store_verdict(&self, site: Site) -> Verdict {
        let mut state = self.sim.lock();
        if state.synced.remove(&thread()) {
            state.release_delayed();
        }
        state.verdict(Call::Store, site)
    }
}

impl State {
    /// A store, as a mutation has it.
    fn stored(&mut self, verdict: Verdict, file: FileId, at: u64, bytes: &[u8]) {
        match verdict {
            Verdict::Keep | Verdict::Drop | Verdict::Weaken => self.store(file, at, bytes, false),
            Verdict::Delay => {
                // Visible at once, so that the program goes on as it would, but durable in the wrong order.
                self.disk.write(file, at, bytes);
                self.delayed.push((thread(), file, at, bytes.to_vec()));
            }
        }
    }
}

#[allow(unsafe_code)]
impl MediaMap for SimMap {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn stripe(&self) -> Stripe {
        self.stripe
    }

    /// # Panics
    /// On a stripe, which has no single address here.
    fn base(&self) -> *mut u8 {
        assert!(self.files.len() == 1, "a simulated stripe has no single address");
        self.sim.lock().disk.base(self.files[0])
    }

    fn load_u64(&self, offset_bytes: u64) -> u64 {
        assert!(offset_bytes.is_multiple_of(8), "offset {offset_bytes} is not aligned to 8 bytes");
        let mut bytes = [0; 8];
        self.load_bytes(offset_bytes, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn load_bytes(&self, offset_bytes: u64, into: &mut [u8]) {
        self.accesses(offset_bytes, into.len() as u64, |state, file, at, range| {
            state.disk.read(file, at, &mut into[range]);
        });
    }

    #[track_caller]
    fn store_u64(&self, offset_bytes: u64, value: u64) {
        assert!(offset_bytes.is_multiple_of(8), "offset {offset_bytes} is not aligned to 8 bytes");
        self.store(offset_bytes, &value.to_le_bytes(), Location::caller());
    }

    #[track_caller]
    fn cas_u64(&self, offset_bytes: u64, current: u64, new: u64) -> Result<u64, u64> {
        assert!(offset_bytes.is_multiple_of(8), "offset {offset_bytes} is not aligned to 8 bytes");
        let site = Location::caller();
        // One access: nobody comes between the look and the store.
        self.sim.step();
        let mut found = [0; 8];
        self.pieces(offset_bytes, 8, |state, file, at, range| state.disk.read(file, at, &mut found[range]));
        let found = u64::from_le_bytes(found);
        if found != current {
            return Err(found);
        }
        let (verdict, new) = (self.store_verdict(site), new.to_le_bytes());
        self.pieces(offset_bytes, 8, |state, file, at, range| state.stored(verdict, file, at, &new[range]));
        Ok(found)
    }

    #[track_caller]
    fn store_bytes(&self, offset_bytes: u64, from: &[u8]) {
        self.store(offset_bytes, from, Location::caller());
    }

    #[track_caller]
    unsafe fn nt_copy(&self, offset_bytes: u64, from: *const u8, len_bytes: usize) {
        // SAFETY: the caller answers for `len_bytes` readable bytes.
        let from = unsafe { std::slice::from_raw_parts(from, len_bytes) };
        if self.sim.granularity == Granularity::Page {
            return self.store(offset_bytes, from, Location::caller());
        }
        let verdict = self.sim.lock().verdict(Call::NtCopy, Location::caller());
        self.accesses(offset_bytes, len_bytes as u64, |state, file, at, range| {
            // The mutant uses plain stores, which no fence makes durable.
            state.store(file, at, &from[range], verdict == Verdict::Keep);
        });
    }

    #[track_caller]
    fn flush(&self, offset_bytes: u64, len_bytes: u64) {
        let site = Location::caller();
        self.sim.step();
        if self.sim.granularity == Granularity::Page {
            return;
        }
        if self.sim.lock().verdict(Call::Flush, site) == Verdict::Drop {
            return;
        }
        self.pieces(offset_bytes, len_bytes, |state, file, offset_bytes, range| {
            let len_bytes = range.len() as u64;
            state.trace.push(Event::Flush { file, offset_bytes, len_bytes, thread: thread(), site });
        });
    }

    #[track_caller]
    fn sync_range(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        let site = Location::caller();
        let (fails, verdict) = {
            let mut state = self.sim.lock();
            (state.write_back_fails(), state.verdict(Call::Sync, site))
        };
        if verdict == Verdict::Drop {
            return Ok(());
        }
        self.pieces(offset_bytes, len_bytes, |state, file, offset_bytes, range| {
            let len_bytes = range.len() as u64;
            state.trace.push(match fails {
                false => Event::Sync { file, offset_bytes, len_bytes, is_weak: verdict == Verdict::Weaken },
                true => Event::SyncFailed { file, offset_bytes, len_bytes },
            });
        });
        if fails {
            return Err(io_error("msync", &self.path));
        }
        // A fence of page-cached files is several of these calls; what is late comes after the last of them.
        self.sim.lock().synced.insert(thread());
        Ok(())
    }

    fn guard(&self, offset_bytes: u64, len_bytes: u64, touch: Touch) -> Result<()> {
        self.pieces(offset_bytes, len_bytes, |_, _, _, _| {});
        if touch == Touch::Store && self.sim.lock().guard_fails() {
            return Err(Error::FileSystemFull { path: self.path.clone(), requested_bytes: len_bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;
    use std::sync::Arc;

    use pmem::{Media, MediaFile, OpenMode};

    use super::*;
    use crate::mutate::Mutation;
    use crate::sim::SimFile;

    thread_local! {
        static SWITCHES: Cell<usize> = const { Cell::new(0) };
    }

    fn switch() {
        SWITCHES.set(SWITCHES.get() + 1);
    }

    fn mapped(sim: &Sim) -> (Arc<SimFile>, SimMap) {
        let file = Arc::new(sim.create(Path::new("/f"), 4096).unwrap());
        let map = sim.map(std::slice::from_ref(&file), Stripe::SINGLE, OpenMode::Writer).unwrap();
        (file, map)
    }

    #[test]
    fn others_may_run_before_each_call_but_the_sync_of_a_range() {
        for granularity in [Granularity::CacheLine, Granularity::Page] {
            let sim = Sim::interleaved(granularity, switch);
            let (file, map) = mapped(&sim);
            let calls: [(&str, usize, &dyn Fn()); 9] = [
                ("store", 1, &|| map.store_u64(0, 1)),
                ("store in pieces", 2, &|| map.store_bytes(4, &[1; 8])),
                ("compare-and-swap", 1, &|| _ = map.cas_u64(0, 1, 2)),
                ("flush", 1, &|| map.flush(0, 64)),
                ("fence", 1, &|| sim.fence()),
                ("pwrite", 1, &|| file.pwrite(0, &[1; 64]).unwrap()),
                ("fsync", 1, &|| file.fsync().unwrap()),
                ("directory sync", 1, &|| sim.sync_dir(Path::new("/f")).unwrap()),
                ("sync", 0, &|| map.sync_range(0, 64).unwrap()),
            ];
            for (name, expected, call) in calls {
                SWITCHES.set(0);
                call();
                assert_eq!(SWITCHES.get(), expected, "{granularity:?}: {name}");
            }
        }
    }

    /// A store that one thread makes late is no other thread's to make.
    #[test]
    fn what_a_mutation_holds_back_waits_for_a_fence_of_its_own_thread() {
        for granularity in [Granularity::CacheLine, Granularity::Page] {
            let sim = Sim::new(granularity);
            let (_, map) = mapped(&sim);
            let store = |at| map.store_u64(at, 7);
            store(0);
            let (&(call, _), &site) = sim.lock().sites.iter().find(|((call, _), _)| *call == Call::Store).unwrap();
            sim.lock().mutations.extend(Mutation::of(call, site));
            // As the core has it: the CPU's fence, then pages are synced; stores that come after it may be late.
            let fence = || {
                sim.fence();
                map.sync_range(64, 8).unwrap();
                map.store_bytes(512, &[1; 8]);
            };
            let stores = || {
                let is_it = |event: &&Event| matches!(event, Event::Store { offset_bytes: 128, .. });
                sim.lock().trace.iter().filter(is_it).count()
            };
            store(128);
            assert_eq!((stores(), map.load_u64(128)), (0, 7), "it is visible, and late");
            std::thread::scope(|scope| _ = scope.spawn(fence).join());
            assert_eq!(stores(), 0, "{granularity:?}: another thread's fence");
            fence();
            assert_eq!(stores(), 1, "{granularity:?}");
        }
    }

    #[test]
    #[should_panic(expected = "offset 4 is not aligned to 8 bytes")]
    fn a_compare_and_swap_of_a_word_that_is_not_aligned_is_refused() {
        let (_, map) = mapped(&Sim::new(Granularity::CacheLine));
        let _ = map.cas_u64(4, 0, 1);
    }
}
