//! `remanent pool` on whole pools.

use std::fs;

use pmem::{ErrorCode, OpenMode};

use crate::harness::{Place, binary, finish, put, start};

#[test]
fn a_pool_is_made_examined_grown_and_removed() {
    let place = Place::new();
    let made = place.done(&["pool", "create", "a", "--size", "4MiB"]);
    assert!(made.stdout.starts_with("created a: 4 MiB in 1 file, "), "{}", made.stdout);
    let grown = place.done(&["pool", "grow", "a", "--size", "8MiB"]);
    assert_eq!(grown.stdout, "grew a from 4 MiB to 12 MiB: a.1\n");
    let info = place.done(&["pool", "info", "a"]).stdout;
    for line in
        ["layout       store version 1\n", "state        clean\n", "names        0\n", "part 1       8 MiB  a.1\n"]
    {
        assert!(info.contains(line), "{line:?} is not in\n{info}");
    }
    assert!(
        place
            .done(&["pool", "check", "a"])
            .stdout
            .ends_with("a: sound (2 files, 0 names, 64 KiB read, 0 checksums compared)\n")
    );
    let removed = place.done(&["pool", "rm", "a", "--yes"]);
    assert_eq!(removed.stdout, "removed a\nremoved a.1\n");
    assert_eq!(place.snapshot(), []);
}

#[test]
fn json_says_the_same_in_exact_bytes() {
    let place = Place::new();
    let made =
        place.done(&["--json", "pool", "create", "a", "--size", "5MB", "--layout", "raw", "--layout-version", "3"]);
    let made = made.result("remanent.pool.create/1");
    // Rounded up to whole pages.
    assert_eq!((&made["size_bytes"], &made["names"]), (&5_001_216u64.into(), &0.into()));
    assert_eq!((&made["layout"]["name"], &made["layout"]["version"]), (&"raw".into(), &3.into()));
    let info = place.done(&["pool", "info", "a", "--json"]).result("remanent.pool.info/1");
    assert_eq!((&info["set"], &info["is_clean"]), (&made["set"], &true.into()));
    let check = place.done(&["pool", "check", "a", "--json"]).result("remanent.pool.check/1");
    assert_eq!((&check["verdict"], &check["findings"]), (&"sound".into(), &serde_json::json!([])));
    place.done(&["pool", "grow", "a", "--size", "4MiB", "--json"]).result("remanent.pool.grow/1");
    let compacted = place.done(&["pool", "compact", "a", "--json"]).result("remanent.pool.compact/1");
    assert_eq!((&compacted["generation"], &compacted["is_clean"]), (&2.into(), &true.into()));
    let removed = place.done(&["pool", "rm", "a", "--yes", "--json"]).result("remanent.pool.rm/1");
    assert_eq!(removed, serde_json::json!({ "removed": ["a", "a.1"], "left_alone": [] }));
}

#[test]
fn names_are_listed_with_their_sizes() {
    let place = Place::new();
    place.pool_with_names("a");
    let listed = place.done(&["pool", "ls", "a"]).stdout;
    let expected = "  KIND         SIZE  EXTENTS       BORN  NAME\n     1        128 B        1          2  a\n     2        3 MiB        1          3  run/b\n";
    assert_eq!(listed, expected);
    let listed = place.done(&["--json", "pool", "ls", "a", "--prefix", "run/"]).result("remanent.pool.ls/1");
    assert_eq!(listed["names"].as_array().unwrap().len(), 1);
    let name = &listed["names"][0];
    assert_eq!((&name["name"], &name["size_bytes"], &name["born"]), (&"run/b".into(), &(3 << 20).into(), &3.into()));
}

#[test]
fn compaction_keeps_every_name() {
    let place = Place::new();
    place.pool_with_names("a");
    let reader = place.witness("a", OpenMode::Reader);
    assert!(place.done(&["pool", "compact", "a"]).stdout.starts_with("compacted a: "));
    reader.sees_the_same();
    assert!(place.done(&["pool", "check", "a"]).stdout.ends_with("a: sound (1 file, 2 names, 3.1 MiB read)\n"));
}

#[test]
fn stripes_and_parts_elsewhere_are_found_from_any_directory() {
    let place = Place::new();
    fs::create_dir(place.path("other place")).unwrap();
    let stripe = ["--stripe", "b", "other place/c", "--chunk", "2MiB"];
    let mut create = vec!["pool", "create", "a", "--size", "6MiB", "--prefault"];
    create.extend(stripe);
    place.done(&create);
    place.done(&["pool", "grow", "a", "--size", "4MiB", "--at", "other place/d", "--prefault"]);
    let path = place.path("a");
    let mut elsewhere = binary();
    elsewhere.current_dir("/").args(["pool", "check", path.to_str().unwrap(), "--json"]);
    let report = finish(start(&mut elsewhere)).result("remanent.pool.check/1");
    assert_eq!((report["files"].as_array().unwrap().len(), &report["verdict"]), (4, &"sound".into()));
    assert_eq!(place.done(&["pool", "rm", "a", "-y"]).stdout.lines().count(), 4);
    assert_eq!(fs::read_dir(place.path("other place")).unwrap().count(), 0);
}

