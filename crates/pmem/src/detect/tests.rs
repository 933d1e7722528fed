//! Every row of the durability table, on a made-up sysfs.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

const EXT4: u64 = 0xef53;
const TMPFS: u64 = 0x0102_1994;
const NVDIMM_BUS: &str = "devices/LNXSYSTM:00/ACPI0012:00/ndbus0";

/// A machine laid out in a temporary directory.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Machine {
        Machine { root: tempfile::tempdir().unwrap() }
    }

    fn put(&self, name: &str, content: &str) {
        let path = self.root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A directory in /sys/devices that /sys/dev/CLASS/NUMBER points to, by a relative link as the kernel makes it.
    fn device(&self, class: &str, number: &str, directory: &str) {
        fs::create_dir_all(self.root.path().join(directory)).unwrap();
        let links = self.root.path().join("dev").join(class);
        fs::create_dir_all(&links).unwrap();
        symlink(Path::new("../..").join(directory), links.join(number)).unwrap();
    }

    fn region(&self, name: &str, domain: &str) {
        self.put(&format!("{NVDIMM_BUS}/{name}/persistence_domain"), domain);
    }

    fn pmem(&self, number: &str, region: &str, disk: &str) {
        self.device("block", number, &format!("{NVDIMM_BUS}/{region}/namespace0.0/block/{disk}"));
    }

    fn detector(&self) -> Detector {
        Detector {
            sysfs: self.root.path().to_owned(),
            assumed: Vec::new(),
            flush: FlushInstruction::Clwb,
            is_guest: false,
        }
    }

    fn dax_file(&self, device: (u32, u32)) -> Backing {
        self.detector().backing(&file(device, EXT4, true))
    }
}

fn file(device: (u32, u32), magic: u64, map_sync: bool) -> Subject<'static> {
    Subject { path: Path::new("/mnt/pm/pool"), device, kind: SubjectKind::File { magic }, map_sync }
}

fn promise(backing: &Backing) -> (Granularity, Durability, Provenance) {
    (backing.granularity, backing.durability, backing.provenance)
}

const LINE_SAFE: (Granularity, Durability, Provenance) =
    (Granularity::CacheLine, Durability::PowerFailSafe, Provenance::Measured);
const LINE_UNKNOWN: (Granularity, Durability, Provenance) =
    (Granularity::CacheLine, Durability::PersistenceUnknown, Provenance::Emulated);

#[test]
fn memory_controller_is_line_granular_and_power_fail_safe() {
    let machine = Machine::new();
    machine.region("region0", "memory_controller\n");
    machine.pmem("259:0", "region0", "pmem0");
    let backing = machine.dax_file((259, 0));
    assert_eq!(promise(&backing), LINE_SAFE);
    assert_eq!(backing.filesystem, "ext4");
    assert!(backing.reason.contains("memory controller"), "{}", backing.reason);
}

#[test]
fn cpu_cache_is_byte_granular() {
    let machine = Machine::new();
    machine.region("region3", "cpu_cache\n");
    machine.pmem("259:3", "region3", "pmem3");
    let expected = (Granularity::Byte, Durability::PowerFailSafe, Provenance::Measured);
    assert_eq!(promise(&machine.dax_file((259, 3))), expected);
}

#[test]
fn silent_platform_is_unknown() {
    for domain in ["\n", "", "unknown\n", "moon\n"] {
        let machine = Machine::new();
        machine.region("region0", domain);
        machine.pmem("259:0", "region0", "pmem0");
        assert_eq!(promise(&machine.dax_file((259, 0))), LINE_UNKNOWN, "{domain:?}");
    }
}

#[test]
fn hidden_attribute_and_missing_device_are_unknown() {
    let machine = Machine::new();
    machine.pmem("259:0", "region0", "pmem0");
    assert_eq!(promise(&machine.dax_file((259, 0))), LINE_UNKNOWN);
    assert_eq!(promise(&machine.dax_file((1, 99))), LINE_UNKNOWN);
}

#[test]
fn administrator_asserts_what_the_platform_does_not_say() {
    let machine = Machine::new();
    machine.pmem("259:0", "region0", "pmem0");
    let mut detector = machine.detector();
    detector.assumed = vec![PathBuf::from("/mnt/pm")];
    let backing = detector.backing(&file((259, 0), EXT4, true));
    assert_eq!(promise(&backing), LINE_SAFE);
    assert!(backing.reason.contains("administrator"), "{}", backing.reason);

    detector.assumed = vec![PathBuf::from("/mnt/p")];
    assert_eq!(promise(&detector.backing(&file((259, 0), EXT4, true))), LINE_UNKNOWN, "a prefix is of whole names");
    detector.assumed = vec![PathBuf::from("/mnt/pm")];
    let tmpfs = detector.backing(&file((0, 30), TMPFS, false));
    assert_eq!(tmpfs.durability, Durability::ProcessCrashSafe, "no assertion makes memory a disk");
}

