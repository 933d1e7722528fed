//! `tidy`: what the cache and the target folder hold, and removal of what no run will use again.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache;
use crate::workspace::Workspace;

/// Lists and removes; tells whether all removals succeeded.
pub(crate) fn run(workspace: &Workspace) -> bool {
    let folder = cache::folder(workspace);
    let venv = std::env::var_os("REMANENT_VENV").map(PathBuf::from);
    let mut all_removed = true;
    for path in entries(&folder).into_iter().chain(entries(&folder.join("chroot"))) {
        if !is_stale(&path, venv.as_deref()) {
            continue;
        }
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

/// Half-made things, bare systems of runs that were killed, and environments of other requirements.
fn is_stale(path: &Path, venv: Option<&Path>) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let running = |id: &str| Path::new("/proc").join(id).exists();
    match name.strip_prefix("run-") {
        Some(id) => !running(id),
        None => name.ends_with(".part") || (name.starts_with("venv-") && venv.is_some_and(|venv| venv != path)),
    }
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
    use super::*;

    #[test]
    fn only_what_no_run_will_use_again_is_stale() {
        let venv = Path::new("/c/venv-new");
        let own = format!("/c/chroot/run-{}", std::process::id());
        let cases = [
            ("/c/venv-new", false),
            ("/c/venv-old", true),
            ("/c/venv-new.part", true),
            ("/c/journal", false),
            ("/c/chroot/base-bookworm", false),
            ("/c/chroot/run-0", true),
            (own.as_str(), false),
        ];
        for (path, expected) in cases {
            assert_eq!(is_stale(Path::new(path), Some(venv)), expected, "{path}");
        }
        assert!(!is_stale(Path::new("/c/venv-old"), None), "which one is in use is not known");
    }
}
