//! Open files and device-DAX devices.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{self as sys, FallocateFlags, FileType, Mode, OFlags, Stat, StatVfsMountFlags};
use rustix::io::Errno;

use super::lock;
use super::map::{self, Window};
use super::refusal::Refusal;
use crate::cpu;
use crate::detect::{Detector, DeviceDax, Subject, SubjectKind};
use crate::durability::Backing;
use crate::error::{Error, Result};
use crate::media::{LockKind, MediaFile, OpenMode, Touch};

/// An open file or device; see [`crate::Mapped`].
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    pub(super) descriptor: OwnedFd,
    /// What locks belong to, from the first one on.
    locks: OnceLock<OwnedFd>,
    pub(super) is_writable: bool,
    /// Whether mappings are made with MAP_SYNC, as the backing relies on.
    pub(super) map_sync: bool,
    pub(super) device: Option<DeviceDax>,
    backing: Backing,
    /// What the backing was found out from, besides the name.
    kind: SubjectKind,
    number: (u32, u32),
    detector: Arc<Detector>,
}

impl MappedFile {
    /// Opens what has this name, after a look at what it is: a device would notice being opened, a FIFO would block.
    pub(super) fn open(path: &Path, mode: OpenMode, detector: &Arc<Detector>) -> Result<MappedFile> {
        let refusal = Refusal { operation: "opening", path, mode };
        let stat = sys::lstat(path).map_err(|e| refusal.of_open(e))?;
        check_kind(path, &stat, detector)?;
        let access = if mode == OpenMode::Writer { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let descriptor = sys::open(path, flags, Mode::empty()).map_err(|e| refusal.of_open(e))?;
        MappedFile::adopt(path, descriptor, mode, detector)
    }

    /// Finds out what was opened. The name may have changed its meaning since it was looked at, so all is asked again.
    pub(super) fn adopt(
        path: &Path,
        descriptor: OwnedFd,
        mode: OpenMode,
        detector: &Arc<Detector>,
    ) -> Result<MappedFile> {
        let stat = sys::fstat(&descriptor).map_err(|e| Error::io("examining", path, e))?;
        check_kind(path, &stat, detector)?;
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        let number = if is_device { stat.st_rdev } else { stat.st_dev };
        let number = (sys::major(number), sys::minor(number));
        let device = if is_device { detector.device_dax(number) } else { None };
        let kind = if is_device {
            SubjectKind::DeviceDax
        } else {
            let found = sys::fstatfs(&descriptor).map_err(|e| Error::io("examining the file system", path, e))?;
            SubjectKind::File { magic: found.f_type as u64 }
        };
        let trial_bytes = device.map_or(rustix::param::page_size() as u64, |d| d.alignment_bytes);
        let map_sync = map::grants_map_sync(&descriptor, trial_bytes);
        let backing = backing(detector, path, number, kind, map_sync);
        let is_writable = mode == OpenMode::Writer;
        let (path, locks, detector) = (path.to_owned(), OnceLock::new(), detector.clone());
        Ok(MappedFile { path, descriptor, locks, is_writable, map_sync, device, backing, kind, number, detector })
    }

    /// Opens the same file once more.
    pub(super) fn open_again(&self, access: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        sys::open(format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()), flags, Mode::empty())
    }

    /// The open file that locks belong to. It is one of its own, because a mapping holds on to the one that it was made
    /// from: a forked child could not let go of a lock there. Where it cannot be had, without /proc, it is the same.
    pub(super) fn lock_file(&self) -> Result<&OwnedFd> {
        if let Some(locks) = self.locks.get() {
            return Ok(locks);
        }
        let access = if self.is_writable { OFlags::RDWR } else { OFlags::RDONLY };
        let locks = match self.open_again(access) {
            Ok(own) => own,
            Err(_) => rustix::io::fcntl_dupfd_cloexec(&self.descriptor, 0)
                .map_err(|e| Error::io("opening for locks", &self.path, e))?,
        };
        Ok(self.locks.get_or_init(|| locks))
    }

    /// Whether the name means this open file.
    pub(super) fn has_name(&self, path: &Path) -> Result<bool> {
        let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
        let own = sys::fstat(&self.descriptor).map_err(|e| Error::io("examining", &self.path, e))?;
        match sys::lstat(path) {
            Ok(named) => Ok(identity(named) == identity(own)),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(Error::io("examining", path, e)),
        }
    }

    /// Whether nothing can be written to the file system that it is on.
    pub(super) fn is_on_read_only_mount(&self) -> bool {
        sys::fstatvfs(&self.descriptor).is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY))
    }

    /// Room left on the file system, or `None` where it does not say.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let room = sys::fstatvfs(&self.descriptor).ok()?;
        (room.f_blocks > 0).then(|| room.f_bavail.saturating_mul(room.f_frsize))
    }

    /// Gives blocks to any hole in a range.
    pub(super) fn allocate_again(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        match sys::fallocate(&self.descriptor, FallocateFlags::KEEP_SIZE, offset_bytes, len_bytes) {
            // Without fallocate the file was written in full when it was made.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(Errno::NOSPC | Errno::DQUOT) => {
                Err(Error::FileSystemFull { path: self.path.clone(), requested_bytes: len_bytes })
            }
            Err(e) => Err(Error::io("allocating the blocks", &self.path, e)),
        }
    }

    /// A short mapping of a device, which has no read and write calls.
    fn window(&self, device: DeviceDax, offset_bytes: u64, len_bytes: u64, touch: Touch) -> Result<Window> {
        let end_bytes = offset_bytes.checked_add(len_bytes).filter(|&end| end <= device.size_bytes);
        let Some(expected_bytes) = end_bytes else {
            let expected_bytes = offset_bytes.saturating_add(len_bytes);
            return Err(Error::Truncated { path: self.path.clone(), got_bytes: device.size_bytes, expected_bytes });
        };
        let start_bytes = offset_bytes / device.alignment_bytes * device.alignment_bytes;
        let end_bytes = expected_bytes.next_multiple_of(device.alignment_bytes).min(device.size_bytes);
        Window::new(self, start_bytes, end_bytes - start_bytes, touch)
    }
}

