//! What the storage behind a file promises, found out without trusting anybody's word for it.
//!
//! | backing | how found | granularity | durability |
//! | --- | --- | --- | --- |
//! | fs-DAX, device-DAX | MAP_SYNC succeeds and every region names its persistence domain | cache line; byte when each says `cpu_cache` | power-fail safe |
//! | the same, domain empty or unknown | sysfs | cache line | unknown, unless the administrator asserts it |
//! | page cache over a disk of this machine | MAP_SYNC refused | page | power-fail safe |
//! | page cache over overlayfs, a network, an unknown file system or devices that cannot be found | statfs, sysfs | page | unknown, unless the administrator asserts it |
//! | tmpfs, ramfs, a RAM disk | statfs, sysfs | cache line (RAM disk: page) | process-crash safe |
//!
//! Sources: mmap(2) on MAP_SYNC; statfs(2); the kernel's Documentation/ABI/testing/sysfs-bus-nvdimm.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cpu::{self, FlushInstruction};
use crate::durability::{Backing, Durability, Granularity, Provenance};

/// What is asked about.
pub(crate) struct Subject<'a> {
    /// The name it was opened by.
    pub(crate) path: &'a Path,
    /// Major and minor number: of the device-DAX device itself, else of the device the file system is on.
    pub(crate) device: (u32, u32),
    pub(crate) kind: SubjectKind,
    /// Whether a mapping with MAP_SYNC was granted.
    pub(crate) map_sync: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum SubjectKind {
    DeviceDax,
    /// A file on the file system with this magic number (statfs(2)).
    File {
        magic: u64,
    },
}

/// A device-DAX character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceDax {
    pub(crate) size_bytes: u64,
    /// Every mapping's start and length are multiples of this.
    pub(crate) alignment_bytes: u64,
}

/// Up to where the platform carries stores when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PersistenceDomain {
    /// From the caches on (eADR).
    CpuCache,
    /// From the memory controller on (ADR).
    MemoryController,
    /// The platform does not say.
    Unknown,
}

impl PersistenceDomain {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            PersistenceDomain::CpuCache => "cpu_cache",
            PersistenceDomain::MemoryController => "memory_controller",
            PersistenceDomain::Unknown => "unknown",
        }
    }

    pub(crate) fn parse(text: &str) -> PersistenceDomain {
        match text.trim() {
            "cpu_cache" => PersistenceDomain::CpuCache,
            "memory_controller" => PersistenceDomain::MemoryController,
            _ => PersistenceDomain::Unknown,
        }
    }
}

/// Asks the system; the root of sysfs is a field, so that a test can lay out a machine it does not have.
#[derive(Clone, Debug)]
pub(crate) struct Detector {
    pub(crate) sysfs: PathBuf,
    /// The paths of `REMANENT_ASSUME_PERSISTENT`.
    pub(crate) assumed: Vec<PathBuf>,
    pub(crate) flush: FlushInstruction,
    pub(crate) is_guest: bool,
}

/// What a local file system rests on, the best first: several devices are as good as the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ground {
    Disk,
    Unknown,
    Ram,
}

/// Numbers of RAM disks and loop devices (the kernel's admin-guide/devices.txt).
const RAM_MAJOR: u32 = 1;
const LOOP_MAJOR: u32 = 7;

/// A stack of block devices (dm, md, loop) deeper than this is not followed to its end.
const STACK_DEPTH: u32 = 8;

impl Detector {
    /// The machine this process runs on.
    pub(crate) fn system() -> Detector {
        let assumed = std::env::var_os("REMANENT_ASSUME_PERSISTENT")
            .map(|list| std::env::split_paths(&list).filter(|path| path.is_absolute()).collect())
            .unwrap_or_default();
        let facts = cpu::facts();
        Detector { sysfs: PathBuf::from("/sys"), assumed, flush: facts.flush, is_guest: facts.is_guest }
    }

