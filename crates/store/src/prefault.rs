//! Populating a store's memory ahead of use, and what need not be asked for again.

use std::sync::{MutexGuard, PoisonError};

use pmem::{
    Backing, Durability, Extent, Granularity, Media, Offset, OpenMode, Prefault, PrefaultProgress, Stripe, Touch,
    default_copy_threads, process_id,
};

use crate::error::Result;
use crate::populated::Populated;
use crate::store::Store;

/// Pre-faulting that is under way.
pub(crate) struct Background {
    process_id: u32,
    /// How many parts have been started.
    parts: usize,
    running: Vec<Running>,
    /// Whether parts that are added later are pre-faulted too.
    pub(crate) is_wanted: bool,
}

impl Background {
    pub(crate) fn new() -> Background {
        Background { process_id: process_id(), parts: 0, running: Vec::new(), is_wanted: false }
    }
}

struct Running {
    prefault: Prefault,
    extent: Extent,
    touch: Touch,
}

impl Running {
    /// Whether all of it is there and writable.
    fn is_populated(&self) -> bool {
        let progress = self.prefault.progress();
        self.touch == Touch::Store && progress.done_bytes == progress.total_bytes
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.process_id != process_id() {
            // The threads stayed in the process that forked; waiting for them would never end.
            self.running.drain(..).for_each(std::mem::forget);
        }
    }
}

impl<M: Media> Store<M> {
    /// Populates the mapping with threads of its own, and that of every part that is added later. Page allocation, not
    /// copying, dominates a first persist; this pays it ahead. Where stores become durable by pages, pages are only
    /// read: stores would have the kernel write back the whole file.
    ///
    /// # Errors
    /// `Unsupported` when no thread can be started; `UsedAfterFork`.
    pub fn prefault(&self) -> Result<()> {
        self.pool().check_process()?;
        let info = self.pool().info();
        let is_by_page = info.backing.granularity == Granularity::Page;
        let stores = self.pool().mode() == OpenMode::Writer && !is_by_page;
        let touch = if stores { Touch::Store } else { Touch::Load };
        let mut background = self.background();
        background.is_wanted = true;
        for (index, part) in info.parts.iter().enumerate().skip(background.parts) {
            let start = Offset::new(index as u16, Stripe::HEAD_BYTES);
            let extent = Extent { offset: start, len_bytes: part.len_bytes - Stripe::HEAD_BYTES };
            let threads = default_copy_threads().get();
            let prefault = self.pool().set().prefault(start, extent.len_bytes, touch, threads)?;
            background.running.push(Running { prefault, extent, touch });
            background.parts = index + 1;
        }
        Ok(())
    }

    /// How far pre-faulting has come.
    pub fn prefault_progress(&self) -> PrefaultProgress {
        let none = PrefaultProgress { done_bytes: 0, total_bytes: 0 };
        let background = self.background();
        let parts = background.running.iter().map(|running| running.prefault.progress());
        parts.fold(none, |sum, part| PrefaultProgress {
            done_bytes: sum.done_bytes + part.done_bytes,
            total_bytes: sum.total_bytes + part.total_bytes,
        })
    }

    /// Whether [`Store::wait_for_prefault`] would return at once.
    pub fn prefault_is_finished(&self) -> bool {
        self.background().running.iter().all(|running| running.prefault.is_finished())
    }

    /// What need not be populated again, where pages of main memory stand in for a device: those stay. Pages of persistent
    /// memory can be lost at any time, and those of page-cached files must be made writable anew; one such part is enough to
    /// have every page asked for.
    pub(crate) fn stays_populated(&self) -> Option<&Populated> {
        let is_memory = |backing: Backing| {
            backing.durability <= Durability::ProcessCrashSafe && backing.granularity == Granularity::CacheLine
        };
        self.pool().set().backings().all(is_memory).then_some(&self.populated)
    }

    /// Notes what pre-faulting has done so far, so that a commit need not ask for it again.
    pub(crate) fn note_prefaulted(&self) {
        for running in self.background().running.iter().filter(|running| running.is_populated()) {
            self.populated.insert(running.extent);
        }
    }

    /// Waits until pre-faulting has ended.
    ///
    /// # Errors
    /// What the threads met; see [`pmem::MediaMap::guard`].
    pub fn wait_for_prefault(&self) -> Result<()> {
        let running = std::mem::take(&mut self.background().running);
        for Running { prefault, extent, touch } in running {
            prefault.join()?;
            if touch == Touch::Store {
                self.populated.insert(extent);
            }
        }
        Ok(())
    }

    pub(crate) fn background(&self) -> MutexGuard<'_, Background> {
        self.background.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pmem::{Heap, MIN_FILE_BYTES, PartOptions};

    use super::*;

    #[test]
    fn what_was_prefaulted_is_not_asked_for_again() {
        let store = Store::create(Heap::new(), Path::new("/p"), &PartOptions::single(MIN_FILE_BYTES)).unwrap();
        let space = store.pool().reserve(1 << 20).unwrap();
        store.note_prefaulted();
        assert!(!store.populated.contains(space.extent()), "nothing has begun");
        store.prefault().unwrap();
        while !store.prefault_is_finished() {
            std::thread::yield_now();
        }
        store.note_prefaulted();
        assert!(store.populated.contains(space.extent()), "done in the background");
        store.grow(None, &PartOptions::single(MIN_FILE_BYTES)).unwrap();
        store.wait_for_prefault().unwrap();
        let second = Extent { offset: Offset::new(1, Stripe::HEAD_BYTES), len_bytes: 1 << 20 };
        assert!(store.populated.contains(second), "waited for");
    }
}
