//! Opening a store reads metadata only: not a byte of any payload, however large.
#![allow(unsafe_code)] // implements the one unsafe method of the seam

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pmem::{
    Backing, Heap, HeapFile, HeapMap, LockKind, Media, MediaFile, MediaMap, OpenMode, PartOptions, Result, Stripe,
    Touch, Uuid,
};
use store::{Checksums, Object, PersistOptions, Store};

const OBJECTS: usize = 16;
const FILE_BYTES: u64 = 32 << 20;

/// Byte ranges that were asked for, in order. There is one file, so logical offsets and those of the file are the same.
type Reads = Arc<Mutex<Vec<Range<u64>>>>;

fn note(reads: &Reads, offset_bytes: u64, len_bytes: u64) {
    reads.lock().unwrap().push(offset_bytes..offset_bytes + len_bytes);
}

/// A heap that remembers what is read from it.
#[derive(Clone)]
struct Remembering {
    heap: Heap,
    reads: Reads,
}

struct RememberingFile {
    file: Arc<HeapFile>,
    path: PathBuf,
    reads: Reads,
}

struct RememberingMap {
    map: HeapMap,
    reads: Reads,
}

impl Remembering {
    fn over(heap: Heap) -> Remembering {
        Remembering { heap, reads: Reads::default() }
    }

    fn handle(&self, path: &Path, file: HeapFile) -> RememberingFile {
        RememberingFile { file: Arc::new(file), path: path.to_owned(), reads: self.reads.clone() }
    }

    fn take_reads(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut *self.reads.lock().unwrap())
    }
}

impl Media for Remembering {
    type File = RememberingFile;
    type Map = RememberingMap;

