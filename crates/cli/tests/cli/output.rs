//! What reaches the standard streams, whatever the command.

use std::fs::File;
use std::process::Stdio;

use serde_json::Value;

use crate::harness::{Place, binary, finish, spawn, start};

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    place.done(&["pool", "create", "a", "--size", "4MiB"]);
    for arguments in [&["pool", "info", "a"][..], &["completions", "zsh"], &["man"], &["--help"], &["doctor"]] {
        let mut child = start(place.command(arguments).env("RUST_BACKTRACE", "1"));
        drop(child.stdout.take());
        let ran = finish(child);
        assert_eq!((ran.exit, &*ran.stderr), (0, ""), "{arguments:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let place = Place::new();
    let mut command = place.command(&["completions", "bash"]);
    command.stdout(File::create("/dev/full").unwrap()).stderr(Stdio::piped());
    let ran = finish(spawn(&mut command));
    assert_eq!(ran.exit, 1);
    assert!(ran.stderr.starts_with("remanent: error[io]: writing the output failed"), "{}", ran.stderr);
}

#[test]
fn a_command_line_that_cannot_be_understood_exits_with_2() {
    let place = Place::new();
    for (arguments, message) in [
        (&["pool", "crate"][..], "'create'"),
        (&["pool", "create", "a"], "--size <SIZE>"),
        (&["pool", "create", "a", "--size", "-4096"], "negative"),
        (&["pool", "create", "a", "--size", "1.5"], "is a number"),
        (&["pool", "create", "a", "--size", "4MiB", "--layout", "stroe"], "'store'"),
        (&["pool", "create", "a", "--size", "4MiB", "--layout", ""], "store, raw"),
        (&["pool", "create", "a", "--size", "4MiB", "--layout-version", "2"], "--layout raw"),
        (&["pool", "create", "a", "--size", "17000000TiB"], "16 EiB"),
        (&["pool", "create", "a", "--size", "4MiB", "--chunk", "2MiB"], "--stripe"),
        (&["pool", "grow", "a"], "--size <SIZE>"),
        (&["pool", "create", "a", "--size", "4MiB", "--layout-version", "-1"], "-1"),
        (&["man", "missing"], "no directory"),
    ] {
        let ran = place.run(arguments);
        assert_eq!((ran.exit, &*ran.stdout), (2, ""), "{arguments:?}");
        assert!(ran.stderr.contains(message), "{arguments:?}: {}", ran.stderr);
        let ran = finish(start(place.command(&["--json"]).args(arguments)));
        let envelope: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((ran.exit, &*ran.stderr, &envelope["error"]["code"]), (2, "", &"usage".into()), "{arguments:?}");
        assert!(envelope["error"]["message"].as_str().unwrap().contains(message), "{envelope}");
    }
    assert_eq!(place.snapshot(), []);
}

#[test]
fn the_version_names_the_pool_format() {
    let ran = Place::new().done(&["--version"]);
    let expected = format!("remanent {} (pool format {})\n", env!("CARGO_PKG_VERSION"), pmem::FORMAT_VERSION);
    assert_eq!(ran.stdout, expected);
}

#[test]
fn no_color_is_respected() {
    let coloured = finish(start(binary().arg("--nonsense").env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR")));
    assert!(coloured.stderr.contains('\u{1b}'));
    let plain = finish(start(binary().arg("--nonsense").env("NO_COLOR", "1").env_remove("CLICOLOR_FORCE")));
    assert!(!plain.stderr.contains('\u{1b}') && plain.stderr.contains("--nonsense"));
}
