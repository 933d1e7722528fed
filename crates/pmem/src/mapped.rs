//! Real files and devices, mapped: the medium that products run on.
//!
//! | module | what it answers for |
//! | --- | --- |
//! | `direct` | views to which stores go straight, and how they stop |
//! | `file` | opening without surprises, reading and writing beside the mapping |
//! | `fork` | what a forked child does with inherited locks |
//! | `lock` | OFD byte-range locks |
//! | `map` | address ranges, loads and stores, flush, sync, guard |
//! | `probe` | what a path and this kernel offer, before anything is kept there |
//! | `private` | copy-on-write views |
//! | `refusal` | which typed error an errno becomes |
//! | `reservation` | address space, and how files are mapped into it |
//! | `words` | copies that race with nobody |
//!
//! A file is never sparse: its blocks are allocated when it is made, so that no store can meet a full disk. It is never
//! opened through a symbolic link, and nothing that exists is replaced. Whether a mapping is persistent memory is
//! asked of the kernel (MAP_SYNC, mmap(2)) and of sysfs, never assumed.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self as sys, AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::cpu;
use crate::detect::Detector;
use crate::error::{Error, Result, Uuid};
use crate::media::{LockKind, Media, MediaFile, OpenMode, Stripe};
use crate::pins::WRITER_AT;
use crate::process::process_id;

mod changed;
mod direct;
mod file;
mod fork;
mod lock;
mod map;
mod private;
mod probe;
mod refusal;
mod reservation;
mod words;

pub use changed::{PageScan, changed_pages};
pub use direct::DirectMapping;
pub use file::MappedFile;
pub use fork::forks;
pub use map::Mapping;
pub use private::PrivateMapping;
pub use probe::{KernelFeatures, Probe};

use refusal::Refusal;

/// Files and devices of this machine.
///
/// A file is never sparse, never opened through a symbolic link and never replaced. What its storage promises is asked
/// of the kernel (MAP_SYNC, mmap(2)) and of sysfs; [`MediaFile::backing`] has the answer and the reason for it.
///
/// # Device-DAX
/// A device-DAX character device is opened like a file. [`Media::create`] on one opens it, because devices cannot be
/// made: `len_bytes` must be 0, meaning the whole device, or exactly its size; the first 2 MiB must be zero, else the
/// device counts as existing already; and what lies behind them is not cleared. Mappings start and end at multiples of
/// the device's alignment, or are `Misaligned`.
///
/// # Environment
/// `REMANENT_ASSUME_PERSISTENT` is one or more absolute paths, separated by `:`. What lies below one of them counts as
/// power-fail safe although nothing here can tell: mapped persistent memory of a silent platform, and the page cache over
/// a file system that another one or a server keeps. This is the administrator's assertion, and every report repeats that
/// it is one; it changes nothing for tmpfs and RAM disks. `REMANENT_COPY` chooses the copy instructions, see
/// [`crate::CopyPlan`].
#[derive(Clone, Debug)]
pub struct Mapped {
    detector: Arc<Detector>,
}

impl Mapped {
    /// Looks at the machine and at `REMANENT_ASSUME_PERSISTENT`; opens nothing.
    pub fn new() -> Mapped {
        Mapped { detector: Arc::new(Detector::system()) }
    }

    /// `create` where a device-DAX device has the name.
    fn create_on_device(&self, path: &Path, len_bytes: u64) -> Result<MappedFile> {
        let file = MappedFile::open(path, OpenMode::Writer, &self.detector)?;
        let device_bytes = file.len_bytes()?;
        if len_bytes != 0 && len_bytes != device_bytes {
            let reason = "a device-DAX device is used whole; ask for 0 bytes, or for its exact size";
            return Err(Error::BadSize { path: path.to_owned(), got_bytes: len_bytes, reason });
        }
        let mut head = vec![0; Stripe::HEAD_BYTES.min(device_bytes) as usize];
        file.pread(0, &mut head)?;
        if head.iter().any(|&byte| byte != 0) {
            return Err(Error::AlreadyExists { path: path.to_owned() });
        }
        Ok(file)
    }
}

impl Default for Mapped {
    fn default() -> Mapped {
        Mapped::new()
    }
}

impl Media for Mapped {
    type File = MappedFile;
    type Map = Mapping;

