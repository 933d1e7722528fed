//! What is promised on each kind of storage, and that a pool keeps its content on it.

use std::fs;
use std::path::Path;

use pmem::{Backing, Durability, Granularity, OpenMode, PartOptions, Provenance};

use crate::machine;
use crate::samples::{self, MIB};

/// Makes a pool, fills it, opens it again, and returns what it says of its storage.
fn backing_of_pool(folder: &str) -> Backing {
    let path = samples::place(folder, "pool");
    let pool = samples::create(&path, &PartOptions::single(8 * MIB));
    let backing = pool.info().backing;
    println!("{}: {}, {}", backing.durability.as_str(), backing.granularity.as_str(), backing.reason);
    // Asked of the kernel, which marks such mappings "sf": synchronous page faults.
    assert_eq!(is_synchronous(&path), backing.granularity != Granularity::Page && backing.filesystem == "ext4");
    for name in ["a", "b", "c"] {
        samples::put(&pool, name, 100_003).unwrap();
    }
    pool.close().unwrap();
    for mode in [OpenMode::Reader, OpenMode::Writer] {
        let pool = samples::open(&path, mode).unwrap();
        ["a", "b", "c"].iter().for_each(|name| samples::check(&pool, name).unwrap());
    }
    backing
}

/// Whether this process maps the file with MAP_SYNC (proc_pid_smaps(5)).
fn is_synchronous(path: &Path) -> bool {
    let text = fs::read_to_string("/proc/self/smaps").expect("/proc is mounted");
    let mappings: Vec<&str> = text.split("VmFlags:").collect();
    let mut found = mappings.windows(2).filter(|pair| pair[0].contains(path.to_str().unwrap_or_default()));
    let flags = found.next().expect("the pool is mapped")[1].lines().next().unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == "sf")
}

fn expect(backing: &Backing, durability: Durability, granularity: Granularity, provenance: Provenance) {
    let promised = (backing.durability, backing.granularity, backing.provenance);
    assert_eq!(promised, (durability, granularity, provenance), "{}", backing.reason);
}

pub(crate) fn ext4_with_dax() {
    let backing = backing_of_pool("/first");
    expect(&backing, Durability::PowerFailSafe, Granularity::CacheLine, Provenance::Measured);
    assert_eq!(backing.filesystem, "ext4");
    assert!(backing.reason.contains("memory controller") && backing.reason.contains("guest"), "{}", backing.reason);
}

pub(crate) fn ext4_without_dax() {
    machine::mount_again(Path::new("/second"), c"dax=never");
    let backing = backing_of_pool("/second");
    expect(&backing, Durability::PowerFailSafe, Granularity::Page, Provenance::Measured);
}

pub(crate) fn tmpfs() {
    let backing = backing_of_pool("/memory");
    expect(&backing, Durability::ProcessCrashSafe, Granularity::CacheLine, Provenance::Emulated);
}

pub(crate) fn virtio_pmem() {
    let backing = backing_of_pool("/virtio");
    expect(&backing, Durability::PowerFailSafe, Granularity::Page, Provenance::Measured);
}

/// Over the same disk as `virtio_pmem`, which alone would be safe.
pub(crate) fn overlay() {
    machine::mount_overlay(Path::new("/overlay"), Path::new("/virtio/layers"));
    let backing = backing_of_pool("/overlay");
    expect(&backing, Durability::PersistenceUnknown, Granularity::Page, Provenance::Measured);
    assert_eq!(backing.filesystem, "overlayfs");
}

pub(crate) fn eadr() {
    let backing = backing_of_pool("/first");
    expect(&backing, Durability::PowerFailSafe, Granularity::Byte, Provenance::Measured);
    assert!(backing.reason.contains("CPU caches"), "{}", backing.reason);
}

pub(crate) fn unknown_domain() {
    let backing = backing_of_pool("/first");
    expect(&backing, Durability::PersistenceUnknown, Granularity::CacheLine, Provenance::Emulated);
}

/// The pool of `unknown_domain`, by a process that was told what the administrator knows.
pub(crate) fn asserted_domain() {
    let pool = samples::open(Path::new("/first/pool"), OpenMode::Writer).unwrap();
    let backing = pool.info().backing;
    expect(&backing, Durability::PowerFailSafe, Granularity::CacheLine, Provenance::Measured);
    assert!(backing.reason.contains("administrator"), "{}", backing.reason);
    samples::check(&pool, "a").unwrap();
    // A new pool has its name when it is asked, although it was made under another one.
    let new = samples::create(Path::new("/first/asserted"), &PartOptions::single(8 * MIB));
    assert_eq!(new.info().backing, backing);
}
