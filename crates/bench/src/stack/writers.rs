//! The ways down, each as something that writes a block.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use io_uring::{IoUring, opcode, types};
use pmem::{Media, MediaMap};

use super::libraries::{Libpmem, Libpmemblk};
use super::{Blocks, DIRECT_BYTES, Through};
use crate::code::{self, Line, STORED};
use crate::error::{Error, Result};
use crate::memory::{Memory, Place};

/// Writes that io_uring has under way at a time.
const DEPTH: u32 = 8;

/// What all threads write to.
pub(super) struct Shared<'m> {
    to: Target<'m>,
    path: PathBuf,
    /// What every word of a block is: another one in each sample, so that what an earlier one has left does not pass for it.
    word: u64,
}

enum Target<'m> {
    Memory(&'m Memory),
    File(File),
    Pool(Libpmemblk),
}

impl<'m> Shared<'m> {
    /// Makes what is written to; files lose their names at once.
    pub(super) fn open(blocks: &Blocks, memory: Option<&'m Memory>, seed: u64) -> Result<Shared<'m>> {
        let word = STORED ^ fastrand::Rng::with_seed(seed).u64(1..);
        let folder = match &blocks.place {
            Place::Folder(folder) => folder.clone(),
            Place::Dram => PathBuf::from("dram"),
            Place::Device(path) => path.clone(),
            Place::Striped(folders, _) => folders[0].clone(),
            Place::Node(_) | Place::Modelled(..) => PathBuf::from("memory"),
        };
        if let Some(memory) = memory {
            return Ok(Shared { to: Target::Memory(memory), path: folder, word });
        }
        let path = folder.join(format!(".remanent-bench-{}-{:08x}", std::process::id(), fastrand::u32(..)));
        let to = if blocks.through == Through::Libpmemblk {
            // Its metadata takes less than an eighth, and no pool is smaller than 16 MiB.
            let len_bytes = (blocks.len_bytes + blocks.len_bytes / 8).max(17 << 20);
            Target::Pool(Libpmemblk::create(&path, blocks.block_bytes, len_bytes)?)
        } else {
            Target::File(new_file(&path, blocks, word)?)
        };
        fs::remove_file(&path).map_err(|error| Error::io(&path, error))?;
        Ok(Shared { to, path, word })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Blocks that there are.
    pub(super) fn blocks(&self, blocks: &Blocks) -> u64 {
        let fit = (blocks.len_bytes / blocks.block_bytes) as u64;
        match &self.to {
            Target::Pool(pool) => fit.min(pool.blocks),
            _ => fit,
        }
    }

    /// Whether a block is what writers write.
    pub(super) fn has(&self, blocks: &Blocks, number: u64) -> io::Result<bool> {
        let mut block = Block::new(blocks.block_bytes, 0);
        let found = block.bytes_mut();
        let offset = number * blocks.block_bytes as u64;
        match &self.to {
            Target::Memory(memory) => {
                // SAFETY: the block lies in the memory, and no thread writes any more.
                unsafe { memory.base().add(offset as usize).copy_to_nonoverlapping(found.as_mut_ptr(), found.len()) };
            }
            Target::File(file) => file.read_exact_at(found, offset)?,
            Target::Pool(pool) => pool.read(number, found)?,
        }
        Ok(found.chunks_exact(8).all(|word| word == self.word.to_le_bytes()))
    }
}

/// A file whose blocks are allocated, and hold what is read where they are.
fn new_file(path: &Path, blocks: &Blocks, word: u64) -> Result<File> {
    let flags = if blocks.through.is_direct() { libc::O_DIRECT } else { 0 };
    let how = OpenOptions::new().read(true).write(true).create_new(true).custom_flags(flags).to_owned();
    let file = how.open(path).map_err(|error| match error.raw_os_error() {
        // The file is there all the same.
        Some(libc::EINVAL) if flags != 0 => {
            let _ = fs::remove_file(path);
            Error::unavailable(format!("{}: this file system has no O_DIRECT", path.display()))
        }
        _ => Error::io(path, error),
    })?;
    let filled = || {
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, blocks.len_bytes as u64)?;
        if blocks.through == Through::IoUringDirectRead {
            let block = Block::new(blocks.block_bytes, word);
            for number in 0..blocks.len_bytes / blocks.block_bytes {
                file.write_all_at(block.bytes(), (number * blocks.block_bytes) as u64)?;
            }
            file.sync_data()?;
        }
        Ok(())
    };
    filled().map_err(|error| {
        let _ = fs::remove_file(path);
        Error::io(path, error)
    })?;
    Ok(file)
}

/// # Errors
/// `Unavailable` when the kernel has no io_uring, or lets nobody use it.
pub(super) fn check_rings() -> Result<()> {
    IoUring::new(DEPTH).map(drop).map_err(|error| Error::unavailable(format!("io_uring: {error}")))
}

/// One thread's way.
pub(super) struct Writer<'s> {
    way: Way<'s>,
    block: Block,
    word: u64,
    /// Blocks that have arrived since somebody asked.
    arrived: u64,
}

