//! The command at a terminal.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::Test;
use crate::harness::spawn;

pub(crate) const TESTS: &[Test] = &[
    ("removal_does_what_is_answered", removal_does_what_is_answered),
    ("work_shows_progress_and_leaves_no_bar_behind", work_shows_progress_and_leaves_no_bar_behind),
];

/// Why there is no terminal.
pub(crate) fn missing() -> Option<String> {
    let error = terminal().err()?;
    Some(format!("this system has no pseudo-terminals ({error}); is devpts mounted on /dev/pts?"))
}

fn removal_does_what_is_answered() {
    let place = tempfile::tempdir().unwrap();
    let pool = place.path().join("a");
    at_terminal(place.path(), &["pool", "create", "a", "--size", "4MiB"], "");
    let before = fs::read(&pool).unwrap();
    for answer in ["n\n", "\n", "maybe\n"] {
        let (exit, printed) = at_terminal(place.path(), &["pool", "rm", "a"], answer);
        assert_eq!(exit, 4, "{printed}");
        assert!(printed.contains("Remove 1 file and all data in the pool? [y/N]"), "{printed}");
    }
    assert!(fs::read(&pool).unwrap() == before, "a refused removal changed the pool");
    let (exit, printed) = at_terminal(place.path(), &["pool", "rm", "a"], "y\n");
    assert_eq!((exit, pool.exists()), (0, false), "{printed}");
}

fn work_shows_progress_and_leaves_no_bar_behind() {
    let place = tempfile::tempdir().unwrap();
    let (exit, printed) = at_terminal(place.path(), &["pool", "create", "a", "--size", "64MiB", "--prefault"], "");
    assert_eq!(exit, 0, "{printed}");
    let last = printed.lines().last().expect("it prints something");
    assert!(last.contains("created a: 64 MiB in 1 file, "), "{printed}");
    let (exit, printed) = at_terminal(place.path(), &["pool", "check", "a", "--quiet"], "");
    assert_eq!((exit, printed.trim_end()), (0, "a: sound (1 file, 0 names, 64 KiB read, 0 checksums compared)"));
}

/// A pseudo-terminal: the end that a person has, and the end that a program has.
fn terminal() -> std::io::Result<(OwnedFd, File)> {
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&person)?;
    unlockpt(&person)?;
    let name = ptsname(&person, Vec::new())?;
    let name = name.to_str().expect("the name of a terminal is ASCII");
    Ok((person, File::options().read(true).write(true).open(name)?))
}

/// Runs the command in a directory at a terminal, where `answer` is typed. Returns its exit code and what it printed.
fn at_terminal(directory: &Path, arguments: &[&str], answer: &str) -> (i32, String) {
    let (person, program) = terminal().unwrap();
    let mut child = {
        let mut command = Command::new(env!("CARGO_BIN_EXE_remanent"));
        command.current_dir(directory).args(arguments).env("TERM", "xterm");
        let [stdin, stdout] = [0, 1].map(|_| program.try_clone().unwrap());
        // The command's own copies go with it, so that reading ends when the child does.
        command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(program));
        spawn(&mut command)
    };
    let mut person = File::from(person);
    person.write_all(answer.as_bytes()).unwrap();
    let mut printed = Vec::new();
    // The end of a terminal is an error, EIO.
    let _ = person.read_to_end(&mut printed);
    let exit = child.wait().unwrap().code().expect("it was not killed");
    (exit, String::from_utf8_lossy(&printed).into_owned())
}
