//! The durable table of the join, beside a model that knows which rows were inserted when.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::path::Path;

use bench::join::{Durable, DurableTable, Row};
use crash::{Protocol, Sim};
use pmem::{Error, Layout, MIN_FILE_BYTES, OpenMode, PartOptions, Pending, Pool, RedoBatch, RegionSpec};

pub(crate) const LAYOUT: Layout = Layout { name: "join", version: 1 };
const WORDS: usize = 2;

/// Makes a table, then inserts rows. State 1 is the empty table; each operation after it inserts the rows that are
/// acknowledged together.
pub struct TableSteps {
    /// When rows are made durable.
    pub durable: Durable,
    /// How many times rows are acknowledged.
    pub insertions: usize,
}

/// Few chains, so that rows of one operation meet in them; blocks for the inserters of recoveries, too.
const ROWS: usize = 4;
const INSERTERS: usize = 32;

/// Has bytes of something that is gone where the next extent of that length will lie. The pool has been written to, so that
/// its next commit has nothing to wait for but itself.
fn leave_behind(pool: &Pool<Sim>, len_bytes: u64) {
    let reservation = pool.reserve(len_bytes).expect("there is room");
    let mut pending = Pending::new();
    pool.set().nt_copy(&mut pending, reservation.extent().offset, &vec![0xa5; len_bytes as usize]);
    pool.set().fence(&mut pending).expect("no fault is injected");
    let mut batch = RedoBatch::new();
    batch.put("before", RegionSpec::default());
    pool.commit(batch).expect("there is room");
}

pub(crate) fn path() -> &'static Path {
    Path::new("/pools/join")
}

/// Rows of a table.
pub(crate) type Rows = Vec<Row<WORDS>>;

pub(crate) fn row(key: u64) -> Row<WORDS> {
    Row { key, value: [key << 32 | 1, !key] }
}

pub(crate) fn text(error: impl ToString) -> String {
    error.to_string()
}

impl TableSteps {
    /// Rows that are acknowledged together: those of a block of 256 bytes are 8.
    fn at_once(&self) -> u64 {
        match self.durable {
            Durable::EachRow => 1,
            Durable::Blocks => 8,
        }
    }

    /// Keys of the rows that the operation after a state inserts.
    fn keys_after(&self, state: usize) -> Range<u64> {
        let first = (state as u64 - 1) * self.at_once() + 1;
        first..first + self.at_once()
    }

    /// Inserts some of the rows of the operation after a state.
    fn insert(&self, sim: &Sim, table: &DurableTable<Sim, WORDS>, state: usize, missing: &[u64]) -> Result<(), String> {
        let rows: Vec<_> = missing.iter().map(|&key| row(key)).collect();
        sim.started(state + 1);
        let mut count = 0;
        table.inserter(self.durable).insert(&rows, |acknowledged| count = acknowledged).map_err(text)?;
        if count != rows.len() {
            return Err(format!("{count} of {} rows were acknowledged", rows.len()));
        }
        sim.acknowledged(state + 1);
        Ok(())
    }

    /// After how many operations a table stands, and the keys of the next one's rows that are missing: rows of one operation
    /// may be there or not, as long as it is not acknowledged; those of all before are there, and no others.
    fn state(&self, table: &DurableTable<Sim, WORDS>) -> Result<(usize, Vec<u64>), String> {
        let keys = table.keys();
        let found: BTreeSet<u64> = keys.iter().copied().collect();
        if found.len() != keys.len() {
            return Err(format!("a row is there twice: {keys:?}"));
        }
        if let Some(key) = keys.iter().find(|&&key| table.find(key) != Some(row(key))) {
            return Err(format!("row {key} is {:?}", table.find(*key)));
        }
        let mut state = 1;
        while self.keys_after(state).all(|key| found.contains(&key)) {
            state += 1;
        }
        let next = self.keys_after(state);
        if let Some(key) = found.iter().find(|&&key| key >= next.end) {
            return Err(format!("row {key} is there, and rows of {next:?} are not: {found:?}"));
        }
        Ok((state, next.filter(|key| !found.contains(key)).collect()))
    }
}

impl Protocol for TableSteps {
    fn workload(&self, sim: &Sim) {
        sim.started(1);
        let pool = Pool::create(sim.clone(), path(), LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).expect("a new pool");
        leave_behind(&pool, DurableTable::<Sim, WORDS>::len_bytes(ROWS, INSERTERS));
        let table = DurableTable::create(&pool, "table", ROWS, INSERTERS).expect("there is room");
        sim.acknowledged(1);
        let mut inserter = table.inserter(self.durable);
        for state in 1..=self.insertions {
            let rows: Vec<_> = self.keys_after(state).map(row).collect();
            sim.started(state + 1);
            inserter.insert(&rows, |_| sim.acknowledged(state + 1)).expect("no fault is injected");
        }
    }

    fn recover(&self, sim: &Sim, allowed: RangeInclusive<usize>) -> Result<usize, String> {
        let pool = match Pool::open(sim.clone(), path(), Some(LAYOUT), OpenMode::Writer) {
            Err(Error::NotFound { .. }) if *allowed.start() == 0 => return Ok(0),
            result => result.map_err(text)?,
        };
        let table = match DurableTable::open(&pool, "table") {
            Err(_) if *allowed.start() == 0 && pool.region("table").is_err() => return Ok(0),
            result => result.map_err(text)?,
        };
        let (state, missing) = self.state(&table)?;
        sim.observed(state);
        self.insert(sim, &table, state, &missing)?;
        let (after, _) = self.state(&table)?;
        if after != state + 1 {
            return Err(format!("after one more operation it stands after {after}, not {}", state + 1));
        }
        Ok(state)
    }
}
