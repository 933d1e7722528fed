//! Pools under crashes: creation, commits, compaction, growth, reclaim, restarts without a power failure.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crash::{Fault, Protocol, Sim};
use pmem::{
    Error, Layout, MIN_FILE_BYTES, Media, OpenMode, PartOptions, Pool, RedoBatch, Region, RegionSpec, Reservation,
};

use crate::probe::{self, PROBE, candidates, is_probed, probed, unprobed};

const LAYOUT: Layout = Layout { name: "crash", version: 1 };
/// Content of a region with a long description.
const DESCRIBED_BYTES: usize = 64;
const PROBE_CONTENT: &[u8] = b"probe";

/// One step of a workload.
#[derive(Clone, Debug)]
pub enum Step {
    /// Gives names new contents, all at once: name, seed and length of the content.
    Put(Vec<(&'static str, u64, usize)>),
    /// Removes and puts at once.
    Replace(&'static str, (&'static str, u64, usize)),
    /// Removes a name.
    Remove(&'static str),
    /// Gives a name new contents and a description of so many bytes, which fills the log.
    Describe(&'static str, u64, usize),
    /// Gives a name that is there a further extent and keeps those it has.
    Extend(&'static str, u64, usize),
    /// Rewrites the log.
    Compact,
    /// Takes all space that is left, for as long as the process lives, and adds a part: what is put next lies there.
    Grow,
    /// Closes the pool in order and opens it again.
    Reopen,
    /// Drops everything without closing, as `kill -9` does, and opens it again.
    Kill,
}

impl Step {
    /// The protocol of the core that it runs.
    fn protocol(&self) -> &'static str {
        match self {
            Step::Put(_) | Step::Replace(..) | Step::Remove(_) | Step::Describe(..) | Step::Extend(..) => "publish",
            Step::Compact => "compaction",
            Step::Grow => "growth",
            Step::Reopen => "close",
            Step::Kill => "restart",
        }
    }
}

/// A workload over one pool. The model is a map from names to contents.
pub struct PoolSteps {
    /// Operation 1 is the creation; step i is operation i + 2.
    pub steps: Vec<Step>,
    /// Further files to stripe the pool over.
    pub more_files: Vec<PathBuf>,
    /// Whether a reader looks before the writer recovers: a reader makes durable what it sees, which hides what a
    /// writer forgets.
    pub reader_first: bool,
    /// The write-back after the creation that fails, counted from 0.
    pub failing_write_back: Option<u32>,
}

/// What there must be: names with their contents, and the number of parts.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    names: BTreeMap<&'static str, Vec<u8>>,
    parts: usize,
}

fn path() -> &'static Path {
    Path::new("/pools/p")
}

/// Content that depends on every bit of the seed.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| rng.u8(..)).collect()
}

/// A region whose description begins with the length of the content in each of its extents.
fn spec(pool: &Pool<Sim>, bytes: &[u8]) -> Result<RegionSpec, Error> {
    let reservation = pool.reserve(bytes.len() as u64)?;
    let at = reservation.extent().offset;
    let mut pending = pmem::Pending::new();
    pool.set().nt_copy(&mut pending, at, bytes);
    pool.set().fence(&mut pending)?;
    let meta = (bytes.len() as u64).to_le_bytes().to_vec();
    Ok(RegionSpec { kind: 1, meta, add: vec![reservation], ..RegionSpec::default() })
}

/// The content of a region, as [`spec`] describes it.
fn load(region: &Region<Sim>) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let lengths = region.info().meta.chunks(8).take(region.info().extents.len());
    if lengths.len() != region.info().extents.len() {
        return Err("a description that does not fit its extents".into());
    }
    for (extent, length) in lengths.enumerate() {
        let length = u64::from_le_bytes(length.try_into().map_err(|_| "a broken description")?);
        let mut bytes = vec![0; length as usize];
        region.load_bytes(extent, 0, &mut bytes);
        content.extend(bytes);
    }
    Ok(content)
}

fn check_probe(region: &Region<Sim>) -> Result<(), String> {
    let content = load(region)?;
    if content == PROBE_CONTENT { Ok(()) } else { Err(format!("the probe holds {content:?}")) }
}

/// A process that has the pool open, and space that it holds on to.
struct Process {
    pool: Pool<Sim>,
    held: Vec<Reservation>,
}

impl Process {
    fn open(sim: &Sim) -> Result<Process, Error> {
        let pool = Pool::open(sim.clone(), path(), Some(LAYOUT), OpenMode::Writer)?;
        Ok(Process { pool, held: Vec::new() })
    }
}

