//! What the first touch of a page costs, and what mapping it ahead of use takes.

use std::time::Instant;

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::clock::Clock;
use crate::crew;
use crate::error::{Error, Result};
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Place;
use crate::nameless::{self, Allocated, Nameless};
use crate::names::names;
use crate::room;
use crate::site::Site;

/// The measurement `fault`.
#[derive(Debug)]
pub struct Fault;

/// How a page is met for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// By a load.
    Load,
    /// By a store.
    Store,
    /// By a store through a mapping with MAP_SYNC (mmap(2)), which waits until the file system has made the page's place
    /// durable.
    StoreSync,
    /// By MADV_POPULATE_WRITE (madvise(2)), of all pages at once.
    Populate,
}

names!(Meeting { Load = "load", Store = "store", StoreSync = "store-sync", Populate = "populate" });

const PAGE_BYTES: usize = 4096;

impl Measure for Fault {
    fn name(&self) -> &'static str {
        "fault"
    }

    fn about(&self) -> &'static str {
        "how long the first touch of a page of new memory takes"
    }

    fn keys(&self) -> &'static [Key] {
        const KEYS: [Key; 4] = [
            Key::MEMORY,
            Key { name: "touch", about: "how pages are met", form: Form::Choice(&Meeting::NAMES), default: "all" },
            Key {
                name: "allocated",
                about: "whether the file's blocks are allocated before",
                form: Form::Choice(&["yes", "no"]),
                default: "yes",
            },
            Key {
                name: "size",
                about: "bytes that are mapped anew for each sample",
                form: Form::Bytes { multiple_of: PAGE_BYTES as u64 },
                default: "16Mi",
            },
        ];
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 3] = [
            Metric { name: "page", unit: "ns", better: Better::Less, about: "time of 4 KiB, on average" },
            Metric {
                name: "throughput",
                unit: "GB/s",
                better: Better::More,
                about: "10^9 bytes a second that become usable",
            },
            Metric {
                name: "page-ticks",
                unit: "ticks",
                better: Better::Less,
                about: "time of 4 KiB in ticks of the counter",
            },
        ];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        let place = cell.memory().expect("it has this key");
        let is_sync = Meeting::named(cell.word("touch")) == Meeting::StoreSync;
        match place {
            Place::Device(_) => return Err(Error::unavailable("the pages of a device are always there".into())),
            Place::Modelled(..) | Place::Striped(..) | Place::Node(_) => {
                return Err(Error::unavailable(format!("{} is neither dram nor a folder", cell.word("memory"))));
            }
            Place::Dram if is_sync => return Err(Error::unavailable("MAP_SYNC is of files".into())),
            Place::Folder(_) | Place::Dram => {}
        }
        // Its memory is its own, and is mapped in each sample.
        Ok(Needs {
            memory_bytes: 0,
            threads: 1,
            written_bytes: cell.number("size"),
            sample_ns: cell.number("size") / 2,
            ..Needs::default()
        })
    }

    fn sample(&self, cell: &Cell, _site: &mut Site, _seed: u64) -> Result<Sample> {
        let pages = Pages::map(cell)?;
        let _alone = crew::alone()?;
        let start = Instant::now();
        pages.meet(Meeting::named(cell.word("touch")))?;
        let ns = start.elapsed().as_nanos() as f64;
        let count = (pages.len_bytes / PAGE_BYTES) as f64;
        let clock = Clock::get();
        let overhead = clock.ns(clock.pair_ticks as f64) / ns;
        let page_ns = ns / count;
        let values = vec![Some(page_ns), Some(pages.len_bytes as f64 / ns), Some(page_ns * clock.ticks_per_ns)];
        Ok(Sample { values, overhead: Some(overhead), ..Sample::default() })
    }
}

/// Bytes that a sample takes beside the site's memory: of its own, and of its place.
pub(crate) fn beside(cell: &Cell) -> (u64, u64) {
    (0, cell.number("size"))
}

/// New memory that nobody has touched.
struct Pages {
    base: *mut u8,
    len_bytes: usize,
}

