//! Looking a pool over without changing a byte of it.
//!
//! | step | what is looked at |
//! | --- | --- |
//! | files | every file of the set: there, the right one, long enough, both copies of its superblock valid and equal |
//! | contents | the root cell's copies, the log replayed, the tail hint, every extent in range and disjoint |
//! | surroundings | what interrupted creations and growths have left beside the pool |
//! | medium | every byte in use can be read |
//!
//! A pool that a writer has open may be checked. What it is changing can then be seen half done, so a check that finds
//! something before it reads the medium is made again.

use std::path::{Path, PathBuf};

use crate::cell::DoubleCell;
use crate::creation::{default_part_path, temporary};
use crate::error::{Error, ErrorCode, Result, Uuid};
use crate::format::{PartState, SUPERBLOCK_AT, SUPERBLOCK_BYTES, Superblock};
use crate::media::{Media, MediaFile, OpenMode};
use crate::members::{self, Member, Members};
use crate::opening::{check_superblock, pread_superblock};
use crate::pins::WRITER_AT;
use crate::pool::LOOKS_BESIDE_A_WRITER;

mod contents;

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Something is wrong and nothing is lost.
    Repairable,
    /// Something is lost, or the pool cannot be opened.
    Damage,
}

impl Severity {
    /// The word used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Repairable => "repairable",
            Severity::Damage => "damage",
        }
    }
}

/// Something that a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file.
    pub path: PathBuf,
    /// The byte of the file, where there is one.
    pub offset_bytes: Option<u64>,
    /// The error that opening or reading meets there, if it meets one.
    pub error: Option<ErrorCode>,
    /// What was found and what can be done, for the user.
    pub message: String,
}

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// Bytes read.
    pub done_bytes: u64,
    /// Bytes in use.
    pub total_bytes: u64,
}

/// What [`check`] tells.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckReport {
    /// Identity of the set.
    pub set: Uuid,
    /// Product and its format version.
    pub layout: (String, u32),
    /// The files that belong to it and were found.
    pub files: Vec<PathBuf>,
    /// Whether a writer had it open meanwhile.
    pub has_writer: bool,
    /// Whether it was closed in order.
    pub is_clean: bool,
    /// Catalogue generation, if the log could be replayed.
    pub generation: Option<u64>,
    /// How many names there are, if the log could be replayed.
    pub names: Option<usize>,
    /// Bytes of extents that were read.
    pub read_bytes: u64,
    /// Everything that was found, in the order of the steps.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// The worst severity, or none when nothing was found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    fn add(&mut self, severity: Severity, path: &Path, offset_bytes: Option<u64>, message: String) {
        self.findings.push(Finding { severity, path: path.to_owned(), offset_bytes, error: None, message });
    }

    /// An error as damage.
    fn add_error(&mut self, path: &Path, error: &Error) {
        let offset_bytes = match error {
            Error::Corrupt { offset_bytes, .. } | Error::BadBlock { offset_bytes, .. } => Some(*offset_bytes),
            _ => None,
        };
        self.findings.push(Finding {
            severity: Severity::Damage,
            path: error.path().unwrap_or(path).to_owned(),
            offset_bytes,
            error: Some(error.code()),
            message: error.to_string(),
        });
    }
}

/// Checks a pool and changes nothing, not even when it is damaged; `progress` is told how far it is. Beside a writer
/// it is safe.
///
/// # Errors
/// Where there is no pool to check: `NotFound`, `IsDirectory`, `Symlink`, `AccessDenied`, `WorldWritable`, `NotAPool`,
/// `NotFirstPart`, or one that only a newer version understands: `NewerVersion`, `UnknownFeature`; and `Io`. Damage is
/// no error: it is in the report.
pub fn check<M: Media>(media: &M, path: &Path, mut progress: impl FnMut(CheckProgress)) -> Result<CheckReport> {
    for _ in 1..LOOKS_BESIDE_A_WRITER {
        if let Some(report) = look(media, path, &mut progress, false)? {
            return Ok(report);
        }
    }
    Ok(look(media, path, &mut progress, true)?.expect("the last look reports what it sees"))
}

