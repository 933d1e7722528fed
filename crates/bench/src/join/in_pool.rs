//! The join with a table that survives.

use std::path::Path;

use pmem::{DeviceProfile, Heap, Layout, Mapped, Media, Modelled, PartOptions, Pool};

use super::durable::{Durable, DurableTable};
use super::relations::{Input, Relations, Shape, with_shape};
use super::row::Matched;
use super::table::part_rows;
use super::{Times, checked};
use crate::clock::monotonic_ns;
use crate::code::{Access, Fence};
use crate::crew;
use crate::error::{Error, Result};
use crate::memory::Place;
use crate::model::Touch;
use crate::nameless;
use crate::room;

/// A join whose table is built in a pool, and durable row by row or block by block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DurableJoin {
    /// When rows are made durable.
    pub durable: Durable,
    /// Threads that build.
    pub build_threads: usize,
    /// Threads that probe.
    pub probe_threads: usize,
}

const LAYOUT: Layout = Layout { name: "join", version: 1 };
/// What a pool needs beside the table: its head, its log and its catalogue.
const POOL_BYTES: u64 = 16 << 20;

impl DurableJoin {
    /// Joins with a table in a new pool in this folder, which loses its name as soon as it is there: what ends the process while all of
    /// it is allocated, which the core does under a name, leaves that file. Making the pool and the empty table is told as `clear_ns`.
    ///
    /// # Errors
    /// `NoRoom` when the pool does not fit; `Unavailable` when there is no thread, or one cannot be had; `Pool` when the pool
    /// cannot be made or written; `Wrong` when the join has not found what it must.
    pub fn run(&self, relations: &Relations, folder: &Path) -> Result<Times> {
        room::check(&Place::Folder(folder.to_owned()), self.pool_bytes(relations.input()))?;
        self.run_on(relations, Mapped::new(), &nameless::path_in(folder))
    }

    /// The same in main memory, where every write-back and fence takes as long as it would on a device. Loads do not.
    ///
    /// # Errors
    /// As [`DurableJoin::run`], and `Unavailable` when the profile does not say how long that is, or several threads build.
    pub fn run_modelled(&self, relations: &Relations, device: &'static DeviceProfile) -> Result<Times> {
        self.check_profile(device)?;
        room::check(&Place::Dram, self.pool_bytes(relations.input()))?;
        self.run_on(relations, Modelled::new(Heap::new(), device), Path::new("/join"))
    }

    /// # Errors
    /// `Unavailable` when a profile does not say how long making rows durable takes, or several threads build.
    pub(super) fn check_profile(&self, device: &DeviceProfile) -> Result<()> {
        if self.build_threads > 1 {
            // They would wait for one another where the model keeps its time, and not for the device.
            let what = format!("{} threads that build at a modelled device, at which one can wait", self.build_threads);
            return Err(Error::unavailable(what));
        }
        // Heads are flushed in either case.
        let accesses = match self.durable {
            Durable::EachRow => &[Access::Clwb][..],
            Durable::Blocks => &[Access::Clwb, Access::NonTemporal],
        };
        let check = |&access: &Access| Touch::new(device, access, Fence::Sfence, 64, true).map(|_| ());
        accesses.iter().try_for_each(check)
    }

    fn run_on<M: Media>(&self, relations: &Relations, media: M, path: &Path) -> Result<Times> {
        if self.build_threads == 0 || self.probe_threads == 0 {
            return Err(Error::unavailable(format!("a join by no thread: {self:?}")));
        }
        let times = with_shape!(relations.input().shape, R, S => self.run_as::<M, R, S>(relations, media, path))?;
        checked(times, relations)
    }

    /// Bytes of the table.
    pub(super) fn table_bytes(&self, input: &Input) -> u64 {
        with_shape!(input.shape, R, _S => DurableTable::<Mapped, R>::len_bytes(input.r_rows, self.build_threads))
    }

