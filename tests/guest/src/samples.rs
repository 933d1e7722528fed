//! Pools with known content, for checks that look at where the bytes lie and what happens to them.

use std::path::{Path, PathBuf};

use pmem::{
    Error, Layout, Mapped, Media, MediaFile, OpenMode, PartOptions, Pending, Pool, RedoBatch, Region, RegionSpec, Touch,
};

pub(crate) const LAYOUT: Layout = Layout { name: "guest", version: 1 };
pub(crate) const MIB: u64 = 1 << 20;

/// A place for a pool, where there is none yet.
pub(crate) fn place(folder: &str, name: &str) -> PathBuf {
    let path = Path::new(folder).join(name);
    assert!(!path.exists(), "{} is there already", path.display());
    path
}

/// Where growth puts a pool's second part.
pub(crate) fn part_of(path: &Path) -> PathBuf {
    path.with_added_extension("1")
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

/// A reader that is open while something is refused, and the files that must stay as they are.
pub(crate) struct Witness {
    reader: Pool<Mapped>,
    paths: Vec<PathBuf>,
    names: Vec<&'static str>,
}

impl Witness {
    /// Of these names the reader must see every byte, whatever happens to others.
    pub(crate) fn new(paths: &[&Path], names: &[&'static str]) -> Witness {
        let reader = open(paths[0], OpenMode::Reader).expect("a whole pool");
        Witness { reader, paths: paths.iter().map(|path| path.to_path_buf()).collect(), names: names.to_vec() }
    }

    /// The action fails, changes no byte that can be read, and does not disturb the reader.
    pub(crate) fn refuses<T>(&self, action: impl FnOnce() -> Result<T, Error>) -> Error {
        let sums = || self.paths.iter().map(|path| sums(path)).collect::<Vec<_>>();
        let before = sums();
        let error = action().err().expect("this must be refused");
        assert!(sums() == before, "{error}: a file was changed");
        self.names.iter().for_each(|name| check(&self.reader, name).expect("the reader goes on"));
        error
    }
}

/// A sum of every piece of a file or device, none of those that are lost.
pub(crate) fn sums(path: &Path) -> Vec<Option<u64>> {
    const PIECE_BYTES: u64 = 2 * MIB;
    const PAGE_BYTES: u64 = 4096;
    let file = Mapped::new().open(path, OpenMode::Reader).expect("a file of the pool");
    let len_bytes = file.len_bytes().expect("a file of the pool");
    let mut buffer = vec![0; PIECE_BYTES as usize];
    let mut sum = |at: u64, piece_bytes: u64| {
        let piece = &mut buffer[..piece_bytes.min(len_bytes - at) as usize];
        file.pread(at, piece).ok().map(|()| word_sum(piece))
    };
    let mut sums = Vec::new();
    for at in (0..len_bytes).step_by(PIECE_BYTES as usize) {
        match sum(at, PIECE_BYTES) {
            Some(found) => sums.push(Some(found)),
            None => {
                let pages = (at..len_bytes.min(at + PIECE_BYTES)).step_by(PAGE_BYTES as usize);
                sums.extend(pages.map(|page| sum(page, PAGE_BYTES)));
            }
        }
    }
    sums
}

/// By words, for the CPU of the guest is emulated and slow.
fn word_sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    let sum = words.iter().fold(bytes.len() as u64, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}

/// Where a name's content lies in the pool's one file.
pub(crate) fn file_offset_bytes(pool: &Pool<Mapped>, name: &str) -> u64 {
    let region = pool.region(name).expect("a name that was committed");
    let offset = region.info().extents[0].offset;
    assert_eq!(offset.part(), 0, "the pool has one part");
    offset.byte()
}