    fn create(&self, path: &Path, len_bytes: u64) -> Result<MappedFile> {
        if file::is_device_dax(path, &self.detector) {
            return self.create_on_device(path, len_bytes);
        }
        check_size(path, len_bytes)?;
        check_limit(path, len_bytes)?;
        let refusal = Refusal { operation: "creating", path, mode: OpenMode::Writer };
        check_room(path, len_bytes)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDWR;
        let descriptor = sys::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|e| refusal.of_create(e))?;
        let adopted = MappedFile::adopt(path, descriptor, OpenMode::Writer, &self.detector);
        let file = adopted.inspect_err(|_| {
            // Nothing can be done if removing fails as well; the first error is the one that matters.
            let _ = sys::unlink(path);
        })?;
        // An allocation may take long, and who finds a file without a lock takes it for a leftover.
        let is_locked = file.try_lock(LockKind::Exclusive, WRITER_AT..WRITER_AT + 1).unwrap_or(false);
        let made = allocate(&file.descriptor, len_bytes).map_err(|e| refusal.of_allocation(e, len_bytes));
        if made.is_err() && is_locked && file.has_name(path).unwrap_or(false) {
            let _ = sys::unlink(path);
        }
        made.map(|()| file)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<MappedFile> {
        MappedFile::open(path, mode, &self.detector)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        match sys::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // The file system does not know the flag; a hard link does not replace either.
            Err(Errno::INVAL) => sys::linkat(CWD, from, CWD, to, AtFlags::empty())
                .and_then(|()| sys::unlink(from))
                .map_err(|e| refusal::of_rename(e, from, to)),
            result => result.map_err(|e| refusal::of_rename(e, from, to)),
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let refusal = Refusal { operation: "removing", path, mode: OpenMode::Writer };
        sys::unlink(path).map_err(|e| refusal.of_entry(e))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let parent = parent_of(path);
        let refusal = Refusal { operation: "opening the directory", path: &parent, mode: OpenMode::Reader };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = sys::open(&parent, flags, Mode::empty()).map_err(|e| refusal.of_entry(e))?;
        let is_read_only =
            || sys::fstatvfs(&descriptor).is_ok_and(|mount| mount.f_flag.contains(sys::StatVfsMountFlags::RDONLY));
        match sys::fsync(&descriptor) {
            // Some read-only file systems know no sync at all, and have nothing to write.
            Err(Errno::INVAL) if is_read_only() => Ok(()),
            result => result.map_err(|e| Error::io("syncing the directory", &parent, e)),
        }
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        match sys::lstat(path) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(Refusal { operation: "looking up", path, mode: OpenMode::Reader }.of_entry(e)),
        }
    }

    fn names(&self, path: &Path, file: &MappedFile) -> Result<bool> {
        file.has_name(path)
    }

    fn is_device(&self, path: &Path) -> bool {
        file::is_device_dax(path, &self.detector)
    }

    /// See [`Media::map`]. The kernel allows a process about 65,000 mappings (vm.max_map_count), and every chunk of a
    /// stripe is one: choose chunks of 1/10,000 of the whole or more. A writer has two descriptors of each file open.
    fn map(&self, files: &[Arc<MappedFile>], stripe: Stripe, mode: OpenMode) -> Result<Mapping> {
        Mapping::new(files, stripe, mode)
    }

    #[inline]
    fn fence(&self) {
        cpu::fence();
    }

    fn new_uuid(&self) -> Uuid {
        let mut bytes = [0u8; 16];
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(e) => panic!("the kernel has no random numbers: {e}"),
            }
        }
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }

    fn process_id(&self) -> u32 {
        process_id()
    }

    fn unix_time_s(&self) -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

/// The directory that holds `path`'s entry.
fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn check_size(path: &Path, len_bytes: u64) -> Result<()> {
    let reason = match len_bytes {
        0 => "nothing can be mapped of an empty file",
        1.. if i64::try_from(len_bytes).is_err() => "no file can be larger than 8 EiB",
        _ => return Ok(()),
    };
    Err(Error::BadSize { path: path.to_owned(), got_bytes: len_bytes, reason })
}

/// Refuses what the process may not write (setrlimit(2)): the kernel would answer with a signal that ends it.
fn check_limit(path: &Path, len_bytes: u64) -> Result<()> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(limit_bytes) if limit_bytes < len_bytes => {
            let reason = "it is more than this process may write to a file (ulimit -f)";
            Err(Error::BadSize { path: path.to_owned(), got_bytes: len_bytes, reason })
        }
        _ => Ok(()),
    }
}

/// Refuses early what cannot fit, so that a hopeless request does not first fill the disk for everybody else. What is
/// free may change until the allocation; that one decides.
fn check_room(path: &Path, len_bytes: u64) -> Result<()> {
    // An unknown parent is reported by the open that follows.
    let Ok(room) = sys::statvfs(parent_of(path)) else { return Ok(()) };
    // ramfs and the like report no size at all.
    if room.f_blocks > 0 && room.f_bfree.saturating_mul(room.f_frsize) < len_bytes {
        return Err(Error::FileSystemFull { path: path.to_owned(), requested_bytes: len_bytes });
    }
    Ok(())
}

/// Gives the file its length and all its blocks.
fn allocate(file: &OwnedFd, len_bytes: u64) -> rustix::io::Result<()> {
    loop {
        match sys::fallocate(file, FallocateFlags::empty(), 0, len_bytes) {
            // tmpfs stops at a signal and gives back what it had.
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return write_zeros(file, len_bytes),
            result => return result,
        }
    }
}

/// The slow way, for file systems without fallocate.
fn write_zeros(file: impl AsFd, len_bytes: u64) -> rustix::io::Result<()> {
    let zeros = vec![0u8; 1 << 20];
    let mut at_bytes = 0;
    while at_bytes < len_bytes {
        let piece = zeros.len().min((len_bytes - at_bytes) as usize);
        match rustix::io::pwrite(&file, &zeros[..piece], at_bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => at_bytes += count as u64,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_zeros_allocates_every_block() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let len_bytes = (3 << 20) + 4096;
        write_zeros(file.as_file(), len_bytes).unwrap();
        let stat = sys::fstat(file.as_file()).unwrap();
        assert_eq!(stat.st_size as u64, len_bytes);
        file.as_file().sync_all().unwrap();
        let stat = sys::fstat(file.as_file()).unwrap();
        assert!(stat.st_blocks as u64 * 512 >= len_bytes, "{} blocks", stat.st_blocks);
    }

    #[test]
    fn identities_are_version_4_and_differ() {
        let mapped = Mapped::new();
        let (first, second) = (mapped.new_uuid(), mapped.new_uuid());
        assert_ne!(first, second);
        for uuid in [first, second] {
            assert_eq!((uuid.0[6] >> 4, uuid.0[8] >> 6), (4, 2), "{uuid}");
        }
    }
}