    /// The promise of the storage behind `subject`.
    pub(crate) fn backing(&self, subject: &Subject<'_>) -> Backing {
        match subject.kind {
            SubjectKind::DeviceDax => {
                let directory = self.device_directory("char", subject.device);
                let regions = directory.iter().map(|d| region_of(d)).collect();
                self.mapped_backing(subject, "device-dax", regions, directory.as_deref())
            }
            SubjectKind::File { magic } => {
                let filesystem = FileSystem::from_magic(magic);
                if subject.map_sync {
                    let leaves = self.leaf_blocks(subject.device);
                    let regions = leaves.iter().map(|leaf| region_of(leaf)).collect();
                    self.mapped_backing(subject, filesystem.name, regions, leaves.first().map(PathBuf::as_path))
                } else if filesystem.kind == FileSystemKind::Memory {
                    memory_backing(filesystem.name)
                } else {
                    self.page_backing(filesystem, subject)
                }
            }
        }
    }

    /// Size and alignment of a character device, if it is a device-DAX one.
    pub(crate) fn device_dax(&self, device: (u32, u32)) -> Option<DeviceDax> {
        let directory = self.device_directory("char", device)?;
        let subsystem = fs::canonicalize(directory.join("subsystem")).ok()?;
        if subsystem.file_name()? != "dax" {
            return None;
        }
        let size_bytes = read_number(&directory.join("size"))?;
        // On the device itself since Linux 5.10, on its libnvdimm parent before.
        let alignment_bytes = ["align", "device/align"]
            .iter()
            .find_map(|name| read_number(&directory.join(name)))
            .filter(|alignment| alignment.is_power_of_two())
            .unwrap_or(2 << 20);
        Some(DeviceDax { size_bytes, alignment_bytes })
    }

    /// The directory of a device in /sys/devices.
    fn device_directory(&self, class: &str, (major, minor): (u32, u32)) -> Option<PathBuf> {
        fs::canonicalize(self.sysfs.join("dev").join(class).join(format!("{major}:{minor}"))).ok()
    }

    /// What the bytes of a local file system lie on in the end.
    fn ground(&self, filesystem: &FileSystem, device: (u32, u32), depth: u32) -> Ground {
        let mut leaves = self.leaf_blocks(device);
        if leaves.is_empty() && filesystem.name == "btrfs" {
            // Its files have a device number of no device, so that any of its devices may be meant.
            leaves = self.devices_of_btrfs();
        }
        if leaves.is_empty() {
            return match device.0 {
                // No device of its own (zfs, bcachefs), or a loop device.
                0 | LOOP_MAJOR => Ground::Unknown,
                RAM_MAJOR => Ground::Ram,
                // Without sysfs its number says no more than that it is a block device.
                _ => Ground::Disk,
            };
        }
        let grounds = leaves.iter().map(|leaf| self.ground_of(leaf, depth));
        grounds.max().unwrap_or(Ground::Unknown)
    }

    fn ground_of(&self, leaf: &Path, depth: u32) -> Ground {
        if has_number(leaf, &["ram", "zram"]) {
            return Ground::Ram;
        }
        if !has_number(leaf, &["loop"]) {
            return Ground::Disk;
        }
        let behind = |leaf: &Path| fs::read_to_string(leaf.join("loop/backing_file")).ok();
        // A partition of a loop device lies below it.
        let Some(file) = behind(leaf).or_else(|| behind(leaf.parent()?)) else { return Ground::Unknown };
        let file = Path::new(file.trim_end_matches('\n'));
        let (Ok(stat), Ok(statfs)) = (rustix::fs::stat(file), rustix::fs::statfs(file)) else { return Ground::Unknown };
        let filesystem = FileSystem::from_magic(statfs.f_type as u64);
        match filesystem.kind {
            FileSystemKind::Memory => Ground::Ram,
            FileSystemKind::Local if depth > 0 => {
                let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
                self.ground(&filesystem, device, depth - 1)
            }
            _ => Ground::Unknown,
        }
    }

    fn devices_of_btrfs(&self) -> Vec<PathBuf> {
        let list = |path: &Path| fs::read_dir(path).map(|entries| entries.flatten().map(|e| e.path()).collect());
        let systems: Vec<PathBuf> = list(&self.sysfs.join("fs/btrfs")).unwrap_or_default();
        let devices = systems.iter().flat_map(|system| list(&system.join("devices")).unwrap_or_default());
        let mut leaves = Vec::new();
        devices
            .filter_map(|device| fs::canonicalize(device).ok())
            .for_each(|d| collect_leaves(d, STACK_DEPTH, &mut leaves));
        leaves
    }

