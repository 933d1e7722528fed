//! Another medium with the write speed of a device that is not here.
//!
//! Each file is one device. Flushes and non-temporal copies are really executed; then the thread waits as long as the
//! device would have it wait: at a write for room in the device's queue, at a fence for what must be safe. So a stripe
//! is faster than one device only for who writes to several members at a time. Loads are not slowed down, and nothing is
//! said about durability beyond what the medium below gives; every figure measured on it is [`Provenance::Modelled`].

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::durability::{Backing, Provenance};
use crate::error::{Result, Uuid};
use crate::media::{LockKind, Media, MediaFile, MediaMap, OpenMode, Stripe, Touch};
use crate::profile::{DeviceClock, DeviceProfile};

/// A medium whose files are modelled devices.
#[derive(Clone)]
pub struct Modelled<M: Media> {
    inner: M,
    profile: &'static DeviceProfile,
    start: Instant,
    devices: Arc<Mutex<Vec<Arc<Mutex<DeviceClock>>>>>,
}

/// A file that is a device.
pub struct ModelledFile<F> {
    inner: Arc<F>,
    backing: Backing,
    profile_name: &'static str,
    device: Arc<Mutex<DeviceClock>>,
}

/// A mapping of such files.
pub struct ModelledMap<P> {
    inner: P,
    stripe: Stripe,
    devices: Vec<Arc<Mutex<DeviceClock>>>,
    start: Instant,
}

impl<M: Media> Modelled<M> {
    /// Gives the files of a medium the speed of a device.
    pub fn new(inner: M, profile: &'static DeviceProfile) -> Modelled<M> {
        Modelled { inner, profile, start: Instant::now(), devices: Arc::default() }
    }

    fn device_of(&self, file: M::File) -> ModelledFile<M::File> {
        let device = Arc::new(Mutex::new(DeviceClock::new(self.profile)));
        self.devices.lock().expect("arithmetic does not panic").push(device.clone());
        let backing = modelled_backing(file.backing(), self.profile.name);
        ModelledFile { inner: Arc::new(file), backing, device, profile_name: self.profile.name }
    }
}

/// What a file promises, at the speed of another device.
fn modelled_backing(inner: &Backing, profile_name: &str) -> Backing {
    let reason = format!("{}; speed modelled after {profile_name}", inner.reason);
    Backing { provenance: Provenance::Modelled, reason, ..inner.clone() }
}

fn now_ns(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}

/// The wait of a modelled device; too short for the scheduler.
fn wait_until(start: Instant, end_ns: f64) {
    while now_ns(start) < end_ns {
        std::hint::spin_loop();
    }
}

/// Has the devices take a write that begins at `now_ns`. Returns until when the writer stalls.
fn charge(
    devices: &[Arc<Mutex<DeviceClock>>],
    stripe: Stripe,
    mut now_ns: f64,
    mut offset_bytes: u64,
    mut len_bytes: u64,
    past_the_cache: bool,
) -> f64 {
    while len_bytes > 0 {
        let (member, at, room) = stripe.locate(offset_bytes);
        let n = room.min(len_bytes);
        let mut device = devices[usize::from(member)].lock().expect("arithmetic does not panic");
        now_ns = device.write(now_ns, at, n, past_the_cache).stalled_ns;
        (offset_bytes, len_bytes) = (offset_bytes + n, len_bytes - n);
    }
    now_ns
}

impl<M: Media> Media for Modelled<M> {
    type File = ModelledFile<M::File>;
    type Map = ModelledMap<M::Map>;

