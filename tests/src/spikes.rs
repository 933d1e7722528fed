//! The core's seam tried out by two small users of it: an append-only key-value log, and a log in generations. Both
//! keep structures of their own inside a region of a pool.

use std::ops::RangeInclusive;
use std::path::Path;

use crash::{Protocol, Sim};
use pmem::{
    Error, Extent, Layout, MIN_FILE_BYTES, OpenMode, PartOptions, Pending, Pool, RedoBatch, RegionSpec, Segment,
    SelfCertifyingLog,
};

const LAYOUT: Layout = Layout { name: "spike", version: 1 };

fn path() -> &'static Path {
    Path::new("/pools/spike")
}

/// Creates the pool and a region of `segments` extents of `len_bytes` each.
fn create(sim: &Sim, segments: usize, len_bytes: u64) -> Result<Pool<Sim>, Error> {
    let pool = Pool::create(sim.clone(), path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES))?;
    let add = (0..segments).map(|_| pool.reserve(len_bytes)).collect::<Result<_, _>>()?;
    let mut batch = RedoBatch::new();
    batch.put("log", RegionSpec { meta: 1u64.to_le_bytes().to_vec(), add, ..RegionSpec::default() });
    pool.commit(batch)?;
    Ok(pool)
}

/// The extents of the region and the number in its description; none when it was never committed.
fn region(pool: &Pool<Sim>) -> Option<(Vec<Extent>, u64)> {
    let region = pool.region("log").ok()?;
    let number = u64::from_le_bytes(region.info().meta[..].try_into().ok()?);
    Some((region.info().extents.clone(), number))
}

/// One record a batch: a key and a value, both the number of the operation.
pub struct KeyValueAppend {
    /// How many are appended.
    pub records: usize,
}

impl Protocol for KeyValueAppend {
    fn workload(&self, sim: &Sim) {
        sim.started(1);
        let pool = create(sim, 1, 64 << 10).expect("a new pool");
        sim.acknowledged(1);
        let (extents, generation) = region(&pool).expect("it was committed");
        let mut log = SelfCertifyingLog::start(Segment::new(extents[0], pool.uuid(), generation << 32, 1));
        for record in 1..=self.records {
            sim.started(record + 1);
            let payload = [record as u8; 20];
            log.append(pool.set(), &mut Pending::new(), 7, &payload).expect("no fault is injected");
            sim.acknowledged(record + 1);
        }
    }

    fn recover(&self, sim: &Sim, allowed: RangeInclusive<usize>) -> Result<usize, String> {
        let text = |e: Error| e.to_string();
        let pool = match Pool::open(sim.clone(), path(), Some(LAYOUT), OpenMode::Writer) {
            Err(Error::NotFound { .. }) if *allowed.start() == 0 => return Ok(0),
            result => result.map_err(text)?,
        };
        let Some((extents, generation)) = region(&pool) else { return Ok(0) };
        let segment = Segment::new(extents[0], pool.uuid(), generation << 32, 1);
        let mut records = 0;
        let log = SelfCertifyingLog::replay(pool.set(), segment, |batch| {
            records += 1;
            batch.payload == [records as u8; 20] && batch.kind == 7
        });
        let mut log = log.map_err(text)?;
        let mut pending = Pending::new();
        log.resume(pool.set(), &mut pending).map_err(text)?;
        pool.set().fence(&mut pending).map_err(text)?;
        sim.observed(records + 1);
        // What comes after is numbered on and must be there when it was acknowledged.
        sim.started(records + 2);
        log.append(pool.set(), &mut Pending::new(), 7, &[(records + 1) as u8; 20]).map_err(text)?;
        sim.acknowledged(records + 2);
        Ok(records + 1)
    }
}

/// Two segments used in turn; the description of the region says which generation is active. Each generation begins
/// with a record of the total so far, so that the other segment can be used again.
pub struct LogGenerations {
    /// How many numbers are added up.
    pub numbers: usize,
}

/// Batches in a generation, the first one included.
const BATCHES: u64 = 4;

impl LogGenerations {
    fn segment(pool: &Pool<Sim>, extents: &[Extent], generation: u64) -> Segment {
        Segment::new(extents[(generation % 2) as usize], pool.uuid(), generation << 32, generation * BATCHES)
    }

    fn activate(pool: &Pool<Sim>, extents: &[Extent], generation: u64, total: u64) -> Result<SelfCertifyingLog, Error> {
        let mut log = SelfCertifyingLog::start(Self::segment(pool, extents, generation));
        log.append(pool.set(), &mut Pending::new(), 1, &total.to_le_bytes())?;
        let (meta, keep) = (generation.to_le_bytes().to_vec(), extents.to_vec());
        let mut batch = RedoBatch::new();
        batch.put("log", RegionSpec { meta, keep, ..RegionSpec::default() });
        pool.commit(batch)?;
        Ok(log)
    }
}