    /// Bytes of the pool that it makes.
    pub(super) fn pool_bytes(&self, input: &Input) -> u64 {
        (POOL_BYTES + self.table_bytes(input)).next_multiple_of(4096)
    }

    fn run_as<M: Media, const R: usize, const S: usize>(
        &self,
        relations: &Relations,
        media: M,
        path: &Path,
    ) -> Result<Times> {
        let (r, s) = (relations.r::<R>(), relations.s::<S>());
        let started = monotonic_ns();
        let options = PartOptions::single(self.pool_bytes(relations.input()));
        let pool = Pool::create(media.clone(), path, LAYOUT, &options)?;
        // It is used without a name from here on, so that nothing is left whatever ends the process. A small one that grew later would
        // do no better: the core makes each part under a name, beside the pool's own.
        media.remove(path)?; // a pool that nobody opens again
        let table = DurableTable::<_, R>::create(&pool, "table", r.len(), self.build_threads)?;
        table.populate()?;
        let clear_ns = monotonic_ns() - started;
        let parts = r.chunks(part_rows(r.len(), self.build_threads));
        let built =
            crew::once_together(parts.map(|rows| || table.inserter(self.durable).insert(rows, |_| ())).collect())?;
        built.results.into_iter().collect::<Result<()>>()?;
        let parts = s.chunks(part_rows(s.len(), self.probe_threads));
        let probed = crew::once_together(parts.map(|rows| || table.probe(rows)).collect())?;
        let matched = probed.results.into_iter().fold(Matched::default(), Matched::and);
        let (r_rows, s_rows, build_ns, probe_ns) = (r.len() as u64, s.len() as u64, built.ns, probed.ns);
        Ok(Times { r_rows, s_rows, matched, clear_ns, build_ns, probe_ns, ..Times::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{Ids, Input, Keys};

    #[test]
    fn a_durable_join_finds_what_it_must_and_leaves_nothing_behind() {
        let folder = std::env::temp_dir().join(format!("remanent-bench-join-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        for durable in [Durable::EachRow, Durable::Blocks] {
            // Few rows: where pages are synced, each takes milliseconds.
            for (r_rows, s_rows, threads, shape) in
                [(0, 3, 1, Shape::Narrow), (1, 4, 2, Shape::Yoshioka), (40, 90, 3, Shape::Payload128)]
            {
                let (keys, ids) = (Keys::Sparse, Ids::Uniform);
                let input = Input { r_rows, s_rows, shape, keys, ids, matching: 0.8, seed: 2 };
                let relations = input.make().unwrap();
                let join = DurableJoin { durable, build_threads: threads, probe_threads: threads };
                let times = join.run(&relations, &folder).unwrap();
                assert_eq!(times.matched, relations.expected(), "{input:?}");
            }
        }
        std::fs::remove_dir(&folder).expect("nothing is left in it");
    }

    /// Two fences a row, of which each waits for a write-back: whatever the CPU takes comes on top.
    #[test]
    fn a_modelled_device_is_waited_for_at_every_fence() {
        let input = Input { r_rows: 2000, s_rows: 10, ..Input::narrow(1, 3) };
        let relations = input.make().unwrap();
        let device = |name| DeviceProfile::named(name).unwrap();
        for (durable, fences) in [(Durable::EachRow, 2.0), (Durable::Blocks, 2.0 / 8.0)] {
            let join = DurableJoin { durable, build_threads: 1, probe_threads: 1 };
            let optane = device("optane-100-six-dimms");
            let times = join.run_modelled(&relations, optane).unwrap();
            let least_ns = 2000.0 * fences * optane.flush_persist_ns.unwrap();
            assert!(times.build_ns as f64 >= least_ns, "{durable:?}: {times:?}");
            let refused = join.run_modelled(&relations, device("cxl-type-3-fast"));
            assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
            let refused = DurableJoin { build_threads: 2, ..join }.run_modelled(&relations, optane);
            assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
        }
    }
}