impl Pages {
    fn map(cell: &Cell) -> Result<Pages> {
        let len_bytes = cell.len("size");
        let place = cell.memory().expect("it has this key");
        let failed =
            |error: rustix::io::Errno| Error::memory(format!("{len_bytes} bytes at {}: {error}", cell.word("memory")));
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // A page of a file for which its file system has no room kills who touches it, by SIGBUS (mmap(2)).
        room::check(&place, len_bytes as u64)?;
        let Place::Folder(folder) = place else {
            // SAFETY: a new mapping, which the kernel places where nothing is.
            let base = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), len_bytes, protection, MapFlags::PRIVATE) };
            return Ok(Pages::of(base.map_err(failed)?.cast(), len_bytes));
        };
        let Nameless { file, path, opened: () } = nameless::new_file(&folder, 0, |_| ())?;
        let failed_file = |error| Error::io(&path, error);
        let allocated = nameless::allocate(&file, len_bytes as u64).map_err(failed_file)?;
        if cell.word("allocated") == "no" {
            // A quota is known to who allocates only: blocks are taken, and given back.
            for len_bytes in [0, len_bytes as u64] {
                file.set_len(len_bytes).map_err(failed_file)?;
            }
        } else if allocated == Allocated::Later {
            return Err(Error::unavailable(format!(
                "the file system of {} allocates no blocks ahead",
                folder.display()
            )));
        }
        let is_sync = cell.word("touch") == Meeting::StoreSync.name();
        let flags = if is_sync { MapFlags::SHARED_VALIDATE | MapFlags::SYNC } else { MapFlags::SHARED };
        // SAFETY: as above; the file stays mapped when it is closed.
        match unsafe { mm::mmap(std::ptr::null_mut(), len_bytes, protection, flags, &file, 0) } {
            Ok(base) => Ok(Pages::of(base.cast(), len_bytes)),
            Err(rustix::io::Errno::OPNOTSUPP) => {
                Err(Error::unavailable(format!("{} refuses MAP_SYNC: it is no DAX", cell.word("memory"))))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Of 4 KiB each, also where the system makes huge ones unasked. A kernel that has none refuses the advice.
    fn of(base: *mut u8, len_bytes: usize) -> Pages {
        // SAFETY: a new mapping, which is ours.
        let _ = unsafe { mm::madvise(base.cast(), len_bytes, Advice::LinuxNoHugepage) };
        Pages { base, len_bytes }
    }

    fn meet(&self, meeting: Meeting) -> Result<()> {
        let pages = || (0..self.len_bytes).step_by(PAGE_BYTES).map(|at| self.base.wrapping_add(at));
        match meeting {
            // SAFETY: each address lies in the mapping.
            Meeting::Load => pages().for_each(|page| _ = unsafe { page.read_volatile() }),
            // SAFETY: as above.
            Meeting::Store | Meeting::StoreSync => pages().for_each(|page| unsafe { page.write_volatile(1) }),
            Meeting::Populate => {
                // SAFETY: the mapping is ours, and populating changes no content.
                let populated = unsafe { mm::madvise(self.base.cast(), self.len_bytes, Advice::LinuxPopulateWrite) };
                populated.map_err(|error| Error::unavailable(format!("MADV_POPULATE_WRITE: {error}")))?;
            }
        }
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody else has its address.
        let _ = unsafe { mm::munmap(self.base.cast(), self.len_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::Plan;

    #[test]
    fn pages_are_met_in_every_way_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = Plan::built_in("fault").unwrap();
        plan.set("memory", &format!("dram,{}", folder.path().display())).unwrap();
        plan.set("size", "64Ki").unwrap();
        plan.set("allocated", "all").unwrap();
        for cell in plan.cells().unwrap() {
            match Fault.needs(&cell) {
                Err(error) => println!("not run: {cell}: {error}"),
                Ok(_) => {
                    let mut site = Site::new([&cell], Duration::ZERO).unwrap();
                    match Fault.sample(&cell, &mut site, 1) {
                        // Only the file system knows whether it has MAP_SYNC.
                        Err(Error::Unavailable { .. }) if cell.word("touch") == "store-sync" => {}
                        sample => assert!(sample.unwrap().values[0].unwrap() > 0.0, "{cell}"),
                    }
                }
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_system_without_room_is_refused_before_a_page_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = Plan::built_in("fault").unwrap();
        plan.set("memory", folder.path().to_str().unwrap()).unwrap();
        for (key, text) in [("size", "64Ti"), ("allocated", "no"), ("touch", "store")] {
            plan.set(key, text).unwrap();
        }
        let cell = &plan.cells().unwrap()[0];
        let mut site = Site::new([], Duration::ZERO).unwrap();
        assert!(matches!(Fault.sample(cell, &mut site, 1), Err(Error::NoRoom { .. })));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// `nh` among the flags of a mapping: huge pages are never used (proc_pid_smaps(5)).
    #[test]
    fn pages_are_small_also_where_huge_ones_come_unasked() {
        let plan = Plan::built_in("fault").unwrap();
        let pages = Pages::map(&plan.cells().unwrap()[0]).unwrap();
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", pages.base.addr());
        let mut mapping = text.lines().skip_while(|line| !line.starts_with(&start));
        let flags = mapping.find(|line| line.starts_with("VmFlags:")).unwrap();
        // SAFETY: the mapping of `pages`; a kernel that has no huge pages refuses.
        let advised = unsafe { mm::madvise(pages.base.cast(), pages.len_bytes, Advice::LinuxNoHugepage) };
        let has_huge_pages = advised.is_ok();
        assert_eq!(flags.split_ascii_whitespace().any(|flag| flag == "nh"), has_huge_pages, "{flags}");
    }
}
