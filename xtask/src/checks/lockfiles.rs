//! The lock files of the other workspaces follow the crates of this one: cargo asks for that only where it builds them, which
//! no lane does with every change.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Findings;
use crate::workspace::Workspace;

/// The workspaces beside the product's; those that are not there are passed over.
const FOLDERS: [&str; 2] = ["peers", "fuzz"];

/// What each crate depends on, by the names of packages.
type Dependencies = BTreeMap<String, BTreeSet<String>>;

pub(super) fn check(workspace: &Workspace) -> Findings {
    let mut findings = Vec::new();
    let product = declared(&workspace.metadata("Cargo.toml", &["--no-deps"])?);
    for folder in FOLDERS.iter().filter(|folder| workspace.has(folder)) {
        let mut crates = product.clone();
        crates.extend(declared(&workspace.metadata(&format!("{folder}/Cargo.toml"), &["--no-deps"])?));
        findings.extend(outdated(&crates, &locked(&workspace.read(&format!("{folder}/Cargo.lock"))?), folder));
    }
    Ok(findings)
}

/// What manifests say, but for tests.
fn declared(metadata: &Value) -> Dependencies {
    let names = |package: &Value| {
        let needed = package["dependencies"].as_array().into_iter().flatten().filter(|of| of["kind"] != "dev");
        needed.filter_map(|of| Some(of["name"].as_str()?.to_owned())).collect()
    };
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages.filter_map(|package| Some((package["name"].as_str()?.to_owned(), names(package)))).collect()
}

/// What a lock file says; of several versions of a package it names the version too.
fn locked(text: &str) -> Dependencies {
    let package = |block: &str| {
        let quoted = |line: &str| line.split('"').nth(1).map(|name| name.split(' ').next().unwrap_or(name).to_owned());
        let name = block.lines().find(|line| line.starts_with("name = ")).and_then(quoted)?;
        let list = block.split_once("dependencies = [").map_or("", |(_, list)| list);
        Some((name, list.lines().filter_map(quoted).collect()))
    };
    text.split("[[package]]").filter_map(package).collect()
}

fn outdated(crates: &Dependencies, locked: &Dependencies, folder: &str) -> Vec<String> {
    let is_missing = |(name, needed): &(&String, &BTreeSet<String>)| {
        crates.get(*name).is_some_and(|declared| !declared.is_subset(needed))
    };
    let finding = |(name, _): (&String, &BTreeSet<String>)| {
        format!("{folder}/Cargo.lock does not have what {name} depends on: `cargo update --workspace` there mends it")
    };
    locked.iter().filter(is_missing).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_without_a_new_dependency_is_refused() {
        let metadata = |names: &str| {
            let text = format!(r#"{{"packages":[{{"name":"remanent-bench","dependencies":[{names}]}}]}}"#);
            declared(&serde_json::from_str(&text).unwrap())
        };
        let lock = "version = 4\n\n[[package]]\nname = \"remanent-bench\"\nversion = \"0.1.0\"\ndependencies = [\n \"libc\",\n \
                    \"rustix 1.1.6\",\n]\n\n[[package]]\nname = \"libc\"\nversion = \"0.2.1\"\n";
        let (libc, rustix) = (r#"{"name":"libc","kind":null}"#, r#"{"name":"rustix","kind":null}"#);
        let found = |names: &str| outdated(&metadata(names), &locked(lock), "fuzz");
        assert!(found(&format!("{libc},{rustix}")).is_empty());
        assert!(
            found(&format!(r#"{libc},{{"name":"tempfile","kind":"dev"}}"#)).is_empty(),
            "tests are locked elsewhere"
        );
        let findings = found(&format!(r#"{libc},{{"name":"saphyr","kind":null}}"#));
        assert!(findings.len() == 1 && findings[0].contains("remanent-bench"), "{findings:?}");
    }
}
