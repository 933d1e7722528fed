//! The two shell scripts, `run` and `.ci/run`: their logic, by their own functions, in an empty environment.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs a shell line after `run` was read for its functions.
fn with_run(line: &str) -> Output {
    let mut command = Command::new("/bin/bash");
    command.args(["-c", &format!("source ./run; set +e; {line}")]).current_dir(root());
    command.env_clear().stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn versions_are_compared_number_by_number() {
    let cases = [
        ("1.89", "1.96.0", true),
        ("1.89", "1.89.0", true),
        ("1.89", "1.89", true),
        ("1.89", "2.0", true),
        ("1.89", "1.9", false),
        ("1.89", "1.85.0", false),
        ("1.89.1", "1.89.0", false),
    ];
    for (wanted, have, expected) in cases {
        let output = with_run(&format!("at_least {wanted} {have}"));
        assert_eq!(output.status.success(), expected, "{have} for {wanted}");
    }
}

#[test]
fn the_wanted_rust_is_the_one_in_the_manifest() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let wanted = stdout(&with_run("wanted_rust"));
    assert!(manifest.contains(&format!("rust-version = \"{}\"", wanted.trim())), "{wanted:?}");
}

#[test]
fn only_what_the_lane_needs_and_the_machine_lacks_is_installed() {
    let missing = |lane: &str| stdout(&with_run(&format!("probe() {{ [[ $1 == cc ]]; }}; missing_packages {lane}")));
    assert_eq!(missing("fast"), "libc6-dev\nca-certificates\n");
    assert_eq!(missing("deep deep-chroot"), "libc6-dev\nca-certificates\ndebootstrap\ngit\n");
    assert_eq!(missing("tidy"), "");
}

#[test]
fn a_command_line_calls_for_its_lanes() {
    let lanes = |line: &str| stdout(&with_run(&format!("root=/nowhere; lanes_of {line}")));
    assert_eq!(lanes("test"), "test\n");
    assert_eq!(lanes("test --fast"), "fast\n");
    assert_eq!(lanes("test --dax"), "dax\n");
    assert_eq!(lanes("test --deep"), "deep\n");
    assert_eq!(lanes("test --deep chroot --budget 40m"), "deep deep-chroot\n");
}

#[test]
fn help_is_given_and_an_unknown_command_is_wrong_usage() {
    let run = |word: &str| Command::new(root().join("run")).arg(word).env_clear().output().unwrap();
    assert!(stdout(&run("help")).starts_with("usage: ./run"));
    assert_eq!(run("no-such-command").status.code(), Some(2));
}

/// Runs `.ci/run` over a `run` that only prints, one case for each lane.
fn ci(cases: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(".ci")).unwrap();
    fs::copy(root().join(".ci/run"), folder.path().join(".ci/run")).unwrap();
    let run = folder.path().join("run");
    fs::write(&run, format!("#!/bin/bash\n[[ $CI == true ]] || exit 9\ncase \"$*\" in\n{cases}\nesac\n")).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("/bin/bash");
    let output = command.arg(folder.path().join(".ci/run")).env_clear().stdin(Stdio::null()).output().unwrap();
    let last = stdout(&output).lines().last().unwrap_or_default().to_owned();
    (output.status.success(), last)
}

#[test]
fn the_counts_of_all_lanes_add_up() {
    let sum = ci("test) echo '5 passed, 0 failed, 1 skipped' ;;\n'test --dax') echo '2 passed, 0 failed' ;;\n\
        demo) echo a scene; echo '1 passed, 0 failed' ;;");
    assert_eq!(sum, (true, "8 passed, 0 failed, 1 skipped".into()));
}

#[test]
fn a_failure_an_error_after_good_counts_and_a_missing_line_all_fail() {
    let sum = ci("test) echo '5 passed, 2 failed'; exit 1 ;;\n'test --dax') echo '2 passed, 0 failed'; exit 1 ;;\n\
        demo) echo died ;;");
    assert_eq!(sum, (false, "7 passed, 4 failed".into()));
}