/// One look; none when it has found something that a writer may be in the middle of, unless it is the last look.
fn look<M: Media>(
    media: &M,
    path: &Path,
    progress: &mut dyn FnMut(CheckProgress),
    is_last: bool,
) -> Result<Option<CheckReport>> {
    let first = media.open(path, OpenMode::Inspect)?;
    let had_writer = has_writer(&first)?;
    let members = match members::find(media, path, first, OpenMode::Inspect) {
        Err(error @ (Error::SuperblockLost { .. } | Error::Corrupt { .. } | Error::BadBlock { .. })) => {
            return Ok((is_last || !had_writer).then(|| unreadable(path, had_writer, &error)));
        }
        result => result?,
    };
    let (_, first, superblock) = members.good().next().expect("the first file was found");
    let mut report = CheckReport {
        set: superblock.set,
        layout: (superblock.layout.clone(), superblock.layout_version),
        files: members.good().map(|(member, ..)| member.path.clone()).collect(),
        has_writer: had_writer,
        is_clean: superblock.state == PartState::Clean,
        generation: None,
        names: None,
        read_bytes: 0,
        findings: Vec::new(),
    };
    check_files(&members, &mut report)?;
    let opened = match report.worst() {
        Some(Severity::Damage) => None,
        _ => contents::open(media, path, &mut report)?,
    };
    if members.complete {
        check_surroundings(media, path, &members, &mut report)?;
    }
    report.has_writer |= has_writer(first)?;
    if report.has_writer && !is_last && report.worst() > Some(Severity::Note) {
        return Ok(None);
    }
    if let Some(opened) = opened {
        contents::read(&opened, &mut report, progress)?;
    }
    if report.has_writer {
        let message = "a writer has the pool open; what it is changing may be seen half done".to_owned();
        report.add(Severity::Note, path, None, message);
    }
    Ok(Some(report))
}

fn has_writer<F: MediaFile>(first: &F) -> Result<bool> {
    Ok(first.find_lock(WRITER_AT..WRITER_AT + 1)?.is_some())
}

/// The report on a pool whose first file says nothing any more.
fn unreadable(path: &Path, has_writer: bool, error: &Error) -> CheckReport {
    let mut report = CheckReport {
        set: Uuid::default(),
        layout: (String::new(), 0),
        files: vec![path.to_owned()],
        has_writer,
        is_clean: false,
        generation: None,
        names: None,
        read_bytes: 0,
        findings: Vec::new(),
    };
    report.add_error(path, error);
    report
}

fn check_files<F: MediaFile>(members: &Members<F>, report: &mut CheckReport) -> Result<()> {
    for member in &members.list {
        match &member.found {
            Ok((file, superblock)) => {
                check_copies(member, file, report)?;
                check_member(member, file, superblock, report)?;
            }
            Err(error) => report.add_error(&member.path, error),
        }
    }
    check_links(members, report);
    if !members.complete && report.worst() != Some(Severity::Damage) {
        let what = Error::Corrupt { path: members.list[0].path.clone(), what: "the chain of parts", offset_bytes: 0 };
        report.add_error(&members.list[0].path, &what);
    }
    Ok(())
}

/// What the superblock says of its own file.
fn check_member<F: MediaFile>(
    member: &Member<F>,
    file: &F,
    superblock: &Superblock,
    report: &mut CheckReport,
) -> Result<()> {
    match check_superblock(file, superblock, OpenMode::Writer) {
        Ok(()) => {}
        Err(error @ Error::UnknownFeature { .. }) if member.index == 0 && member.member == 0 => return Err(error),
        Err(error) => report.add_error(&member.path, &error),
    }
    let (got_bytes, expected_bytes) = (file.len_bytes()?, superblock.length_bytes);
    if got_bytes > expected_bytes {
        let message = format!("the file has {got_bytes} bytes, {expected_bytes} of them are used; the rest is ignored");
        report.add(Severity::Note, &member.path, Some(expected_bytes), message);
    }
    Ok(())
}

