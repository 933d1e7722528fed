//! What is visible but not durable yet, and what a crash can make of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, FileId};
use crate::hashed::HashedSet;
use crate::trace::Event;

/// Most values of one unit that are tried.
const MAX_OPTIONS: usize = 48;

/// What the kernel writes back as a whole.
const PAGE_BYTES: u64 = 4096;

/// Bytes of a store that are torn no further.
#[derive(Clone, Copy)]
struct Piece {
    at: u16,
    len: u8,
    bytes: [u8; 8],
    /// The call that it belongs to. Pieces of one call may reach the medium in any order.
    group: u32,
    non_temporal: bool,
}

/// The stores to one line (or sector) since it was last durable.
#[derive(Clone, Default)]
pub(crate) struct Unit {
    pieces: Vec<Piece>,
    /// For each thread, how many of the pieces its next fence makes durable.
    pending: Vec<(u16, usize)>,
    /// Whether the kernel takes it for written although it is not: it could not write it back, and has said so once.
    pub(crate) is_given_up: bool,
    /// Values that a crash may leave: the first is the durable one, the last has every store.
    pub(crate) options: Vec<Value>,
}

/// A value that a crash may leave in a unit.
#[derive(Clone)]
pub(crate) struct Value {
    pub(crate) bytes: Box<[u8]>,
    /// Hash of it and of its place.
    pub(crate) hash: u64,
}

/// A change of the name space that is not durable yet. All of one operation, or nothing.
#[derive(Clone)]
pub(crate) struct NameOp {
    pub(crate) changes: Vec<NameChange>,
    /// The directory whose sync makes it durable; none for a length, which the file's fsync makes durable.
    directory: Option<PathBuf>,
}

#[derive(Clone)]
pub(crate) enum NameChange {
    Bind(PathBuf, Option<FileId>),
    Len(FileId, u64),
}

/// Everything that is not durable.
#[derive(Clone)]
pub(crate) struct Volatile {
    /// 64 in line mode, 512 in page mode.
    unit_bytes: u64,
    pub(crate) units: BTreeMap<(FileId, u64), Unit>,
    pub(crate) names: Vec<NameOp>,
    groups: u32,
    /// Sum of the hashes of all durable units that were ever stored to, relative to the start: equal for equal
    /// contents, however they came about.
    pub(crate) hash: u64,
}

impl NameOp {
    pub(crate) fn apply(&self, disk: &mut Disk) {
        for change in &self.changes {
            match change {
                NameChange::Bind(path, file) => disk.bind(path, *file),
                NameChange::Len(file, len_bytes) => disk.set_len(*file, *len_bytes),
            }
        }
    }
}

impl Volatile {
    pub(crate) fn new(unit_bytes: u64, hash: u64) -> Volatile {
        Volatile { unit_bytes, units: BTreeMap::new(), names: Vec::new(), groups: 0, hash }
    }

    /// What is not durable after these stores, flushes, fences and syncs.
    pub(crate) fn after(unit_bytes: u64, trace: &[Event]) -> Volatile {
        let (mut volatile, mut disk) = (Volatile::new(unit_bytes, 0), Disk::default());
        for event in trace {
            match event {
                Event::Create { len_bytes, .. } => drop(disk.new_file(*len_bytes)),
                Event::Store { file, offset_bytes, bytes, non_temporal, thread } => {
                    volatile.store(&disk, *file, *offset_bytes, bytes, non_temporal.then_some(*thread));
                }
                Event::Flush { file, offset_bytes, len_bytes, thread, .. } => {
                    volatile.flush(*file, *offset_bytes, *len_bytes, *thread);
                }
                Event::Fence { thread, is_weak, .. } => drop(volatile.fence(&mut disk, *thread, *is_weak)),
                Event::Sync { file, offset_bytes, len_bytes, is_weak } => {
                    volatile.sync(&mut disk, *file, *offset_bytes, *len_bytes, *is_weak);
                }
                Event::Fsync { file } => volatile.fsync(&mut disk, *file),
                _ => {}
            }
        }
        volatile
    }

