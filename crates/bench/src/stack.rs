//! What the ways down to the medium cost: the same blocks, written by plain instructions, through the core, through other
//! libraries and through the kernel (Abed Abud et al., section VI and Fig. 7).

mod libraries;
mod ring;
mod target;
mod writers;

use std::time::Duration;

use pmem::DeviceProfile;

use crate::code::{Access, Fence, Width};
use crate::crew::{self, Done};
use crate::error::{Error, Result};
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Place;
use crate::model;
use crate::names::names;
use crate::pattern::{Pattern, Walk};
use crate::room;
use crate::site::Site;
use crate::stream::Kind;
use target::Shared;
use writers::Writer;

/// The measurement `stack`.
#[derive(Debug)]
pub struct Stack;

/// A way down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// Stores past the cache and an SFENCE.
    Raw,
    /// The core's copy and its fence, which is an msync(2) of the pages where the kernel writes them back.
    Core,
    /// pmem_memcpy_persist(3).
    Libpmem,
    /// pmemblk_write(3).
    Libpmemblk,
    /// A copy through the cache, and msync(2) of its pages.
    Msync,
    /// pwrite(2), which returns when the kernel has the block.
    Pwrite,
    /// pwritev2(2) with RWF_DSYNC, which returns when the device has it.
    PwriteDsync,
    /// io_uring(7), eight writes at a time.
    IoUring,
    /// The same with RWF_DSYNC.
    IoUringDsync,
    /// The same with O_DIRECT, past the page cache; what a device keeps in a cache of its own may be lost.
    IoUringDirect,
    /// Reads with O_DIRECT.
    IoUringDirectRead,
}

names!(Through {
    Raw = "raw",
    Core = "core",
    Libpmem = "libpmem",
    Libpmemblk = "libpmemblk",
    Msync = "msync",
    Pwrite = "pwrite",
    PwriteDsync = "pwrite-dsync",
    IoUring = "io-uring",
    IoUringDsync = "io-uring-dsync",
    IoUringDirect = "io-uring-direct",
    IoUringDirectRead = "io-uring-direct-read",
});

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocks {
    /// The way.
    pub through: Through,
    /// Where the file lies.
    pub place: Place,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// The order of the blocks.
    pub pattern: Pattern,
    /// Bytes of the file; each thread has a part of its own.
    pub len_bytes: usize,
    /// How many threads.
    pub threads: usize,
}

/// Bytes between two looks at the clock, where a block takes less than a look, and blocks, where the kernel takes them. A block that
/// a device is waited for is a turn by itself: eight of them may last longer than a sample.
const TURN_BYTES: usize = 64 << 10;
const TURN_CALLS: usize = 8;
/// Blocks of each thread that are looked at afterwards.
const LOOKED_AT: usize = 8;
/// Where O_DIRECT wants blocks to begin and end, on all file systems.
const DIRECT_BYTES: usize = 4096;
/// Bytes of a block, at most: the kernel takes no more than 2 GiB less a page in a call, and each thread has one of its own.
const MOST_BLOCK_BYTES: usize = 1 << 30;
/// What a sample takes beside making its file, about.
const A_SAMPLE_NS: u64 = 24_000_000;
/// No pool of libpmemblk is smaller than 16 MiB.
const LEAST_POOL_BYTES: usize = 17 << 20;

