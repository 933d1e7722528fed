//! Readers in other processes beside a writer, in many interleavings of their accesses.
//!
//! Every access of at most 8 bytes and every lock is a place where another process may go on. The schedules are run by
//! shuttle: ones in which each process goes on for a while before another does, and ones with few changes of priority
//! (PCT), which find what needs a certain order of few events. Both are seeded, and a failure prints the schedule that
//! replays it.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;

use crash::Sim;
use pmem::{
    Error, ErrorCode, Granularity, Layout, MIN_FILE_BYTES, OpenMode, PartOptions, Pending, Pool, RedoBatch, Region,
    RegionSpec, remove_pool,
};
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use store::{Buffer, Object, ObjectView, PersistOptions, Store, Way};

const LAYOUT: Layout = Layout { name: "beside", version: 1 };
const NAMES: [&str; 2] = ["a", "b"];
const WORDS: usize = 12;

fn path() -> &'static Path {
    Path::new("/pools/p")
}

thread_local! {
    /// Whether there is anybody to switch to. All threads of shuttle are one thread of the system.
    static STARTED: Cell<bool> = const { Cell::new(false) };
}

/// A place where the scheduler may go on with another thread: an access to something shared. A yield, or the hint of a spin
/// loop, would say that this thread waits, and have the scheduler prefer the others.
fn switch() {
    if STARTED.get() {
        AtomicU64::new(0).load(Ordering::SeqCst);
    }
}

/// A machine with a pool at version 1, from which on every step counts.
fn start() -> (Sim, Pool<Sim>) {
    STARTED.set(false);
    let sim = Sim::interleaved(Granularity::CacheLine, switch);
    let pool = Pool::create(sim.clone(), path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).expect("a new pool");
    commit(&pool, 1);
    STARTED.set(true);
    (sim, pool)
}

/// Gives both names the content of a version, in one commit.
fn commit(pool: &Pool<Sim>, version: u64) {
    let mut batch = RedoBatch::new();
    for name in NAMES {
        let reservation = pool.reserve(8 * WORDS as u64).expect("there is room");
        let content: Vec<u8> = [version; WORDS].into_iter().flat_map(u64::to_le_bytes).collect();
        let mut pending = Pending::new();
        pool.set().nt_copy(&mut pending, reservation.extent().offset, &content);
        pool.set().fence(&mut pending).expect("no fault is injected");
        batch.put(name, RegionSpec { kind: version as u32, add: vec![reservation], ..RegionSpec::default() });
    }
    pool.commit(batch).expect("there is room");
}

/// The version that a region holds, by its description and by each of its words.
fn version(region: &Region<Sim>) -> u64 {
    let mut bytes = [0; 8 * WORDS];
    region.load_bytes(0, 0, &mut bytes);
    let words: Vec<u64> = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
    let version = u64::from(region.info().kind);
    assert!(words.iter().all(|word| *word == version), "version {version} is torn or overwritten: {words:?}");
    version
}

/// Both names, at one version, which is at least `acknowledged`.
fn look(pool: &Pool<Sim>, acknowledged: u64) -> Vec<Region<Sim>> {
    let regions = pool.regions("").expect("no fork");
    let versions: Vec<u64> = regions.iter().map(version).collect();
    assert_eq!(versions.len(), NAMES.len());
    assert_eq!(versions[0], versions[1], "half a commit is seen");
    assert!(versions[0] >= acknowledged, "version {} is seen after {acknowledged} was acknowledged", versions[0]);
    regions
}

fn open_reader(sim: &Sim) -> Pool<Sim> {
    Pool::open(sim.clone(), path(), Some(LAYOUT), OpenMode::Reader).expect("a reader is never in the way")
}

