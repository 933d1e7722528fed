//! Opening the files of a pool: what each must be, how they are found from the first, and how copies of superblocks are
//! mended.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cell::DoubleCell;
use crate::creation::{MAX_FILE_BYTES, MIN_FILE_BYTES};
use crate::error::{Error, Result, Uuid};
use crate::format::{
    FORMAT_VERSION, KNOWN_INCOMPATIBLE, KNOWN_READ_ONLY_COMPATIBLE, NextPart, PartState, SUPERBLOCK_AT,
    SUPERBLOCK_BYTES, Superblock,
};
use crate::media::{LockKind, Media, MediaFile, MediaMap, OpenMode, Stripe};
use crate::pins::WRITER_AT;
use crate::pool::{Layout, PartInfo, superblock_cell};
use crate::set::{MAX_PARTS, Part, Pending, PoolSet};

pub(crate) fn stored_path(pool: &Path, name: &[u8]) -> PathBuf {
    let name = OsStr::from_bytes(name);
    if name.as_bytes().contains(&b'/') { PathBuf::from(name) } else { pool.with_file_name(name) }
}

/// What a part must be to belong where it is expected.
#[derive(Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) set: Uuid,
    pub(crate) part: Option<Uuid>,
    pub(crate) index: u32,
}

pub(crate) struct OpenedPart<M: Media> {
    pub(crate) part: Part<M>,
    superblock: Superblock,
}

pub(crate) struct ReadSuperblock {
    pub(crate) superblock: Superblock,
    pub(crate) generation: u64,
}

/// The superblock of a part that is mapped.
pub(crate) fn read_superblock<M: Media>(set: &PoolSet<M>, part: u16) -> Result<ReadSuperblock> {
    let lost = || Error::SuperblockLost { path: set.path().to_owned() };
    let value = superblock_cell(part).read(set)?.ok_or_else(lost)?;
    let superblock = Superblock::decode(&value.payload).ok_or_else(lost)?;
    Ok(ReadSuperblock { superblock, generation: value.generation })
}

/// Reads a file's superblock through the file interface, before anything is mapped.
pub(crate) fn pread_superblock<F: MediaFile>(file: &F) -> Result<Superblock> {
    let path = || file.path().to_owned();
    let len_bytes = file.len_bytes()?;
    let mut slots = Vec::new();
    let mut unreadable = None;
    for at in SUPERBLOCK_AT {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        if at + SUPERBLOCK_BYTES as u64 > len_bytes {
            continue;
        }
        match file.pread(at, &mut bytes) {
            Ok(()) => slots.push(bytes),
            // One lost slot is what the other is for.
            Err(error @ Error::BadBlock { .. }) => unreadable = Some(error),
            Err(error) => return Err(error),
        }
    }
    let sealed = slots.iter().filter_map(|slot| Some((DoubleCell::unseal(slot, 0)?, slot)));
    let newest = sealed.max_by_key(|(generation, _)| *generation).map(|(_, slot)| &slot[..Superblock::BYTES]);
    let has_magic = |slot: &&Vec<u8>| Superblock::has_magic(slot);
    let Some(newest) = newest else {
        let newer = slots.iter().find(|slot| has_magic(slot) && Superblock::version_of(slot) > FORMAT_VERSION);
        return Err(match (newer, unreadable) {
            (Some(slot), _) => {
                Error::NewerVersion { path: path(), got: Superblock::version_of(slot), supported: FORMAT_VERSION }
            }
            (None, Some(error)) if slots.is_empty() => error,
            (None, _) if slots.iter().any(|slot| has_magic(&slot)) => Error::SuperblockLost { path: path() },
            (None, Some(error)) => error,
            (None, None) => Error::NotAPool { path: path() },
        });
    };
    if !Superblock::has_magic(newest) {
        return Err(Error::NotAPool { path: path() });
    }
    let version = Superblock::version_of(newest);
    if version > FORMAT_VERSION {
        return Err(Error::NewerVersion { path: path(), got: version, supported: FORMAT_VERSION });
    }
    Superblock::decode(newest).ok_or_else(|| Error::Corrupt { path: path(), what: "the superblock", offset_bytes: 0 })
}

