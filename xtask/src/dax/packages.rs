//! Debian packages in the cache: downloaded and unpacked, never installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;
use crate::workspace::Workspace;

/// A package by its name and version.
#[derive(Debug, PartialEq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
}

impl Package {
    /// The newest version that apt knows.
    pub(super) fn newest(workspace: &Workspace, name: &str) -> Result<Package, String> {
        let record = record(workspace, name)?;
        let version = field(&record, "Version").ok_or_else(|| unknown(name))?;
        Ok(Package { name: name.to_owned(), version: version.to_owned() })
    }

    /// The package that another one depends on in exactly one version.
    pub(super) fn behind(workspace: &Workspace, meta_package: &str) -> Result<Package, String> {
        dependency(&record(workspace, meta_package)?).ok_or_else(|| unknown(meta_package))
    }
}

/// The folder in the cache that holds what `keep` has taken, into its second argument, out of the unpacked package.
///
/// Without apt's lists or a network, what an earlier run has fetched will do.
pub(super) fn fetch(
    workspace: &Workspace,
    kind: &str,
    newest: Result<Package, String>,
    keep: impl Fn(&Path, &Path) -> std::io::Result<()>,
) -> Result<PathBuf, String> {
    let folder = cache::folder(workspace);
    let fetched = newest.and_then(|package| {
        let place = folder.join(format!("{kind}-{}_{}", package.name, package.version.replace(':', "%3a")));
        cache::place(&place, |temporary| download(workspace, &package, temporary, &keep))?;
        Ok(place)
    });
    fetched.or_else(|reason| cached(&folder, kind).ok_or(reason))
}

fn cached(folder: &Path, kind: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_whole = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{kind}-")) && !name.ends_with(".part")
    };
    entries.filter(is_whole).max()
}

fn download(
    workspace: &Workspace,
    package: &Package,
    place: &Path,
    keep: impl Fn(&Path, &Path) -> std::io::Result<()>,
) -> Result<(), String> {
    println!("dax: fetching {} {}", package.name, package.version);
    let failed = |error: std::io::Error| format!("{}: {error}", place.display());
    let unpacked = place.join("unpacked");
    fs::create_dir_all(&unpacked).map_err(failed)?;
    let mut command = workspace.command("apt-get");
    command.args(["download", "-qq", &format!("{}={}", package.name, package.version)]).current_dir(place);
    done(&mut command).map_err(|said| format!("{said}\nit could not be fetched; run apt-get update"))?;
    let archive = entry(place, |name| name.ends_with(".deb")).map_err(failed)?;
    done(workspace.command("dpkg").arg("-x").arg(&archive).arg(&unpacked))?;
    keep(&unpacked, place).map_err(failed)?;
    cache::remove(&unpacked).and_then(|()| cache::remove(&archive))
}

/// The one entry of a folder whose name is wanted.
pub(super) fn entry(folder: &Path, wanted: impl Fn(&str) -> bool) -> std::io::Result<PathBuf> {
    let mut entries = fs::read_dir(folder)?.flatten();
    let found = entries.find(|entry| wanted(&entry.file_name().to_string_lossy()));
    found.map(|entry| entry.path()).ok_or(std::io::ErrorKind::NotFound.into())
}

fn record(workspace: &Workspace, name: &str) -> Result<String, String> {
    let mut command = workspace.command("apt-cache");
    command.args(["show", "--no-all-versions", name]).env("LC_ALL", "C");
    let output = command.output().map_err(|error| format!("apt-cache does not start: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn unknown(name: &str) -> String {
    format!("apt knows no {name}; run apt-get update")
}

fn field<'a>(record: &'a str, name: &str) -> Option<&'a str> {
    record.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Reads `Depends: linux-image-6.1.0-1-amd64 (= 6.1.2-3)`.
fn dependency(record: &str) -> Option<Package> {
    let (name, rest) = field(record, "Depends")?.split_once(" (= ")?;
    let (version, _) = rest.split_once(')')?;
    Some(Package { name: name.to_owned(), version: version.to_owned() })
}

/// Runs a command that must succeed.
pub(super) fn done(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?} does not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}\n{command:?} failed", String::from_utf8_lossy(&output.stderr).trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_the_version_and_what_the_package_stands_for() {
        let record = "Package: linux-image-amd64\nDepends: linux-image-6.1.0-56-amd64 (= 6.1.192-2)\nVersion: 6.1\n";
        assert_eq!(field(record, "Version"), Some("6.1"));
        let expected = Package { name: "linux-image-6.1.0-56-amd64".into(), version: "6.1.192-2".into() };
        assert_eq!(dependency(record), Some(expected));
        assert_eq!(dependency("Package: x\nDepends: y\n"), None);
    }

    #[test]
    fn without_a_network_the_last_whole_package_will_do() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["kernel-full-a_1", "kernel-full-a_2", "kernel-full-a_3.part", "kernel-slim-b_9"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(cached(folder.path(), "kernel-full"), Some(folder.path().join("kernel-full-a_2")));
        assert_eq!(cached(folder.path(), "other"), None);
    }
}
