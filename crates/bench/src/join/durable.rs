//! A hash table whose rows survive: built in a pool, a row or a block of rows at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use pmem::{Media, Offset, Pending, Pool, RedoBatch, Region, RegionSpec, Touch};

use super::row::{Matched, Row, hash};
use crate::error::{Error, Result};
use crate::format::{BLOCK_BYTES, KIND, Places, encode_entry, entry_at};

/// When rows are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durable {
    /// Each by itself: its entry is stored and flushed, then its chain's head.
    EachRow,
    /// As many as fit into a block of 256 bytes: the block is written past the cache, then the heads of its chains.
    Blocks,
}

/// A table of chains in a region of a pool; its bytes are in the page on the format.
///
/// Inserting rows takes two fences: entries are written, and waited for; then the heads of their chains are changed to lead
/// to them, and waited for; then the rows are acknowledged. What a crash leaves:
///
/// | crash | the row |
/// | --- | --- |
/// | before the first fence is over | is not there: nothing leads to its entry, which may be torn |
/// | after it, and before the second is over | is there or not, and if so it is whole |
/// | after the second | is there |
///
/// # Invariants
/// 1. All heads are 0, and durable, before the catalogue names the region.
/// 2. An entry is durable, whole, before a head that leads to it is stored; while a head leads to it, it is not changed.
/// 3. A row is acknowledged after a head that leads to it is durable.
/// 4. What another process has left visible is made durable before it is shown: opening flushes the heads. The entries they
///    lead to are durable by invariant 2.
/// 5. A block is one inserter's. Blocks with an entry that a head leads to are never given out again.
pub struct DurableTable<M: Media, const W: usize> {
    region: Region<M>,
    start: Offset,
    places: Places,
    /// The next block that nobody has.
    next_block: AtomicU64,
}

impl<M: Media, const W: usize> DurableTable<M, W> {
    /// Bytes that a table for so many rows and inserters needs in its pool.
    pub fn len_bytes(rows: usize, inserters: usize) -> u64 {
        Self::places(rows, inserters).map_or(0, |places| places.len_bytes())
    }

    fn places(rows: usize, inserters: usize) -> Option<Places> {
        let a_block = Places::new(W, 2, 0)?.block_entries();
        // Each inserter may leave its last block all but empty.
        Places::new(W, rows.next_power_of_two().max(2) as u64, (rows as u64).div_ceil(a_block) + inserters as u64)
    }

    /// Makes an empty table for so many rows, which so many [`Inserter`]s insert, each in one call.
    ///
    /// # Errors
    /// `Unavailable` when rows do not fit into a block; `Pool` when the pool is full or cannot be written.
    pub fn create(pool: &Pool<M>, name: &str, rows: usize, inserters: usize) -> Result<Self> {
        let places = Self::places(rows, inserters)
            .ok_or_else(|| Error::unavailable(format!("durable rows of {W} words, {rows} of them")))?;
        let reservation = pool.reserve(places.len_bytes())?;
        let (set, mut pending) = (pool.set(), Pending::new());
        let zeros = vec![0; places.heads_bytes().min(CLEARED_BYTES) as usize];
        let mut at = 0;
        while at < places.heads_bytes() {
            let bytes = (places.heads_bytes() - at).min(CLEARED_BYTES);
            set.nt_copy(&mut pending, reservation.extent().offset.plus(at), &zeros[..bytes as usize]);
            at += bytes;
        }
        set.fence(&mut pending)?;
        let mut batch = RedoBatch::new();
        batch.put(
            name,
            RegionSpec { kind: KIND, meta: places.encode(), add: vec![reservation], ..RegionSpec::default() },
        );
        pool.commit(batch)?;
        let region = pool.region(name)?;
        Ok(DurableTable { start: region.info().extents[0].offset, region, places, next_block: AtomicU64::new(0) })
    }

