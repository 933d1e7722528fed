//! What lies behind the superblocks: root cell, log, extents, and whether all of it can be read.

use std::path::Path;
use std::sync::Arc;

use super::{CheckProgress, CheckReport, Severity};
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::format::{self, ROOT_AT, TAIL_HINT_AT};
use crate::media::{Media, MediaFile, OpenMode, Touch};
use crate::opening;
use crate::pool::{Replayed, root_cell};
use crate::set::{Offset, PoolSet, TAIL_HINT};

/// Read at once; large enough for a disk, small enough for a smooth bar.
const PIECE_BYTES: u64 = 1 << 20;

/// More findings of one kind than this help nobody.
const MOST_EXTENTS_NAMED: usize = 100;

/// An extent and whose it is.
type Owned = (Extent, String);

/// A set whose metadata was looked at, and everything that is in use in it.
pub(super) struct Opened<M: Media> {
    set: PoolSet<M>,
    owned: Vec<Owned>,
}

/// Looks at the metadata of a set whose files are all there. Damage goes into the report; none is returned when it
/// leaves nothing that could be read.
pub(super) fn open<M: Media>(media: &M, path: &Path, report: &mut CheckReport) -> Result<Option<Opened<M>>> {
    let file = Arc::new(media.open(path, OpenMode::Inspect)?);
    let replayed =
        opening::open_set(media.clone(), path, vec![file], None, OpenMode::Inspect).and_then(|(set, superblock)| {
            let replayed = Replayed::read(&set, superblock.set)?;
            replayed.check_tail(&set, &superblock)?;
            Ok((set, replayed))
        });
    let (set, replayed) = match replayed {
        Ok(both) => both,
        Err(error) => {
            report.add_error(path, &error);
            return Ok(None);
        }
    };
    report.generation = Some(replayed.catalogue.generation);
    report.names = Some(replayed.catalogue.names.len());
    check_cells(&set, report)?;
    if !report.is_clean && !report.has_writer {
        let message = "the pool was not closed in order; the next writer recovers it, and nothing is lost".to_owned();
        report.add(Severity::Note, path, None, message);
    }
    let owned = owned_extents(&replayed);
    if !check_extents(&set, &owned, report) {
        return Ok(None);
    }
    if let Err(error) = replayed.free_map(&set) {
        report.add_error(path, &error);
    }
    Ok(Some(Opened { set, owned }))
}

/// Copies that are there twice although one would do.
fn check_cells<M: Media>(set: &PoolSet<M>, report: &mut CheckReport) -> Result<()> {
    let path = set.path();
    let slots = root_cell(report.set).read_slots(set)?;
    for ((name, at), slot) in ["first", "second"].into_iter().zip(ROOT_AT).zip(&slots) {
        if slot.is_none() {
            let message = format!("the {name} copy of the root cell is damaged; the next writer mends it");
            report.add(Severity::Repairable, path, Some(at), message);
        }
    }
    if slots.iter().all(Option::is_some) && slots[0] != slots[1] {
        let message = "the two copies of the root cell differ, as a crash leaves them; the next writer mends it";
        report.add(Severity::Repairable, path, Some(ROOT_AT[1]), message.to_owned());
    }
    match set.guard(TAIL_HINT, 8, Touch::Load) {
        Err(error @ Error::BadBlock { .. }) => report.add_error(path, &error),
        result => result.map(|()| check_hint(set, report))?,
    }
    Ok(())
}

fn check_hint<M: Media>(set: &PoolSet<M>, report: &mut CheckReport) {
    let (path, hint) = (set.path(), set.load_u64(TAIL_HINT));
    if hint != 0 && format::decode_tail_hint(format::seed(report.set, 0), hint).is_none() {
        let message = "the hint to the end of the log is damaged; the next commit writes it anew".to_owned();
        report.add(Severity::Repairable, path, Some(TAIL_HINT_AT), message);
    }
}

fn owned_extents(replayed: &Replayed) -> Vec<Owned> {
    let catalogue = &replayed.catalogue;
    let live = catalogue
        .names
        .iter()
        .flat_map(|(name, region)| region.extents.iter().map(move |&extent| (extent, format!("{name:?}"))));
    let retired = catalogue.retired.values().map(|retired| (retired.extent, "what waits for readers".to_owned()));
    let mut owned: Vec<Owned> = live.chain(retired).collect();
    owned.push((replayed.root.segment, "the log".to_owned()));
    owned.sort_by_key(|(extent, _)| *extent);
    owned
}

