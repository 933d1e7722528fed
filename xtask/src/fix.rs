//! `fix`: what can be mended without a person: the C header, the format, and the lints' own suggestions.

use crate::step::Outcome;
use crate::workspace::Workspace;

/// Mends; tells whether all tools succeeded.
pub(crate) fn run(workspace: &Workspace) -> bool {
    let mut clippy = workspace.cargo();
    clippy.args(["clippy", "--fix", "--allow-dirty", "--allow-staged", "--locked", "--release"]);
    clippy.args(["--workspace", "--all-targets"]);
    // The test that compares the header writes it when it is told to; the tool that makes it is a dependency of tests only.
    let mut header = workspace.cargo();
    header.args(["test", "--quiet", "--locked", "--release", "-p", "remanent-capi", "--test", "header"]);
    header.env("REMANENT_WRITE_HEADER", "1");
    let mut fmt = workspace.cargo();
    fmt.args(["fmt", "--all"]);
    // The format comes last, for suggestions are not formatted; it comes also when clippy fails.
    let mended = [clippy, header, fmt].map(|mut command| matches!(Outcome::of_shown(&mut command), Outcome::Done(_)));
    mended == [true, true, true]
}
