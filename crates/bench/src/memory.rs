//! The memory that is measured: ordinary memory, or a file or device that is mapped.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmem::{Backing, Mapped, MappedFile, Mapping, Media, MediaFile, MediaMap, OpenMode, Provenance, Stripe, Touch};
use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::crew;
use crate::error::{Error, Result};
use crate::nameless::{self, Nameless};
use crate::room;

/// Where memory comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Ordinary memory.
    Dram,
    /// A new file in this folder, which loses its name as soon as it is open, so that nothing of it is ever left.
    Folder(PathBuf),
    /// A whole device-DAX device, whose content is lost.
    Device(PathBuf),
    /// Ordinary memory of this NUMA node.
    Node(usize),
    /// New files in these folders as one, in chunks of so many bytes.
    Striped(Vec<PathBuf>, u64),
    /// None: so many devices of this profile are simulated.
    Modelled(String, usize),
}

/// The size of pages that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pages {
    /// 4 KiB.
    Small,
    /// 2 MiB, as far as the system has them.
    Huge,
}

/// Memory that is mapped, populated and writable as long as it lives.
#[derive(Debug)]
pub struct Memory {
    source: Source,
    base: *mut u8,
    len_bytes: usize,
    /// The size that its pages really have.
    page_bytes: usize,
    /// Bytes from the start on that are known to have what [`crate::stream::fill`] puts there.
    pub(crate) filled_bytes: usize,
}

#[derive(Debug)]
enum Source {
    Anonymous { start: *mut u8, mapped_bytes: usize },
    File { map: Mapping, media: Mapped, backing: Backing },
}

// SAFETY: the value owns its mapping, whose addresses are valid on every thread.
unsafe impl Send for Memory {}
// SAFETY: it gives out raw pointers only; who uses them answers for races.
unsafe impl Sync for Memory {}

const HUGE_PAGE_BYTES: usize = 2 << 20;

impl Memory {
    /// Maps and populates so many bytes; of ordinary memory that of the node of the first CPU, on which single threads measure.
    ///
    /// # Errors
    /// `NoRoom` when the place has not so much; `Memory` when it cannot be used.
    pub fn new(place: &Place, pages: Pages, len_bytes: usize) -> Result<Memory> {
        room::check(place, len_bytes as u64)?;
        // Where the thread cannot be kept there, it populates all the same.
        let _alone = crew::alone();
        let mut memory = match place {
            Place::Dram => Memory::anonymous(pages, None, len_bytes)?,
            Place::Node(node) => Memory::anonymous(pages, Some(*node), len_bytes)?,
            Place::Striped(folders, chunk_bytes) => {
                let stripe = Stripe { members: folders.len() as u16, chunk_bytes: *chunk_bytes };
                Memory::in_files(place, stripe, len_bytes)?
            }
            Place::Folder(_) => Memory::in_files(place, Stripe::SINGLE, len_bytes)?,
            Place::Device(path) => Memory::device(path, len_bytes)?,
            Place::Modelled(name, _) => {
                return Err(Error::memory(format!("a device that is modelled has none: {name}")));
            }
        };
        memory.page_bytes = page_bytes_at(memory.base.addr()).unwrap_or(rustix::param::page_size());
        Ok(memory)
    }

