//! How much memory a place has left: who populates more than there is, is ended by the kernel instead of told.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use crate::error::{Error, Result};
use crate::memory::{self, Place};

/// Most bytes that are ever mapped: half of what addresses of 47 bits reach.
pub const MOST_BYTES: u64 = 1 << 46;

/// Refuses what a place has not now.
///
/// # Errors
/// `NoRoom`, with what is needed and what there is.
pub(crate) fn check(place: &Place, needed_bytes: u64) -> Result<()> {
    let refuse = |needed_bytes, free_bytes| Err(Error::NoRoom { place: name(place), needed_bytes, free_bytes });
    let free_bytes = match place {
        Place::Dram => main_memory_bytes(),
        Place::Node(node) => main_memory_bytes().min(node_bytes(*node)),
        // A file system says itself how much it has, a device how large it is, and nothing that is modelled is there.
        Place::Folder(_) | Place::Striped(..) | Place::Device(_) | Place::Modelled(..) => u64::MAX,
    };
    if needed_bytes > free_bytes.min(MOST_BYTES) {
        return refuse(needed_bytes, free_bytes.min(MOST_BYTES));
    }
    let files = memory::files(place, needed_bytes).into_iter().map(|(folder, bytes)| File::new(folder, bytes));
    let files = files.collect::<Result<Vec<_>>>()?;
    // A signal would end a process that writes more than it may to a file (setrlimit(2)).
    let most_bytes = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    match lacking(&files, main_memory_bytes(), most_bytes) {
        Some((needed_bytes, free_bytes)) => refuse(needed_bytes, free_bytes),
        None => Ok(()),
    }
}

/// A file that is to be made.
#[derive(Clone, Copy, Debug)]
struct File {
    len_bytes: u64,
    /// Its file system, and what that has left.
    device: u64,
    free_bytes: u64,
    /// Whether that lies in main memory.
    is_in_memory: bool,
}

impl File {
    fn new(folder: &Path, len_bytes: u64) -> Result<File> {
        const TMPFS_MAGIC: u64 = 0x0102_1994;
        let failed = |error: rustix::io::Errno| Error::io(folder, error.into());
        let device = fs::metadata(folder).map_err(|error| Error::io(folder, error))?.dev();
        let room = rustix::fs::statvfs(folder).map_err(failed)?;
        let is_tmpfs = rustix::fs::statfs(folder).map_err(failed)?.f_type as u64 == TMPFS_MAGIC;
        // A file system that has no size, such as ramfs.
        let has_no_size = room.f_blocks == 0;
        let free_bytes = if has_no_size { u64::MAX } else { room.f_bavail.saturating_mul(room.f_frsize) };
        Ok(File { len_bytes, device, free_bytes, is_in_memory: is_tmpfs || has_no_size })
    }
}

/// What files need together, and what there is of it, if that is less: files of one file system share its room, those of all that
/// lie in main memory share that, and none is longer than the process may write.
fn lacking(files: &[File], memory_bytes: u64, most_bytes: u64) -> Option<(u64, u64)> {
    let sum = |is_one: &dyn Fn(&File) -> bool| -> u64 {
        files.iter().filter(|file| is_one(file)).map(|file| file.len_bytes).sum()
    };
    let by_device: BTreeMap<u64, u64> = files.iter().map(|file| (file.device, file.free_bytes)).collect();
    let of_devices = by_device.into_iter().map(|(device, free_bytes)| (sum(&|file| file.device == device), free_bytes));
    let of_memory = (sum(&|file| file.is_in_memory), memory_bytes);
    let of_files = files.iter().map(|file| (file.len_bytes, most_bytes));
    of_devices.chain([of_memory]).chain(of_files).find(|(needed_bytes, free_bytes)| needed_bytes > free_bytes)
}

fn name(place: &Place) -> String {
    match place {
        Place::Dram => "dram".into(),
        Place::Node(node) => format!("dram@{node}"),
        Place::Folder(path) | Place::Device(path) => path.display().to_string(),
        Place::Striped(folders, _) => {
            folders.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("+")
        }
        Place::Modelled(name, _) => format!("model:{name}"),
    }
}

/// Main memory that can be had. Where the system does not say, nothing is refused.
fn main_memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free_bytes = field_kib(&text, "MemAvailable:").map_or(u64::MAX, |kib| kib << 10);
    but_for_others(free_bytes.min(group_bytes().unwrap_or(u64::MAX)))
}

/// All but a sixteenth: the rest of the machine goes on working.
fn but_for_others(free_bytes: u64) -> u64 {
    free_bytes / 16 * 15
}

/// What the process's control group and those that it is in may still have (cgroups(7), both versions); files' pages that
/// nobody uses are given back.
fn group_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    group_bytes_in(Path::new("/sys/fs/cgroup"), &groups)
}

fn group_bytes_in(root: &Path, groups: &str) -> Option<u64> {
    groups
        .lines()
        .filter_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let path = path.trim_start_matches('/');
            match controllers {
                "" => least_left(root, path, ["memory.max", "memory.current", "inactive_file "]),
                "memory" => {
                    let names = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "];
                    least_left(&root.join("memory"), path, names)
                }
                _ => None,
            }
        })
        .min()
}