/// Both copies of a superblock must be valid and equal.
fn check_copies<F: MediaFile>(member: &Member<F>, file: &F, report: &mut CheckReport) -> Result<()> {
    let remedy = "the next writer mends it";
    let mut copies = Vec::new();
    for (name, at) in ["first", "second"].into_iter().zip(SUPERBLOCK_AT) {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        match file.pread(at, &mut bytes) {
            Ok(()) => {}
            // Reported with the length.
            Err(Error::Truncated { .. }) => continue,
            Err(error @ Error::BadBlock { .. }) => {
                report.add_error(&member.path, &error);
                continue;
            }
            Err(error) => return Err(error),
        }
        if DoubleCell::unseal(&bytes, 0).is_some() {
            copies.push(bytes);
        } else {
            let message = format!("the {name} copy of the superblock is damaged; {remedy}");
            report.add(Severity::Repairable, &member.path, Some(at), message);
        }
    }
    if let [first, second] = &copies[..]
        && first != second
    {
        let message = format!("the two copies of the superblock differ, as a crash leaves them; {remedy}");
        report.add(Severity::Repairable, &member.path, Some(SUPERBLOCK_AT[1]), message);
    }
    Ok(())
}

/// What the superblocks say of one another.
fn check_links<F>(members: &Members<F>, report: &mut CheckReport) {
    let heads: Vec<_> = members.good().filter(|(member, ..)| member.member == 0).collect();
    let mut contradictions = Vec::new();
    for pair in heads.windows(2) {
        let (before, after) = (pair[0].2, pair[1].2);
        let linked_bytes = before.next.as_ref().map(|next| next.length_bytes);
        if linked_bytes != Some(after.length_bytes) || (&before.layout, before.layout_version) != layout_of(after) {
            contradictions.push(pair[1].0.path.clone());
        }
    }
    for (member, _, superblock) in members.good().filter(|(member, ..)| member.member > 0) {
        let head = heads.iter().find(|(head, ..)| head.index == member.index).expect("members follow their head");
        if superblock.stripe != head.2.stripe || superblock.length_bytes != head.2.length_bytes {
            contradictions.push(member.path.clone());
        }
    }
    for path in contradictions {
        let error =
            Error::Corrupt { path: path.clone(), what: "what the superblocks say of each other", offset_bytes: 0 };
        report.add_error(&path, &error);
    }
}

fn layout_of(superblock: &Superblock) -> (&String, u32) {
    (&superblock.layout, superblock.layout_version)
}

/// What lies under the names that creation and growth use.
fn check_surroundings<M: Media>(
    media: &M,
    path: &Path,
    members: &Members<M::File>,
    report: &mut CheckReport,
) -> Result<()> {
    let leftover = temporary(path);
    if media.exists(&leftover)? {
        let message = "an interrupted creation has left this file; nothing uses it, it can be removed".to_owned();
        report.add(Severity::Note, &leftover, None, message);
    }
    let next = default_part_path(path, members.parts);
    let unfinished = temporary(&next);
    if media.exists(&unfinished)? {
        let message = "an interrupted growth has left this file; the next writer removes it".to_owned();
        report.add(Severity::Repairable, &unfinished, None, message);
    }
    if media.exists(&next)? {
        let superblock = media.open(&next, OpenMode::Inspect).and_then(|file| pread_superblock(&file));
        let index = u32::from(members.parts);
        let (severity, message) = if superblock.as_ref().is_ok_and(|s| s.is_orphan_of(report.set, index)) {
            (Severity::Repairable, "an interrupted growth has left this part unlinked; the next writer removes it")
        } else if superblock.is_ok_and(|s| s.set == report.set && s.index == index) {
            let what = "this part of the pool was in use and is not linked: is the first file an older copy?";
            (Severity::Damage, what)
        } else {
            (Severity::Note, "this file has the name of the next part; grow the pool with a part elsewhere, or move it")
        };
        report.add(severity, &next, None, message.to_owned());
    }
    Ok(())
}