    fn anonymous(pages: Pages, node: Option<usize>, len_bytes: usize) -> Result<Memory> {
        let failed = |error: Errno| Error::memory(format!("{len_bytes} bytes of memory: {error}"));
        let mapped_bytes = len_bytes.next_multiple_of(HUGE_PAGE_BYTES) + HUGE_PAGE_BYTES;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping, which the kernel places where nothing is.
        let start = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), mapped_bytes, protection, flags) };
        let start = start.map_err(failed)?.cast::<u8>();
        let base = start.wrapping_add(start.addr().wrapping_neg() % HUGE_PAGE_BYTES);
        let memory = Memory {
            source: Source::Anonymous { start, mapped_bytes },
            base,
            len_bytes,
            page_bytes: 0,
            filled_bytes: 0,
        };
        if let Some(node) = node {
            bind(base, len_bytes.next_multiple_of(HUGE_PAGE_BYTES), node)?;
        }
        let advice = match pages {
            Pages::Small => Advice::LinuxNoHugepage,
            Pages::Huge => Advice::LinuxHugepage,
        };
        let whole = len_bytes.next_multiple_of(HUGE_PAGE_BYTES);
        // SAFETY: the range lies in the mapping, which has no content yet. Where there are no huge pages the advice is
        // refused, and the size of the pages is looked at afterwards.
        let _ = unsafe { mm::madvise(base.cast(), whole, advice) };
        populate(base, len_bytes).map_err(failed)?;
        Ok(memory)
    }

    fn in_files(place: &Place, stripe: Stripe, len_bytes: usize) -> Result<Memory> {
        let files = files(place, len_bytes as u64);
        let files = files.iter().map(|(folder, file_bytes)| new_file(folder, *file_bytes)).collect::<Result<_>>()?;
        Memory::mapped(files, stripe, len_bytes)
    }

    fn device(path: &Path, len_bytes: usize) -> Result<Memory> {
        Memory::mapped(vec![Mapped::new().open(path, OpenMode::Writer)?], Stripe::SINGLE, len_bytes)
    }

    fn mapped(files: Vec<MappedFile>, stripe: Stripe, len_bytes: usize) -> Result<Memory> {
        let media = Mapped::new();
        let backing = weakest(files.iter().map(MediaFile::backing)).expect("there is a file");
        let files: Vec<Arc<MappedFile>> = files.into_iter().map(Arc::new).collect();
        let map = media.map(&files, stripe, OpenMode::Writer)?;
        // What lies before the stripe is not striped.
        let head_bytes = if stripe.members > 1 { Stripe::HEAD_BYTES } else { 0 };
        if map.len_bytes() < head_bytes + len_bytes as u64 {
            return Err(Error::memory(format!("the device has {} bytes, not {len_bytes}", map.len_bytes())));
        }
        map.guard(head_bytes, len_bytes as u64, Touch::Store)?;
        let base = map.base().wrapping_add(head_bytes as usize);
        let source = Source::File { map, media, backing };
        Ok(Memory { source, base, len_bytes, page_bytes: 0, filled_bytes: 0 })
    }

    /// First byte, at a multiple of a page.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// How many bytes there are.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The size that its pages really have.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The 8 bytes at an offset.
    ///
    /// # Panics
    /// If they are not all in it, or the offset is no multiple of 8.
    pub fn word(&self, offset_bytes: usize) -> u64 {
        assert!(offset_bytes.is_multiple_of(8) && offset_bytes + 8 <= self.len_bytes, "{offset_bytes}");
        // SAFETY: it lies in the mapping and is aligned.
        unsafe { self.base.add(offset_bytes).cast::<u64>().read_volatile() }
    }

    /// Its mapping through the core; nothing for ordinary memory.
    pub fn mapping(&self) -> Option<(&Mapping, &Mapped)> {
        match &self.source {
            Source::Anonymous { .. } => None,
            Source::File { map, media, .. } => Some((map, media)),
        }
    }

    /// Whether figures of it are of the device that they speak of.
    pub fn provenance(&self) -> Provenance {
        match &self.source {
            Source::Anonymous { .. } => Provenance::Measured,
            Source::File { backing, .. } => backing.provenance,
        }
    }

    /// What lies under it; nothing for ordinary memory, which promises nothing.
    pub fn backing(&self) -> Option<&Backing> {
        match &self.source {
            Source::Anonymous { .. } => None,
            Source::File { backing, .. } => Some(backing),
        }
    }
}

/// The folders in which memory of so many bytes has its files, and the bytes of each file; none for other places.
pub(crate) fn files(place: &Place, len_bytes: u64) -> Vec<(&Path, u64)> {
    match place {
        Place::Folder(folder) => vec![(folder, len_bytes.next_multiple_of(HUGE_PAGE_BYTES as u64))],
        Place::Striped(folders, chunk_bytes) => {
            let chunks = len_bytes.div_ceil(chunk_bytes * folders.len() as u64);
            folders.iter().map(|folder| (folder.as_path(), Stripe::HEAD_BYTES + chunks * chunk_bytes)).collect()
        }
        _ => Vec::new(),
    }
}

/// What several files are together: figures are of the device that they speak of only if each file is on one. The reasons of all
/// are told.
pub(crate) fn weakest<'b>(all: impl Iterator<Item = &'b Backing> + Clone) -> Option<Backing> {
    let rank = |backing: &&Backing| match backing.provenance {
        Provenance::Measured => 0,
        Provenance::Emulated => 1,
        Provenance::Modelled => 2,
    };
    let mut together = all.clone().max_by_key(rank)?.clone();
    let mut reasons: Vec<&str> = Vec::new();
    for backing in all {
        if !reasons.contains(&backing.reason.as_str()) {
            reasons.push(&backing.reason);
        }
    }
    together.reason = reasons.join("; ");
    Some(together)
}

/// A new file without a name, whose blocks are allocated as far as the file system does so.
fn new_file(folder: &Path, len_bytes: u64) -> Result<MappedFile> {
    let Nameless { file, path, opened } =
        nameless::new_file(folder, 0, |path| Mapped::new().open(path, OpenMode::Writer))?;
    nameless::allocate(&file, len_bytes).map_err(|error| Error::io(&path, error))?;
    Ok(opened?)
}

/// Has all pages of anonymous memory there.
fn populate(base: *mut u8, len_bytes: usize) -> Result<(), Errno> {
    // SAFETY: the range lies in a mapping that nobody else has, and that begins and ends at pages.
    match unsafe { mm::madvise(base.cast(), len_bytes.next_multiple_of(4096), Advice::LinuxPopulateWrite) } {
        // Before Linux 5.14 pages come when they are stored to.
        Err(Errno::INVAL) => store_to_pages(base, len_bytes),
        populated => populated?,
    }
    Ok(())
}

