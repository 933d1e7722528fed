//! What runs in the guest: the guest's own program and the core's tests of mappings, linked statically, for the guest
//! has no libraries.

use std::path::PathBuf;

use serde_json::Value;

use crate::workspace::Workspace;

/// Named, although it is the machine's own: flags then hold for the programs, and not for build scripts and macros.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Built programs.
pub(super) struct Programs {
    pub(super) guest: PathBuf,
    pub(super) tests: Vec<PathBuf>,
}

impl Programs {
    pub(super) fn build(workspace: &Workspace) -> Result<Programs, String> {
        let guest = executables(workspace, &["build", "-p", "remanent-guest", "--bin", "dax-guest"])?;
        let tests = executables(workspace, &["test", "--no-run", "-p", "remanent-pmem", "--test", "mapped_*"])?;
        let guest = guest.into_iter().next().ok_or("cargo built no program for the guest")?;
        if tests.is_empty() {
            return Err("cargo built no tests for the guest".into());
        }
        Ok(Programs { guest, tests })
    }
}

fn executables(workspace: &Workspace, arguments: &[&str]) -> Result<Vec<PathBuf>, String> {
    let mut command = workspace.cargo();
    command.args(arguments).args(["--locked", "--release", "--target", PLATFORM]);
    command.arg("--message-format=json-render-diagnostics");
    command.env("RUSTFLAGS", "-C target-feature=+crt-static -C strip=symbols");
    let output = command.output().map_err(|error| format!("{command:?} does not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("{}\nthe guest's programs do not build", String::from_utf8_lossy(&output.stderr)));
    }
    let mut found = executables_of(&String::from_utf8_lossy(&output.stdout));
    found.sort();
    Ok(found)
}

fn executables_of(messages: &str) -> Vec<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_executed_is_taken() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"executable\":\"/t/x\"}\n{\"reason\":\"build-finished\"}\nnoise\n";
        assert_eq!(executables_of(messages), [PathBuf::from("/t/x")]);
    }
}
