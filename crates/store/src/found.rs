//! What is in the pool already of an object that is to be written.

use std::ops::Range;

use pmem::{Extent, Media, PageScan, PoolSet, Touch, changed_pages};

use crate::descriptor::{Flags, ObjectKind};
use crate::error::Result;
use crate::holders::Holder;
use crate::source::{Object, Source};
use crate::store::Store;

/// A buffer whose bytes are, but for some, in an extent of the object that it replaces.
pub(crate) struct Known {
    pub(crate) extent: Extent,
    pub(crate) holder: Holder,
    pub(crate) changed: Vec<Range<u64>>,
}

/// What is in the pool already of an object that is to be written.
pub(crate) struct Found {
    /// Of each buffer.
    pub(crate) known: Vec<Option<Known>>,
    /// How the kernel was asked for changed pages.
    pub(crate) scan: Option<PageScan>,
    /// When the object that has it was committed.
    pub(crate) base: Option<u64>,
    /// Whether that is the object which the source changes in place.
    pub(crate) is_in_place: bool,
}

impl Found {
    pub(crate) fn nothing(object: &Object<'_>) -> Found {
        let known = object.sources().iter().map(|_| None).collect();
        Found { known, scan: None, base: None, is_in_place: false }
    }

    /// The object of this name, if its one source is the view that changes it in place.
    fn in_place<M: Media>(store: &Store<M>, name: &str, object: &Object<'_>) -> Option<Found> {
        let [source] = object.sources() else { return None };
        let (extent, holder) = store.holders.in_place_at(source)?;
        let region = store.pool().region(name).ok()?;
        let info = region.info();
        let is_it = object.descriptor().kind() == ObjectKind::Array && info.extents == [extent];
        let known = vec![Some(Known { extent, holder, changed: Vec::new() })];
        is_it.then_some(Found { known, scan: None, base: Some(info.born), is_in_place: true })
    }

    /// Which sources are private views of extents that the object of this name has now, and what was changed in them.
    pub(crate) fn of<M: Media>(store: &Store<M>, name: &str, object: &Object<'_>) -> Result<Found> {
        let sources = object.sources();
        let privates: Vec<_> = sources.iter().map(|source| store.private_view_of(source)).collect();
        let mut found = Found::nothing(object);
        if let Some(in_place) = Found::in_place(store, name, object) {
            return Ok(in_place);
        }
        if privates.iter().all(Option::is_none) {
            return Ok(found);
        }
        // Where bytes still wait afterwards, all of it is written.
        let _ = store.settle(name);
        let Ok(region) = store.pool().region(name) else { return Ok(found) };
        if region.info().flags & (Flags::REDO.0 | Flags::IN_PLACE.0) != 0 {
            return Ok(found);
        }
        let mut left = region.info().extents.clone();
        for ((source, private), known) in sources.iter().zip(privates).zip(&mut found.known) {
            // Each extent once: two buffers never share one that is kept.
            let Some(private) = private else { continue };
            let Some(at) = left.iter().position(|extent| *extent == private.extent) else { continue };
            // Without an answer of the kernel all of it is copied, as anything else is.
            let Ok((pages, by)) = changed_pages(source.address(), source.len_bytes()) else { continue };
            let changed = differing(store.pool().set(), source, private.extent, &pages, &private.copied)?;
            store.holders.note_copied(source.address(), pages);
            let changed_bytes: u64 = changed.iter().map(|range| range.end - range.start).sum();
            let may_change = || store.is_seen_by_nobody(&[private.extent], &[private.holder]);
            if changed.is_empty() || changed_bytes <= source.len_bytes() / 2 && may_change()? {
                (found.scan, found.base) = (Some(by), Some(region.info().born));
                *known = Some(Known { extent: left.remove(at), holder: private.holder, changed });
            }
        }
        Ok(found)
    }
}

/// The pages that differ from what lies in the pool. Those that were copied there once stay the view's own, so they are
/// compared; others have been stored to since.
fn differing<M: Media>(
    set: &PoolSet<M>,
    source: &Source<'_>,
    extent: Extent,
    pages: &[Range<u64>],
    copied: &[Range<u64>],
) -> Result<Vec<Range<u64>>> {
    const PAGE: u64 = 4096;
    let mut differing: Vec<Range<u64>> = Vec::new();
    let (mut ours, mut theirs) = ([0; PAGE as usize], [0; PAGE as usize]);
    let mut copied = copied.iter().peekable();
    for at in pages.iter().flat_map(|range| range.clone().step_by(PAGE as usize)) {
        while copied.next_if(|range| range.end <= at).is_some() {}
        let end = (at + PAGE).min(source.len_bytes());
        if copied.peek().is_some_and(|range| range.contains(&at)) {
            let (ours, theirs) = (&mut ours[..(end - at) as usize], &mut theirs[..(end - at) as usize]);
            set.guard(extent.offset.plus(at), end - at, Touch::Load)?;
            source.load(at, ours);
            set.load_bytes(extent.offset.plus(at), theirs);
            if ours == theirs {
                continue;
            }
        }
        match differing.last_mut() {
            Some(last) if last.end == at => last.end = end,
            _ => differing.push(at..end),
        }
    }
    Ok(differing)
}
