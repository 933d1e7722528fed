//! Rules for the source files themselves.

use std::collections::BTreeSet;

use super::{Findings, table};
use crate::workspace::Workspace;

/// Past this a file is split, or ARCHITECTURE.md says why not.
const LINES_LIMIT: usize = 600;

/// Files that people write, by extension or whole name.
const WRITTEN: &[&str] = &["rs", "py", "R", "c", "h", "cc", "md", "toml", "yml", "run", "sh", "txt"];

pub(super) fn module_docs(workspace: &Workspace) -> Findings {
    let begins = |text: &str| text.lines().find(|line| !line.trim().is_empty()).is_some_and(|l| l.starts_with("//!"));
    let files = workspace.sources(&["rs"]).into_iter();
    let undocumented = files.filter(|file| !workspace.read(file).is_ok_and(|text| begins(&text)));
    Ok(undocumented.map(|file| format!("{file} does not begin with `//!`: say what the file is for")).collect())
}

pub(super) fn file_length(workspace: &Workspace) -> Findings {
    let excepted = table::rows(workspace, "Long files")?;
    let mut findings = Vec::new();
    for file in workspace.sources(&["rs", "py", "R", "c", "h", "cc", "run"]) {
        let lines = workspace.read(&file)?.lines().count();
        let excepted = excepted.iter().any(|row| row.len() > 1 && row[0] == file && !row[1].is_empty());
        if lines > LINES_LIMIT && !excepted {
            findings.push(format!(
                "{file} has {lines} lines: split it, or give a reason below \"Long files\" in ARCHITECTURE.md"
            ));
        }
    }
    Ok(findings)
}

/// The compiler refuses `unsafe` wherever no attribute allows it, so the attributes are all that is looked at. In the
/// workspaces with lints of their own it refuses nothing, and the word itself is looked for.
pub(super) fn unsafe_code(workspace: &Workspace) -> Findings {
    let listed: Vec<String> =
        table::rows(workspace, "Where unsafe is")?.into_iter().filter_map(|row| row.into_iter().next()).collect();
    let mut findings = lints_are_in_force(workspace)?;
    let apart = workspaces_apart(workspace)?;
    let mut allowed = BTreeSet::new();
    for file in workspace.sources(&["rs"]) {
        let text = workspace.read(&file)?;
        if apart.iter().any(|folder| file.starts_with(folder)) {
            allowed.extend(text.lines().any(has_unsafe).then_some(file));
        } else {
            allowed.extend(unsafe_files(&file, &text));
        }
    }
    for file in allowed.iter().filter(|file| !listed.contains(file)) {
        findings.push(format!("{file} allows unsafe code, but ARCHITECTURE.md does not list it"));
    }
    for file in listed.iter().filter(|file| !allowed.contains(*file)) {
        findings.push(format!("{file} is listed in ARCHITECTURE.md, but allows no unsafe code"));
    }
    Ok(findings)
}

fn lints_are_in_force(workspace: &Workspace) -> Findings {
    let mut findings = Vec::new();
    if !workspace.read("Cargo.toml")?.lines().any(|line| line == format!("{LINT} = \"deny\"")) {
        findings.push("Cargo.toml: the workspace's lints do not deny unsafe code".into());
    }
    for manifest in workspace.sources(&["Cargo.toml"]) {
        let text = workspace.read(&manifest)?;
        if text.contains("[package]") && !text.contains("[lints]\nworkspace = true") && !text.contains("[workspace]") {
            findings.push(format!("{manifest} does not take over the workspace's lints"));
        }
    }
    Ok(findings)
}

/// The folders of the workspaces beside the one at the root, each with a slash at its end.
fn workspaces_apart(workspace: &Workspace) -> Findings {
    let mut folders = Vec::new();
    for manifest in workspace.sources(&["Cargo.toml"]) {
        let folder = manifest.trim_end_matches("Cargo.toml");
        if !folder.is_empty() && workspace.read(&manifest)?.lines().any(|line| line == "[workspace]") {
            folders.push(folder.to_owned());
        }
    }
    Ok(folders)
}

/// Whether the keyword stands on a line, outside of a comment.
fn has_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
}

/// The lint, in two halves, so that this file passes its own rule.
const LINT: &str = concat!("unsafe", "_code");

/// The files that a file allows `unsafe` in: itself, or a module that it declares.
fn unsafe_files(file: &str, text: &str) -> Vec<String> {
    let allowing = attributes(text).filter(|(attribute, _)| allows_unsafe(attribute));
    let place = |(attribute, rest): (&str, &str)| {
        let is_of_an_item = !attribute.starts_with("#!");
        let mut lines = rest.lines().map(str::trim).skip(1);
        let item = lines.find(|line| !line.is_empty() && !line.starts_with("//") && !line.starts_with("#["));
        declared_file(file, item.filter(|_| is_of_an_item).unwrap_or_default())
    };
    allowing.map(place).collect()
}

