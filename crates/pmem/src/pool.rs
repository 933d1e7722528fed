//! A pool: open it, look names up, pin what is read.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::catalogue::{Catalogue, RegionInfo};
use crate::cell::DoubleCell;
use crate::commit::Writer;
use crate::creation;
use crate::durability::{Backing, Durability, Granularity};
use crate::error::{Error, Result, Uuid};
use crate::extent::{Extent, FreeMap, Reservation, Space};
use crate::format::{self, HEAD_BYTES, PartState, ROOT_AT, Root, SUPERBLOCK_AT, Superblock};
use crate::log::{MAX_SEQUENCE, Segment, SelfCertifyingLog};
use crate::mapped::Mapped;
use crate::media::{LockKind, Media, MediaFile, OpenMode, Stripe, Touch};
use crate::opening;
use crate::pins::{Pins, WRITER_AT};
use crate::region::Region;
use crate::set::{Offset, Pending, PoolSet, TAIL_HINT};

/// The product that a pool belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// 1 to 32 bytes, for example `store`.
    pub name: &'static str,
    /// Version of the product's own format.
    pub version: u32,
}

/// An open pool.
///
/// # Invariants
/// 1. Free space is what the catalogue, its log segment and the retired extents leave; it is never persisted.
/// 2. A name changes its meaning only by a log batch; what a batch refers to was durable before the batch was written.
/// 3. An extent is reused only when no pin older than its retirement is left.
/// 4. After a failed persist nothing more is written (`WritesRefused`) until the pool is opened again.
/// 5. While the superblock says clean, the log ends at the clean tail exactly; it is marked dirty, durably, before the
///    first append, and clean after the last.
///
/// # States
/// ```text
///            open                  first write             close
/// (file) ----------> open, clean --------------> dirty ------------> (file)
///                                                  | persist fails
///                                                  v
///                                            writes refused
/// ```
pub struct Pool<M: Media = Mapped> {
    pub(crate) shared: Arc<Shared<M>>,
}

/// What the pool and its regions hold together.
pub(crate) struct Shared<M: Media> {
    pub(crate) set: PoolSet<M>,
    pub(crate) identity: Identity,
    pub(crate) catalogue: RwLock<Catalogue>,
    pub(crate) pins: Pins<M::File>,
    pub(crate) space: Space,
    /// `None` in readers, and after close.
    pub(crate) writer: Mutex<Option<Writer>>,
    /// Held by whoever adds parts: a writer that grows, or a reader that moves on, of which two at once would also let
    /// go of each other's pins.
    pub(crate) adding: Mutex<()>,
    pub(crate) process_id: u32,
}

/// What never changes about a pool.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) set: Uuid,
    pub(crate) layout: String,
    pub(crate) layout_version: u32,
    pub(crate) created_s: u64,
}

/// What [`Pool::info`] tells.
#[derive(Clone, Debug)]
pub struct PoolInfo {
    /// Identity of the set.
    pub set: Uuid,
    /// Product and its format version.
    pub layout: (String, u32),
    /// Seconds since 1970-01-01 UTC.
    pub created_s: u64,
    /// Catalogue generation.
    pub generation: u64,
    /// How many names there are.
    pub names: usize,
    /// Bytes of all parts, heads included.
    pub total_bytes: u64,
    /// Bytes that can be reserved. In a reader: bytes that no region uses.
    pub free_bytes: u64,
    /// The largest extent that can be reserved.
    pub largest_free_bytes: u64,
    /// Bytes that wait for readers.
    pub retired_bytes: u64,
    /// Each part: its files and its stripe.
    pub parts: Vec<PartInfo>,
    /// Whether it was closed in order; what is found otherwise is recovered by the next writer.
    pub is_clean: bool,
    /// Whether a writer has it open, this handle included.
    pub has_writer: bool,
    /// The weakest promise among the files.
    pub backing: Backing,
}

/// One part in [`PoolInfo`].
#[derive(Clone, Debug)]
pub struct PartInfo {
    /// Its member files.
    pub files: Vec<std::path::PathBuf>,
    /// Logical length.
    pub len_bytes: u64,
    /// How it is spread over the files.
    pub stripe: Stripe,
}

pub(crate) fn root_cell(set: Uuid) -> DoubleCell {
    DoubleCell::new(ROOT_AT.map(|at| Offset::new(0, at)), Root::BYTES, format::seed(set, 0))
}

pub(crate) fn superblock_cell(part: u16) -> DoubleCell {
    DoubleCell::new(SUPERBLOCK_AT.map(|at| Offset::new(part, at)), Superblock::BYTES, 0)
}

