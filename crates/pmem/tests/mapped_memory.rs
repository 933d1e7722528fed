//! Mappings: words, copies, stripes, and pages that are lost while a process looks at them.

#![allow(unsafe_code)] // the calls under test are unsafe

use std::fs::{File, OpenOptions};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use remanent_pmem::{
    Error, ErrorCode, Granularity, Mapped, MappedFile, Mapping, Media, MediaFile, MediaMap, OpenMode, Prefault,
    Provenance, Stripe, Touch, copy_parallel,
};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

struct Fixture {
    _dir: TempDir,
    mapped: Mapped,
    paths: Vec<PathBuf>,
    files: Vec<Arc<MappedFile>>,
}

impl Fixture {
    fn in_dir(dir: TempDir, members: u16, member_bytes: u64) -> Fixture {
        let mapped = Mapped::new();
        let paths: Vec<_> = (0..members).map(|i| dir.path().join(format!("part{i}"))).collect();
        let files = paths.iter().map(|path| Arc::new(mapped.create(path, member_bytes).unwrap())).collect();
        Fixture { _dir: dir, mapped, paths, files }
    }

    fn new(members: u16, member_bytes: u64) -> Fixture {
        Fixture::in_dir(tempfile::tempdir().unwrap(), members, member_bytes)
    }

    /// On tmpfs where there is one, so that both kinds of granularity are met.
    fn all(member_bytes: u64) -> Vec<Fixture> {
        let mut fixtures = vec![Fixture::new(1, member_bytes)];
        match tempfile::tempdir_in("/dev/shm") {
            Ok(dir) => fixtures.push(Fixture::in_dir(dir, 1, member_bytes)),
            Err(error) => println!("without shared memory: /dev/shm: {error}"),
        }
        fixtures
    }

    fn map(&self, stripe: Stripe, mode: OpenMode) -> Mapping {
        self.mapped.map(&self.files, stripe, mode).unwrap()
    }

    fn single(&self) -> Mapping {
        self.map(Stripe::SINGLE, OpenMode::Writer)
    }

    /// Makes a range durable and visible to `pread`, whatever the granularity.
    fn settle(&self, map: &Mapping) {
        self.mapped.fence();
        map.sync_range(0, map.len_bytes()).unwrap();
    }
}

fn nt_copy(map: &Mapping, offset_bytes: u64, from: &[u8]) {
    // SAFETY: a slice is readable.
    unsafe { map.nt_copy(offset_bytes, from.as_ptr(), from.len()) };
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i * 131 + i / 509) as u8 ^ seed).collect()
}

fn truncate(path: &Path, len_bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len_bytes).unwrap();
}

