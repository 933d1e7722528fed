//! `fix`: what can be mended without a person: the format, and the lints' own suggestions.

use crate::step::Outcome;
use crate::workspace::Workspace;

/// Mends; tells whether both tools succeeded.
pub(crate) fn run(workspace: &Workspace) -> bool {
    let mut clippy = workspace.cargo();
    clippy.args(["clippy", "--fix", "--allow-dirty", "--allow-staged", "--locked", "--release"]);
    clippy.args(["--workspace", "--all-targets"]);
    let mut fmt = workspace.cargo();
    fmt.args(["fmt", "--all"]);
    // The format comes last, for suggestions are not formatted; it comes also when clippy fails.
    let mended = [clippy, fmt].map(|mut command| matches!(Outcome::of_shown(&mut command), Outcome::Done(_)));
    mended == [true, true]
}
