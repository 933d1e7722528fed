//! Making pools and letting them grow.
//!
//! # Creation
//! ```text
//! each file: create under a temporary name, all of it allocated -> head (log, root, superblock last) -> fsync
//! rename the members, member 0 last -> fsync the directory
//! ```
//! A pool exists when member 0 of part 0 has its name. What a crash leaves under a temporary name is found by that
//! name and removed by the next attempt; the writer's lock tells a leftover from a creation that is under way.
//!
//! A device has its name already. Its pool exists when member 0 has its superblock, which is written last; what a crash
//! leaves before that is no pool and not blank either, so the device must be cleared before it is used again.
//!
//! # Growth
//! ```text
//! make the new part as above -> link it in the superblock of the part before, slot A, then slot B -> mark it as linked
//! ```
//! A part belongs to the pool when it is linked. An unlinked part of the same set that was never marked is an orphan of
//! a crash, and the next writer removes it; one that was marked has held data, and is left alone.
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use crate::catalogue::{CHECKPOINT, Catalogue};
use crate::commit::MIN_SEGMENT_BYTES;
use crate::error::{Error, Result, Uuid};
use crate::extent::Extent;
use crate::format::{FORMAT_VERSION, HEAD_BYTES, NextPart, PartState, Root, Superblock};
use crate::log::SelfCertifyingLog;
use crate::media::{LockKind, Media, MediaFile, OpenMode, Stripe};
use crate::opening::{Expected, mark_linked, open_part, pread_superblock, read_superblock};
use crate::pins::WRITER_AT;
use crate::pool::{Layout, Pool, root_cell, segment_of, superblock_cell};
use crate::set::{MAX_PARTS, Offset, Part, Pending, PoolSet};

/// Smallest file of a pool.
pub const MIN_FILE_BYTES: u64 = 2 * HEAD_BYTES;
/// Most member files of one part.
pub const MAX_MEMBERS: usize = 64;
/// Length that no file of a pool reaches.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 47;
const TEMPORARY_SUFFIX: &str = ".remanent-creating";

/// How a part is laid out.
#[derive(Clone, Debug)]
pub struct PartOptions {
    /// Bytes of each file.
    pub file_bytes: u64,
    /// Further files, usually on other devices, over which the part is striped.
    pub more_files: Vec<PathBuf>,
    /// Bytes of a stripe chunk, a multiple of 2 MiB. Unused without further files.
    pub chunk_bytes: u64,
}

impl PartOptions {
    /// One file of this size.
    pub fn single(file_bytes: u64) -> PartOptions {
        PartOptions { file_bytes, more_files: Vec::new(), chunk_bytes: Stripe::HEAD_BYTES }
    }

    fn stripe(&self) -> Stripe {
        if self.more_files.is_empty() {
            return Stripe::SINGLE;
        }
        Stripe { members: self.more_files.len() as u16 + 1, chunk_bytes: self.chunk_bytes }
    }

    fn check(&self, path: &Path) -> Result<()> {
        let refuse = |reason| Err(Error::BadSize { path: path.to_owned(), got_bytes: self.file_bytes, reason });
        match self.file_bytes {
            0 => return refuse("it is zero"),
            1..MIN_FILE_BYTES => return refuse("a pool file has at least 4 MiB"),
            MAX_FILE_BYTES.. => return refuse("a pool file has less than 128 TiB"),
            bytes if !bytes.is_multiple_of(4096) => return refuse("it is not a multiple of 4096"),
            _ => {}
        }
        if self.more_files.len() >= MAX_MEMBERS {
            return refuse("a part is striped over at most 64 files");
        }
        if self.chunk_bytes == 0 || !self.chunk_bytes.is_multiple_of(Stripe::HEAD_BYTES) {
            return Err(Error::BadSize {
                path: path.to_owned(),
                got_bytes: self.chunk_bytes,
                reason: "a stripe chunk is a multiple of 2 MiB",
            });
        }
        if self.stripe().logical_bytes(self.file_bytes) < MIN_FILE_BYTES {
            return refuse("a striped part needs at least one chunk a file");
        }
        Ok(())
    }
}