    /// Position of a unit in its file.
    pub(crate) fn offset_of(&self, unit: u64) -> u64 {
        unit * self.unit_bytes
    }

    /// Adds a store. Returns the units that it touched.
    pub(crate) fn store(
        &mut self,
        disk: &Disk,
        file: FileId,
        offset_bytes: u64,
        bytes: &[u8],
        non_temporal_by: Option<u16>,
    ) -> Vec<(FileId, u64)> {
        self.groups += 1;
        let (mut at, mut rest, mut touched) = (offset_bytes, bytes, Vec::new());
        while !rest.is_empty() {
            let n = rest.len().min(8 - (at % 8) as usize);
            let (now, later) = rest.split_at(n);
            let mut piece = Piece {
                at: (at % self.unit_bytes) as u16,
                len: n as u8,
                bytes: [0; 8],
                group: self.groups,
                non_temporal: non_temporal_by.is_some(),
            };
            piece.bytes[..n].copy_from_slice(now);
            let key = (file, at / self.unit_bytes);
            self.units.entry(key).or_default().pieces.push(piece);
            if touched.last() != Some(&key) {
                touched.push(key);
            }
            (at, rest) = (at + n as u64, later);
        }
        for &(file, unit) in &touched {
            self.dirty_page(file, unit);
            let base = self.base(disk, file, unit);
            let entry = self.units.get_mut(&(file, unit)).expect("it was just stored to");
            if let Some(thread) = non_temporal_by {
                entry.mark_pending(thread);
            }
            entry.work_out_options((file, unit), base);
        }
        touched
    }

    /// A store makes the whole page dirty, and with it what the kernel had given up.
    fn dirty_page(&mut self, file: FileId, unit: u64) {
        let units_per_page = (PAGE_BYTES / self.unit_bytes).max(1);
        let first = unit / units_per_page * units_per_page;
        for (_, unit) in self.units.range_mut((file, first)..(file, first + units_per_page)) {
            unit.is_given_up = false;
        }
    }

    fn base(&self, disk: &Disk, file: FileId, unit: u64) -> Box<[u8]> {
        let start = self.offset_of(unit);
        let len = self.unit_bytes.min(disk.allocated_bytes(file) - start);
        let mut base = vec![0; len as usize];
        disk.read(file, start, &mut base);
        base.into()
    }

    /// A flush. Returns how many of the lines had something to write back.
    pub(crate) fn flush(&mut self, file: FileId, offset_bytes: u64, len_bytes: u64, thread: u16) -> usize {
        let mut dirty = 0;
        for unit in self.range(file, offset_bytes, len_bytes) {
            if let Some(unit) = self.units.get_mut(&unit) {
                unit.mark_pending(thread);
                dirty += 1;
            }
        }
        dirty
    }

    /// A fence: everything this thread has flushed becomes durable, or all but the last unit if it is weak. Returns how
    /// many units had been flushed.
    pub(crate) fn fence(&mut self, disk: &mut Disk, thread: u16, is_weak: bool) -> usize {
        let pending = |unit: &Unit| unit.pending.iter().find(|p| p.0 == thread).map(|p| p.1);
        let found: Vec<_> = self.units.iter().filter_map(|(&key, unit)| Some((key, pending(unit)?))).collect();
        for &(key, upto) in &found[..found.len().saturating_sub(usize::from(is_weak))] {
            self.commit(disk, key, upto);
        }
        found.len()
    }

    /// msync of a range: all of it becomes durable, or all but the last unit if it is weak.
    pub(crate) fn sync(&mut self, disk: &mut Disk, file: FileId, offset_bytes: u64, len_bytes: u64, is_weak: bool) {
        let is_dirty = |key: &(FileId, u64)| self.units.get(key).is_some_and(|unit| !unit.is_given_up);
        let found: Vec<_> = self.range(file, offset_bytes, len_bytes).filter(is_dirty).collect();
        for &key in &found[..found.len().saturating_sub(usize::from(is_weak))] {
            self.commit(disk, key, usize::MAX);
        }
    }

