//! The real binary at a terminal. Where the system has no pseudo-terminals the tests are reported as ignored.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

fn main() -> ExitCode {
    let missing = terminal().err();
    if let Some(error) = &missing {
        println!("not run: this system has no pseudo-terminals ({error}); is devpts mounted on /dev/pts?");
    }
    let trial = |name, run: fn() -> Result<(), Failed>| Trial::test(name, run).with_ignored_flag(missing.is_some());
    let trials = vec![
        trial("removal_does_what_is_answered", removal_does_what_is_answered),
        trial("work_shows_progress_and_leaves_no_bar_behind", work_shows_progress_and_leaves_no_bar_behind),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn removal_does_what_is_answered() -> Result<(), Failed> {
    let place = tempfile::tempdir()?;
    let pool = place.path().join("a");
    at_terminal(place.path(), &["pool", "create", "a", "--size", "4MiB"], "")?;
    let before = fs::read(&pool)?;
    for answer in ["n\n", "\n", "maybe\n"] {
        let (exit, printed) = at_terminal(place.path(), &["pool", "rm", "a"], answer)?;
        assert_eq!(exit, 4, "{printed}");
        assert!(printed.contains("Remove 1 file and all data in the pool? [y/N]"), "{printed}");
    }
    assert!(fs::read(&pool)? == before, "a refused removal changed the pool");
    let (exit, printed) = at_terminal(place.path(), &["pool", "rm", "a"], "y\n")?;
    assert_eq!((exit, pool.exists()), (0, false), "{printed}");
    Ok(())
}

fn work_shows_progress_and_leaves_no_bar_behind() -> Result<(), Failed> {
    let place = tempfile::tempdir()?;
    let (exit, printed) = at_terminal(place.path(), &["pool", "create", "a", "--size", "64MiB", "--prefault"], "")?;
    assert_eq!(exit, 0, "{printed}");
    let last = printed.lines().last().ok_or("it prints nothing")?;
    assert!(last.contains("created a: 64 MiB in 1 file, "), "{printed}");
    let (exit, printed) = at_terminal(place.path(), &["pool", "check", "a", "--quiet"], "")?;
    assert_eq!((exit, printed.trim_end()), (0, "a: sound (1 file, 0 names, 64 KiB read, 0 checksums compared)"));
    Ok(())
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
fn at_terminal(directory: &Path, arguments: &[&str], answer: &str) -> Result<(i32, String), Failed> {
    let (person, program) = terminal()?;
    let mut child = {
        let mut command = Command::new(env!("CARGO_BIN_EXE_remanent"));
        command.current_dir(directory).args(arguments).env("TERM", "xterm");
        let [stdin, stdout] = [program.try_clone()?, program.try_clone()?];
        // The command's own copies go with it, so that reading ends when the child does.
        command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(program)).spawn()?
    };
    let mut person = File::from(person);
    person.write_all(answer.as_bytes())?;
    let mut printed = Vec::new();
    // The end of a terminal is an error, EIO.
    let _ = person.read_to_end(&mut printed);
    let exit = child.wait()?.code().ok_or("the command was killed")?;
    Ok((exit, String::from_utf8_lossy(&printed).into_owned()))
}