impl Protocol for LogGenerations {
    fn workload(&self, sim: &Sim) {
        sim.started(1);
        let pool = create(sim, 2, 4096).expect("a new pool");
        let (extents, mut generation) = region(&pool).expect("it was committed");
        let mut log = Self::activate(&pool, &extents, generation, 0).expect("no fault is injected");
        sim.acknowledged(1);
        for number in 1..=self.numbers {
            if log.next_sequence() == (generation + 1) * BATCHES {
                generation += 1;
                log = Self::activate(&pool, &extents, generation, number as u64 - 1).expect("no fault is injected");
            }
            sim.started(number + 1);
            log.append(pool.set(), &mut Pending::new(), 2, &[1]).expect("no fault is injected");
            sim.acknowledged(number + 1);
        }
    }

    fn recover(&self, sim: &Sim, allowed: RangeInclusive<usize>) -> Result<usize, String> {
        let text = |e: Error| e.to_string();
        let pool = match Pool::open(sim.clone(), path(), Some(LAYOUT), OpenMode::Writer) {
            Err(Error::NotFound { .. }) if *allowed.start() == 0 => return Ok(0),
            result => result.map_err(text)?,
        };
        let Some((extents, generation)) = region(&pool) else { return Ok(0) };
        let mut total = None;
        let replayed = SelfCertifyingLog::replay(pool.set(), Self::segment(&pool, &extents, generation), |batch| {
            total = match (batch.kind, total) {
                (1, None) => batch.payload[..].try_into().ok().map(u64::from_le_bytes),
                (2, Some(total)) => Some(total + 1),
                _ => return false,
            };
            true
        });
        let log = replayed.map_err(text)?;
        // The first generation's region is committed before its first record.
        let Some(total) = total else { return if generation == 1 { Ok(0) } else { Err("an empty generation".into()) } };
        let mut pending = Pending::new();
        log.flush_replayed(pool.set(), &mut pending);
        pool.set().fence(&mut pending).map_err(text)?;
        sim.observed(total as usize + 1);
        Self::activate(&pool, &extents, generation + 1, total).map_err(text)?;
        Ok(total as usize + 1)
    }
}

/// Records that differ in one word only. Recovery appends records of its own, which nobody counts: they are much like
/// the one that was torn before them, and must not complete it.
pub struct AlikeAppend {
    /// How many are appended.
    pub records: usize,
}

/// First number of the records that recovery appends.
const UNCOUNTED: u64 = 1 << 32;

fn alike(number: u64) -> Vec<u8> {
    // Long enough to lie in two sectors, the first of which has the header and the number.
    let words = std::iter::once(number).chain(std::iter::repeat_n(7, 59));
    words.flat_map(u64::to_le_bytes).collect()
}

impl Protocol for AlikeAppend {
    fn workload(&self, sim: &Sim) {
        let pool = create(sim, 1, 64 << 10).expect("a new pool");
        sim.started(1);
        sim.acknowledged(1);
        let (extents, generation) = region(&pool).expect("it was committed");
        let mut log = SelfCertifyingLog::start(Segment::new(extents[0], pool.uuid(), generation << 32, 1));
        for record in 1..=self.records {
            sim.started(record + 1);
            log.append(pool.set(), &mut Pending::new(), 7, &alike(record as u64)).expect("no fault is injected");
            sim.acknowledged(record + 1);
        }
    }

    fn recover(&self, sim: &Sim, allowed: RangeInclusive<usize>) -> Result<usize, String> {
        let text = |e: Error| e.to_string();
        if *allowed.end() == 0 {
            return Ok(0);
        }
        let pool = Pool::open(sim.clone(), path(), Some(LAYOUT), OpenMode::Writer).map_err(text)?;
        let (extents, generation) = region(&pool).ok_or("the region is gone")?;
        let segment = Segment::new(extents[0], pool.uuid(), generation << 32, 1);
        let mut records = 0;
        let log = SelfCertifyingLog::replay(pool.set(), segment, |batch| {
            let counted = batch.payload == alike(records + 1);
            records += u64::from(counted);
            counted || batch.payload == alike(UNCOUNTED)
        });
        let mut log = log.map_err(text)?;
        let mut pending = Pending::new();
        log.resume(pool.set(), &mut pending).map_err(text)?;
        pool.set().fence(&mut pending).map_err(text)?;
        let state = records as usize + 1;
        sim.observed(state);
        log.append(pool.set(), &mut Pending::new(), 7, &alike(UNCOUNTED)).map_err(text)?;
        Ok(state)
    }

    /// How the pool came into being is tested elsewhere.
    fn same(&self, a: usize, b: usize) -> bool {
        a.max(1) == b.max(1)
    }
}