impl Measure for Stack {
    fn name(&self) -> &'static str {
        "stack"
    }

    fn about(&self) -> &'static str {
        "how many blocks a second reach a file by plain instructions, through libraries and through the kernel"
    }

    fn keys(&self) -> &'static [Key] {
        const KEYS: [Key; 7] = [
            Key { default: "/dev/shm", ..Key::MEMORY },
            Key::PAGES,
            Key {
                name: "through",
                about: "the way down to the file",
                form: Form::Choice(&Through::NAMES),
                default: "all",
            },
            Key {
                name: "block",
                about: "bytes of a block, each of which is written by itself",
                form: Form::Bytes { multiple_of: 64 },
                default: "5568",
            },
            Key { name: "order", about: "the order of the blocks", form: Form::Order, default: "sequential" },
            Key {
                name: "size",
                about: "bytes of the file, of which each thread has a part",
                form: Form::Bytes { multiple_of: 64 },
                default: "256Mi",
            },
            Key::THREADS,
        ];
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 3] = [
            Metric {
                name: "bandwidth",
                unit: "GB/s",
                better: Better::More,
                about: "10^9 bytes a second of all threads",
            },
            Metric {
                name: "per-thread",
                unit: "GB/s",
                better: Better::More,
                about: "10^9 bytes a second of a thread, on average",
            },
            Metric { name: "block-time", unit: "us", better: Better::Less, about: "time of a block in a thread" },
        ];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        let blocks = Blocks::of(cell);
        blocks.check()?;
        let memory_bytes = if blocks.through.is_mapped() { blocks.len_bytes } else { 0 };
        let writes_gb_s = 10.0 * blocks.threads as f64;
        let written_bytes = blocks.file_bytes();
        // A file is made and filled for each sample, at some 10^9 bytes a second.
        let sample_ns = if written_bytes > 0 { A_SAMPLE_NS + written_bytes } else { 0 };
        Ok(Needs { memory_bytes, threads: blocks.threads, written_bytes, writes_gb_s, sample_ns })
    }

    fn model(&self, cell: &Cell, device: &'static DeviceProfile, seed: u64) -> Result<Sample> {
        let blocks = Blocks::of(cell);
        if !matches!(blocks.through, Through::Raw | Through::Core) {
            return Err(Error::unavailable(format!(
                "what {} costs is not the device's, and has no modelled form",
                blocks.through.name()
            )));
        }
        let kind = Kind {
            access: Access::NonTemporal,
            width: Width::Bytes16,
            fence: Fence::Sfence,
            block_bytes: blocks.block_bytes,
            pattern: blocks.pattern,
        };
        let part_bytes = blocks.len_bytes / blocks.threads;
        let thread =
            |number: usize| model::stream(device, &kind, number * part_bytes, part_bytes, seed + number as u64);
        let done = model::simulate(device, (0..blocks.threads).map(thread).collect::<Result<_>>()?);
        let in_blocks = |done: Done| Done { work: done.work / blocks.block_bytes as u64, ..done };
        Ok(blocks.values(&done.into_iter().map(in_blocks).collect::<Vec<_>>()))
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let blocks = Blocks::of(cell);
        Ok(blocks.values(&blocks.run(cell, site, seed)?))
    }
}

impl Blocks {
    fn values(&self, done: &[Done]) -> Sample {
        let blocks = self;
        let blocks_a_second: f64 = done.iter().map(Done::per_second).sum();
        let bandwidth = blocks_a_second * blocks.block_bytes as f64 / 1e9;
        let threads = blocks.threads as f64;
        let values = [bandwidth, bandwidth / threads, threads * 1e6 / blocks_a_second];
        // Where no block has come to its end in the window there is nothing to tell.
        let values = values.into_iter().map(|value| (blocks_a_second > 0.0).then_some(value)).collect();
        Sample { values, ..Sample::default() }
    }
}

/// What a cell takes beside its memory: bytes of the threads' blocks, which are in ordinary memory, and of the file in its
/// folder.
pub fn beside(cell: &Cell) -> (u64, u64) {
    let blocks = Blocks::of(cell);
    (blocks.own_bytes(), if cell.device().is_some() { 0 } else { blocks.file_bytes() })
}

impl Through {
    /// Whether the blocks go into the site's memory.
    fn is_mapped(self) -> bool {
        matches!(self, Through::Raw | Through::Core | Through::Libpmem | Through::Msync)
    }

    fn is_ring(self) -> bool {
        matches!(self, Through::IoUring | Through::IoUringDsync) || self.is_direct()
    }

