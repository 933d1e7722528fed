//! The R package: installed with R's own tools into a library of the target folder, tested there, and checked as the
//! archive of R's packages would check it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::cache;
use crate::counts::Counts;
use crate::python;
use crate::step::Outcome;
use crate::workspace::Workspace;

/// The file that makes the folder a package.
pub(crate) const PART: &str = "r/DESCRIPTION";

/// Runs the package's tests: each script is one, and passes or fails as a whole.
pub(crate) fn test(workspace: &Workspace) -> Outcome {
    match installed(workspace) {
        Ok(library) => {
            run_all(workspace.sources(&["R"]).into_iter().filter(|file| file.starts_with("r/tests/")).map(|script| {
                let mut command = rscript(workspace, &library);
                command.arg(&script);
                (script, command)
            }))
        }
        Err(outcome) => outcome,
    }
}

/// What one language writes the other reads.
pub(crate) fn test_with_python(workspace: &Workspace) -> Outcome {
    let library = match installed(workspace) {
        Ok(library) => library,
        Err(outcome) => return outcome,
    };
    let folder = workspace.target().join("r/pools");
    if let Err(reason) = cache::remove(&folder).and_then(|()| made(&folder)) {
        return Outcome::Failed(Counts::ONE_FAILED, reason);
    }
    let in_python = |script: &str, pool: &str| {
        python::interpreter(workspace).map(|mut command| {
            command.arg(script).arg(folder.join(pool));
            (script.to_owned(), command)
        })
    };
    let in_r = |script: &str, pool: &str| {
        let mut command = rscript(workspace, &library);
        command.arg(script).arg(folder.join(pool));
        Ok((script.to_owned(), command))
    };
    let use_cases = python::interpreter(workspace).map(|mut command| {
        command.arg("r/cross/use_cases.py").arg(&folder).env("R_LIBS", &library);
        ("r/cross/use_cases.py".to_owned(), command)
    });
    let steps = [
        in_python("r/cross/write.py", "python.pool"),
        in_r("r/cross/read.R", "python.pool"),
        in_r("r/cross/write.R", "r.pool"),
        in_python("r/cross/read.py", "r.pool"),
        in_python("r/cross/carry.py", "r.pool"),
        in_r("r/cross/carried.R", "r.pool"),
        use_cases,
    ];
    match steps.into_iter().collect::<Result<Vec<_>, Outcome>>() {
        Ok(steps) => run_all(steps),
        Err(outcome) => outcome,
    }
}

/// Shows real data that R and Python hand to each other.
pub(crate) fn demo(workspace: &Workspace) -> Outcome {
    example(workspace, &["examples/two_languages.py"])
}

/// Shows a program in R that is restarted in three ways, on real data.
pub(crate) fn demo_restart(workspace: &Workspace) -> Outcome {
    example(workspace, &["examples/regression.py"])
}

/// Runs a program in Python that runs some in R.
fn example(workspace: &Workspace, words: &[&str]) -> Outcome {
    let library = match installed(workspace) {
        Ok(library) => library,
        Err(outcome) => return outcome,
    };
    match python::interpreter(workspace) {
        Ok(mut command) => Outcome::of_shown(command.args(words).env("R_LIBS", &library)),
        Err(outcome) => outcome,
    }
}

/// Measures the package beside what R has itself.
pub(crate) fn bench(workspace: &Workspace) -> Outcome {
    match installed(workspace) {
        Ok(library) => Outcome::of_shown(rscript(workspace, &library).arg("peers/store/compare.R")),
        Err(outcome) => outcome,
    }
}

