//! A hostile pool: a whole one with patches from the input, its checksums made right again or not.
//!
//! The positions here are written from the format's tables and not taken from the core, so that the fuzzer and its
//! subject do not share a mistake.

use std::path::Path;
use std::sync::OnceLock;

use pmem::{Heap, Layout, MIN_FILE_BYTES, Media, MediaFile, OpenMode, PartOptions, Pool, RedoBatch, RegionSpec};

const LAYOUT: Layout = Layout { name: "fuzz", version: 1 };
const SUPERBLOCKS: [usize; 2] = [0, 1 << 20];
const ROOTS: [usize; 2] = [4096, (1 << 20) + 4096];
const LOG: usize = 2 << 20;

fn path() -> &'static Path {
    Path::new("/pools/fuzz")
}

/// Pages of a file that are not zero, with their offsets.
type Pages = Vec<(usize, Vec<u8>)>;

/// A pool of two parts with some names: its files.
fn whole() -> &'static [(&'static str, Pages); 2] {
    static WHOLE: OnceLock<[(&str, Pages); 2]> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let media = Heap::new();
        let options = PartOptions::single(MIN_FILE_BYTES);
        let pool = Pool::create(media.clone(), path(), LAYOUT, &options).expect("a new pool");
        pool.grow(None, &options).expect("a new part");
        for name in ["a", "b", "c"] {
            put(&pool, name).expect("there is room");
        }
        pool.compact().expect("there is room");
        put(&pool, "d").expect("there is room");
        pool.close().expect("it can be marked clean");
        ["/pools/fuzz", "/pools/fuzz.1"].map(|name| {
            let content = media.get(Path::new(name)).expect("a file of the pool");
            let pages = content.chunks(4096).enumerate().map(|(number, page)| (number * 4096, page.to_vec()));
            (name, pages.filter(|(_, page)| page.iter().any(|&byte| byte != 0)).collect())
        })
    })
}

fn put(pool: &Pool<Heap>, name: &str) -> pmem::Result<()> {
    let add = vec![pool.reserve(200)?];
    let mut batch = RedoBatch::new();
    batch.put(name, RegionSpec { kind: 1, meta: vec![1, 2, 3], add, ..RegionSpec::default() });
    pool.commit(batch).map(drop)
}

/// Opens what the input makes of the pool, in every mode, and goes on to use it.
pub(crate) fn run(input: &[u8]) {
    let Some((&flags, patches)) = input.split_first() else { return };
    let media = Heap::new();
    for (name, pages) in whole() {
        let Ok(file) = media.create(Path::new(name), MIN_FILE_BYTES) else { return };
        for (at, page) in pages {
            let _ = file.pwrite(*at as u64, page);
        }
    }
    let file = if flags & 1 == 0 { path() } else { Path::new("/pools/fuzz.1") };
    let Ok(handle) = media.open(file, OpenMode::Writer) else { return };
    for patch in patches.chunks(8) {
        apply(&handle, patch);
    }
    if flags & 2 != 0 {
        reseal(&handle);
    }
    drop(handle);
    for mode in [OpenMode::Inspect, OpenMode::Reader, OpenMode::Writer] {
        if let Ok(pool) = Pool::open(media.clone(), path(), None, mode) {
            look_around(&pool);
            if mode == OpenMode::Writer {
                let _ = put(&pool, "new");
                let _ = pool.compact();
                let _ = pool.close();
            }
        }
    }
}

/// One patch: a place, an offset of 16 bits and up to 5 bytes.
fn apply(file: &impl MediaFile, patch: &[u8]) {
    let [place, low, high, bytes @ ..] = patch else { return };
    let offset = usize::from(u16::from_le_bytes([*low, *high]));
    let at: &[usize] = match place % 6 {
        0 => &SUPERBLOCKS[..1],
        1 => &SUPERBLOCKS,
        2 => &ROOTS,
        3 => &[LOG],
        4 => &[8192],
        _ => &[LOG + (64 << 10)],
    };
    for &start in at {
        let span = match place % 6 {
            0 | 1 => 4096,
            2 => 256,
            4 => 8,
            _ => 8192,
        };
        let at = start + offset % (span - bytes.len().min(span - 1));
        let _ = file.pwrite(at as u64, &bytes[..bytes.len().min(span)]);
    }
}

/// Makes the checksums of superblocks, root cells and log batches right again.
fn reseal(file: &impl MediaFile) {
    let mut uuid = [0; 16];
    let _ = file.pread(40, &mut uuid);
    let seed = |generation: u64| crc32c::crc32c_append(crc32c::crc32c(&uuid), &generation.to_le_bytes());
    for at in SUPERBLOCKS {
        seal_cell(file, at, 4096, 0);
    }
    for at in ROOTS {
        seal_cell(file, at, 256, seed(0));
    }
    let mut root = [0; 32];
    let _ = file.pread(ROOTS[0] as u64, &mut root);
    let word = |i: usize| u64::from_le_bytes(root[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
    let (mut at, end) = (word(0), word(0).saturating_add(word(1).min(1 << 20)));
    let seed = seed(word(2));
    while at.saturating_add(64) <= end {
        let mut header = [0; 64];
        if file.pread(at, &mut header).is_err() {
            return;
        }
        let payload_bytes = u64::from_le_bytes(header[16..24].try_into().expect("eight bytes"));
        if payload_bytes > end - at - 64 {
            return;
        }
        let mut payload = vec![0; payload_bytes as usize];
        if file.pread(at + 64, &mut payload).is_err() {
            return;
        }
        header[56..60].copy_from_slice(&crc32c::crc32c_append(seed, &payload).to_le_bytes());
        let crc = crc32c::crc32c_append(seed, &header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
        let _ = file.pwrite(at, &header);
        at += (64 + payload_bytes).next_multiple_of(256);
    }
}

fn seal_cell(file: &impl MediaFile, at: usize, bytes: usize, seed: u32) {
    let mut slot = vec![0; bytes];
    if file.pread(at as u64, &mut slot).is_ok() {
        let crc = crc32c::crc32c_append(seed, &slot[..bytes - 8]);
        slot[bytes - 8..bytes - 4].copy_from_slice(&crc.to_le_bytes());
        let _ = file.pwrite(at as u64, &slot);
    }
}

fn look_around(pool: &Pool<Heap>) {
    let _ = pool.info();
    for region in pool.regions("").unwrap_or_default() {
        let _ = region.guard();
        for (number, extent) in region.info().extents.iter().enumerate() {
            let mut bytes = vec![0; extent.len_bytes.min(256) as usize];
            region.load_bytes(number, 0, &mut bytes);
        }
    }
    let _ = pool.refresh();
}