    /// Opens a table after whatever has happened, and checks all of it.
    ///
    /// # Errors
    /// `Pool`: there is no such region, it is not a table of such rows or is damaged (`Corrupt`), or could not be made
    /// durable.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        let region = pool.region(name)?;
        let corrupt = |what| pmem::Error::Corrupt { path: pool.set().path().to_owned(), what, offset_bytes: 0 };
        let info = region.info();
        let places =
            Places::decode(&info.meta).filter(|places| places.words() == W && info.kind == KIND && info.flags == 0);
        let places = places.ok_or_else(|| corrupt("a region is not a join's table of such rows"))?;
        let extent = match info.extents[..] {
            [extent] if extent.len_bytes >= places.len_bytes() => extent,
            _ => Err(corrupt("a join's table is shorter than it says"))?,
        };
        let table = DurableTable { start: extent.offset, region, places, next_block: AtomicU64::new(0) };
        let mut pending = Pending::new();
        table.set().flush_adopted(&mut pending, table.start, places.heads_bytes());
        table.set().fence(&mut pending)?;
        let last = table.check().map_err(corrupt)?;
        table.next_block.store(if last > 0 { places.block_of(last) + 1 } else { 0 }, Ordering::Relaxed);
        Ok(table)
    }

    /// Follows every chain; the highest number of an entry that was met.
    fn check(&self) -> std::result::Result<u64, &'static str> {
        let most = self.places.blocks * self.places.block_entries();
        let (mut is_met, mut last) = (vec![false; most as usize + 1], 0);
        for chain in 0..self.places.chains {
            let mut entry = self.load(self.places.head_at(chain));
            while entry > 0 {
                if !self.places.has_entry(entry) {
                    return Err("a chain leads out of its table");
                }
                if std::mem::replace(&mut is_met[entry as usize], true) {
                    return Err("two chains have met");
                }
                if self.chain(self.load(self.places.entry_at(entry) + entry_at::KEY)) != chain {
                    return Err("a key is in a chain that is not its own");
                }
                last = last.max(entry);
                entry = self.load(self.places.entry_at(entry) + entry_at::NEXT);
            }
        }
        Ok(last)
    }

    fn set(&self) -> &pmem::PoolSet<M> {
        self.region.set()
    }

    #[inline]
    fn load(&self, at: u64) -> u64 {
        self.set().load_u64(self.start.plus(at))
    }

    #[inline]
    fn chain(&self, key: u64) -> u64 {
        hash(key) >> (u64::BITS - self.places.chains.trailing_zeros())
    }

    /// The row with this key.
    pub fn find(&self, key: u64) -> Option<Row<W>> {
        let mut entry = self.load(self.places.head_at(self.chain(key)));
        while entry > 0 {
            let at = self.places.entry_at(entry);
            if self.load(at + entry_at::KEY) == key {
                let value = std::array::from_fn(|word| self.load(at + entry_at::VALUE + 8 * word as u64));
                return Some(Row { key, value });
            }
            entry = self.load(at + entry_at::NEXT);
        }
        None
    }

    /// Keys of all rows, in no order.
    pub fn keys(&self) -> Vec<u64> {
        let mut keys = Vec::new();
        for chain in 0..self.places.chains {
            let mut entry = self.load(self.places.head_at(chain));
            while entry > 0 {
                let at = self.places.entry_at(entry);
                keys.push(self.load(at + entry_at::KEY));
                entry = self.load(at + entry_at::NEXT);
            }
        }
        keys
    }

    /// Has all of its pages there, so that none is missing later.
    pub(super) fn populate(&self) -> Result<()> {
        Ok(self.set().guard(self.start, self.places.len_bytes(), Touch::Store)?)
    }

    /// Looks up rows.
    pub(super) fn probe<const S: usize>(&self, rows: &[Row<S>]) -> Matched {
        let mut matched = Matched::default();
        for row in rows {
            if let Some(found) = self.find(row.key) {
                matched.add(found.mix(), row.value[0]);
            }
        }
        matched
    }

    /// Somebody who inserts rows, one of any number at a time.
    pub fn inserter(&self, durable: Durable) -> Inserter<'_, M, W> {
        Inserter {
            table: self,
            durable,
            next: 0,
            left: 0,
            heads: Vec::new(),
            bytes: Vec::new(),
            pending: Pending::new(),
        }
    }
}

/// Bytes of the heads that are made 0 at a time.
const CLEARED_BYTES: u64 = 1 << 20;

