//! Failures of the system: a disk that is full, a page that cannot be written back. Each comes back as a typed error,
//! and what was acknowledged is there afterwards.

use std::path::Path;

use crash::{Fault, Sim};
use pmem::{
    ErrorCode, Granularity, Layout, MIN_FILE_BYTES, Media, OpenMode, PartOptions, Pending, Pool, RedoBatch, RegionSpec,
    Result,
};

const LAYOUT: Layout = Layout { name: "faults", version: 1 };

fn path() -> &'static Path {
    Path::new("/pools/p")
}

fn open(sim: &Sim) -> Pool<Sim> {
    Pool::open(sim.clone(), path(), Some(LAYOUT), OpenMode::Writer).expect("the faults are over")
}

fn put(pool: &Pool<Sim>, name: &str) -> Result<()> {
    let reservation = pool.reserve(200)?;
    let mut pending = Pending::new();
    pool.set().nt_copy(&mut pending, reservation.extent().offset, &[7; 200]);
    pool.set().fence(&mut pending)?;
    let mut batch = RedoBatch::new();
    batch.put(name, RegionSpec { kind: 1, add: vec![reservation], ..RegionSpec::default() });
    pool.commit(batch).map(drop)
}

/// Everything that writes, in one order. Operation n acknowledges the name n.
fn operations(pool: &Pool<Sim>, acknowledged: &mut Vec<String>) -> Result<()> {
    for number in 0..4 {
        put(pool, &number.to_string())?;
        acknowledged.push(number.to_string());
        match number {
            1 => pool.compact()?,
            2 => pool.grow(None, &PartOptions::single(MIN_FILE_BYTES))?,
            _ => {}
        }
    }
    Ok(())
}

/// The n-th write-back fails, for every n there is.
#[test]
fn after_a_failed_write_back_nothing_is_acknowledged_and_nothing_acknowledged_is_lost() {
    let mut failures = 0;
    for nth in 0.. {
        let sim = Sim::new(Granularity::Page);
        let pool = Pool::create(sim.clone(), path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).expect("a pool");
        put(&pool, "before").expect("no fault yet");
        sim.inject(Fault::WriteBack(nth));
        let mut acknowledged = vec!["before".to_owned()];
        let Err(error) = operations(&pool, &mut acknowledged) else {
            assert!(failures > 10, "only {failures} write-backs were made");
            break;
        };
        failures += 1;
        assert_eq!(error.code(), ErrorCode::Io, "write-back {nth}: {error}");
        // Growth writes to files of its own first: the pool itself is as it was when that fails.
        if let Err(refused) = put(&pool, "after") {
            assert_eq!(refused.code(), ErrorCode::WritesRefused, "write-back {nth}");
            assert_eq!(pool.compact().map_err(|e| e.code()), Err(ErrorCode::WritesRefused));
            let grown = pool.grow(None, &PartOptions::single(MIN_FILE_BYTES));
            assert_eq!(grown.map_err(|e| e.code()), Err(ErrorCode::WritesRefused));
            assert_eq!(pool.reserve(8).map(drop).map_err(|e| e.code()), Err(ErrorCode::WritesRefused));
            let reader = Pool::open(sim.clone(), path(), Some(LAYOUT), OpenMode::Reader).expect("a reader can");
            let names: Vec<String> = reader.regions("").expect("no fork").iter().map(|r| r.name().to_owned()).collect();
            assert!(
                names.iter().all(|name| acknowledged.contains(name)),
                "{names:?} are shown, {acknowledged:?} are true"
            );
        } else {
            acknowledged.push("after".into());
        }
        drop(pool);
        let pool = open(&sim);
        for name in &acknowledged {
            pool.region(name).unwrap_or_else(|error| panic!("write-back {nth}, {name}: {error}"));
        }
        put(&pool, "again").expect("the faults are over");
    }
    println!("{failures} write-backs failed in turn");
}

/// The kernel tells one thread of a page that another one has written; neither may go on.
#[test]
fn a_failed_write_back_of_one_payload_stops_every_other_commit() {
    let sim = Sim::new(Granularity::Page);
    let pool = Pool::create(sim.clone(), path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).expect("a pool");
    let (mine, yours) = (pool.reserve(100).expect("room"), pool.reserve(100).expect("room"));
    let (mut my_pending, mut your_pending) = (Pending::new(), Pending::new());
    pool.set().nt_copy(&mut my_pending, mine.extent().offset, &[1; 100]);
    pool.set().nt_copy(&mut your_pending, yours.extent().offset, &[2; 100]);
    sim.inject(Fault::WriteBack(0));
    assert_eq!(pool.set().fence(&mut your_pending).map_err(|e| e.code()), Err(ErrorCode::Io));
    assert_eq!(pool.set().fence(&mut my_pending).map_err(|e| e.code()), Err(ErrorCode::WritesRefused));
    let mut batch = RedoBatch::new();
    batch.put("mine", RegionSpec { kind: 1, add: vec![mine], ..RegionSpec::default() });
    assert_eq!(pool.commit(batch).map(drop).map_err(|e| e.code()), Err(ErrorCode::WritesRefused));
    drop(pool);
    assert_eq!(open(&sim).info().names, 0);
}

