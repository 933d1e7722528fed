//! Locks belong to the open file: not to the process, not to a child, and they fall with their holder.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use remanent_pmem::{ErrorCode, LockKind, Mapped, MappedFile, Media, MediaFile, OpenMode};
use tempfile::TempDir;

const CHILD: &str = "REMANENT_TEST_CHILD";

/// A child that some test is starting has every descriptor, and so every lock, of this process until its exec; a test
/// that expects a lock to fall must not run beside it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Fixture {
    _turn: MutexGuard<'static, ()>,
    _dir: TempDir,
}

fn file() -> (Fixture, PathBuf, MappedFile) {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let file = Mapped::new().create(&path, 4096).unwrap();
    (Fixture { _turn: turn, _dir: dir }, path, file)
}

fn open(path: &Path, mode: OpenMode) -> MappedFile {
    Mapped::new().open(path, mode).unwrap()
}

#[test]
fn two_opens_of_one_process_exclude_each_other() {
    let (_fixture, path, first) = file();
    let second = open(&path, OpenMode::Writer);
    assert!(first.try_lock(LockKind::Exclusive, 0..1).unwrap());
    assert!(!second.try_lock(LockKind::Exclusive, 0..1).unwrap());
    assert!(!second.try_lock(LockKind::Shared, 0..1).unwrap());
    assert!(second.try_lock(LockKind::Exclusive, 1..2).unwrap(), "another byte is free");
    first.unlock(0..1).unwrap();
    assert!(second.try_lock(LockKind::Exclusive, 0..1).unwrap());
}

#[test]
fn shared_locks_go_together_and_keep_a_writer_out() {
    let (_fixture, path, writer) = file();
    let readers = [open(&path, OpenMode::Reader), open(&path, OpenMode::Reader)];
    for reader in &readers {
        assert!(reader.try_lock(LockKind::Shared, 10..20).unwrap());
    }
    assert!(!writer.try_lock(LockKind::Exclusive, 19..30).unwrap());
    drop(readers);
    assert!(writer.try_lock(LockKind::Exclusive, 19..30).unwrap());
}

#[test]
fn reader_cannot_lock_exclusively() {
    let (_fixture, path, _writer) = file();
    let refused = open(&path, OpenMode::Reader).try_lock(LockKind::Exclusive, 0..1);
    assert_eq!(refused.unwrap_err().code(), ErrorCode::Io);
}

#[test]
fn closing_another_descriptor_keeps_the_lock() {
    let (_fixture, path, holder) = file();
    assert!(holder.try_lock(LockKind::Exclusive, 0..1).unwrap());
    // A traditional lock of fcntl(2) would fall here.
    drop(open(&path, OpenMode::Writer));
    drop(std::fs::read(&path).unwrap());
    assert!(!open(&path, OpenMode::Writer).try_lock(LockKind::Exclusive, 0..1).unwrap());
}

#[test]
fn locks_past_the_end_work_and_fall_at_close() {
    let (_fixture, path, holder) = file();
    let far = 1 << 60;
    assert!(holder.try_lock(LockKind::Exclusive, far..far + 1).unwrap());
    let other = open(&path, OpenMode::Writer);
    assert!(!other.try_lock(LockKind::Exclusive, far..far + 1).unwrap());
    drop(holder);
    assert!(other.try_lock(LockKind::Exclusive, far..far + 1).unwrap());
}

#[test]
fn other_holders_are_found_and_own_locks_are_not() {
    let (_fixture, path, holder) = file();
    let other = open(&path, OpenMode::Reader);
    assert_eq!(other.find_lock(0..1000).unwrap(), None);
    assert!(holder.try_lock(LockKind::Shared, 100..110).unwrap());
    assert_eq!(other.find_lock(0..1000).unwrap(), Some(100));
    assert_eq!(other.find_lock(105..1000).unwrap(), Some(105), "the first byte inside the range");
    assert_eq!(other.find_lock(110..1000).unwrap(), None);
    assert_eq!(holder.find_lock(0..1000).unwrap(), None);
}

#[test]
#[should_panic(expected = "no such range")]
fn empty_range_is_a_programmers_error() {
    let (_fixture, _path, holder) = file();
    let _ = holder.try_lock(LockKind::Shared, 5..5);
}

/// Another process that holds byte 0 until its input ends or it is killed.
struct Holder {
    child: Child,
    input: Option<ChildStdin>,
    /// Kept open, so that the child can say that its test passed.
    _output: BufReader<ChildStdout>,
}

impl Holder {
    fn start(test: &str, path: &Path) -> Holder {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let is_locked = output.by_ref().lines().map(Result::unwrap).any(|line| line.ends_with("locked"));
        assert!(is_locked, "the child got no lock");
        let input = child.stdin.take();
        Holder { child, input, _output: output }
    }

    /// What the child does.
    fn run(path: PathBuf) {
        let file = open(&path, OpenMode::Writer);
        assert!(file.try_lock(LockKind::Exclusive, 0..1).unwrap());
        println!("locked");
        std::io::stdout().flush().unwrap();
        let _ = std::io::stdin().read(&mut [0]);
    }
}

#[test]
fn lock_of_a_killed_process_falls() {
    if let Some(path) = std::env::var_os(CHILD) {
        return Holder::run(path.into());
    }
    let (_fixture, path, file) = file();
    let mut holder = Holder::start("lock_of_a_killed_process_falls", &path);
    assert!(!file.try_lock(LockKind::Exclusive, 0..1).unwrap());
    assert_eq!(file.find_lock(0..10).unwrap(), Some(0));
    holder.child.kill().unwrap();
    holder.child.wait().unwrap();
    assert!(file.try_lock(LockKind::Exclusive, 0..1).unwrap());
}

#[test]
fn lock_outlives_a_child_process_that_ends() {
    let (_fixture, path, file) = file();
    assert!(file.try_lock(LockKind::Exclusive, 0..1).unwrap());
    // Starting a program forks; the copy of the descriptor is closed by exec, and that must not unlock.
    assert!(Command::new("true").status().unwrap().success());
    assert!(!open(&path, OpenMode::Writer).try_lock(LockKind::Exclusive, 0..1).unwrap());
}

#[test]
fn lock_of_another_process_falls_at_its_end() {
    if let Some(path) = std::env::var_os(CHILD) {
        return Holder::run(path.into());
    }
    let (_fixture, path, file) = file();
    let mut holder = Holder::start("lock_of_another_process_falls_at_its_end", &path);
    assert!(!file.try_lock(LockKind::Shared, 0..1).unwrap());
    drop(holder.input.take());
    holder.child.wait().unwrap();
    assert!(file.try_lock(LockKind::Exclusive, 0..1).unwrap());
}