/// A writer that replaces, compacts, grows, closes and opens again beside two readers: one that stays and refreshes,
/// one that comes and goes.
fn readers_beside_a_writer() {
    let (sim, pool) = start();
    let acknowledged = Arc::new(AtomicU64::new(1));
    let staying = {
        let (sim, acknowledged) = (sim.clone(), acknowledged.clone());
        shuttle::thread::spawn(move || {
            let reader = open_reader(&sim);
            let first = look(&reader, 1);
            let held = version(&first[0]);
            for _ in 0..2 {
                let before = acknowledged.load(Ordering::SeqCst);
                reader.refresh().expect("a reader can always go on");
                look(&reader, before);
                assert!(first.iter().all(|region| version(region) == held), "a held view has changed");
            }
        })
    };
    let passing = {
        let (sim, acknowledged) = (sim.clone(), acknowledged.clone());
        shuttle::thread::spawn(move || {
            for _ in 0..2 {
                let before = acknowledged.load(Ordering::SeqCst);
                let regions = look(&open_reader(&sim), before);
                assert_eq!(version(&regions[0]), version(&regions[1]), "views outlive their pool");
            }
        })
    };
    let written = |pool: &Pool<Sim>, version: u64| {
        commit(pool, version);
        acknowledged.store(version, Ordering::SeqCst);
    };
    written(&pool, 2);
    written(&pool, 3);
    pool.compact().expect("there is room");
    written(&pool, 4);
    pool.grow(None, &PartOptions::single(MIN_FILE_BYTES)).expect("a new part");
    pool.close().expect("no fault is injected");
    let pool = loop {
        match Pool::open(sim.clone(), path(), Some(LAYOUT), OpenMode::Writer) {
            Err(error) if error.code() == ErrorCode::PoolBusy => shuttle::thread::yield_now(),
            result => break result.expect("it is whole"),
        }
    };
    written(&pool, 5);
    pool.compact().expect("there is room");
    staying.join().expect("the reader that stays");
    passing.join().expect("the reader that comes and goes");
    // Nobody reads any more: everything that was replaced is free again.
    pool.reclaim().expect("a writer may");
    assert_eq!(pool.info().retired_bytes, 0);
    look(&pool, 5);
}

/// Just enough commits that an extent is used again while a reader finds out what to pin.
fn a_reader_beside_commits() {
    let (sim, pool) = start();
    let reading = shuttle::thread::spawn(move || {
        let reader = open_reader(&sim);
        look(&reader, 1);
        reader.refresh().expect("a reader can always go on");
        look(&reader, 1);
    });
    for version in 2..6 {
        commit(&pool, version);
    }
    reading.join().expect("the reader");
}

/// The version that an object holds where changes are made: at its start and far from there.
fn changed_version(view: &ObjectView<Sim>) -> u64 {
    let words = view.to_vec::<u64>().expect("it is whole");
    let version = words[0];
    assert!(words[..3].iter().chain(&words[20..22]).all(|word| *word == version), "half a change is seen: {words:?}");
    assert!(words[3..20].iter().all(|word| *word == 0), "a change went astray: {words:?}");
    version
}

thread_local! {
    /// How often all of the object was written; how often changes went home, and had to wait because a reader came.
    static WHOLE: Cell<u32> = const { Cell::new(0) };
    static HOME: Cell<u32> = const { Cell::new(0) };
    static WAITING: Cell<u32> = const { Cell::new(0) };
}

fn count(ways: &'static std::thread::LocalKey<Cell<u32>>) {
    ways.set(ways.get() + 1);
}

/// A writer that changes some of an object, which is copied home where nobody looks, beside a reader that takes views and
/// moves on.
fn a_reader_beside_changes() {
    STARTED.set(false);
    let sim = Sim::interleaved(Granularity::CacheLine, switch);
    let store = Store::create(sim.clone(), path(), &PartOptions::single(MIN_FILE_BYTES)).expect("a new store");
    let options = PersistOptions::default();
    let zeros = [0u64; 120];
    store.persist(&[("a", Object::array(&zeros, &[120]).expect("it fits"))], &options).expect("there is room");
    let acknowledged = Arc::new(AtomicU64::new(0));
    STARTED.set(true);
    let reading = {
        let (sim, acknowledged) = (sim.clone(), acknowledged.clone());
        shuttle::thread::spawn(move || {
            let reader = Store::open(sim, path(), OpenMode::Reader).expect("a reader is never in the way");
            for _ in 0..2 {
                let before = acknowledged.load(Ordering::SeqCst);
                reader.refresh().expect("a reader can always go on");
                let view = reader.get("a").expect("it is there");
                let version = changed_version(&view);
                assert!(version >= before, "version {version} is seen after {before} was acknowledged");
                reader.refresh().expect("a reader can always go on");
                assert_eq!(changed_version(&view), version, "a held view has changed");
            }
        })
    };
    for version in 1u64..4 {
        let words: Vec<u8> = [version; 3].into_iter().flat_map(u64::to_le_bytes).collect();
        let mut transaction = store.transaction();
        transaction.change("a", Buffer(0), 0, words[..].into()).change("a", Buffer(0), 8 * 20, words[..16].into());
        let committed = transaction.commit(&options).expect("there is room");
        let waits = store.pool().region("a").expect("it is there").info().extents.len() > 1;
        match committed.written[0].way {
            Way::Whole => count(&WHOLE),
            Way::Changed(_) if waits => count(&WAITING),
            Way::Changed(_) => count(&HOME),
            Way::InPlace => panic!("nothing is changed in place"),
        }
        acknowledged.store(version, Ordering::SeqCst);
    }
    reading.join().expect("the reader");
    store.gc().expect("a writer may");
    assert_eq!(changed_version(&store.get("a").expect("it is there")), 3);
    assert_eq!(store.info().retired_bytes, 0);
}

