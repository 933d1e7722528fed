//! Files that go when the program does, whichever way it leaves.

use std::path::{Path, PathBuf};

/// A folder for the program's files; it is removed, with all that is in it, when the value is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A folder inside `directory`. It is made with its first file.
    pub(crate) fn new(directory: &Path) -> Scratch {
        Scratch(directory.join(format!("remanent-peers-core-{}", std::process::id())))
    }

    /// The path of a file in it.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub(crate) fn file(&self, name: &str) -> std::io::Result<PathBuf> {
        std::fs::create_dir_all(&self.0)?;
        Ok(self.0.join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.0.exists()
            && let Err(error) = std::fs::remove_dir_all(&self.0)
        {
            // Standard error may be gone as well, and there is nothing else to be done about it.
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "{} is left behind: {error}", self.0.display());
        }
    }
}