    /// Whether blocks go past the page cache, in whole pages.
    fn is_direct(self) -> bool {
        matches!(self, Through::IoUringDirect | Through::IoUringDirectRead)
    }

    /// Whether a library or the kernel is called for each block.
    fn is_call(self) -> bool {
        !matches!(self, Through::Raw | Through::Core | Through::Libpmem)
    }

    /// Whether a block may last as long as a sample: the device is waited for, or a place in a ring that is full.
    fn is_waited_for(self) -> bool {
        matches!(self, Through::Msync | Through::PwriteDsync) || self.is_ring()
    }
}

impl Blocks {
    fn of(cell: &Cell) -> Blocks {
        Blocks {
            through: Through::named(cell.word("through")),
            place: cell.place().0,
            block_bytes: cell.len("block"),
            pattern: cell.order(),
            len_bytes: cell.len("size"),
            threads: cell.len("threads"),
        }
    }

    /// Bytes of the threads' own blocks.
    fn own_bytes(&self) -> u64 {
        (self.threads * self.block_bytes.next_multiple_of(DIRECT_BYTES)) as u64
    }

    /// Bytes of the file that a sample makes; none where blocks go into the site's memory.
    fn file_bytes(&self) -> u64 {
        match self.through {
            through if through.is_mapped() => 0,
            // What the library keeps beside the blocks is less than an eighth.
            Through::Libpmemblk => (self.len_bytes + self.len_bytes / 8).max(LEAST_POOL_BYTES) as u64,
            _ => self.len_bytes as u64,
        }
    }

    /// Blocks between two looks at the clock.
    fn turn(&self, shared: &Shared<'_>) -> usize {
        match self.through {
            through if through.is_waited_for() => 1,
            Through::Core if shared.is_paged() => 1,
            through if through.is_call() => TURN_CALLS,
            _ => (TURN_BYTES / self.block_bytes).max(1),
        }
    }

    /// # Errors
    /// `Unavailable` when a block is longer than the kernel takes, or than a thread's part, the place has not what the way
    /// needs, or a library is not installed.
    fn check(&self) -> Result<()> {
        let name = self.through.name();
        self.pattern.check(self.block_bytes)?;
        if self.block_bytes > MOST_BLOCK_BYTES {
            return Err(Error::unavailable(format!("a block has at most {MOST_BLOCK_BYTES} bytes")));
        }
        if self.len_bytes / self.threads < self.block_bytes {
            return Err(Error::unavailable(format!(
                "{} bytes for {} threads in blocks of {}",
                self.len_bytes, self.threads, self.block_bytes
            )));
        }
        match (self.through, &self.place) {
            (Through::Core | Through::Msync, Place::Dram | Place::Node(_)) => {
                Err(Error::unavailable(format!("{name} needs a file or a device, not dram")))
            }
            (through, place) if !matches!(place, Place::Folder(_)) && !through.is_mapped() => {
                Err(Error::unavailable(format!("{name} needs a folder for its file")))
            }
            (Through::Libpmem, _) => libraries::Libpmem::load().map(drop),
            (Through::Libpmemblk, _) => libraries::Libpmemblk::is_installed(),
            (through, _) if through.is_direct() && !self.block_bytes.is_multiple_of(DIRECT_BYTES) => {
                Err(Error::unavailable(format!("{name} needs blocks of a multiple of {DIRECT_BYTES} bytes")))
            }
            (through, _) if through.is_ring() => ring::check_rings(),
            _ => Ok(()),
        }
    }

