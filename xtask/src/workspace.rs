//! The checked-out tree: where it is, how cargo is called in it, and which files are its sources.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The tree that a task works on.
pub(crate) struct Workspace {
    root: PathBuf,
}

/// Folders that hold no sources, wherever they stand.
const SKIPPED_FOLDERS: [&str; 6] = ["target", ".git", "__pycache__", ".venv", "node_modules", "book"];

impl Workspace {
    /// The tree that this program was started in by cargo.
    pub(crate) fn find() -> Workspace {
        // Asked at run time, for a target folder may be carried to another place with its programs.
        let manifest =
            std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| OsStr::new(env!("CARGO_MANIFEST_DIR")).to_owned());
        let root = Path::new(&manifest).parent().expect("xtask stands in the workspace").to_owned();
        Workspace { root }
    }

    /// A copy of the tree, with a target folder of its own.
    pub(crate) fn copied(root: &Path) -> Workspace {
        Workspace { root: root.to_owned() }
    }

    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Workspace {
        Workspace { root: root.to_owned() }
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    pub(crate) fn has(&self, relative: &str) -> bool {
        self.path(relative).exists()
    }

    /// Content of a file of the tree, or a sentence that says why it cannot be had.
    pub(crate) fn read(&self, relative: &str) -> Result<String, String> {
        fs::read_to_string(self.path(relative)).map_err(|error| format!("{relative} cannot be read: {error}"))
    }

    /// A command in the tree's root that reads nothing from the terminal.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).stdin(Stdio::null());
        // pyo3 then does not link libpython, which a bare Debian does not have.
        command.env("PYO3_BUILD_EXTENSION_MODULE", "1");
        command
    }

    /// The cargo that runs this task.
    pub(crate) fn cargo(&self) -> Command {
        self.command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// Where cargo puts what it builds.
    pub(crate) fn target(&self) -> PathBuf {
        match std::env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => self.root.join(folder),
            None => self.path("target"),
        }
    }

    /// What `cargo metadata` says of a manifest, the dependencies for other platforms left out.
    pub(crate) fn metadata(&self, manifest: &str, extra: &[&str]) -> Result<Value, String> {
        let mut command = self.cargo();
        command.args(["metadata", "--format-version", "1", "--locked", "--manifest-path", manifest]).args(extra);
        let output = command.output().map_err(|error| format!("cargo metadata does not start: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr)));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata is unreadable: {error}"))
    }

    /// Every source file below the root with one of the extensions, relative to the root, sorted.
    pub(crate) fn sources(&self, extensions: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let name = entry.file_name();
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() && !SKIPPED_FOLDERS.iter().any(|skipped| name == *skipped) {
                    folders.push(path);
                } else if kind.is_file() && extensions.iter().any(|wanted| has_extension(&path, wanted)) {
                    found.extend(self.relative(&path));
                }
            }
        }
        found.sort();
        found
    }

    fn relative(&self, path: &Path) -> Option<String> {
        path.strip_prefix(&self.root).ok()?.to_str().map(str::to_owned)
    }
}

/// True also for a whole name such as `run`, which has no extension.
fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension == wanted) || path.file_name().is_some_and(|name| name == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_sorted_relative_and_leave_build_folders_out() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b/x.rs", "a.rs", "target/y.rs", "c.txt", "run"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        assert_eq!(Workspace::at(folder.path()).sources(&["rs", "run"]), ["a.rs", "b/x.rs", "run"]);
    }
}
