//! Private and direct views of a pool's extents on real files.
#![allow(unsafe_code)] // writes through views, and forks

use std::path::Path;

use remanent_pmem::{
    DirectMapping, ErrorCode, Extent, Layout, MIN_FILE_BYTES, Mapped, OpenMode, PartOptions, Pool, PrivateMapping,
    RedoBatch, RegionSpec, Touch,
};

const LAYOUT: Layout = Layout { name: "test", version: 1 };

/// A pool in one file, and one over two.
fn pools(dir: &Path) -> [Pool<Mapped>; 2] {
    let striped = PartOptions { file_bytes: 8 << 20, more_files: vec![dir.join("second")], chunk_bytes: 2 << 20 };
    [("0", PartOptions::single(4 * MIN_FILE_BYTES)), ("1", striped)]
        .map(|(name, options)| Pool::create(Mapped::new(), &dir.join(name), LAYOUT, &options).unwrap())
}

/// Whether all bytes of an extent are so, as the pool has them.
fn has(pool: &Pool<Mapped>, extent: Extent, value: u8) -> bool {
    let mut stored = vec![0; extent.len_bytes as usize];
    pool.set().load_bytes(extent.offset, &mut stored);
    stored.iter().all(|&byte| byte == value)
}

fn shows(view: &DirectMapping, value: u8) -> bool {
    // SAFETY: the view is readable for its length, and nobody stores to it meanwhile.
    unsafe { std::slice::from_raw_parts(view.address(), view.len_bytes()) }.iter().all(|&byte| byte == value)
}

fn fill(view: &DirectMapping, value: u8) {
    // SAFETY: the view is writable for its length, and nobody else looks.
    unsafe { view.address().write_bytes(value, view.len_bytes()) };
}

#[test]
fn stores_to_a_direct_view_go_to_the_pool_until_it_is_detached() {
    type Detach = fn(&DirectMapping) -> remanent_pmem::Result<()>;
    let dir = tempfile::tempdir().unwrap();
    for pool in pools(dir.path()) {
        for (len, detach) in [
            (128, DirectMapping::make_private as Detach),
            (5 << 20, DirectMapping::make_private),
            (128, DirectMapping::copy_out),
            (5 << 20, DirectMapping::copy_out),
        ] {
            let beside = pool.reserve(64).unwrap();
            let space = pool.reserve(len).unwrap();
            let view = pool.set().direct(space.extent(), len, Touch::Store).unwrap();
            fill(&view, 5);
            assert!(has(&pool, space.extent(), 5));
            pool.set().store_bytes(space.extent().offset, &vec![6; len as usize]);
            assert!(shows(&view, 6));
            detach(&view).unwrap();
            assert!(shows(&view, 6));
            fill(&view, 7);
            assert!(shows(&view, 7) && has(&pool, space.extent(), 6));
            drop((beside, view));
        }
    }
}

#[test]
fn views_of_neighbours_are_one_mapping_and_each_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    for (pool, is_striped) in pools(dir.path()).into_iter().zip([false, true]) {
        let lens = [100 << 10, 64 << 10, 200_000, 2 << 20, 1_000_000, 128];
        let spaces: Vec<_> = lens.iter().map(|&len| pool.reserve(len).unwrap()).collect();
        let extents: Vec<Extent> = spaces.iter().map(|space| space.extent()).collect();
        for (&extent, value) in extents.iter().zip(1u8..) {
            pool.set().store_bytes(extent.offset, &vec![value; extent.len_bytes as usize]);
        }
        // In no order of theirs, and one of them twice.
        let wanted: Vec<(Extent, u64)> = [3, 0, 4, 1, 5, 2, 1].map(|number| (extents[number], lens[number])).into();
        let mut views = pool.set().private_each(&wanted).unwrap();
        let bytes = |view: &PrivateMapping| {
            // SAFETY: the view is readable for its length, and nobody stores to it meanwhile.
            unsafe { std::slice::from_raw_parts(view.address(), view.len_bytes()) }.to_vec()
        };
        let value = |extent: Extent| 1 + extents.iter().position(|other| *other == extent).unwrap() as u8;
        for (view, &(extent, len_bytes)) in views.iter().zip(&wanted) {
            assert_eq!(bytes(view), vec![value(extent); len_bytes as usize]);
            // SAFETY: the view is writable for its length, and nobody else looks.
            unsafe { view.address().write_bytes(9, view.len_bytes()) };
            assert!(has(&pool, extent, value(extent)));
        }
        let apart = |a: usize, b: usize| views[b].address().addr().wrapping_sub(views[a].address().addr()) as u64;
        let in_file = |a: usize, b: usize| wanted[b].0.offset.byte() - wanted[a].0.offset.byte();
        if !is_striped {
            // What is there twice begins a run of its own.
            assert_eq!((apart(1, 3), apart(6, 5)), (in_file(1, 3), in_file(6, 5)));
        }
        // From both ends and from the middle; what is left stays.
        while !views.is_empty() {
            views.remove(views.len() / 2);
            assert!(views.iter().all(|view| bytes(view).iter().all(|&byte| byte == 9)));
        }
        assert!(pool.set().private_each(&[]).unwrap().is_empty());
    }
}

