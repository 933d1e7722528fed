//! Pools with known content, for checks that look at where the bytes lie and what happens to them.

use std::path::{Path, PathBuf};

use pmem::{Error, Layout, Mapped, OpenMode, PartOptions, Pending, Pool, RedoBatch, Region, RegionSpec, Touch};

pub(crate) const LAYOUT: Layout = Layout { name: "guest", version: 1 };
pub(crate) const MIB: u64 = 1 << 20;

/// A place for a pool, where there is none yet.
pub(crate) fn place(folder: &str, name: &str) -> PathBuf {
    let path = Path::new(folder).join(name);
    assert!(!path.exists(), "{} is there already", path.display());
    path
}

pub(crate) fn create(path: &Path, options: &PartOptions) -> Pool<Mapped> {
    Pool::create(Mapped::new(), path, LAYOUT, options).unwrap_or_else(|error| panic!("creating: {error}"))
}

pub(crate) fn open(path: &Path, mode: OpenMode) -> Result<Pool<Mapped>, Error> {
    Pool::open(Mapped::new(), path, Some(LAYOUT), mode)
}

/// Content that no other name has.
pub(crate) fn content(name: &str, len_bytes: u64) -> Vec<u8> {
    let seed = name.bytes().fold(1469, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let mut bytes = vec![0; len_bytes as usize];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Commits one name with its content.
pub(crate) fn put(pool: &Pool<Mapped>, name: &str, len_bytes: u64) -> Result<(), Error> {
    let reservation = pool.reserve(len_bytes)?;
    let at = reservation.extent().offset;
    pool.set().guard(at, len_bytes, Touch::Store)?;
    let mut pending = Pending::new();
    pool.set().nt_copy(&mut pending, at, &content(name, len_bytes));
    pool.set().fence(&mut pending)?;
    let meta = len_bytes.to_le_bytes().to_vec();
    let mut batch = RedoBatch::new();
    batch.put(name, RegionSpec { kind: 1, meta, add: vec![reservation], ..RegionSpec::default() });
    pool.commit(batch)?;
    Ok(())
}

/// Reads a name through a guard and compares every byte.
pub(crate) fn check(pool: &Pool<Mapped>, name: &str) -> Result<(), Error> {
    let region = pool.region(name)?;
    let len_bytes = len_bytes(&region);
    region.guard()?;
    let mut found = vec![0; len_bytes as usize];
    region.load_bytes(0, 0, &mut found);
    assert!(found == content(name, len_bytes), "{name} has other bytes than were committed");
    Ok(())
}

fn len_bytes(region: &Region<Mapped>) -> u64 {
    u64::from_le_bytes(region.info().meta[..].try_into().expect("the description is the length"))
}

/// Where a name's content lies in the pool's one file.
pub(crate) fn file_offset_bytes(pool: &Pool<Mapped>, name: &str) -> u64 {
    let region = pool.region(name).expect("a name that was committed");
    let offset = region.info().extents[0].offset;
    assert_eq!(offset.part(), 0, "the pool has one part");
    offset.byte()
}