pub(crate) fn check_superblock<F: MediaFile>(file: &F, superblock: &Superblock, mode: OpenMode) -> Result<()> {
    let path = || file.path().to_owned();
    let unknown = superblock.incompatible & !KNOWN_INCOMPATIBLE;
    let unknown_to_writers = superblock.read_only_compatible & !KNOWN_READ_ONLY_COMPATIBLE;
    let bits = if mode == OpenMode::Writer { unknown | unknown_to_writers } else { unknown };
    if bits != 0 {
        return Err(Error::UnknownFeature { path: path(), bits });
    }
    let (got_bytes, expected_bytes) = (file.len_bytes()?, superblock.length_bytes);
    if got_bytes < expected_bytes {
        return Err(Error::Truncated { path: path(), got_bytes, expected_bytes });
    }
    if superblock.stripe.logical_bytes(expected_bytes) < MIN_FILE_BYTES || expected_bytes >= MAX_FILE_BYTES {
        return Err(Error::Corrupt { path: path(), what: "the length in the superblock", offset_bytes: 88 });
    }
    Ok(())
}

/// Opens all files of one part and maps them; the first ones may be open already, and are locked then if a writer opens
/// them. A writer locks the others too: a copy of a pool's first file leads to the same further files.
pub(crate) fn open_part<M: Media>(
    media: &M,
    pool: &Path,
    path: &Path,
    open: Vec<Arc<M::File>>,
    mode: OpenMode,
    expected: Expected,
) -> Result<OpenedPart<M>> {
    let mut open = open.into_iter();
    let mut next = |path: &Path| match open.next() {
        Some(file) => Ok(file),
        None => open_member(media, path, mode, expected.index).map(Arc::new),
    };
    let file = next(path)?;
    let superblock = pread_superblock(&*file)?;
    check_superblock(&*file, &superblock, mode)?;
    check_identity(path, &superblock, expected, 0)?;
    let mut files = vec![file];
    for (member, name) in (1..).zip(&superblock.member_names) {
        let path = stored_path(pool, name);
        let file = next(&path)?;
        let its = pread_superblock(&*file)?;
        check_superblock(&*file, &its, mode)?;
        let expected = Expected { part: Some(superblock.part), ..expected };
        check_identity(&path, &its, expected, member)?;
        files.push(file);
    }
    let map = media.map(&files, superblock.stripe, mode)?;
    let (got_bytes, expected_bytes) = (map.len_bytes(), superblock.stripe.logical_bytes(superblock.length_bytes));
    if got_bytes < expected_bytes {
        return Err(Error::Truncated { path: path.to_owned(), got_bytes, expected_bytes });
    }
    let part = Part::new(files, map, superblock.stripe, superblock.length_bytes);
    Ok(OpenedPart { part, superblock })
}

fn open_member<M: Media>(media: &M, path: &Path, mode: OpenMode, index: u32) -> Result<M::File> {
    let file = media.open(path, mode).map_err(|error| match error {
        Error::NotFound { path } => Error::MissingPart { path, index },
        error => error,
    })?;
    if mode == OpenMode::Writer && !file.try_lock(LockKind::Exclusive, WRITER_AT..WRITER_AT + 1)? {
        return Err(Error::PoolBusy { path: path.to_owned() });
    }
    Ok(file)
}

pub(crate) fn check_identity(path: &Path, superblock: &Superblock, expected: Expected, member: u16) -> Result<()> {
    let path = || path.to_owned();
    if superblock.set != expected.set {
        return Err(Error::ForeignPart { path: path(), got: superblock.set, expected: expected.set });
    }
    if expected.index == 0 && (superblock.index != 0 || superblock.member != member) && expected.part.is_none() {
        return Err(Error::NotFirstPart { path: path(), index: superblock.index });
    }
    let right_part = expected.part.is_none_or(|part| part == superblock.part);
    if !right_part || superblock.index != expected.index || superblock.member != member {
        return Err(Error::ForeignPart {
            path: path(),
            got: superblock.part,
            expected: expected.part.unwrap_or_default(),
        });
    }
    Ok(())
}

/// Opens part 0 and everything linked to it.
pub(crate) fn open_set<M: Media>(
    media: M,
    path: &Path,
    files: Vec<Arc<M::File>>,
    layout: Option<Layout>,
    mode: OpenMode,
) -> Result<(PoolSet<M>, Superblock)> {
    let superblock = pread_superblock(&*files[0])?;
    if let Some(layout) = layout
        && (superblock.layout != layout.name || superblock.layout_version != layout.version)
    {
        return Err(Error::WrongLayout {
            path: path.to_owned(),
            got: superblock.layout,
            got_version: superblock.layout_version,
            expected: layout.name.into(),
            expected_version: layout.version,
        });
    }
    let expected = Expected { set: superblock.set, part: None, index: 0 };
    let first = open_part(&media, path, path, files, mode, expected)?;
    let superblock = first.superblock;
    let set = PoolSet::new(media, path, mode, first.part);
    open_linked(&set, superblock.set, superblock.next.clone())?;
    if mode != OpenMode::Inspect {
        sync_names(&set)?;
    }
    Ok((set, superblock))
}

