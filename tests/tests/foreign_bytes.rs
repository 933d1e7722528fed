//! Bytes that look right and belong to somebody else are never believed.

use std::path::Path;

use crash::Sim;
use pmem::{
    Extent, Granularity, Layout, MIN_FILE_BYTES, Media, MediaFile, Offset, OpenMode, PartOptions, Pending, Pool,
    RedoBatch, RegionSpec, Segment, SelfCertifyingLog, Uuid,
};

const LAYOUT: Layout = Layout { name: "foreign", version: 1 };
/// Where a new pool's log lies, and how long it is.
const FIRST_SEGMENT: Extent = Extent { offset: Offset::NULL, len_bytes: 64 << 10 };

fn new_pool(sim: &Sim, path: &str) -> Pool<Sim> {
    let path = Path::new(path);
    Pool::create(sim.clone(), path, LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).expect("a new pool")
}

fn put(pool: &Pool<Sim>, name: &str) {
    let mut batch = RedoBatch::new();
    let add = vec![pool.reserve(64).expect("there is room")];
    batch.put(name, RegionSpec { kind: 1, add, ..RegionSpec::default() });
    pool.commit(batch).expect("there is room");
}

fn batches(pool: &Pool<Sim>, segment: Segment) -> usize {
    let mut count = 0;
    SelfCertifyingLog::replay(pool.set(), segment, |_| {
        count += 1;
        true
    })
    .expect("nothing there is anybody's");
    count
}

fn log_of_pool() -> Extent {
    Extent { offset: Offset::new(0, 2 << 20), ..FIRST_SEGMENT }
}

/// A product may get the bytes of an old segment of the pool's log, and has its UUID and perhaps its generation.
#[test]
fn a_product_never_reads_the_log_of_the_pool() {
    let sim = Sim::new(Granularity::CacheLine);
    let pool = new_pool(&sim, "/pools/a");
    put(&pool, "a");
    assert_eq!(batches(&pool, Segment::new(log_of_pool(), pool.uuid(), 1, 1)), 0);
}

/// A product that uses the same bytes again has another generation, and another product another UUID.
#[test]
fn a_log_never_reads_another_generation_or_another_owner() {
    let sim = Sim::new(Granularity::CacheLine);
    let pool = new_pool(&sim, "/pools/a");
    let space = pool.reserve(4096).expect("there is room");
    let segment = |owner, generation| Segment::new(space.extent(), owner, generation, 1);
    let owner = pool.uuid();
    let mut log = SelfCertifyingLog::start(segment(owner, 7));
    log.append(pool.set(), &mut Pending::new(), 1, b"seven").expect("no fault is injected");
    assert_eq!(batches(&pool, segment(owner, 7)), 1);
    assert_eq!(batches(&pool, segment(owner, 8)), 0);
    assert_eq!(batches(&pool, segment(sim.new_uuid(), 7)), 0);
}

/// A batch stands where its sequence number says, and nowhere else: who expects another one reads none.
#[test]
fn a_log_never_reads_a_batch_out_of_sequence() {
    let sim = Sim::new(Granularity::CacheLine);
    let pool = new_pool(&sim, "/pools/a");
    let space = pool.reserve(4096).expect("there is room");
    let segment = |first_sequence| Segment::new(space.extent(), pool.uuid(), 7, first_sequence);
    let mut log = SelfCertifyingLog::start(segment(5));
    log.append(pool.set(), &mut Pending::new(), 1, b"five").expect("no fault is injected");
    assert_eq!([5, 4, 6].map(|first| batches(&pool, segment(first))), [1, 0, 0]);
}