#[test]
fn a_full_disk_is_said_and_leaves_nothing_behind() {
    let sim = Sim::new(Granularity::CacheLine);
    let create = || Pool::create(sim.clone(), path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES));
    sim.inject(Fault::NoSpace);
    assert_eq!(create().map(drop).map_err(|e| e.code()), Err(ErrorCode::FileSystemFull));
    assert!(!sim.exists(path()).expect("it can be asked"));
    let pool = create().expect("there is room again");
    put(&pool, "a").expect("there is room");
    sim.inject(Fault::NoSpace);
    let grown = pool.grow(None, &PartOptions::single(MIN_FILE_BYTES));
    assert_eq!(grown.map_err(|e| e.code()), Err(ErrorCode::FileSystemFull));
    put(&pool, "b").expect("the pool goes on as it was");
    pool.grow(None, &PartOptions::single(MIN_FILE_BYTES)).expect("there is room again");
    assert_eq!(pool.info().parts.len(), 2);
}

/// How often something can fail that is tried with its first failure, its second, and so on, until it does not fail.
fn each_failing(mut attempt: impl FnMut(&Sim, u32) -> bool) -> u32 {
    let tries = |nth: &u32| {
        let sim = Sim::new(Granularity::Page);
        !attempt(&sim, *nth)
    };
    (0..).take_while(tries).count() as u32
}

#[test]
fn a_creation_with_a_failed_write_back_leaves_nothing_behind() {
    let failures = each_failing(|sim, nth| {
        let create = || Pool::create(sim.clone(), path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES));
        sim.inject(Fault::WriteBack(nth));
        match create() {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Io, "write-back {nth}");
                for name in ["p", "p.remanent-creating"] {
                    assert!(!sim.exists(&path().with_file_name(name)).unwrap(), "{name} after write-back {nth}");
                }
                put(&create().expect("the fault is over"), "a").expect("a new pool");
                false
            }
        }
    });
    println!("{failures} write-backs failed in turn");
    assert!(failures > 3, "only {failures}");
}

#[test]
fn a_growth_with_a_failed_write_back_is_whole_or_nothing() {
    let options = PartOptions::single(MIN_FILE_BYTES);
    let (mut linked, mut unlinked) = (0, 0);
    let failures = each_failing(|sim, nth| {
        let pool = Pool::create(sim.clone(), path(), LAYOUT, &options).expect("there is room");
        put(&pool, "a").expect("there is room");
        sim.inject(Fault::WriteBack(nth));
        let Err(error) = pool.grow(None, &options) else { return true };
        assert_eq!(error.code(), ErrorCode::Io, "write-back {nth}");
        drop(pool);
        let pool = open(sim);
        let (parts, link) = (pool.info().parts.len(), path().with_file_name("p.1"));
        assert_eq!(sim.exists(&link).unwrap(), parts == 2, "write-back {nth}");
        if parts == 2 {
            linked += 1
        } else {
            unlinked += 1
        }
        pool.region("a").expect("what was acknowledged");
        pool.grow(None, &options).expect("the fault is over");
        assert_eq!(pool.info().parts.len(), parts + 1);
        false
    });
    println!("{failures} write-backs failed in turn, {linked} after the link");
    assert!(unlinked > 0 && linked > 0, "{unlinked} before the link, {linked} after it");
}

/// A store that needs a block which the file system has not, at each place where one is made: what was acknowledged stays,
/// and the pool goes on, or is closed, or killed.
#[test]
fn a_pool_goes_on_after_a_store_that_finds_no_block() {
    let options = PartOptions::single(MIN_FILE_BYTES);
    for (goes_on, closes) in [(true, true), (true, false), (false, true), (false, false)] {
        let failures = each_failing(|sim, nth| {
            let pool = Pool::create(sim.clone(), path(), LAYOUT, &options).expect("there is room");
            put(&pool, "before").expect("there is room");
            sim.inject(Fault::Guard(nth));
            let steps: [(&str, &dyn Fn() -> Result<()>); 7] = [
                ("a", &|| put(&pool, "a")),
                ("", &|| pool.compact()),
                ("b", &|| put(&pool, "b")),
                ("p.1", &|| pool.grow(None, &options)),
                ("", &|| pool.compact()),
                ("c", &|| put(&pool, "c")),
                ("d", &|| put(&pool, "d")),
            ];
            let (mut has_failed, mut done) = (false, vec!["before"]);
            for (name, step) in steps {
                if let Err(error) = step() {
                    assert_eq!(error.code(), ErrorCode::FileSystemFull, "guard {nth}");
                    assert!(!has_failed, "guard {nth}: one failure was injected");
                    has_failed = true;
                    if !goes_on {
                        break;
                    }
                    step().unwrap_or_else(|error| panic!("guard {nth}: the block is there now: {error}"));
                }
                done.push(name);
            }
            if closes {
                pool.close().expect("it can be marked clean");
            } else {
                sim.kill();
            }
            let pool = open(sim);
            let grown = usize::from(done.contains(&"p.1"));
            assert_eq!(pool.info().parts.len(), 1 + grown, "guard {nth}");
            let mut expected: Vec<&str> = done.into_iter().filter(|name| !["", "p.1"].contains(name)).collect();
            expected.sort_unstable();
            let regions = pool.regions("").unwrap();
            let names: Vec<&str> = regions.iter().map(|region| region.name()).collect();
            assert_eq!(names, expected, "guard {nth}");
            !has_failed
        });
        println!("{failures} stores found no block in turn");
        assert!(failures > 8, "only {failures}");
    }
}
