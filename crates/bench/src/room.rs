//! How much memory a place has left: who populates more than there is, is ended by the kernel instead of told.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use crate::error::{Error, Result};
use crate::memory::Place;

/// Most bytes that are ever mapped: half of what addresses of 47 bits reach.
pub const MOST_BYTES: u64 = 1 << 46;

/// Refuses what a place has not now.
///
/// # Errors
/// `NoRoom`, with what is needed and what there is.
pub(crate) fn check(place: &Place, needed_bytes: u64) -> Result<()> {
    let free_bytes = match place {
        Place::Dram => main_memory_bytes(),
        Place::Node(node) => main_memory_bytes().min(node_bytes(*node)),
        Place::Folder(folder) => folder_bytes(folder)?,
        Place::Striped(folders, _) => {
            let first = folders.first().map_or(0, |folder| device(folder));
            let is_one = folders.iter().all(|folder| device(folder) == first);
            let rooms = folders.iter().map(|folder| folder_bytes(folder)).collect::<Result<Vec<_>>>()?;
            // Folders of one file system share its room.
            rooms.into_iter().min().unwrap_or(0).saturating_mul(if is_one { 1 } else { folders.len() as u64 })
        }
        // A device says itself how large it is, and nothing that is modelled is there.
        Place::Device(_) | Place::Modelled(..) => u64::MAX,
    };
    match needed_bytes <= free_bytes.min(MOST_BYTES) {
        true => Ok(()),
        false => Err(Error::NoRoom { place: name(place), needed_bytes, free_bytes: free_bytes.min(MOST_BYTES) }),
    }
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

fn device(folder: &Path) -> u64 {
    fs::metadata(folder).map_or(0, |found| found.dev())
}

/// Main memory that can be had, but for a sixteenth: the rest of the machine goes on working. Where the system does not say,
/// nothing is refused.
fn main_memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free_bytes = field_kib(&text, "MemAvailable:").map_or(u64::MAX, |kib| kib << 10);
    free_bytes.min(group_bytes().unwrap_or(u64::MAX)) / 16 * 15
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
    let Ok(text) = fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo")) else {
        return u64::MAX;
    };
    let kib = |name: &str| field_kib(&text, name).unwrap_or(0);
    (kib("MemFree:") + kib("Active(file):") + kib("Inactive(file):")) << 10
}

fn field_kib(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once(name)?.1.trim().strip_suffix(" kB")?.parse().ok())
}

/// What a file there can have: of tmpfs no more than of main memory, and never more than the process may write
/// (setrlimit(2)), beyond which a signal would end it.
fn folder_bytes(folder: &Path) -> Result<u64> {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let failed = |error: rustix::io::Errno| Error::io(folder, error.into());
    let room = rustix::fs::statvfs(folder).map_err(failed)?;
    let is_memory = rustix::fs::statfs(folder).map_err(failed)?.f_type as u64 == TMPFS_MAGIC;
    let free_bytes = match room.f_blocks {
        // A file system that has no size, such as ramfs.
        0 => u64::MAX,
        _ => room.f_bavail.saturating_mul(room.f_frsize),
    };
    let of_memory = if is_memory || room.f_blocks == 0 { main_memory_bytes() } else { u64::MAX };
    Ok(free_bytes.min(of_memory).min(getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)))
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
                Err(Error::NoRoom { needed_bytes: MOST_BYTES, free_bytes, .. }) => {
                    assert!(free_bytes > 4096, "{place:?}");
                }
                other => panic!("{place:?}: {other:?}"),
            }
        }
        assert!(check(&Place::Device("/dev/dax9.9".into()), MOST_BYTES + 1).is_err());
        assert!(check(&Place::Folder("/is/not/there".into()), 1).is_err());
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
    }
}
