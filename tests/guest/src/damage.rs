//! Pages that are lost, and files that shrink, while a pool is open and before it is.
//!
//! A page is lost as on a machine with a memory error: the kernel takes it away from every mapping (MADV_HWPOISON,
//! madvise(2)), and the device lists its sectors as bad. The kernel also sends SIGBUS to every process that has the
//! page mapped; what to do then is the program's own policy. The checks ignore it, which a fault of an access of their
//! own would not let them: that one ends a process whatever it ignores.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use pmem::{Error, ErrorCode, OpenMode, PartOptions};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};

use crate::machine::device_of;
use crate::samples::{self, MIB, Witness};

const PAGE_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;
/// ioctl(2): the number of a file's block on its device.
const FIBMAP: libc::Ioctl = 1;

/// Loses one page of a file.
fn lose_page(path: &Path, offset_bytes: u64) {
    // The one who poisons a page gets the signal first, and at once.
    let status = Command::new("/init").arg("damage").arg(path).arg(offset_bytes.to_string()).status().unwrap();
    println!("the process that poisoned the page ended with {status}");
    let device = device_of(Path::new("/first"));
    let name = device.file_name().and_then(|name| name.to_str()).expect("a device has a name");
    let sector = block_number(path, offset_bytes / PAGE_BYTES) * (PAGE_BYTES / SECTOR_BYTES);
    let list = format!("/sys/block/{name}/badblocks");
    fs::write(&list, format!("{sector} {}", PAGE_BYTES / SECTOR_BYTES))
        .expect("the list of bad blocks can be added to");
}

/// Poisons a page under a mapping of this process, which may not survive it.
pub(crate) fn poison_own_mapping(path: &str, offset_bytes: &str) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let offset_bytes = offset_bytes.parse().unwrap();
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC | MapFlags::POPULATE;
    // SAFETY: a new mapping, which nothing refers to; the advice is for exactly its one page.
    unsafe {
        let page = mmap(
            std::ptr::null_mut(),
            PAGE_BYTES as usize,
            ProtFlags::READ | ProtFlags::WRITE,
            flags,
            &file,
            offset_bytes,
        );
        madvise(page.unwrap(), PAGE_BYTES as usize, Advice::LinuxHwPoison).unwrap();
    }
}

fn block_number(path: &Path, index: u64) -> u64 {
    let file = File::open(path).unwrap();
    let mut block = index as libc::c_int;
    // SAFETY: FIBMAP reads and writes one int.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FIBMAP, &mut block) };
    assert!(result == 0 && block > 0, "{} has no block {index}", path.display());
    block as u64
}

fn ignore_notices() {
    // SAFETY: to ignore a signal runs no code.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_IGN) };
}

fn bad_offset_bytes(error: Error) -> u64 {
    match error {
        Error::BadBlock { path, offset_bytes } => {
            println!("{}: bad block at byte {offset_bytes}", path.display());
            offset_bytes
        }
        other => panic!("a lost page is no bad block: {other:?}"),
    }
}

pub(crate) fn poisoned_under_a_mapping() {
    ignore_notices();
    let path = samples::place("/first", "poisoned");
    let pool = samples::create(&path, &PartOptions::single(8 * MIB));
    for name in ["a", "b", "c"] {
        samples::put(&pool, name, 64 << 10).unwrap();
        samples::check(&pool, name).unwrap();
    }
    let bad_bytes = samples::file_offset_bytes(&pool, "b") + 5 * PAGE_BYTES;
    let witness = Witness::new(&[&path], &["a", "c"]);
    lose_page(&path, bad_bytes);
    assert_eq!(bad_offset_bytes(witness.refuses(|| samples::check(&pool, "b"))), bad_bytes);
    for name in ["a", "c"] {
        samples::check(&pool, name).unwrap();
    }
    samples::put(&pool, "d", 64 << 10).unwrap();
    pool.close().unwrap();
    for mode in [OpenMode::Reader, OpenMode::Writer] {
        let pool = samples::open(&path, mode).unwrap();
        assert_eq!(bad_offset_bytes(witness.refuses(|| samples::check(&pool, "b"))), bad_bytes);
        ["a", "c", "d"].iter().for_each(|name| samples::check(&pool, name).unwrap());
    }
}

/// A page of the log: there is no opening without it. One with a superblock: the other copy serves readers, and a writer,
/// which would have to write there, is refused. The process lives.
pub(crate) fn poisoned_before_open() {
    ignore_notices();
    let all = [OpenMode::Reader, OpenMode::Inspect, OpenMode::Writer];
    for (name, bad_bytes, served) in [("poisoned-log", 2 * MIB, 0), ("poisoned-head", 0, 2)] {
        let path = samples::place("/first", name);
        let pool = samples::create(&path, &PartOptions::single(8 * MIB));
        samples::put(&pool, "a", 5000).unwrap();
        // Readers make the links between parts durable, which lie in the superblocks.
        pool.grow(None, &PartOptions::single(8 * MIB)).unwrap();
        pool.close().unwrap();
        let witness = Witness::new(&[&path, &samples::part_of(&path)], &["a"]);
        lose_page(&path, bad_bytes);
        let (served, refused) = all.split_at(served);
        for &mode in served {
            samples::check(&samples::open(&path, mode).unwrap(), "a").unwrap();
        }
        for &mode in refused {
            let refused = witness.refuses(|| samples::open(&path, mode));
            assert_eq!(bad_offset_bytes(refused), bad_bytes, "{name}");
        }
    }
}

pub(crate) fn truncated_under_a_mapping() {
    let path = samples::place("/first", "truncated");
    let pool = samples::create(&path, &PartOptions::single(8 * MIB));
    for name in ["a", "b"] {
        samples::put(&pool, name, MIB).unwrap();
        samples::check(&pool, name).unwrap();
    }
    // Both lie behind the head and the log; the later one is cut in two.
    let (first, second) = (samples::file_offset_bytes(&pool, "a"), samples::file_offset_bytes(&pool, "b"));
    let (kept, cut) = if first < second { ("a", "b") } else { ("b", "a") };
    let witness = Witness::new(&[&path], &[kept]);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(first.max(second) + MIB / 2).unwrap();
    assert_eq!(witness.refuses(|| samples::check(&pool, cut)).code(), ErrorCode::Truncated);
    samples::check(&pool, kept).unwrap();
    assert_eq!(witness.refuses(|| samples::put(&pool, "c", 4096)).code(), ErrorCode::Truncated);
    samples::check(&pool, kept).unwrap();
    drop(pool);
    for mode in [OpenMode::Reader, OpenMode::Inspect, OpenMode::Writer] {
        assert_eq!(witness.refuses(|| samples::open(&path, mode)).code(), ErrorCode::Truncated);
    }
}