fn store_to_pages(base: *mut u8, len_bytes: usize) {
    for at in (0..len_bytes).step_by(4096) {
        // SAFETY: a byte of the mapping, which has only zeros yet.
        unsafe { base.wrapping_add(at).write_volatile(0) };
    }
}

/// Has pages of a range come from one NUMA node only (mbind(2)).
fn bind(base: *mut u8, len_bytes: usize, node: usize) -> Result<()> {
    const MPOL_BIND: libc::c_long = 2;
    let mut mask = [0u64; 16];
    mask[node / 64] |= 1 << (node % 64);
    // SAFETY: the range is ours and has no content yet; the mask has 1024 bits.
    let failed =
        unsafe { libc::syscall(libc::SYS_mbind, base, len_bytes, MPOL_BIND, mask.as_ptr(), 1024usize, 0usize) };
    match failed {
        0 => Ok(()),
        _ => Err(Error::memory(format!("memory of NUMA node {node}: {}", std::io::Error::last_os_error()))),
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Source::Anonymous { start, mapped_bytes } = self.source {
            // SAFETY: the mapping is ours, and whoever used it borrowed this value.
            let _ = unsafe { mm::munmap(start.cast(), mapped_bytes) };
        }
    }
}

/// The page size behind an address, as the kernel has mapped it: KernelPageSize, or 2 MiB where huge pages make up all
/// that is there of the mapping (proc_pid_smaps(5)).
fn page_bytes_at(address: usize) -> Option<usize> {
    let text = fs::read_to_string("/proc/self/smaps").ok()?;
    let mut is_it = false;
    let (mut kernel_kib, mut resident_kib, mut huge_kib) = (4, 0, 0);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next()?;
        if let Some((low, high)) = first.split_once('-') {
            if is_it {
                break;
            }
            let number = |text| usize::from_str_radix(text, 16).ok();
            is_it = (number(low)?..number(high)?).contains(&address);
        } else if is_it {
            let kib: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            match first {
                "KernelPageSize:" => kernel_kib = kib,
                "Rss:" => resident_kib = kib,
                "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:" => huge_kib += kib,
                _ => {}
            }
        }
    }
    let is_huge = huge_kib > 0 && 10 * huge_kib >= 9 * resident_kib;
    is_it.then_some(if is_huge { HUGE_PAGE_BYTES } else { kernel_kib << 10 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounded up to pages, the largest sizes are none.
    #[test]
    fn a_size_that_no_machine_has_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for place in [Place::Dram, Place::Node(0), Place::Folder(folder.path().to_owned())] {
            for len_bytes in [usize::MAX, usize::MAX - 63, 1 << 46] {
                let refused = Memory::new(&place, Pages::Huge, len_bytes);
                assert!(matches!(refused, Err(Error::NoRoom { .. })), "{place:?}: {refused:?}");
            }
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_has_no_name_when_it_is_there_and_pages_are_what_they_are_said_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let file = new_file(folder.path(), 2 << 20).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(file.len_bytes().unwrap(), 2 << 20);
        let path = folder.path().to_owned();
        for place in [Place::Folder(path.clone()), Place::Striped(vec![path.clone(), path], 2 << 20)] {
            let memory = Memory::new(&place, Pages::Small, 5 << 20).unwrap();
            assert_eq!((memory.len_bytes(), memory.word(0), memory.word((5 << 20) - 8)), (5 << 20, 0, 0));
            assert!(memory.backing().is_some() && memory.page_bytes() >= 4096);
        }
        let memory = Memory::new(&Place::Dram, Pages::Small, 4096).unwrap();
        assert_eq!((memory.page_bytes(), memory.backing()), (rustix::param::page_size(), None));
        assert!(Memory::new(&Place::Folder("/is/not/there".into()), Pages::Small, 64).is_err());
    }

    #[test]
    fn a_stripe_is_no_more_than_its_weakest_file_wherever_that_is() {
        let folder = tempfile::tempdir().unwrap();
        let found = Mapped::new().probe(folder.path()).unwrap().backing;
        let of = |provenance, reason: &str| Backing { provenance, reason: reason.into(), ..found.clone() };
        let (real, stands_in) = (of(Provenance::Measured, "a"), of(Provenance::Emulated, "b"));
        for all in [[&real, &stands_in, &real], [&stands_in, &real, &real]] {
            let together = weakest(all.into_iter()).unwrap();
            assert_eq!(together.provenance, Provenance::Emulated);
            assert_eq!(together.reason, format!("{}; {}", all[0].reason, if all[0] == &real { "b" } else { "a" }));
        }
        assert_eq!(weakest([&real, &real].into_iter()), Some(real.clone()));
        assert_eq!(weakest(std::iter::empty()), None);
    }
}
