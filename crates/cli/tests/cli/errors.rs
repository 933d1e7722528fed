//! Every error that files can provoke: typed, told to people and to programs, and nothing is changed.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;

use pmem::{ErrorCode, OpenMode};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::harness::{NOBODY, Place, finish, is_root, start, unprivileged};

const SUPERBLOCK_AT: [u64; 2] = [0, 1 << 20];
const ROOT_AT: [u64; 2] = [4096, (1 << 20) + 4096];
/// After the checkpoint of the empty pool.
const FIRST_COMMIT_AT: u64 = (2 << 20) + 256;

/// What opens a pool, as a reader and as a writer.
const OPENERS: [&[&str]; 4] =
    [&["pool", "info", "a"], &["pool", "ls", "a"], &["pool", "grow", "a", "--size", "4MiB"], &["pool", "compact", "a"]];

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

/// Changes superblocks and seals them again, as a newer version would.
fn reseal(path: &Path, change: impl Fn(&mut [u8])) {
    for at in SUPERBLOCK_AT {
        let mut slot = fs::read(path).unwrap()[at as usize..at as usize + 4096].to_vec();
        change(&mut slot);
        let sum = crc32c::crc32c(&slot[..4088]);
        slot[4088..4092].copy_from_slice(&sum.to_le_bytes());
        write_at(path, at, &slot);
    }
}

/// A pool of two parts with names in it.
fn pool_of_two(place: &Place) {
    place.pool_with_names("a");
    place.done(&["pool", "grow", "a", "--size", "4MiB"]);
}

/// All openers refuse, a handle that was open before goes on, and `check` calls it damage without changing it.
#[track_caller]
fn damaged(damage: impl Fn(&Place), code: ErrorCode) {
    let place = Place::new();
    pool_of_two(&place);
    let witness = place.witness("a", OpenMode::Reader);
    damage(&place);
    OPENERS.iter().for_each(|opener| place.refused(opener, code));
    let before = place.snapshot();
    let ran = place.run(&["--json", "pool", "check", "a"]);
    assert_eq!(ran.exit, 3, "{}{}", ran.stdout, ran.stderr);
    let report = ran.result("remanent.pool.check/1");
    assert_eq!(report["verdict"], "damaged");
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().any(|f| f["severity"] == "damage" && f["error"] == code.name()), "{report}");
    let ran = place.run(&["pool", "check", "a"]);
    assert!(ran.exit == 3 && ran.stdout.contains("\na: damaged ("), "{}", ran.stdout);
    assert_eq!(place.snapshot(), before, "the check changed something");
    witness.sees_the_same();
}

#[test]
fn damaged_superblocks() {
    let spoil = |place: &Place| SUPERBLOCK_AT.iter().for_each(|at| write_at(&place.path("a"), at + 50, b"xx"));
    damaged(spoil, ErrorCode::SuperblockLost);
}

#[test]
fn damaged_root_cells() {
    damaged(|place| ROOT_AT.iter().for_each(|at| write_at(&place.path("a"), at + 16, b"xx")), ErrorCode::Corrupt);
}

#[test]
fn damaged_log() {
    damaged(|place| write_at(&place.path("a"), FIRST_COMMIT_AT + 70, b"x"), ErrorCode::Corrupt);
}

#[test]
fn truncated_part() {
    let cut = |place: &Place| OpenOptions::new().write(true).open(place.path("a.1")).unwrap().set_len(3 << 20).unwrap();
    damaged(cut, ErrorCode::Truncated);
}

/// The witness reads only what is left: a lost page of a mapping is a signal.
#[test]
fn truncated_first_file() {
    let place = Place::new();
    place.pool_with_names("a");
    let witness = place.witness("a", OpenMode::Reader);
    OpenOptions::new().write(true).open(place.path("a")).unwrap().set_len((8 << 20) - 4096).unwrap();
    OPENERS.iter().for_each(|opener| place.refused(opener, ErrorCode::Truncated));
    let before = place.snapshot();
    assert_eq!(place.run(&["pool", "check", "a"]).exit, 3);
    assert_eq!(place.snapshot(), before, "the check changed something");
    witness.sees_the_same();
}

#[test]
fn missing_part() {
    damaged(|place| fs::rename(place.path("a.1"), place.path("elsewhere")).unwrap(), ErrorCode::MissingPart);
}