#[test]
fn partition_is_found_through_its_disk() {
    let machine = Machine::new();
    machine.region("region0", "memory_controller\n");
    machine.device("block", "259:1", &format!("{NVDIMM_BUS}/region0/namespace0.0/block/pmem0/pmem0p1"));
    assert_eq!(promise(&machine.dax_file((259, 1))), LINE_SAFE);
}

#[test]
fn device_mapper_is_as_good_as_its_worst_region() {
    let machine = Machine::new();
    machine.pmem("259:0", "region0", "pmem0");
    machine.pmem("259:1", "region1", "pmem1");
    let dm = "devices/virtual/block/dm-0";
    machine.device("block", "252:0", dm);
    for (region, disk) in [("region0", "pmem0"), ("region1", "pmem1")] {
        let slaves = machine.root.path().join(dm).join("slaves");
        fs::create_dir_all(&slaves).unwrap();
        let disk_directory = format!("{NVDIMM_BUS}/{region}/namespace0.0/block/{disk}");
        symlink(Path::new("../../../../..").join(disk_directory), slaves.join(disk)).unwrap();
    }
    let cases = [
        ("cpu_cache", "cpu_cache", (Granularity::Byte, Durability::PowerFailSafe, Provenance::Measured)),
        ("cpu_cache", "memory_controller", LINE_SAFE),
        ("cpu_cache", "unknown", LINE_UNKNOWN),
    ];
    for (first, second, expected) in cases {
        machine.region("region0", first);
        machine.region("region1", second);
        assert_eq!(promise(&machine.dax_file((252, 0))), expected, "{first} and {second}");
    }
}

#[test]
fn refused_map_sync_is_page_granular() {
    let machine = Machine::new();
    let expected = (Granularity::Page, Durability::PowerFailSafe, Provenance::Measured);
    for (magic, name) in [(EXT4, "ext4"), (0x5846_5342, "xfs"), (0x4d44, "vfat")] {
        let backing = machine.detector().backing(&file((8, 1), magic, false));
        assert_eq!(promise(&backing), expected);
        assert!(backing.filesystem.contains(name), "{}", backing.filesystem);
    }
    // A pmem disk whose file system was mounted without DAX is a disk like any other.
    machine.region("region0", "memory_controller\n");
    machine.pmem("259:0", "region0", "pmem0");
    assert_eq!(promise(&machine.detector().backing(&file((259, 0), EXT4, false))), expected);
}

#[test]
fn what_lies_under_a_local_file_system_decides() {
    let machine = Machine::new();
    let promised = |device, magic| promise(&machine.detector().backing(&file(device, magic, false)));
    let safe = (Granularity::Page, Durability::PowerFailSafe, Provenance::Measured);
    let unknown = (Granularity::Page, Durability::PersistenceUnknown, Provenance::Measured);
    let ram = (Granularity::Page, Durability::ProcessCrashSafe, Provenance::Emulated);
    machine.device("block", "252:0", "devices/virtual/block/zram0");
    assert_eq!(promised((252, 0), EXT4), ram);
    // Neither has a device of its own; of btrfs the devices are known.
    const BTRFS: u64 = 0x9123_683e;
    assert_eq!([promised((0, 40), BTRFS), promised((0, 41), 0x2fc1_2fc1)], [unknown; 2]);
    let devices = machine.root.path().join("fs/btrfs/0f1e/devices");
    fs::create_dir_all(&devices).unwrap();
    fs::create_dir_all(machine.root.path().join("devices/pci0/block/sda/sda1")).unwrap();
    symlink("../../../../devices/pci0/block/sda/sda1", devices.join("sda1")).unwrap();
    assert_eq!(promised((0, 40), BTRFS), safe);
    symlink("../../../../devices/virtual/block/zram0", devices.join("zram0")).unwrap();
    assert_eq!(promised((0, 40), BTRFS), ram);
    // A loop device is as good as its file.
    machine.device("block", "7:0", "devices/virtual/block/loop0");
    assert_eq!(promised((7, 0), EXT4), unknown);
    machine.put("devices/virtual/block/loop0/loop/backing_file", "/dev/shm\n");
    let memory = rustix::fs::statfs("/dev/shm").is_ok_and(|found| found.f_type as u64 == TMPFS);
    assert_eq!(promised((7, 0), EXT4) == ram, memory);
    machine.put("devices/virtual/block/loop0/loop/backing_file", "/no/such/file\n");
    assert_eq!(promised((7, 0), EXT4), unknown);
}