thread_local! {
    /// How often an object was changed in place, and could not be because somebody had it; how often a reader was refused.
    static IN_PLACE: Cell<u32> = const { Cell::new(0) };
    static HAD: Cell<u32> = const { Cell::new(0) };
    static REFUSED: Cell<u32> = const { Cell::new(0) };
}

/// A writer that changes an object in place, or all of it when somebody has it, beside a reader that comes and goes.
fn a_reader_beside_a_change_in_place() {
    STARTED.set(false);
    let sim = Sim::interleaved(Granularity::CacheLine, switch);
    let store = Store::create(sim.clone(), path(), &PartOptions::single(MIN_FILE_BYTES)).expect("a new store");
    let options = PersistOptions::default();
    let mut words = [0u64; 120];
    store.persist(&[("a", Object::array(&words, &[120]).expect("it fits"))], &options).expect("there is room");
    let acknowledged = Arc::new(AtomicU64::new(0));
    STARTED.set(true);
    let reading = {
        let (sim, acknowledged) = (sim.clone(), acknowledged.clone());
        shuttle::thread::spawn(move || {
            for _ in 0..3 {
                let before = acknowledged.load(Ordering::SeqCst);
                let reader = Store::open(sim.clone(), path(), OpenMode::Reader).expect("a reader is never in the way");
                let view = match reader.get("a") {
                    Ok(view) => view,
                    Err(error) => {
                        assert_eq!(error.code(), ErrorCode::InUse, "{error}");
                        count(&REFUSED);
                        continue;
                    }
                };
                let version = changed_version(&view);
                assert!(version >= before, "version {version} is seen after {before} was acknowledged");
                reader.refresh().expect("a reader can always go on");
                assert_eq!(changed_version(&view), version, "a held view has changed");
            }
        })
    };
    for version in 1u64..4 {
        for word in [0, 1, 2, 20, 21] {
            words[word] = version;
        }
        match store.in_place_within("a") {
            Ok(view) => {
                let at = |word: usize| view.extent().offset.plus(8 * word as u64);
                for word in [20, 21, 0, 1, 2] {
                    store.pool().set().store_u64(at(word), version);
                }
                drop(view);
                store.gc().expect("a writer may");
                count(&IN_PLACE);
            }
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::InUse, "{error}");
                store
                    .persist(&[("a", Object::array(&words, &[120]).expect("it fits"))], &options)
                    .expect("there is room");
                count(&HAD);
            }
        }
        acknowledged.store(version, Ordering::SeqCst);
    }
    reading.join().expect("the reader");
    store.gc().expect("a writer may");
    assert_eq!(changed_version(&store.get("a").expect("it is there")), 3);
    assert_eq!(store.info().retired_bytes, 0);
}

/// Processes that want to make the same pool and write to it: one at a time does, the others are told to wait.
fn writers_beside_a_writer() {
    STARTED.set(true);
    let sim = Sim::interleaved(Granularity::CacheLine, switch);
    let wanting = |version: u64| {
        let sim = sim.clone();
        move || {
            let pool = match Pool::create(sim.clone(), path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES)) {
                Err(Error::AlreadyExists { .. }) => Pool::open(sim, path(), Some(LAYOUT), OpenMode::Writer),
                result => result,
            };
            match pool {
                Ok(pool) => {
                    commit(&pool, version);
                    look(&pool, version);
                    true
                }
                Err(error) => {
                    assert_eq!(error.code(), ErrorCode::PoolBusy, "{error}");
                    false
                }
            }
        }
    };
    let threads = [1, 2, 3].map(|version| shuttle::thread::spawn(wanting(version)));
    let wrote: Vec<bool> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    assert!(wrote.contains(&true), "nobody wrote");
    look(&open_reader(&sim), 1);
}

/// What another process does.
type Act = fn(&Sim);

thread_local! {
    /// What comes in between, and before which of the switches to come.
    static OTHER: Cell<Option<(u64, Act)>> = const { Cell::new(None) };
    static MACHINE: RefCell<Option<Sim>> = const { RefCell::new(None) };
}

/// A switch at which the other process runs from start to end, when it is its turn.
fn other() {
    match OTHER.take() {
        Some((0, act)) => {
            let sim = MACHINE.with_borrow(|sim| sim.clone().expect("it was set first"));
            act(&sim);
        }
        Some((left, act)) => OTHER.set(Some((left - 1, act))),
        None => {}
    }
}

