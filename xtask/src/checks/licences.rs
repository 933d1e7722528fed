//! Licences of the dependencies, against the list in `deny.toml`.
//!
//! `cargo deny` reads the same file and checks more, but takes minutes to install; this check is always there.

use serde_json::Value;

use super::Findings;
use crate::workspace::Workspace;

pub(super) fn check(workspace: &Workspace) -> Findings {
    let deny = workspace.read("deny.toml")?;
    let (allowed, exceptions) = (allowed(&deny), exceptions(&deny));
    if allowed.is_empty() {
        return Err("deny.toml allows no licence: its list `allow` was not found".into());
    }
    let metadata = workspace.metadata("Cargo.toml", &["--filter-platform", &host(workspace)?])?;
    let used = used_packages(&metadata);
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let packages = packages.filter(|package| used.contains(&package["id"].as_str().unwrap_or_default()));
    Ok(packages.filter_map(|package| finding(package, &allowed, &exceptions)).collect())
}

/// The platform that is checked; what only other platforms use is not fetched for this.
fn host(workspace: &Workspace) -> Result<String, String> {
    let output = workspace.command("rustc").arg("-vV").output().map_err(|error| format!("rustc -vV: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned).ok_or("rustc names no host".into())
}

fn used_packages(metadata: &Value) -> Vec<&str> {
    let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
    nodes.filter_map(|node| node["id"].as_str()).collect()
}

fn finding(package: &Value, allowed: &[String], exceptions: &[(String, String)]) -> Option<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let Some(expression) = package["license"].as_str() else {
        return Some(format!("{name} names no licence"));
    };
    let excepted = exceptions.iter().filter(|(crate_name, _)| crate_name == name).map(|(_, licence)| licence.clone());
    let allowed: Vec<String> = allowed.iter().cloned().chain(excepted).collect();
    match is_allowed(expression, &allowed) {
        Some(true) => None,
        Some(false) => Some(format!("{name} is under {expression:?}, which deny.toml does not allow")),
        None => Some(format!("{name}: the licence {expression:?} is no SPDX expression")),
    }
}

/// The strings of the list `allow = […]`.
fn allowed(deny: &str) -> Vec<String> {
    let lines = deny.lines().map(|line| line.split('#').next().unwrap_or_default());
    let inside = lines.skip_while(|line| line.trim() != "allow = [").skip(1).take_while(|line| line.trim() != "]");
    inside.map(|line| line.trim().trim_matches([',', '"']).to_owned()).filter(|name| !name.is_empty()).collect()
}

/// Crate and licence of each line `{ allow = ["…"], crate = "…" },` of the list `exceptions`.
fn exceptions(deny: &str) -> Vec<(String, String)> {
    let lines = deny.lines().map(str::trim);
    let inside = lines.skip_while(|line| *line != "exceptions = [").skip(1).take_while(|line| *line != "]");
    let quoted = |line: &str| line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let pair = |line: &str| match &quoted(line)[..] {
        [licence, name] if !line.starts_with('#') => Some((name.clone(), licence.clone())),
        _ => None,
    };
    inside.filter_map(pair).collect()
}

/// Whether one of the ways to satisfy an SPDX expression (SPDX 2.3, annex D) uses allowed licences only.
fn is_allowed(expression: &str, allowed: &[String]) -> Option<bool> {
    // crates.io still accepts the slash that it once used for OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    let value = parser.any()?;
    parser.words.is_empty().then_some(value)
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Parser<'_> {
    fn any(&mut self) -> Option<bool> {
        let mut value = self.all()?;
        while self.take("OR") {
            value |= self.all()?;
        }
        Some(value)
    }

    fn all(&mut self) -> Option<bool> {
        let mut value = self.one()?;
        while self.take("AND") {
            value &= self.one()?;
        }
        Some(value)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let value = self.any()?;
            return self.take(")").then_some(value);
        }
        let mut name = self.next()?.to_owned();
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.next()?);
        }
        Some(self.allowed.contains(&name))
    }

    fn next(&mut self) -> Option<&str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_without_comments() {
        let deny = "[bans]\nmultiple = 1\n[licenses]\nallow = [\n  \"MIT\", # the usual\n  \"Apache-2.0 WITH LLVM-exception\",\n]\nx = [\n \"GPL\"\n]\n";
        assert_eq!(allowed(deny), ["MIT", "Apache-2.0 WITH LLVM-exception"]);
    }

    #[test]
    fn an_exception_holds_for_its_crate_only() {
        let deny = "allow = [\n]\nexceptions = [\n  { allow = [\"MPL-2.0\"], crate = \"tool\" },\n  # no\n]\n";
        let exceptions = exceptions(deny);
        assert_eq!(exceptions, [("tool".to_owned(), "MPL-2.0".to_owned())]);
        let package = |name: &str| serde_json::json!({"name": name, "license": "MPL-2.0"});
        assert_eq!(finding(&package("tool"), &[], &exceptions), None);
        assert!(finding(&package("other"), &[], &exceptions).is_some());
    }

    #[test]
    fn one_allowed_way_through_an_expression_is_enough() {
        let allowed = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(String::from);
        let cases = [
            ("MIT", Some(true)),
            ("GPL-3.0-only", Some(false)),
            ("GPL-3.0-only OR MIT", Some(true)),
            ("MIT/Apache-2.0", Some(true)),
            ("MIT AND GPL-3.0-only", Some(false)),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", Some(true)),
            ("(GPL-3.0-only OR Apache-2.0) AND Unicode-3.0", Some(false)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("Apache-2.0", Some(false)),
            ("(MIT", None),
            ("MIT MIT", None),
        ];
        for (expression, expected) in cases {
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
        }
    }
}