impl PoolSteps {
    /// Everything the core does, in one short life.
    pub fn everything() -> PoolSteps {
        PoolSteps {
            steps: vec![
                Step::Put(vec![("a", 1, 100)]),
                Step::Put(vec![("b", 2, 200), ("c", 3, 64)]),
                Step::Replace("b", ("a", 4, 300)),
                Step::Kill,
                Step::Put(vec![("d", 5, 70)]),
                Step::Compact,
                Step::Kill,
                Step::Put(vec![("a", 6, 100)]),
                Step::Reopen,
                Step::Remove("c"),
                Step::Grow,
                Step::Put(vec![("e", 7, 128)]),
                Step::Extend("e", 10, 70),
                Step::Compact,
                Step::Remove("a"),
                Step::Grow,
                Step::Put(vec![("a", 8, 90), ("c", 9, 10)]),
            ],
            more_files: Vec::new(),
            reader_first: true,
            failing_write_back: None,
        }
    }

    /// Descriptions that fill the log, so that commits compact it by themselves, and make it grow: the checkpoint needs
    /// more than a segment has at first.
    pub fn with_long_descriptions() -> PoolSteps {
        let long = |name, seed| Step::Describe(name, seed, 15_000);
        let steps = vec![
            long("a", 1),
            long("b", 2),
            long("c", 3),
            long("d", 4),
            // This one and a later one find the log full.
            long("e", 5),
            Step::Kill,
            long("a", 6),
            Step::Remove("b"),
            long("b", 7),
            long("c", 8),
            Step::Remove("d"),
        ];
        PoolSteps { steps, ..PoolSteps::everything() }
    }

    /// Commits and a compaction, during which the kernel once fails to write a page back. The pool is opened again, and
    /// the step that failed is made again.
    pub fn with_a_failed_write_back(nth: u32) -> PoolSteps {
        let put = |name, seed| Step::Put(vec![(name, seed, 100)]);
        let steps = vec![put("a", 1), put("b", 2), Step::Compact, put("a", 3), put("c", 4)];
        // A reader cannot store again what the kernel has given up, so it is no judge here.
        PoolSteps { steps, failing_write_back: Some(nth), reader_first: false, ..PoolSteps::everything() }
    }