/// Nothing, when somebody has the pool open.
fn remove(sim: &Sim) {
    if let Err(error) = remove_pool(sim.clone(), path()) {
        assert_eq!(error.code(), ErrorCode::PoolBusy, "{error}");
    }
}

fn remove_and_make_anew(sim: &Sim) {
    remove(sim);
    match Pool::create(sim.clone(), path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES)) {
        Ok(pool) => commit(&pool, 1),
        Err(error) => assert_eq!(error.code(), ErrorCode::AlreadyExists, "{error}"),
    }
}

/// How opening goes on for a writer when another process does something before its `at`th step; none when it has fewer.
fn open_writer_beside(act: Act, at: u64) -> Option<Result<(), ErrorCode>> {
    let sim = Sim::interleaved(Granularity::CacheLine, other);
    let pool = Pool::create(sim.clone(), path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).expect("a new pool");
    commit(&pool, 1);
    pool.close().expect("no fault is injected");
    MACHINE.set(Some(sim.clone()));
    OTHER.set(Some((at, act)));
    let opened = Pool::open(sim.clone(), path(), Some(LAYOUT), OpenMode::Writer);
    let had_its_turn = OTHER.take().is_none();
    if let Ok(pool) = &opened {
        // Whoever could open it has the pool that is there: what is acknowledged is found.
        commit(pool, 9);
        look(&open_reader(&sim), 9);
    }
    had_its_turn.then_some(opened.map(drop).map_err(|error| error.code()))
}

fn config() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    // A pool's calls need more than the 32 KiB that a thread has otherwise.
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::FailAfter(10_000_000);
    config
}

/// Schedules in which a thread goes on for a random while. Where each step chose its thread anew, all would go on at the
/// same pace, and one with little to do would never be done before one with much to do.
struct Bursts {
    rng: fastrand::Rng,
    left: usize,
    /// After how many steps another thread is chosen, on average.
    mean: u32,
}

impl Scheduler for Bursts {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.left = self.left.checked_sub(1)?;
        self.mean = 1 << self.rng.u32(0..12);
        Some(Schedule::new(self.rng.u64(..)))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, _is_yielding: bool) -> Option<TaskId> {
        let goes_on = current.filter(|current| runnable.iter().any(|task| task.id() == *current));
        match goes_on {
            Some(current) if self.rng.u32(..self.mean) > 0 => Some(current),
            _ => Some(runnable[self.rng.usize(..runnable.len())].id()),
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.rng.u64(..)
    }
}

fn explore(scenario: fn(), iterations: usize, changes: usize) {
    const SEED: u64 = 7;
    println!("seed {SEED}");
    let bursts = Bursts { rng: fastrand::Rng::with_seed(SEED), left: iterations, mean: 1 };
    shuttle::Runner::new(bursts, config()).run(scenario);
    let few_changes = shuttle::scheduler::PctScheduler::new_from_seed(SEED, changes, iterations);
    shuttle::Runner::new(few_changes, config()).run(scenario);
}

#[test]
fn readers_see_whole_commits_and_keep_what_they_hold() {
    explore(readers_beside_a_writer, 600, 4);
}

#[test]
fn a_reader_pins_what_it_reads_before_it_is_used_again() {
    explore(a_reader_beside_commits, 3000, 2);
}

#[test]
fn a_reader_sees_changes_whole_and_none_in_what_it_holds() {
    explore(a_reader_beside_changes, 3000, 3);
    let ways = [&WHOLE, &HOME, &WAITING].map(|ways| ways.get());
    assert!(ways.iter().all(|count| *count > 10), "whole, home, waiting: {ways:?}");
}

#[test]
fn what_is_changed_in_place_is_seen_by_nobody() {
    explore(a_reader_beside_a_change_in_place, 2000, 3);
    let times = [&IN_PLACE, &HAD, &REFUSED].map(|times| times.get());
    assert!(times.iter().all(|count| *count > 10), "in place, had by a reader, refused: {times:?}");
}

#[test]
fn of_several_writers_one_at_a_time_writes() {
    explore(writers_beside_a_writer, 2000, 4);
}

#[test]
fn nobody_writes_to_a_pool_that_was_removed() {
    let acts: [(Act, _); 2] = [(remove, Err(ErrorCode::NotFound)), (remove_and_make_anew, Ok(()))];
    for (act, before) in acts {
        let results: Vec<_> = (0..).map_while(|at| open_writer_beside(act, at)).collect();
        // Before the file was opened; before it was locked, where trying again helps; and ever after.
        assert_eq!(results[..2], [before, Err(ErrorCode::PoolBusy)]);
        assert!(results.len() > 100 && results[2..].iter().all(Result::is_ok), "{results:?}");
    }
}
