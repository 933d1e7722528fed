//! The folder of one run: the kernel, the initramfs and the devices of its machines.

use std::fs;
use std::path::{Path, PathBuf};

use super::images;
use super::initramfs::Archive;
use super::kernel::{Flavour, Kernel};
use super::packages::{self, Package};
use super::programs::Programs;
use crate::cache;
use crate::step::Outcome;
use crate::workspace::Workspace;

/// Commands that the core's tests call, all of them one program.
const COMMANDS: [&str; 7] = ["cp", "ls", "mkfifo", "mount", "sh", "true", "umount"];

/// A folder that is removed when the run ends.
pub(super) struct Site<'a> {
    workspace: &'a Workspace,
    folder: PathBuf,
    /// Where the logs of a failure go.
    kept: PathBuf,
}

impl Site<'_> {
    /// Makes everything but the devices; else says why the lane cannot run, or what is wrong.
    pub(super) fn prepare(workspace: &Workspace) -> Result<Site<'_>, Outcome> {
        let mut kernels = Vec::new();
        for flavour in Flavour::ALL {
            kernels.push((flavour, Kernel::fetch(workspace, flavour).map_err(Outcome::NotRun)?));
        }
        let busybox = fetch_busybox(workspace).map_err(Outcome::NotRun)?;
        let programs = Programs::build(workspace).map_err(super::failed)?;
        let kept = workspace.target().join("dax");
        remove_leftovers(&kept).map_err(super::failed)?;
        let folder = kept.join(format!("run-{}", std::process::id()));
        let site = Site { workspace, folder, kept };
        fs::create_dir_all(&site.folder).map_err(|error| super::failed(error.to_string()))?;
        for (flavour, kernel) in &kernels {
            // Each machine unpacks all of its initramfs, so the tests are only where they run.
            let tests = if *flavour == Flavour::Full { &programs.tests[..] } else { &[] };
            let archive = initramfs(kernel, &programs.guest, tests, &busybox).map_err(super::failed)?;
            site.add_kernel(*flavour, kernel, &archive).map_err(|error| super::failed(error.to_string()))?;
        }
        Ok(site)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn add_kernel(&self, flavour: Flavour, kernel: &Kernel, initramfs: &[u8]) -> std::io::Result<()> {
        fs::copy(kernel.image(), self.folder.join(format!("vmlinuz-{}", flavour.name())))?;
        fs::write(self.folder.join(format!("initramfs-{}", flavour.name())), initramfs)
    }

    pub(super) fn make_fs_dax(&self, file: &str, size_mib: u64, label: &str) -> Result<(), String> {
        images::fs_dax(self.workspace, &self.new_file(file)?, size_mib, label)
    }

    pub(super) fn make_device_dax(&self, file: &str, size_mib: u64) -> Result<(), String> {
        images::device_dax(self.workspace, &self.new_file(file)?, size_mib)
    }

    pub(super) fn make_plain(&self, file: &str, size_mib: u64, label: &str) -> Result<(), String> {
        images::plain(self.workspace, &self.new_file(file)?, size_mib, label)
    }

    /// Nothing of an earlier device shows through.
    fn new_file(&self, file: &str) -> Result<PathBuf, String> {
        let path = self.folder.join(file);
        cache::remove(&path)?;
        Ok(path)
    }

    /// Keeps the logs of a machine after a failure, and says where.
    pub(super) fn keep_logs(&self, machine: &str) -> String {
        let mut kept = Vec::new();
        for kind in ["console", "report", "qemu"] {
            let name = format!("{machine}.{kind}.log");
            if fs::copy(self.folder.join(&name), self.kept.join(&name)).is_ok() {
                kept.push(name);
            }
        }
        format!("logs in {}: {}", self.kept.display(), kept.join(", "))
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        if let Err(reason) = cache::remove(&self.folder) {
            eprintln!("dax: {reason}");
        }
    }
}

/// Folders of runs that were killed.
fn remove_leftovers(folder: &Path) -> Result<(), String> {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.strip_prefix("run-").is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            cache::remove(&path)?;
        }
    }
    Ok(())
}

fn fetch_busybox(workspace: &Workspace) -> Result<PathBuf, String> {
    const PACKAGE: &str = "busybox-static";
    let newest = Package::newest(workspace, PACKAGE);
    let keep = |unpacked: &Path, place: &Path| fs::rename(unpacked.join("bin/busybox"), place.join("busybox"));
    packages::fetch(workspace, "busybox", newest, keep).map(|folder| folder.join("busybox"))
}

fn initramfs(kernel: &Kernel, guest: &Path, tests: &[PathBuf], busybox: &Path) -> Result<Vec<u8>, String> {
    let mut archive = Archive::new();
    archive.file("init", guest)?;
    archive.folder("bin");
    archive.file("bin/busybox", busybox)?;
    COMMANDS.iter().for_each(|command| archive.link(&format!("bin/{command}"), "busybox"));
    archive.folder("modules");
    for (index, module) in kernel.modules()?.iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("modules/{index:02}-{name}"), module)?;
    }
    archive.folder("tests");
    for test in tests {
        let name = test.file_name().unwrap_or_default().to_string_lossy();
        // Without the hash that cargo adds.
        let name = name.rsplit_once('-').map_or(&*name, |(name, _)| name);
        archive.file(&format!("tests/{name}"), test)?;
    }
    Ok(archive.finish())
}