    /// A random life.
    pub fn random(seed: u64, steps: usize) -> PoolSteps {
        const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut live: Vec<&'static str> = Vec::new();
        let put = |rng: &mut fastrand::Rng, live: &mut Vec<&'static str>| {
            let name = NAMES[rng.usize(..NAMES.len())];
            if !live.contains(&name) {
                live.push(name);
            }
            (name, rng.u64(..), rng.usize(1..400))
        };
        let steps = (0..steps)
            .map(|_| match rng.u32(..20) {
                0 => Step::Kill,
                1 => Step::Reopen,
                2 => Step::Compact,
                3 => Step::Grow,
                4 if !live.is_empty() => Step::Extend(live[rng.usize(..live.len())], rng.u64(..), rng.usize(1..200)),
                5..=6 if !live.is_empty() => Step::Remove(live.swap_remove(rng.usize(..live.len()))),
                7..=9 if live.len() > 1 => {
                    let gone = live.swap_remove(rng.usize(..live.len()));
                    let (name, seed, len) = put(&mut rng, &mut live);
                    if name == gone {
                        Step::Put(vec![(name, seed, len)])
                    } else {
                        Step::Replace(gone, (name, seed, len))
                    }
                }
                10..=13 => {
                    let (first, second) = (put(&mut rng, &mut live), put(&mut rng, &mut live));
                    if first.0 == second.0 { Step::Put(vec![first]) } else { Step::Put(vec![first, second]) }
                }
                _ => Step::Put(vec![put(&mut rng, &mut live)]),
            })
            .collect();
        let reader_first = seed.is_multiple_of(2);
        PoolSteps { steps, more_files: Vec::new(), reader_first, failing_write_back: None }
    }

    /// The protocol of the core that an operation runs; none is a recovery, which works the allocator's map out anew.
    pub fn protocol(&self, operation: Option<usize>) -> &'static str {
        match operation {
            None => "recovery",
            Some(0 | 1) => "creation",
            Some(operation) => self.steps.get(operation - 2).map_or("close", Step::protocol),
        }
    }

    fn options(&self) -> PartOptions {
        PartOptions { file_bytes: MIN_FILE_BYTES, more_files: self.more_files.clone(), chunk_bytes: 2 << 20 }
    }

    /// The model after so many operations; operation 1 is the creation. The probe is none of its names.
    fn model(&self, operations: usize) -> Model {
        let mut model = Model { parts: 1, ..Model::default() };
        let names = &mut model.names;
        for step in self.steps.iter().take(unprobed(operations).saturating_sub(1)) {
            match step {
                Step::Put(puts) => {
                    for &(name, seed, len) in puts {
                        names.insert(name, content(seed, len));
                    }
                }
                Step::Replace(gone, (name, seed, len)) => {
                    names.remove(gone);
                    names.insert(name, content(*seed, *len));
                }
                Step::Remove(name) => drop(names.remove(name)),
                Step::Describe(name, seed, _) => drop(names.insert(name, content(*seed, DESCRIBED_BYTES))),
                Step::Extend(name, seed, len) => names.entry(name).or_default().extend(content(*seed, *len)),
                Step::Grow => model.parts += 1,
                Step::Compact | Step::Reopen | Step::Kill => {}
            }
        }
        model
    }

    fn perform(&self, sim: &Sim, process: Process, step: &Step) -> Result<Process, Error> {
        let Process { pool, mut held } = process;
        let mut batch = RedoBatch::new();
        match step {
            Step::Put(puts) => {
                for &(name, seed, len) in puts {
                    batch.put(name, spec(&pool, &content(seed, len))?);
                }
            }
            Step::Replace(gone, (name, seed, len)) => {
                batch.remove(gone).put(name, spec(&pool, &content(*seed, *len))?);
            }
            Step::Remove(name) => drop(batch.remove(name)),
            Step::Describe(name, seed, meta_bytes) => {
                let mut region = spec(&pool, &content(*seed, DESCRIBED_BYTES))?;
                region.meta.resize(*meta_bytes, 0xD5);
                batch.put(name, region);
            }
            Step::Extend(name, seed, len) => {
                let had = pool.region(name)?;
                let more = spec(&pool, &content(*seed, *len))?;
                let lengths = 8 * had.info().extents.len();
                let meta = [&had.info().meta[..lengths], &more.meta].concat();
                batch.put(name, RegionSpec { meta, keep: had.info().extents.clone(), ..more });
            }
            Step::Compact => {
                pool.compact()?;
                return Ok(Process { pool, held });
            }
            Step::Grow => {
                while let Ok(reservation) = pool.reserve(pool.info().largest_free_bytes) {
                    held.push(reservation);
                }
                pool.grow(None, &PartOptions::single(MIN_FILE_BYTES))?;
                return Ok(Process { pool, held });
            }
            Step::Reopen => {
                drop(held);
                pool.close()?;
                return Process::open(sim);
            }
            Step::Kill => {
                sim.kill();
                drop((held, pool));
                return Process::open(sim);
            }
        }
        pool.commit(batch)?;
        Ok(Process { pool, held })
    }

    fn probe(pool: &Pool<Sim>) -> Result<(), Error> {
        let mut batch = RedoBatch::new();
        batch.put(PROBE, spec(pool, PROBE_CONTENT)?);
        pool.commit(batch).map(drop)
    }

    /// How many operations explain what the pool holds, and that its space adds up.
    fn explain(&self, pool: &Pool<Sim>, allowed: &RangeInclusive<usize>) -> Result<usize, String> {
        let info = pool.info();
        let mut found = Model { parts: info.parts.len(), ..Model::default() };
        let (mut used_bytes, mut has_probe) = (0, false);
        for region in pool.regions("").map_err(|e| e.to_string())? {
            used_bytes += region.info().extents.iter().map(|extent| extent.len_bytes).sum::<u64>();
            if region.name() == PROBE {
                has_probe = true;
                check_probe(&region)?;
                continue;
            }
            let known = ["a", "b", "c", "d", "e"].into_iter().find(|name| *name == region.name());
            let name = known.ok_or_else(|| format!("an unknown name {:?}", region.name()))?;
            found.names.insert(name, load(&region)?);
        }
        let heads: u64 = info.parts.iter().map(|_| 2 << 20).sum();
        let left = info.total_bytes - heads - info.free_bytes - info.retired_bytes - used_bytes;
        // What is left is the log: a segment and a spare of 64 KiB each. Where descriptions are long, each has room for
        // the next checkpoint twice.
        let is_long = self.steps.iter().any(|step| matches!(step, Step::Describe(..)));
        let log_bytes = if is_long { 128 << 10..=4 * (128 << 10) } else { 128 << 10..=128 << 10 };
        if !log_bytes.contains(&left) {
            return Err(format!("{left} bytes are neither free nor used"));
        }
        // Several operations may leave the same contents; the newest allowed one is as good as any.
        candidates(allowed, has_probe).find(|&operations| self.model(operations) == found).ok_or_else(|| {
            let Model { names, parts } = &found;
            format!("{parts} parts and the names {:?}, probe {has_probe}, fit no allowed state", names.keys())
        })
    }
}

