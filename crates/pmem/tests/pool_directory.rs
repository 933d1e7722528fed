//! A pool that was opened by a relative path, in a process that then goes to another directory. The working directory is
//! the whole process's, so this is a program of its own with one test.

use std::env::set_current_dir;
use std::fs;
use std::path::{Path, PathBuf};

use remanent_pmem::{Layout, MIN_FILE_BYTES, Mapped, OpenMode, PartOptions, Pool};

const LAYOUT: Layout = Layout { name: "directory", version: 1 };

#[test]
fn parts_are_made_and_found_beside_the_pool_wherever_the_process_goes() {
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = PartOptions::single(MIN_FILE_BYTES);
    let open = |path: &Path, mode| Pool::open(Mapped::new(), path, Some(LAYOUT), mode);
    set_current_dir(home.path()).unwrap();
    let pool = Pool::create(Mapped::new(), Path::new("pool"), LAYOUT, &options).unwrap();
    let reader = open(Path::new("pool"), OpenMode::Reader).unwrap();
    pool.grow(None, &options).unwrap();
    set_current_dir(elsewhere.path()).unwrap();
    pool.grow(None, &options).unwrap();
    // Named here, relative to where the process is now.
    pool.grow(Some(Path::new("far")), &options).unwrap();
    reader.refresh().unwrap();
    let files = |pool: &Pool| -> Vec<PathBuf> { pool.info().parts.into_iter().flat_map(|part| part.files).collect() };
    let beside = |name: &str| home.path().join(name);
    assert_eq!(files(&pool), [PathBuf::from("pool"), "pool.1".into(), beside("pool.2"), "far".into()]);
    assert_eq!(reader.info().parts.len(), 4);
    let here: Vec<_> = fs::read_dir(elsewhere.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(here, ["far"]);
    drop((reader, pool));
    set_current_dir("/").unwrap();
    let pool = open(&beside("pool"), OpenMode::Writer).unwrap();
    let far = elsewhere.path().join("far");
    assert_eq!(files(&pool), [beside("pool"), beside("pool.1"), beside("pool.2"), far]);
}
