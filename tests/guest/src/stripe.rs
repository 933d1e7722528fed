//! One pool over two devices.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use pmem::{Granularity, OpenMode, PartOptions};

use crate::machine::device_of;
use crate::samples::{self, MIB};

const CONTENT_BYTES: u64 = 20 * MIB;

pub(crate) fn two_devices() {
    let path = samples::place("/first", "striped");
    let other = samples::place("/second", "striped");
    assert_ne!(device_of("/first".as_ref()), device_of("/second".as_ref()));
    let options = PartOptions { file_bytes: 16 * MIB, more_files: vec![PathBuf::from(&other)], chunk_bytes: 2 * MIB };
    let pool = samples::create(&path, &options);
    assert_eq!(pool.info().backing.granularity, Granularity::CacheLine);
    samples::put(&pool, "long", CONTENT_BYTES).unwrap();
    let start_bytes = samples::file_offset_bytes(&pool, "long");
    let stripe = pool.info().parts[0].stripe;
    pool.close().unwrap();

    let pool = samples::open(&path, OpenMode::Reader).unwrap();
    samples::check(&pool, "long").unwrap();
    let members = [&path, &other].map(|path| File::open(path).unwrap());
    let (content, mut used_bytes, mut at_bytes) = (samples::content("long", CONTENT_BYTES), [0, 0], 0);
    while at_bytes < CONTENT_BYTES {
        let (member, file_bytes, follow_bytes) = stripe.locate(start_bytes + at_bytes);
        let len_bytes = follow_bytes.min(CONTENT_BYTES - at_bytes);
        let mut found = vec![0; len_bytes as usize];
        members[usize::from(member)].read_exact_at(&mut found, file_bytes).unwrap();
        assert!(found == content[at_bytes as usize..][..found.len()], "member {member}, byte {file_bytes}");
        used_bytes[usize::from(member)] += len_bytes;
        at_bytes += len_bytes;
    }
    println!("{used_bytes:?} bytes on the two devices");
    assert!(used_bytes.iter().all(|&bytes| bytes >= CONTENT_BYTES / 3), "{used_bytes:?}");
}
