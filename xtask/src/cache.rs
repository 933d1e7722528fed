//! The cache: everything that was fetched or prepared, safe to delete at any time.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::Workspace;

/// `$REMANENT_CACHE`, else `~/.cache/remanent`, else a folder beside what cargo builds.
pub(crate) fn folder(workspace: &Workspace) -> PathBuf {
    if let Some(cache) = std::env::var_os("REMANENT_CACHE") {
        return cache.into();
    }
    match std::env::var_os("HOME") {
        Some(home) => Path::new(&home).join(".cache/remanent"),
        None => workspace.target().join("cache"),
    }
}

/// Makes `place` unless it is there: `make` writes to a temporary name, which is renamed when it is whole.
///
/// What an interrupted run left under the temporary name is removed first, so nothing half-made is ever used.
pub(crate) fn place(place: &Path, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
    if place.exists() {
        return Ok(());
    }
    let mut temporary = place.as_os_str().to_owned();
    temporary.push(".part");
    let temporary = Path::new(&temporary);
    remove(temporary)?;
    let parent = place.parent().expect("a place in the cache has a folder");
    fs::create_dir_all(parent).map_err(|error| format!("{} cannot be made: {error}", parent.display()))?;
    make(temporary)?;
    fs::rename(temporary, place).map_err(|error| format!("{} cannot be placed: {error}", place.display()))
}

/// Removes a file or a folder with all that is in it; nothing there is fine too.
pub(crate) fn remove(path: &Path) -> Result<(), String> {
    let result = if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{} cannot be removed: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interrupted_make_left_is_never_used() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = folder.path().join("sub/thing");
        let broken = place(&wanted, |path| fs::write(path, "half").map_err(|e| e.to_string()).and(Err("cut".into())));
        assert_eq!(broken, Err("cut".into()));
        assert!(!wanted.exists());
        place(&wanted, |path| fs::write(path, "whole").map_err(|e| e.to_string())).unwrap();
        assert_eq!(fs::read_to_string(&wanted).unwrap(), "whole");
        place(&wanted, |_| panic!("it is there already")).unwrap();
    }
}