pub(crate) fn segment_of(root: &Root, set: Uuid) -> Segment {
    Segment::of_pool(root.segment, set, root.segment_generation, root.first_sequence)
}

impl<M: Media> Pool<M> {
    /// Opens a pool.
    ///
    /// # Errors
    /// Every code that `docs/src/errors.md` lists can come from opening. What was kept in the pool is not changed then;
    /// a writer may have removed what an interrupted growth had left beside it.
    pub fn open(media: M, path: &Path, layout: Option<Layout>, mode: OpenMode) -> Result<Pool<M>> {
        let has_writer = || media.open(path, OpenMode::Inspect).is_ok_and(|file| is_write_locked(&file));
        beside_a_writer(mode, has_writer, || Pool::open_once(media.clone(), path, layout, mode))
    }

    fn open_once(media: M, path: &Path, layout: Option<Layout>, mode: OpenMode) -> Result<Pool<M>> {
        let file = Arc::new(media.open(path, mode)?);
        if mode == OpenMode::Writer && !file.try_lock(LockKind::Exclusive, WRITER_AT..WRITER_AT + 1)? {
            return Err(Error::PoolBusy { path: path.to_owned() });
        }
        if mode == OpenMode::Writer && !media.names(path, &file)? {
            // It was removed, and perhaps made anew, before the lock was taken.
            return Err(Error::PoolBusy { path: path.to_owned() });
        }
        Pool::open_files(media, path, vec![file], layout, mode)
    }

    /// Opens the pool whose first file is given, and perhaps the other files of its first part; a writer has locked them.
    pub(crate) fn open_files(
        media: M,
        path: &Path,
        files: Vec<Arc<M::File>>,
        layout: Option<Layout>,
        mode: OpenMode,
    ) -> Result<Pool<M>> {
        let pins = Pins::new(files[0].clone());
        if mode == OpenMode::Reader && !pins.lock_all()? {
            return Err(Error::PoolBusy { path: path.to_owned() });
        }
        let (set, superblock) = opening::open_set(media, path, files, layout, mode)?;
        let replayed = Replayed::read(&set, superblock.set)?;
        replayed.check_tail(&set, &superblock)?;
        let space = Space::new(replayed.free_map(&set)?);
        let identity = Identity {
            set: superblock.set,
            layout: superblock.layout.clone(),
            layout_version: superblock.layout_version,
            created_s: superblock.created_s,
        };
        let writer = match mode {
            OpenMode::Writer => {
                creation::remove_orphans(&set, &superblock)?;
                Some(Writer::recover(&set, &replayed, superblock)?)
            }
            OpenMode::Reader => {
                match replayed.was_closed(&superblock) {
                    true => replayed.persist_links(&set, Pending::new())?,
                    false => replayed.persist(&set)?,
                }
                pins.lock(replayed.catalogue.generation)?;
                pins.unlock_all()?;
                None
            }
            OpenMode::Inspect => None,
        };
        let process_id = set.media().process_id();
        let pool = Pool {
            shared: Arc::new(Shared {
                set,
                identity,
                catalogue: RwLock::new(replayed.catalogue),
                pins,
                space,
                writer: Mutex::new(writer),
                adding: Mutex::new(()),
                process_id,
            }),
        };
        if mode == OpenMode::Writer {
            pool.reclaim()?;
            pool.shared.keep_spare();
        }
        Ok(pool)
    }

    /// The address space of the pool, for products that write their own regions.
    pub fn set(&self) -> &PoolSet<M> {
        &self.shared.set
    }

    /// How the pool was opened.
    pub fn mode(&self) -> OpenMode {
        self.shared.set.mode()
    }

    /// Identity of the pool.
    pub fn uuid(&self) -> Uuid {
        self.shared.identity.set
    }

    /// The catalogue generation that this handle sees.
    pub fn generation(&self) -> u64 {
        self.shared.catalogue().generation
    }

    /// The region of a name, pinned at the generation that this handle sees.
    ///
    /// # Errors
    /// `NoSuchName`, `UsedAfterFork`.
    pub fn region(&self, name: &str) -> Result<Region<M>> {
        self.shared.check_process()?;
        let catalogue = self.shared.catalogue();
        let Some((name, info)) = catalogue.names.get_key_value(name) else {
            return Err(Error::NoSuchName { name: name.to_owned() });
        };
        Ok(self.pinned(&catalogue, name, info))
    }

