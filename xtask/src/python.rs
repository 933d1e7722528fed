//! The Python package: its extension built with plain cargo, its tests, and an interpreter that can import it.
//!
//! maturin makes the wheel that is handed out (`dist`), but not what is tested: it sets variables that pyo3's build
//! scripts look at, so that each change between it and a plain `cargo` would build pyo3 anew. The tests import the
//! extension from `python/`, where it is put under the name that maturin would give it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::bench;
use crate::cache;
use crate::counts::Counts;
use crate::step::Outcome;
use crate::workspace::Workspace;

/// The file that makes the folder a package.
pub(crate) const PART: &str = "python/pyproject.toml";
const MANIFEST: &str = "python/Cargo.toml";
/// How the names of extensions end that one build makes for many versions of Python.
const STABLE_ENDING: &str = ".abi3.so";

/// Runs the package's tests.
pub(crate) fn test(workspace: &Workspace) -> Outcome {
    match interpreter(workspace) {
        Ok(mut command) => {
            command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "python/tests"]);
            Outcome::of_tests(&mut command, Counts::of_pytest)
        }
        Err(outcome) => outcome,
    }
}

/// Shows what the command does with a pool that Python has filled.
pub(crate) fn demo_command(workspace: &Workspace) -> Outcome {
    let mut build = workspace.cargo();
    match Outcome::of_command(build.args(["build", "--quiet", "--locked", "--release", "-p", "remanent-cli"])) {
        Outcome::Done(_) => {}
        outcome => return outcome,
    }
    match interpreter(workspace) {
        Ok(mut command) => {
            let binary = workspace.target().join("release/remanent");
            Outcome::of_shown(command.arg("examples/pools_by_command.py").arg(binary))
        }
        Err(outcome) => outcome,
    }
}

/// Shows arrays that survive a restart and a kill, and how long that takes.
pub(crate) fn demo(workspace: &Workspace) -> Outcome {
    match interpreter(workspace) {
        Ok(mut command) => Outcome::of_shown(command.arg("examples/arrays_that_survive.py")),
        Err(outcome) => outcome,
    }
}

/// Shows a program that is restarted in three ways, on data small enough for a demo.
pub(crate) fn demo_restart(workspace: &Workspace) -> Outcome {
    match interpreter(workspace) {
        Ok(mut command) => Outcome::of_shown(command.args(["examples/monte_carlo_pi.py", "--size", "160"])),
        Err(outcome) => outcome,
    }
}

/// Measures the store beside the other ways to keep arrays, and beside a raw copy.
pub(crate) fn bench(workspace: &Workspace) -> Outcome {
    let mut build = workspace.cargo();
    build.args(["build", "--quiet", "--locked", "--release", "--manifest-path", bench::PART, "-p", "peers-raw"]);
    match Outcome::of_command(&mut build) {
        Outcome::Done(_) => {}
        outcome => return outcome,
    }
    match interpreter(workspace) {
        Ok(mut command) => Outcome::of_shown(command.arg("peers/store/compare.py")),
        Err(outcome) => outcome,
    }
}

/// An interpreter that can import the package, built as it is now.
pub(crate) fn interpreter(workspace: &Workspace) -> Result<Command, Outcome> {
    let python = venv_python()?;
    place_extension(workspace).map_err(|reason| Outcome::Failed(Counts::ONE_FAILED, reason))?;
    let mut command = workspace.command(python);
    command.env("PYTHONPATH", workspace.path("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}

/// Builds the wheel into a folder.
pub(crate) fn wheel(workspace: &Workspace, folder: &Path) -> Outcome {
    let python = match venv_python() {
        Ok(python) => python,
        Err(outcome) => return outcome,
    };
    // One of another version would stay beside it.
    if let Err(reason) = wheels(folder).iter().try_for_each(|wheel| cache::remove(wheel)) {
        return Outcome::Failed(Counts::ONE_FAILED, reason);
    }
    let mut command = workspace.command(python);
    command.args(["-m", "maturin", "build", "--quiet", "--release", "--locked", "--manifest-path", MANIFEST]);
    // A folder of its own, so that the next test finds pyo3 as it left it.
    command.arg("--target-dir").arg(workspace.target().join("wheel")).arg("--out").arg(folder);
    Outcome::of_command(&mut command)
}

/// Installs the one wheel that a folder holds into a place of its own, and runs the package's tests there: with what a
/// user gets, and without the tree's own package.
pub(crate) fn test_wheel(workspace: &Workspace, folder: &Path) -> Outcome {
    match install_wheel(workspace, folder) {
        Ok((python, place)) => {
            let mut command = workspace.command(python);
            command.env("PYTHONPATH", place).env("PYTHONDONTWRITEBYTECODE", "1");
            command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "python/tests"]);
            Outcome::of_tests(&mut command, Counts::of_pytest)
        }
        Err(outcome) => outcome,
    }
}

fn wheels(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "whl")).collect()
}