/// Makes the names of all files durable: whoever made them may have been killed before it did, and what is shown to a
/// user must not vanish afterwards.
fn sync_names<M: Media>(set: &PoolSet<M>) -> Result<()> {
    let mut directories = BTreeSet::new();
    for file in set.parts().flat_map(|part| &part.files) {
        if directories.insert(file.path().parent()) {
            set.media().sync_dir(file.path())?;
        }
    }
    Ok(())
}

/// Opens the parts that were linked since.
pub(crate) fn open_new_parts<M: Media>(set: &PoolSet<M>, uuid: Uuid) -> Result<()> {
    let last = read_superblock(set, set.part_count() - 1)?;
    open_linked(set, uuid, last.superblock.next)
}

fn open_linked<M: Media>(set: &PoolSet<M>, uuid: Uuid, mut next: Option<NextPart>) -> Result<()> {
    while let Some(link) = next {
        let index = set.part_count();
        // Of a pool that was moved, the parts elsewhere are found all the same.
        let pool = set.reached_by().unwrap_or_else(|_| set.path().to_owned());
        let path = stored_path(&pool, &link.name);
        if usize::from(index) >= MAX_PARTS {
            return Err(Error::Corrupt { path: set.path().to_owned(), what: "the chain of parts", offset_bytes: 0 });
        }
        let expected = Expected { set: uuid, part: Some(link.part), index: u32::from(index) };
        let opened = open_part(set.media(), &pool, &path, Vec::new(), set.mode(), expected)?;
        next = opened.superblock.next;
        set.push(opened.part);
    }
    Ok(())
}

pub(crate) fn part_info<M: Media>(part: &Part<M>) -> PartInfo {
    PartInfo {
        files: part.files.iter().map(|file| file.path().to_owned()).collect(),
        len_bytes: part.len_bytes(),
        stripe: part.stripe,
    }
}

/// Marks a further part as linked, so that it is never taken for what an interrupted growth has left.
pub(crate) fn mark_linked<M: Media>(set: &PoolSet<M>, part: u16) -> Result<()> {
    let read = read_superblock(set, part)?;
    if read.superblock.state == PartState::Linked {
        return Ok(());
    }
    let linked = Superblock { state: PartState::Linked, ..read.superblock };
    superblock_cell(part).write(set, read.generation + 1, &linked.encode())
}

/// Makes the copies of the superblocks of further members of stripes whole. Those of the first members, which the
/// mapping shows, are mended by the writer.
pub(crate) fn mend_members<M: Media>(set: &PoolSet<M>) -> Result<()> {
    for file in set.parts().flat_map(|part| part.files.iter().skip(1)) {
        if copies_agree(&**file)? {
            continue;
        }
        let map = set.media().map(std::slice::from_ref(file), Stripe::SINGLE, OpenMode::Writer)?;
        let part = Part::new(vec![file.clone()], map, Stripe::SINGLE, file.len_bytes()?);
        let member = PoolSet::new(set.media().clone(), file.path(), OpenMode::Writer, part);
        let cell = superblock_cell(0);
        let value = cell.read(&member)?.ok_or_else(|| Error::SuperblockLost { path: file.path().to_owned() })?;
        let mut pending = Pending::new();
        cell.repair(&member, &value, &mut pending)?;
        member.fence(&mut pending)?;
    }
    Ok(())
}

/// Whether both copies of a file's superblock are valid and equal. A copy that cannot be read is left as it is: stores
/// do not mend a bad block.
fn copies_agree<F: MediaFile>(file: &F) -> Result<bool> {
    let mut copies = [[0; SUPERBLOCK_BYTES]; 2];
    for (copy, at) in copies.iter_mut().zip(SUPERBLOCK_AT) {
        match file.pread(at, copy) {
            Ok(()) => {}
            Err(Error::BadBlock { .. }) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(copies[0] == copies[1] && DoubleCell::unseal(&copies[0], 0).is_some())
}