/// `R CMD check`: a warning fails it too.
pub(crate) fn check(workspace: &Workspace) -> Outcome {
    if let Err(outcome) = has_r() {
        return outcome;
    }
    let folder = workspace.target().join("r/check");
    if let Err(reason) = cache::remove(&folder).and_then(|()| made(&folder)) {
        return Outcome::Failed(Counts::ONE_FAILED, reason);
    }
    let mut build = workspace.command("R");
    build.current_dir(&folder).args(["CMD", "build"]).arg(workspace.path("r"));
    match Outcome::of_command(&mut build) {
        Outcome::Done(_) => {}
        outcome => return outcome,
    }
    let Some(archive) = archives(&folder).into_iter().next() else {
        return Outcome::Failed(Counts::ONE_FAILED, "R CMD build made no archive".into());
    };
    let mut check = workspace.command("R");
    check.current_dir(&folder).args(["CMD", "check", "--no-manual"]).arg(archive);
    // The archive leaves the tree, in which the library's source stays.
    check.env("REMANENT_SOURCE", workspace.path("")).env("_R_CHECK_FORCE_SUGGESTS_", "false");
    match check.output() {
        Ok(output) => judged(&output),
        Err(error) => Outcome::Failed(Counts::ONE_FAILED, format!("R CMD check does not start: {error}")),
    }
}

fn judged(output: &Output) -> Outcome {
    let said = String::from_utf8_lossy(&output.stdout);
    let status = said.lines().rev().find_map(|line| line.strip_prefix("Status: ")).unwrap_or_default();
    if output.status.success() && is_clean(status) {
        Outcome::Done(Counts::ONE_PASSED)
    } else {
        Outcome::Failed(Counts::ONE_FAILED, said.into_owned())
    }
}

/// Notes are for people to read: one tells how large the package is.
fn is_clean(status: &str) -> bool {
    !status.is_empty() && !status.contains("WARNING") && !status.contains("ERROR")
}

fn has_r() -> Result<(), Outcome> {
    let mut command = Command::new("Rscript");
    let starts = command.arg("--version").stdin(Stdio::null()).output().is_ok_and(|output| output.status.success());
    if starts { Ok(()) } else { Err(Outcome::NotRun("R is not installed; call ./run, which installs it".into())) }
}

/// The library that the package was installed into, as it is now.
fn installed(workspace: &Workspace) -> Result<PathBuf, Outcome> {
    has_r()?;
    let library = workspace.target().join("r/library");
    made(&library).map_err(|reason| Outcome::Failed(Counts::ONE_FAILED, reason))?;
    let mut command = workspace.command("R");
    command.args(["CMD", "INSTALL", "--no-docs", "--no-test-load"]);
    command.arg(format!("--library={}", library.display())).arg("r");
    match Outcome::of_command(&mut command) {
        Outcome::Done(_) => Ok(library),
        outcome => Err(outcome),
    }
}

fn rscript(workspace: &Workspace, library: &std::path::Path) -> Command {
    let mut command = workspace.command("Rscript");
    command.arg("--vanilla").env("R_LIBS", library);
    command
}

/// Runs scripts of which each is a test, in their order.
fn run_all(scripts: impl IntoIterator<Item = (String, Command)>) -> Outcome {
    let (mut counts, mut said) = (Counts::default(), String::new());
    for (name, mut command) in scripts {
        match Outcome::of_command(&mut command) {
            Outcome::Done(_) => counts += Counts::ONE_PASSED,
            Outcome::Failed(_, output) => {
                counts += Counts::ONE_FAILED;
                said += &format!("{name}:\n{output}\n");
            }
            outcome => return outcome,
        }
    }
    if counts.failed == 0 && counts.passed > 0 { Outcome::Done(counts) } else { Outcome::Failed(counts, said) }
}

fn made(folder: &std::path::Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn archives(folder: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "gz")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_passes_and_a_warning_does_not() {
        assert!(is_clean("OK") && is_clean("1 NOTE"));
        assert!(!is_clean("1 WARNING, 1 NOTE") && !is_clean("1 ERROR") && !is_clean(""));
    }

    #[test]
    fn a_script_that_fails_is_named_and_the_others_run() {
        let step = |name: &str| (name.to_owned(), Command::new(name));
        let Outcome::Failed(counts, said) = run_all([step("false"), step("true")]) else { panic!("it passed") };
        assert_eq!(counts, Counts { passed: 1, failed: 1, skipped: 0 });
        assert!(said.starts_with("false:"));
        assert!(matches!(run_all([]), Outcome::Failed(..)), "no script at all is a failure");
    }
}
