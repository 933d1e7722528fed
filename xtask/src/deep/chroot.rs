//! The lane that proves `./run` on a bare Debian 12: a fresh root folder, nothing but what apt and the registries
//! give, a path with spaces, no locale, no environment, a `/dev/shm` that is a plain folder.
//!
//! All runs in a mount and process namespace of their own, so that the mounts and the processes end with the one
//! program that was started here, however it ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

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

/// A run that takes longer hangs: with everything to fetch and to build it takes 40 minutes on two cores.
const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
/// The same for the base system, as timeout(1) reads it.
const BASE_LIMIT: &str = "30m";
/// Lists the deep lanes: it needs a compiler, and nothing that takes long.
const SHORTEST: &str = "./run test --deep";
/// What `./run` says when it gets something.
const INSTALLS: [&str; 2] = ["run: installing: ", "run: making the Python environment"];

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

/// Each group has a system of its own, and its scenes follow one another there.
const SCENES: [&[(&str, Scene)]; 2] = [
    &[
        ("without root it names the packages and exits with 3", Bare::refuses_without_root),
        ("killed while it makes the Python environment, if there is one", Bare::is_killed_in_the_venv),
        ("killed while it fetches crates", Bare::is_killed_while_fetching),
        ("as root, after the kills", Bare::passes_as_root),
        ("the demo, for which everything is there", Bare::shows_the_demo),
        ("as another user, without sudo and HOME", Bare::passes_as_other),
        ("the same user again, for whom everything is there too", Bare::finds_everything),
    ],
    &[("by another user's sudo, once", Bare::installs_by_sudo)],
];

/// How a run in the bare system ended.
enum End {
    /// It was killed at its moment.
    Moment,
    Itself(ExitStatus),
}

/// Runs the lane; each scene counts as one test.
pub(super) fn run(workspace: &Workspace) -> Outcome {
    let is_root = workspace.command("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if !is_root {
        return Outcome::NotRun("only root can make a root folder".into());
    }
    let mut counts = Counts::default();
    for scenes in SCENES {
        if let Err(reason) = play(workspace, scenes, &mut counts) {
            counts += Counts::ONE_FAILED;
            return Outcome::Failed(counts, reason);
        }
    }
    Outcome::Done(counts)
}

fn play(workspace: &Workspace, scenes: &[(&str, Scene)], counts: &mut Counts) -> Result<(), String> {
    let bare = Bare::prepare(workspace)?;
    for (name, scene) in scenes {
        scene(&bare).map_err(|reason| format!("{reason}\nscene: {name}"))?;
        println!("chroot: {name}: ok");
        *counts += Counts::ONE_PASSED;
    }
    Ok(())
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
        let (status, said) = self.runs(User::Other, "./run test")?;
        if status.code() != Some(PACKAGES_MISSING) {
            return Err(format!("{said}\nit ended with {status}, not with exit code {PACKAGES_MISSING}"));
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
        match self.runs_until(User::Root, "./run test", LIMIT, moment)? {
            (End::Moment, _) => Ok(()),
            (End::Itself(_), said) => Err(format!("{said}\nit ended too early")),
        }
    }

    fn passes_as_root(&self) -> Result<(), String> {
        // With terminals, as a system that has booted; the other scenes do without.
        self.passes(User::Root, "mount -t devpts devpts /dev/pts && ./run test").map(drop)
    }

    fn shows_the_demo(&self) -> Result<(), String> {
        installs_nothing(&self.passes(User::Root, "./run demo")?)
    }

    fn passes_as_other(&self) -> Result<(), String> {
        self.passes(User::Other, "unset HOME; ./run test --fast").map(drop)
    }

    fn finds_everything(&self) -> Result<(), String> {
        installs_nothing(&self.succeeds(User::Other, &format!("unset HOME; {SHORTEST}"))?)
    }

    fn installs_by_sudo(&self) -> Result<(), String> {
        self.succeeds(User::Root, "apt-get -q update && apt-get -q install --no-install-recommends --yes sudo")?;
        let kept: Vec<&str> = self.environment.iter().map(|(name, _)| name.as_str()).collect();
        let rules = format!("Defaults env_keep += \"{}\"\nother ALL=(ALL) NOPASSWD: ALL\n", kept.join(" "));
        let file = self.inside("/etc/sudoers.d/other");
        settings::write(&file, &rules)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o440)).map_err(|error| error.to_string())?;
        let said = self.succeeds(User::Other, SHORTEST)?;
        if installs_nothing(&said).is_ok() {
            return Err(format!("{said}\nit installed nothing"));
        }
        installs_nothing(&self.succeeds(User::Other, SHORTEST)?)
    }

    /// Runs what must end with a line of counts and no failure; returns what it said.
    fn passes(&self, user: User, line: &str) -> Result<String, String> {
        let said = self.succeeds(user, line)?;
        let last = said.lines().last().unwrap_or_default();
        if last.contains(" passed, 0 failed") { Ok(said) } else { Err(format!("{said}\nit counts no test")) }
    }

    fn succeeds(&self, user: User, line: &str) -> Result<String, String> {
        let (status, said) = self.runs(user, line)?;
        if status.success() { Ok(said) } else { Err(format!("{said}\nit ended with {status}")) }
    }

    fn runs(&self, user: User, line: &str) -> Result<(ExitStatus, String), String> {
        match self.runs_until(user, line, LIMIT, || false)? {
            (End::Itself(status), said) => Ok((status, said)),
            (End::Moment, _) => unreachable!("this moment never comes"),
        }
    }

    /// Runs a line to its end or to a moment, at which everything is killed; returns what it said until then.
    fn runs_until(
        &self,
        user: User,
        line: &str,
        limit: Duration,
        moment: impl Fn() -> bool,
    ) -> Result<(End, String), String> {
        let log = self.inside("/said.log");
        let file = fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let end = wait(self.command(user, line).stdout(file).stderr(Stdio::null()), limit, moment);
        let said = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
        match end {
            Ok(end) => Ok((end, said)),
            Err(reason) => Err(format!("{said}\n{reason}")),
        }
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

    /// The star, unlike an `x`, asks for no line in the shadow file; sudo looks whether the account is valid.
    fn passwd_line(self) -> String {
        format!("other:*:{USER_ID}:{USER_ID}::{}:/bin/bash\n", self.home())
    }
}

