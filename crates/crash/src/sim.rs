//! A medium that records what is done to it.
//!
//! What a program sees is always its newest stores (that is WORK). What a crash leaves is worked out afterwards from
//! the trace; see [`crate::Campaign`].

mod map;

use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use pmem::{
    Backing, Durability, Error, Granularity, LockKind, Media, MediaFile, OpenMode, Provenance, Result, Stripe, Uuid,
};

use crate::disk::{Disk, FileId};
use crate::mutate::{Mutation, Verdict};
use crate::trace::{Call, Event, Site, Sites};
use crate::volatile::Volatile;

pub use map::SimMap;

/// A simulated machine. Clones are the same machine.
#[derive(Clone)]
pub struct Sim {
    state: Arc<Mutex<State>>,
    granularity: Granularity,
    /// Lets another thread run; see [`Sim::interleaved`].
    switch: Option<fn()>,
}

pub(crate) struct State {
    pub(crate) disk: Disk,
    pub(crate) trace: Vec<Event>,
    pub(crate) sites: Sites,
    pub(crate) mutations: Vec<Mutation>,
    /// Stores that a mutation holds back: thread, file, offset, bytes.
    delayed: Vec<(u16, FileId, u64, Vec<u8>)>,
    /// Threads that have synced a range since they last stored.
    synced: BTreeSet<u16>,
    locks: BTreeSet<HeldLock>,
    faults: Vec<Fault>,
    handles: u32,
    uuids: u64,
    /// The process that is running; another one after each kill.
    process: u32,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct HeldLock {
    file: FileId,
    start: u64,
    end: u64,
    holder: u32,
    exclusive: bool,
}

/// A failure to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next file creation finds the file system full.
    NoSpace,
    /// The n-th write-back or fsync from now fails with EIO (0: the next).
    WriteBack(u32),
    /// The n-th range from now that is guarded for stores finds the file system full.
    Guard(u32),
}

/// A file of a simulated machine.
pub struct SimFile {
    sim: Sim,
    path: PathBuf,
    id: FileId,
    holder: u32,
    backing: Backing,
}

static THREADS: AtomicU16 = AtomicU16::new(0);

thread_local! {
    static THREAD: u16 = THREADS.fetch_add(1, Ordering::Relaxed);
}

fn thread() -> u16 {
    THREAD.with(|&thread| thread)
}

impl Sim {
    /// An empty machine whose stores become durable in this unit.
    ///
    /// # Panics
    /// With byte granularity, where nothing visible is ever lost and so nothing can be simulated.
    pub fn new(granularity: Granularity) -> Sim {
        Sim::over(Disk::default(), granularity, 0)
    }

    /// A machine with these files; `life` makes its identities differ from those of its earlier lives.
    pub(crate) fn over(disk: Disk, granularity: Granularity, life: u32) -> Sim {
        assert_ne!(granularity, Granularity::Byte, "with byte granularity there is nothing to lose");
        let state = State {
            disk,
            trace: Vec::new(),
            sites: Sites::new(),
            mutations: Vec::new(),
            delayed: Vec::new(),
            synced: BTreeSet::new(),
            locks: BTreeSet::new(),
            faults: Vec::new(),
            handles: 0,
            uuids: u64::from(life) << 32,
            process: 1,
        };
        Sim { state: Arc::new(Mutex::new(state)), granularity, switch: None }
    }

    /// An empty machine for tests of interleavings: `switch` is called before each access, each flush and fence, each lock and
    /// each call of the file system, and other threads may run meanwhile. It is not called before a range is synced, which the core
    /// does under a lock within the pool. Accesses of more than 8 bytes are made in pieces.
    ///
    /// Threads stand for processes, each with pools of its own: a lock within a pool is none of this machine's.
    pub fn interleaved(granularity: Granularity, switch: fn()) -> Sim {
        Sim { switch: Some(switch), ..Sim::new(granularity) }
    }

    /// The same machine, where `switch` is called as in [`Sim::interleaved`]: for threads of a workload that take turns. Each is a
    /// thread of the machine, whose fences are its own.
    pub fn switching(&self, switch: fn()) -> Sim {
        Sim { switch: Some(switch), ..self.clone() }
    }

    fn step(&self) {
        if let Some(switch) = self.switch {
            switch();
        }
    }

    /// Operations up to number `operation` may be seen after a crash from here on.
    pub fn started(&self, operation: usize) {
        self.lock().trace.push(Event::Started(operation));
    }

    /// Operations up to number `operation` must be seen after a crash from here on.
    pub fn acknowledged(&self, operation: usize) {
        self.lock().trace.push(Event::Acknowledged(operation));
    }

    /// Recovery has shown the state after `operation` to somebody: it may neither fall back nor go on by itself.
    pub fn observed(&self, operation: usize) {
        self.lock().trace.push(Event::Observed(operation));
    }

    /// The process is gone and its locks with it; its stores stay visible. For workloads that restart. A handle that
    /// is dropped afterwards finds itself in another process and writes nothing.
    pub fn kill(&self) {
        let mut state = self.lock();
        state.locks.clear();
        state.delayed.clear();
        state.process += 1;
    }