#[test]
fn foreign_part() {
    let exchange = |place: &Place| {
        place.done(&["pool", "create", "b", "--size", "4MiB"]);
        fs::rename(place.path("b"), place.path("a.1")).unwrap();
    };
    damaged(exchange, ErrorCode::ForeignPart);
}

/// What only a newer version understands is not damage: the check refuses like everything else.
#[test]
fn newer_versions_and_unknown_features() {
    type Change = fn(&mut [u8]);
    let changes: [(Change, ErrorCode); 2] =
        [(|slot| slot[8] = 99, ErrorCode::NewerVersion), (|slot| slot[32] = 0x80, ErrorCode::UnknownFeature)];
    for (change, code) in changes {
        let place = Place::new();
        place.pool_with_names("a");
        let witness = place.witness("a", OpenMode::Inspect);
        reseal(&place.path("a"), change);
        OPENERS.iter().for_each(|opener| place.refused(opener, code));
        place.refused(&["pool", "check", "a"], code);
        witness.sees_the_same();
    }
}

/// A reader may ignore these features, a writer may not.
#[test]
fn features_that_only_writers_must_know() {
    let place = Place::new();
    place.pool_with_names("a");
    reseal(&place.path("a"), |slot| slot[24] = 1);
    place.done(&["pool", "info", "a"]);
    place.refused(&["pool", "compact", "a"], ErrorCode::UnknownFeature);
}

