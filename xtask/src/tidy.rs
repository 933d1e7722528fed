//! `tidy`: what the cache and the target folder hold, and removal of what no run will use again.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cache;
use crate::workspace::Workspace;

/// Folders of the cache in which things lie that are replaced by others; the empty name is the cache itself.
const PLACES: [&str; 3] = ["", "chroot", "tools"];

/// How the names of things begin of which only the newest is used: the rest of the name is a version or a key.
const KEYED: [&str; 7] =
    ["venv-", "kernel-cloud-", "kernel-full-", "busybox-", "mdbook-", "freethreaded-packages-", "freethreaded-python-"];

/// Lists and removes; tells whether all removals succeeded.
pub(crate) fn run(workspace: &Workspace) -> bool {
    let folder = cache::folder(workspace);
    let venv = std::env::var_os("REMANENT_VENV").map(PathBuf::from);
    let mut all_removed = true;
    for path in PLACES.iter().flat_map(|place| stale(&folder.join(place), venv.as_deref())) {
        println!("removing {} ({} MiB)", path.display(), size_bytes(&path) >> 20);
        if let Err(reason) = cache::remove(&path) {
            println!("{reason}");
            all_removed = false;
        }
    }
    for path in entries(&folder).into_iter().chain([workspace.target()]) {
        println!("{:6} MiB  {}", size_bytes(&path) >> 20, path.display());
    }
    all_removed
}

/// What no run will use again: half-made things, bare systems of runs that were killed, and all but one of each keyed
/// kind. That one is the newest, of environments the one that `./run` names, if it can.
fn stale(folder: &Path, venv: Option<&Path>) -> Vec<PathBuf> {
    let (mut stale, whole): (Vec<_>, Vec<_>) = entries(folder).into_iter().partition(|path| is_abandoned(path));
    for kind in KEYED {
        let of_kind = || whole.iter().filter(|path| name(path).starts_with(kind));
        let newest = of_kind().max_by_key(|path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok());
        let used = if kind == "venv-" { venv.or(newest.map(PathBuf::as_path)) } else { newest.map(PathBuf::as_path) };
        stale.extend(of_kind().filter(|path| Some(path.as_path()) != used).cloned());
    }
    stale
}

fn is_abandoned(path: &Path) -> bool {
    let name = name(path);
    let running = |id: &str| Path::new("/proc").join(id).exists();
    name.ends_with(".part") || name.strip_prefix("run-").is_some_and(|id| !running(id))
}

fn name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn size_bytes(path: &Path) -> u64 {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => entries(path).iter().map(|entry| size_bytes(entry)).sum(),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use tempfile::TempDir;

    use super::*;

    /// A folder with these entries, each made an hour after the one before.
    fn folder_with(names: &[&str]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (hour, name) in names.iter().enumerate() {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            let made = SystemTime::UNIX_EPOCH + Duration::from_secs(3600 * hour as u64);
            fs::File::open(path).unwrap().set_modified(made).unwrap();
        }
        folder
    }

    fn stale_names(folder: &TempDir, venv: Option<&str>) -> Vec<String> {
        let venv = venv.map(|name| folder.path().join(name));
        let mut names: Vec<_> =
            stale(folder.path(), venv.as_deref()).iter().map(|path| name(path).into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_the_newest_of_each_kind_stays() {
        let folder = folder_with(&[
            "kernel-full-6.1.0-9",
            "kernel-cloud-6.1.0-9",
            "kernel-full-6.1.0-56",
            "busybox-2",
            "busybox-1",
            "journal",
            "mdbook-0.5.4",
        ]);
        assert_eq!(stale_names(&folder, None), ["busybox-2", "kernel-full-6.1.0-9"]);
    }

    #[test]
    fn of_the_environments_the_one_in_use_stays() {
        let folder = folder_with(&["venv-used", "venv-old", "venv-newer"]);
        assert_eq!(stale_names(&folder, Some("venv-used")), ["venv-newer", "venv-old"]);
        assert_eq!(stale_names(&folder, None), ["venv-old", "venv-used"], "which one is in use is not known");
    }

    #[test]
    fn what_nobody_works_on_any_more_goes() {
        let own = format!("run-{}", std::process::id());
        let folder = folder_with(&["venv-a", "venv-b.part", "base-bookworm", "run-0", &own, "run.lock"]);
        assert_eq!(stale_names(&folder, None), ["run-0", "venv-b.part"]);
    }
}