    /// The devices at the bottom of a stack of block devices.
    fn leaf_blocks(&self, device: (u32, u32)) -> Vec<PathBuf> {
        let mut leaves = Vec::new();
        if let Some(directory) = self.device_directory("block", device) {
            collect_leaves(directory, STACK_DEPTH, &mut leaves);
        }
        leaves
    }

    fn mapped_backing(
        &self,
        subject: &Subject<'_>,
        filesystem: &str,
        regions: Vec<PersistenceDomain>,
        directory: Option<&Path>,
    ) -> Backing {
        let all = |domain| !regions.is_empty() && regions.iter().all(|&r| r == domain);
        let is_known = !regions.is_empty() && !regions.contains(&PersistenceDomain::Unknown);
        let can_flush = self.flush != FlushInstruction::Missing;
        let granularity = if all(PersistenceDomain::CpuCache) { Granularity::Byte } else { Granularity::CacheLine };
        let (durability, provenance, mut reason) = if granularity == Granularity::CacheLine && !can_flush {
            let reason = "persistent memory is mapped, but this CPU has no instruction to flush a line to it";
            (Durability::PersistenceUnknown, Provenance::Measured, reason.to_owned())
        } else if is_known {
            let domain = if granularity == Granularity::Byte { "CPU caches" } else { "memory controller" };
            let reason = format!("persistent memory is mapped, and the platform saves the {domain} at a power failure");
            (Durability::PowerFailSafe, Provenance::Measured, reason)
        } else if self.is_assumed(subject.path) {
            let reason = "persistent memory is mapped; that it survives a power failure is the administrator's \
                          assertion (REMANENT_ASSUME_PERSISTENT)";
            (Durability::PowerFailSafe, Provenance::Measured, reason.to_owned())
        } else {
            let reason = "memory is mapped directly, but the platform does not say whether it survives a power \
                          failure (persistence_domain is empty or unknown)";
            (Durability::PersistenceUnknown, Provenance::Emulated, reason.to_owned())
        };
        if self.is_guest {
            reason.push_str("; this is a guest: it is as safe as its host's device");
        }
        let bad_ranges = directory.map_or(0, bad_ranges);
        if bad_ranges > 0 {
            reason.push_str(&format!("; the device lists {bad_ranges} ranges of bad blocks"));
        }
        Backing { durability, granularity, provenance, filesystem: filesystem.to_owned(), reason }
    }

    fn page_backing(&self, filesystem: FileSystem, subject: &Subject<'_>) -> Backing {
        let name = filesystem.name;
        let relying = |on: &str| {
            let reason = format!("page cache over {name}; relies on {on}");
            if self.is_assumed(subject.path) {
                let reason = format!("{reason}, by the administrator's assertion (REMANENT_ASSUME_PERSISTENT)");
                return (Durability::PowerFailSafe, Provenance::Measured, reason);
            }
            (Durability::PersistenceUnknown, Provenance::Measured, format!("{reason}, which nothing here can tell"))
        };
        let (durability, provenance, reason) = match filesystem.kind {
            FileSystemKind::Stacked => relying("the upper layer being on a disk that survives"),
            FileSystemKind::Served => relying("its server having stored what it acknowledges"),
            FileSystemKind::Unknown => relying("that file system keeping the promise of fsync"),
            FileSystemKind::Local | FileSystemKind::Memory => {
                match self.ground(&filesystem, subject.device, STACK_DEPTH) {
                    Ground::Disk => (
                        Durability::PowerFailSafe,
                        Provenance::Measured,
                        format!("page cache over {name}; durable when msync or fdatasync returns, at the disk's speed"),
                    ),
                    Ground::Unknown => relying("devices that cannot be found here"),
                    Ground::Ram => {
                        let reason = format!("{name} on a RAM disk survives the end of the process, not of the power");
                        (Durability::ProcessCrashSafe, Provenance::Emulated, reason)
                    }
                }
            }
        };
        Backing { durability, granularity: Granularity::Page, provenance, filesystem: name.to_owned(), reason }
    }

    fn is_assumed(&self, path: &Path) -> bool {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        self.assumed.iter().any(|prefix| {
            let prefix = fs::canonicalize(prefix).unwrap_or_else(|_| prefix.clone());
            real.starts_with(prefix)
        })
    }
}