#[test]
fn everything_that_reads_works_beside_a_writer() {
    let place = Place::new();
    place.pool_with_names("a");
    let writer = place.writer("a");
    put(&writer, "c", 3, 64);
    let witness = place.witness("a", OpenMode::Inspect);
    assert!(place.done(&["pool", "info", "a"]).stdout.contains("state        open in a writer\n"));
    assert_eq!(place.done(&["pool", "ls", "a"]).stdout.lines().count(), 4);
    let check = place.done(&["pool", "check", "a", "--json"]).result("remanent.pool.check/1");
    assert_eq!((&check["verdict"], &check["has_writer"]), (&"sound".into(), &true.into()));
    assert_eq!(check["findings"][0]["severity"], "note");
    for command in [&["pool", "grow", "a", "--size", "4MiB"][..], &["pool", "compact", "a"], &["pool", "rm", "a", "-y"]]
    {
        place.refused(command, ErrorCode::PoolBusy);
        witness.sees_the_same();
    }
    put(&writer, "d", 4, 64);
    assert_eq!(place.done(&["pool", "ls", "a"]).stdout.lines().count(), 5);
}

#[test]
fn removal_asks_and_nobody_answers_for_the_user() {
    let place = Place::new();
    place.pool_with_names("a");
    let before = place.snapshot();
    let ran = place.run(&["pool", "rm", "a"]);
    assert_eq!((ran.exit, &*ran.stdout), (4, ""));
    assert!(ran.stderr.starts_with("remanent: error[not-confirmed]: "), "{}", ran.stderr);
    let ran = place.run(&["pool", "rm", "a", "--json"]);
    assert_eq!(ran.exit, 4);
    assert!(ran.stdout.contains("\"code\": \"not-confirmed\""), "{}", ran.stdout);
    assert_eq!(place.snapshot(), before);
}

#[test]
fn removal_leaves_foreign_files_alone_and_names_them() {
    let place = Place::new();
    place.done(&["pool", "create", "a", "--size", "4MiB"]);
    place.done(&["pool", "grow", "a", "--size", "4MiB"]);
    fs::write(place.path("a.1"), "somebody's diary").unwrap();
    fs::write(place.path("a.2"), "another one").unwrap();
    let ran = place.done(&["pool", "rm", "a", "--yes"]);
    assert!(ran.stdout.starts_with("left alone: ") && ran.stdout.ends_with("removed a\n"), "{}", ran.stdout);
    assert_eq!(fs::read_to_string(place.path("a.1")).unwrap(), "somebody's diary");
    assert!(place.path("a.2").exists() && !place.path("a").exists());
}

#[test]
fn a_reader_keeps_what_it_reads_when_the_pool_is_removed() {
    let place = Place::new();
    place.pool_with_names("a");
    let reader = place.witness("a", OpenMode::Reader);
    place.done(&["pool", "rm", "a", "--yes"]);
    assert!(!place.path("a").exists());
    reader.sees_the_same();
}

/// A killed process leaves a pool that says so, and the next writer mends it.
#[test]
fn a_pool_that_was_not_closed_in_order_is_noted() {
    let place = Place::new();
    place.pool_with_names("a");
    let writer = place.writer("a");
    put(&writer, "c", 3, 64);
    // As the disk would be after a crash.
    fs::copy(place.path("a"), place.path("copy")).unwrap();
    drop(writer);
    assert!(place.done(&["pool", "info", "copy"]).stdout.contains("not closed in order"));
    let check = place.done(&["pool", "check", "copy"]).stdout;
    assert!(check.starts_with("note        copy: the pool was not closed in order"), "{check}");
    place.done(&["pool", "compact", "copy"]);
    assert!(place.done(&["pool", "check", "copy"]).stdout.starts_with("copy: sound"), "{check}");
}

#[test]
fn quiet_leaves_confirmations_out_and_answers_in() {
    let place = Place::new();
    assert_eq!(place.done(&["-q", "pool", "create", "a", "--size", "4MiB", "--prefault"]).stdout, "");
    assert!(place.done(&["-q", "pool", "info", "a"]).stdout.contains("generation"));
    assert_eq!(place.done(&["pool", "rm", "a", "--yes", "--quiet"]).stdout, "");
    assert_eq!(place.snapshot(), []);
}
