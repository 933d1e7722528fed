//! Pools on a whole device-DAX device.

use std::path::{Path, PathBuf};

use pmem::{Durability, Error, ErrorCode, Granularity, Mapped, Media, MediaFile, OpenMode, PartOptions, Pool, Stripe};

use crate::machine;
use crate::samples::{self, LAYOUT, MIB, Witness};

fn device() -> (PathBuf, u64) {
    let path = machine::device_dax().expect("the machine has a device-DAX device");
    let device_bytes = Mapped::new().open(&path, OpenMode::Reader).unwrap().len_bytes().unwrap();
    (path, device_bytes)
}

fn create(path: &Path, file_bytes: u64) -> Result<Pool<Mapped>, Error> {
    Pool::create(Mapped::new(), path, LAYOUT, &PartOptions::single(file_bytes))
}

/// No byte of the device changes; there is no pool on it, and so no reader that could look.
fn refused_without_a_pool<T>(path: &Path, action: impl FnOnce() -> Result<T, Error>) -> ErrorCode {
    let before = samples::sums(path);
    let error = action().err().expect("this must be refused");
    assert!(samples::sums(path) == before, "{error}: the device was changed");
    error.code()
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
    let witness = Witness::new(&[&path], &["a", "b", "c"]);
    assert_eq!(witness.refuses(|| samples::open(&path, OpenMode::Writer)).code(), ErrorCode::PoolBusy);
    let beside = witness.refuses(|| pool.grow(None, &PartOptions::single(device_bytes)));
    assert_eq!(beside.code(), ErrorCode::Unsupported, "no file is made among the devices");
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
    let witness = Witness::new(&[&path], &["a", "b", "c"]);
    for file_bytes in [0, 4096, device_bytes - 4096, device_bytes - 100, device_bytes + 4096, 2 * device_bytes] {
        assert_eq!(witness.refuses(|| create(&path, file_bytes)).code(), ErrorCode::BadSize, "{file_bytes} bytes");
    }
    assert_eq!(witness.refuses(|| create(&path, device_bytes)).code(), ErrorCode::AlreadyExists);
    drop(witness);

    // A creation that was cut short leaves no pool, and a device that is not blank.
    let head = Mapped::new().open(&path, OpenMode::Writer).unwrap();
    head.pwrite(0, &vec![0; Stripe::HEAD_BYTES as usize]).unwrap();
    head.pwrite(Stripe::HEAD_BYTES - 1, &[1]).unwrap();
    let open = || samples::open(&path, OpenMode::Writer);
    assert_eq!(refused_without_a_pool(&path, open), ErrorCode::NotAPool);
    assert_eq!(refused_without_a_pool(&path, || create(&path, device_bytes)), ErrorCode::AlreadyExists);
    head.pwrite(Stripe::HEAD_BYTES - 1, &[0]).unwrap();
    drop(head);
    let pool = samples::create(&path, &PartOptions::single(device_bytes));
    assert_eq!(pool.info().names, 0, "what an earlier pool has left does not come back");
}
