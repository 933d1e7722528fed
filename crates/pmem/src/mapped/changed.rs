//! Which pages of a private view were stored to.
//!
//! A store to a private view gives the process a page of its own, which belongs to no file; every other page is one of
//! the file, or not there yet. The kernel tells one from the other.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::mem::size_of;
use std::ops::Range;
use std::os::fd::AsRawFd;

use crate::error::{Error, Result};

/// How the kernel was asked for changed pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PageScan {
    /// `PAGEMAP_SCAN`, of Linux 6.7 and later, which finds them without a look at the others.
    PagemapScan,
    /// A word for each page, from `/proc/self/pagemap`.
    Pagemap,
}

const PAGEMAP: &str = "/proc/self/pagemap";

// From include/uapi/linux/fs.h. The number of the request has the size of its argument in it.
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGEMAP_SCAN: u64 = 3 << 30 | (size_of::<ScanArgument>() as u64) << 16 | (b'f' as u64) << 8 | 16;

// From Documentation/admin-guide/mm/pagemap.rst.
const WORD_IS_FILE: u64 = 1 << 61;
const WORD_IS_SWAPPED: u64 = 1 << 62;
const WORD_IS_PRESENT: u64 = 1 << 63;

/// `struct pm_scan_arg`.
#[repr(C)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

const _: () = assert!(size_of::<ScanArgument>() == 96 && size_of::<PageRegion>() == 24);

/// The pages of a [`PrivateMapping`](crate::PrivateMapping) that were stored to through it, in order, as ranges of its bytes
/// that do not touch one another. What is stored meanwhile may be in or not.
///
/// # Errors
/// `Io` when the kernel does not say (no `/proc`).
pub fn changed_pages(address: usize, len_bytes: u64) -> Result<(Vec<Range<u64>>, PageScan)> {
    let io = |error| Error::io("finding changed pages", PAGEMAP.as_ref(), error);
    let mut pagemap = File::open(PAGEMAP).map_err(io)?;
    let page = rustix::param::page_size() as u64;
    let first = address as u64;
    let pages = first / page * page..(first + len_bytes).next_multiple_of(page);
    let (regions, by) = match scan(&pagemap, pages.clone()).map_err(io)? {
        Some(regions) => (regions, PageScan::PagemapScan),
        None => (read(&mut pagemap, pages, page).map_err(io)?, PageScan::Pagemap),
    };
    let of_view = |region: Range<u64>| region.start.saturating_sub(first)..(region.end - first).min(len_bytes);
    Ok((regions.into_iter().map(of_view).collect(), by))
}

/// Asks with [`PageScan::PagemapScan`]; none when the kernel does not know that.
fn scan(pagemap: &File, pages: Range<u64>) -> std::io::Result<Option<Vec<Range<u64>>>> {
    let mut found = Vec::new();
    let mut buffer = vec![PageRegion::default(); 512];
    let mut start = pages.start;
    while start < pages.end {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            flags: 0,
            start,
            end: pages.end,
            walk_end: 0,
            vec: buffer.as_mut_ptr().addr() as u64,
            vec_len: buffer.len() as u64,
            max_pages: 0,
            category_inverted: PAGE_IS_FILE,
            category_mask: PAGE_IS_FILE,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            return_mask: 0,
        };
        buffer.as_mut_ptr().expose_provenance();
        // SAFETY: the request is the one that this argument belongs to; the kernel writes to it, and at most `vec_len`
        // regions to the buffer, whose address was exposed for that.
        let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut argument) };
        match usize::try_from(count) {
            Ok(count) => found.extend(buffer[..count].iter().map(|region| region.start..region.end)),
            Err(_) => {
                let error = std::io::Error::last_os_error();
                return match error.raw_os_error() {
                    Some(libc::ENOTTY | libc::EINVAL | libc::EOPNOTSUPP) if found.is_empty() => Ok(None),
                    _ => Err(error),
                };
            }
        }
        if argument.walk_end <= start {
            // A kernel that stands still has not said all.
            return Err(std::io::Error::other("PAGEMAP_SCAN does not go on"));
        }
        start = argument.walk_end;
    }
    Ok(Some(joined(found)))
}

/// Reads a word a page.
fn read(pagemap: &mut File, pages: Range<u64>, page: u64) -> std::io::Result<Vec<Range<u64>>> {
    const WORDS: u64 = 8192;
    let mut found = Vec::new();
    let mut at = pages.start;
    pagemap.seek(SeekFrom::Start(at / page * 8))?;
    while at < pages.end {
        let words = WORDS.min((pages.end - at) / page);
        let mut bytes = vec![0; 8 * words as usize];
        pagemap.read_exact(&mut bytes)?;
        for word in bytes.chunks_exact(8) {
            let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
            if word & (WORD_IS_PRESENT | WORD_IS_SWAPPED) != 0 && word & WORD_IS_FILE == 0 {
                found.push(at..at + page);
            }
            at += page;
        }
    }
    Ok(joined(found))
}

/// Ranges in order that touch one another, as one.
fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Extent, Layout, MIN_FILE_BYTES, Mapped, PartOptions, Pool};

    /// Both ways find what was stored to, and nothing else; a view need not begin with a page.
    #[test]
    fn both_ways_find_the_pages_that_were_stored_to() {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let layout = Layout { name: "changed", version: 1 };
        let options = PartOptions::single(MIN_FILE_BYTES);
        let pool = Pool::create(Mapped::default(), &dir.path().join("p"), layout, &options).unwrap();
        let space = pool.reserve(200 << 10).unwrap();
        let page = rustix::param::page_size() as u64;
        let offset = space.extent().offset.plus(64);
        assert!(!offset.byte().is_multiple_of(page));
        let view = pool.set().private(Extent { offset, len_bytes: 100 << 10 }, 100 << 10).unwrap();
        let changed = || changed_pages(view.address().addr(), view.len_bytes() as u64).unwrap();
        let skip = view.address().addr() as u64 % page;
        let mut pagemap = File::open(Path::new(PAGEMAP)).unwrap();
        let base = view.address().addr() as u64 - skip;
        let pages = base..base + (100 << 10) + page;
        let by_word = |pagemap: &mut File| {
            let found = read(pagemap, pages.clone(), page).unwrap();
            found.into_iter().map(|range| range.start - base..range.end - base).collect::<Vec<_>>()
        };
        // SAFETY: both places lie in the view, and nobody else looks.
        let store = |at: u64| unsafe { view.address().add(at as usize).write_volatile(1) };
        // SAFETY: as above. A page that was only read is one of the file.
        assert_eq!(unsafe { view.address().add(50 << 10).read_volatile() }, 0);
        assert_eq!(changed().0, []);
        assert_eq!(by_word(&mut pagemap), []);
        store(0);
        store(5 * page);
        store(6 * page);
        let expected = [0..page - skip, 5 * page - skip..7 * page - skip];
        assert_eq!(changed().0, expected);
        assert_eq!(by_word(&mut pagemap), [0..page, 5 * page..7 * page]);
        store((100 << 10) - 1);
        assert_eq!(changed().0.last().unwrap().end, 100 << 10, "the last page ends with the view");
    }
}
