//! Files of the mapped medium: what is made, what is refused, and that a refusal changes nothing.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use remanent_pmem::{Error, ErrorCode, Mapped, Media, MediaFile, OpenMode};
use tempfile::TempDir;

const LEN_BYTES: u64 = 1 << 20;
const MODES: [OpenMode; 3] = [OpenMode::Writer, OpenMode::Reader, OpenMode::Inspect];
const CHILD: &str = "REMANENT_TEST_CHILD";
const NOBODY: u32 = 65534;

fn directory() -> (TempDir, Mapped) {
    (tempfile::tempdir().unwrap(), Mapped::new())
}

/// A file with content, whose state can be compared later.
fn existing(path: &Path) -> u32 {
    fs::write(path, (0..100_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    state(path)
}

/// Content, length and mode, in one number.
fn state(path: &Path) -> u32 {
    let content = crc32c::crc32c(&fs::read(path).unwrap());
    crc32c::crc32c_append(content, &fs::symlink_metadata(path).unwrap().mode().to_le_bytes())
}

#[track_caller]
fn code<T>(result: Result<T, Error>) -> ErrorCode {
    match result {
        Ok(_) => panic!("this must be refused"),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            error.code()
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn created_file_is_zero_allocated_and_private() {
    let (dir, mapped) = directory();
    let path = dir.path().join("pool");
    let file = mapped.create(&path, LEN_BYTES).unwrap();
    assert_eq!((file.len_bytes().unwrap(), file.path()), (LEN_BYTES, path.as_path()));
    let mut content = vec![1; LEN_BYTES as usize];
    file.pread(0, &mut content).unwrap();
    assert!(content.iter().all(|&byte| byte == 0));
    file.fsync().unwrap();
    mapped.sync_dir(&path).unwrap();
    let found = fs::metadata(&path).unwrap();
    assert!(found.blocks() * 512 >= LEN_BYTES, "sparse: {} blocks", found.blocks());
    assert_eq!(found.mode() & 0o7777, 0o600);
}

#[test]
fn created_file_of_odd_length_is_kept_exact() {
    let (dir, mapped) = directory();
    for len_bytes in [1, 63, 4095, 4097, 1_000_003] {
        let file = mapped.create(&dir.path().join(len_bytes.to_string()), len_bytes).unwrap();
        assert_eq!(file.len_bytes().unwrap(), len_bytes);
    }
}

#[test]
fn written_bytes_are_read_by_another_opener() {
    let (dir, mapped) = directory();
    let path = dir.path().join("pool");
    let writer = mapped.create(&path, LEN_BYTES).unwrap();
    writer.pwrite(4090, b"across a page boundary").unwrap();
    for mode in MODES {
        let mut found = [0; 22];
        mapped.open(&path, mode).unwrap().pread(4090, &mut found).unwrap();
        assert_eq!(&found, b"across a page boundary");
    }
}

#[test]
fn nothing_that_exists_is_replaced() {
    let (dir, mapped) = directory();
    let (path, link, dangling) = (dir.path().join("file"), dir.path().join("link"), dir.path().join("dangling"));
    let before = existing(&path);
    symlink(&path, &link).unwrap();
    symlink(dir.path().join("nowhere"), &dangling).unwrap();
    for name in [&path, &link, &dangling, &dir.path().to_owned()] {
        assert_eq!(code(mapped.create(name, LEN_BYTES)), ErrorCode::AlreadyExists, "{}", name.display());
    }
    assert_eq!(state(&path), before);
    assert!(!dir.path().join("nowhere").exists());
}

#[test]
fn symlinks_are_refused() {
    let (dir, mapped) = directory();
    let (path, link) = (dir.path().join("file"), dir.path().join("link"));
    let before = existing(&path);
    symlink(&path, &link).unwrap();
    for mode in MODES {
        assert_eq!(code(mapped.open(&link, mode)), ErrorCode::Symlink);
    }
    assert_eq!(state(&path), before);
}

#[test]
fn directories_and_special_files_are_refused() {
    let (dir, mapped) = directory();
    let fifo = dir.path().join("fifo");
    let socket = dir.path().join("socket");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let _listener = UnixListener::bind(&socket).unwrap();
    assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
    for mode in MODES {
        assert_eq!(code(mapped.open(dir.path(), mode)), ErrorCode::IsDirectory);
        for special in [&fifo, &socket, Path::new("/dev/null")] {
            assert_eq!(code(mapped.open(special, mode)), ErrorCode::NotAFile, "{}", special.display());
        }
    }
}

#[test]
fn missing_names_are_not_found() {
    let (dir, mapped) = directory();
    let missing = dir.path().join("missing");
    for mode in MODES {
        assert_eq!(code(mapped.open(&missing, mode)), ErrorCode::NotFound);
    }
    assert_eq!(code(mapped.remove(&missing)), ErrorCode::NotFound);
    assert_eq!(code(mapped.rename(&missing, &dir.path().join("other"))), ErrorCode::NotFound);
    match mapped.create(&missing.join("pool"), LEN_BYTES) {
        Err(Error::NotFound { path }) => assert_eq!(path, missing, "the directory is what is missing"),
        other => panic!("{other:?}"),
    }
    assert_eq!(code(mapped.sync_dir(&missing.join("pool"))), ErrorCode::NotFound);
}

#[test]
fn world_writable_files_are_refused() {
    let (dir, mapped) = directory();
    let path = dir.path().join("pool");
    existing(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let before = state(&path);
    for mode in MODES {
        match mapped.open(&path, mode) {
            Err(Error::WorldWritable { mode, .. }) => assert_eq!(mode, 0o666),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(state(&path), before);
}

#[test]
fn impossible_sizes_are_refused_and_leave_nothing() {
    let (dir, mapped) = directory();
    let path = dir.path().join("pool");
    for len_bytes in [0, i64::MAX as u64 + 1, u64::MAX] {
        match mapped.create(&path, len_bytes) {
            Err(Error::BadSize { got_bytes, .. }) => assert_eq!(got_bytes, len_bytes),
            other => panic!("{other:?}"),
        }
        assert!(!mapped.exists(&path).unwrap());
    }
}

#[test]
fn size_beyond_the_limit_of_the_process_is_refused_and_leaves_nothing() {
    if let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) {
        assert_eq!(code(Mapped::new().create(&path, LEN_BYTES)), ErrorCode::BadSize);
        assert!(!path.exists());
        return;
    }
    let (dir, _) = directory();
    // ulimit counts blocks of 512 bytes. Beyond it the kernel would end the process (setrlimit(2)).
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 1000; exec \"$0\" --exact \"$1\" --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .arg("size_beyond_the_limit_of_the_process_is_refused_and_leaves_nothing")
        .env(CHILD, dir.path().join("pool"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[test]
fn hopeless_sizes_are_refused_before_the_disk_fills() {
    let (dir, mapped) = directory();
    let path = dir.path().join("pool");
    for len_bytes in [i64::MAX as u64, 1 << 55] {
        assert_eq!(code(mapped.create(&path, len_bytes)), ErrorCode::FileSystemFull);
        assert!(!mapped.exists(&path).unwrap());
    }
}

/// Runs the named test of this program again as an unprivileged user, with `path` in the environment.
fn again_as_nobody(test: &str, path: &Path) {
    let stage = tempfile::tempdir().unwrap();
    let program = stage.path().join("program");
    // Another process copies: a descriptor that writes to a program, and that a child of some other test has inherited
    // for a moment, would make starting it fail (ETXTBSY).
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    for open in [stage.path(), &program] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut child = Command::new(&program);
    child.args(["--exact", test, "--nocapture"]).env(CHILD, path).current_dir("/");
    if is_root() {
        child.uid(NOBODY).gid(NOBODY);
    }
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[test]
fn denied_access_names_owner_mode_and_process() {
    let uid = rustix::process::geteuid().as_raw();
    if let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) {
        let owner_uid = fs::symlink_metadata(&path).unwrap().uid();
        for mode in MODES {
            match Mapped::new().open(&path, mode) {
                Err(Error::AccessDenied { path: denied, owner_uid: owner, mode, process_uid }) => {
                    assert_eq!((denied, owner, mode, process_uid), (path.clone(), owner_uid, 0o200, uid));
                }
                // One's own file may be written but not read.
                other => panic!("{other:?}"),
            }
        }
        let parent = path.parent().unwrap();
        match Mapped::new().create(&parent.join("new"), LEN_BYTES) {
            Err(Error::AccessDenied { path, .. }) => assert_eq!(path, parent),
            other => panic!("{other:?}"),
        }
        return;
    }
    let (dir, _) = directory();
    let path = dir.path().join("pool");
    existing(&path);
    let before = state(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o200)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
    again_as_nobody("denied_access_names_owner_mode_and_process", &path);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(state(&path), before);
}

#[test]
fn file_without_write_permission_is_read_only() {
    if let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) {
        assert_eq!(code(Mapped::new().open(&path, OpenMode::Writer)), ErrorCode::ReadOnly);
        let reader = Mapped::new().open(&path, OpenMode::Reader).unwrap();
        assert_eq!(code(reader.pwrite(0, b"no")), ErrorCode::NotWritable);
        return;
    }
    let (dir, _) = directory();
    let path = dir.path().join("pool");
    existing(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let before = state(&path);
    again_as_nobody("file_without_write_permission_is_read_only", &path);
    assert_eq!(state(&path), before);
}

#[test]
fn rename_never_replaces() {
    let (dir, mapped) = directory();
    let (from, to, other) = (dir.path().join("from"), dir.path().join("to"), dir.path().join("other"));
    let (source, target) = (existing(&from), existing(&to));
    match mapped.rename(&from, &to) {
        Err(Error::AlreadyExists { path }) => assert_eq!(path, to),
        result => panic!("{result:?}"),
    }
    assert_eq!((state(&from), state(&to)), (source, target));
    mapped.rename(&from, &other).unwrap();
    assert!(!mapped.exists(&from).unwrap());
    assert_eq!(state(&other), source);
    mapped.remove(&other).unwrap();
    assert!(!mapped.exists(&other).unwrap());
}

#[test]
fn dangling_link_exists() {
    let (dir, mapped) = directory();
    symlink("nowhere", dir.path().join("link")).unwrap();
    assert!(mapped.exists(&dir.path().join("link")).unwrap());
    assert!(!mapped.exists(&dir.path().join("link/file")).unwrap());
}

#[test]
fn reading_past_the_end_is_truncated() {
    let (dir, mapped) = directory();
    let file = mapped.create(&dir.path().join("pool"), 1000).unwrap();
    let mut into = [0; 100];
    file.pread(900, &mut into).unwrap();
    match file.pread(901, &mut into) {
        Err(Error::Truncated { got_bytes, expected_bytes, .. }) => {
            assert_eq!((got_bytes, expected_bytes), (1000, 1001))
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(code(file.pread(u64::MAX - 200, &mut into)), ErrorCode::Io, "no file offset");
    file.pread(5000, &mut []).unwrap();
}

#[test]
fn read_error_is_a_bad_block() {
    // The kernel answers EIO for an address of this process that is not mapped; no other regular file does.
    let file = Mapped::new().open(Path::new("/proc/self/mem"), OpenMode::Reader).unwrap();
    match file.pread(4096, &mut [0; 64]) {
        Err(Error::BadBlock { offset_bytes, .. }) => assert_eq!(offset_bytes, 4096),
        other => panic!("{other:?}"),
    }
}

#[test]
fn descriptor_is_not_inherited() {
    let (dir, mapped) = directory();
    let path = dir.path().join("pool");
    let _file = mapped.create(&path, LEN_BYTES).unwrap();
    let listed = Command::new("sh").args(["-c", "ls -l /proc/self/fd"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&listed.stdout).contains(path.to_str().unwrap()));
}

#[test]
fn names_need_not_be_text() {
    let (dir, mapped) = directory();
    let path = dir.path().join(OsStr::from_bytes(b"p\xff\xfeol"));
    mapped.create(&path, 4096).unwrap();
    assert_eq!(mapped.open(&path, OpenMode::Reader).unwrap().len_bytes().unwrap(), 4096);
}
