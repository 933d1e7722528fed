//! This machine's way to the package registries, carried over into a bare system: mirrors, proxies, certificates and
//! the clients' own configuration. Nothing of it is known beforehand; all is read when the lane runs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::Workspace;

/// One suite of a Debian archive, as apt here uses it.
#[derive(Debug, PartialEq)]
pub(super) struct Mirror {
    pub uri: String,
    pub suite: String,
    pub component: String,
}

/// Variables that tell apt, pip or cargo where their registries are.
const VARIABLES: [&str; 12] = [
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "PIP_",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_SOURCE_",
];

/// Files that hold the same, and are copied as they are.
const FILES: [&str; 4] = ["/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", CERTIFICATES];

/// What this machine trusts, and where the package ca-certificates looks for more when it makes that file anew.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
const LOCAL_CERTIFICATES: &str = "usr/local/share/ca-certificates/machine.crt";

/// Configuration below the home folder.
const HOME_FILES: [&str; 4] = [".cargo/config.toml", ".cargo/config", ".config/pip/pip.conf", ".pip/pip.conf"];

/// The suites of a Debian release that apt has indexes of.
pub(super) fn mirrors(workspace: &Workspace, release: &str) -> Result<Vec<Mirror>, String> {
    let mut command = workspace.command("apt-get");
    command.args(["indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages"]);
    let output = command.output().map_err(|error| format!("apt-get does not start: {error}"))?;
    let mirrors = parse_mirrors(&String::from_utf8_lossy(&output.stdout), release);
    if mirrors.is_empty() {
        return Err(format!("apt here has no index of {release}; run apt-get update"));
    }
    Ok(mirrors)
}

fn parse_mirrors(targets: &str, release: &str) -> Vec<Mirror> {
    let mut mirrors = Vec::new();
    for line in targets.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[uri, suite, component] = words.as_slice() else { continue };
        let mirror = Mirror { uri: uri.into(), suite: suite.into(), component: component.into() };
        // The release itself, its updates and its security suite; other archives have names of their own.
        if suite.starts_with(release) && !mirrors.contains(&mirror) {
            mirrors.push(mirror);
        }
    }
    mirrors
}

/// The variables of this process that name registries.
pub(super) fn environment() -> Vec<(String, String)> {
    std::env::vars().filter(|(name, _)| VARIABLES.iter().any(|wanted| name.starts_with(wanted))).collect()
}

/// Writes what this machine uses into a bare system and one home folder in it.
pub(super) fn carry_over(workspace: &Workspace, mirrors: &[Mirror], system: &Path, home: &Path) -> Result<(), String> {
    let lines: String = mirrors.iter().map(|m| format!("deb {} {} {}\n", m.uri, m.suite, m.component)).collect();
    write(&system.join("etc/apt/sources.list"), &lines)?;
    let output = workspace.command("apt-config").arg("dump").output();
    let dump = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    write(&system.join("etc/apt/apt.conf.d/90machine"), &apt_network_settings(&dump))?;
    for file in FILES {
        copy(Path::new(file), &system.join(file.trim_start_matches('/')))?;
    }
    copy(Path::new(CERTIFICATES), &system.join(LOCAL_CERTIFICATES))?;
    let Some(own_home) = std::env::var_os("HOME").map(PathBuf::from) else { return Ok(()) };
    for file in HOME_FILES {
        copy(&own_home.join(file), &home.join(file))?;
    }
    Ok(())
}

/// The lines of `apt-config dump` about proxies and certificates.
fn apt_network_settings(dump: &str) -> String {
    let wanted = |line: &&str| {
        let name = line.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
        name.starts_with("acquire::http") && !line.ends_with(" \"\";")
    };
    dump.lines().filter(wanted).map(|line| format!("{line}\n")).collect()
}

/// Copies a file; one that is not there is passed over.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    if !from.exists() {
        return Ok(());
    }
    make_folder_of(to)?;
    fs::copy(from, to).map(drop).map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    make_folder_of(path)?;
    fs::write(path, text).map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

pub(super) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

fn make_folder_of(path: &Path) -> Result<(), String> {
    make_folder(path.parent().expect("a file stands in a folder"))
}

pub(super) fn make_folder(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{} cannot be made: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_suites_of_the_release_are_taken_each_once() {
        let targets = "http://mirror.example/debian/ bookworm main\nhttp://mirror.example/debian/ bookworm main\n\
            http://mirror.example/sec/ bookworm-security main\nhttp://other.example/ nodistro main\nodd line\n";
        let found = parse_mirrors(targets, "bookworm");
        let suites: Vec<&str> = found.iter().map(|mirror| mirror.suite.as_str()).collect();
        assert_eq!(suites, ["bookworm", "bookworm-security"]);
    }

    #[test]
    fn proxies_and_certificates_are_kept_and_all_else_is_left() {
        let dump = "APT \"\";\nAcquire::http \"\";\nAcquire::http::Proxy \"http://proxy.example:3128\";\n\
            Acquire::https::CAInfo \"/x.pem\";\nAcquire::Retries \"3\";\n";
        assert_eq!(
            apt_network_settings(dump),
            "Acquire::http::Proxy \"http://proxy.example:3128\";\nAcquire::https::CAInfo \"/x.pem\";\n"
        );
    }
}