/// What was durable when a later batch was written cannot be a torn end: it is damage, wherever it lies in the log.
#[test]
fn a_damaged_batch_below_a_whole_one_is_corruption() {
    let sim = Sim::new(Granularity::CacheLine);
    let pool = new_pool(&sim, "/pools/a");
    let space = pool.reserve(4096).expect("there is room");
    let segment = Segment::new(space.extent(), pool.uuid(), 7, 1);
    let mut log = SelfCertifyingLog::start(segment);
    for _ in 0..3 {
        log.append(pool.set(), &mut Pending::new(), 1, &[9; 40]).expect("no fault is injected");
    }
    // Batches lie 256 bytes apart: one byte of the payload of each, then one of its header.
    for at in [0, 256, 512].into_iter().flat_map(|batch| [batch + 70, batch + 3]) {
        let place = space.extent().offset.plus(at);
        let mut byte = [0];
        pool.set().load_bytes(place, &mut byte);
        pool.set().store_bytes(place, &[byte[0] ^ 1]);
        let replayed = SelfCertifyingLog::replay(pool.set(), segment, |_| true);
        // Nothing stands above the last one to prove that it was durable.
        let expected = if at < 512 { Err(pmem::ErrorCode::Corrupt) } else { Ok(512) };
        assert_eq!(replayed.map(|log| log.tail_bytes()).map_err(|error| error.code()), expected, "byte {at}");
        pool.set().store_bytes(place, &byte);
    }
}

/// A pool whose log was overwritten with the log of another pool of the same history is damaged, and says so.
#[test]
fn a_pool_never_reads_the_log_of_another_pool() {
    let sim = Sim::new(Granularity::CacheLine);
    for path in ["/pools/a", "/pools/b"] {
        let pool = new_pool(&sim, path);
        put(&pool, path);
        pool.close().expect("no fault is injected");
    }
    let mut log = vec![0; FIRST_SEGMENT.len_bytes as usize];
    let file = |path: &str| sim.open(Path::new(path), OpenMode::Writer).expect("it is there");
    file("/pools/b").pread(2 << 20, &mut log).expect("it is long enough");
    file("/pools/a").pwrite(2 << 20, &log).expect("it is long enough");
    let opened = Pool::open(sim.clone(), Path::new("/pools/a"), Some(LAYOUT), OpenMode::Reader);
    assert_eq!(opened.map(drop).map_err(|error| error.code()), Err(pmem::ErrorCode::Corrupt));
}

/// The end of a log that was closed in order is missing, and the hint with it: the superblock still knows where it was.
#[test]
fn a_log_that_ends_before_its_pool_was_closed_is_corruption() {
    const HINT_AT: u64 = 8192;
    const BATCH_BYTES: u64 = 256;
    let sim = Sim::new(Granularity::CacheLine);
    let pool = new_pool(&sim, "/pools/a");
    put(&pool, "a");
    put(&pool, "b");
    pool.close().expect("it can be marked clean");
    let open = |mode| Pool::open(sim.clone(), Path::new("/pools/a"), Some(LAYOUT), mode).map(drop);
    let modes = [OpenMode::Inspect, OpenMode::Reader, OpenMode::Writer];
    let file = sim.open(Path::new("/pools/a"), OpenMode::Inspect).expect("it is there");
    let header_at = |number: u64| log_of_pool().offset.byte() + number * BATCH_BYTES;
    let is_batch = |number: &u64| {
        let mut header = [0; 64];
        file.pread(header_at(*number), &mut header).expect("it is long enough");
        header != [0; 64]
    };
    let last = (0..).take_while(is_batch).last().expect("a checkpoint");
    file.pwrite(HINT_AT, &[0; 8]).expect("it is long enough");
    for mode in modes {
        assert!(open(mode).is_ok(), "{mode:?}: without the hint");
    }
    // The writer has opened and closed it, which stores no hint and leaves the end where it was.
    file.pwrite(header_at(last), &[0; 64]).expect("it is long enough");
    for mode in modes {
        let code = open(mode).map_err(|error| error.code());
        assert_eq!(code, Err(pmem::ErrorCode::Corrupt), "{mode:?}");
    }
}

/// A batch of the pool's own log, found in its file by its checksum.
struct Found {
    at: u64,
    seed: u32,
    header: [u8; 64],
    payload: Vec<u8>,
}