impl<M: Media> Pool<M> {
    /// Makes a pool and opens it as the writer.
    ///
    /// # Errors
    /// `AlreadyExists`, `BadSize`, `FileSystemFull`, `PoolBusy` (another process is making it), `AccessDenied`,
    /// `ReadOnly`, `IsDirectory`, `NotFound` (no such directory), `BadName` (a layout or file name that is too long),
    /// `Unsupported` (a stripe over files and devices), `Misaligned`, `Io`. No file is left behind then, unless the
    /// process is killed; a device that could not be written in full is to be cleared.
    ///
    /// On a device, `file_bytes` is its exact size and its first 2 MiB are zero; else `BadSize` and `AlreadyExists`.
    pub fn create(media: M, path: &Path, layout: Layout, options: &PartOptions) -> Result<Pool<M>> {
        options.check(path)?;
        if !Superblock::layout_fits(layout.name) {
            return Err(Error::BadName { name: layout.name.into(), reason: "a layout has 1 to 32 bytes" });
        }
        let part = NewPart {
            set: media.new_uuid(),
            part: media.new_uuid(),
            index: 0,
            layout: layout.name,
            layout_version: layout.version,
        };
        // The lock goes over from the creation to the writer: nobody can come between.
        let made = make_part(&media, path, path, &part, options)?;
        let opened = Pool::open_files(media.clone(), path, files_of(&made), Some(layout), OpenMode::Writer);
        opened.inspect_err(|_| remove_made(&media, &made))
    }

    /// Adds a part, in a file beside the first one named after it with `.1`, `.2`, ... added, or at `path`.
    ///
    /// # Errors
    /// As [`Pool::create`]; also `NotWritable`, `WritesRefused`, `UsedAfterFork`, `TooLarge` (no more parts),
    /// `Unsupported` (nothing stands beside a device: name the path), `NotFound` (the pool has another name by now). The
    /// pool goes on as it was then. After a write-back that failed, `Io`: it is unknown whether the pool has grown, and it
    /// refuses further writes.
    pub fn grow(&self, path: Option<&Path>, options: &PartOptions) -> Result<()> {
        self.shared.check_writable()?;
        // Commits go on while the files are made, which may take long; only the link needs the writer's lock.
        let _one_at_a_time = self.shared.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let set = self.set();
        let (pool, index) = (set.reached_by()?, set.part_count());
        if path.is_none() && set.media().is_device(&pool) {
            let reason = "name the file or the device of the new part";
            return Err(Error::Unsupported { what: "growth by a file beside a device", reason });
        }
        let path = path.map_or_else(|| default_part_path(&pool, index), Path::to_owned);
        options.check(&path)?;
        if usize::from(index) >= MAX_PARTS {
            return Err(Error::TooLarge {
                what: "a pool set",
                got_bytes: u64::from(index) + 1,
                limit_bytes: MAX_PARTS as u64,
            });
        }
        let identity = &self.shared.identity;
        let media = set.media();
        let part = NewPart {
            set: identity.set,
            part: media.new_uuid(),
            index: u32::from(index),
            layout: &identity.layout,
            layout_version: identity.layout_version,
        };
        let link = NextPart { part: part.part, length_bytes: options.file_bytes, name: stored_name(&pool, &path) };
        let last = read_superblock(set, index - 1)?;
        let linked = Superblock { next: Some(link.clone()), ..last.superblock.clone() };
        if !linked.names_fit() {
            return Err(Error::BadName {
                name: path.display().to_string(),
                reason: "the path is too long to be stored",
            });
        }
        remove_if_orphan(media, &path, identity.set, u32::from(index))?;
        let made = make_part(media, &pool, &path, &part, options)?;
        let expected = Expected { set: identity.set, part: Some(part.part), index: u32::from(index) };
        let opened = open_part(media, &pool, &path, files_of(&made), OpenMode::Writer, expected);
        let mut is_linked = false;
        let linked = opened.and_then(|opened| {
            let mut guard = self.shared.lock_to_write()?;
            // It may have been closed meanwhile.
            let writer = guard.as_mut().ok_or_else(|| self.shared.not_writable())?;
            let result = match index - 1 {
                0 => writer.relink(set, |superblock| superblock.next = Some(link)),
                part => superblock_cell(part).write(set, last.generation + 1, &linked.encode()),
            };
            // A cell that could not be guarded was not written to; a page that was not written back may be durable.
            is_linked = result.is_ok() || set.has_failed();
            result?;
            set.push(opened.part);
            Ok(())
        });
        linked.inspect_err(|_| {
            if !is_linked {
                remove_made(media, &made);
            }
        })?;
        let area = set.data_areas().last().expect("a part was added");
        self.shared.space.with(|map| map.free(area));
        match mark_linked(set, index) {
            // Not marked, it is linked all the same: the next writer marks it, as after a crash here.
            Err(_) if !set.has_failed() => Ok(()),
            result => result,
        }
    }
}

