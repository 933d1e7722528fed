//! Several objects at once, for what the kernel does for each costs more than a small object itself.

use pmem::{Extent, Touch};

use super::{HeldRegion, ObjectView, PrivateView};
use crate::descriptor::ObjectKind;
use crate::error::Result;

/// Most that may lie between two ranges that are populated together: less than a page that neither needs.
const BETWEEN_BYTES: u64 = 4096;

impl ObjectView {
    /// A private view of each of several objects of one store; see [`ObjectView::private`]. Objects that lie side by side are
    /// mapped together.
    ///
    /// # Errors
    /// As [`ObjectView::private`]; then there is none.
    pub fn private_each(views: &[ObjectView]) -> Result<Vec<Option<PrivateView>>> {
        let waits = |view: &ObjectView| view.redo().is_some_and(|redo| redo.touches(0));
        let is_plain = |view: &ObjectView| view.one_payload().is_some() && !waits(view);
        let plain: Vec<&ObjectView> = views.iter().filter(|view| is_plain(view)).collect();
        let Some(first) = plain.first() else { return views.iter().map(ObjectView::private).collect() };
        // Held before they are mapped, as everything that is seen.
        let held: Vec<_> = plain.iter().map(|view| view.one(0)).collect();
        let lens = plain.iter().map(|view| view.descriptor().payload_bytes());
        let wanted: Vec<_> = held.iter().map(HeldRegion::extent).zip(lens.clone()).collect();
        let mappings = first.region().set().private_each(&wanted)?;
        let private = |((region, len_bytes), mapping)| PrivateView::new(region, len_bytes, mapping);
        let mut privates = held.into_iter().zip(lens).zip(mappings).map(private);
        let of = |view: &ObjectView| if is_plain(view) { Ok(privates.next()) } else { view.private() };
        views.iter().map(of).collect()
    }

    /// A copy of the bytes of each of several objects of one store; see [`ObjectView::to_bytes`].
    ///
    /// # Errors
    /// As [`ObjectView::to_bytes`].
    pub fn to_bytes_each(views: &[ObjectView]) -> Result<Vec<Vec<u8>>> {
        let has_value = views.iter().any(|view| view.descriptor().kind() == ObjectKind::Value);
        // Which of them it is that has lost a page, each tells by itself.
        if has_value || guard_each(views).is_err() {
            return views.iter().map(ObjectView::to_bytes).collect();
        }
        Ok(views.iter().map(ObjectView::copied).collect())
    }
}

/// As [`ObjectView::guard`] of each.
fn guard_each(views: &[ObjectView]) -> pmem::Result<()> {
    let Some(first) = views.first() else { return Ok(()) };
    let mut extents: Vec<Extent> = views.iter().flat_map(|view| view.region().info().extents.iter().copied()).collect();
    extents.sort_unstable_by_key(|extent| extent.offset.to_word());
    let are_near = |a: &Extent, b: &Extent| {
        a.offset.part() == b.offset.part() && b.offset.byte() <= a.offset.byte() + a.len_bytes + BETWEEN_BYTES
    };
    extents.chunk_by(are_near).try_for_each(|run| {
        let (start, end) = (run[0].offset, run.iter().map(|e| e.offset.byte() + e.len_bytes).max());
        first.region().set().guard(start, end.expect("a run has an extent") - start.byte(), Touch::Load)
    })
}
