//! Pools on a whole device-DAX device.

use std::path::PathBuf;

use pmem::{Durability, ErrorCode, Granularity, Mapped, Media, MediaFile, OpenMode, PartOptions, Pool, Stripe};

use crate::machine;
use crate::samples::{self, LAYOUT, MIB};

fn device() -> (PathBuf, u64) {
    let path = machine::device_dax().expect("the machine has a device-DAX device");
    let device_bytes = Mapped::new().open(&path, OpenMode::Reader).unwrap().len_bytes().unwrap();
    (path, device_bytes)
}

fn refusal(path: &std::path::Path, file_bytes: u64) -> ErrorCode {
    match Pool::create(Mapped::new(), path, LAYOUT, &PartOptions::single(file_bytes)) {
        Ok(_) => panic!("a pool of {file_bytes} bytes was made on {}", path.display()),
        Err(error) => {
            println!("{file_bytes} bytes: {error}");
            error.code()
        }
    }
}

pub(crate) fn whole_device() {
    let (path, device_bytes) = device();
    let pool = samples::create(&path, &PartOptions::single(device_bytes));
    let info = pool.info();
    assert_eq!(
        (info.backing.granularity, info.backing.durability),
        (Granularity::CacheLine, Durability::PowerFailSafe)
    );
    assert_eq!((info.backing.filesystem.as_str(), info.total_bytes), ("device-dax", device_bytes));
    for name in ["a", "b", "c"] {
        samples::put(&pool, name, 3 * MIB + 5).unwrap();
    }
    assert_eq!(samples::open(&path, OpenMode::Writer).err().map(|e| e.code()), Some(ErrorCode::PoolBusy));
    let beside = pool.grow(None, &PartOptions::single(device_bytes));
    assert_eq!(beside.unwrap_err().code(), ErrorCode::Unsupported, "no file is made among the devices");
    pool.close().unwrap();
    for mode in [OpenMode::Reader, OpenMode::Writer] {
        let pool = samples::open(&path, mode).unwrap();
        ["a", "b", "c"].iter().for_each(|name| samples::check(&pool, name).unwrap());
        assert!(path.exists());
    }
}

/// On the device that `whole_device` has left a pool on.
pub(crate) fn refusals() {
    let (path, device_bytes) = device();
    for file_bytes in [0, 4096, device_bytes - 4096, device_bytes - 100, device_bytes + 4096, 2 * device_bytes] {
        assert_eq!(refusal(&path, file_bytes), ErrorCode::BadSize);
    }
    assert_eq!(refusal(&path, device_bytes), ErrorCode::AlreadyExists);
    ["a", "b", "c"]
        .iter()
        .for_each(|name| samples::check(&samples::open(&path, OpenMode::Reader).unwrap(), name).unwrap());

    // A creation that was cut short leaves no pool, and a device that is not blank.
    let head = Mapped::new().open(&path, OpenMode::Writer).unwrap();
    head.pwrite(0, &vec![0; Stripe::HEAD_BYTES as usize]).unwrap();
    head.pwrite(Stripe::HEAD_BYTES - 1, &[1]).unwrap();
    assert_eq!(samples::open(&path, OpenMode::Writer).err().map(|e| e.code()), Some(ErrorCode::NotAPool));
    assert_eq!(refusal(&path, device_bytes), ErrorCode::AlreadyExists);
    head.pwrite(Stripe::HEAD_BYTES - 1, &[0]).unwrap();
    drop(head);
    let pool = samples::create(&path, &PartOptions::single(device_bytes));
    assert_eq!(pool.info().names, 0, "what an earlier pool has left does not come back");
}