#[test]
fn stores_are_found_by_loads_and_by_reading_the_file() {
    for fixture in Fixture::all(4 * MIB) {
        let map = fixture.single();
        let (stored, copied) = (pattern(5000, 1), pattern(100_003, 2));
        map.store_u64(8, 0x0123_4567_89ab_cdef);
        map.store_bytes(4090, &stored);
        map.flush(4090, 5000);
        nt_copy(&map, 20_001, &copied);
        fixture.settle(&map);
        assert_eq!(map.load_u64(8), 0x0123_4567_89ab_cdef);
        let mut content = vec![0; 4 * MIB as usize];
        fixture.files[0].pread(0, &mut content).unwrap();
        let mut loaded = vec![0; content.len()];
        map.load_bytes(0, &mut loaded);
        assert!(loaded == content);
        assert_eq!(content[8..16], 0x0123_4567_89ab_cdefu64.to_le_bytes());
        assert!(content[4090..9090] == stored && content[20_001..120_004] == copied);
        assert!(content[120_004..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn compare_and_swap_reports_what_was_there() {
    let map = Fixture::new(1, 4096).single();
    assert_eq!(map.cas_u64(16, 0, 7), Ok(0));
    assert_eq!(map.cas_u64(16, 0, 9), Err(7));
    assert_eq!(map.load_u64(16), 7);
}

#[test]
fn mapping_is_aligned_to_huge_pages_and_as_long_as_the_file() {
    for len_bytes in [1, 4096, 3 * MIB + 5] {
        let map = Fixture::new(1, len_bytes).single();
        assert_eq!(map.len_bytes(), len_bytes);
        assert_eq!(map.base().addr() % (2 << 20), 0);
    }
}

#[test]
fn reader_sees_what_the_writer_stores() {
    let fixture = Fixture::new(1, MIB);
    let writer = fixture.single();
    let file = Arc::new(fixture.mapped.open(&fixture.paths[0], OpenMode::Reader).unwrap());
    let reader = fixture.mapped.map(&[file], Stripe::SINGLE, OpenMode::Reader).unwrap();
    writer.store_u64(4096, 42);
    assert_eq!(reader.load_u64(4096), 42);
    reader.guard(0, MIB, Touch::Load).unwrap();
    assert_eq!(reader.guard(0, MIB, Touch::Store).unwrap_err().code(), ErrorCode::NotWritable);
}

#[test]
fn file_opened_for_reading_is_not_mapped_for_writing() {
    let fixture = Fixture::new(1, MIB);
    let file = Arc::new(fixture.mapped.open(&fixture.paths[0], OpenMode::Reader).unwrap());
    let refused = fixture.mapped.map(&[file], Stripe::SINGLE, OpenMode::Writer);
    assert_eq!(refused.unwrap_err().code(), ErrorCode::NotWritable);
}

#[test]
fn emptied_file_is_not_mapped() {
    let fixture = Fixture::new(1, MIB);
    truncate(&fixture.paths[0], 0);
    let refused = fixture.mapped.map(&fixture.files, Stripe::SINGLE, OpenMode::Writer);
    assert_eq!(refused.unwrap_err().code(), ErrorCode::BadSize);
}

#[test]
#[should_panic(expected = "a store to a mapping that is open for reading")]
fn store_through_a_reader_is_a_programmers_error() {
    let fixture = Fixture::new(1, MIB);
    fixture.map(Stripe::SINGLE, OpenMode::Reader).store_u64(0, 1);
}

#[test]
fn accesses_outside_panic_and_touch_nothing() {
    let map = Fixture::new(1, 8192).single();
    type Access = fn(&Mapping);
    let accesses: [Access; 8] = [
        |map| map.store_u64(8192, 1),
        |map| map.store_u64(8188, 1),
        |map| map.store_u64(4, 1),
        |map| _ = map.load_u64(u64::MAX - 3),
        |map| map.store_bytes(8000, &[1; 193]),
        |map| map.load_bytes(8192, &mut [0; 1]),
        |map| nt_copy(map, 1, &[1; 8192]),
        |map| map.flush(u64::MAX, u64::MAX),
    ];
    for (index, access) in accesses.into_iter().enumerate() {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| access(&map)));
        assert!(result.is_err(), "access {index}");
    }
    let mut content = [1; 8192];
    map.load_bytes(0, &mut content);
    assert!(content.iter().all(|&byte| byte == 0));
}

#[test]
fn truncation_under_a_mapping_is_an_error_and_no_signal() {
    for fixture in Fixture::all(8 * MIB) {
        let map = fixture.single();
        map.guard(0, 8 * MIB, Touch::Store).unwrap();
        truncate(&fixture.paths[0], 3 * MIB + 100);
        for touch in [Touch::Load, Touch::Store] {
            match map.guard(2 * MIB, 4 * MIB, touch) {
                Err(Error::Truncated { path, got_bytes, expected_bytes }) => {
                    assert_eq!((got_bytes, expected_bytes), (3 * MIB + 100, 8 * MIB));
                    assert_eq!(path, fixture.paths[0]);
                }
                other => panic!("{other:?}"),
            }
            map.guard(0, 3 * MIB, touch).unwrap();
        }
        assert_eq!(map.load_u64(3 * MIB - 8), 0, "the process lives and the rest is there");
    }
}

#[test]
fn guard_changes_no_byte_and_accepts_any_range() {
    for fixture in Fixture::all(MIB) {
        let map = fixture.single();
        let content = pattern(MIB as usize, 9);
        map.store_bytes(0, &content);
        for (offset, len) in [(0, 0), (0, 1), (4095, 2), (MIB - 1, 1), (MIB, 0), (5, MIB - 5)] {
            for touch in [Touch::Load, Touch::Store] {
                map.guard(offset, len, touch).unwrap();
            }
        }
        let mut found = vec![0; content.len()];
        map.load_bytes(0, &mut found);
        assert!(found == content);
    }
}

/// Writes every 8 KiB of a striped mapping and compares the members, byte for byte, with `Stripe::locate`.
fn check_stripe(members: u16, chunk_bytes: u64, member_bytes: u64) {
    let fixture = Fixture::new(members, member_bytes);
    let stripe = Stripe { members, chunk_bytes };
    let map = fixture.map(stripe, OpenMode::Writer);
    assert_eq!(map.len_bytes(), stripe.logical_bytes(member_bytes));
    let content = pattern(map.len_bytes() as usize, members as u8);
    nt_copy(&map, 0, &content);
    fixture.settle(&map);
    let mut at_bytes = 0;
    while at_bytes < map.len_bytes() {
        let (member, file_bytes, follow_bytes) = stripe.locate(at_bytes);
        let len = follow_bytes.min(map.len_bytes() - at_bytes) as usize;
        let mut found = vec![0; len];
        fixture.files[usize::from(member)].pread(file_bytes, &mut found).unwrap();
        assert!(found == content[at_bytes as usize..][..len], "logical byte {at_bytes} of {stripe:?}");
        at_bytes += len as u64;
    }
    for file in &fixture.files[1..] {
        let mut head = vec![1; Stripe::HEAD_BYTES as usize];
        file.pread(0, &mut head).unwrap();
        assert!(head.iter().all(|&byte| byte == 0), "the head of a later member is its own");
    }
}

#[test]
fn stripes_lie_where_locate_says() {
    check_stripe(1, 2 * MIB, 5 * MIB + 77);
    check_stripe(2, 2 * MIB, 8 * MIB);
    check_stripe(3, 4 * MIB, 10 * MIB + 5);
}

#[test]
fn truncated_member_of_a_stripe_is_named() {
    let fixture = Fixture::new(3, 6 * MIB);
    let map = fixture.map(Stripe { members: 3, chunk_bytes: 2 * MIB }, OpenMode::Writer);
    map.guard(0, map.len_bytes(), Touch::Store).unwrap();
    truncate(&fixture.paths[1], 4 * MIB);
    match map.guard(0, map.len_bytes(), Touch::Load) {
        Err(Error::Truncated { path, got_bytes, .. }) => {
            assert_eq!((path, got_bytes), (fixture.paths[1].clone(), 4 * MIB))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn parallel_copy_equals_the_source_for_every_thread_count() {
    for fixture in Fixture::all(24 * MIB) {
        copies_equal_the_source(&fixture, &fixture.single());
    }
}

#[test]
fn parallel_copy_equals_the_source_on_stripes() {
    for (members, member_bytes, chunk_bytes) in [(2, 14 * MIB, 2 * MIB), (2, 18 * MIB, 8 * MIB), (5, 6 * MIB, 4 * MIB)]
    {
        let fixture = Fixture::new(members, member_bytes);
        copies_equal_the_source(&fixture, &fixture.map(Stripe { members, chunk_bytes }, OpenMode::Writer));
    }
}

fn copies_equal_the_source(fixture: &Fixture, map: &Mapping) {
    let source = pattern(17 * MIB as usize + 123, 5);
    for (threads, offset_bytes) in [(1, 0u64), (2, 64), (3, 2 * MIB - 1), (8, 4097)] {
        map.store_bytes(0, &vec![0xEE; map.len_bytes() as usize]);
        let most = AtomicU64::new(0);
        let progress = |done_bytes: u64| {
            most.fetch_max(done_bytes, Ordering::Relaxed);
            ControlFlow::Continue(())
        };
        let threads = NonZeroUsize::new(threads).unwrap();
        // SAFETY: a slice is readable.
        unsafe {
            let from = source.as_ptr();
            copy_parallel(&fixture.mapped, map, offset_bytes, from, source.len(), threads, Some(&progress));
        }
        let mut found = vec![0; map.len_bytes() as usize];
        map.load_bytes(0, &mut found);
        let (first, end) = (offset_bytes as usize, offset_bytes as usize + source.len());
        assert!(found[first..end] == source, "{threads} threads at {offset_bytes}");
        assert!(found[..first].iter().chain(&found[end..]).all(|&byte| byte == 0xEE));
        assert_eq!(most.into_inner(), source.len() as u64);
    }
}

#[test]
fn a_copy_that_is_given_up_begins_nothing_more() {
    let fixture = Fixture::new(1, 20 * MIB);
    let source = pattern(17 * MIB as usize, 5);
    let progress = |_| ControlFlow::Break(());
    let map = fixture.map(Stripe::SINGLE, OpenMode::Writer);
    map.store_bytes(0, &vec![0xEE; map.len_bytes() as usize]);
    // SAFETY: a slice is readable.
    unsafe {
        copy_parallel(&fixture.mapped, &map, 0, source.as_ptr(), source.len(), NonZeroUsize::MIN, Some(&progress))
    };
    let mut found = vec![0; map.len_bytes() as usize];
    map.load_bytes(0, &mut found);
    let piece = 2 * MIB as usize;
    assert!(found[..piece] == source[..piece] && found[piece..].iter().all(|&byte| byte == 0xEE));
}

#[test]
fn prefault_populates_everything_and_changes_nothing() {
    for fixture in Fixture::all(150 * MIB) {
        let map = Arc::new(fixture.single());
        let content = pattern(4096, 3);
        map.store_bytes(70 * MIB, &content);
        let total_bytes = map.len_bytes() - 5;
        let prefault = Prefault::start(&map, 5..map.len_bytes(), Touch::Store, 2).unwrap();
        assert_eq!(prefault.progress().total_bytes, total_bytes);
        prefault.join().unwrap();
        let mut found = vec![0; 4096];
        map.load_bytes(70 * MIB, &mut found);
        assert_eq!(found, content);
        // The kernel may take a page-cached file's pages back at any time, and does when memory is short.
        if fixture.files[0].backing().granularity == Granularity::CacheLine {
            assert!(resident_bytes(&map) >= 150 * MIB, "every page is mapped in this process");
        }
    }
}

/// Bytes of the mapping that this process has page-table entries for.
fn resident_bytes(map: &Mapping) -> u64 {
    let pagemap = File::open("/proc/self/pagemap").unwrap();
    let first = map.base().addr() as u64 / 4096;
    let mut entries = vec![0; map.len_bytes().div_ceil(4096) as usize * 8];
    pagemap.read_exact_at(&mut entries, first * 8).unwrap();
    let (entries, _) = entries.as_chunks::<8>();
    // Bit 63: present in memory (proc_pid_pagemap(5)).
    entries.iter().filter(|entry| u64::from_le_bytes(**entry) >> 63 == 1).count() as u64 * 4096
}

#[test]
fn finished_prefault_has_done_all_and_an_empty_one_nothing() {
    let fixture = Fixture::new(1, MIB);
    let map = Arc::new(fixture.single());
    let empty = Prefault::start(&map, 100..100, Touch::Load, 4).unwrap();
    assert_eq!((empty.progress().done_bytes, empty.progress().total_bytes), (0, 0));
    empty.join().unwrap();
}

#[test]
fn prefault_of_a_truncated_file_reports_it() {
    let fixture = Fixture::new(1, 8 * MIB);
    let map = Arc::new(fixture.single());
    truncate(&fixture.paths[0], MIB);
    let outcome = Prefault::start(&map, 0..8 * MIB, Touch::Store, 2).unwrap().join();
    assert_eq!(outcome.unwrap_err().code(), ErrorCode::Truncated);
}

#[test]
fn dropped_prefault_leaves_no_thread_with_the_mapping() {
    let fixture = Fixture::new(1, 256 * MIB);
    let map = Arc::new(fixture.single());
    drop(Prefault::start(&map, 0..map.len_bytes(), Touch::Load, 2).unwrap());
    assert_eq!(Arc::strong_count(&map), 1);
}

#[test]
fn granularity_and_reason_agree() {
    for fixture in Fixture::all(MIB) {
        let backing = fixture.files[0].backing();
        println!("{}: {}, {}", backing.filesystem, backing.granularity.as_str(), backing.reason);
        assert_eq!(backing.granularity == Granularity::Page, backing.reason.contains("page cache"), "{backing:?}");
        assert_eq!(backing.filesystem == "tmpfs", backing.provenance == Provenance::Emulated, "{backing:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sequence of stores equals the same sequence on a vector.
    #[test]
    fn mapping_behaves_like_a_vector(
        steps in prop::collection::vec((0usize..60_000, 0usize..5_000, any::<u8>(), 0u8..3), 1..30)
    ) {
        for fixture in Fixture::all(65_536) {
            let map = fixture.single();
            let mut model = vec![0u8; 65_536];
            for &(offset, len, seed, how) in &steps {
                let bytes = pattern(len, seed);
                match how {
                    0 => map.store_bytes(offset as u64, &bytes),
                    1 => nt_copy(&map, offset as u64, &bytes),
                    _ => map.store_u64(offset as u64 / 8 * 8, u64::from(seed)),
                }
                match how {
                    0 | 1 => model[offset..offset + len].copy_from_slice(&bytes),
                    _ => model[offset / 8 * 8..][..8].copy_from_slice(&u64::from(seed).to_le_bytes()),
                }
            }
            fixture.settle(&map);
            let mut loaded = vec![0; model.len()];
            map.load_bytes(0, &mut loaded);
            prop_assert!(loaded == model);
            fixture.files[0].pread(0, &mut loaded).unwrap();
            prop_assert!(loaded == model);
        }
    }
}
