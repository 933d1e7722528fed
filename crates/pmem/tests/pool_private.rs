//! Private views of a pool's extents on real files.
#![allow(unsafe_code)] // writes through private views

use remanent_pmem::{Layout, MIN_FILE_BYTES, Mapped, OpenMode, PartOptions, Pool, RedoBatch, RegionSpec};

const LAYOUT: Layout = Layout { name: "test", version: 1 };

#[test]
fn stores_to_a_private_view_stay_private_on_any_placement() {
    let dir = tempfile::tempdir().unwrap();
    let striped =
        PartOptions { file_bytes: 8 << 20, more_files: vec![dir.path().join("second")], chunk_bytes: 2 << 20 };
    for (index, options) in [PartOptions::single(4 * MIN_FILE_BYTES), striped].into_iter().enumerate() {
        let path = dir.path().join(index.to_string());
        let pool = Pool::create(Mapped::new(), &path, LAYOUT, &options).unwrap();
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
