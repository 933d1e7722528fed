//! The first process: kernel modules, devices, mounts, and the end of the machine.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::system::{RebootCommand, finit_module, reboot};

use crate::checks::Check;
use crate::powercut;
use crate::report::Report;

/// Where a file system with this label is mounted, and how it is asked for.
const MOUNTS: [(&str, &CStr); 3] =
    [("first", c"dax=always,commit=300"), ("second", c"dax=always,commit=300"), ("virtio", c"dax=always")];

/// Byte offset and length of the volume name in the super block of ext4 (Documentation/filesystems/ext4/super.rst).
const LABEL_AT: u64 = 1024 + 0x78;
const LABEL_BYTES: usize = 16;

/// Runs the scene and ends the machine, whatever happens.
pub(crate) fn run_and_power_off() {
    if let Err(panic) = std::panic::catch_unwind(run_scene) {
        let _ = panic;
        eprintln!("the first process of the guest panicked");
    }
    rustix::fs::sync();
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        eprintln!("the machine does not power off: {error}");
    }
}

fn run_scene() {
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        attach(kind, Path::new(place), kind, c"");
    }
    load_modules();
    let settings = Settings::read();
    let mut report = Report::open();
    wait_for_devices(settings.number("devices"));
    mount_all();
    match settings.text("scene") {
        "powercut" => {
            let control = settings.0.contains_key("control").then(|| settings.number("control"));
            powercut::run(&mut report, settings.number("seed"), settings.number("boot"), control);
        }
        scene => run_checks(&mut report, scene),
    }
}

fn run_checks(report: &mut Report, scene: &str) {
    let checks: Vec<&Check> = Check::of_scene(scene).collect();
    let programs = if scene == "mapped" { test_programs() } else { Vec::new() };
    report.line(&format!("plan {}", checks.len() + programs.len()));
    for check in checks {
        report.line(&check.run_apart());
    }
    for program in programs {
        report.line(&crate::checks::run_test_program(&program));
    }
    report.line("end");
}

/// `remanent.NAME=VALUE` of the kernel's command line.
struct Settings(BTreeMap<String, String>);

impl Settings {
    fn read() -> Settings {
        let line = fs::read_to_string("/proc/cmdline").expect("/proc is mounted");
        let words = line.split_whitespace().filter_map(|word| word.strip_prefix("remanent.")?.split_once('='));
        Settings(words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("the command line has no remanent.{name}"))
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or_else(|_| panic!("remanent.{name} is no number"))
    }
}

/// In the order of their names, which is the order of their dependencies.
fn load_modules() {
    for module in sorted_entries("/modules") {
        let file = File::open(&module).expect("a module of the initramfs");
        if let Err(error) = finit_module(&file, c"", 0) {
            eprintln!("{} is not loaded: {error}", module.display());
        }
    }
}

/// Drivers find their devices in their own time.
fn wait_for_devices(number: u64) {
    const TRIES: u32 = 1000;
    let is_there = || devices().count() as u64 >= number;
    for _ in 0..TRIES {
        if is_there() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("the machine has {} of {number} devices", devices().count());
}

fn devices() -> impl Iterator<Item = PathBuf> {
    sorted_entries("/dev").into_iter().filter(|path| name_of(path).starts_with("pmem") || is_device_dax(path))
}

fn is_device_dax(path: &Path) -> bool {
    name_of(path).starts_with("dax")
}

/// Mounts every file system that is known by its label, and a tmpfs.
fn mount_all() {
    for device in devices().filter(|path| !is_device_dax(path)) {
        let label = label_of(&device);
        if let Some((label, options)) = MOUNTS.iter().find(|(known, _)| *known == label) {
            attach_device(&device, &Path::new("/").join(label), options);
        }
    }
    attach("tmpfs", Path::new("/memory"), "tmpfs", c"");
    attach("tmpfs", Path::new("/dev/shm"), "tmpfs", c"");
}

/// Mounts a file system anew with other options, and returns the device.
pub(crate) fn mount_again(place: &Path, options: &CStr) {
    let device = device_of(place);
    unmount(place, UnmountFlags::empty()).unwrap_or_else(|error| panic!("{} is in use: {error}", place.display()));
    attach_device(&device, place, options);
}

/// Mounts an overlay whose both layers lie in a folder.
pub(crate) fn mount_overlay(place: &Path, layers: &Path) {
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| {
        let layer = layers.join(name);
        fs::create_dir_all(&layer).expect("the file system of the layers can be written");
        layer.display().to_string()
    });
    let options = CString::new(format!("lowerdir={lower},upperdir={upper},workdir={work}")).expect("plain names");
    attach("overlay", place, "overlay", &options);
}

/// The device that is mounted at a place.
pub(crate) fn device_of(place: &Path) -> PathBuf {
    let mounts = fs::read_to_string("/proc/mounts").expect("/proc is mounted");
    let columns = mounts.lines().filter_map(|line| line.split_once(' '));
    let (device, _) = columns
        .into_iter()
        .find(|(_, rest)| rest.split(' ').next() == place.to_str())
        .unwrap_or_else(|| panic!("nothing is mounted at {}", place.display()));
    PathBuf::from(device)
}

/// The one device-DAX device of the machine.
pub(crate) fn device_dax() -> Option<PathBuf> {
    devices().find(|path| is_device_dax(path))
}

fn attach_device(device: &Path, place: &Path, options: &CStr) {
    attach(device.to_str().expect("devices have plain names"), place, "ext4", options);
}

fn attach(source: &str, place: &Path, kind: &str, options: &CStr) {
    fs::create_dir_all(place).expect("the root of the guest can be written");
    mount(source, place, kind, MountFlags::empty(), options)
        .unwrap_or_else(|error| panic!("{source} cannot be mounted at {}: {error}", place.display()));
}

fn label_of(device: &Path) -> String {
    let mut label = [0; LABEL_BYTES];
    let read = File::open(device).and_then(|file| file.read_exact_at(&mut label, LABEL_AT));
    read.map(|()| String::from_utf8_lossy(&label).trim_end_matches('\0').to_owned()).unwrap_or_default()
}

/// Test programs of the core, which the host has put into the initramfs.
fn test_programs() -> Vec<PathBuf> {
    sorted_entries("/tests")
}

fn sorted_entries(folder: &str) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