    /// An msync that fails: nothing becomes durable, and until it is stored to again nothing will.
    pub(crate) fn give_up(&mut self, file: FileId, offset_bytes: u64, len_bytes: u64) {
        let start = offset_bytes / PAGE_BYTES * PAGE_BYTES;
        let end = (offset_bytes + len_bytes).next_multiple_of(PAGE_BYTES);
        for key in self.range(file, start, end - start) {
            if let Some(unit) = self.units.get_mut(&key) {
                unit.is_given_up = true;
            }
        }
    }

    /// fsync of a file: content and length.
    pub(crate) fn fsync(&mut self, disk: &mut Disk, file: FileId) {
        self.commit_names(disk, |op| {
            op.changes.iter().all(|change| matches!(change, NameChange::Len(f, _) if *f == file))
        });
        self.sync(disk, file, 0, disk.allocated_bytes(file), false);
    }

    pub(crate) fn name_op(&mut self, changes: Vec<NameChange>, path: Option<&Path>) {
        let directory = path.map(|path| path.parent().unwrap_or(Path::new("")).to_owned());
        self.names.push(NameOp { changes, directory });
    }

    pub(crate) fn sync_dir(&mut self, disk: &mut Disk, path: &Path) {
        let directory = path.parent().unwrap_or(Path::new(""));
        self.commit_names(disk, |op| op.directory.as_deref() == Some(directory));
    }

    fn commit_names(&mut self, disk: &mut Disk, which: impl Fn(&NameOp) -> bool) {
        let (commit, keep) = std::mem::take(&mut self.names).into_iter().partition(which);
        self.names = keep;
        let commit: Vec<NameOp> = commit;
        commit.iter().for_each(|op| op.apply(disk));
    }

    /// The same with every flush forgotten.
    pub(crate) fn without_pending(&self) -> Volatile {
        let mut volatile = self.clone();
        volatile.units.values_mut().for_each(|unit| unit.pending.clear());
        volatile
    }

    /// Writes what the program sees to the disk, without making it durable here.
    pub(crate) fn show_all(&self, disk: &mut Disk) {
        self.names.iter().for_each(|op| op.apply(disk));
        for (&(file, unit), entry) in &self.units {
            disk.write(file, self.offset_of(unit), &entry.options.last().expect("a unit has options").bytes);
        }
    }

    /// Makes everything durable, as if the machine had been shut down in order.
    pub(crate) fn commit_all(&mut self, disk: &mut Disk) {
        for op in std::mem::take(&mut self.names) {
            op.apply(disk);
        }
        for key in self.units.keys().copied().collect::<Vec<_>>() {
            self.commit(disk, key, usize::MAX);
        }
    }

    fn commit(&mut self, disk: &mut Disk, key: (FileId, u64), upto: usize) {
        let mut base = self.base(disk, key.0, key.1);
        let before = unit_hash(key, &base);
        let unit = self.units.get_mut(&key).expect("it is not durable yet");
        let upto = upto.min(unit.pieces.len());
        unit.pieces.drain(..upto).for_each(|piece| piece.apply(&mut base));
        for pending in &mut unit.pending {
            pending.1 = pending.1.saturating_sub(upto);
        }
        unit.pending.retain(|pending| pending.1 > 0);
        disk.write(key.0, key.1 * self.unit_bytes, &base);
        self.hash = self.hash.wrapping_add(unit_hash(key, &base)).wrapping_sub(before);
        if unit.pieces.is_empty() {
            self.units.remove(&key);
        } else {
            unit.work_out_options(key, base);
        }
    }

    fn range(&self, file: FileId, offset_bytes: u64, len_bytes: u64) -> impl Iterator<Item = (FileId, u64)> + use<> {
        let first = offset_bytes / self.unit_bytes;
        let end = (offset_bytes + len_bytes).div_ceil(self.unit_bytes);
        (first..end.max(first)).map(move |unit| (file, unit))
    }
}

impl Piece {
    fn place(&self) -> Range<usize> {
        usize::from(self.at)..usize::from(self.at) + usize::from(self.len)
    }

