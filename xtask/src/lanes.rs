//! The table of steps: which lane runs what.

use std::process::{Command, Stdio};

use crate::bench;
use crate::checks;
use crate::counts::Counts;
use crate::dax;
use crate::python;
use crate::r;
use crate::step::Lane::{Bench, Dax, Demo, Fast, Full};
use crate::step::{Lane, Outcome, Step, run_all};
use crate::workspace::Workspace;

/// Cheap checks first, so that a slip is seen before anything long is built.
const STEPS: &[Step] = &[
    Step { name: "rustfmt", lanes: &[Fast, Full], part: None, run: rustfmt },
    Step { name: "arrows", lanes: &[Fast, Full], part: None, run: checks::arrows },
    Step { name: "lock files", lanes: &[Fast, Full], part: None, run: checks::lockfiles },
    Step { name: "licences", lanes: &[Fast, Full], part: None, run: checks::licences },
    Step { name: "module docs", lanes: &[Fast, Full], part: None, run: checks::module_docs },
    Step { name: "unsafe", lanes: &[Fast, Full], part: None, run: checks::unsafe_code },
    Step { name: "file length", lanes: &[Fast, Full], part: None, run: checks::file_length },
    Step { name: "words", lanes: &[Fast, Full], part: None, run: checks::words },
    Step { name: "links", lanes: &[Fast, Full], part: None, run: checks::links },
    Step { name: "book summary", lanes: &[Fast, Full], part: None, run: checks::summary },
    Step { name: "error entries", lanes: &[Fast, Full], part: None, run: checks::error_entries },
    Step { name: "format tables", lanes: &[Fast, Full], part: None, run: checks::format_tables },
    Step { name: "clippy", lanes: &[Fast, Full], part: None, run: clippy },
    Step { name: "rustdoc", lanes: &[Full], part: None, run: rustdoc },
    Step { name: "cargo test", lanes: &[Fast, Full], part: None, run: cargo_test },
    Step { name: "python", lanes: &[Full], part: Some(python::PART), run: python::test },
    Step { name: "r", lanes: &[Full], part: Some(r::PART), run: r::test },
    Step { name: "r with python", lanes: &[Full], part: Some(r::PART), run: r::test_with_python },
    Step { name: "dax", lanes: &[Dax], part: None, run: dax::run },
    Step { name: "demo: pools by command", lanes: &[Demo], part: Some(python::PART), run: python::demo_command },
    Step { name: "demo: arrays that survive", lanes: &[Demo], part: Some(python::PART), run: python::demo },
    Step { name: "demo: a restart", lanes: &[Demo], part: Some(python::PART), run: python::demo_restart },
    Step { name: "demo: two languages", lanes: &[Demo], part: Some(r::PART), run: r::demo },
    Step { name: "demo: a restart in R", lanes: &[Demo], part: Some(r::PART), run: r::demo_restart },
    Step { name: "demo: a microbenchmark", lanes: &[Demo], part: None, run: bench::demo },
    Step { name: "bench: peers", lanes: &[Bench], part: Some(bench::PART), run: bench::peers },
    Step { name: "bench: crash images", lanes: &[Bench], part: None, run: bench::simulator },
    Step { name: "bench: arrays", lanes: &[Bench], part: Some(python::PART), run: python::bench },
    Step { name: "bench: objects in R", lanes: &[Bench], part: Some(r::PART), run: r::bench },
];

/// Runs a lane; tells whether nothing failed.
pub(crate) fn run(workspace: &Workspace, lane: Lane) -> bool {
    run_all(workspace, STEPS.iter().filter(|step| belongs(workspace, step, lane)))
}

fn belongs(workspace: &Workspace, step: &Step, lane: Lane) -> bool {
    step.lanes.contains(&lane) && step.part.is_none_or(|part| workspace.has(part))
}

fn rustfmt(workspace: &Workspace) -> Outcome {
    if !has_cargo_tool(workspace, "fmt") {
        return Outcome::NotRun("this toolchain has no rustfmt".into());
    }
    Outcome::of_command(workspace.cargo().args(["fmt", "--all", "--", "--check", "--color", "never"]))
}

fn clippy(workspace: &Workspace) -> Outcome {
    if !has_cargo_tool(workspace, "clippy") {
        return Outcome::NotRun("this toolchain has no clippy".into());
    }
    let warnings_are_errors = ["--", "-D", "warnings"];
    let mut command = workspace.cargo();
    command.args(["clippy", "--quiet", "--locked", "--release", "--workspace", "--all-targets"]);
    Outcome::of_command(command.args(warnings_are_errors))
}

/// Links between items and code in the docs; a broken link is an error.
fn rustdoc(workspace: &Workspace) -> Outcome {
    let mut command = workspace.cargo();
    command.args(["doc", "--quiet", "--locked", "--release", "--no-deps", "--document-private-items"]);
    Outcome::of_command(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Unit, integration and documentation tests of the default members: all but the Python extension, which is
/// tested from Python.
fn cargo_test(workspace: &Workspace) -> Outcome {
    let mut command = workspace.cargo();
    command.args(["test", "--locked", "--release", "--no-fail-fast"]);
    Outcome::of_tests(&mut command, Counts::of_cargo_test)
}

fn has_cargo_tool(workspace: &Workspace, tool: &str) -> bool {
    let mut command: Command = workspace.cargo();
    command.args([tool, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_lane_holds_all_that_the_fast_one_does() {
        for step in STEPS.iter().filter(|step| step.lanes.contains(&Fast)) {
            assert!(step.lanes.contains(&Full), "{} is in the fast lane only", step.name);
        }
    }

    #[test]
    fn a_step_of_a_missing_part_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(folder.path());
        let step = Step { name: "x", lanes: &[Full], part: Some(python::PART), run: dax::run };
        assert!(!belongs(&workspace, &step, Full));
        std::fs::create_dir(folder.path().join("python")).unwrap();
        std::fs::write(folder.path().join("python/pyproject.toml"), "").unwrap();
        assert!(belongs(&workspace, &step, Full));
        assert!(!belongs(&workspace, &step, Fast));
    }
}