fn debootstrap(workspace: &Workspace, mirrors: &[settings::Mirror], folder: &Path) -> Result<(), String> {
    let mirror = mirrors.iter().find(|mirror| mirror.suite == RELEASE);
    let mirror = mirror.ok_or(format!("apt's sources here have no suite {RELEASE}"))?;
    println!("chroot: making the base system");
    let mut command = workspace.command("timeout");
    command.args([BASE_LIMIT, "debootstrap", "--variant=minbase", RELEASE]).arg(folder).arg(&mirror.uri);
    done(&mut command)
}

/// What is in a folder; nothing, when it is not there yet.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn installs_nothing(said: &str) -> Result<(), String> {
    match said.lines().find(|line| INSTALLS.iter().any(|beginning| line.starts_with(beginning))) {
        None => Ok(()),
        Some(line) => Err(format!("{said}\nit should have found everything: {line}")),
    }
}

/// Waits for a command to end, and kills it at a moment or at the limit, which is an error.
fn wait(command: &mut Command, limit: Duration, moment: impl Fn() -> bool) -> Result<End, String> {
    let (start, mut child) = (Instant::now(), command.spawn().map_err(|error| format!("{command:?}: {error}"))?);
    loop {
        let has_come = moment();
        match child.try_wait() {
            Ok(Some(status)) if !has_come => return Ok(End::Itself(status)),
            Ok(None) if !has_come && start.elapsed() < limit => sleep(Duration::from_millis(20)),
            _ => {
                // The namespace's other processes go down with this one.
                child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
                let minutes = limit.as_secs() / 60;
                return if has_come {
                    Ok(End::Moment)
                } else {
                    Err(format!("it had not ended after {minutes} minutes"))
                };
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_for(line: &str, limit: Duration, moment: fn() -> bool) -> Result<End, String> {
        wait(Command::new("sh").args(["-c", line]), limit, moment)
    }

    #[test]
    fn nothing_is_waited_for_longer_than_its_limit() {
        let hour = Duration::from_secs(3600);
        assert!(matches!(wait_for("exit 3", hour, || false), Ok(End::Itself(status)) if status.code() == Some(3)));
        assert!(matches!(wait_for("exec sleep 3600", hour, || true), Ok(End::Moment)));
        assert!(
            wait_for("exec sleep 3600", Duration::ZERO, || false).is_err_and(|reason| reason.contains("not ended"))
        );
    }

    #[test]
    fn what_is_installed_is_seen_among_other_lines() {
        installs_nothing("rustfmt: ok\n2 passed, 0 failed\n").unwrap();
        assert!(installs_nothing("run: installing: gcc libc6-dev\nrustfmt: ok\n").is_err());
        assert!(installs_nothing("run: making the Python environment /x\n").is_err());
    }
}