#[test]
fn what_is_no_pool() {
    let place = Place::new();
    place.pool_with_names("a");
    fs::create_dir(place.path("directory")).unwrap();
    fs::write(place.path("text"), "nothing like a pool").unwrap();
    fs::write(place.path("empty"), "").unwrap();
    symlink("a", place.path("link")).unwrap();
    mknodat(CWD, place.path("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let witness = place.witness("a", OpenMode::Reader);
    for (name, code) in [
        ("missing", ErrorCode::NotFound),
        ("missing/a", ErrorCode::NotFound),
        ("directory", ErrorCode::IsDirectory),
        ("link", ErrorCode::Symlink),
        ("pipe", ErrorCode::NotAFile),
        ("text", ErrorCode::NotAPool),
        ("empty", ErrorCode::NotAPool),
    ] {
        for command in ["info", "ls", "check", "compact"] {
            place.refused(&["pool", command, name], code);
        }
        place.refused(&["pool", "grow", name, "--size", "4MiB"], code);
        place.refused(&["pool", "rm", name, "--yes"], code);
    }
    witness.sees_the_same();
}

#[test]
fn a_part_is_not_the_pool() {
    let place = Place::new();
    pool_of_two(&place);
    for command in [&["info", "a.1"][..], &["check", "a.1"], &["compact", "a.1"], &["rm", "a.1", "--yes"]] {
        let mut arguments = vec!["pool"];
        arguments.extend(command);
        place.refused(&arguments, ErrorCode::NotFirstPart);
    }
}

#[test]
fn nothing_that_exists_is_replaced() {
    let place = Place::new();
    pool_of_two(&place);
    let witness = place.witness("a", OpenMode::Reader);
    fs::create_dir(place.path("directory")).unwrap();
    fs::write(place.path("text"), "precious").unwrap();
    symlink("nowhere", place.path("link")).unwrap();
    symlink("directory", place.path("link to it")).unwrap();
    for (name, code) in [
        ("a", ErrorCode::AlreadyExists),
        ("directory", ErrorCode::IsDirectory),
        ("text", ErrorCode::AlreadyExists),
        ("link", ErrorCode::AlreadyExists),
        ("link to it", ErrorCode::AlreadyExists),
    ] {
        place.refused(&["pool", "create", name, "--size", "4MiB"], code);
        place.refused(&["pool", "create", "new", "--size", "6MiB", "--stripe", name], code);
        place.refused(&["pool", "grow", "a", "--size", "4MiB", "--at", name], code);
    }
    fs::write(place.path("a.2"), "in the way").unwrap();
    place.refused(&["pool", "grow", "a", "--size", "4MiB"], ErrorCode::AlreadyExists);
    witness.sees_the_same();
}

#[test]
fn sizes_that_cannot_be() {
    let place = Place::new();
    place.pool_with_names("a");
    let witness = place.witness("a", OpenMode::Reader);
    for size in ["0", "0GiB", "1", "4092KiB", "200TiB", "16777215TiB"] {
        place.refused(&["pool", "create", "new", "--size", size], ErrorCode::BadSize);
        place.refused(&["pool", "grow", "a", "--size", size], ErrorCode::BadSize);
    }
    for chunk in ["0", "4096", "3MiB"] {
        let arguments = ["pool", "create", "new", "--size", "8MiB", "--stripe", "more", "--chunk", chunk];
        place.refused(&arguments, ErrorCode::BadSize);
    }
    witness.sees_the_same();
}

#[test]
fn larger_than_the_disk() {
    let place = Place::new();
    place.pool_with_names("a");
    let witness = place.witness("a", OpenMode::Reader);
    place.refused(&["pool", "create", "new", "--size", "100TiB"], ErrorCode::FileSystemFull);
    place.refused(&["pool", "grow", "a", "--size", "100TiB"], ErrorCode::FileSystemFull);
    witness.sees_the_same();
}

#[test]
fn a_file_that_anybody_may_write() {
    let place = Place::new();
    place.pool_with_names("a");
    let witness = place.witness("a", OpenMode::Reader);
    fs::set_permissions(place.path("a"), Permissions::from_mode(0o666)).unwrap();
    for opener in OPENERS {
        place.refused(opener, ErrorCode::WorldWritable);
    }
    place.refused(&["pool", "check", "a"], ErrorCode::WorldWritable);
    place.refused(&["pool", "rm", "a", "--yes"], ErrorCode::WorldWritable);
    witness.sees_the_same();
}

#[test]
fn files_without_permission() {
    let place = Place::new();
    place.pool_with_names("a");
    let witness = place.witness("a", OpenMode::Reader);
    fs::set_permissions(place.path("a"), Permissions::from_mode(0o000)).unwrap();
    let info = || unprivileged(&place, &["pool", "info", "a"]);
    // The first call makes room for whoever it runs as.
    info();
    place.refused_by(info, ErrorCode::AccessDenied);
    fs::create_dir(place.path("closed")).unwrap();
    fs::set_permissions(place.path("closed"), Permissions::from_mode(0o555)).unwrap();
    place.refused_by(
        || unprivileged(&place, &["pool", "create", "closed/a", "--size", "4MiB"]),
        ErrorCode::AccessDenied,
    );
    let ran = finish(start(&mut unprivileged(&place, &["doctor", "closed"])));
    assert!(ran.exit == 1 && ran.stdout.contains("\nerror  access-denied: "), "{}", ran.stdout);
    witness.sees_the_same();
}

#[test]
fn a_read_only_file_can_be_read() {
    let place = Place::new();
    place.pool_with_names("a");
    let witness = place.witness("a", OpenMode::Reader);
    if is_root() {
        chown(place.path("a"), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::set_permissions(place.path("a"), Permissions::from_mode(0o444)).unwrap();
    for command in [&["pool", "info", "a"][..], &["pool", "ls", "a"], &["pool", "check", "a"]] {
        assert_eq!(finish(start(&mut unprivileged(&place, command))).exit, 0, "{command:?}");
    }
    for command in [&["pool", "compact", "a"][..], &["pool", "grow", "a", "--size", "4MiB"], &["pool", "rm", "a", "-y"]]
    {
        place.refused_by(|| unprivileged(&place, command), ErrorCode::ReadOnly);
    }
    witness.sees_the_same();
}

/// One damaged copy loses nothing: everything works, and a check says what it found.
#[test]
fn one_lost_copy_is_repairable() {
    for at in [SUPERBLOCK_AT[0], SUPERBLOCK_AT[1], ROOT_AT[0], ROOT_AT[1]] {
        let place = Place::new();
        place.pool_with_names("a");
        write_at(&place.path("a"), at + 16, b"xx");
        let before = place.snapshot();
        let check = place.done(&["pool", "check", "a"]).stdout;
        assert!(
            check.starts_with(&format!("repairable  a at byte {at}: ")) && check.contains("\na: repairable ("),
            "{check}"
        );
        place.done(&["pool", "info", "a"]);
        assert_eq!(place.snapshot(), before);
        place.done(&["pool", "compact", "a"]);
        assert!(place.done(&["pool", "check", "a"]).stdout.starts_with("a: sound ("), "byte {at}");
    }
}