    /// Lines or sectors that a crash could take now. For a machine that was new at the beginning.
    pub fn at_risk(&self) -> usize {
        Volatile::after(unit_bytes(self.granularity), &self.lock().trace).units.len()
    }

    /// Injects a failure.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// The unit in which stores become durable.
    pub fn granularity(&self) -> Granularity {
        self.granularity
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of the program under test says nothing about the simulator's own state.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn handle(&self, path: &Path, id: FileId) -> SimFile {
        let mut state = self.lock();
        state.handles += 1;
        SimFile {
            sim: self.clone(),
            path: path.to_owned(),
            id,
            holder: state.handles,
            backing: Backing {
                durability: Durability::PowerFailSafe,
                granularity: self.granularity,
                provenance: Provenance::Emulated,
                filesystem: "simulated".into(),
                reason: "the crash simulator decides".into(),
            },
        }
    }
}

impl State {
    fn note(&mut self, call: Call, site: Site) {
        self.sites.insert((call, std::ptr::from_ref(site).addr()), site);
    }

    fn verdict(&mut self, call: Call, site: Site) -> Verdict {
        self.note(call, site);
        let verdicts = self.mutations.iter().map(|mutation| mutation.verdict(call, site));
        verdicts.into_iter().find(|&verdict| verdict != Verdict::Keep).unwrap_or(Verdict::Keep)
    }

    fn store(&mut self, file: FileId, offset_bytes: u64, bytes: &[u8], non_temporal: bool) {
        self.disk.write(file, offset_bytes, bytes);
        let event = Event::Store { file, offset_bytes, bytes: bytes.into(), non_temporal, thread: thread() };
        self.trace.push(event);
    }

    /// Stores that a mutation has held back happen after the next fence of their thread.
    fn release_delayed(&mut self) {
        let this = thread();
        let (released, held) = std::mem::take(&mut self.delayed).into_iter().partition(|(thread, ..)| *thread == this);
        self.delayed = held;
        let released: Vec<(u16, FileId, u64, Vec<u8>)> = released;
        for (_, file, offset_bytes, bytes) in released {
            self.store(file, offset_bytes, &bytes, false);
        }
    }

    fn take_fault(&mut self, wanted: Fault) -> bool {
        let found = self.faults.iter().position(|&fault| fault == wanted);
        found.map(|at| self.faults.remove(at)).is_some()
    }

    fn write_back_fails(&mut self) -> bool {
        let now = self.take_fault(Fault::WriteBack(0));
        self.faults.iter_mut().for_each(|fault| {
            if let Fault::WriteBack(n) = fault {
                *n = n.saturating_sub(1);
            }
        });
        now
    }

    fn guard_fails(&mut self) -> bool {
        let now = self.take_fault(Fault::Guard(0));
        self.faults.iter_mut().for_each(|fault| {
            if let Fault::Guard(n) = fault {
                *n = n.saturating_sub(1);
            }
        });
        now
    }
}

impl Media for Sim {
    type File = SimFile;
    type Map = SimMap;

    #[track_caller]
    fn create(&self, path: &Path, len_bytes: u64) -> Result<SimFile> {
        self.step();
        let mut state = self.lock();
        state.note(Call::Create, Location::caller());
        if state.disk.lookup(path).is_some() {
            return Err(Error::AlreadyExists { path: path.to_owned() });
        }
        if state.take_fault(Fault::NoSpace) {
            return Err(Error::FileSystemFull { path: path.to_owned(), requested_bytes: len_bytes });
        }
        let id = state.disk.new_file(len_bytes);
        state.disk.bind(path, Some(id));
        state.trace.push(Event::Create { path: path.to_owned(), len_bytes });
        drop(state);
        Ok(self.handle(path, id))
    }

    fn open(&self, path: &Path, _mode: OpenMode) -> Result<SimFile> {
        self.step();
        let id = self.lock().disk.lookup(path).ok_or_else(|| Error::NotFound { path: path.to_owned() })?;
        Ok(self.handle(path, id))
    }

