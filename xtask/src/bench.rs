//! The benchmarks: side by side with what users would pick instead, and the speed of the crash simulator.

use serde_json::Value;

use crate::cache;
use crate::counts::Counts;
use crate::step::{Outcome, under_ci};
use crate::workspace::Workspace;

/// The workspace of the comparisons; its own, for their dependencies are no product's.
pub(crate) const PART: &str = "peers/Cargo.toml";

/// Runs every program of the workspace, so that a new one cannot be forgotten here.
pub(crate) fn peers(workspace: &Workspace) -> Outcome {
    let metadata = match workspace.metadata(PART, &["--no-deps"]) {
        Ok(metadata) => metadata,
        Err(reason) => return Outcome::Failed(Counts::ONE_FAILED, reason),
    };
    let outcomes = programs(&metadata).into_iter().map(|package| {
        println!("bench: {package}");
        let mut command = workspace.cargo();
        command.args(["run", "--quiet", "--locked", "--release", "--manifest-path", PART, "--package", package]);
        (package, Outcome::of_shown(&mut command))
    });
    together(outcomes.collect(), under_ci())
}

/// Measures the crash simulator. It has no peer, and what it runs stands in `tests`.
pub(crate) fn simulator(workspace: &Workspace) -> Outcome {
    let mut command = workspace.cargo();
    command.args(["bench", "--quiet", "--locked", "--package", "remanent-tests", "--bench", "simulator"]);
    Outcome::of_shown(&mut command)
}

/// Shows what this machine's memory can do, and leaves the page with the figures.
pub(crate) fn demo(workspace: &Workspace) -> Outcome {
    let mut build = workspace.cargo();
    match Outcome::of_command(build.args(["build", "--quiet", "--locked", "--release", "-p", "remanent-cli"])) {
        Outcome::Done(_) => {}
        outcome => return outcome,
    }
    let folder = workspace.target().join("demo-bench");
    if let Err(reason) = cache::remove(&folder) {
        return Outcome::Failed(Counts::ONE_FAILED, reason);
    }
    let mut command = workspace.command(workspace.target().join("release/remanent"));
    Outcome::of_shown(command.args(["bench", "run", "quick", "--budget", "40s", "--out"]).arg(folder))
}

/// The outcome of several programs. Under CI one that could not run is a failure, as a step is.
fn together(outcomes: Vec<(&str, Outcome)>, under_ci: bool) -> Outcome {
    let mut counts = Counts::default();
    let mut said = Vec::new();
    for (package, outcome) in outcomes {
        counts += outcome.counts(under_ci);
        match outcome {
            Outcome::Failed(_, reason) => said.push(format!("{package}: {reason}")),
            Outcome::NotRun(reason) => said.push(format!("{package}: not run: {reason}")),
            Outcome::Done(_) | Outcome::NotBuilt(_) => {}
        }
    }
    match (counts.failed, counts.passed) {
        (0, 0) => Outcome::NotRun(said.join("; ")),
        (0, _) => Outcome::Done(counts),
        _ => Outcome::Failed(counts, said.join("\n")),
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

    #[test]
    fn a_program_that_was_not_run_is_never_counted_as_passed() {
        let outcomes = || vec![("a", Outcome::Done(Counts::ONE_PASSED)), ("b", Outcome::NotRun("no libpmem".into()))];
        assert_eq!(together(outcomes(), false), Outcome::Done(Counts { passed: 1, failed: 0, skipped: 1 }));
        let under_ci = together(outcomes(), true);
        assert_eq!(under_ci.counts(true), Counts { passed: 1, failed: 1, skipped: 0 });
        assert!(matches!(under_ci, Outcome::Failed(_, said) if said == "b: not run: no libpmem"));
        assert!(matches!(together(outcomes().split_off(1), false), Outcome::NotRun(_)));
    }
}