    fn create(&self, path: &Path, len_bytes: u64) -> Result<RememberingFile> {
        Ok(self.handle(path, self.heap.create(path, len_bytes)?))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<RememberingFile> {
        Ok(self.handle(path, self.heap.open(path, mode)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.heap.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.heap.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.heap.sync_dir(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.heap.exists(path)
    }

    fn names(&self, path: &Path, file: &RememberingFile) -> Result<bool> {
        self.heap.names(path, &file.file)
    }

    fn is_device(&self, path: &Path) -> bool {
        self.heap.is_device(path)
    }

    fn map(&self, files: &[Arc<RememberingFile>], stripe: Stripe, mode: OpenMode) -> Result<RememberingMap> {
        let files: Vec<_> = files.iter().map(|file| file.file.clone()).collect();
        Ok(RememberingMap { map: self.heap.map(&files, stripe, mode)?, reads: self.reads.clone() })
    }

    fn fence(&self) {
        self.heap.fence();
    }

    fn new_uuid(&self) -> Uuid {
        self.heap.new_uuid()
    }

    fn process_id(&self) -> u32 {
        self.heap.process_id()
    }

    fn unix_time_s(&self) -> u64 {
        self.heap.unix_time_s()
    }
}

impl MediaFile for RememberingFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn renamed(&mut self, path: &Path) {
        self.path = path.to_owned();
    }

    fn len_bytes(&self) -> Result<u64> {
        self.file.len_bytes()
    }

    fn backing(&self) -> &Backing {
        self.file.backing()
    }

    fn pread(&self, offset_bytes: u64, into: &mut [u8]) -> Result<()> {
        note(&self.reads, offset_bytes, into.len() as u64);
        self.file.pread(offset_bytes, into)
    }

    fn pwrite(&self, offset_bytes: u64, from: &[u8]) -> Result<()> {
        self.file.pwrite(offset_bytes, from)
    }

    fn fsync(&self) -> Result<()> {
        self.file.fsync()
    }

    fn try_lock(&self, kind: LockKind, range: Range<u64>) -> Result<bool> {
        self.file.try_lock(kind, range)
    }

    fn unlock(&self, range: Range<u64>) -> Result<()> {
        self.file.unlock(range)
    }

    fn find_lock(&self, range: Range<u64>) -> Result<Option<u64>> {
        self.file.find_lock(range)
    }
}

impl MediaMap for RememberingMap {
    fn len_bytes(&self) -> u64 {
        self.map.len_bytes()
    }

    fn stripe(&self) -> Stripe {
        self.map.stripe()
    }

    /// Who asks for the address may read everything.
    fn base(&self) -> *mut u8 {
        note(&self.reads, 0, self.map.len_bytes());
        self.map.base()
    }

    fn load_u64(&self, offset_bytes: u64) -> u64 {
        note(&self.reads, offset_bytes, 8);
        self.map.load_u64(offset_bytes)
    }

    fn load_bytes(&self, offset_bytes: u64, into: &mut [u8]) {
        note(&self.reads, offset_bytes, into.len() as u64);
        self.map.load_bytes(offset_bytes, into);
    }

    fn store_u64(&self, offset_bytes: u64, value: u64) {
        self.map.store_u64(offset_bytes, value);
    }

    fn cas_u64(&self, offset_bytes: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        note(&self.reads, offset_bytes, 8);
        self.map.cas_u64(offset_bytes, current, new)
    }

    fn store_bytes(&self, offset_bytes: u64, from: &[u8]) {
        self.map.store_bytes(offset_bytes, from);
    }

    unsafe fn nt_copy(&self, offset_bytes: u64, from: *const u8, len_bytes: usize) {
        // SAFETY: the caller's promise, unchanged.
        unsafe { self.map.nt_copy(offset_bytes, from, len_bytes) };
    }

    fn flush(&self, offset_bytes: u64, len_bytes: u64) {
        self.map.flush(offset_bytes, len_bytes);
    }

    fn sync_range(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.map.sync_range(offset_bytes, len_bytes)
    }

    /// Populates pages, which on a disk reads them.
    fn guard(&self, offset_bytes: u64, len_bytes: u64, touch: Touch) -> Result<()> {
        note(&self.reads, offset_bytes, len_bytes);
        self.map.guard(offset_bytes, len_bytes, touch)
    }
}

fn path() -> &'static Path {
    Path::new("/pools/store")
}

/// The byte ranges of all objects.
fn payloads<M: Media>(store: &Store<M>) -> Vec<Range<u64>> {
    let regions = store.pool().regions("").unwrap();
    let extents = regions.iter().flat_map(|region| region.info().extents.clone());
    extents.map(|extent| extent.offset.byte()..extent.offset.byte() + extent.len_bytes).collect()
}

/// What a killed writer leaves behind, and where its payloads lie: those of the objects, and of one that was replaced
/// while somebody viewed it.
fn killed(payload_bytes: usize) -> (Heap, Vec<Range<u64>>) {
    let heap = Heap::new();
    let store = Store::create(heap.clone(), path(), &PartOptions::single(FILE_BYTES)).unwrap();
    let options = PersistOptions { checksums: Checksums::Crc32c, ..PersistOptions::default() };
    let payload = vec![0xA7; payload_bytes];
    for number in 0..OBJECTS {
        let name = format!("object {number:02}");
        store.persist(&[(&name, Object::array(&payload, &[payload_bytes as u64]).unwrap())], &options).unwrap();
    }
    let mut ranges = payloads(&store);
    let view = store.get("object 03").unwrap();
    store.persist(&[("object 03", Object::bytes(&payload))], &options).unwrap();
    ranges.extend(payloads(&store));
    let left = Heap::new();
    left.put(path(), &heap.get(path()).unwrap());
    drop(view);
    (left, ranges)
}

fn sum(reads: &[Range<u64>]) -> u64 {
    reads.iter().map(|read| read.end - read.start).sum()
}

fn reaches(reads: &[Range<u64>], payloads: &[Range<u64>]) -> bool {
    reads.iter().any(|read| payloads.iter().any(|payload| read.start < payload.end && payload.start < read.end))
}

/// Bytes that are read to open what a killed writer has left, and to list what is there.
fn bytes_to_open(payload_bytes: usize, mode: OpenMode) -> u64 {
    let (heap, payloads) = killed(payload_bytes);
    let media = Remembering::over(heap);
    let store = Store::open(media.clone(), path(), mode).unwrap();
    assert_eq!(store.ls().unwrap().len(), OBJECTS);
    let view = store.get("object 05").unwrap();
    assert_eq!(view.descriptor().payload_bytes(), payload_bytes as u64);
    let reads = media.take_reads();
    assert!(!reads.is_empty() && !reaches(&reads, &payloads), "{mode:?}, {payload_bytes} bytes each: {reads:?}");
    // The control: a read of a payload is noticed.
    assert!(view.verify().unwrap());
    assert!(reaches(&media.take_reads(), &payloads));
    sum(&reads)
}

#[test]
fn opening_a_store_after_a_kill_reads_no_payload_and_no_more_for_larger_ones() {
    for mode in [OpenMode::Reader, OpenMode::Writer, OpenMode::Inspect] {
        let [small_bytes, large_bytes] = [4 << 10, 1 << 20].map(|payload_bytes| bytes_to_open(payload_bytes, mode));
        assert_eq!(small_bytes, large_bytes, "{mode:?}");
        assert!(large_bytes < FILE_BYTES / 64, "{mode:?}: {large_bytes} bytes");
        println!("{mode:?}: {large_bytes} bytes are read to open {OBJECTS} objects");
    }
}