impl Found {
    fn sequence(&self) -> u64 {
        u64::from_le_bytes(self.header[..8].try_into().expect("8 bytes"))
    }

    /// Writes the batch back with this payload of the same length, as if it had always been so: all checksums hold.
    fn forge(&mut self, file: &impl MediaFile, payload: &[u8]) {
        self.header[56..60].copy_from_slice(&crc32c::crc32c_append(self.seed, payload).to_le_bytes());
        let crc = crc32c::crc32c_append(self.seed, &self.header[..60]);
        self.header[60..].copy_from_slice(&crc.to_le_bytes());
        file.pwrite(self.at, &self.header).expect("it is long enough");
        file.pwrite(self.at + 64, payload).expect("it is long enough");
    }
}

/// The last batch of the segment with this generation.
fn last_batch(file: &impl MediaFile, owner: Uuid, segment_generation: u64) -> Found {
    let seed = crc32c::crc32c_append(crc32c::crc32c(&owner.0), &segment_generation.to_le_bytes());
    let is_batch = |at: &u64| {
        let mut header = [0; 64];
        file.pread(*at, &mut header).expect("it is long enough");
        header[60..] == crc32c::crc32c_append(seed, &header[..60]).to_le_bytes()
    };
    let at = (0..MIN_FILE_BYTES).step_by(256).filter(is_batch).last().expect("a batch");
    let mut header = [0; 64];
    file.pread(at, &mut header).expect("it is long enough");
    let mut payload = vec![0; u64::from_le_bytes(header[16..24].try_into().expect("8 bytes")) as usize];
    file.pread(at + 64, &mut payload).expect("it is long enough");
    Found { at, seed, header, payload }
}

/// Sets eight bytes of a batch to its sequence number and to the one after it: how opening takes each.
fn as_of_now_and_of_later(sim: &Sim, mut batch: Found, at: usize) -> [Result<(), pmem::ErrorCode>; 2] {
    let path = Path::new("/pools/a");
    let file = sim.open(path, OpenMode::Inspect).expect("it is there");
    [batch.sequence(), batch.sequence() + 1].map(|generation| {
        let mut payload = batch.payload.clone();
        payload[at..at + 8].copy_from_slice(&generation.to_le_bytes());
        batch.forge(&file, &payload);
        Pool::open(sim.clone(), path, Some(LAYOUT), OpenMode::Inspect).map(drop).map_err(|error| error.code())
    })
}

/// What is named was born in the commit that named it or before.
#[test]
fn a_birth_in_the_future_is_corruption() {
    let sim = Sim::new(Granularity::CacheLine);
    let pool = new_pool(&sim, "/pools/a");
    put(&pool, "unborn");
    let owner = pool.uuid();
    drop(pool);
    let file = sim.open(Path::new("/pools/a"), OpenMode::Inspect).expect("it is there");
    let batch = last_batch(&file, owner, 1);
    let name_at = batch.payload.windows(6).position(|bytes| bytes == b"unborn").expect("the commit of it");
    // Between the name and its birth are kind and flags.
    let opened = as_of_now_and_of_later(&sim, batch, name_at + 6 + 8);
    assert_eq!(opened, [Ok(()), Err(pmem::ErrorCode::Corrupt)]);
}

/// What a checkpoint calls retired was retired when it was written.
#[test]
fn a_retirement_in_the_future_is_corruption() {
    let sim = Sim::new(Granularity::CacheLine);
    let pool = new_pool(&sim, "/pools/a");
    put(&pool, "a");
    pool.compact().expect("there is room");
    let owner = pool.uuid();
    drop(pool);
    let file = sim.open(Path::new("/pools/a"), OpenMode::Inspect).expect("it is there");
    let batch = last_batch(&file, owner, 2);
    // The last record of the checkpoint retires the segment that was left; its last field says when.
    let at = batch.payload.len() - 8;
    let opened = as_of_now_and_of_later(&sim, batch, at);
    assert_eq!(opened, [Ok(()), Err(pmem::ErrorCode::Corrupt)]);
}