/// Inserts rows into a table; stays on its thread.
pub struct Inserter<'t, M: Media, const W: usize> {
    table: &'t DurableTable<M, W>,
    durable: Durable,
    /// The next entry of this inserter's block, and how many it has left.
    next: u64,
    left: u64,
    /// Of the rows that are being inserted: the chain, and what its head must say for the entry to be right.
    heads: Vec<(u64, u64)>,
    bytes: Vec<u8>,
    pending: Pending,
}

impl<M: Media, const W: usize> Inserter<'_, M, W> {
    /// Inserts rows whose keys are not there yet; calls `acknowledged` with how many rows are durable, whenever there are
    /// more.
    ///
    /// # Errors
    /// `Memory` when the table is full; `Pool` when rows could not be made durable. Rows that were not acknowledged are
    /// there or not.
    pub fn insert(&mut self, rows: &[Row<W>], mut acknowledged: impl FnMut(usize)) -> Result<()> {
        let at_once = self.at_once();
        let mut done = 0;
        for rows in rows.chunks(at_once as usize) {
            self.insert_at_once(rows)?;
            done += rows.len();
            acknowledged(done);
        }
        Ok(())
    }

    /// Entries that are taken together.
    fn at_once(&self) -> u64 {
        match self.durable {
            Durable::EachRow => 1,
            Durable::Blocks => self.table.places.block_entries(),
        }
    }

    /// Inserts no more rows than are taken together.
    fn insert_at_once(&mut self, rows: &[Row<W>]) -> Result<()> {
        let first = self.take()?;
        self.write_entries(first, rows);
        self.table.set().fence(&mut self.pending)?;
        for number in 0..rows.len() {
            self.link(first, number)?;
        }
        Ok(self.table.set().fence(&mut self.pending)?)
    }

    /// The number of the first of the entries that are taken together, side by side.
    fn take(&mut self) -> Result<u64> {
        let places = &self.table.places;
        if self.left == 0 {
            let block = self.table.next_block.fetch_add(1, Ordering::Relaxed);
            if block >= places.blocks {
                return Err(Error::memory(format!("the table's {} blocks are full", places.blocks)));
            }
            (self.next, self.left) = (places.first_entry(block), places.block_entries());
        }
        let (first, taken) = (self.next, self.at_once());
        self.next += taken;
        self.left -= taken;
        Ok(first)
    }

    /// Writes entries that lead to what their chains' heads say now, or to one another, and starts their write-back.
    fn write_entries(&mut self, first: u64, rows: &[Row<W>]) {
        self.heads.clear();
        self.bytes.clear();
        for row in rows {
            let chain = self.table.chain(row.key);
            let of_these = self.heads.iter().rposition(|(of, _)| *of == chain).map(|at| first + at as u64);
            let before = of_these.unwrap_or_else(|| self.table.load(self.table.places.head_at(chain)));
            self.heads.push((chain, before));
            encode_entry(before, row, &mut self.bytes);
        }
        let (set, at) = (self.table.set(), self.table.start.plus(self.table.places.entry_at(first)));
        match self.durable {
            Durable::EachRow => {
                set.store_bytes(at, &self.bytes);
                set.flush(&mut self.pending, at, self.bytes.len() as u64);
            }
            Durable::Blocks => {
                // What is left of the block is this inserter's, too, and a medium writes blocks whole.
                self.bytes.resize(BLOCK_BYTES as usize, 0);
                set.nt_copy(&mut self.pending, at, &self.bytes);
            }
        }
    }

    /// Has the chain of a row lead to its entry, and starts the write-back of its head. When another inserter has been
    /// quicker, the entry is made right and durable first.
    fn link(&mut self, first: u64, number: usize) -> Result<()> {
        let (set, places, start) = (self.table.set(), &self.table.places, self.table.start);
        let (entry, (chain, mut before)) = (first + number as u64, self.heads[number]);
        let head = start.plus(places.head_at(chain));
        while let Err(found) = set.cas_u64(head, before, entry) {
            let next = start.plus(places.entry_at(entry) + entry_at::NEXT);
            set.store_u64(next, found);
            set.flush(&mut self.pending, next, 8);
            set.fence(&mut self.pending)?;
            before = found;
        }
        set.flush(&mut self.pending, head, 8);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pmem::{Heap, Layout, OpenMode, PartOptions};

    use super::*;
    use crate::crew;

    const LAYOUT: Layout = Layout { name: "join", version: 1 };

    fn pool(media: &Heap) -> Pool<Heap> {
        Pool::create(media.clone(), Path::new("/p"), LAYOUT, &PartOptions::single(8 << 20)).unwrap()
    }

    fn rows<const W: usize>(keys: std::ops::Range<u64>) -> Vec<Row<W>> {
        keys.map(|key| Row { key, value: std::array::from_fn(|word| key * 100 + word as u64) }).collect()
    }

    fn holds<const W: usize>(table: &DurableTable<Heap, W>, count: u64) {
        let mut keys = table.keys();
        keys.sort_unstable();
        assert!(keys.into_iter().eq(1..=count));
        assert!(rows(1..count + 1).into_iter().all(|row| table.find(row.key) == Some(row)));
        assert_eq!(table.find(count + 1), None);
    }

    #[test]
    fn a_table_is_found_again_and_goes_on() {
        for durable in [Durable::EachRow, Durable::Blocks] {
            let media = Heap::new();
            let first = pool(&media);
            let table = DurableTable::<_, 2>::create(&first, "t", 100, 4).unwrap();
            let mut acknowledged = Vec::new();
            table.inserter(durable).insert(&rows(1..51), |count| acknowledged.push(count)).unwrap();
            assert_eq!(acknowledged.last(), Some(&50));
            assert!(acknowledged.is_sorted() && acknowledged.len() == if durable == Durable::EachRow { 50 } else { 7 });
            holds(&table, 50);
            drop((table, first));
            let again = Pool::open(media.clone(), Path::new("/p"), Some(LAYOUT), OpenMode::Writer).unwrap();
            let table = DurableTable::<_, 2>::open(&again, "t").unwrap();
            holds(&table, 50);
            table.inserter(durable).insert(&rows(51..101), |_| ()).unwrap();
            holds(&table, 100);
            assert!(matches!(DurableTable::<_, 1>::open(&again, "t"), Err(Error::Pool(pmem::Error::Corrupt { .. }))));
            assert!(DurableTable::<_, 2>::open(&again, "other").is_err());
        }
    }

    /// Few chains, so that inserters meet at their heads.
    #[test]
    fn several_inserters_lose_no_row() {
        for durable in [Durable::EachRow, Durable::Blocks] {
            let pool = pool(&Heap::new());
            let table = DurableTable::<_, 1>::create(&pool, "t", 2, 3000).unwrap();
            let part = |number: u64| {
                let table = &table;
                move || table.inserter(durable).insert(&rows(number * 5000 + 1..number * 5000 + 5001), |_| ())
            };
            let done = crew::once_together((0..2).map(part).collect()).unwrap();
            assert!(done.results.into_iter().all(|result| result.is_ok()));
            holds(&table, 10_000);
        }
    }

    #[test]
    fn a_full_table_and_rows_that_are_too_long_are_refused() {
        let pool = pool(&Heap::new());
        let table = DurableTable::<_, 16>::create(&pool, "t", 1, 1).unwrap();
        let full = table.inserter(Durable::EachRow).insert(&rows(1..9), |_| ());
        assert!(matches!(full, Err(Error::Memory { .. })));
        holds(&table, 2);
        let too_long = DurableTable::<_, 31>::create(&pool, "u", 1, 1);
        assert!(matches!(too_long, Err(Error::Unavailable { .. })));
    }

    #[test]
    fn a_damaged_table_is_refused() {
        let pool = pool(&Heap::new());
        let table = DurableTable::<_, 1>::create(&pool, "t", 20, 1).unwrap();
        table.inserter(Durable::Blocks).insert(&rows(1..21), |_| ()).unwrap();
        let (set, places) = (pool.set(), table.places);
        let key = table.start.plus(places.entry_at(3) + entry_at::KEY);
        let next = table.start.plus(places.entry_at(3) + entry_at::NEXT);
        for (at, damage) in [(key, 1 << 60), (next, 3), (next, 1 << 50)] {
            let before = set.load_u64(at);
            set.store_u64(at, damage);
            let opened = DurableTable::<_, 1>::open(&pool, "t");
            assert!(matches!(opened, Err(Error::Pool(pmem::Error::Corrupt { .. }))), "{damage}");
            set.store_u64(at, before);
        }
        assert!(DurableTable::<_, 1>::open(&pool, "t").is_ok());
    }
}
