//! Two inserters of the join's durable table that take turns, from one access, flush or fence to the next, so that they meet at the
//! head of one chain.

use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use bench::join::{Durable, DurableTable, Inserter};
use crash::{Protocol, Report, Sim};
use fastrand::Rng;
use pmem::{Error, MIN_FILE_BYTES, OpenMode, PartOptions, Pool};

use crate::join::{LAYOUT, Rows, path, row, text};

/// How many there are.
const INSERTERS: usize = 2;
/// Chains of the table, and blocks for the inserters of recoveries, too.
const ROWS: usize = 4;
const BLOCKS: usize = 32;

/// Two threads that insert rows into one chain.
///
/// Sets of rows are masks: bit k is the k-th of `keys`. A state that was recovered is a set of rows, from `SET` on, or 0 when
/// there is no table. What the machine is told of the workload are numbers of `Known` facts, which say what sets are
/// allowed.
pub struct TwoInserters {
    /// When rows are made durable.
    pub durable: Durable,
    /// Rows that each inserts at once.
    pub at_once: usize,
    /// How often each inserts.
    pub insertions: usize,
    /// Of the order of their turns.
    pub seed: u64,
    overtaken: AtomicUsize,
    known: Mutex<Vec<Known>>,
}

/// What is known at some time: the rows that were acknowledged, and those that somebody has begun to insert; none when there
/// was, or could be, no table.
#[derive(Clone, Copy, Default)]
struct Known {
    acknowledged: Option<usize>,
    started: Option<usize>,
}

const SET: usize = 1 << 32;

/// Keys of one chain, of the four that the table has.
fn keys() -> impl Iterator<Item = u64> {
    (1..).filter(|key: &u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 1)
}

fn rows(of: usize) -> Rows {
    keys()
        .take(usize::BITS as usize)
        .enumerate()
        .filter(|(bit, _)| of >> bit & 1 == 1)
        .map(|(_, key)| row(key))
        .collect()
}

impl TwoInserters {
    /// Each inserts so many rows at once, so often.
    pub fn new(durable: Durable, at_once: usize, insertions: usize, seed: u64) -> TwoInserters {
        let (overtaken, known) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        TwoInserters { durable, at_once, insertions, seed, overtaken, known }
    }

    /// What a campaign has found, without the stores of one that were not durable when rows of the other were acknowledged: what is
    /// under way was promised to nobody.
    pub fn judged(mut report: Report) -> Report {
        report.dirty_at_acknowledgement.clear();
        report
    }

    /// Rows of the latest workload that were acknowledged after others that lead to them: these were put on top of a head that nobody
    /// had waited for yet.
    pub fn overtaken(&self) -> usize {
        self.overtaken.load(Ordering::Relaxed)
    }

    /// The same, of a chain's keys, the latest first.
    fn overtaken_of(&self, chain: &[u64]) -> usize {
        let bits: Vec<usize> = chain.iter().filter_map(|&chained| keys().position(|key| key == chained)).collect();
        let known = self.lock();
        let acknowledged = |bit: usize| known.iter().position(|known| known.acknowledged.unwrap_or(0) >> bit & 1 == 1);
        let times: Vec<_> = bits.into_iter().map(acknowledged).collect();
        (1..times.len()).filter(|&older| times[..older].iter().any(|newer| newer < &times[older])).count()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes what is known from now on; its number.
    fn note(&self, change: impl FnOnce(&mut Known)) -> usize {
        let mut known = self.lock();
        let mut now = known.last().copied().unwrap_or_default();
        change(&mut now);
        known.push(now);
        known.len()
    }

    /// What a number stands for that the machine was told.
    fn known(&self, number: usize) -> Known {
        match number {
            0 => Known::default(),
            set @ SET.. => Known { acknowledged: Some(set - SET), started: Some(set - SET) },
            number => self.lock()[number - 1],
        }
    }

    /// Inserts what one of the two has to.
    fn insert_all(&self, sim: &Sim, inserter: &mut Inserter<'_, Sim, 2>, which: usize) {
        for insertion in 0..self.insertions {
            let first = (insertion * INSERTERS + which) * self.at_once;
            let set = ((1 << self.at_once) - 1) << first;
            sim.started(self.note(|known| known.started = known.started.map(|rows| rows | set)));
            let acknowledge = |_| {
                sim.acknowledged(self.note(|known| known.acknowledged = known.acknowledged.map(|rows| rows | set)));
            };
            inserter.insert(&rows(set), acknowledge).expect("no fault is injected");
        }
    }

    /// The rows of a table, all of which are whole.
    fn set(&self, table: &DurableTable<Sim, 2>) -> Result<usize, String> {
        let mut set = 0;
        for key in table.keys() {
            let bit = keys().take(usize::BITS as usize / 2).position(|known| known == key);
            let bit = bit.ok_or_else(|| format!("key {key} was never inserted"))?;
            if set >> bit & 1 == 1 {
                return Err(format!("row {key} is there twice"));
            }
            if table.find(key) != Some(row(key)) {
                return Err(format!("row {key} is {:?}", table.find(key)));
            }
            set |= 1 << bit;
        }
        Ok(set)
    }
}

impl fmt::Display for TwoInserters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TwoInserters { durable, at_once, insertions, seed, .. } = self;
        write!(f, "two inserters of {at_once} rows, {insertions} times each, {durable:?}, turns of seed {seed}")
    }
}