/// Waits for a child.
fn ended_well(child: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: the child is this process's own, and `status` is a place for an answer.
    unsafe { libc::waitpid(child, &mut status, 0) == child && status == 0 }
}

#[test]
fn a_forked_child_stores_to_no_pool() {
    let dir = tempfile::tempdir().unwrap();
    for pool in pools(dir.path()) {
        let space = pool.reserve(5 << 20).unwrap();
        let view = pool.set().direct(space.extent(), 5 << 20, Touch::Store).unwrap();
        fill(&view, 5);
        // SAFETY: the child makes system calls and stores to memory, and nothing that a lock of another thread keeps it from.
        let child = unsafe { libc::fork() };
        if child == 0 {
            fill(&view, 9);
            // SAFETY: as above.
            let grandchild = unsafe { libc::fork() };
            let is_right = shows(&view, 9) && (grandchild == 0 || ended_well(grandchild));
            // SAFETY: it ends the child at once.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        assert!(ended_well(child));
        assert!(shows(&view, 5) && has(&pool, space.extent(), 5));
        fill(&view, 6);
        assert!(has(&pool, space.extent(), 6), "the parent still does");
    }
}

#[test]
fn space_is_kept_as_long_as_it_is_held_and_published_once() {
    let dir = tempfile::tempdir().unwrap();
    let [pool, _] = pools(dir.path());
    let free = || pool.info().free_bytes;
    let before = free();
    let space = pool.reserve(1 << 20).unwrap();
    let hold = space.hold();
    drop(space);
    assert!(free() < before);
    drop(hold);
    assert_eq!(free(), before);

    let space = pool.reserve(1 << 20).unwrap();
    let hold = space.hold();
    let mut batch = RedoBatch::new();
    batch.put("a", RegionSpec { add: vec![space], ..RegionSpec::default() });
    pool.commit(batch).unwrap();
    let taken = free();
    drop(hold);
    assert_eq!(free(), taken, "the catalogue has it");
    assert_eq!(pool.reserve(1 << 40).unwrap_err().code(), ErrorCode::PoolFull);
}

#[test]
fn stores_to_a_private_view_stay_private_on_any_placement() {
    let dir = tempfile::tempdir().unwrap();
    for (index, pool) in pools(dir.path()).into_iter().enumerate() {
        let path = dir.path().join(index.to_string());
        for len in [100, 5 << 20] {
            let small = pool.reserve(100).unwrap();
            let reservation = pool.reserve(len).unwrap();
            let extent = reservation.extent();
            pool.set().store_bytes(extent.offset, &vec![7; len as usize]);
            pool.set().persist(extent.offset, len).unwrap();
            let mut batch = RedoBatch::new();
            batch.put("a", RegionSpec { add: vec![reservation], ..RegionSpec::default() });
            pool.commit(batch).unwrap();
            drop(small);
            for room in [0, 1, 80, 4096, 5000] {
                let view = pool.set().private_after(extent, len, room).unwrap();
                assert_eq!(view.len_bytes() as u64, len);
                // Huge pages need both, whatever lies before the data.
                let is_huge = extent.offset.byte().is_multiple_of(2 << 20);
                assert!(!is_huge || view.address().addr().is_multiple_of(2 << 20));
                assert!(is_huge || len < 2 << 20, "no extent of this test is aligned");
                // SAFETY: the view is readable and writable for its length, and nobody else has it.
                let bytes = unsafe { std::slice::from_raw_parts_mut(view.address(), view.len_bytes()) };
                assert!(bytes.iter().all(|&byte| byte == 7));
                // SAFETY: the room before it is writable too.
                unsafe { view.address().wrapping_sub(room).write_bytes(8, room) };
                assert!(bytes.iter().all(|&byte| byte == 7));
                bytes.fill(9);
                let mut stored = vec![0; len as usize];
                pool.region("a").unwrap().load_bytes(0, 0, &mut stored);
                assert!(stored.iter().all(|&byte| byte == 7));
            }
        }
        pool.close().unwrap();
        Pool::open(Mapped::new(), &path, Some(LAYOUT), OpenMode::Reader).unwrap();
    }
}
