//! Scenes of checks: one machine each, and a line for every check that the guest makes.

use super::kernel::Flavour;
use super::machine::{Device, Machine};
use super::site::Site;
use crate::counts::Counts;

/// A machine and what is checked in it.
struct Scene {
    /// As the guest knows it.
    name: &'static str,
    kernel: Flavour,
    persistence: Option<&'static str>,
    devices: &'static [Device],
}

/// ext4 on NVDIMMs, device-DAX, virtio-pmem.
const FIRST: Device = Device::Nvdimm("first.img", 512);
const SECOND: Device = Device::Nvdimm("second.img", 128);
const WHOLE: Device = Device::Nvdimm("whole.img", 128);
const VIRTIO: Device = Device::VirtioPmem("virtio.img", 128);
const SMALL: Device = Device::Nvdimm("small.img", 128);

const SCENES: [Scene; 3] = [
    Scene {
        name: "mapped",
        kernel: Flavour::Full,
        persistence: Some("mem-ctrl"),
        devices: &[FIRST, SECOND, WHOLE, VIRTIO],
    },
    Scene { name: "eadr", kernel: Flavour::Cloud, persistence: Some("cpu"), devices: &[SMALL] },
    Scene { name: "unknown", kernel: Flavour::Cloud, persistence: None, devices: &[SMALL] },
];

/// Runs all scenes, prints a line for each check, and returns the counts and what failed.
pub(super) fn run(site: &Site) -> (Counts, Vec<String>) {
    let (mut counts, mut failures) = (Counts::default(), Vec::new());
    for scene in &SCENES {
        let mut tally = Tally::default();
        let ended = scene.run(site, &mut tally);
        counts.passed += tally.passed;
        failures.extend(tally.failures);
        if let Err(reason) = ended {
            failures.push(format!("scene {}: {reason}", scene.name));
        }
        if failures.len() as u64 > counts.failed {
            counts.failed = failures.len() as u64;
            failures.last_mut().expect("it has failed").push_str(&format!("\n{}", site.keep_logs(scene.name)));
        }
    }
    (counts, failures)
}

impl Scene {
    fn run(&self, site: &Site, tally: &mut Tally) -> Result<(), String> {
        for device in self.devices {
            make(site, device)?;
        }
        let settings = [("scene", self.name.to_owned())];
        let Scene { name, kernel, devices, persistence } = *self;
        let mut machine =
            Machine { folder: site.folder(), name, kernel, devices, persistence, settings: &settings }.start()?;
        while let Some(line) = machine.next_line()? {
            tally.hear(&line);
        }
        tally.end()
    }
}

/// The label of a file system is where the guest mounts it.
fn make(site: &Site, device: &Device) -> Result<(), String> {
    match *device {
        Device::VirtioPmem(file, size_mib) => site.make_plain(file, size_mib, "virtio"),
        Device::Nvdimm(file @ "whole.img", size_mib) => site.make_device_dax(file, size_mib),
        Device::Nvdimm(file @ "second.img", size_mib) => site.make_fs_dax(file, size_mib, "second"),
        Device::Nvdimm(file, size_mib) => site.make_fs_dax(file, size_mib, "first"),
    }
}

/// What the guest has reported so far.
#[derive(Default)]
struct Tally {
    planned: Option<u64>,
    passed: u64,
    failures: Vec<String>,
    is_over: bool,
}

impl Tally {
    fn hear(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("plan", number)) => self.planned = number.parse().ok(),
            Some(("pass", name)) => {
                println!("dax: {name}: ok");
                self.passed += 1;
            }
            Some(("fail", text)) => self.failures.push(text.replace(" | ", "\n")),
            None if line == "end" => self.is_over = true,
            _ => self.failures.push(format!("the guest says: {line}")),
        }
    }

    /// A guest that dies has not passed, whatever it has reported until then.
    fn end(&self) -> Result<(), String> {
        let reported = self.passed + self.failures.len() as u64;
        match self.planned {
            Some(planned) if planned > 0 && planned == reported && self.is_over => Ok(()),
            Some(planned) => Err(format!("the guest has reported {reported} of {planned} results")),
            None => Err("the guest has reported nothing".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.hear(line));
        tally
    }

    #[test]
    fn a_guest_that_dies_half_way_has_not_passed() {
        tally(&["plan 2", "pass a", "fail b: why", "end"]).end().unwrap();
        for lines in [&["plan 2", "pass a"][..], &["plan 2", "pass a", "pass b"], &["end"], &[], &["plan 0", "end"]] {
            assert!(tally(lines).end().is_err(), "{lines:?}");
        }
    }
}
