//! One object on its way into the catalogue: where its bytes go, and which of them are there already.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pmem::{
    ErrorCode, Extent, MAX_EXTENTS, MAX_META_BYTES, Media, Offset, PageScan, Pending, PoolSet, RegionSpec, Reservation,
    Touch, check_name,
};

use crate::descriptor::{Checksum, Descriptor, Flags, ObjectKind};
use crate::direct::Draft;
use crate::error::{Error, Result};
use crate::format;
use crate::found::{Found, Known};
use crate::holders::Holder;
use crate::redo::{Gathered, Redo, RedoRange};
use crate::source::{Object, Source};
use crate::store::Store;
use crate::transaction::{Checksums, Way, Written};
use crate::value::{Buffer, Place};
use crate::view::{ObjectView, sum};

/// A buffer from this length on has an extent of its own, which huge pages can map and a later commit can keep; smaller ones
/// share one.
pub(crate) const OWN_EXTENT_FROM_BYTES: u64 = 1 << 20;
/// Buffers that share an extent start at multiples of this, as extents do.
const BUFFER_ALIGN: u64 = 64;

/// An object with the space that it will take.
///
/// Its extents are: those it keeps; the one that small buffers share, with a head that lies in an extent before them; one
/// for each large buffer and for each draft; and a redo extent.
pub(crate) struct Put<'a, M: Media> {
    name: String,
    descriptor: Descriptor,
    /// Of a value, encoded.
    tree: Option<Vec<u8>>,
    /// Where each of its buffers goes.
    places: Vec<Place>,
    kept: Vec<Extent>,
    spaces: Vec<Space>,
    /// The number of the new extent in which a head lies.
    head_in: usize,
    /// All that a buffer is to be, if it is given at all.
    given: Vec<Source<'a>>,
    /// Some bytes that are given, and where they arrive.
    patches: Vec<(Source<'a>, Offset)>,
    /// Whole buffers, and where they go.
    whole: Vec<(Source<'a>, Offset)>,
    /// What is written over them when they are there.
    over: Vec<(Source<'a>, Offset)>,
    /// What goes into the redo extent, and where it belongs.
    changes: Vec<(Source<'a>, RedoRange)>,
    /// The whole redo extent, when it was put together in memory.
    gathered: Option<Range<usize>>,
    /// The private views from which it keeps extents, and which may see changes copied there.
    holders: Vec<(Extent, Holder)>,
    scan: Option<PageScan>,
    /// When the object was committed of which this keeps extents, or which it changes.
    base: Option<u64>,
    /// Whether what it keeps is being changed in place.
    is_in_place: bool,
    /// The old object, which is read from.
    _old: Option<ObjectView<M>>,
}

/// Space for bytes that are not in the catalogue yet.
enum Space {
    New(Reservation),
    /// Has its bytes already.
    Draft(Draft),
}

impl Space {
    fn extent(&self) -> Extent {
        match self {
            Space::New(reservation) => reservation.extent(),
            Space::Draft(draft) => draft.extent(),
        }
    }

    fn into_reservation(self) -> Reservation {
        match self {
            Space::New(reservation) => reservation,
            Space::Draft(draft) => draft.into_space(),
        }
    }
}

/// An extent that an object needs besides those that it keeps.
enum Wanted {
    Bytes(u64),
    /// That of the draft which is this source.
    Draft(usize),
}

/// New bytes for some of an object.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) buffer: Buffer,
    pub(crate) offset_bytes: u64,
    pub(crate) source: Source<'a>,
}

impl<'a, M: Media> Put<'a, M> {
    /// What the catalogue would refuse is refused before anything is copied.
    pub(crate) fn new(store: &Store<M>, name: String, object: Object<'a>) -> Result<Self> {
        check_name(&name)?;
        let found = Found::of(store, &name, &object)?;
        let is_known = found.base.is_some();
        match Put::with(store, name.clone(), object.clone(), found) {
            // A redo extent needs room that a whole object may not need.
            Err(error) if is_known && matches!(error.code(), ErrorCode::PoolFull | ErrorCode::TooLarge) => {
                let found = Found::nothing(&object);
                Put::with(store, name, object, found)
            }
            result => result,
        }
    }

    fn with(store: &Store<M>, name: String, object: Object<'a>, found: Found) -> Result<Self> {
        let Found { known, scan, base, is_in_place } = found;
        let sources = object.sources();
        let mut drafts: Vec<Option<Draft>> = sources.iter().map(|source| store.holders.take_draft(source)).collect();
        let tree = object.tree().map(format::encode_tree);
        let head_bytes = head_in_extent(tree.as_deref(), sources.len());
        let kept: Vec<Extent> = known.iter().flatten().map(|known| known.extent).collect();
        let (places, wanted) = lay_out(sources, &known, &drafts, head_bytes);
        let mut changes = Vec::new();
        for ((source, place), known) in sources.iter().zip(&places).zip(&known) {
            let changed = known.iter().flat_map(|known| &known.changed);
            changes.extend(changed.map(|range| (source.part(range.clone()), range_of(place, range.clone()))));
        }
        let holders = known.iter().flatten().map(|known| (known.extent, known.holder)).collect();
        let plain = tree.is_none().then_some(object.descriptor());
        let is_draft: Vec<bool> = drafts.iter().map(Option::is_some).collect();
        let spaces = reserve(store, plain, kept.len(), wanted, &mut drafts, &mut changes)?;
        let is_new = |place: &Place| place.len_bytes > 0 && place.extent as usize >= kept.len();
        let to = |place: &Place| spaces[place.extent as usize - kept.len()].extent().offset.plus(place.offset_bytes);
        let whole =
            sources.iter().zip(&places).zip(is_draft).filter(|((_, place), is_draft)| is_new(place) && !is_draft);
        let whole = whole.map(|((source, place), _)| (*source, to(place))).collect();
        let given = sources.to_vec();
        let descriptor = object.into_descriptor();
        let over = Vec::new();
        let (head_in, _old) = (0, None);
        Ok(Put {
            name,
            descriptor,
            tree,
            places,
            kept,
            spaces,
            head_in,
            given,
            patches: Vec::new(),
            whole,
            over,
            changes,
            gathered: None,
            holders,
            scan,
            base,
            is_in_place,
            _old,
        })
    }

    /// The object of a name, with new bytes for some of it.
    pub(crate) fn changed(store: &Store<M>, name: String, changes: &[Change<'a>]) -> Result<Self> {
        // What cannot go home is copied with the rest.
        let _ = store.settle(&name);
        let old = store.look(&name)?;
        store.check_not_in_place(&old)?;
        let descriptor = old.descriptor().clone();
        let (mut places, tree) = match old.descriptor().kind() {
            ObjectKind::Value => {
                let value = old.value()?;
                (value.places().to_vec(), Some(format::encode_tree(value.tree())))
            }
            _ => (vec![Place { extent: 0, crc: None, offset_bytes: 0, len_bytes: descriptor.payload_bytes() }], None),
        };
        let used = renumber(&mut places);
        let extents: Vec<Extent> = used.iter().map(|number| old.extents()[*number]).collect();
        let mut changes = changes.iter().map(|change| home(&places, change)).collect::<Result<Vec<_>>>()?;
        changes = in_order(changes);
        // The head says what the checksums are now, so it is written anew.
        let head_bytes = head_in_extent(tree.as_deref(), places.len());
        let head = (head_bytes > 0).then_some(head_bytes);
        let is_kept = is_little(&changes, descriptor.payload_bytes())
            && extents.len() + 2 <= MAX_EXTENTS
            && old.redo().is_none()
            && store.is_seen_by_nobody(&extents, &[old.holder()])?;
        let plain = tree.is_none().then_some(&descriptor);
        let mut put = Put {
            name,
            descriptor: old.descriptor().clone(),
            kept: Vec::new(),
            spaces: Vec::new(),
            head_in: 0,
            given: Vec::new(),
            patches: Vec::new(),
            whole: Vec::new(),
            over: Vec::new(),
            changes: Vec::new(),
            gathered: None,
            holders: Vec::new(),
            scan: None,
            base: Some(old.born()),
            is_in_place: false,
            _old: None,
            places,
            tree: None,
        };
        if is_kept {
            let wanted = head.into_iter().map(Wanted::Bytes).collect();
            put.spaces = reserve(store, plain, extents.len(), wanted, &mut [], &mut changes)?;
            (put.kept, put.changes) = (extents, changes);
            let redo = put.redo_extent().map(|redo| redo.offset);
            let at = |(source, range): &(Source<'a>, RedoRange)| Some((*source, redo?.plus(range.at_bytes)));
            put.patches = put.changes.iter().filter_map(at).collect();
        } else {
            old.guard()?;
            let wanted = extents.iter().map(|extent| extent.len_bytes).chain(head).map(Wanted::Bytes).collect();
            put.spaces = reserve(store, plain, 0, wanted, &mut [], &mut [])?;
            put.head_in = extents.len();
            let to = |number: usize| put.spaces[number].extent().offset;
            put.whole = used.iter().enumerate().map(|(new, number)| (old.source(*number), to(new))).collect();
            // What waited lies over what is home, and changes over that.
            let waiting = old.redo().into_iter().flat_map(|redo| &redo.ranges);
            put.over = waiting
                .filter_map(|range| {
                    let new = used.binary_search(&(range.extent as usize)).ok()?;
                    Some((old.waiting(range), to(new).plus(range.offset_bytes)))
                })
                .collect();
            let over = |(source, range): &(Source<'a>, RedoRange)| {
                (*source, to(range.extent as usize).plus(range.offset_bytes))
            };
            put.patches = changes.iter().map(over).collect();
            put.over.extend(&put.patches);
        }
        Ok(Put { tree, _old: Some(old), ..put })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How it is written.
    pub(crate) fn written(&self) -> Written {
        let is_there = self.is_in_place || !self.spaces.is_empty() && self.drafts().count() == self.spaces.len();
        let way = match self.kept.is_empty() {
            _ if is_there => Way::InPlace,
            true => Way::Whole,
            false => Way::Changed(self.scan),
        };
        Written { name: self.name.clone(), way, copied_bytes: self.copied_bytes() }
    }

    /// Whether changes wait to be copied home.
    pub(crate) fn waits(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The private views from which it keeps extents.
    pub(crate) fn holders(&self) -> &[(Extent, Holder)] {
        &self.holders
    }

    /// Puts the redo extent together in memory, if it is at most so long.
    pub(crate) fn gather(&mut self, memory: &mut Gathered, at_most_bytes: u64) {
        if self.redo_extent().is_some_and(|redo| redo.len_bytes <= at_most_bytes) {
            self.gathered = Some(memory.gather(&self.changes));
        }
    }

    /// Where the redo extent lies in memory, and where it goes.
    pub(crate) fn gathered(&self) -> Option<(Range<usize>, Offset)> {
        self.gathered.clone().zip(self.redo_extent().map(|redo| redo.offset))
    }

    fn redo_extent(&self) -> Option<Extent> {
        self.spaces.last().filter(|_| self.waits()).map(Space::extent)
    }

    /// Whether [`Put::finish`] writes to extents.
    pub(crate) fn has_heads(&self) -> bool {
        self.waits() && self.gathered.is_none() || head_in_extent(self.tree.as_deref(), self.places.len()) > 0
    }

    /// Populates what is kept and will be summed, so that what is lost is an error and no signal.
    pub(crate) fn guard_kept(&self, set: &PoolSet<M>) -> Result<()> {
        Ok(self.kept.iter().try_for_each(|extent| set.guard(extent.offset, extent.len_bytes, Touch::Load))?)
    }

    /// The object of which it keeps extents, when it was committed.
    pub(crate) fn kept_of(&self) -> Option<u64> {
        self.base
    }

    /// The extents that are written to.
    pub(crate) fn spaces(&self) -> impl Iterator<Item = Extent> + '_ {
        self.spaces.iter().map(Space::extent)
    }

    fn drafts(&self) -> impl Iterator<Item = &Draft> {
        self.spaces.iter().filter_map(|space| match space {
            Space::Draft(draft) => Some(draft),
            Space::New(_) => None,
        })
    }

    /// The views of its drafts, by their addresses, and their extents.
    pub(crate) fn views_of_drafts(&self) -> Vec<(usize, Extent)> {
        self.drafts().map(|draft| (draft.address(), draft.extent())).collect()
    }

    /// Starts the write-back of what lies there already. Drafts are detached: what is stored to them later is none of the
    /// object's.
    pub(crate) fn flush_what_is_there(&mut self, set: &PoolSet<M>, pending: &mut Pending) -> Result<()> {
        for space in &mut self.spaces {
            if let Space::Draft(draft) = space {
                draft.detach()?;
                let extent = draft.extent();
                set.flush(pending, extent.offset, extent.len_bytes);
            }
        }
        for extent in self.kept.iter().filter(|_| self.is_in_place) {
            set.guard(extent.offset, extent.len_bytes, Touch::Load)?;
            set.flush(pending, extent.offset, extent.len_bytes);
        }
        Ok(())
    }

    /// What is copied, and where to; what was gathered is another copy.
    pub(crate) fn copies(&self) -> impl Iterator<Item = (Source<'a>, Offset)> + '_ {
        let redo = self.redo_extent().filter(|_| self.gathered.is_none());
        let changes = redo.into_iter().flat_map(|redo| {
            self.changes.iter().map(move |(source, range)| (*source, redo.offset.plus(range.at_bytes)))
        });
        self.whole.iter().copied().chain(changes)
    }

    /// What is copied when that is done.
    pub(crate) fn copies_over(&self) -> &[(Source<'a>, Offset)] {
        &self.over
    }

    pub(crate) fn copied_bytes(&self) -> u64 {
        let sources = self.whole.iter().chain(&self.over).map(|(source, _)| source);
        sources.map(Source::len_bytes).sum::<u64>() + self.changed_bytes()
    }

    /// How many bytes the changes are.
    pub(crate) fn changed_bytes(&self) -> u64 {
        self.changes.iter().map(|(source, _)| source.len_bytes()).sum()
    }

    /// Sums what arrived, and writes the heads that lie in extents; they are durable after the next fence.
    ///
    /// # Errors
    /// `SourceChanged` when sums are wanted and what arrived is not what the source has now.
    pub(crate) fn finish(
        mut self,
        set: &PoolSet<M>,
        checksums: Checksums,
        pending: &mut Pending,
    ) -> Result<(String, RegionSpec)> {
        let redo = Redo { ranges: self.changes.iter().map(|(_, range)| *range).collect() };
        for number in 0..self.places.len() {
            self.places[number].crc = match checksums {
                // It would be wrong at the next store.
                _ if self.is_in_place => None,
                Checksums::Off => None,
                Checksums::Crc32c => Some(self.stored_sum(set, &redo, &self.places[number])),
            };
        }
        if checksums == Checksums::Crc32c && self.has_source_changed(set) {
            return Err(Error::SourceChanged { name: self.name });
        }
        if let Some(extent) = self.redo_extent().filter(|_| self.gathered.is_none()) {
            set.nt_copy(pending, extent.offset, &format::encode_redo(&redo.ranges));
        }
        let meta = match &self.tree {
            Some(tree) => {
                let head = format::encode_head(tree, &self.places);
                if format::lies_in_extent(head.len()) {
                    set.nt_copy(pending, self.spaces[self.head_in].extent().offset, &head);
                }
                format::encode_meta(&head, self.descriptor.payload_bytes(), self.kept.len() + self.head_in)
            }
            None => {
                self.descriptor.checksum = self.places[0].crc.map_or(Checksum::None, Checksum::Crc32c);
                format::encode(&self.descriptor)
            }
        };
        // What was interrupted is whole again when all of it is given, and not when some of it is changed.
        let was = self.descriptor.flags().contains(Flags::INTERRUPTED);
        let mut flags = if was { Flags::INTERRUPTED } else { Flags::default() };
        if self.is_in_place {
            flags = flags.with(Flags::IN_PLACE);
        }
        if !redo.ranges.is_empty() {
            flags = flags.with(Flags::REDO);
        }
        let (kind, add) =
            (self.descriptor.kind() as u32, self.spaces.into_iter().map(Space::into_reservation).collect());
        Ok((self.name, RegionSpec { kind, flags: flags.0, meta, keep: self.kept, add }))
    }

    /// Whether a source has something else by now than what arrived. What lies in the pool already may be changed.
    fn has_source_changed(&self, set: &PoolSet<M>) -> bool {
        let is_draft = |source: &Source<'_>| self.drafts().any(|draft| draft.address() == source.address());
        let mut given = self.given.iter().zip(&self.places).filter(|(source, _)| !is_draft(source));
        let mut patches = self.patches.iter();
        let stored =
            |to: Offset, source: &Source<'_>| sum(source.len_bytes(), |at, into| set.load_bytes(to.plus(at), into));
        given.any(|(source, place)| place.crc.is_some_and(|crc| crc != source.sum()))
            || patches.any(|(source, to)| stored(*to, source) != source.sum())
    }

    /// The checksum of what arrived, which is what a reader will see even if the source changed meanwhile.
    fn stored_sum(&self, set: &PoolSet<M>, redo: &Redo, place: &Place) -> u32 {
        if place.len_bytes == 0 {
            return sum(0, |_, _| ());
        }
        let number = place.extent as usize;
        let extent = match number.checked_sub(self.kept.len()) {
            None => self.kept[number],
            Some(new) => self.spaces[new].extent(),
        };
        sum(place.len_bytes, |at, into| {
            let at = place.offset_bytes + at;
            set.load_bytes(extent.offset.plus(at), into);
            let load = |at, into: &mut [u8]| {
                let extent = self.redo_extent().expect("changes have a redo extent");
                set.load_bytes(extent.offset.plus(at), into);
            };
            redo.put_over(number, at, into, load);
        })
    }
}

/// How long the head of a value is that lies in an extent; 0 when it does not.
fn head_in_extent(tree: Option<&[u8]>, buffers: usize) -> u64 {
    let head_bytes = tree.map_or(0, |tree| format::head_bytes(tree, buffers));
    if format::lies_in_extent(head_bytes) { head_bytes as u64 } else { 0 }
}

/// Changes are written twice, so a whole new extent costs less when they are most of it; what they need besides counts too.
fn is_little(changes: &[(Source<'_>, RedoRange)], of_bytes: u64) -> bool {
    let mut ranges: Vec<RedoRange> = changes.iter().map(|(_, range)| *range).collect();
    changes.is_empty() || Redo::lay_out(&mut ranges) <= of_bytes / 2
}

/// Changes in the order of where they belong, none over another: the later one counts.
fn in_order<'a>(changes: Vec<(Source<'a>, RedoRange)>) -> Vec<(Source<'a>, RedoRange)> {
    let mut ordered: BTreeMap<(u32, u64), Source<'a>> = BTreeMap::new();
    for (source, range) in changes.into_iter().filter(|(_, range)| range.len_bytes > 0) {
        let (extent, start, end) = (range.extent, range.offset_bytes, range.offset_bytes + range.len_bytes);
        while let Some((&(of, at), &old)) = ordered.range((extent, 0)..(extent, end)).next_back()
            && at + old.len_bytes() > start
        {
            ordered.remove(&(of, at));
            if at < start {
                ordered.insert((extent, at), old.part(0..start - at));
            }
            if at + old.len_bytes() > end {
                ordered.insert((extent, end), old.part(end - at..old.len_bytes()));
            }
        }
        ordered.insert((extent, start), source);
    }
    let range = |((extent, offset_bytes), source): ((u32, u64), Source<'a>)| {
        (source, RedoRange { extent, offset_bytes, len_bytes: source.len_bytes(), at_bytes: 0 })
    };
    ordered.into_iter().map(range).collect()
}

/// Numbers the extents that places use from 0 on; the numbers that they had.
fn renumber(places: &mut [Place]) -> Vec<usize> {
    let used = places.iter().filter(|place| place.len_bytes > 0).map(|place| place.extent as usize);
    let used: Vec<usize> = used.collect::<BTreeSet<_>>().into_iter().collect();
    for place in places {
        place.extent = used.binary_search(&(place.extent as usize)).unwrap_or(0) as u32;
    }
    used
}

/// Where the bytes of a change belong.
fn home<'a>(places: &[Place], change: &Change<'a>) -> Result<(Source<'a>, RedoRange)> {
    let place = places.get(change.buffer.0 as usize);
    let range = change.offset_bytes..change.offset_bytes.saturating_add(change.source.len_bytes());
    match place.filter(|place| range.end <= place.len_bytes) {
        Some(place) => Ok((change.source, range_of(place, range))),
        None => {
            let expected_bytes = place.map_or(0, |place| place.len_bytes);
            Err(Error::LengthMismatch { got_bytes: range.end, expected_bytes })
        }
    }
}

/// Where some bytes of a buffer belong.
fn range_of(place: &Place, range: Range<u64>) -> RedoRange {
    let (offset_bytes, len_bytes) = (place.offset_bytes + range.start, range.end - range.start);
    RedoRange { extent: place.extent, offset_bytes, len_bytes, at_bytes: 0 }
}

/// Reserves new extents, and a redo extent when something changed; a plain object's description is given. Drafts are taken
/// when nothing can fail any more.
fn reserve<M: Media>(
    store: &Store<M>,
    plain: Option<&Descriptor>,
    kept: usize,
    mut wanted: Vec<Wanted>,
    drafts: &mut [Option<Draft>],
    changes: &mut [(Source<'_>, RedoRange)],
) -> Result<Vec<Space>> {
    if !changes.is_empty() {
        let mut ranges: Vec<RedoRange> = changes.iter().map(|(_, range)| *range).collect();
        wanted.push(Wanted::Bytes(Redo::lay_out(&mut ranges)));
        changes.iter_mut().zip(ranges).for_each(|((_, range), laid_out)| *range = laid_out);
    }
    let description_bytes = plain.map_or(0, |descriptor| format::encode(descriptor).len());
    refuse_more("the description of an object", description_bytes, MAX_META_BYTES)?;
    refuse_more("the large parts of an object", kept + wanted.len(), MAX_EXTENTS)?;
    let mut spaces = Vec::new();
    for wanted in wanted {
        spaces.push(match wanted {
            Wanted::Bytes(len_bytes) => Space::New(store.pool().reserve(len_bytes)?),
            Wanted::Draft(number) => Space::Draft(drafts[number].take().expect("each draft is one source")),
        });
    }
    Ok(spaces)
}

fn refuse_more(what: &'static str, got: usize, limit: usize) -> Result<()> {
    if got > limit {
        return Err(pmem::Error::TooLarge { what, got_bytes: got as u64, limit_bytes: limit as u64 }.into());
    }
    Ok(())
}

/// Deals buffers to extents: the places, and the lengths of the new extents. What is small, and a head that lies in an
/// extent, shares the first.
fn lay_out(
    sources: &[Source<'_>],
    known: &[Option<Known>],
    drafts: &[Option<Draft>],
    head_bytes: u64,
) -> (Vec<Place>, Vec<Wanted>) {
    let kept = known.iter().flatten().count() as u32;
    let is_small = |len_bytes: u64| len_bytes < OWN_EXTENT_FROM_BYTES;
    let mut shared_bytes = head_bytes;
    let is_shared = |((source, known), draft): ((&Source<'_>, &Option<Known>), &Option<Draft>)| {
        known.is_none() && draft.is_none() && source.len_bytes() > 0 && is_small(source.len_bytes())
    };
    let shares = head_bytes > 0 || sources.iter().zip(known).zip(drafts).any(is_shared);
    let mut wanted = if shares { vec![Wanted::Bytes(0)] } else { Vec::new() };
    let mut next_kept = 0;
    let places = sources.iter().zip(known).enumerate().map(|(number, (source, known))| {
        let len_bytes = source.len_bytes();
        let (extent, offset_bytes) = match len_bytes {
            _ if known.is_some() => {
                next_kept += 1;
                (next_kept - 1, 0)
            }
            0 => (0, 0),
            _ if drafts[number].is_some() => {
                wanted.push(Wanted::Draft(number));
                (kept + wanted.len() as u32 - 1, 0)
            }
            _ if is_small(len_bytes) => {
                let at = shared_bytes.next_multiple_of(BUFFER_ALIGN);
                shared_bytes = at + len_bytes;
                (kept, at)
            }
            _ => {
                wanted.push(Wanted::Bytes(len_bytes));
                (kept + wanted.len() as u32 - 1, 0)
            }
        };
        Place { extent, crc: None, offset_bytes, len_bytes }
    });
    let places = places.collect();
    if shares {
        wanted[0] = Wanted::Bytes(shared_bytes);
    }
    (places, wanted)
}
