//! Running the command, and proving that a refused one changed nothing.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmem::{ErrorCode, Layout, Mapped, OpenMode, Pool, RedoBatch, RegionSpec};
use serde_json::Value;
use store::{Checksums, Object, PersistOptions, Store};
use tempfile::TempDir;

/// What the tests' pools are made for.
pub(crate) const LAYOUT: Layout = Layout { name: "raw", version: 1 };

/// Held while a program is started and while a writer is open in this process: between fork and exec a child has the
/// writer's open file, and with it its lock.
static STARTING: Mutex<()> = Mutex::new(());

fn starting() -> MutexGuard<'static, ()> {
    STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a run has left.
pub(crate) struct Ran {
    pub(crate) exit: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The `result` of a successful envelope.
    #[track_caller]
    pub(crate) fn result(&self, schema: &str) -> Value {
        let envelope: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout));
        assert_eq!((&envelope["schema"], &envelope["ok"]), (&Value::from(schema), &Value::from(true)), "{envelope}");
        assert_eq!(self.stderr, "");
        envelope["result"].clone()
    }
}

/// Starts a program; every start of these tests goes through here.
pub(crate) fn spawn(command: &mut Command) -> Child {
    let _starting = starting();
    command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Starts the command; standard input is empty.
pub(crate) fn start(command: &mut Command) -> Child {
    spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remanent"));
    command.env_remove("REMANENT_ASSUME_PERSISTENT").env_remove("REMANENT_COPY");
    command
}

pub(crate) fn finish(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        exit: output.status.code().expect("it was not killed"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A directory of a test's own.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { directory: tempfile::Builder::new().prefix("remanent cli ").tempdir().unwrap() }
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Runs the command in the directory.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        finish(start(binary().current_dir(self.root()).args(arguments)))
    }

    /// Runs what must work.
    #[track_caller]
    pub(crate) fn done(&self, arguments: &[&str]) -> Ran {
        let ran = self.run(arguments);
        assert_eq!((ran.exit, &*ran.stderr), (0, ""), "{arguments:?}: {}", ran.stdout);
        ran
    }

    /// A pool with the names `a` (100 bytes) and `run/b` (3 MiB), closed in order.
    pub(crate) fn pool_with_names(&self, name: &str) {
        self.done(&["pool", "create", name, "--size", "8MiB", "--layout", LAYOUT.name]);
        let _starting = starting();
        let pool = Pool::open(Mapped::new(), &self.path(name), Some(LAYOUT), OpenMode::Writer).unwrap();
        for (name, kind, len_bytes) in [("a", 1, 100), ("run/b", 2, 3 << 20)] {
            put(&pool, name, kind, len_bytes);
        }
        pool.close().unwrap();
    }

    /// A store with objects of 300,000 bytes each: `a` and `run/b` with checksums, `c` without. Closed in order.
    pub(crate) fn store_with_objects(&self, name: &str) {
        self.done(&["pool", "create", name, "--size", "16MiB"]);
        let _starting = starting();
        let store = Store::open(Mapped::new(), &self.path(name), OpenMode::Writer).unwrap();
        for (name, value, checksums) in
            [("a", 1, Checksums::Crc32c), ("run/b", 2, Checksums::Crc32c), ("c", 3, Checksums::Off)]
        {
            let options = PersistOptions { checksums, ..PersistOptions::default() };
            store.persist(&[(name, Object::bytes(&[value; 300_000]))], &options).unwrap();
        }
        store.close().unwrap();
    }

    /// A writer in this process, which keeps the command out.
    pub(crate) fn writer(&self, name: &str) -> Pool<Mapped> {
        Pool::open(Mapped::new(), &self.path(name), Some(LAYOUT), OpenMode::Writer).unwrap()
    }

    /// A handle in this process that must go on working whatever the command does.
    pub(crate) fn witness(&self, name: &str, mode: OpenMode) -> Witness {
        let pool = Pool::open(Mapped::new(), &self.path(name), Some(LAYOUT), mode).unwrap();
        Witness { before: content(&pool), pool }
    }

    /// Everything in the directory: names, kinds, modes and contents.
    pub(crate) fn snapshot(&self) -> Vec<(PathBuf, u32, u64)> {
        let mut found = Vec::new();
        let mut open = vec![self.root().to_owned()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let metadata = path.symlink_metadata().unwrap();
                let mut hasher = DefaultHasher::new();
                if metadata.is_dir() {
                    open.push(path.clone());
                } else if metadata.is_symlink() {
                    fs::read_link(&path).unwrap().hash(&mut hasher);
                } else if metadata.is_file() {
                    match fs::read(&path) {
                        Ok(content) => content.hash(&mut hasher),
                        // Not even its owner may read it now: when it was changed must do.
                        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                            (metadata.len(), metadata.mtime(), metadata.mtime_nsec()).hash(&mut hasher);
                        }
                        Err(e) => panic!("{}: {e}", path.display()),
                    }
                }
                found.push((path, metadata.mode(), hasher.finish()));
            }
        }
        found.sort();
        found
    }

    /// The command must fail with this code, say so to people and to programs, and change nothing.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str], code: ErrorCode) {
        self.refused_by(|| self.command(arguments), code);
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = binary();
        command.current_dir(self.root()).args(arguments);
        command
    }

    #[track_caller]
    pub(crate) fn refused_by(&self, command: impl Fn() -> Command, code: ErrorCode) {
        let before = self.snapshot();
        let ran = finish(start(&mut command()));
        assert_eq!((ran.exit, &*ran.stdout), (1, ""), "{}", ran.stderr);
        assert!(ran.stderr.starts_with(&format!("remanent: error[{}]: ", code.name())), "{}", ran.stderr);
        assert!(ran.stderr.contains("\n  hint: "), "{}", ran.stderr);
        let ran = finish(start(command().arg("--json")));
        assert_eq!((ran.exit, &*ran.stderr), (1, ""), "{}", ran.stdout);
        let envelope: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout));
        assert!(envelope["schema"].as_str().unwrap().starts_with("remanent."), "{envelope}");
        assert_eq!(envelope["ok"], false);
        let error = &envelope["error"];
        assert_eq!((error["code"].as_str(), error["number"].as_u64()), (Some(code.name()), Some(code as u64)));
        assert!(!error["message"].as_str().unwrap().is_empty() && error["hint"].is_string(), "{envelope}");
        assert_eq!(self.snapshot(), before, "a refused command changed something");
    }
}

