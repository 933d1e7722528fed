//! Readers that come while a pool grows.

use std::path::Path;
use std::sync::{Arc, Mutex};

use remanent_pmem::{
    Heap, HeapFile, HeapMap, Layout, MIN_FILE_BYTES, Media, OpenMode, PartOptions, Pool, RedoBatch, RegionSpec, Result,
    Stripe, Uuid,
};

const LAYOUT: Layout = Layout { name: "growth", version: 1 };

type Action = Box<dyn FnOnce() + Send>;

/// A heap on which something happens when a directory is synced next: between a reader's look for parts and its look at
/// the log.
#[derive(Clone)]
struct Interrupted {
    heap: Heap,
    action: Arc<Mutex<Option<Action>>>,
}

impl Media for Interrupted {
    type File = HeapFile;
    type Map = HeapMap;

    fn create(&self, path: &Path, len_bytes: u64) -> Result<HeapFile> {
        self.heap.create(path, len_bytes)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<HeapFile> {
        self.heap.open(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.heap.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.heap.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let action = self.action.lock().unwrap().take();
        action.into_iter().for_each(|action| action());
        self.heap.sync_dir(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.heap.exists(path)
    }

    fn names(&self, path: &Path, file: &Self::File) -> Result<bool> {
        self.heap.names(path, file)
    }

    fn is_device(&self, path: &Path) -> bool {
        self.heap.is_device(path)
    }

    fn map(&self, files: &[Arc<HeapFile>], stripe: Stripe, mode: OpenMode) -> Result<HeapMap> {
        self.heap.map(files, stripe, mode)
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

fn put<M: Media>(pool: &Pool<M>, name: &str, len_bytes: u64) {
    let add = vec![pool.reserve(len_bytes).unwrap()];
    let mut batch = RedoBatch::new();
    batch.put(name, RegionSpec { kind: 1, add, ..RegionSpec::default() });
    pool.commit(batch).unwrap();
}

/// What the writer does meanwhile lies in the new parts: a region, and after the compaction the log itself.
#[test]
fn a_reader_that_opens_while_the_pool_grows_sees_the_new_parts() {
    for compacts in [false, true] {
        let heap = Heap::new();
        let path = Path::new("/pools/p");
        let writer = Pool::create(heap.clone(), path, LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).unwrap();
        put(&writer, "fills the first part", (2 << 20) - (128 << 10));
        let writer = Arc::new(writer);
        let action = {
            let writer = writer.clone();
            move || {
                for part in ["first", "second"] {
                    writer.grow(None, &PartOptions::single(MIN_FILE_BYTES)).unwrap();
                    put(&writer, part, 1 << 20);
                    if compacts {
                        writer.compact().unwrap();
                        writer.compact().unwrap();
                    }
                }
            }
        };
        let media = Interrupted { heap, action: Arc::new(Mutex::new(Some(Box::new(action)))) };
        let reader = Pool::open(media.clone(), path, Some(LAYOUT), OpenMode::Reader).unwrap();
        assert!(media.action.lock().unwrap().is_none(), "the pool grew while the reader opened it");
        assert_eq!((reader.generation(), reader.info().parts.len()), (writer.generation(), 3));
        assert_eq!(reader.info().names, 3);
    }
}

#[test]
fn threads_that_refresh_one_reader_open_each_new_part_once() {
    let (heap, path) = (Heap::new(), Path::new("/pools/p"));
    let writer = Pool::create(heap.clone(), path, LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).unwrap();
    let reader = Pool::open(heap, path, Some(LAYOUT), OpenMode::Reader).unwrap();
    for parts in 2..40 {
        writer.grow(None, &PartOptions::single(MIN_FILE_BYTES)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| reader.refresh().unwrap());
            }
        });
        assert_eq!(reader.info().parts.len(), parts);
    }
}
