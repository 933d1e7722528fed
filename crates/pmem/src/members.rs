//! The files of a pool set, found by their superblocks and without mapping anything: for checks and for removal, which
//! must also work where opening fails.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::media::{Media, OpenMode};
use crate::opening::{Expected, check_identity, pread_superblock, stored_path};
use crate::set::MAX_PARTS;

/// One place of a set and what was found there.
pub(crate) struct Member<F> {
    pub(crate) path: PathBuf,
    /// The part.
    pub(crate) index: u32,
    /// Its place in the part's stripe.
    pub(crate) member: u16,
    pub(crate) expected: Expected,
    /// The file and its newest superblock, if they belong there.
    pub(crate) found: Result<(F, Superblock)>,
}

/// All files of a set, part by part. The chain ends early where a part's member 0 is not what it ought to be, because
/// only that one knows the next.
pub(crate) struct Members<F> {
    pub(crate) list: Vec<Member<F>>,
    /// Parts whose member 0 was found.
    pub(crate) parts: u16,
    /// Whether the chain was followed to its end.
    pub(crate) complete: bool,
}

impl<F> Members<F> {
    /// The files that belong to the set.
    pub(crate) fn good(&self) -> impl Iterator<Item = (&Member<F>, &F, &Superblock)> {
        self.list.iter().filter_map(|m| m.found.as_ref().ok().map(|(file, superblock)| (m, file, superblock)))
    }
}

/// Follows the chain from the first file, which the caller has opened.
///
/// # Errors
/// Whatever is wrong with the first file: `NotAPool`, `SuperblockLost`, `NewerVersion`, `NotFirstPart`, ...
pub(crate) fn find<M: Media>(media: &M, path: &Path, first: M::File, mode: OpenMode) -> Result<Members<M::File>> {
    let superblock = pread_superblock(&first)?;
    let expected = Expected { set: superblock.set, part: None, index: 0 };
    check_identity(path, &superblock, expected, 0)?;
    let mut members = Members { list: Vec::new(), parts: 0, complete: false };
    let expected = Expected { part: Some(superblock.part), ..expected };
    let mut head =
        Member { path: path.to_owned(), index: 0, member: 0, expected, found: Ok((first, superblock.clone())) };
    loop {
        let expected = head.expected;
        let superblock = head.found.as_ref().ok().map(|(_, superblock)| superblock.clone());
        members.list.push(head);
        let Some(superblock) = superblock else { return Ok(members) };
        members.parts += 1;
        for (member, name) in (1..).zip(&superblock.member_names) {
            members.list.push(look(media, stored_path(path, name), mode, expected, member));
        }
        let Some(next) = superblock.next else {
            members.complete = true;
            return Ok(members);
        };
        if usize::from(members.parts) >= MAX_PARTS {
            return Ok(members);
        }
        let expected = Expected { part: Some(next.part), index: u32::from(members.parts), ..expected };
        head = look(media, stored_path(path, &next.name), mode, expected, 0);
    }
}

fn look<M: Media>(media: &M, path: PathBuf, mode: OpenMode, expected: Expected, member: u16) -> Member<M::File> {
    let found = media.open(&path, mode).and_then(|file| {
        let superblock = pread_superblock(&file)?;
        check_identity(&path, &superblock, expected, member)?;
        Ok((file, superblock))
    });
    let found = found.map_err(|error| match error {
        Error::NotFound { path } => Error::MissingPart { path, index: expected.index },
        error => error,
    });
    Member { path, index: expected.index, member, expected, found }
}
