//! The tables of ARCHITECTURE.md that rules are read from.

use crate::workspace::Workspace;

/// The rows of the first table below a heading, its head left out, code quotes taken off.
pub(super) fn rows(workspace: &Workspace, heading: &str) -> Result<Vec<Vec<String>>, String> {
    let text = workspace.read("ARCHITECTURE.md")?;
    below(&text, heading).ok_or_else(|| format!("ARCHITECTURE.md has no table below the heading {heading:?}"))
}

fn below(text: &str, heading: &str) -> Option<Vec<Vec<String>>> {
    let mut lines = text.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading).skip(1);
    let first = lines.by_ref().find(|line| line.starts_with('|') || line.starts_with('#'))?;
    // The next heading before any table: this one has none. After the head comes the line of dashes.
    if first.starts_with('#') || !lines.next()?.starts_with('|') {
        return None;
    }
    Some(lines.take_while(|line| line.starts_with('|')).map(cells).collect())
}

fn cells(line: &str) -> Vec<String> {
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()
}

#[cfg(test)]
mod tests {
    use super::below;

    const TEXT: &str =
        "# One\n\ntext\n\n## Two\n\ntext\n\n| a | b |\n| --- | --- |\n| `x` | y, z |\n| w | |\n\n| n | n |\n";

    #[test]
    fn rows_are_those_of_the_first_table_below_the_heading() {
        assert_eq!(below(TEXT, "Two").unwrap(), [["x", "y, z"], ["w", ""]]);
    }

    #[test]
    fn a_heading_without_a_table_has_no_rows() {
        assert_eq!(below(TEXT, "One"), None);
        assert_eq!(below(TEXT, "Three"), None);
    }
}
