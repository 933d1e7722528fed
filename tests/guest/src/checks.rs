//! The table of checks, and how one is run so that its death is a result.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::{damage, device, machine, storage, stripe};

/// A check passes, or panics with what is wrong.
pub(crate) struct Check {
    name: &'static str,
    scene: &'static str,
    /// Variables of its process.
    environment: &'static [(&'static str, &'static str)],
    run: fn(),
}

const fn check(scene: &'static str, name: &'static str, run: fn()) -> Check {
    Check { name, scene, environment: &[], run }
}

const CHECKS: &[Check] = &[
    check("mapped", "ext4 with DAX: MAP_SYNC, cache lines, power-fail safe", storage::ext4_with_dax),
    check("mapped", "tmpfs: emulated, process-crash safe", storage::tmpfs),
    check("mapped", "virtio-pmem: MAP_SYNC refused, pages", storage::virtio_pmem),
    check("mapped", "overlayfs: pages, persistence unknown", storage::overlay),
    check("mapped", "device-DAX: a pool on a whole device", device::whole_device),
    check("mapped", "device-DAX: sizes and content that do not fit are refused", device::refusals),
    check("mapped", "two devices: striped, and both used", stripe::two_devices),
    check("mapped", "poisoned page under a mapping", damage::poisoned_under_a_mapping),
    check("mapped", "poisoned page, found at open", damage::poisoned_before_open),
    check("mapped", "file truncated under a mapping", damage::truncated_under_a_mapping),
    // It mounts the second device anew, which is in use until here.
    check("mapped", "ext4 with dax=never: pages, power-fail safe", storage::ext4_without_dax),
    check("eadr", "eADR: bytes, power-fail safe", storage::eadr),
    check("unknown", "no persistence domain: mapped, persistence unknown", storage::unknown_domain),
    Check {
        name: "no persistence domain: power-fail safe by the administrator's assertion",
        scene: "unknown",
        environment: &[("REMANENT_ASSUME_PERSISTENT", "/first/pool:/first/asserted")],
        run: storage::asserted_domain,
    },
];

impl Check {
    pub(crate) fn of_scene(scene: &str) -> impl Iterator<Item = &'static Check> {
        CHECKS.iter().filter(move |check| check.scene == scene)
    }

    pub(crate) fn find(name: &str) -> &'static Check {
        CHECKS.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("there is no check {name:?}"))
    }

    pub(crate) fn run_here(&self) {
        (self.run)();
    }

    /// Runs it in a process of its own; returns the line for the host.
    pub(crate) fn run_apart(&self) -> String {
        let mut command = Command::new("/init");
        command.args(["check", self.name]).envs(self.environment.iter().copied());
        result_line(self.name, &mut command)
    }
}

/// Runs a test program of the core on the first device, one test at a time, for the devices are small.
pub(crate) fn run_test_program(path: &Path) -> String {
    let folder = Path::new("/first/tests");
    std::fs::create_dir_all(folder).expect("the first device is mounted");
    let mut command = Command::new(path);
    command.arg("--test-threads=1").env("TMPDIR", folder);
    if let Some(device) = machine::device_dax() {
        command.env("REMANENT_TEST_DEVICE_DAX", device);
    }
    let name = format!("the core's tests on DAX: {}", path.file_name().unwrap_or_default().to_string_lossy());
    match run(&name, &mut command) {
        Ok(said) => format!("pass {name}: {}", summary(&said)),
        Err(reason) => format!("fail {name}: {reason}"),
    }
}

/// What a test program counts in its last lines: a test that was left out has not passed.
fn summary(said: &str) -> &str {
    let counts = said.lines().rev().find_map(|line| line.trim().strip_prefix("test result: ok. "));
    counts.and_then(|line| line.split("; 0 measured").next()).unwrap_or("it counts no tests")
}

fn result_line(name: &str, command: &mut Command) -> String {
    match run(name, command) {
        Ok(_) => format!("pass {name}"),
        Err(reason) => format!("fail {name}: {reason}"),
    }
}

/// Runs a program to its end; returns what it said, or why it has failed.
fn run(name: &str, command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("it does not start: {error}"))?;
    let said = said(&output);
    eprintln!("---- {name}: {}\n{said}", output.status);
    if output.status.success() { Ok(said) } else { Err(format!("{}: {said}", output.status)) }
}

fn said(output: &Output) -> String {
    let text = [&output.stdout, &output.stderr].map(|stream| String::from_utf8_lossy(stream).into_owned()).concat();
    text.trim().to_owned()
}