/// A block's bytes, from the begin of a page.
struct Block {
    pages: Vec<Page>,
    len_bytes: usize,
}

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u64; PAGE_WORDS]);

const PAGE_WORDS: usize = DIRECT_BYTES / size_of::<u64>();

impl Block {
    fn new(len_bytes: usize, word: u64) -> Block {
        Block { pages: vec![Page([word; PAGE_WORDS]); len_bytes.div_ceil(DIRECT_BYTES)], len_bytes }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the pages have as many bytes, all of them initialised.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len_bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len_bytes) }
    }
}

enum Way<'s> {
    Raw(&'s Memory),
    Core(&'s Memory),
    Libpmem(&'s Memory, Libpmem),
    Msync(&'s Memory),
    Pool(&'s Libpmemblk),
    Pwrite(&'s File),
    PwriteDsync(&'s File),
    Ring { file: &'s File, ring: Box<IoUring>, under_way: u32, request: Request },
}

/// What io_uring is asked for.
#[derive(Clone, Copy)]
enum Request {
    Write { flags: i32 },
    Read,
}

// SAFETY: memory is shared by all threads, each of which writes a part of its own; the rest may be sent anyway.
unsafe impl Send for Writer<'_> {}

impl<'s> Writer<'s> {
    pub(super) fn new(blocks: &Blocks, shared: &'s Shared<'_>) -> Result<Writer<'s>> {
        let ring = |file, request| {
            let ring = IoUring::new(DEPTH).map_err(|error| Error::io(&shared.path, error))?;
            Ok::<_, Error>(Way::Ring { file, ring: Box::new(ring), under_way: 0, request })
        };
        let way = match (&shared.to, blocks.through) {
            (Target::Memory(memory), Through::Core) => Way::Core(memory),
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
        std::mem::take(&mut self.arrived)
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
            Way::Core(memory) => {
                let (map, media) = memory.mapping().expect("the cell was checked");
                // Blocks of a stripe begin behind its head.
                let begin = (memory.base().addr() - map.base().addr()) as u64;
                // SAFETY: as above; the source outlives the call.
                unsafe { map.nt_copy(begin + offset, from, len_bytes) };
                media.fence();
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
            Way::Ring { file, ring, under_way, request } => {
                if *under_way == DEPTH {
                    self.arrived += reap(ring, 1, under_way, len_bytes)?;
                }
                let (fd, len_bytes) = (types::Fd(file.as_raw_fd()), len_bytes as u32);
                let entry = match request {
                    Request::Write { flags } => {
                        opcode::Write::new(fd, from, len_bytes).offset(offset).rw_flags(*flags).build()
                    }
                    // All of them into the same bytes, which hold the same.
                    Request::Read => {
                        let into = self.block.pages.as_mut_ptr().cast();
                        opcode::Read::new(fd, into, len_bytes).offset(offset).build()
                    }
                };
                // SAFETY: the block and the file outlive the request, for whoever drops the writer has waited.
                unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
                ring.submit()?;
                *under_way += 1;
                return Ok(());
            }
        }
        self.arrived += 1;
        Ok(())
    }

    /// Waits for what is under way, and looks at what was read.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        let Way::Ring { ring, under_way, request, .. } = &mut self.way else { return Ok(()) };
        let is_read = matches!(request, Request::Read) && *under_way > 0;
        while *under_way > 0 {
            self.arrived += reap(ring, *under_way, under_way, self.block.len_bytes)?;
        }
        if is_read {
            let last = self.block.len_bytes / size_of::<u64>() - 1;
            for word in [0, last] {
                let word = &mut self.block.pages[word / PAGE_WORDS].0[word % PAGE_WORDS];
                if std::mem::take(word) != self.word {
                    return Err(io::Error::other("a block that was read is not what was written"));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // The kernel may still read the source; a write that failed was told before.
        let _ = self.wait();
    }
}

/// Waits for so many writes at least; how many have come.
fn reap(ring: &mut IoUring, count: u32, under_way: &mut u32, len_bytes: usize) -> io::Result<u64> {
    ring.submit_and_wait(count as usize)?;
    let mut arrived = 0;
    for entry in ring.completion() {
        *under_way -= 1;
        arrived += 1;
        match entry.result() {
            error @ ..0 => return Err(io::Error::from_raw_os_error(-error)),
            written if written as usize != len_bytes => {
                return Err(io::Error::other("a write came to an end before its block"));
            }
            _ => {}
        }
    }
    Ok(arrived)
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