fn files_of<M: Media>(made: &[NewMember<M>]) -> Vec<Arc<M::File>> {
    made.iter().map(|made| made.file.clone()).collect()
}

/// Identity of a part that is being made.
struct NewPart<'a> {
    set: Uuid,
    part: Uuid,
    index: u32,
    layout: &'a str,
    layout_version: u32,
}

/// Makes the files of a part, complete and durable. Returns them locked, the first one first.
fn make_part<M: Media>(
    media: &M,
    pool: &Path,
    path: &Path,
    part: &NewPart<'_>,
    options: &PartOptions,
) -> Result<Vec<NewMember<M>>> {
    let paths: Vec<&Path> = std::iter::once(path).chain(options.more_files.iter().map(PathBuf::as_path)).collect();
    for path in &paths {
        if !media.is_device(path) && media.exists(path)? {
            return Err(match media.open(path, OpenMode::Inspect) {
                // To choose a file in it helps; to remove it does not.
                Err(error @ Error::IsDirectory { .. }) => error,
                _ => Error::AlreadyExists { path: path.to_path_buf() },
            });
        }
    }
    let superblock = Superblock {
        version: FORMAT_VERSION,
        compatible: 0,
        read_only_compatible: 0,
        incompatible: 0,
        set: part.set,
        part: part.part,
        index: part.index,
        stripe: options.stripe(),
        member: 0,
        length_bytes: options.file_bytes,
        layout_version: part.layout_version,
        state: PartState::Clean,
        clean_tail: 1,
        created_s: media.unix_time_s(),
        layout: part.layout.to_owned(),
        next: None,
        member_names: options.more_files.iter().map(|file| stored_name(pool, file)).collect(),
    };
    if !superblock.names_fit() {
        return Err(Error::BadName { name: path.display().to_string(), reason: "the paths are too long to be stored" });
    }
    let mut made = Vec::new();
    let result = (|| {
        for path in &paths {
            made.push(create_member(media, path, options.file_bytes)?);
        }
        if made.len() > 1 {
            // A stripe that cannot be mapped is refused while the devices among its members are blank yet.
            media.map(&files_of(&made), options.stripe(), OpenMode::Writer)?;
        }
        // Member 0 comes last: a device has its name already, so its superblock is what makes the part exist.
        for (member, made) in made.iter().enumerate().rev() {
            let superblock = match member {
                0 => superblock.clone(),
                _ => Superblock { member: member as u16, member_names: Vec::new(), ..superblock.clone() },
            };
            write_head(media, &made.file, &superblock)?;
        }
        for (made, path) in made.iter_mut().zip(&paths).rev() {
            if let Some(temporary) = made.name.as_deref() {
                media.rename(temporary, path)?;
                made.name = Some(path.to_path_buf());
                Arc::get_mut(&mut made.file).expect("it is mapped no more").renamed(path);
                media.sync_dir(path)?;
            }
        }
        Ok(())
    })();
    if result.is_err() {
        remove_made(media, &made);
    }
    result.map(|()| made)
}

/// Removes files that are still locked, so that a name that means one of them goes on meaning it. Best effort: the error
/// that is reported is the one that came before, and an unlinked part or one without its member 0 is no part.
fn remove_made<M: Media>(media: &M, made: &[NewMember<M>]) {
    for made in made {
        if let Some(name) = made.name.as_deref().filter(|name| media.names(name, &made.file).unwrap_or(false)) {
            let _ = media.remove(name);
        }
    }
}

/// A file or device of a part that is being made, locked.
struct NewMember<M: Media> {
    file: Arc<M::File>,
    /// The name that it has now, a temporary one until it is complete; none on a device, which had one before.
    name: Option<PathBuf>,
}

fn create_member<M: Media>(media: &M, path: &Path, len_bytes: u64) -> Result<NewMember<M>> {
    if !media.is_device(path) {
        let temporary = temporary(path);
        return Ok(NewMember { file: create_temporary(media, &temporary, len_bytes)?, name: Some(temporary) });
    }
    let file = Arc::new(media.open(path, OpenMode::Writer)?);
    if !file.try_lock(LockKind::Exclusive, WRITER_AT..WRITER_AT + 1)? {
        return Err(Error::PoolBusy { path: path.to_owned() });
    }
    // Under the lock: nobody else makes a pool here after this has found the device blank.
    media.create(path, len_bytes)?;
    Ok(NewMember { file, name: None })
}

