//! What the ways down write to.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use pmem::Granularity;

use super::libraries::Libpmemblk;
use super::{Blocks, DIRECT_BYTES, Through};
use crate::code::STORED;
use crate::error::{Error, Result};
use crate::memory::{Memory, Place};
use crate::nameless;

/// What all threads write to.
pub(super) struct Shared<'m> {
    pub(super) to: Target<'m>,
    path: PathBuf,
    /// What every word of a block is: another one in each sample, so that what an earlier one has left does not pass for it.
    pub(super) word: u64,
    /// Held by who syncs pages as the core does, of whose fences one at a time does so.
    pub(super) syncing: Mutex<()>,
}

pub(super) enum Target<'m> {
    Memory(&'m Memory),
    File(File),
    Pool(Libpmemblk),
}

impl<'m> Shared<'m> {
    /// What is written to: the memory, which is populated, or a new file all of whose blocks have been written once, for the
    /// first touch of a page costs several times what the others do. A file has no name while it is filled.
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
            return Ok(Shared { to: Target::Memory(memory), path: folder, word, syncing: Mutex::default() });
        }
        let (file, path) = new_file(&folder, blocks.through)?;
        let to = match blocks.through {
            Through::Libpmemblk => Target::Pool(new_pool(&file, &path, blocks, !word)?),
            through => {
                let is_read = through == Through::IoUringDirectRead;
                fill(&file, blocks, if is_read { word } else { !word }).map_err(|error| Error::io(&path, error))?;
                Target::File(file)
            }
        };
        Ok(Shared { to, path, word, syncing: Mutex::default() })
    }

    /// A file that is there, whatever it is.
    #[cfg(test)]
    pub(super) fn of_file(file: File) -> Shared<'static> {
        Shared { to: Target::File(file), path: PathBuf::new(), word: STORED, syncing: Mutex::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is memory that the kernel writes back in pages.
    pub(super) fn is_paged(&self) -> bool {
        let Target::Memory(memory) = &self.to else { return false };
        memory.backing().is_some_and(|backing| backing.granularity == Granularity::Page)
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
        self.is_all(blocks, number, self.word)
    }

    /// Whether every word of a block is this one.
    pub(super) fn is_all(&self, blocks: &Blocks, number: u64, word: u64) -> io::Result<bool> {
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
        Ok(found.chunks_exact(8).all(|found| found == word.to_le_bytes()))
    }
}

/// A new file without a name, and that which it had.
fn new_file(folder: &Path, through: Through) -> Result<(File, PathBuf)> {
    let flags = if through.is_direct() { libc::O_DIRECT } else { 0 };
    match nameless::new_file(folder, flags, |_| ()) {
        Err(Error::Io { path, source }) if flags != 0 && source.raw_os_error() == Some(libc::EINVAL) => {
            Err(Error::unavailable(format!("{}: this file system has no O_DIRECT", path.display())))
        }
        made => made.map(|made| (made.file, made.path)),
    }
}

/// Bytes that are written at once to fill a file.
const FILL_BYTES: usize = 1 << 20;

/// Writes every block once, and has the device take them: no later write is a page's first, or has to wait for these.
fn fill(file: &File, blocks: &Blocks, word: u64) -> io::Result<()> {
    nameless::allocate(file, blocks.len_bytes as u64)?;
    let fit = blocks.len_bytes / blocks.block_bytes;
    let at_once = (FILL_BYTES / blocks.block_bytes).clamp(1, fit);
    // Whole blocks, which O_DIRECT wants.
    let bytes = Block::new(at_once * blocks.block_bytes, word);
    for first in (0..fit).step_by(at_once) {
        let count = at_once.min(fit - first);
        file.write_all_at(&bytes.bytes()[..count * blocks.block_bytes], (first * blocks.block_bytes) as u64)?;
    }
    file.sync_data()
}

/// A pool in a file without a name, which the library opens by its descriptor. It finds room for itself in a file that is there.
fn new_pool(file: &File, path: &Path, blocks: &Blocks, word: u64) -> Result<Libpmemblk> {
    let failed = |error: io::Error| Error::io(path, error);
    nameless::allocate(file, blocks.file_bytes()).map_err(failed)?;
    let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let pool = Libpmemblk::create(&by_descriptor, blocks.block_bytes)?;
    // It never writes a block where it was, but where the one before lay that was written: so a block of each page is enough
    // to have all pages there, and blocks of 64 bytes would take seconds.
    let block = Block::new(blocks.block_bytes, word);
    for number in (0..pool.blocks).step_by(blocks_of_a_page(blocks.block_bytes)) {
        pool.write(number, block.bytes()).map_err(failed)?;
    }
    Ok(pool)
}

/// Blocks that lie in a page of the library's: it makes them of 512 bytes at least, and of a multiple of 256.
fn blocks_of_a_page(block_bytes: usize) -> usize {
    (DIRECT_BYTES / block_bytes.max(512).next_multiple_of(256)).max(1)
}

/// A block's bytes, from the begin of a page.
pub(super) struct Block {
    pub(super) pages: Vec<Page>,
    pub(super) len_bytes: usize,
}

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
pub(super) struct Page(pub(super) [u64; PAGE_WORDS]);

pub(super) const PAGE_WORDS: usize = DIRECT_BYTES / size_of::<u64>();

impl Block {
    pub(super) fn new(len_bytes: usize, word: u64) -> Block {
        Block { pages: vec![Page([word; PAGE_WORDS]); len_bytes.div_ceil(DIRECT_BYTES)], len_bytes }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the pages have as many bytes, all of them initialised.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len_bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else pages are touched for the first time while they are measured.
    #[test]
    fn a_block_of_every_page_of_a_pool_is_written() {
        let of_page = [64, 512, 513, 768, 1024, 4096, 5568].map(blocks_of_a_page);
        assert_eq!(of_page, [8, 8, 5, 5, 4, 1, 1]);
    }
}
