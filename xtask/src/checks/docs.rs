//! Rules for the documents: links, the book's summary, error entries and format tables.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::Findings;
use crate::workspace::Workspace;

const BOOK: &str = "docs/src";
const ERRORS: &str = "docs/src/errors.md";
const ERROR_CODES: &str = "crates/pmem/src/error.rs";

pub(super) fn links(workspace: &Workspace) -> Findings {
    let mut findings = Vec::new();
    for file in workspace.sources(&["md"]) {
        for target in link_targets(&workspace.read(&file)?) {
            if !leads_somewhere(workspace, &file, &target)? {
                findings.push(format!("{file}: the link to {target} leads nowhere"));
            }
        }
    }
    Ok(findings)
}

/// Targets of `[text](target)` outside of code, those with a scheme left out.
fn link_targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for line in prose(text) {
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split([')', ' ']).next().unwrap_or_default();
            if !target.contains("://") && !target.starts_with("mailto:") {
                targets.push(target.to_owned());
            }
        }
    }
    targets
}

/// Lines outside of fenced code, with the text between back quotes taken out.
fn prose(text: &str) -> Vec<String> {
    let mut inside_fence = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside_fence = !inside_fence;
        } else if !inside_fence {
            lines.push(line.split('`').step_by(2).collect::<Vec<_>>().join(" "));
        }
    }
    lines
}

fn leads_somewhere(workspace: &Workspace, file: &str, target: &str) -> Result<bool, String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { file.to_owned() } else { resolve(file, path) };
    if !workspace.has(&path) {
        return Ok(false);
    }
    Ok(anchor.is_empty() || anchors(&workspace.read(&path)?).contains(anchor))
}

/// A path that is written relative to a file, relative to the root instead.
fn resolve(file: &str, path: &str) -> String {
    let mut resolved = PathBuf::from(file);
    resolved.pop();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            Component::CurDir => {}
            other => resolved.push(other),
        }
    }
    resolved.to_string_lossy().into_owned()
}

/// The anchors that mdBook and the code forges make of headings: lower case, spaces to hyphens, marks dropped.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let keep = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    headings.map(|h| h.to_lowercase().chars().filter(|&c| keep(c)).collect::<String>().replace(' ', "-")).collect()
}

pub(super) fn summary(workspace: &Workspace) -> Findings {
    let summary = workspace.read(&format!("{BOOK}/SUMMARY.md"))?;
    let listed: Vec<String> =
        link_targets(&summary).iter().map(|target| resolve(&format!("{BOOK}/SUMMARY.md"), target)).collect();
    let pages = workspace.sources(&["md"]).into_iter();
    let pages = pages.filter(|page| page.starts_with(BOOK) && !page.ends_with("/SUMMARY.md"));
    let missing = pages.filter(|page| !listed.contains(page));
    Ok(missing.map(|page| format!("{page} is not in the book's SUMMARY.md")).collect())
}

pub(super) fn error_entries(workspace: &Workspace) -> Findings {
    let codes = error_codes(&workspace.read(ERROR_CODES)?);
    if codes.is_empty() {
        return Err(format!("{ERROR_CODES} has no lines of the form `Name = 1, \"name\";`"));
    }
    let headings: Vec<String> =
        workspace.read(ERRORS)?.lines().filter_map(|l| Some(l.strip_prefix("## ")?.to_owned())).collect();
    let missing = codes.iter().filter(|code| !headings.contains(code)).map(|c| format!("{ERRORS} has no entry {c:?}"));
    let stray = headings.iter().filter(|h| !codes.contains(h)).map(|h| format!("{ERRORS}: {h:?} is no error code"));
    Ok(missing.chain(stray).collect())
}

/// The headings that the codes ask for, `name (number)`.
fn error_codes(source: &str) -> Vec<String> {
    let code = |line: &str| {
        let (_, rest) = line.trim().strip_suffix("\";")?.split_once(" = ")?;
        let (number, name) = rest.split_once(", \"")?;
        number.parse::<u16>().ok().map(|number| format!("{name} ({number})"))
    };
    source.lines().filter_map(code).collect()
}

/// Each `format.rs` takes its tables from a page of the book, so that they stand in one place and are seen in both.
pub(super) fn format_tables(workspace: &Workspace) -> Findings {
    let mut findings = Vec::new();
    for format in workspace.sources(&["format.rs"]) {
        match included_page(&workspace.read(&format)?).map(|page| resolve(&format, &page)) {
            Some(page) if page.starts_with(BOOK) => {
                if workspace.read(&page).is_err() {
                    findings.push(format!("{format} includes {page}, which is not there"));
                }
            }
            _ => findings.push(format!("{format} includes no page of the book with its tables")),
        }
    }
    Ok(findings)
}

/// The path in `#![doc = include_str!("path")]`.
fn included_page(source: &str) -> Option<String> {
    Some(source.split_once("#![doc = include_str!(\"")?.1.split_once('"')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn broken_links_and_anchors_are_found_and_code_is_passed_over() {
        let folder = tree(&[
            ("a.md", "[x](b/c.md#two-words) [y](b/none.md) [z](#gone) `[q](w)`\n```\n[code](no)\n```\n"),
            ("b/c.md", "## Two *words*\n[up](../a.md) [web](https://example.org/x)\n"),
        ]);
        let findings = links(&Workspace::at(folder.path())).unwrap();
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains("b/none.md") && findings[1].contains("#gone"));
    }

    #[test]
    fn a_page_outside_the_summary_is_found() {
        let folder =
            tree(&[("docs/src/SUMMARY.md", "- [A](a.md)\n"), ("docs/src/a.md", ""), ("docs/src/formats/b.md", "")]);
        let findings = summary(&Workspace::at(folder.path())).unwrap();
        assert_eq!(findings, ["docs/src/formats/b.md is not in the book's SUMMARY.md"]);
    }

    #[test]
    fn error_codes_and_entries_must_agree_both_ways() {
        let folder = tree(&[
            (ERROR_CODES, "    /// Text.\n    Io = 1, \"io\";\n    PoolBusy = 40, \"pool-busy\";\n"),
            (ERRORS, "# Errors\n## io (1)\ntext\n## pool-full (41)\n"),
        ]);
        let findings = error_entries(&Workspace::at(folder.path())).unwrap();
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains("pool-busy (40)") && findings[1].contains("pool-full (41)"));
    }

    #[test]
    fn a_format_whose_table_is_in_no_page_of_the_book_is_found() {
        let include = |page: &str| format!("#![doc = include_str!(\"{page}\")]\n");
        let folder = tree(&[
            ("crates/a/src/format.rs", include("../../../docs/src/a.md").as_str()),
            ("docs/src/a.md", "| table |"),
            ("crates/b/src/format.rs", "//! no table\n"),
            ("crates/c/src/format.rs", include("../../../docs/src/missing.md").as_str()),
        ]);
        let findings = format_tables(&Workspace::at(folder.path())).unwrap();
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains("crates/b/src/format.rs") && findings[1].contains("missing.md"));
    }
}
