//! Debian's kernel and the modules that the guest needs: fetched into the cache, never installed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::packages::{self, Package};
use crate::workspace::Workspace;

/// Which of Debian's kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Flavour {
    /// With few drivers: it boots in less than half the time.
    Cloud,
    /// With everything, among that the means to poison a page.
    Full,
}

impl Flavour {
    pub(super) const ALL: [Flavour; 2] = [Flavour::Cloud, Flavour::Full];

    /// Names its files, in the cache and elsewhere.
    pub(super) fn name(self) -> &'static str {
        match self {
            Flavour::Cloud => "cloud",
            Flavour::Full => "full",
        }
    }

    /// The package that depends on the newest kernel by its name and exact version.
    fn meta_package(self) -> &'static str {
        match self {
            Flavour::Cloud => "linux-image-cloud-amd64",
            Flavour::Full => "linux-image-amd64",
        }
    }
}

/// Modules that the guest asks for; what they depend on comes with them.
const WANTED: [&str; 9] =
    ["crc32c_generic", "ext4", "overlay", "nfit", "nd_pmem", "dax_pmem", "device_dax", "virtio_pci", "virtio_pmem"];

/// Folders of modules that are kept of a package, if it has them: the whole is 400 MiB.
const KEPT: [&str; 7] = ["crypto", "drivers/acpi", "drivers/dax", "drivers/nvdimm", "drivers/virtio", "fs", "lib"];

/// An unpacked kernel in the cache.
pub(super) struct Kernel {
    folder: PathBuf,
}

impl Kernel {
    pub(super) fn fetch(workspace: &Workspace, flavour: Flavour) -> Result<Kernel, String> {
        let newest = Package::behind(workspace, flavour.meta_package());
        packages::fetch(workspace, &format!("kernel-{}", flavour.name()), newest, keep).map(|folder| Kernel { folder })
    }

    pub(super) fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The files of all modules that have to be loaded, in that order.
    pub(super) fn modules(&self) -> Result<Vec<PathBuf>, String> {
        let mut files = BTreeMap::new();
        find_modules(&self.folder.join("modules"), &mut files);
        let builtin = fs::read_to_string(self.folder.join("modules.builtin")).map_err(|error| error.to_string())?;
        let builtin: Vec<String> = builtin.lines().map(|line| module_name(Path::new(line))).collect();
        let mut ordered = Vec::new();
        for name in WANTED {
            add_module(name, &files, &builtin, &mut ordered)?;
        }
        Ok(ordered)
    }
}

/// Takes what the lane needs out of an unpacked package.
fn keep(unpacked: &Path, place: &Path) -> std::io::Result<()> {
    let image = packages::entry(&unpacked.join("boot"), |name| name.starts_with("vmlinuz"))?;
    let modules = packages::entry(&unpacked.join("lib/modules"), |_| true)?;
    fs::rename(image, place.join("vmlinuz"))?;
    fs::rename(modules.join("modules.builtin"), place.join("modules.builtin"))?;
    for kept in KEPT.iter().filter(|kept| modules.join("kernel").join(kept).exists()) {
        let to = place.join("modules").join(kept);
        fs::create_dir_all(to.parent().expect("it lies in the folder of modules"))?;
        fs::rename(modules.join("kernel").join(kept), to)?;
    }
    Ok(())
}

fn find_modules(folder: &Path, files: &mut BTreeMap<String, PathBuf>) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            find_modules(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "ko") {
            files.insert(module_name(&path), path);
        }
    }
}

/// A module goes by its file's name, with underscores.
fn module_name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().replace('-', "_")
}

/// Adds a module behind all that it depends on.
fn add_module(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    builtin: &[String],
    ordered: &mut Vec<PathBuf>,
) -> Result<(), String> {
    let Some(path) = files.get(name) else {
        return if builtin.iter().any(|b| b == name) {
            Ok(())
        } else {
            Err(format!("the kernel has no module {name}"))
        };
    };
    if ordered.contains(path) {
        return Ok(());
    }
    let content = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    for dependency in dependencies(&content) {
        add_module(&dependency, files, builtin, ordered)?;
    }
    ordered.push(path.clone());
    Ok(())
}

/// The field `depends` of a module's `.modinfo` section, whose fields end with a zero byte.
fn dependencies(module: &[u8]) -> Vec<String> {
    const FIELD: &[u8] = b"\0depends=";
    let Some(at) = module.windows(FIELD.len()).position(|window| window == FIELD) else { return Vec::new() };
    let value = module[at + FIELD.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value);
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_what_they_depend_on_and_each_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = BTreeMap::new();
        for (name, depends) in
            [("top", "left,right-side"), ("left", "base"), ("right_side", "base,inside"), ("base", "")]
        {
            let path = folder.path().join(format!("{name}.ko"));
            fs::write(&path, format!("ELF\0license=GPL\0depends={depends}\0name={name}\0")).unwrap();
            files.insert(name.to_owned(), path);
        }
        let mut ordered = Vec::new();
        add_module("top", &files, &["inside".into()], &mut ordered).unwrap();
        let names: Vec<String> = ordered.iter().map(|path| module_name(path)).collect();
        assert_eq!(names, ["base", "left", "right_side", "top"]);
        assert!(add_module("absent", &files, &[], &mut ordered).is_err());
    }
}
