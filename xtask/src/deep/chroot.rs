//! The lane that proves `./run` on a bare Debian 12: a fresh root folder, nothing but what apt and the registries
//! give, a path with spaces, no locale, no environment, a `/dev/shm` that is a plain folder.
//!
//! All runs in a mount and process namespace of their own, so that the mounts and the processes end with the one
//! program that was started here, however it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::settings;
use crate::cache;
use crate::counts::Counts;
use crate::python;
use crate::step::Outcome;
use crate::workspace::Workspace;

const RELEASE: &str = "bookworm";
const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// The exit code by which `./run` says that packages are missing.
const PACKAGES_MISSING: i32 = 3;
/// Any user id but root's; the base system has no such user.
const USER_ID: u32 = 1000;

/// A bare system with two clones of the tree in it.
struct Bare {
    folder: PathBuf,
    environment: Vec<(String, String)>,
}

/// Who runs in the bare system, and from which clone.
#[derive(Clone, Copy, PartialEq)]
enum User {
    Root,
    Other,
}

/// A scene passes, or gives what was said and what is wrong with it.
type Scene = fn(&Bare) -> Result<(), String>;

/// Runs the lane; each scene counts as one test.
pub(super) fn run(workspace: &Workspace) -> Outcome {
    let is_root = workspace.command("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if !is_root {
        return Outcome::NotRun("only root can make a root folder".into());
    }
    let bare = match Bare::prepare(workspace) {
        Ok(bare) => bare,
        Err(reason) => return Outcome::Failed(Counts::ONE_FAILED, reason),
    };
    let scenes: [(&str, Scene); 5] = [
        ("without root it names the packages and exits with 3", Bare::refuses_without_root),
        ("killed while it makes the Python environment, if there is one", Bare::is_killed_in_the_venv),
        ("killed while it fetches crates", Bare::is_killed_while_fetching),
        ("as root, after the kills", Bare::passes_as_root),
        ("as another user, without sudo and HOME", Bare::passes_as_other),
    ];
    let mut counts = Counts::default();
    for (name, scene) in scenes {
        if let Err(reason) = scene(&bare) {
            counts += Counts::ONE_FAILED;
            return Outcome::Failed(counts, format!("{reason}\nscene: {name}"));
        }
        println!("chroot: {name}: ok");
        counts += Counts::ONE_PASSED;
    }
    Outcome::Done(counts)
}

impl Bare {
    fn prepare(workspace: &Workspace) -> Result<Bare, String> {
        let places = cache::folder(workspace).join("chroot");
        let mirrors = settings::mirrors(workspace, RELEASE)?;
        let base = places.join(format!("base-{RELEASE}"));
        cache::place(&base, |folder| debootstrap(workspace, &mirrors, folder))?;
        let folder = places.join(format!("run-{}", std::process::id()));
        let bare = Bare { folder, environment: settings::environment() };
        done(workspace.command("cp").args(["-a", "--reflink=auto"]).arg(&base).arg(&bare.folder))?;
        for user in [User::Root, User::Other] {
            settings::make_folder(&bare.home(user))?;
            settings::carry_over(workspace, &mirrors, &bare.folder, &bare.home(user))?;
            let clone = bare.inside(user.clone_path());
            done(workspace.command("git").args(["clone", "--quiet", "--no-hardlinks", "."]).arg(&clone))?;
        }
        let owned = [bare.home(User::Other), bare.inside(User::Other.clone_path())];
        let passwd = format!("{}{}", settings::read(&bare.inside("/etc/passwd"))?, User::Other.passwd_line());
        settings::write(&bare.inside("/etc/passwd"), &passwd)?;
        done(workspace.command("chown").args(["-R", &format!("{USER_ID}:{USER_ID}")]).args(&owned))?;
        Ok(bare)
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.folder.join(path.trim_start_matches('/'))
    }

    fn home(&self, user: User) -> PathBuf {
        self.inside(user.home())
    }

    fn refuses_without_root(&self) -> Result<(), String> {
        let output = output(&mut self.command(User::Other, "./run test"))?;
        let said = said(&output);
        if output.status.code() != Some(PACKAGES_MISSING) {
            return Err(format!("{said}\nit ended with {}, not with exit code {PACKAGES_MISSING}", output.status));
        }
        if !said.contains("apt-get install") || !said.contains("gcc") {
            return Err(format!("{said}\nit does not print the line to run"));
        }
        Ok(())
    }

