//! What this machine offers, as plain data for reports.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use crate::cpu::{self, CopyKernel, CopyPlan, FlushInstruction};
use crate::detect::{Detector, PersistenceDomain, read_number};
use crate::mapped::KernelFeatures;

/// CPU, memory and persistent-memory facts of this machine.
///
/// ```
/// let platform = remanent_pmem::Platform::detect();
/// println!("{} flushes with {}", platform.architecture, platform.flush.as_str());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Platform {
    /// The CPU architecture, for example `x86_64`.
    pub architecture: &'static str,
    /// The kernel's release, as uname(2) gives it.
    pub kernel_release: String,
    /// Whether a hypervisor says that it is there; false where this cannot be known.
    pub is_guest: bool,
    /// CPUs this process may use.
    pub cpus: usize,
    /// Instructions that matter for persistence and exist.
    pub instructions: Vec<&'static str>,
    /// The instruction that flushes a line.
    pub flush: FlushInstruction,
    /// Copy kernels that this machine can run, the preferred one first.
    pub copy_kernels: Vec<CopyKernel>,
    /// What copies of this process use.
    pub copy_plan: CopyPlan,
    /// Bytes of a cache line.
    pub line_bytes: usize,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Huge-page sizes that the kernel knows, ascending.
    pub huge_page_bytes: Vec<u64>,
    /// When ordinary memory gets huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// NUMA nodes, ascending.
    pub numa_nodes: Vec<NumaNode>,
    /// Persistent-memory regions.
    pub regions: Vec<MemoryRegion>,
    /// What the kernel can do for mappings.
    pub kernel_features: KernelFeatures,
    /// The paths of `REMANENT_ASSUME_PERSISTENT`.
    pub assumed_persistent: Vec<PathBuf>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NumaNode {
    /// Its number.
    pub index: u32,
    /// Its CPUs as the kernel lists them, for example `0-3,8`; empty for a node of memory only.
    pub cpus: String,
}

/// A persistent-memory region, as libnvdimm lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryRegion {
    /// Its name, for example `region0`.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// From where on stores survive a power failure: `cpu_cache`, `memory_controller` or `unknown`.
    pub persistence_domain: &'static str,
    /// Ranges of bad blocks that it lists.
    pub bad_ranges: usize,
    /// The node it is attached to.
    pub numa_node: Option<u32>,
}

impl Platform {
    /// Looks at this machine. Takes one or two milliseconds the first time, because copies are measured.
    pub fn detect() -> Platform {
        let detector = Detector::system();
        let facts = cpu::facts();
        Platform {
            architecture: std::env::consts::ARCH,
            kernel_release: rustix::system::uname().release().to_string_lossy().into_owned(),
            is_guest: facts.is_guest,
            cpus: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            instructions: facts.instructions.to_vec(),
            flush: facts.flush,
            copy_kernels: CopyKernel::ALL.into_iter().filter(|kernel| kernel.is_available()).collect(),
            copy_plan: *CopyPlan::get(),
            line_bytes: facts.line_bytes,
            page_bytes: rustix::param::page_size(),
            huge_page_bytes: huge_page_bytes(&detector.sysfs),
            transparent_huge_pages: transparent_huge_pages(&detector.sysfs),
            numa_nodes: numa_nodes(&detector.sysfs),
            regions: regions(&detector.sysfs),
            kernel_features: KernelFeatures::detect(),
            assumed_persistent: detector.assumed,
        }
    }
}

/// Names in a directory that are `prefix` and a number.
fn numbered(directory: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?, entry.path())))
        .collect();
    found.sort();
    found
}

fn huge_page_bytes(sysfs: &Path) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(sysfs.join("kernel/mm/hugepages")) else { return Vec::new() };
    let mut sizes: Vec<u64> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok())
        .map(|kib: u64| kib << 10)
        .collect();
    sizes.sort_unstable();
    sizes
}

/// The choice in brackets, as in `always [madvise] never`.
fn transparent_huge_pages(sysfs: &Path) -> Option<String> {
    let text = fs::read_to_string(sysfs.join("kernel/mm/transparent_hugepage/enabled")).ok()?;
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen.to_owned())
}

fn numa_nodes(sysfs: &Path) -> Vec<NumaNode> {
    let cpus = |node: &Path| fs::read_to_string(node.join("cpulist")).unwrap_or_default().trim().to_owned();
    let nodes = numbered(&sysfs.join("devices/system/node"), "node");
    nodes.into_iter().map(|(index, path)| NumaNode { index, cpus: cpus(&path) }).collect()
}

fn regions(sysfs: &Path) -> Vec<MemoryRegion> {
    let found = numbered(&sysfs.join("bus/nd/devices"), "region");
    found.into_iter().map(|(number, path)| region(number, &path)).collect()
}

fn region(number: u32, path: &Path) -> MemoryRegion {
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
    MemoryRegion {
        name: format!("region{number}"),
        size_bytes: read_number(&path.join("size")).unwrap_or(0),
        persistence_domain: PersistenceDomain::parse(&read("persistence_domain")).as_str(),
        bad_ranges: read("badblocks").lines().filter(|line| !line.trim().is_empty()).count(),
        numa_node: read_number(&path.join("numa_node")).and_then(|node| u32::try_from(node).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_plan_among_its_kernels() {
        let platform = Platform::detect();
        assert!(platform.copy_kernels.contains(&platform.copy_plan.kernel), "{platform:?}");
        assert!(platform.page_bytes.is_power_of_two() && platform.cpus > 0 && !platform.kernel_release.is_empty());
    }

    #[test]
    fn facts_are_read_from_sysfs() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "0"),
            ("kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0"),
            ("kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("devices/system/node/node1/cpulist", "\n"),
            ("devices/system/node/node0/cpulist", "0-1\n"),
            ("bus/nd/devices/region1/size", "4096\n"),
            ("bus/nd/devices/region1/numa_node", "-1\n"),
            ("bus/nd/devices/region0/size", "1073741824\n"),
            ("bus/nd/devices/region0/persistence_domain", "cpu_cache\n"),
            ("bus/nd/devices/region0/badblocks", "8 16\n"),
            ("bus/nd/devices/region0/numa_node", "0\n"),
            ("bus/nd/devices/nmem0/size", "1"),
        ];
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        assert_eq!(huge_page_bytes(root.path()), [2 << 20, 1 << 30]);
        assert_eq!(transparent_huge_pages(root.path()).as_deref(), Some("madvise"));
        let node = |index, cpus: &str| NumaNode { index, cpus: cpus.to_owned() };
        assert_eq!(numa_nodes(root.path()), [node(0, "0-1"), node(1, "")]);
        let expected = [
            MemoryRegion {
                name: "region0".to_owned(),
                size_bytes: 1 << 30,
                persistence_domain: "cpu_cache",
                bad_ranges: 1,
                numa_node: Some(0),
            },
            MemoryRegion {
                name: "region1".to_owned(),
                size_bytes: 4096,
                persistence_domain: "unknown",
                bad_ranges: 0,
                numa_node: None,
            },
        ];
        assert_eq!(regions(root.path()), expected);
    }

    #[test]
    fn machine_without_sysfs_has_no_facts() {
        let root = tempfile::tempdir().unwrap();
        assert!(huge_page_bytes(root.path()).is_empty() && regions(root.path()).is_empty());
        assert_eq!(transparent_huge_pages(root.path()), None);
        assert!(numa_nodes(root.path()).is_empty());
    }
}