    fn create(&self, path: &Path, len_bytes: u64) -> Result<Self::File> {
        self.inner.create(path, len_bytes).map(|file| self.device_of(file))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<Self::File> {
        self.inner.open(path, mode).map(|file| self.device_of(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.inner.sync_dir(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }

    fn names(&self, path: &Path, file: &Self::File) -> Result<bool> {
        self.inner.names(path, &file.inner)
    }

    fn is_device(&self, path: &Path) -> bool {
        self.inner.is_device(path)
    }

    fn map(&self, files: &[Arc<Self::File>], stripe: Stripe, mode: OpenMode) -> Result<Self::Map> {
        let inner: Vec<Arc<M::File>> = files.iter().map(|file| file.inner.clone()).collect();
        Ok(ModelledMap {
            inner: self.inner.map(&inner, stripe, mode)?,
            stripe,
            devices: files.iter().map(|file| file.device.clone()).collect(),
            start: self.start,
        })
    }

    /// Waits until every device would be done, which is right for one thread and pessimistic for several.
    fn fence(&self) {
        self.inner.fence();
        let now = now_ns(self.start);
        let devices = self.devices.lock().expect("arithmetic does not panic");
        let ends = devices.iter().map(|device| device.lock().expect("arithmetic does not panic").fence(now));
        let end = ends.fold(now, f64::max);
        drop(devices);
        wait_until(self.start, end);
    }

    fn new_uuid(&self) -> Uuid {
        self.inner.new_uuid()
    }

    fn process_id(&self) -> u32 {
        self.inner.process_id()
    }

    fn unix_time_s(&self) -> u64 {
        self.inner.unix_time_s()
    }
}

impl<F: MediaFile> MediaFile for ModelledFile<F> {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn renamed(&mut self, path: &Path) {
        Arc::get_mut(&mut self.inner).expect("a file is renamed before it is mapped").renamed(path);
        self.backing = modelled_backing(self.inner.backing(), self.profile_name);
    }

    fn len_bytes(&self) -> Result<u64> {
        self.inner.len_bytes()
    }

    fn backing(&self) -> &Backing {
        &self.backing
    }

    fn pread(&self, offset_bytes: u64, into: &mut [u8]) -> Result<()> {
        self.inner.pread(offset_bytes, into)
    }

    fn pwrite(&self, offset_bytes: u64, from: &[u8]) -> Result<()> {
        self.inner.pwrite(offset_bytes, from)
    }

    fn fsync(&self) -> Result<()> {
        self.inner.fsync()
    }

    fn try_lock(&self, kind: LockKind, range: Range<u64>) -> Result<bool> {
        self.inner.try_lock(kind, range)
    }

    fn unlock(&self, range: Range<u64>) -> Result<()> {
        self.inner.unlock(range)
    }

    fn find_lock(&self, range: Range<u64>) -> Result<Option<u64>> {
        self.inner.find_lock(range)
    }
}

impl<P: MediaMap> ModelledMap<P> {
    /// Waits until the devices have room again after a write that began at `begin_ns`.
    fn stall(&self, begin_ns: f64, offset_bytes: u64, len_bytes: u64, past_the_cache: bool) {
        let end = charge(&self.devices, self.stripe, begin_ns, offset_bytes, len_bytes, past_the_cache);
        wait_until(self.start, end);
    }
}

impl<P: MediaMap> MediaMap for ModelledMap<P> {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn stripe(&self) -> Stripe {
        self.stripe
    }

    fn base(&self) -> *mut u8 {
        self.inner.base()
    }

    fn load_u64(&self, offset_bytes: u64) -> u64 {
        self.inner.load_u64(offset_bytes)
    }

    fn load_bytes(&self, offset_bytes: u64, into: &mut [u8]) {
        self.inner.load_bytes(offset_bytes, into);
    }

    fn store_u64(&self, offset_bytes: u64, value: u64) {
        self.inner.store_u64(offset_bytes, value);
    }

    fn cas_u64(&self, offset_bytes: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.inner.cas_u64(offset_bytes, current, new)
    }

    fn store_bytes(&self, offset_bytes: u64, from: &[u8]) {
        self.inner.store_bytes(offset_bytes, from);
    }

    unsafe fn nt_copy(&self, offset_bytes: u64, from: *const u8, len_bytes: usize) {
        let begin_ns = now_ns(self.start);
        // SAFETY: handed on to the caller.
        unsafe { self.inner.nt_copy(offset_bytes, from, len_bytes) };
        self.stall(begin_ns, offset_bytes, len_bytes as u64, true);
    }

    fn flush(&self, offset_bytes: u64, len_bytes: u64) {
        let begin_ns = now_ns(self.start);
        self.inner.flush(offset_bytes, len_bytes);
        // Whole lines leave the cache.
        let start = offset_bytes & !63;
        let end = (offset_bytes + len_bytes).next_multiple_of(64).min(self.inner.len_bytes());
        self.stall(begin_ns, start, end - start, false);
    }

    fn sync_range(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.inner.sync_range(offset_bytes, len_bytes)
    }

    fn guard(&self, offset_bytes: u64, len_bytes: u64, touch: Touch) -> Result<()> {
        self.inner.guard(offset_bytes, len_bytes, touch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::creation::PartOptions;
    use crate::heap::Heap;
    use crate::pool::{Layout, Pool};

    #[test]
    fn a_pool_works_on_a_modelled_device_and_says_so() {
        let media = Modelled::new(Heap::new(), DeviceProfile::named("optane-100-dimm").unwrap());
        let layout = Layout { name: "modelled", version: 1 };
        let options = PartOptions::single(crate::MIN_FILE_BYTES);
        let pool = Pool::create(media, Path::new("/p"), layout, &options).unwrap();
        let backing = pool.info().backing;
        assert_eq!(backing.provenance, Provenance::Modelled);
        assert!(backing.reason.contains("optane-100-dimm"), "{}", backing.reason);
        let mut batch = crate::RedoBatch::new();
        batch.put("a", crate::RegionSpec { add: vec![pool.reserve(64).unwrap()], ..Default::default() });
        assert_eq!(pool.commit(batch).unwrap().generation, 2);
    }

    /// How long a writer needs for 64 MiB from the first chunk on, a step here, a step there.
    fn write_ns(members: u16, steps: impl Iterator<Item = Range<u64>>) -> f64 {
        let profile = DeviceProfile::named("optane-100-dimm").unwrap();
        let devices: Vec<_> = (0..members).map(|_| Arc::new(Mutex::new(DeviceClock::new(profile)))).collect();
        let stripe = Stripe { members, chunk_bytes: 2 << 20 };
        steps.fold(0.0, |now, step| charge(&devices, stripe, now, step.start, step.end - step.start, true))
    }

    #[test]
    fn each_member_has_its_own_bandwidth_for_who_writes_to_all_at_a_time() {
        const STEP: u64 = 16 << 10;
        let start = Stripe::HEAD_BYTES;
        let straight = || (0..(64 << 20) / STEP).map(|i| start + i * STEP..start + (i + 1) * STEP);
        let in_turn = || {
            let pairs = (0..16u64).flat_map(|row| (0..(2 << 20) / STEP).map(move |i| row * (4 << 20) + i * STEP));
            pairs.flat_map(|at| [at, at + (2 << 20)]).map(|at| start + at..start + at + STEP)
        };
        let one = write_ns(1, straight());
        assert!((one * 2.2 / f64::from(64 << 20) - 1.0).abs() < 0.01, "{one} ns");
        let (two_in_turn, two_straight) = (write_ns(2, in_turn()), write_ns(2, straight()));
        assert!((one / two_in_turn - 2.0).abs() < 0.02, "{one} against {two_in_turn}");
        assert!((one / two_straight - 1.0).abs() < 0.02, "chunk after chunk: {one} against {two_straight}");
    }
}