    /// All regions whose names start with `prefix`, in the order of their names, from one generation.
    ///
    /// # Errors
    /// `UsedAfterFork`.
    pub fn regions(&self, prefix: &str) -> Result<Vec<Region<M>>> {
        self.shared.check_process()?;
        let catalogue = self.shared.catalogue();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let found = catalogue.names.range::<str, _>(from).take_while(|(name, _)| name.starts_with(prefix));
        Ok(found.map(|(name, info)| self.pinned(&catalogue, name, info)).collect())
    }

    /// All regions of which this is true, from one generation.
    ///
    /// # Errors
    /// `UsedAfterFork`.
    pub fn regions_where(&self, wanted: impl Fn(&RegionInfo) -> bool) -> Result<Vec<Region<M>>> {
        self.shared.check_process()?;
        let catalogue = self.shared.catalogue();
        let found = catalogue.names.iter().filter(|(_, info)| wanted(info));
        Ok(found.map(|(name, info)| self.pinned(&catalogue, name, info)).collect())
    }

    fn pinned(&self, catalogue: &Catalogue, name: &str, info: &Arc<RegionInfo>) -> Region<M> {
        Region::new(name, info.clone(), self.shared.pins.pin(catalogue.generation), self.shared.clone())
    }

    /// Refuses in a forked child.
    ///
    /// # Errors
    /// `UsedAfterFork`.
    pub fn check_process(&self) -> Result<()> {
        self.shared.check_process()
    }

    /// Refuses where nothing may be written: in a reader, and after a failed write-back.
    ///
    /// # Errors
    /// `NotWritable`, `WritesRefused`, `UsedAfterFork`.
    pub fn check_writable(&self) -> Result<()> {
        self.shared.check_writable()
    }

    /// Whether another process reads, or may be about to read, a generation below `limit`. Who asks after a commit, for its
    /// generation, and is told no knows that nobody elsewhere will ever see what was true before it.
    ///
    /// # Errors
    /// `Io`, `UsedAfterFork`.
    pub fn is_read_elsewhere(&self, limit: u64) -> Result<bool> {
        self.shared.check_process()?;
        self.shared.pins.others_pin_below(limit)
    }

    /// Whether another process has the pool open to write to it.
    ///
    /// # Errors
    /// `Io`, `UsedAfterFork`.
    pub fn is_written_elsewhere(&self) -> Result<bool> {
        self.shared.check_process()?;
        Ok(self.shared.set.first_file().find_lock(WRITER_AT..WRITER_AT + 1)?.is_some())
    }

    /// Sets space aside. Nothing is written; dropping it gives the space back.
    ///
    /// # Errors
    /// `PoolFull`, `NotWritable`, `WritesRefused`, `UsedAfterFork`, `Io`.
    pub fn reserve(&self, len_bytes: u64) -> Result<Reservation> {
        self.shared.check_writable()?;
        match self.shared.space.reserve_paged(len_bytes) {
            Err(Error::PoolFull { .. }) if self.reclaim()? > 0 => self.shared.space.reserve_paged(len_bytes),
            result => result,
        }
    }

    /// Moves a reader or an inspector on to the newest commit. Regions that it gave out keep what they have.
    ///
    /// # Errors
    /// As [`Pool::open`]; also `UsedAfterFork`. The handle then stays where it was.
    pub fn refresh(&self) -> Result<u64> {
        self.shared.check_process()?;
        let shared = &*self.shared;
        if self.mode() == OpenMode::Writer {
            return Ok(self.generation());
        }
        let _one_at_a_time = shared.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = self.mode() == OpenMode::Reader;
        if reader && !shared.pins.lock_all()? {
            return Err(Error::PoolBusy { path: shared.set.path().to_owned() });
        }
        let has_writer = || is_write_locked(&**shared.set.first_file());
        let result = beside_a_writer(self.mode(), has_writer, || self.reread(reader));
        if reader {
            shared.pins.unlock_all()?;
        }
        result
    }

    fn reread(&self, reader: bool) -> Result<u64> {
        let shared = &*self.shared;
        opening::open_new_parts(&shared.set, shared.identity.set)?;
        let replayed = Replayed::read(&shared.set, shared.identity.set)?;
        let generation = replayed.catalogue.generation;
        if reader {
            replayed.persist(&shared.set)?;
            shared.pins.lock(generation)?;
        }
        let free = replayed.free_map(&shared.set)?;
        let mut catalogue = shared.catalogue.write().expect("no panic while the catalogue is exchanged");
        *catalogue = replayed.catalogue;
        shared.space.with(|map| *map = free);
        if reader {
            shared.pins.unlock_all_but(generation)?;
        }
        Ok(generation)
    }