    fn apply(&self, content: &mut [u8]) {
        content[self.place()].copy_from_slice(&self.bytes[..usize::from(self.len)]);
    }

    fn changes(&self, content: &[u8]) -> bool {
        content[self.place()] != self.bytes[..usize::from(self.len)]
    }
}

impl Unit {
    fn mark_pending(&mut self, thread: u16) {
        let upto = self.pieces.len();
        match self.pending.iter_mut().find(|pending| pending.0 == thread) {
            Some(pending) => pending.1 = upto,
            None => self.pending.push((thread, upto)),
        }
    }

    /// The values that a crash may leave. Those that x86 can leave come first: every prefix of the calls, the next call
    /// torn in its pieces, and any selection of non-temporal pieces, which nothing orders before the fence. Then those in
    /// which calls have arrived out of their order: the architecture promises no more than aligned 8 bytes, other CPUs
    /// order less, and a sector can be read while it is written. Of too many, some of each kind are kept.
    fn work_out_options(&mut self, key: (FileId, u64), base: Box<[u8]>) {
        let mut full = base.clone();
        self.pieces.iter().for_each(|piece| piece.apply(&mut full));
        let cached: Vec<&Piece> = self.pieces.iter().filter(|piece| !piece.non_temporal).collect();
        let streamed: Vec<&Piece> = self.pieces.iter().filter(|piece| piece.non_temporal).collect();
        let groups: Vec<&[&Piece]> = cached.chunk_by(|a, b| a.group == b.group).collect();
        let mut out_of_order = Vec::new();
        if groups.len() > 1 {
            selections(groups.len(), |chosen| {
                let mut content = base.clone();
                let arrived = groups.iter().zip(chosen).filter(|(_, on)| **on);
                arrived.for_each(|(group, _)| group.iter().for_each(|piece| piece.apply(&mut content)));
                out_of_order.push(content);
            });
        }
        let mut content = base.clone();
        let (mut boundaries, mut torn_calls) = (vec![base], Vec::new());
        for group in groups {
            // Whether a piece arrives that stores what is there already, nobody can tell.
            let telling: Vec<_> = group.iter().filter(|piece| piece.changes(&content)).collect();
            selections(telling.len(), |chosen| {
                let mut torn = content.clone();
                telling.iter().zip(chosen).filter(|(_, on)| **on).for_each(|(piece, _)| piece.apply(&mut torn));
                torn_calls.push(torn);
            });
            telling.iter().for_each(|piece| piece.apply(&mut content));
            boundaries.push(content.clone());
        }
        for boundary in boundaries.iter().rev() {
            selections(streamed.len(), |chosen| {
                let mut torn = boundary.clone();
                streamed.iter().zip(chosen).filter(|(_, on)| **on).for_each(|(piece, _)| piece.apply(&mut torn));
                torn_calls.push(torn);
            });
        }
        let value = |bytes: Box<[u8]>| Value { hash: unit_hash(key, &bytes), bytes };
        let full = value(full);
        let mut options = vec![value(boundaries[0].clone())];
        for (candidates, is_last) in [(boundaries, false), (torn_calls, false), (out_of_order, true)] {
            let mut seen: HashedSet = options.iter().map(|value| value.hash).collect();
            seen.insert(full.hash);
            let fresh: Vec<Value> = candidates.into_iter().map(value).filter(|value| seen.insert(value.hash)).collect();
            // A quarter of the room at least is left to the last kind.
            let room = if is_last { MAX_OPTIONS } else { MAX_OPTIONS * 3 / 4 };
            let (len, room) = (fresh.len(), room.saturating_sub(options.len() + 1));
            let chosen = |i: &usize| len <= room || (i * room) / len != ((i + 1) * room) / len;
            options.extend(fresh.into_iter().enumerate().filter(|(i, _)| chosen(i)).map(|(_, value)| value));
        }
        // The last is what the program sees, even where that is what is durable as well.
        if options.len() > 1 || options[0].hash != full.hash {
            options.push(full);
        }
        self.options = options;
    }
}