fn install_wheel(workspace: &Workspace, folder: &Path) -> Result<(PathBuf, PathBuf), Outcome> {
    let failed = |reason: String| Outcome::Failed(Counts::ONE_FAILED, reason);
    let python = venv_python()?;
    let place = workspace.target().join("wheel/installed");
    cache::remove(&place).map_err(failed)?;
    let [wheel] = &wheels(folder)[..] else {
        return Err(failed(format!("{} does not hold one wheel", folder.display())));
    };
    let mut pip = workspace.command(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--target"]);
    match Outcome::of_command(pip.arg(&place).arg(wheel)) {
        Outcome::Done(_) => Ok((python, place)),
        outcome => Err(outcome),
    }
}

/// The interpreter of the environment that `./run` made.
fn venv_python() -> Result<PathBuf, Outcome> {
    let venv = std::env::var_os("REMANENT_VENV").map(PathBuf::from);
    let python = venv.map(|venv| venv.join("bin/python")).filter(|python| python.exists());
    python.ok_or(Outcome::NotRun("there is no Python environment; call ./run, which makes it".into()))
}

/// A copy of the package in a target folder, with an extension that another manifest builds for another interpreter.
/// Returns what that interpreter's PYTHONPATH has to name.
pub(crate) fn copy_for(
    workspace: &Workspace,
    interpreter: &Path,
    manifest: &str,
    target: &Path,
) -> Result<PathBuf, String> {
    let mut build = workspace.cargo();
    build.args(["build", "--manifest-path", manifest]).arg("--target-dir").arg(target);
    let built = built_extension(build.env("PYO3_PYTHON", interpreter))?;
    let extension = extension_path(&workspace.read(PART)?)?;
    let place = target.join("package");
    let folder = place.join(&extension).parent().expect("a module of a package").to_owned();
    cache::remove(&place)?;
    let copied = fs::create_dir_all(&folder).and_then(|()| {
        for entry in fs::read_dir(workspace.path("python/remanent"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "py") {
                fs::copy(&path, folder.join(path.file_name().expect("a file")))?;
            }
        }
        // Every interpreter takes this ending; the one for many versions is not for those without a lock.
        fs::copy(&built, place.join(extension.replace(STABLE_ENDING, ".so")))
    });
    copied.map(|_| place).map_err(|error| format!("{}: {error}", folder.display()))
}

fn place_extension(workspace: &Workspace) -> Result<(), String> {
    let place = workspace.path("python").join(extension_path(&workspace.read(PART)?)?);
    let built = built_extension(workspace.cargo().args(["build", "--manifest-path", MANIFEST]))?;
    // By rename, for a process may have the old one mapped.
    let temporary = place.with_extension("part");
    fs::copy(&built, &temporary)
        .and_then(|_| fs::rename(&temporary, &place))
        .map_err(|error| format!("{built} to {}: {error}", place.display()))
}

/// The shared library that a cargo build makes.
fn built_extension(build: &mut Command) -> Result<String, String> {
    build.args(["--quiet", "--locked", "--release", "--message-format", "json-render-diagnostics"]);
    let output = build.stderr(Stdio::piped()).output().map_err(|error| format!("cargo does not start: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    shared_library(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| format!("{build:?} makes no shared library"))
}

/// Where the extension belongs, from `module-name = "package.module"`.
fn extension_path(pyproject: &str) -> Result<String, String> {
    let name = pyproject.lines().find_map(|line| line.strip_prefix("module-name = \"")?.strip_suffix('"'));
    let name = name.ok_or(format!("{PART} has no line `module-name = \"package.module\"`"))?;
    Ok(format!("{}{STABLE_ENDING}", name.replace('.', "/")))
}

/// The last shared library among cargo's messages: that of the package which was asked for.
fn shared_library(messages: &str) -> Option<String> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let artifacts = messages.filter(|message| message["reason"] == "compiler-artifact").collect::<Vec<_>>();
    let files = artifacts.iter().flat_map(|artifact| artifact["filenames"].as_array().into_iter().flatten());
    files.filter_map(Value::as_str).rfind(|file| file.ends_with(".so")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_goes_where_the_package_imports_it_from() {
        let pyproject = "[tool.maturin]\nmodule-name = \"remanent._native\"\n";
        assert_eq!(extension_path(pyproject).unwrap(), "remanent/_native.abi3.so");
        assert!(extension_path("[project]\nname = \"x\"\n").is_err());
    }

    #[test]
    fn the_library_of_the_package_itself_is_taken_not_that_of_a_macro_crate() {
        let messages = "{\"reason\":\"compiler-artifact\",\"filenames\":[\"/t/libmacros.so\"]}\n\
            {\"reason\":\"compiler-artifact\",\"filenames\":[\"/t/librem.so\",\"/t/librem.rlib\"]}\n\
            {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(shared_library(messages).unwrap(), "/t/librem.so");
        assert_eq!(shared_library("{\"reason\":\"build-finished\"}"), None);
    }
}