impl Protocol for TwoInserters {
    fn workload(&self, sim: &Sim) {
        self.lock().clear();
        sim.started(self.note(|known| known.started = Some(0)));
        let options = PartOptions::single(MIN_FILE_BYTES);
        let pool = Pool::create(sim.clone(), path(), LAYOUT, &options).expect("a new pool");
        drop(DurableTable::<_, 2>::create(&pool, "table", ROWS, BLOCKS).expect("there is room"));
        drop(pool);
        // Only what the two do is interleaved.
        let pool = Pool::open(sim.switching(Turns::pass), path(), Some(LAYOUT), OpenMode::Writer).expect("it is there");
        let table = DurableTable::open(&pool, "table").expect("it is there");
        sim.acknowledged(self.note(|known| known.acknowledged = Some(0)));
        let turns = Arc::new(Turns::new(self.seed));
        thread::scope(|scope| {
            for which in 0..INSERTERS {
                let (turns, table) = (turns.clone(), &table);
                scope.spawn(move || {
                    let _taking = Taking::new(turns, which);
                    self.insert_all(sim, &mut table.inserter(self.durable), which);
                });
            }
        });
        self.overtaken.store(self.overtaken_of(&table.keys()), Ordering::Relaxed);
    }

    fn recover(&self, sim: &Sim, allowed: RangeInclusive<usize>) -> Result<usize, String> {
        let may_be_empty = self.known(*allowed.start()).acknowledged.is_none();
        let pool = match Pool::open(sim.clone(), path(), Some(LAYOUT), OpenMode::Writer) {
            Err(Error::NotFound { .. }) if may_be_empty => return Ok(0),
            result => result.map_err(text)?,
        };
        let table = match DurableTable::open(&pool, "table") {
            Err(_) if may_be_empty && pool.region("table").is_err() => return Ok(0),
            result => result.map_err(text)?,
        };
        let set = self.set(&table)?;
        sim.observed(SET + set);
        // One more row goes in after any crash.
        let more = set | (set + 1);
        sim.started(SET + more);
        table.inserter(self.durable).insert(&rows(more & !set), |_| sim.acknowledged(SET + more)).map_err(text)?;
        match self.set(&table)? {
            found if found == more => Ok(SET + set),
            found => Err(format!("with one row more there are {found:b}, not {more:b}")),
        }
    }

    fn allows(&self, allowed: &RangeInclusive<usize>, state: usize) -> bool {
        let (must, may) = (self.known(*allowed.start()).acknowledged, self.known(*allowed.end()).started);
        match state.checked_sub(SET) {
            None => must.is_none(),
            Some(set) => must.unwrap_or(0) & !set == 0 && may.is_some_and(|may| set & !may == 0),
        }
    }
}

/// Whose turn it is: one thread runs at a time, so that every run of a seed is the same.
struct Turns {
    state: Mutex<Turn>,
    changed: Condvar,
}

struct Turn {
    /// The number of the thread whose turn it is.
    of: usize,
    has_ended: [bool; INSERTERS],
    rng: Rng,
    /// Steps of a turn, on average: with 1 they alternate, with more one may go on to the end of a row while the other has just
    /// begun one.
    steps: u32,
}

thread_local! {
    static TAKING: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
}

impl Turns {
    fn new(seed: u64) -> Turns {
        let mut rng = Rng::with_seed(seed);
        let steps = 1 << rng.u32(0..4);
        Turns { state: Mutex::new(Turn { of: 0, has_ended: [false; INSERTERS], rng, steps }), changed: Condvar::new() }
    }

    /// Lets the other go on until it passes the turn back, or ends, where the turn is over; does nothing on a thread that takes no
    /// turns.
    fn pass() {
        TAKING.with_borrow(|taking| {
            if let Some((turns, this)) = taking {
                turns.step(*this);
                turns.wait(*this);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.state.lock().expect("nothing panics here")
    }

    fn step(&self, this: usize) {
        let mut turn = self.lock();
        let steps = turn.steps;
        if turn.rng.u32(..steps) == 0 {
            self.hand_on(&mut turn, this);
        }
    }

    fn hand_on(&self, turn: &mut Turn, this: usize) {
        if !turn.has_ended[1 - this] {
            turn.of = 1 - this;
            self.changed.notify_all();
        }
    }

    fn wait(&self, this: usize) {
        drop(self.changed.wait_while(self.lock(), |turn| turn.of != this).expect("nothing panics here"));
    }
}

/// A thread that takes turns until it ends, also by a panic.
struct Taking(Arc<Turns>, usize);

impl Taking {
    fn new(turns: Arc<Turns>, this: usize) -> Taking {
        turns.wait(this);
        TAKING.set(Some((turns.clone(), this)));
        Taking(turns, this)
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        TAKING.set(None);
        let mut turn = self.0.lock();
        turn.has_ended[self.1] = true;
        self.0.hand_on(&mut turn, self.1);
    }
}