/// Hash of one unit's content and place, in four lanes that do not wait for each other.
pub(crate) fn unit_hash(key: (FileId, u64), content: &[u8]) -> u64 {
    let mut lanes = [0, 1, 2, 3].map(|lane| mix(lane, key.1));
    for (number, word) in content.chunks(8).enumerate() {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        lanes[number % 4] = mix(lanes[number % 4], u64::from_le_bytes(bytes));
    }
    lanes.into_iter().fold(key.0 as u64, mix)
}

/// Stirs a value into a hash, with the finaliser of MurmurHash3 (Appleby, public domain).
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let mut x = hash.rotate_left(5) ^ value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x ^= x >> 33;
    x = x.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    x ^= x >> 33;
    x = x.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ x >> 33
}

/// Selections of `n` things: all of them for few, else none, all, each alone, all but each, and prefixes.
pub(crate) fn selections(n: usize, mut f: impl FnMut(&[bool])) {
    let mut chosen = vec![false; n];
    if n <= 4 {
        for bits in 0u32..1 << n {
            (0..n).for_each(|i| chosen[i] = bits >> i & 1 == 1);
            f(&chosen);
        }
        return;
    }
    for value in [false, true] {
        chosen.fill(value);
        f(&chosen);
        for i in 0..n {
            chosen[i] = !value;
            f(&chosen);
            chosen[i] = value;
        }
    }
    for end in 2..n - 1 {
        (0..n).for_each(|i| chosen[i] = i < end);
        f(&chosen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        let mut disk = Disk::default();
        disk.new_file(4096);
        disk
    }

    fn words(volatile: &Volatile, unit: u64) -> Vec<[u64; 2]> {
        let word = |b: &[u8], i: usize| u64::from_le_bytes(b[i * 8..i * 8 + 8].try_into().unwrap());
        volatile.units[&(0, unit)].options.iter().map(|o| [word(&o.bytes, 0), word(&o.bytes, 1)]).collect()
    }

    #[test]
    fn stores_to_a_line_arrive_in_any_order_and_those_in_order_come_first() {
        let (disk, mut volatile) = (disk(), Volatile::new(64, 0));
        volatile.store(&disk, 0, 0, &1u64.to_le_bytes(), None);
        volatile.store(&disk, 0, 8, &2u64.to_le_bytes(), None);
        assert_eq!(words(&volatile, 0), [[0, 0], [1, 0], [0, 2], [1, 2]]);
        let mut wide = [0; 16];
        wide[0] = 1;
        wide[8] = 2;
        volatile.store(&disk, 0, 64, &wide, None);
        assert_eq!(words(&volatile, 1), [[0, 0], [1, 0], [0, 2], [1, 2]]);
    }

    #[test]
    fn a_fence_commits_what_its_thread_had_flushed_and_no_later_store() {
        let (mut disk, mut volatile) = (disk(), Volatile::new(64, 0));
        volatile.store(&disk, 0, 0, &1u64.to_le_bytes(), None);
        assert_eq!(volatile.flush(0, 0, 8, 5), 1);
        volatile.store(&disk, 0, 0, &2u64.to_le_bytes(), None);
        assert_eq!(volatile.fence(&mut disk, 6, false), 0, "another thread's fence");
        assert_eq!(volatile.fence(&mut disk, 5, false), 1);
        assert_eq!(disk.content(0)[0], 1);
        assert_eq!(words(&volatile, 0), [[1, 0], [2, 0]]);
        assert_eq!(volatile.fence(&mut disk, 5, false), 0);
        assert_eq!(disk.content(0)[0], 1, "the later store was not flushed");
    }

    #[test]
    fn few_things_are_selected_in_every_way() {
        for (n, ways) in [(0, 1), (1, 2), (3, 8), (4, 16), (5, 14)] {
            let mut seen = std::collections::BTreeSet::new();
            selections(n, |chosen| {
                seen.insert(chosen.to_vec());
            });
            assert_eq!(seen.len(), ways, "{n} things");
        }
    }
}
