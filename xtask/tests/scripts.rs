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
    assert_eq!(missing("r"), "make\nr-base-core\nr-cran-bit64\nr-cran-data.table\n");
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
    let lanes = |line: &str| stdout(&with_run(&format!("lanes_of {line}")));
    assert_eq!(lanes("test"), "test python r\n");
    assert_eq!(lanes("demo"), "demo python r\n");
    assert_eq!(lanes("fix"), "fix\n");
}

/// Runs `run` itself with a cache of its own, which tells whether anything was begun.
fn run(words: &[&str], cache: &Path) -> Output {
    let mut command = Command::new(root().join("run"));
    command.args(words).env_clear().env("REMANENT_CACHE", cache).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn what_makes_no_sense_is_refused_with_the_usage_before_anything_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let help = run(&["help"], &cache);
    assert!(help.status.success() && stdout(&help).starts_with("usage: ./run"));
    for words in [
        &["no-such-command"][..],
        &["test", "--fsat"],
        &["test", "--help"],
        &["test", "--fast", "--dax"],
        &["test --fast"],
        &["tidy", "all"],
        &["test", "--deep", "crash", "--budget"],
        &["test", "--deep", "crash", "--budget", "long"],
        &["test", "--deep", "--budget", "40m"],
    ] {
        let refused = run(words, &cache);
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).starts_with("usage: ./run"), "{words:?}");
        assert!(!cache.exists(), "{words:?}");
    }
}

#[test]
fn what_makes_sense_is_let_through() {
    for words in [
        "test",
        "test --fast",
        "test --dax",
        "test --deep",
        "test --deep peers-build",
        "test --deep crash --budget 40m",
    ] {
        assert!(with_run(&format!("is_usage {words}")).status.success(), "{words}");
    }
}

/// `find_rust` fails as where there is no toolchain; to call for an installation would end with another code.
#[test]
fn to_tidy_up_installs_nothing() {
    let tidy = |functions: &str| {
        with_run(&format!("install_packages() {{ exit 9; }}; install_rust() {{ exit 9; }}; {functions}; find_for_tidy"))
    };
    let output = tidy("probe() { true; }; find_rust() { false; }");
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Rust"));
    let output = tidy("probe() { false; }");
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("gcc"));
}

#[test]
fn to_tidy_up_names_the_environment_in_use_and_makes_none() {
    let folder = tempfile::tempdir().unwrap();
    let named =
        |line: &str| stdout(&with_run(&format!("cache='{}'; {line}; echo $REMANENT_VENV", folder.path().display())));
    let tidied = named("probe() { true; }; find_rust() { true; }; find_python() { echo /bin/true; }; find_for_tidy");
    assert!(tidied.contains("/venv-"), "{tidied:?}");
    assert_eq!(tidied, named("name_venv /bin/true"), "the one that a lane would make");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The tools of Debian's toolchain, where a stand-in for dpkg-query says what is installed.
#[test]
fn only_the_missing_tools_of_debians_own_toolchain_are_installed() {
    let tools = |cargo: &str, there: &str| {
        let dpkg = r#"dpkg-query() { [[ $2 == *Status* ]] && echo installed rustc-web || echo 1.91.0-1; }"#;
        let probe = format!("probe() {{ [[ ' {there} ' == *\" $1 \"* ]]; }}");
        stdout(&with_run(&format!("type() {{ echo {cargo}; }}; {dpkg}; {probe}; rust_tools")))
    };
    assert_eq!(tools("/usr/bin/cargo", "cargo-fmt"), "rust-web-clippy=1.91.0-1\n");
    assert_eq!(tools("/usr/bin/cargo", ""), "rustfmt-web=1.91.0-1\nrust-web-clippy=1.91.0-1\n");
    assert_eq!(tools("/usr/bin/cargo", "cargo-fmt cargo-clippy"), "");
    assert_eq!(tools("/opt/rust/bin/cargo", ""), "");
}

#[test]
fn packages_in_the_way_of_debians_newer_rust_are_named_and_left() {
    for package in ["rustc", "cargo", "rustfmt", "rust-clippy", "rustup"] {
        let dpkg = format!("dpkg-query() {{ [[ \" $* \" == *' {package} '* ]] && echo installed {package}; }}");
        let output = with_run(&format!("{dpkg}; find_root() {{ exit 9; }}; install_rust"));
        assert_eq!(output.status.code(), Some(4), "{package}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("apt-get remove {package})")), "{package}");
    }
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
