//! The lane of interpreters without a lock: the Python package's tests on a free-threaded CPython.
//!
//! No registry that a bare Debian reaches hands out such an interpreter, so it is built in the cache from the source of
//! Debian's stable release, which is CPython 3.13. The pyo3 that the package is built with has free-threaded interpreters
//! from 3.14 on only; the tests run on the same source with the last pyo3 that has 3.13 (`python/freethreaded`), and that
//! the package's own manifest compiles for 3.14 is checked beside it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{journal, settings};
use crate::cache;
use crate::counts::Counts;
use crate::python;
use crate::step::Outcome;
use crate::workspace::Workspace;

const VERSION: &str = "3.13.5";
const SHA256: &str = "93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640";
/// In the archive of any of Debian's mirrors, for as long as the release is supported.
const IN_DEBIAN: &str = "pool/main/p/python3.13/python3.13_3.13.5.orig.tar.xz";
/// The same file where it comes from.
const UPSTREAM: &str = "https://www.python.org/ftp/python/3.13.5/Python-3.13.5.tar.xz";

const MANIFEST: &str = "python/freethreaded/Cargo.toml";
const REQUIREMENTS: &str = "python/requirements-freethreaded.txt";

/// As pyo3's build script reads it, so that no interpreter is needed.
const NEXT_VERSION: &str = "implementation=CPython\nversion=3.14\nshared=true\nbuild_flags=Py_GIL_DISABLED\n";

pub(super) fn run(workspace: &Workspace) -> Outcome {
    match prepare(workspace) {
        Ok((interpreter, path)) => {
            let mut command = workspace.command(interpreter);
            command.env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1");
            command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "python/tests"]);
            Outcome::of_tests(&mut command, Counts::of_pytest)
        }
        Err(outcome) => outcome,
    }
}

/// The interpreter, and where it finds the package and what its tests need.
fn prepare(workspace: &Workspace) -> Result<(PathBuf, String), Outcome> {
    let failed = |reason| Outcome::Failed(Counts::ONE_FAILED, reason);
    compiles_for_next_version(workspace)?;
    let place = cache::folder(workspace).join(format!("freethreaded-python-{VERSION}"));
    if !place.exists() {
        println!("freethreaded: building CPython {VERSION}");
    }
    cache::place(&place, |folder| build_interpreter(workspace, folder)).map_err(failed)?;
    let interpreter = place.join("bin/python3.13t");
    let key = journal::fingerprint(workspace, &[REQUIREMENTS]);
    let packages = cache::folder(workspace).join(format!("freethreaded-packages-{key}"));
    cache::place(&packages, |folder| install_packages(workspace, &interpreter, folder)).map_err(failed)?;
    let package = python::copy_for(workspace, &interpreter, MANIFEST, &target(workspace)).map_err(failed)?;
    Ok((interpreter, format!("{}:{}", package.display(), packages.display())))
}

/// A folder of its own: each change of the interpreter builds pyo3 anew.
fn target(workspace: &Workspace) -> PathBuf {
    workspace.target().join("freethreaded")
}

fn compiles_for_next_version(workspace: &Workspace) -> Result<(), Outcome> {
    let config = target(workspace).join("pyo3-config.txt");
    settings::write(&config, NEXT_VERSION).map_err(|reason| Outcome::Failed(Counts::ONE_FAILED, reason))?;
    let mut check = workspace.cargo();
    check.args(["check", "--quiet", "--locked", "--release", "-p", "remanent-python", "--target-dir"]);
    match Outcome::of_command(check.arg(target(workspace)).env("PYO3_CONFIG_FILE", &config)) {
        Outcome::Done(_) => Ok(()),
        outcome => Err(outcome),
    }
}

fn build_interpreter(workspace: &Workspace, folder: &Path) -> Result<(), String> {
    let source = folder.join("source");
    settings::make_folder(&source)?;
    fetch_source(workspace, &source.join("source.tar.xz"))?;
    let script = "tar --extract --strip-components=1 --file source.tar.xz && \
        ./configure --quiet --disable-gil --disable-test-modules CFLAGS=-g0 --prefix=\"$1\" && \
        make --silent --jobs=\"$(nproc)\" && make --silent install";
    let mut command = workspace.command("sh");
    command.args(["-c", script, "sh"]).arg(folder).current_dir(&source);
    done(Outcome::of_command(&mut command))?;
    cache::remove(&source)
}

/// From the mirror that apt uses here, else from where the source comes from.
fn fetch_source(workspace: &Workspace, file: &Path) -> Result<(), String> {
    let mirror = settings::mirrors(workspace, "bookworm").ok().and_then(|mirrors| mirrors.into_iter().next());
    let addresses = mirror.map(|mirror| format!("{}/{IN_DEBIAN}", mirror.uri.trim_end_matches('/')));
    let mut reasons = String::new();
    for address in addresses.into_iter().chain([UPSTREAM.to_owned()]) {
        let mut curl = workspace.command("curl");
        curl.args(["--silent", "--show-error", "--fail", "--location", "--output"]).arg(file).arg(&address);
        match done(Outcome::of_command(&mut curl)) {
            Ok(()) => return is_the_source(workspace, file),
            Err(reason) => reasons += &format!("{address}: {reason}\n"),
        }
    }
    Err(format!("{reasons}the source of CPython {VERSION} cannot be fetched"))
}

fn is_the_source(workspace: &Workspace, file: &Path) -> Result<(), String> {
    let output = workspace.command("sha256sum").arg(file).output();
    let output = output.map_err(|error| format!("sha256sum does not start: {error}"))?;
    if String::from_utf8_lossy(&output.stdout).starts_with(SHA256) {
        Ok(())
    } else {
        Err(format!("what was fetched as the source of CPython {VERSION} is something else"))
    }
}

/// Into a folder of their own, which is named by what is in it.
fn install_packages(workspace: &Workspace, interpreter: &Path, folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut pip = workspace.command(interpreter);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--only-binary=:all:"]);
    done(Outcome::of_command(pip.args(["--requirement", REQUIREMENTS, "--target"]).arg(folder)))
}

fn done(outcome: Outcome) -> Result<(), String> {
    match outcome {
        Outcome::Failed(_, reason) => Err(reason),
        _ => Ok(()),
    }
}