/// The least that is left to a group or one above it: of its most, what is used but for idle pages.
fn least_left(root: &Path, path: &str, [most, used, idle]: [&str; 3]) -> Option<u64> {
    let left = |folder: &Path| {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let statistics = read("memory.stat").unwrap_or_default();
        let idle_bytes = statistics.lines().find_map(|line| line.strip_prefix(idle)?.trim().parse::<u64>().ok());
        // A group whose most is "max" has no bound of its own.
        Some(number(most)?.saturating_add(idle_bytes.unwrap_or(0)).saturating_sub(number(used)?))
    };
    let folder = root.join(path);
    folder.ancestors().take_while(|folder| folder.starts_with(root)).filter_map(left).min()
}

/// What a NUMA node has free, and what of files it can let go.
fn node_bytes(node: usize) -> u64 {
    let text = fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo"));
    text.map_or(u64::MAX, |text| node_bytes_in(&text))
}

fn node_bytes_in(text: &str) -> u64 {
    let kib = |name: &str| field_kib(text, name).unwrap_or(0);
    but_for_others((kib("MemFree:") + kib("Active(file):") + kib("Inactive(file):")) << 10)
}

fn field_kib(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once(name)?.1.trim().strip_suffix(" kB")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_is_refused_with_both_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let of_folder = Place::Folder(folder.path().to_owned());
        let striped = Place::Striped(vec![folder.path().to_owned(), folder.path().to_owned()], 2 << 20);
        for place in [Place::Dram, Place::Node(0), of_folder, striped] {
            assert!(check(&place, 4096).is_ok(), "{place:?}");
            match check(&place, MOST_BYTES) {
                // Files are whole chunks, of which each has a beginning of its own.
                Err(Error::NoRoom { needed_bytes: MOST_BYTES.., free_bytes, .. }) => {
                    assert!(free_bytes > 4096, "{place:?}");
                }
                other => panic!("{place:?}: {other:?}"),
            }
        }
        assert!(check(&Place::Device("/dev/dax9.9".into()), MOST_BYTES + 1).is_err());
        assert!(check(&Place::Folder("/is/not/there".into()), 1).is_err());
    }

    #[test]
    fn files_share_the_room_of_their_file_system_and_of_main_memory() {
        let file = |device, is_in_memory| File { len_bytes: 100, device, free_bytes: 250, is_in_memory };
        let lacking = |files: &[File], memory_bytes| super::lacking(files, memory_bytes, u64::MAX);
        let (disk, other) = (file(1, false), file(2, false));
        assert_eq!(lacking(&[disk, disk, other, other], 0), None);
        assert_eq!(lacking(&[disk, other, disk, disk], 0), Some((300, 250)), "some share one, and others do not");
        // File systems of their own, in one memory.
        let in_memory = [file(3, true), file(4, true), file(5, true)];
        assert_eq!((lacking(&in_memory, 300), lacking(&in_memory, 299)), (None, Some((300, 299))));
        assert_eq!(lacking(&[disk, file(3, true)], 100), None);
        assert_eq!(lacking(&[], 0), None);
    }

    #[test]
    fn no_file_is_longer_than_the_process_may_write() {
        let folder = Place::Folder("/a".into());
        let files = |place: &Place, len_bytes| {
            let files = memory::files(place, len_bytes).into_iter();
            files
                .map(|(_, len_bytes)| File { len_bytes, device: 1, free_bytes: u64::MAX, is_in_memory: false })
                .collect::<Vec<_>>()
        };
        // What is asked for is within the limit, and what is allocated is not.
        assert_eq!(lacking(&files(&folder, 3 << 20), 0, 3 << 20), Some((4 << 20, 3 << 20)));
        assert_eq!(lacking(&files(&folder, 3 << 20), 0, 4 << 20), None);
        let striped = Place::Striped(vec!["/a".into(), "/b".into()], 2 << 20);
        let each = 2 << 20;
        assert!(lacking(&files(&striped, 2 * each), 0, each).is_some_and(|(needed, _)| needed > each));
    }

    #[test]
    fn the_least_of_all_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = |path: &str, files: [(&str, &str); 3]| {
            let folder = root.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            files.into_iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
        };
        let of =
            |most, used| [("memory.max", most), ("memory.current", used), ("memory.stat", "anon 1\ninactive_file 5\n")];
        group("slice", of("1000\n", "900\n"));
        group("slice/unit", of("max\n", "300\n"));
        let left = |groups: &str| group_bytes_in(root.path(), groups);
        assert_eq!(left("0::/slice/unit\n"), Some(105), "the unit has no bound, but its slice has");
        group("slice/unit", of("330\n", "300\n"));
        assert_eq!(left("0::/slice/unit\n"), Some(35));
        assert_eq!((left("0::/other\n"), left("")), (None, None));
        let first =
            [("memory.limit_in_bytes", "77"), ("memory.usage_in_bytes", "7"), ("memory.stat", "total_inactive_file 1")];
        group("memory/a", first);
        assert_eq!(left("4:cpu:/a\n3:memory:/a\n"), Some(71));
    }

    #[test]
    fn fields_are_read_in_both_forms() {
        assert_eq!(field_kib("MemTotal:  9 kB\nMemAvailable:   7 kB\n", "MemAvailable:"), Some(7));
        assert_eq!(field_kib("Node 0 MemFree:        5 kB\n", "MemFree:"), Some(5));
        assert_eq!(field_kib("x", "MemFree:"), None);
        let node = "Node 0 MemFree:  8 kB\nNode 0 Active(file):  4 kB\nNode 0 Inactive(file):  4 kB\n";
        assert_eq!(node_bytes_in(node), 15 << 10, "a sixteenth is left to others");
    }
}
