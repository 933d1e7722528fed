//! Files that are the guest's devices.
//!
//! An NVDIMM without labels is used raw, unless an info block at its start says otherwise: 4 KiB at byte 4096 that make
//! it an fs-DAX or a device-DAX namespace. Both keep 2 MiB for themselves and leave the rest, so a file system is made
//! at an offset, from outside.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::packages::done;
use crate::workspace::Workspace;

/// What a namespace keeps for its info block, and the alignment of what is left.
const HEAD_MIB: u64 = 2;
const BLOCKS_PER_MIB: u64 = 256;

/// An NVDIMM with an fs-DAX namespace and an ext4 in it.
pub(super) fn fs_dax(workspace: &Workspace, path: &Path, size_mib: u64, label: &str) -> Result<(), String> {
    allocate(workspace, path, size_mib)?;
    write_info_block(workspace, path, size_mib, "fsdax")?;
    make_ext4(workspace, path, HEAD_MIB, size_mib - HEAD_MIB, label)
}

/// An NVDIMM with a device-DAX namespace.
pub(super) fn device_dax(workspace: &Workspace, path: &Path, size_mib: u64) -> Result<(), String> {
    allocate(workspace, path, size_mib)?;
    write_info_block(workspace, path, size_mib, "devdax")
}

/// The host's side of a virtio-pmem device: a file system and nothing else.
pub(super) fn plain(workspace: &Workspace, path: &Path, size_mib: u64, label: &str) -> Result<(), String> {
    allocate(workspace, path, size_mib)?;
    make_ext4(workspace, path, 0, size_mib, label)
}

/// Never sparse: a full disk under a mapping would end QEMU by a signal.
fn allocate(workspace: &Workspace, path: &Path, size_mib: u64) -> Result<(), String> {
    done(workspace.command("fallocate").args(["-l", &format!("{size_mib}MiB")]).arg(path))
}

fn write_info_block(workspace: &Workspace, path: &Path, size_mib: u64, mode: &str) -> Result<(), String> {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(|error| error.to_string())?;
    let mut command = workspace.command("ndctl");
    command.args(["write-infoblock", "--stdout", "-m", mode, "-M", "mem", "-a", "2M"]);
    command.args(["-s", &format!("{size_mib}M"), "-u", uuid.trim()]);
    let output = command.output().map_err(|error| format!("ndctl does not start: {error}"))?;
    if !output.status.success() || output.stdout.is_empty() {
        return Err(format!("{}\nndctl made no info block", String::from_utf8_lossy(&output.stderr)));
    }
    let file = File::options().write(true).open(path);
    file.and_then(|file| file.write_all_at(&output.stdout, 0)).map_err(|error| format!("{}: {error}", path.display()))
}

fn make_ext4(workspace: &Workspace, path: &Path, at_mib: u64, size_mib: u64, label: &str) -> Result<(), String> {
    let extended = format!("offset={},nodiscard,lazy_itable_init=0,lazy_journal_init=0", at_mib << 20);
    let mut command = workspace.command("mkfs.ext4");
    // DAX needs blocks of a page. Newer tools switch on features that the guest's kernel does not know.
    command.args(["-q", "-F", "-b", "4096", "-L", label, "-O", "^metadata_csum_seed,^orphan_file", "-E", &extended]);
    done(command.arg(path).arg((size_mib * BLOCKS_PER_MIB).to_string()))
}