/// A new file under a temporary name, locked against whoever looks for leftovers.
fn create_temporary<M: Media>(media: &M, path: &Path, len_bytes: u64) -> Result<Arc<M::File>> {
    let busy = || Error::PoolBusy { path: path.to_owned() };
    if !remove_leftover(media, path)? {
        return Err(busy());
    }
    let file = match media.create(path, len_bytes) {
        Err(Error::AlreadyExists { .. }) => return Err(busy()),
        result => result?,
    };
    // Until it is locked somebody may have taken it for a leftover.
    if file.try_lock(LockKind::Exclusive, WRITER_AT..WRITER_AT + 1)? && media.names(path, &file)? {
        return Ok(Arc::new(file));
    }
    Err(busy())
}

/// Removes what an interrupted creation has left under a temporary name; false when a creation is under way there. Only
/// who holds the lock of the file that a temporary name means may remove or rename it.
fn remove_leftover<M: Media>(media: &M, path: &Path) -> Result<bool> {
    let leftover = match media.open(path, OpenMode::Writer) {
        Err(Error::NotFound { .. }) => return Ok(true),
        result => result?,
    };
    if !leftover.try_lock(LockKind::Exclusive, WRITER_AT..WRITER_AT + 1)? {
        return Ok(false);
    }
    if media.names(path, &leftover)? {
        media.remove(path)?;
    }
    Ok(true)
}

/// Writes a file's head: for part 0 the log's first checkpoint and the root cell, then the superblock.
fn write_head<M: Media>(media: &M, file: &Arc<M::File>, superblock: &Superblock) -> Result<()> {
    let map = media.map(std::slice::from_ref(file), Stripe::SINGLE, OpenMode::Writer)?;
    let part = Part::new(vec![file.clone()], map, Stripe::SINGLE, superblock.length_bytes);
    let set = PoolSet::new(media.clone(), file.path(), OpenMode::Writer, part);
    if superblock.index == 0 && superblock.member == 0 {
        // With one chunk at least behind the head, the first segment has the same place striped and single.
        let segment = Extent { offset: Offset::new(0, HEAD_BYTES), len_bytes: MIN_SEGMENT_BYTES };
        let root = Root { segment, segment_generation: 1, first_sequence: 1 };
        let mut log = SelfCertifyingLog::start(segment_of(&root, superblock.set));
        log.append(&set, &mut Pending::new(), CHECKPOINT, &Catalogue::default().encode_checkpoint(&[]))?;
        root_cell(superblock.set).write(&set, 1, &root.encode())?;
    }
    superblock_cell(0).write(&set, 1, &superblock.encode())?;
    file.fsync()
}

pub(crate) fn temporary(path: &Path) -> PathBuf {
    with_suffix(path, TEMPORARY_SUFFIX)
}

pub(crate) fn default_part_path(pool: &Path, index: u16) -> PathBuf {
    with_suffix(pool, &format!(".{index}"))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// A file's name as a superblock stores it: bare when it lies beside the pool, so that a pool can be moved, else
/// absolute, so that it does not depend on where a program is started.
fn stored_name(pool: &Path, path: &Path) -> Vec<u8> {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (pool, path) = (absolute(pool), absolute(path));
    let name =
        if path.parent() == pool.parent() { path.file_name().unwrap_or(path.as_os_str()) } else { path.as_os_str() };
    name.as_bytes().to_vec()
}

/// Removes what an interrupted growth has left beside the pool.
pub(crate) fn remove_orphans<M: Media>(set: &PoolSet<M>, superblock: &Superblock) -> Result<()> {
    let index = set.part_count();
    let path = default_part_path(&set.reached_by()?, index);
    let media = set.media();
    // What is being made there just now is another pool, and nobody's leftover; what cannot be opened is not ours.
    let _ = remove_leftover(media, &temporary(&path));
    remove_if_orphan(media, &path, superblock.set, u32::from(index))
}

/// Removes a file if it is an unlinked part of this set with this index.
fn remove_if_orphan<M: Media>(media: &M, path: &Path, set: Uuid, index: u32) -> Result<()> {
    if media.is_device(path) || !media.exists(path)? {
        return Ok(());
    }
    let Ok(superblock) = media.open(path, OpenMode::Reader).and_then(|file| pread_superblock(&file)) else {
        return Ok(());
    };
    if superblock.is_orphan_of(set, index) {
        // If a crash brings it back, it is found and removed again.
        media.remove(path)?;
    }
    Ok(())
}
