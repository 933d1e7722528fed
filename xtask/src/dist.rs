//! `dist`: the release binary, the wheel and the book, in `target/dist`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache;
use crate::counts::Counts;
use crate::python;
use crate::step::{Outcome, Step, run_all};
use crate::workspace::Workspace;

/// The book's builder; installed into the cache, for it takes minutes to build and no test needs it.
const MDBOOK: &str = "mdbook@0.5.4";

const STEPS: &[Step] = &[
    Step { name: "dist: command", lanes: &[], part: None, run: command },
    Step { name: "dist: wheel", lanes: &[], part: Some(python::PART), run: wheel },
    Step { name: "dist: the wheel's tests", lanes: &[], part: Some(python::PART), run: test_wheel },
    Step { name: "dist: book", lanes: &[], part: None, run: book },
];

/// Builds everything that is there; tells whether nothing failed.
pub(crate) fn run(workspace: &Workspace) -> bool {
    run_all(workspace, STEPS.iter().filter(|step| step.part.is_none_or(|part| workspace.has(part))))
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target().join("dist")
}

fn command(workspace: &Workspace) -> Outcome {
    let mut build = workspace.cargo();
    build.args(["build", "--quiet", "--locked", "--release", "-p", "remanent-cli"]);
    let built = Outcome::of_command(&mut build);
    if !matches!(built, Outcome::Done(_)) {
        return built;
    }
    let copied = fs::create_dir_all(folder(workspace))
        .and_then(|()| fs::copy(workspace.target().join("release/remanent"), folder(workspace).join("remanent")));
    Outcome::of_findings(
        copied.err().map(|error| format!("{}: {error}", folder(workspace).display())).into_iter().collect(),
    )
}

fn wheel(workspace: &Workspace) -> Outcome {
    python::wheel(workspace, &folder(workspace))
}

fn test_wheel(workspace: &Workspace) -> Outcome {
    python::test_wheel(workspace, &folder(workspace))
}

fn book(workspace: &Workspace) -> Outcome {
    let place = cache::folder(workspace).join("tools").join(MDBOOK.replace('@', "-"));
    if let Err(reason) = cache::place(&place, |folder| install_mdbook(workspace, folder)) {
        return Outcome::Failed(Counts::ONE_FAILED, reason);
    }
    let mut command = workspace.command(place.join("bin/mdbook"));
    Outcome::of_command(command.args(["build", "docs", "--dest-dir"]).arg(folder(workspace).join("book")))
}

fn install_mdbook(workspace: &Workspace, folder: &Path) -> Result<(), String> {
    let mut command = workspace.cargo();
    command.args(["install", "--quiet", "--locked", "--no-default-features", "--features", "search", MDBOOK, "--root"]);
    match Outcome::of_command(command.arg(folder)) {
        Outcome::Failed(_, output) => Err(output),
        _ => Ok(()),
    }
}
