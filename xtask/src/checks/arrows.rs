//! Which crate may depend on which.
//!
//! Dependencies for tests obey the same table as all others: a test that needs more belongs to `tests/`, where its
//! arrows are seen.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Findings, table};
use crate::workspace::Workspace;

/// Workspaces of the tree; those that are not there are passed over.
const MANIFESTS: [&str; 3] = ["Cargo.toml", "peers/Cargo.toml", "fuzz/Cargo.toml"];

/// What each crate may depend on, by the names in ARCHITECTURE.md.
type Allowed = BTreeMap<String, Vec<String>>;

pub(super) fn check(workspace: &Workspace) -> Findings {
    let allowed = allowed(&table::rows(workspace, "Allowed arrows")?);
    let mut findings = Vec::new();
    for manifest in MANIFESTS.iter().filter(|manifest| workspace.has(manifest)) {
        let metadata = workspace.metadata(manifest, &["--no-deps"])?;
        findings.extend(refused(&allowed, &arrows(&metadata)));
    }
    Ok(findings)
}

fn allowed(rows: &[Vec<String>]) -> Allowed {
    let names = |cell: &str| cell.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned).collect();
    rows.iter().filter_map(|row| Some((row.first()?.clone(), names(row.get(1)?)))).collect()
}

/// A crate and one that it depends on, both by their short names; each crate also stands alone once, without one.
fn arrows(metadata: &Value) -> Vec<(String, Option<String>)> {
    let mut arrows = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let from = short_name(package);
        arrows.push((from.clone(), None));
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // A dependency from a registry has no path.
            if dependency["path"].is_string() {
                arrows.push((from.clone(), Some(short_name(dependency))));
            }
        }
    }
    arrows
}

fn short_name(package: &Value) -> String {
    let name = package["name"].as_str().unwrap_or_default();
    name.strip_prefix("remanent-").unwrap_or(name).to_owned()
}

fn refused(allowed: &Allowed, arrows: &[(String, Option<String>)]) -> Vec<String> {
    let finding = |(from, to): &(String, Option<String>)| match (allowed.get(from), to) {
        (None, None) => Some(format!("{from}: the crate has no row among the allowed arrows of ARCHITECTURE.md")),
        (Some(targets), Some(to)) if !targets.contains(to) => {
            Some(format!("{from} depends on {to}: ARCHITECTURE.md does not allow that arrow"))
        }
        _ => None,
    };
    arrows.iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(text: &str) -> Vec<(String, Option<String>)> {
        arrows(&serde_json::from_str(text).unwrap())
    }

    fn table() -> Allowed {
        allowed(&[vec!["pmem".into(), "".into(), "text".into()], vec!["store".into(), "pmem, report".into()]])
    }

    #[test]
    fn an_arrow_that_is_not_in_the_table_is_refused_for_tests_too() {
        let found = metadata(
            r#"{"packages":[{"name":"remanent-store","dependencies":[
                {"name":"remanent-pmem","path":"/p","kind":null},{"name":"serde","kind":null},
                {"name":"remanent-crash","path":"/c","kind":"dev"}]}]}"#,
        );
        let findings = refused(&table(), &found);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("store depends on crash"));
    }

    #[test]
    fn a_crate_without_a_row_is_refused_even_when_it_depends_on_nothing() {
        let findings = refused(&table(), &metadata(r#"{"packages":[{"name":"stray","dependencies":[]}]}"#));
        assert!(findings[0].starts_with("stray: the crate has no row"));
    }
}