/// Every attribute, over as many lines as it has, with the text behind it. What looks like one in a comment that begins
/// its line is none.
fn attributes(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices('#').filter_map(|(start, _)| {
        let line = text[..start].rsplit('\n').next().unwrap_or_default();
        let is_one = text[start + 1..].starts_with(['[', '!']) && !line.trim_start().starts_with("//");
        let end = is_one.then(|| closing_bracket(&text[start..])).flatten()?;
        Some((&text[start..start + end], &text[start + end..]))
    })
}

/// Where the first bracket is closed.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 1 => return Some(at + 1),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Whether an attribute makes the lint weaker, alone or with others, also under a condition.
fn allows_unsafe(attribute: &str) -> bool {
    let words: Vec<&str> = attribute.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    words.contains(&LINT) && ["allow", "expect", "warn"].iter().any(|level| words.contains(level))
}

/// `pub mod name;` in `src/lib.rs` is `src/name.rs`; in `src/parent.rs` it is `src/parent/name.rs`. Anything else
/// that is allowed `unsafe` stands in the file itself.
fn declared_file(file: &str, item: &str) -> String {
    let module = item.strip_suffix(';').and_then(|item| item.rsplit_once("mod ")).map(|(_, name)| name);
    let Some(module) = module else { return file.to_owned() };
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => format!("{folder}/{module}.rs"),
        _ => format!("{folder}/{}/{module}.rs", name.trim_end_matches(".rs")),
    }
}

pub(super) fn words(workspace: &Workspace) -> Findings {
    let mut findings = Vec::new();
    for file in workspace.sources(WRITTEN) {
        for (index, line) in workspace.read(&file)?.lines().enumerate() {
            findings.extend(forbidden(line).map(|word| format!("{file}:{}: {word:?} has no place here", index + 1)));
        }
    }
    Ok(findings)
}

/// A note to oneself that nobody will find again, or a path that only one machine has.
fn forbidden(line: &str) -> Option<&'static str> {
    // Written in two halves, so that this file passes its own rule.
    const NOTES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];
    const HOMES: [&str; 3] = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
    let is_a_root = |home: &&str| {
        // The same folder names further down a path are the tree's own.
        line.match_indices(*home)
            .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "}.~_-".contains(c)))
    };
    NOTES.into_iter().find(|note| line.contains(note)).or_else(|| HOMES.into_iter().find(is_a_root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_and_machine_paths_are_found_and_paths_of_the_tree_are_not() {
        assert_eq!(forbidden(concat!("// TO", "DO later")), Some(concat!("TO", "DO")));
        assert_eq!(forbidden(concat!("open(\"/ho", "me/ann/x\")")), Some(concat!("/ho", "me/")));
        assert_eq!(forbidden(concat!("mkdir target/ho", "me/x")), None);
        assert_eq!(forbidden("a plain line"), None);
    }

    /// `unsafe_files` of a text in which LINT stands for the lint.
    fn files(file: &str, text: &str) -> Vec<String> {
        unsafe_files(file, &text.replace("LINT", LINT))
    }

    #[test]
    fn unsafe_is_placed_in_the_module_that_the_attribute_stands_on() {
        let text = "#[allow(LINT)] // why\nmod media;\n#[allow(LINT)]\n/// Doc.\npub(crate) mod view;\n";
        assert_eq!(files("crates/a/src/lib.rs", text), ["crates/a/src/media.rs", "crates/a/src/view.rs"]);
        assert_eq!(files("crates/a/src/b.rs", "#[allow(LINT)]\nmod c;\n"), ["crates/a/src/b/c.rs"]);
        assert_eq!(files("a/b.rs", "//! Doc.\n#![allow(LINT)]\n"), ["a/b.rs"]);
        assert_eq!(files("a/b.rs", "#[allow(LINT)]\nfn f() {}\n"), ["a/b.rs"]);
    }

    #[test]
    fn every_way_to_allow_unsafe_is_seen() {
        for attribute in [
            "#[expect(LINT)]",
            "#![warn(LINT)]",
            "#[allow(dead_code, LINT)]",
            "#[allow(\n    dead_code,\n    LINT,\n)]",
            "#[cfg_attr(all(unix, feature = \"[x]\"), allow(LINT))]",
            "    let x = #[allow(LINT)]",
            "#[cfg(test)] #[allow(LINT)]",
        ] {
            assert_eq!(files("a/b.rs", &format!("{attribute}\nfn f() {{}}\n")), ["a/b.rs"], "{attribute}");
        }
        for text in ["#![deny(LINT)]", "#![forbid(LINT)]", "// #[allow(LINT)]\nmod c;", "#[allow(dead_code)]\nmod c;"] {
            assert_eq!(files("a/b.rs", text), [""; 0], "{text}");
        }
    }

    #[test]
    fn the_keyword_is_told_from_lints_and_comments() {
        for line in ["unsafe { f() }", "    pub unsafe fn f() {}", "let x = unsafe{ 1 };"] {
            assert!(has_unsafe(line), "{line}");
        }
        for line in ["// unsafe", "#![deny(unsafe_op_in_unsafe_fn)]", "fn f() {} // unsafe"] {
            assert!(!has_unsafe(line), "{line}");
        }
    }
}