/// A second handle, open before the command ran.
pub(crate) struct Witness {
    pool: Pool<Mapped>,
    before: Vec<(String, Vec<u8>)>,
}

impl Witness {
    #[track_caller]
    pub(crate) fn sees_the_same(&self) {
        assert!(content(&self.pool) == self.before, "what another handle reads has changed");
    }
}

fn content(pool: &Pool<Mapped>) -> Vec<(String, Vec<u8>)> {
    let regions = pool.regions("").unwrap();
    let read = |region: &pmem::Region<Mapped>| {
        let mut bytes = vec![0; region.info().extents[0].len_bytes as usize];
        region.load_bytes(0, 0, &mut bytes);
        (region.name().to_owned(), bytes)
    };
    regions.iter().map(read).collect()
}

pub(crate) fn put(pool: &Pool<Mapped>, name: &str, kind: u32, len_bytes: usize) {
    let reservation = pool.reserve(len_bytes as u64).unwrap();
    let at = reservation.extent().offset;
    pool.set().store_bytes(at, &vec![kind as u8; len_bytes]);
    pool.set().persist(at, len_bytes as u64).unwrap();
    let mut batch = RedoBatch::new();
    batch.put(name, RegionSpec { kind, add: vec![reservation], ..RegionSpec::default() });
    pool.commit(batch).unwrap();
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The command without the right to do everything: as nobody when the tests run as root. The directory is opened for
/// it, and the binary is copied there, because the build may lie where nobody may look.
pub(crate) fn unprivileged(place: &Place, arguments: &[&str]) -> Command {
    if !is_root() {
        return place.command(arguments);
    }
    let binary = place.path("remanent");
    if !binary.exists() {
        fs::copy(env!("CARGO_BIN_EXE_remanent"), &binary).unwrap();
        fs::set_permissions(place.root(), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(binary);
    command.current_dir(place.root()).args(arguments).uid(NOBODY).gid(NOBODY);
    command
}

/// Debian's and everybody's number for nobody.
pub(crate) const NOBODY: u32 = 65534;