#[test]
fn stacked_and_served_file_systems_say_what_they_rely_on_and_promise_nothing() {
    let mut detector = Machine::new().detector();
    let served = [(0x6969, "server"), (0x6573_5546, "server")];
    for (magic, word) in [(0x794c_7630, "upper layer"), (77, "unknown")].into_iter().chain(served) {
        let backing = detector.backing(&file((0, 50), magic, false));
        assert_eq!(promise(&backing), (Granularity::Page, Durability::PersistenceUnknown, Provenance::Measured));
        assert!(backing.reason.contains("relies on") && backing.reason.contains(word), "{}", backing.reason);
    }
    detector.assumed = vec!["/mnt".into()];
    let backing = detector.backing(&file((0, 50), 0x794c_7630, false));
    assert_eq!(backing.durability, Durability::PowerFailSafe, "{}", backing.reason);
    assert!(backing.reason.contains("administrator"), "{}", backing.reason);
}

#[test]
fn memory_file_systems_are_process_crash_safe_and_emulated() {
    let detector = Machine::new().detector();
    for (magic, name) in [(TMPFS, "tmpfs"), (0x8584_58f6, "ramfs")] {
        let backing = detector.backing(&file((0, 30), magic, false));
        let expected = (Granularity::CacheLine, Durability::ProcessCrashSafe, Provenance::Emulated);
        assert_eq!((promise(&backing), backing.filesystem.as_str()), (expected, name));
    }
}

#[test]
fn ram_disk_does_not_survive_the_power() {
    let machine = Machine::new();
    machine.device("block", "1:0", "devices/virtual/block/ram0");
    machine.device("block", "252:7", "devices/virtual/block/zram0");
    for device in [(1, 0), (252, 7)] {
        let backing = machine.detector().backing(&file(device, EXT4, false));
        let expected = (Granularity::Page, Durability::ProcessCrashSafe, Provenance::Emulated);
        assert_eq!(promise(&backing), expected);
    }
}

#[test]
fn guest_and_bad_blocks_are_mentioned() {
    let machine = Machine::new();
    machine.region("region0", "memory_controller\n");
    machine.pmem("259:0", "region0", "pmem0");
    machine.put(&format!("{NVDIMM_BUS}/region0/namespace0.0/block/pmem0/badblocks"), "8 16\n512 8\n");
    let backing = Detector { is_guest: true, ..machine.detector() }.backing(&file((259, 0), EXT4, true));
    assert_eq!(promise(&backing), LINE_SAFE);
    assert!(backing.reason.contains("host") && backing.reason.contains("2 ranges"), "{}", backing.reason);
}

#[test]
fn cpu_without_flush_cannot_promise_lines() {
    let machine = Machine::new();
    machine.region("region0", "memory_controller\n");
    machine.pmem("259:0", "region0", "pmem0");
    let detector = Detector { flush: FlushInstruction::Missing, ..machine.detector() };
    assert_eq!(detector.backing(&file((259, 0), EXT4, true)).durability, Durability::PersistenceUnknown);
    machine.region("region0", "cpu_cache\n");
    assert_eq!(detector.backing(&file((259, 0), EXT4, true)).durability, Durability::PowerFailSafe);
}

#[test]
fn device_dax_has_size_alignment_and_domain() {
    let machine = Machine::new();
    let directory = format!("{NVDIMM_BUS}/region1/dax1.0/dax/dax1.0");
    machine.device("char", "249:0", &directory);
    machine.region("region1", "memory_controller\n");
    machine.put(&format!("{directory}/size"), "1073741824\n");
    fs::create_dir_all(machine.root.path().join("bus/dax")).unwrap();
    symlink(machine.root.path().join("bus/dax"), machine.root.path().join(&directory).join("subsystem")).unwrap();
    let found = machine.detector().device_dax((249, 0));
    assert_eq!(found, Some(DeviceDax { size_bytes: 1 << 30, alignment_bytes: 2 << 20 }), "the default alignment");

    symlink("../..", machine.root.path().join(&directory).join("device")).unwrap();
    machine.put(&format!("{NVDIMM_BUS}/region1/dax1.0/align"), "4096\n");
    assert_eq!(machine.detector().device_dax((249, 0)).unwrap().alignment_bytes, 4096, "the parent's");
    machine.put(&format!("{directory}/align"), "1073741824\n");
    assert_eq!(machine.detector().device_dax((249, 0)).unwrap().alignment_bytes, 1 << 30, "its own");

    let subject =
        Subject { path: Path::new("/dev/dax1.0"), device: (249, 0), kind: SubjectKind::DeviceDax, map_sync: true };
    let backing = machine.detector().backing(&subject);
    assert_eq!((promise(&backing), backing.filesystem.as_str()), (LINE_SAFE, "device-dax"));
}

#[test]
fn other_character_devices_are_no_device_dax() {
    let machine = Machine::new();
    machine.device("char", "1:3", "devices/virtual/mem/null");
    fs::create_dir_all(machine.root.path().join("class/mem")).unwrap();
    let link = machine.root.path().join("devices/virtual/mem/null/subsystem");
    symlink(machine.root.path().join("class/mem"), link).unwrap();
    machine.put("devices/virtual/mem/null/size", "4096\n");
    assert_eq!(machine.detector().device_dax((1, 3)), None);
    assert_eq!(machine.detector().device_dax((9, 9)), None);
}