fn memory_backing(name: &str) -> Backing {
    Backing {
        durability: Durability::ProcessCrashSafe,
        granularity: Granularity::CacheLine,
        provenance: Provenance::Emulated,
        filesystem: name.to_owned(),
        reason: format!(
            "{name} is main memory: it survives the end of the process, not of the power; flushes and fences are \
             executed as on persistent memory"
        ),
    }
}

fn collect_leaves(directory: PathBuf, depth: u32, leaves: &mut Vec<PathBuf>) {
    let slaves: Vec<PathBuf> = fs::read_dir(directory.join("slaves"))
        .map(|entries| entries.flatten().filter_map(|e| fs::canonicalize(e.path()).ok()).collect())
        .unwrap_or_default();
    if slaves.is_empty() || depth == 0 {
        leaves.push(directory);
        return;
    }
    for slave in slaves {
        collect_leaves(slave, depth - 1, leaves);
    }
}

/// The libnvdimm region that a device's directory lies in.
fn region_directory(directory: &Path) -> Option<&Path> {
    directory.ancestors().find(|ancestor| {
        let name = ancestor.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix("region").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// The persistence domain of the region around a device. The kernel hides the attribute when the platform is silent.
fn region_of(directory: &Path) -> PersistenceDomain {
    region_directory(directory)
        .and_then(|region| fs::read_to_string(region.join("persistence_domain")).ok())
        .map_or(PersistenceDomain::Unknown, |text| PersistenceDomain::parse(&text))
}

/// Number of ranges in the poison list: of the block device, of the disk around a partition, or of the region.
fn bad_ranges(directory: &Path) -> usize {
    let candidates = [Some(directory), directory.parent(), region_directory(directory)];
    candidates
        .into_iter()
        .flatten()
        .find_map(|place| fs::read_to_string(place.join("badblocks")).ok())
        .map_or(0, |list| list.lines().filter(|line| !line.trim().is_empty()).count())
}

/// Whether a device, or the disk that it is a partition of, has one of these names and a number.
fn has_number(directory: &Path, names: &[&str]) -> bool {
    directory.ancestors().take(2).any(|place| {
        let name = place.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let mut numbers = names.iter().filter_map(|wanted| name.strip_prefix(wanted));
        numbers.any(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

pub(crate) fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileSystemKind {
    /// Files are main memory.
    Memory,
    /// On a block device of this machine.
    Local,
    /// Above another file system.
    Stacked,
    /// Another program or machine stores the bytes.
    Served,
    Unknown,
}

#[derive(Clone, Copy)]
struct FileSystem {
    name: &'static str,
    kind: FileSystemKind,
}

impl FileSystem {
    /// By the number of statfs(2). ext2, ext3 and ext4 share one.
    fn from_magic(magic: u64) -> FileSystem {
        use FileSystemKind::{Local, Memory, Served, Stacked, Unknown};
        // The field is signed on some CPUs; the number is 32 bits.
        let (name, kind) = match magic as u32 {
            0x0102_1994 => ("tmpfs", Memory),
            0x8584_58f6 => ("ramfs", Memory),
            0x9584_58f6 => ("hugetlbfs", Memory),
            0xef53 => ("ext4", Local),
            0x5846_5342 => ("xfs", Local),
            0x9123_683e => ("btrfs", Local),
            0xf2f5_2010 => ("f2fs", Local),
            0x2fc1_2fc1 => ("zfs", Local),
            0xca45_1a4e => ("bcachefs", Local),
            0x3153_464a => ("jfs", Local),
            0x4d44 => ("vfat", Local),
            0x2011_bab0 => ("exfat", Local),
            0x794c_7630 => ("overlayfs", Stacked),
            0xf15f => ("ecryptfs", Stacked),
            0x6969 => ("nfs", Served),
            0xff53_4d42 => ("cifs", Served),
            0xfe53_4d42 => ("smb2", Served),
            0x6573_5546 => ("fuse", Served),
            0x0102_1997 => ("9p", Served),
            0x00c3_6400 => ("ceph", Served),
            _ => ("an unknown file system", Unknown),
        };
        FileSystem { name, kind }
    }
}

#[cfg(test)]
mod tests;