    /// The environment is half-made when its interpreter is there under the temporary name.
    fn is_killed_in_the_venv(&self) -> Result<(), String> {
        if !self.inside(User::Root.clone_path()).join(python::PART).exists() {
            return Ok(());
        }
        let cache = self.home(User::Root).join(".cache/remanent");
        let is_half_made =
            |path: PathBuf| path.extension().is_some_and(|e| e == "part") && path.join("bin/pip").exists();
        self.is_killed_when(|| entries(&cache).any(is_half_made))
    }

    fn is_killed_while_fetching(&self) -> Result<(), String> {
        let registries = self.home(User::Root).join(".cargo/registry/cache");
        self.is_killed_when(|| entries(&registries).flat_map(|registry| entries(&registry)).next().is_some())
    }

    /// Kills everything at a moment, which must come before the run ends.
    fn is_killed_when(&self, moment: impl Fn() -> bool) -> Result<(), String> {
        let log = self.inside("/killed.log");
        let file = fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = self.command(User::Root, "./run test");
        let mut child = command.stdout(file).stderr(Stdio::null()).spawn().map_err(|error| error.to_string())?;
        let mut came = moment();
        while !came && matches!(child.try_wait(), Ok(None)) {
            sleep(Duration::from_millis(20));
            came = moment();
        }
        // The namespace's other processes go down with this one.
        child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
        if came { Ok(()) } else { Err(format!("{}\nit ended too early", settings::read(&log).unwrap_or_default())) }
    }

    fn passes_as_root(&self) -> Result<(), String> {
        // With terminals, as a system that has booted; the other scenes do without.
        self.passes(self.command(User::Root, "mount -t devpts devpts /dev/pts && ./run test"))
    }

    fn passes_as_other(&self) -> Result<(), String> {
        self.passes(self.command(User::Other, "unset HOME; ./run test --fast"))
    }

    fn passes(&self, mut command: Command) -> Result<(), String> {
        let output = output(&mut command)?;
        let said = said(&output);
        let last = said.lines().last().unwrap_or_default();
        if output.status.success() && last.contains(" passed, 0 failed") {
            return Ok(());
        }
        Err(format!("{said}\nit ended with {}", output.status))
    }

    /// A shell line in a clone, in namespaces that end with it.
    fn command(&self, user: User, line: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]).arg("--root").arg(&self.folder);
        command.args(["/usr/bin/env", "-i", &format!("PATH={SEARCH_PATH}"), &format!("HOME={}", user.home())]);
        command.args(self.environment.iter().map(|(name, value)| format!("{name}={value}")));
        if user == User::Other {
            command.args(["setpriv", &format!("--reuid={USER_ID}"), &format!("--regid={USER_ID}"), "--clear-groups"]);
        }
        let line = format!("cd '{}' && {{ {line}; }} 2>&1", user.clone_path());
        command.args(["/bin/bash", "-c", &line]).stdin(Stdio::null());
        command
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        if let Err(reason) = cache::remove(&self.folder) {
            eprintln!("chroot: {reason}");
        }
    }
}

impl User {
    /// The spaces are part of the test.
    fn clone_path(self) -> &'static str {
        match self {
            User::Root => "/srv/a clone of remanent",
            User::Other => "/srv/another clone",
        }
    }

    fn home(self) -> &'static str {
        match self {
            User::Root => "/srv/admin",
            User::Other => "/srv/other",
        }
    }

    fn passwd_line(self) -> String {
        format!("other:x:{USER_ID}:{USER_ID}::{}:/bin/bash\n", self.home())
    }
}

fn debootstrap(workspace: &Workspace, mirrors: &[settings::Mirror], folder: &Path) -> Result<(), String> {
    let mirror = mirrors.iter().find(|mirror| mirror.suite == RELEASE);
    let mirror = mirror.ok_or(format!("apt's sources here have no suite {RELEASE}"))?;
    println!("chroot: making the base system");
    done(workspace.command("debootstrap").args(["--variant=minbase", RELEASE]).arg(folder).arg(&mirror.uri))
}

/// What is in a folder; nothing, when it is not there yet.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Runs a command that must succeed.
fn done(command: &mut Command) -> Result<(), String> {
    let output = output(command)?;
    if output.status.success() { Ok(()) } else { Err(format!("{}\n{command:?} failed", said(&output))) }
}

fn output(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|error| format!("{command:?} does not start: {error}"))
}

fn said(output: &Output) -> String {
    [&output.stderr, &output.stdout].map(|stream| String::from_utf8_lossy(stream).into_owned()).concat()
}