impl MediaFile for MappedFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn renamed(&mut self, path: &Path) {
        // What the administrator asserts is asserted of names.
        self.backing = backing(&self.detector, path, self.number, self.kind, self.map_sync);
        self.path = path.to_owned();
    }

    fn len_bytes(&self) -> Result<u64> {
        match self.device {
            Some(device) => Ok(device.size_bytes),
            None => sys::fstat(&self.descriptor)
                .map(|stat| stat.st_size as u64)
                .map_err(|e| Error::io("examining", &self.path, e)),
        }
    }

    fn backing(&self) -> &Backing {
        &self.backing
    }

    fn pread(&self, offset_bytes: u64, into: &mut [u8]) -> Result<()> {
        if let Some(device) = self.device {
            let window = self.window(device, offset_bytes, into.len() as u64, Touch::Load)?;
            window.read(offset_bytes, into);
            return Ok(());
        }
        let expected_bytes = offset_bytes.saturating_add(into.len() as u64);
        let mut done = 0;
        while done < into.len() {
            let at_bytes = offset_bytes + done as u64;
            match rustix::io::pread(&self.descriptor, &mut into[done..], at_bytes) {
                Ok(0) => {
                    let got_bytes = self.len_bytes()?;
                    return Err(Error::Truncated { path: self.path.clone(), got_bytes, expected_bytes });
                }
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(Errno::IO | Errno::HWPOISON) => {
                    return Err(Error::BadBlock { path: self.path.clone(), offset_bytes: at_bytes });
                }
                Err(e) => return Err(Error::io("reading", &self.path, e)),
            }
        }
        Ok(())
    }

    fn pwrite(&self, offset_bytes: u64, from: &[u8]) -> Result<()> {
        if !self.is_writable {
            return Err(Error::NotWritable { path: self.path.clone() });
        }
        if let Some(device) = self.device {
            let window = self.window(device, offset_bytes, from.len() as u64, Touch::Store)?;
            window.write(offset_bytes, from);
            cpu::fence();
            return Ok(());
        }
        let mut done = 0;
        while done < from.len() {
            match rustix::io::pwrite(&self.descriptor, &from[done..], offset_bytes + done as u64) {
                Ok(0) => return Err(Error::io("writing", &self.path, std::io::ErrorKind::WriteZero)),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(Errno::NOSPC | Errno::DQUOT) => {
                    let requested_bytes = (from.len() - done) as u64;
                    return Err(Error::FileSystemFull { path: self.path.clone(), requested_bytes });
                }
                Err(e) => return Err(Error::io("writing", &self.path, e)),
            }
        }
        Ok(())
    }

    fn fsync(&self) -> Result<()> {
        if self.device.is_some() {
            // A device has no metadata, and pwrite fences what it stores.
            return Ok(());
        }
        sys::fsync(&self.descriptor).map_err(|e| Error::io("syncing", &self.path, e))
    }

    fn try_lock(&self, kind: LockKind, range: Range<u64>) -> Result<bool> {
        lock::try_lock(self.lock_file()?, kind, range).map_err(|e| Error::io("locking", &self.path, e))
    }

    fn unlock(&self, range: Range<u64>) -> Result<()> {
        lock::unlock(self.lock_file()?, range).map_err(|e| Error::io("unlocking", &self.path, e))
    }

    fn find_lock(&self, range: Range<u64>) -> Result<Option<u64>> {
        lock::find_lock(self.lock_file()?, range).map_err(|e| Error::io("looking for locks", &self.path, e))
    }
}

/// What is promised of something with this name.
fn backing(detector: &Detector, path: &Path, device: (u32, u32), kind: SubjectKind, map_sync: bool) -> Backing {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    detector.backing(&Subject { path: &absolute, device, kind, map_sync })
}

/// Whether the name is a device-DAX device; anything that cannot be examined is not.
pub(super) fn is_device_dax(path: &Path, detector: &Detector) -> bool {
    sys::lstat(path).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && detector.device_dax((sys::major(stat.st_rdev), sys::minor(stat.st_rdev))).is_some()
    })
}

/// Accepts regular files and device-DAX devices that not everybody may write to.
fn check_kind(path: &Path, stat: &Stat, detector: &Detector) -> Result<()> {
    let device = (sys::major(stat.st_rdev), sys::minor(stat.st_rdev));
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::CharacterDevice if detector.device_dax(device).is_some() => Ok(()),
        FileType::Symlink => Err(Error::Symlink { path: path.to_owned() }),
        FileType::Directory => Err(Error::IsDirectory { path: path.to_owned() }),
        _ => Err(Error::NotAFile { path: path.to_owned() }),
    }?;
    if stat.st_mode & 0o002 != 0 {
        return Err(Error::WorldWritable { path: path.to_owned(), mode: stat.st_mode & 0o7777 });
    }
    Ok(())
}