    #[track_caller]
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.step();
        let mut state = self.lock();
        state.note(Call::Rename, Location::caller());
        if state.disk.lookup(to).is_some() {
            return Err(Error::AlreadyExists { path: to.to_owned() });
        }
        let file = state.disk.lookup(from).ok_or_else(|| Error::NotFound { path: from.to_owned() })?;
        state.disk.bind(from, None);
        state.disk.bind(to, Some(file));
        state.trace.push(Event::Rename { from: from.to_owned(), to: to.to_owned(), file });
        Ok(())
    }

    #[track_caller]
    fn remove(&self, path: &Path) -> Result<()> {
        self.step();
        let mut state = self.lock();
        state.note(Call::Remove, Location::caller());
        if state.disk.lookup(path).is_none() {
            return Err(Error::NotFound { path: path.to_owned() });
        }
        state.disk.bind(path, None);
        state.trace.push(Event::Remove { path: path.to_owned() });
        Ok(())
    }

    #[track_caller]
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.step();
        let mut state = self.lock();
        if state.verdict(Call::SyncDir, Location::caller()) == Verdict::Keep {
            state.trace.push(Event::SyncDir { path: path.to_owned() });
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.step();
        Ok(self.lock().disk.lookup(path).is_some())
    }

    fn names(&self, path: &Path, file: &SimFile) -> Result<bool> {
        self.step();
        Ok(self.lock().disk.lookup(path) == Some(file.id))
    }

    fn is_device(&self, _path: &Path) -> bool {
        false
    }

    fn map(&self, files: &[Arc<SimFile>], stripe: Stripe, _mode: OpenMode) -> Result<SimMap> {
        self.step();
        let state = self.lock();
        let shortest = files.iter().map(|file| state.disk.len_bytes(file.id)).min().unwrap_or(0);
        Ok(SimMap {
            sim: self.clone(),
            files: files.iter().map(|file| file.id).collect(),
            stripe,
            len_bytes: stripe.logical_bytes(shortest),
            path: files[0].path.clone(),
        })
    }

    #[track_caller]
    fn fence(&self) {
        self.step();
        if self.granularity == Granularity::Page {
            return;
        }
        let site = Location::caller();
        let mut state = self.lock();
        let verdict = state.verdict(Call::Fence, site);
        if verdict != Verdict::Drop {
            state.trace.push(Event::Fence { thread: thread(), site, is_weak: verdict == Verdict::Weaken });
        }
        state.release_delayed();
    }

    fn new_uuid(&self) -> Uuid {
        let mut state = self.lock();
        state.uuids += 1;
        let mut bytes = [0xA5; 16];
        bytes[..8].copy_from_slice(&state.uuids.to_le_bytes());
        Uuid(bytes)
    }

    fn process_id(&self) -> u32 {
        self.lock().process
    }

    fn unix_time_s(&self) -> u64 {
        0
    }
}

impl MediaFile for SimFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn renamed(&mut self, path: &Path) {
        self.path = path.to_owned();
    }

    fn len_bytes(&self) -> Result<u64> {
        self.sim.step();
        Ok(self.sim.lock().disk.len_bytes(self.id))
    }

    fn backing(&self) -> &Backing {
        &self.backing
    }

    fn pread(&self, offset_bytes: u64, into: &mut [u8]) -> Result<()> {
        self.sim.step();
        let state = self.sim.lock();
        let (got_bytes, expected_bytes) = (state.disk.len_bytes(self.id), offset_bytes + into.len() as u64);
        if expected_bytes > got_bytes {
            return Err(Error::Truncated { path: self.path.clone(), got_bytes, expected_bytes });
        }
        state.disk.read(self.id, offset_bytes, into);
        Ok(())
    }

    fn pwrite(&self, offset_bytes: u64, from: &[u8]) -> Result<()> {
        self.sim.step();
        self.sim.lock().store(self.id, offset_bytes, from, false);
        Ok(())
    }

    #[track_caller]
    fn fsync(&self) -> Result<()> {
        self.sim.step();
        let mut state = self.sim.lock();
        if state.write_back_fails() {
            let len_bytes = state.disk.len_bytes(self.id);
            state.trace.push(Event::SyncFailed { file: self.id, offset_bytes: 0, len_bytes });
            return Err(io_error("fsync", &self.path));
        }
        if state.verdict(Call::Fsync, Location::caller()) == Verdict::Keep {
            state.trace.push(Event::Fsync { file: self.id });
        }
        Ok(())
    }

    fn try_lock(&self, kind: LockKind, range: Range<u64>) -> Result<bool> {
        self.sim.step();
        let exclusive = kind == LockKind::Exclusive;
        let mut state = self.sim.lock();
        let conflict = |held: &HeldLock| {
            held.file == self.id
                && held.holder != self.holder
                && (held.exclusive || exclusive)
                && held.start < range.end
                && range.start < held.end
        };
        if state.locks.iter().any(conflict) {
            return Ok(false);
        }
        let (start, end) = (range.start, range.end);
        state.locks.insert(HeldLock { file: self.id, start, end, holder: self.holder, exclusive });
        Ok(true)
    }

    fn unlock(&self, range: Range<u64>) -> Result<()> {
        self.sim.step();
        let here = |held: &HeldLock| held.holder == self.holder && held.start == range.start && held.end == range.end;
        self.sim.lock().locks.retain(|held| !here(held));
        Ok(())
    }

    fn find_lock(&self, range: Range<u64>) -> Result<Option<u64>> {
        self.sim.step();
        let state = self.sim.lock();
        let other = |held: &&HeldLock| {
            held.file == self.id && held.holder != self.holder && held.start < range.end && range.start < held.end
        };
        Ok(state.locks.iter().find(other).map(|held| held.start))
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.sim.lock().locks.retain(|held| held.holder != self.holder);
    }
}

/// What becomes durable at once.
pub(crate) fn unit_bytes(granularity: Granularity) -> u64 {
    if granularity == Granularity::Page { 512 } else { 64 }
}

fn io_error(operation: &'static str, path: &Path) -> Error {
    Error::Io { operation, path: path.to_owned(), source: std::io::Error::from_raw_os_error(5) }
}
