//! The benchmarks: side by side with what users would pick instead.

use serde_json::Value;

use crate::counts::Counts;
use crate::step::Outcome;
use crate::workspace::Workspace;

/// The workspace of the comparisons; its own, for their dependencies are no product's.
pub(crate) const PART: &str = "peers/Cargo.toml";

/// Runs every program of the workspace, so that a new one cannot be forgotten here.
pub(crate) fn peers(workspace: &Workspace) -> Outcome {
    let metadata = match workspace.metadata(PART, &["--no-deps"]) {
        Ok(metadata) => metadata,
        Err(reason) => return Outcome::Failed(Counts::ONE_FAILED, reason),
    };
    let mut counts = Counts::default();
    let mut failures = Vec::new();
    for package in programs(&metadata) {
        println!("bench: {package}");
        let mut command = workspace.cargo();
        command.args(["run", "--quiet", "--locked", "--release", "--manifest-path", PART, "--package", package]);
        let outcome = Outcome::of_shown(&mut command);
        counts += outcome.counts(false);
        if let Outcome::Failed(_, reason) = outcome {
            failures.push(format!("{package}: {reason}"));
        }
    }
    match failures.is_empty() {
        true => Outcome::Done(counts),
        false => Outcome::Failed(counts, failures.join("\n")),
    }
}

/// The packages that have a program.
fn programs(metadata: &Value) -> Vec<&str> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let is_program = |target: &Value| target["kind"].as_array().is_some_and(|kinds| kinds.contains(&"bin".into()));
    let has_program = |package: &&Value| package["targets"].as_array().into_iter().flatten().any(is_program);
    packages.filter(has_program).filter_map(|package| package["name"].as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_with_a_program_is_run_and_no_library() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "a", "targets": [{ "kind": ["bin"] }] },
            { "name": "b", "targets": [{ "kind": ["lib"] }, { "kind": ["test"] }] },
            { "name": "c", "targets": [{ "kind": ["lib"] }, { "kind": ["bin"] }] },
        ] });
        assert_eq!(programs(&metadata), ["a", "c"]);
    }
}