impl Protocol for PoolSteps {
    fn workload(&self, sim: &Sim) {
        sim.started(1);
        let pool = Pool::create(sim.clone(), path(), LAYOUT, &self.options()).expect("a new pool");
        let mut process = Process { pool, held: Vec::new() };
        sim.acknowledged(1);
        if let Some(nth) = self.failing_write_back {
            sim.inject(Fault::WriteBack(nth));
        }
        for (operation, step) in (2..).zip(&self.steps) {
            sim.started(operation);
            process = match self.perform(sim, process, step) {
                Err(Error::Io { .. }) if self.failing_write_back.is_some() => {
                    let process = Process::open(sim).expect("the fault is over");
                    self.perform(sim, process, step)
                }
                result => result,
            }
            .unwrap_or_else(|e| panic!("{step:?}: {e}"));
            sim.acknowledged(operation);
        }
        let Process { pool, held } = process;
        drop(held);
        match pool.close() {
            Err(Error::Io { .. }) if self.failing_write_back.is_some() => {}
            result => result.expect("no fault is injected"),
        }
    }

    fn recover(&self, sim: &Sim, allowed: RangeInclusive<usize>) -> Result<usize, String> {
        let text = |e: Error| format!("{e} [{}]", e.code().name());
        let open = |mode| Pool::open(sim.clone(), path(), Some(LAYOUT), mode);
        if *allowed.start() == 0 && !sim.exists(path()).map_err(text)? {
            // The creation was lost. It can be done again, unless members are in the way, which have names of their own.
            if self.more_files.is_empty() {
                sim.started(1);
                Pool::create(sim.clone(), path(), LAYOUT, &self.options()).map_err(text)?;
                sim.acknowledged(1);
            }
            return Ok(0);
        }
        let mut allowed = allowed;
        if self.reader_first {
            let reader = open(OpenMode::Reader).map_err(text)?;
            let seen = self.explain_reader(&reader, &allowed)?;
            sim.observed(seen);
            allowed = seen..=seen;
        }
        let pool = open(OpenMode::Writer).map_err(text)?;
        let state = self.explain(&pool, &allowed)?;
        sim.observed(state);
        // Recovered again, after a kill: the same.
        sim.kill();
        drop(pool);
        let pool = open(OpenMode::Writer).map_err(text)?;
        self.explain(&pool, &(state..=state))?;
        let next = probed(state);
        sim.started(next);
        Self::probe(&pool).map_err(text)?;
        sim.acknowledged(next);
        pool.close().map_err(text)?;
        let pool = open(OpenMode::Writer).map_err(text)?;
        self.explain(&pool, &(next..=next))?;
        Ok(state)
    }

    fn same(&self, a: usize, b: usize) -> bool {
        a > 0 && b > 0 && is_probed(a) == is_probed(b) && self.model(a) == self.model(b)
    }

    fn allows(&self, allowed: &RangeInclusive<usize>, state: usize) -> bool {
        probe::allows(allowed, state, |a, b| self.same(a, b))
    }
}

impl PoolSteps {
    /// As [`PoolSteps::explain`], without the accounting, which only a writer can do.
    fn explain_reader(&self, pool: &Pool<Sim>, allowed: &RangeInclusive<usize>) -> Result<usize, String> {
        let regions = pool.regions("").map_err(|e| e.to_string())?;
        let has_probe = regions.iter().any(|region| region.name() == PROBE);
        regions.iter().filter(|region| region.name() == PROBE).try_for_each(check_probe)?;
        let named = |region: &&Region<Sim>| region.name() != PROBE;
        let found: BTreeMap<String, Vec<u8>> = regions
            .iter()
            .filter(named)
            .map(|region| Ok((region.name().to_owned(), load(region)?)))
            .collect::<Result<_, String>>()?;
        let parts = pool.info().parts.len();
        let fits = |operations: &usize| {
            let Model { names, parts: expected } = self.model(*operations);
            let same = |(name, bytes): (&&str, &Vec<u8>)| found.get(*name) == Some(bytes);
            expected == parts && names.len() == found.len() && names.iter().all(same)
        };
        candidates(allowed, has_probe).find(fits).ok_or_else(|| "a reader saw no allowed state".into())
    }
}