    /// Writes blocks for as long as the site says; what each thread did, in blocks.
    ///
    /// # Errors
    /// `NoRoom` when its file, or the threads' blocks, do not fit; `Io` when a write fails; `Wrong` when a block is not what was
    /// written.
    fn run(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Vec<Done>> {
        let time = site.sample_time;
        let memory = if self.through.is_mapped() { Some(site.memory(cell)?) } else { None };
        let memory = memory.map(|memory| {
            memory.filled_bytes = 0;
            &*memory
        });
        room::check(&Place::Dram, self.own_bytes())?;
        room::check(&self.place, self.file_bytes())?;
        let shared = Shared::open(self, memory, seed)?;
        self.run_on(&shared, time, seed)
    }

    fn run_on(&self, shared: &Shared<'_>, time: Duration, seed: u64) -> Result<Vec<Done>> {
        let part = shared.blocks(self) / self.threads as u64;
        if part == 0 {
            return Err(Error::unavailable(format!("{} blocks for {} threads", shared.blocks(self), self.threads)));
        }
        let io = |error| Error::io(shared.path(), error);
        let turn = self.turn(shared);
        let walk = |number: u64| Walk::new(self.pattern.of_blocks(self.block_bytes), part as usize, seed + number);
        let mut outcomes: Vec<std::io::Result<()>> = (0..self.threads).map(|_| Ok(())).collect();
        let mut writers = (0..self.threads).map(|_| Writer::new(self, shared)).collect::<Result<Vec<_>>>()?;
        let workers = writers.iter_mut().zip(&mut outcomes).zip(0..).map(|((writer, outcome), number)| {
            let mut walk = walk(number);
            move || {
                let mut arrived = 0;
                // The first requests of a ring only fill it.
                while outcome.is_ok() && arrived == 0 {
                    *outcome = (0..turn).try_for_each(|_| writer.write(number * part + walk.next_line() as u64));
                    arrived = writer.arrived();
                }
                arrived
            }
        });
        let done = crew::work_together(workers.collect(), time)?;
        outcomes.into_iter().collect::<std::io::Result<()>>().map_err(io)?;
        // What io_uring has still under way no longer counts.
        writers.iter_mut().try_for_each(Writer::wait).map_err(io)?;
        // Each thread has taken a turn at least.
        for number in 0..self.threads as u64 {
            let mut walk = walk(number);
            for _ in 0..turn.min(LOOKED_AT) {
                if !shared.has(self, number * part + walk.next_line() as u64).map_err(io)? {
                    return Err(Error::Wrong { what: "a block that was written" });
                }
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    /// Every way writes blocks that are there afterwards; what is not installed is said.
    #[test]
    fn every_way_writes_what_it_should() {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        for (block, threads) in [("5568", "1"), ("4Ki", "2"), ("64", "1"), ("12Ki", "1")] {
            let mut plan = Plan::built_in("stack").unwrap();
            let place = folder.path().to_str().unwrap();
            for (key, text) in [("memory", place), ("size", "17Mi"), ("block", block), ("threads", threads)] {
                plan.set(key, text).unwrap();
            }
            for cell in plan.cells().unwrap() {
                match Stack.needs(&cell) {
                    Err(error) => println!("not run: {cell}: {error}"),
                    Ok(_) => {
                        let mut site = Site::new([&cell], Duration::from_millis(2)).unwrap();
                        let sample = match Stack.sample(&cell, &mut site, 3) {
                            Err(Error::Unavailable { what }) => panic!("{cell}: {what}"),
                            sample => sample.unwrap(),
                        };
                        assert!(sample.values.iter().all(|value| value.unwrap() > 0.0), "{cell}");
                    }
                }
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn what_an_earlier_sample_wrote_does_not_pass_for_a_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = Plan::built_in("stack").unwrap();
        // Striped files have a head, behind which the blocks of every way lie.
        let place = format!("{0}+{0}", folder.path().display());
        for (key, text) in
            [("memory", place.as_str()), ("through", "raw,core,msync"), ("size", "8Mi"), ("block", "4Ki")]
        {
            plan.set(key, text).unwrap();
        }
        let cells = plan.cells().unwrap();
        let mut site = Site::new(&cells, Duration::from_millis(1)).unwrap();
        for (seed, cell) in (1..).zip(&cells) {
            let blocks = Blocks::of(cell);
            let shared = Shared::open(&blocks, Some(&*site.memory(cell).unwrap()), seed).unwrap();
            for number in [0, 7, 2047] {
                assert!(!shared.has(&blocks, number).unwrap(), "{cell}");
                Writer::new(&blocks, &shared).unwrap().write(number).unwrap();
                assert!(shared.has(&blocks, number).unwrap(), "{cell}");
            }
            assert!(Stack.sample(cell, &mut site, seed).unwrap().values[0].unwrap() > 0.0, "{cell}");
            assert_eq!(site.memory(cell).unwrap().filled_bytes, 0, "nothing is what stream::fill puts there");
        }
    }

    /// Kilobytes of a mapping that are to be written back yet (proc_pid_smaps(5)).
    fn dirty_kib(address: usize) -> u64 {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let hex = |text: &str| usize::from_str_radix(text, 16).ok();
        let holds = |line: &str| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            range.and_then(|(low, high)| Some((hex(low)?..hex(high)?).contains(&address))).unwrap_or(false)
        };
        let fields = text.lines().skip_while(|line| !holds(line)).take_while(|line| !line.starts_with("VmFlags"));
        let dirty =
            fields.filter_map(|line| line.split_once("_Dirty:")?.1.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        dirty.sum()
    }

    /// Where the kernel writes pages back, the core's fence is no instruction of the CPU alone.
    #[test]
    fn the_core_has_synced_its_pages_when_a_block_is_written() {
        let folder = tempfile::tempdir_in("/var/tmp").or_else(|_| tempfile::tempdir()).unwrap();
        let mut plan = Plan::built_in("stack").unwrap();
        let place = folder.path().to_str().unwrap();
        for (key, text) in [("memory", place), ("through", "raw,core"), ("size", "2Mi"), ("block", "2Mi")] {
            plan.set(key, text).unwrap();
        }
        let cells = plan.cells().unwrap();
        let mut site = Site::new(&cells, Duration::ZERO).unwrap();
        let memory = &*site.memory(&cells[0]).unwrap();
        let dirty_after = |cell| {
            let blocks = Blocks::of(cell);
            let shared = Shared::open(&blocks, Some(memory), 1).unwrap();
            assert!(!shared.is_paged() || blocks.through == Through::Raw || blocks.turn(&shared) == 1, "{cell}");
            Writer::new(&blocks, &shared).unwrap().write(0).unwrap();
            (dirty_kib(memory.base().addr()), shared.is_paged())
        };
        let (raw, core) = (dirty_after(&cells[0]), dirty_after(&cells[1]));
        match raw {
            (0, _) | (_, false) => println!("not run: nothing says what is not written back yet: {raw:?}"),
            _ => assert_eq!(core.0, 0, "{raw:?}"),
        }
    }

    fn blocks(through: &str, folder: &std::path::Path) -> Option<Blocks> {
        let mut plan = Plan::built_in("stack").unwrap();
        for (key, text) in
            [("memory", folder.to_str().unwrap()), ("through", through), ("size", "1Mi"), ("block", "4Ki")]
        {
            plan.set(key, text).unwrap();
        }
        let blocks = Blocks::of(&plan.cells().unwrap()[0]);
        match blocks.check() {
            Err(error) => {
                println!("not run: {error}");
                None
            }
            Ok(()) => Some(blocks),
        }
    }

    /// Else the first touches of pages are measured, which cost several times what the others do.
    #[test]
    fn a_new_file_has_every_block_written_before_the_window_opens() {
        let folder = tempfile::tempdir().unwrap();
        for through in Through::ALL.into_iter().filter(|through| !through.is_mapped()) {
            let Some(blocks) = blocks(through.name(), folder.path()) else { continue };
            let shared = match Shared::open(&blocks, None, 1) {
                Err(Error::Unavailable { what }) => {
                    println!("not run: {what}");
                    continue;
                }
                shared => shared.unwrap(),
            };
            let word = if through == Through::IoUringDirectRead { shared.word } else { !shared.word };
            let is_there = |number| shared.is_all(&blocks, number, word).unwrap();
            assert!((0..shared.blocks(&blocks)).all(is_there), "{through:?}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "its name is gone");
        }
    }

    #[test]
    fn a_thread_in_whose_window_nothing_arrived_has_no_figure() {
        let folder = tempfile::tempdir().unwrap();
        let blocks = blocks("pwrite-dsync", folder.path()).unwrap();
        let shared = Shared::open(&blocks, None, 1).unwrap();
        assert_eq!(blocks.turn(&shared), 1, "eight of them may last longer than the window");
        assert_eq!(blocks.values(&[Done { work: 0, ns: 1_000_000 }]).values, [None; 3]);
        assert!(blocks.values(&[Done { work: 1, ns: 1_000_000 }]).values.iter().all(Option::is_some));
    }

    #[test]
    fn what_a_cell_takes_beside_its_memory_is_told_and_bounded() {
        let mut plan = Plan::built_in("stack").unwrap();
        for (key, text) in [("through", "raw,pwrite,libpmemblk"), ("size", "32Mi"), ("block", "5568"), ("threads", "3")]
        {
            plan.set(key, text).unwrap();
        }
        let found: Vec<_> = plan.cells().unwrap().iter().map(beside).collect();
        assert_eq!(found, [(3 * 8192, 0), (3 * 8192, 32 << 20), (3 * 8192, 36 << 20)]);
        plan.set("size", "8Gi").unwrap();
        plan.set("block", "2Gi").unwrap();
        let refused = plan.cells().unwrap()[1].needs().unwrap_err().to_string();
        assert!(refused.contains("a block has at most"), "{refused}");
    }

    /// The kernel would go on reading a source that is gone.
    #[test]
    fn after_an_error_all_requests_are_waited_for_and_the_first_error_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let Some(blocks) = blocks("io-uring", folder.path()) else { return };
        let shared = Shared::of_file(std::fs::File::open("/dev/null").unwrap());
        let mut writer = Writer::new(&blocks, &shared).unwrap();
        let failed = (0..9).map(|number| writer.write(number)).find_map(std::result::Result::err);
        assert_eq!(failed.expect("it is open for reading").raw_os_error(), Some(libc::EBADF));
        let _ = writer.wait();
        assert!(writer.is_idle());
    }

    /// As many requests as there may be stay under way between turns, and only those that have ended are counted.
    #[test]
    fn a_ring_stays_full_until_the_end() {
        if let Err(error) = ring::check_rings() {
            println!("not run: {error}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let blocks = blocks("io-uring", folder.path()).unwrap();
        let shared = Shared::open(&blocks, None, 1).unwrap();
        let mut writer = Writer::new(&blocks, &shared).unwrap();
        (0..8).for_each(|number| writer.write(number).unwrap());
        assert_eq!(writer.arrived(), 0);
        (8..16).for_each(|number| writer.write(number).unwrap());
        let arrived = writer.arrived();
        assert!((1..=15).contains(&arrived), "{arrived}");
        writer.wait().unwrap();
        assert_eq!(arrived + writer.arrived(), 16);
        assert!((0..16).all(|number| shared.has(&blocks, number).unwrap()));
    }

    #[test]
    fn what_cannot_be_is_said() {
        let mut plan = Plan::built_in("stack").unwrap();
        plan.set("memory", "dram").unwrap();
        let refused: Vec<String> =
            plan.cells().unwrap().iter().filter_map(|cell| Some(Stack.needs(cell).err()?.to_string())).collect();
        assert!(refused.iter().any(|text| text.contains("pwrite needs a folder for its file")), "{refused:?}");
        assert!(refused.iter().any(|text| text.contains("core needs a file or a device, not dram")), "{refused:?}");
    }
}
