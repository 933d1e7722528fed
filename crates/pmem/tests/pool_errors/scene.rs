//! A pool whose every file and every reader is looked at before and after something is refused.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use remanent_pmem::{
    Error, ErrorCode, Layout, MIN_FILE_BYTES, Mapped, OpenMode, PartOptions, Pool, RedoBatch, RegionSpec, Touch,
};
use tempfile::TempDir;

pub(crate) const LAYOUT: Layout = Layout { name: "errors", version: 3 };
pub(crate) const CONTENT: [u8; 300] = [0xC3; 300];

/// A pool of two parts with the name `a`, and a reader that looks at it all the time.
pub(crate) struct Scene {
    pub(crate) dir: TempDir,
    pub(crate) reader: Pool<Mapped>,
}

pub(crate) fn open(path: &Path, mode: OpenMode) -> Result<Pool<Mapped>, Error> {
    Pool::open(Mapped::new(), path, Some(LAYOUT), mode)
}

pub(crate) fn put(pool: &Pool<Mapped>, name: &str, content: &[u8]) -> Result<(), Error> {
    let reservation = pool.reserve(content.len() as u64)?;
    let at = reservation.extent().offset;
    pool.set().guard(at, content.len() as u64, Touch::Store)?;
    pool.set().store_bytes(at, content);
    pool.set().persist(at, content.len() as u64)?;
    let mut batch = RedoBatch::new();
    batch.put(name, RegionSpec { kind: 1, add: vec![reservation], ..RegionSpec::default() });
    pool.commit(batch).map(drop)
}

impl Scene {
    /// The pool takes twice `MIN_FILE_BYTES` there.
    pub(crate) fn within(dir: TempDir) -> Scene {
        let path = dir.path().join("pool");
        let pool =
            Pool::create(Mapped::new(), &path, LAYOUT, &PartOptions::single(MIN_FILE_BYTES)).expect("a new pool");
        pool.grow(None, &PartOptions::single(MIN_FILE_BYTES)).expect("a new part");
        put(&pool, "a", &CONTENT).expect("there is room");
        pool.close().expect("it can be marked clean");
        let reader = open(&path, OpenMode::Reader).expect("a whole pool");
        Scene { dir, reader }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("pool")
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        let mut content = vec![0; CONTENT.len()];
        self.reader.region("a").expect("the reader's name").load_bytes(0, 0, &mut content);
        content
    }

    /// Every file of the folder: its bytes, mode and target.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32)> {
        let entries = fs::read_dir(self.dir.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
        let state = |path: PathBuf| {
            let mode = fs::symlink_metadata(&path).expect("an entry").permissions().mode();
            (path.clone(), (fs::read(&path).unwrap_or_default(), mode))
        };
        entries.map(state).collect()
    }

    /// `action` is refused with this code, no file changes, and the reader sees what it saw.
    pub(crate) fn refuses<T>(&self, expected: ErrorCode, action: impl FnOnce() -> Result<T, Error>) {
        let before = self.files();
        let error = action().err().unwrap_or_else(|| panic!("{} was expected", expected.name()));
        assert_eq!(error.code(), expected, "{error}");
        assert!(self.files() == before, "{error}: a file was changed");
        assert_eq!(self.content(), CONTENT, "{error}: the reader sees something else");
    }
}