/// In range, made of whole units, and disjoint. `owned` is sorted by offset.
fn check_extents<M: Media>(set: &PoolSet<M>, owned: &[Owned], report: &mut CheckReport) -> bool {
    let areas: Vec<Extent> = set.data_areas().collect();
    let before = report.findings.len();
    let mut last: Option<&Owned> = None;
    for it in owned {
        let (extent, name) = it;
        let problem = if !is_inside(&areas, *extent) {
            Some(format!("the extent {:?} of {name} leaves its part", extent.offset))
        } else {
            last.filter(|(last, _)| last.end() > extent.offset.to_word())
                .map(|(_, other)| format!("the extent {:?} belongs to {name} and to {other}", extent.offset))
        };
        if let Some(message) = problem
            && report.findings.len() - before < MOST_EXTENTS_NAMED
        {
            let message = format!("{message}; restore the pool from a copy");
            report.add(Severity::Damage, set.path(), None, message);
        }
        if last.is_none_or(|(last, _)| last.end() < extent.offset.to_word().saturating_add(extent.len_bytes)) {
            last = Some(it);
        }
    }
    report.findings.len() == before
}

fn is_inside(areas: &[Extent], extent: Extent) -> bool {
    let (start, len) = (extent.offset.to_word(), extent.len_bytes);
    let is_whole = start.is_multiple_of(format::EXTENT_ALIGN) && len.is_multiple_of(format::EXTENT_ALIGN) && len > 0;
    let end = start.checked_add(len);
    let holds = |area: &Extent| area.offset.to_word() <= start && end.is_some_and(|end| end <= area.end());
    is_whole && areas.iter().any(holds)
}

/// Reads all extents through the file interface, so that a bad block is found here and no signal later.
pub(super) fn read<M: Media>(
    opened: &Opened<M>,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<()> {
    let Opened { set, owned } = opened;
    let total_bytes = owned.iter().map(|(extent, _)| extent.len_bytes).sum();
    let mut buffer = vec![0; PIECE_BYTES as usize];
    let mut done_bytes = 0;
    for (extent, name) in owned {
        let mut at_bytes = 0;
        while at_bytes < extent.len_bytes {
            let piece_bytes = read_piece(set, extent.offset.plus(at_bytes), extent.len_bytes - at_bytes, &mut buffer);
            match piece_bytes {
                Ok(piece_bytes) => at_bytes += piece_bytes,
                Err(error @ (Error::BadBlock { .. } | Error::Truncated { .. })) => {
                    report.add_error(set.path(), &error);
                    if let Some(finding) = report.findings.last_mut() {
                        finding.message = format!("{}: {name} is lost from there on", finding.message);
                    }
                    break;
                }
                Err(error) => return Err(error),
            }
            progress(CheckProgress { done_bytes: done_bytes + at_bytes, total_bytes });
        }
        report.read_bytes += at_bytes;
        done_bytes += extent.len_bytes;
    }
    Ok(())
}

/// Reads at most a buffer's length, and no further than the file that holds `at` is contiguous.
fn read_piece<M: Media>(set: &PoolSet<M>, at: Offset, len_bytes: u64, buffer: &mut [u8]) -> Result<u64> {
    let part = set.part(at.part()).expect("extents were found to lie in parts");
    let (member, file_bytes, room_bytes) = part.stripe.locate(at.byte());
    let piece_bytes = len_bytes.min(room_bytes).min(buffer.len() as u64);
    part.files[usize::from(member)].pread(file_bytes, &mut buffer[..piece_bytes as usize])?;
    Ok(piece_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::creation::{MIN_FILE_BYTES, PartOptions};
    use crate::error::Uuid;
    use crate::heap::Heap;
    use crate::pool::{Layout, Pool};

    fn findings_of(extents: &[(u64, u64)]) -> Vec<String> {
        let layout = Layout { name: "test", version: 1 };
        let options = PartOptions::single(MIN_FILE_BYTES);
        let pool = Pool::create(Heap::new(), Path::new("/a"), layout, &options).unwrap();
        let mut report = CheckReport {
            set: Uuid::default(),
            layout: (String::new(), 0),
            files: Vec::new(),
            has_writer: false,
            is_clean: true,
            generation: None,
            names: None,
            read_bytes: 0,
            findings: Vec::new(),
        };
        let extent = |&(word, len_bytes)| Extent { offset: Offset::from_word(word), len_bytes };
        let owned: Vec<Owned> = extents.iter().map(extent).zip(["a", "b", "c"].map(String::from)).collect();
        assert_eq!(check_extents(pool.set(), &owned, &mut report), report.findings.is_empty());
        assert!(report.findings.iter().all(|finding| finding.severity == Severity::Damage));
        report.findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn extents_that_overlap_or_leave_their_part_are_named() {
        const START: u64 = 2 << 20;
        assert_eq!(findings_of(&[(START, 128), (START + 128, 64), (MIN_FILE_BYTES - 64, 64)]), [""; 0]);
        let overlap = findings_of(&[(START, 256), (START + 64, 64), (START + 128, 64)]);
        assert!(overlap[0].contains("belongs to b and to a") && overlap[1].contains("belongs to c and to a"));
        for stray in [(START - 64, 64), (MIN_FILE_BYTES - 64, 128), (1 << 48, 64), (START + 1, 64), (START, 0)] {
            assert!(findings_of(&[stray])[0].contains("leaves its part"), "{stray:?}");
        }
        assert!(findings_of(&[(u64::MAX - 63, 128)])[0].contains("leaves its part"));
    }
}
