//! A device-DAX device, on machines that have one to spare: its content is lost.
//!
//! `REMANENT_TEST_DEVICE_DAX` names it, for example `/dev/dax1.0`.

use std::path::PathBuf;
use std::sync::Arc;

use remanent_pmem::{Error, ErrorCode, Granularity, Mapped, Media, MediaFile, MediaMap, OpenMode, Stripe, Touch};

use crate::Test;

const VARIABLE: &str = "REMANENT_TEST_DEVICE_DAX";

pub(crate) const TESTS: &[Test] = &[("device_is_used_whole_and_like_a_file", device_is_used_whole_and_like_a_file)];

/// Why there is no device to look at.
pub(crate) fn missing() -> Option<String> {
    std::env::var_os(VARIABLE).is_none().then(|| format!("{VARIABLE} names no device-DAX device"))
}

fn device_is_used_whole_and_like_a_file() {
    let path = PathBuf::from(std::env::var_os(VARIABLE).expect("a device, or the test is not run"));
    let mapped = Mapped::new();
    let device = mapped.open(&path, OpenMode::Writer).unwrap();
    let device_bytes = device.len_bytes().unwrap();
    assert_eq!(device.backing().filesystem, "device-dax");
    assert_ne!(device.backing().granularity, Granularity::Page);
    println!("{device_bytes} bytes: {}", device.backing().reason);

    device.pwrite(0, &vec![0; Stripe::HEAD_BYTES as usize]).unwrap();
    assert_eq!(mapped.create(&path, 4096).unwrap_err().code(), ErrorCode::BadSize);
    for len_bytes in [0, device_bytes] {
        assert_eq!(mapped.create(&path, len_bytes).unwrap().len_bytes().unwrap(), device_bytes);
    }
    assert_eq!(device.pread(device_bytes - 7, &mut [0; 8]).unwrap_err().code(), ErrorCode::Truncated);

    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(device);
    let file = Arc::new(mapped.create(&dir.path().join("pool"), 4 << 20).unwrap());
    let mixed = mapped.map(&[device.clone(), file], Stripe { members: 2, chunk_bytes: 2 << 20 }, OpenMode::Writer);
    assert_eq!(mixed.unwrap_err().code(), ErrorCode::Unsupported);

    // A chunk that is no multiple of the device's alignment could not be mapped where it belongs.
    let small = Stripe { members: 2, chunk_bytes: 4096 };
    match mapped.map(&[device.clone(), device.clone()], small, OpenMode::Writer) {
        Err(Error::Misaligned { path: refused, got_bytes, .. }) => {
            assert_eq!((refused, got_bytes), (path.clone(), small.chunk_bytes))
        }
        other => panic!("{other:?}"),
    }

    let map = mapped.map(&[device], Stripe::SINGLE, OpenMode::Writer).unwrap();
    assert_eq!(map.len_bytes(), device_bytes);
    map.guard(0, device_bytes, Touch::Store).unwrap();
    let payload: Vec<u8> = (0..100_003u32).map(|i| (i * 7) as u8).collect();
    // SAFETY: a vector is readable.
    unsafe { map.nt_copy(4097, payload.as_ptr(), payload.len()) };
    map.store_u64(8, 42);
    map.flush(8, 8);
    mapped.fence();
    map.sync_range(0, device_bytes).unwrap();

    let reader = mapped.open(&path, OpenMode::Reader).unwrap();
    let mut found = vec![0; payload.len()];
    reader.pread(4097, &mut found).unwrap();
    assert!(found == payload);
    assert_eq!(reader.pwrite(0, b"no").unwrap_err().code(), ErrorCode::NotWritable);
    assert_eq!(mapped.create(&path, 0).unwrap_err().code(), ErrorCode::AlreadyExists, "its head is not zero");
}
