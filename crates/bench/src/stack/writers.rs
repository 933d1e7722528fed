//! The ways down, each as something that writes a block.

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use pmem::{Media, MediaMap};

use super::libraries::{Libpmem, Libpmemblk};
use super::ring::{Request, Ring};
use super::target::{Block, PAGE_WORDS, Shared, Target};
use super::{Blocks, Through};
use crate::code::{self, Line};
use crate::error::{Error, Result};
use crate::memory::Memory;

/// One thread's way.
pub(super) struct Writer<'s> {
    way: Way<'s>,
    block: Block,
    word: u64,
    /// Blocks that have arrived since somebody asked.
    arrived: u64,
}

enum Way<'s> {
    Raw(&'s Memory),
    /// With the lock of those that sync pages, where there are any.
    Core(&'s Memory, Option<&'s Mutex<()>>),
    Libpmem(&'s Memory, Libpmem),
    Msync(&'s Memory),
    Pool(&'s Libpmemblk),
    Pwrite(&'s File),
    PwriteDsync(&'s File),
    Ring(Ring<'s>),
}

// SAFETY: memory is shared by all threads, each of which writes a part of its own; the rest may be sent anyway.
unsafe impl Send for Writer<'_> {}

impl<'s> Writer<'s> {
    pub(super) fn new(blocks: &Blocks, shared: &'s Shared<'_>) -> Result<Writer<'s>> {
        let ring =
            |file, request| Ring::new(file, request).map(Way::Ring).map_err(|error| Error::io(shared.path(), error));
        let way = match (&shared.to, blocks.through) {
            (Target::Memory(memory), Through::Core) => Way::Core(memory, shared.is_paged().then_some(&shared.syncing)),
            (Target::Memory(memory), Through::Libpmem) => Way::Libpmem(memory, Libpmem::load()?),
            (Target::Memory(memory), Through::Msync) => Way::Msync(memory),
            (Target::Memory(memory), _) => Way::Raw(memory),
            (Target::Pool(pool), _) => Way::Pool(pool),
            (Target::File(file), Through::PwriteDsync) => Way::PwriteDsync(file),
            (Target::File(file), Through::IoUring | Through::IoUringDirect) => ring(file, Request::Write { flags: 0 })?,
            (Target::File(file), Through::IoUringDsync) => ring(file, Request::Write { flags: libc::RWF_DSYNC })?,
            (Target::File(file), Through::IoUringDirectRead) => ring(file, Request::Read)?,
            (Target::File(file), _) => Way::Pwrite(file),
        };
        let is_read = blocks.through == Through::IoUringDirectRead;
        let block = Block::new(blocks.block_bytes, if is_read { 0 } else { shared.word });
        Ok(Writer { way, block, word: shared.word, arrived: 0 })
    }

    /// Blocks that have arrived since the last call.
    pub(super) fn arrived(&mut self) -> u64 {
        mem::take(&mut self.arrived)
    }

    /// Writes a block, or reads it; when it returns the block is where the way says, but for io_uring, of which as many stay under
    /// way as there may be.
    pub(super) fn write(&mut self, number: u64) -> io::Result<()> {
        let len_bytes = self.block.len_bytes;
        let offset = number * len_bytes as u64;
        let from = self.block.pages.as_ptr().cast::<u8>();
        let to = |memory: &Memory| memory.base().wrapping_add(offset as usize);
        match &mut self.way {
            Way::Raw(memory) => {
                // SAFETY: the block lies in the memory, in this thread's part; it is whole lines.
                unsafe { code::copy_past_cache(to(memory), from, len_bytes / size_of::<Line>()) };
                code::fence();
            }
            Way::Core(memory, syncing) => {
                let (map, media) = memory.mapping().expect("the cell was checked");
                // Blocks of a stripe begin behind its head.
                let begin = (memory.base().addr() - map.base().addr()) as u64;
                // SAFETY: as above; the source outlives the call.
                unsafe { map.nt_copy(begin + offset, from, len_bytes) };
                media.fence();
                if let Some(syncing) = syncing {
                    let _syncing = syncing.lock().expect("a system call does not panic");
                    map.sync_range(begin + offset, len_bytes as u64).map_err(io::Error::other)?;
                }
            }
            // SAFETY: as above.
            Way::Libpmem(memory, library) => unsafe { library.memcpy_persist(to(memory), from, len_bytes) },
            Way::Msync(memory) => {
                // SAFETY: as above.
                unsafe { to(memory).copy_from_nonoverlapping(from, len_bytes) };
                msync(to(memory), len_bytes)?;
            }
            Way::Pool(pool) => pool.write(number, self.block.bytes())?,
            Way::Pwrite(file) => file.write_all_at(self.block.bytes(), offset)?,
            Way::PwriteDsync(file) => write_synced(file, self.block.bytes(), offset)?,
            Way::Ring(ring) => {
                let bytes = self.block.pages.as_mut_ptr().cast();
                // SAFETY: whoever drops the writer waits for the request, or keeps the block.
                self.arrived += unsafe { ring.ask(bytes, len_bytes as u32, offset)? };
                return Ok(());
            }
        }
        self.arrived += 1;
        Ok(())
    }

    /// Waits for what is under way, and looks at what was read.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        let Way::Ring(ring) = &mut self.way else { return Ok(()) };
        let is_read = matches!(ring.request, Request::Read) && !ring.is_idle();
        self.arrived += ring.drain(self.block.len_bytes as u32)?;
        ring.told()?;
        if is_read {
            let last = self.block.len_bytes / size_of::<u64>() - 1;
            for word in [0, last] {
                let word = &mut self.block.pages[word / PAGE_WORDS].0[word % PAGE_WORDS];
                if mem::take(word) != self.word {
                    return Err(io::Error::other("a block that was read is not what was written"));
                }
            }
        }
        Ok(())
    }

    /// Whether the kernel has nothing left to do for it.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        matches!(&self.way, Way::Ring(ring) if ring.is_idle())
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // What failed was told before, or what was under way no longer counts.
        let _ = self.wait();
        if let Way::Ring(ring) = &self.way
            && !ring.is_idle()
        {
            // The kernel cannot be waited for, and may yet use the bytes: they are never given back.
            mem::forget(mem::take(&mut self.block.pages));
        }
    }
}

fn msync(start: *mut u8, len_bytes: usize) -> io::Result<()> {
    let before = start.addr() % rustix::param::page_size();
    // SAFETY: pages of the memory, which is mapped.
    let synced = unsafe {
        rustix::mm::msync(start.wrapping_sub(before).cast(), len_bytes + before, rustix::mm::MsyncFlags::SYNC)
    };
    synced.map_err(io::Error::from)
}

fn write_synced(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let slices = [io::IoSlice::new(bytes)];
    match rustix::io::pwritev2(file, &slices, offset, rustix::io::ReadWriteFlags::DSYNC)? {
        written if written == bytes.len() => Ok(()),
        _ => Err(io::Error::other("a write came to an end before its block")),
    }
}