    /// Whether anybody has the pool open as a writer.
    fn has_writer(&self) -> bool {
        self.mode() == OpenMode::Writer || is_write_locked(&**self.shared.set.first_file())
    }

    /// What the pool is and how full it is.
    pub fn info(&self) -> PoolInfo {
        let shared = &*self.shared;
        let catalogue = shared.catalogue();
        let parts: Vec<PartInfo> = shared.set.parts().map(opening::part_info).collect();
        let (free_bytes, largest_free_bytes) = shared.space.with(|map| (map.free_bytes(), map.largest()));
        PoolInfo {
            set: shared.identity.set,
            layout: (shared.identity.layout.clone(), shared.identity.layout_version),
            created_s: shared.identity.created_s,
            generation: catalogue.generation,
            names: catalogue.names.len(),
            total_bytes: parts.iter().map(|part| part.len_bytes).sum(),
            free_bytes,
            largest_free_bytes,
            retired_bytes: catalogue.retired.values().map(|retired| retired.extent.len_bytes).sum(),
            parts,
            is_clean: opening::read_superblock(&shared.set, 0)
                .is_ok_and(|read| read.superblock.state == PartState::Clean),
            has_writer: self.has_writer(),
            backing: shared.set.weakest_backing(),
        }
    }
}

impl<M: Media> Shared<M> {
    pub(crate) fn catalogue(&self) -> std::sync::RwLockReadGuard<'_, Catalogue> {
        self.catalogue.read().expect("no panic while the catalogue is exchanged")
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.set.path().to_owned()
    }

    pub(crate) fn check_process(&self) -> Result<()> {
        if self.set.media().process_id() == self.process_id {
            return Ok(());
        }
        Err(Error::UsedAfterFork { path: self.set.path().to_owned() })
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_process()?;
        let path = || self.set.path().to_owned();
        match self.set.mode() {
            OpenMode::Writer if self.set.has_failed() => Err(Error::WritesRefused { path: path() }),
            OpenMode::Writer => Ok(()),
            _ => Err(Error::NotWritable { path: path() }),
        }
    }
}

/// What is read while a writer changes it may be half old and half new, and look damaged; hardly so often.
pub(crate) const LOOKS_BESIDE_A_WRITER: usize = 16;

/// Reads once, and again while what was read looks damaged and somebody is writing.
fn beside_a_writer<T>(mode: OpenMode, has_writer: impl Fn() -> bool, read: impl Fn() -> Result<T>) -> Result<T> {
    if mode == OpenMode::Writer {
        return read();
    }
    let mut looks = 1;
    loop {
        // It may go away in between, so it is asked for before and after.
        let had_writer = has_writer();
        match read() {
            Err(Error::Corrupt { .. } | Error::SuperblockLost { .. })
                if looks < LOOKS_BESIDE_A_WRITER && (had_writer || has_writer()) =>
            {
                looks += 1;
            }
            result => return result,
        }
    }
}

/// Whether somebody else has a pool open as a writer.
fn is_write_locked<F: MediaFile>(first: &F) -> bool {
    first.find_lock(WRITER_AT..WRITER_AT + 1).is_ok_and(|lock| lock.is_some())
}

/// The catalogue as the media says.
pub(crate) struct Replayed {
    pub(crate) catalogue: Catalogue,
    pub(crate) root: Root,
    pub(crate) root_value: crate::cell::CellValue,
    pub(crate) log: SelfCertifyingLog,
}

impl Replayed {
    /// Replays the log. A commit that the tail hint proves to have been durable must be there; the hint is read
    /// first, because a writer may go on meanwhile.
    pub(crate) fn read<M: Media>(set: &PoolSet<M>, uuid: Uuid) -> Result<Replayed> {
        let corrupt = |what, offset_bytes| Error::Corrupt { path: set.path().to_owned(), what, offset_bytes };
        let hint = match set.guard(TAIL_HINT, 8, Touch::Load) {
            // What cannot be read proves nothing.
            Err(Error::BadBlock { .. }) => None,
            result => result.map(|()| format::decode_tail_hint(format::seed(uuid, 0), set.load_u64(TAIL_HINT)))?,
        };
        let root_value = root_cell(uuid).read(set)?.ok_or_else(|| corrupt("the root cell", ROOT_AT[0]))?;
        let root = Root::decode(&root_value.payload).ok_or_else(|| corrupt("the root cell", ROOT_AT[0]))?;
        let counts = [root.first_sequence, root.segment_generation];
        if !set.contains(root.segment) || counts.iter().any(|&count| count >= MAX_SEQUENCE) {
            return Err(corrupt("the root cell's segment", ROOT_AT[0]));
        }
        set.guard(root.segment.offset, root.segment.len_bytes, Touch::Load)?;
        let mut catalogue = Catalogue::default();
        let log = SelfCertifyingLog::replay(set, segment_of(&root, uuid), |batch| catalogue.replay(&batch))?;
        if catalogue.generation == 0 {
            return Err(corrupt("the catalogue's checkpoint", root.segment.offset.byte()));
        }
        catalogue.reused(root.segment);
        if hint.is_some_and(|hint| hint > catalogue.generation & format::TAIL_HINT_MASK) {
            return Err(corrupt("the end of the log", log.tail().byte()));
        }
        Ok(Replayed { catalogue, root, root_value, log })
    }

    /// Makes what a reader has seen durable, whatever becomes of the writer that stored it: the log, and the links to
    /// further parts. The root cell need not be: the older root leads to the older segment, which has the same contents.
    fn persist<M: Media>(&self, set: &PoolSet<M>) -> Result<()> {
        let mut pending = Pending::new();
        self.log.flush_replayed(set, &mut pending);
        self.persist_links(set, pending)
    }

    /// As [`Replayed::persist`], where the log is known to be durable.
    fn persist_links<M: Media>(&self, set: &PoolSet<M>, mut pending: Pending) -> Result<()> {
        for part in 0..set.part_count() - 1 {
            superblock_cell(part).flush_slots(set, &mut pending)?;
        }
        set.fence(&mut pending)
    }

    /// Whether the superblock, read before the log, says that this is all of it: then whoever closed the pool has made the
    /// log durable before that.
    pub(crate) fn was_closed(&self, superblock: &Superblock) -> bool {
        superblock.state == PartState::Clean && superblock.clean_tail == self.catalogue.generation
    }

    /// A pool that says clean must end where it says. A reader's superblock may be older than the log that it read.
    pub(crate) fn check_tail<M: Media>(&self, set: &PoolSet<M>, superblock: &Superblock) -> Result<()> {
        let generation = self.catalogue.generation;
        let at_end = match set.mode() {
            OpenMode::Writer => superblock.clean_tail == generation,
            OpenMode::Reader | OpenMode::Inspect => superblock.clean_tail <= generation,
        };
        if superblock.state == PartState::Clean && !at_end {
            let offset_bytes = self.log.tail().byte();
            return Err(Error::Corrupt { path: set.path().to_owned(), what: "the end of the log", offset_bytes });
        }
        Ok(())
    }

    pub(crate) fn free_map<M: Media>(&self, set: &PoolSet<M>) -> Result<FreeMap> {
        let areas: Vec<Extent> = set.data_areas().collect();
        let mut used: Vec<Extent> = self.catalogue.extents().collect();
        used.push(self.root.segment);
        FreeMap::complement(&areas, used).map_err(|bad| Error::Corrupt {
            path: set.path().to_owned(),
            what: "an extent of the catalogue",
            offset_bytes: bad.offset.byte(),
        })
    }
}

impl<M: Media> PoolSet<M> {
    /// The part of each mapping that holds extents.
    pub(crate) fn data_areas(&self) -> impl Iterator<Item = Extent> {
        (0..self.part_count()).map(|part| {
            let len = self.part_bytes(part).expect("a part that was counted") / format::EXTENT_ALIGN;
            Extent { offset: Offset::new(part, HEAD_BYTES), len_bytes: len * format::EXTENT_ALIGN - HEAD_BYTES }
        })
    }

    fn contains(&self, extent: Extent) -> bool {
        extent.offset.byte() >= HEAD_BYTES
            && extent.offset.byte().is_multiple_of(format::EXTENT_ALIGN)
            && self
                .part_bytes(extent.offset.part())
                .is_some_and(|len| extent.offset.byte().checked_add(extent.len_bytes).is_some_and(|end| end <= len))
    }

    /// The backing with the weakest promise: lowest durability, then coarsest granularity.
    pub(crate) fn weakest_backing(&self) -> Backing {
        let files = self.parts().flat_map(|part| &part.files);
        let rank = |b: &Backing| (b.durability, std::cmp::Reverse(b.granularity));
        files.map(|f| f.backing().clone()).min_by_key(rank).unwrap_or(Backing {
            durability: Durability::Volatile,
            granularity: Granularity::Page,
            provenance: crate::durability::Provenance::Emulated,
            filesystem: String::new(),
            reason: String::new(),
        })
    }
}
