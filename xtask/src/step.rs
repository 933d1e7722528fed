//! A step of a lane: what it needs, how it runs, and the one line that it prints.

use std::process::{Command, Output};
use std::time::Instant;

use crate::counts::Counts;
use crate::workspace::Workspace;

/// The exit code of a program of the tree that could not do all it was asked for, because something outside the tree
/// is missing, and has said what. It is the one that Automake's test driver takes for a test that was skipped.
pub(crate) const NOT_RUN: i32 = 77;

/// A set of steps that is asked for by one command (`docs/src/lanes.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// `./run test --fast`
    Fast,
    /// `./run test`
    Full,
    /// `./run test --dax`
    Dax,
    /// `./run demo`
    Demo,
    /// `./run bench`
    Bench,
}

/// One line of the lane table.
pub(crate) struct Step {
    pub name: &'static str,
    pub lanes: &'static [Lane],
    /// The step belongs to a part of the tree and is not there without it.
    pub part: Option<&'static str>,
    pub run: fn(&Workspace) -> Outcome,
}

/// What became of a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done(Counts),
    /// Failed, with what the user needs to see to mend it.
    Failed(Counts, String),
    /// Something outside the tree is missing: under CI a failure, for such a hole would never be noticed.
    NotRun(String),
    /// The tree itself has no such lane yet: never a failure, and never passed.
    NotBuilt(String),
}

impl Outcome {
    /// The outcome of a check that lists what is wrong.
    pub(crate) fn of_findings(findings: Vec<String>) -> Outcome {
        if findings.is_empty() {
            Outcome::Done(Counts::ONE_PASSED)
        } else {
            Outcome::Failed(Counts::ONE_FAILED, findings.join("\n"))
        }
    }

    /// Runs a command that passes or fails as a whole.
    pub(crate) fn of_command(command: &mut Command) -> Outcome {
        Outcome::of_output(command, |_| Counts::default())
    }

    /// Runs a command whose standard output tells how many tests it ran; to have run none, or to have left all of them
    /// out, is a failure.
    pub(crate) fn of_tests(command: &mut Command, count: fn(&str) -> Counts) -> Outcome {
        let at_least_one = |text: &str| match count(text) {
            counts if counts.passed == 0 => Counts { failed: counts.failed.max(1), ..counts },
            counts => counts,
        };
        match Outcome::of_output(command, at_least_one) {
            Outcome::Failed(counts, said) if counts.passed == 0 => {
                Outcome::Failed(counts, format!("{said}\nno test passed"))
            }
            other => other,
        }
    }

    fn of_output(command: &mut Command, count: impl Fn(&str) -> Counts) -> Outcome {
        match command.output() {
            Ok(output) => {
                let counts = count(&String::from_utf8_lossy(&output.stdout));
                Outcome::of_exit(output.status.success(), counts, || shown(&output))
            }
            Err(error) => Outcome::Failed(Counts::ONE_FAILED, format!("{command:?} does not start: {error}")),
        }
    }

    /// Runs a command whose output is what the user asked for. By [`NOT_RUN`] it tells that something was left out.
    pub(crate) fn of_shown(command: &mut Command) -> Outcome {
        match command.status() {
            Ok(status) if status.code() == Some(NOT_RUN) => {
                Outcome::NotRun("something is missing for all of it or for a part; see above".into())
            }
            Ok(status) => Outcome::of_exit(status.success(), Counts::default(), || status.to_string()),
            Err(error) => Outcome::Failed(Counts::ONE_FAILED, format!("{command:?} does not start: {error}")),
        }
    }

    fn of_exit(success: bool, counts: Counts, output: impl Fn() -> String) -> Outcome {
        // A program that counts no tests is one itself, and one that fails beside its tests did not pass either.
        match (success, counts) {
            (true, counts) if counts.total() == 0 => Outcome::Done(Counts::ONE_PASSED),
            (true, counts) if counts.failed == 0 => Outcome::Done(counts),
            (_, counts) => Outcome::Failed(Counts { failed: counts.failed.max(1), ..counts }, output()),
        }
    }

    /// What the outcome adds to the last line.
    pub(crate) fn counts(&self, under_ci: bool) -> Counts {
        match self {
            Outcome::Done(counts) | Outcome::Failed(counts, _) => *counts,
            Outcome::NotRun(_) if under_ci => Counts::ONE_FAILED,
            Outcome::NotRun(_) | Outcome::NotBuilt(_) => Counts::ONE_SKIPPED,
        }
    }

    /// The line of a step, with the output of a failure above it.
    pub(crate) fn report(&self, name: &str, seconds: f64) -> String {
        match self {
            Outcome::Done(counts) if counts.total() == 1 => format!("{name}: ok ({seconds:.1} s)"),
            Outcome::Done(counts) => format!("{name}: {counts} ({seconds:.1} s)"),
            Outcome::Failed(_, output) => format!("{}\n{name}: FAILED ({seconds:.1} s)", output.trim_end()),
            Outcome::NotRun(reason) | Outcome::NotBuilt(reason) => format!("{name}: not run: {reason}"),
        }
    }
}

/// Runs steps in order, prints their lines and the last one, and tells whether nothing failed.
pub(crate) fn run_all<'a>(workspace: &Workspace, steps: impl Iterator<Item = &'a Step>) -> bool {
    let mut sum = Counts::default();
    for step in steps {
        let start = Instant::now();
        let outcome = (step.run)(workspace);
        println!("{}", outcome.report(step.name, start.elapsed().as_secs_f64()));
        sum += outcome.counts(under_ci());
    }
    println!("{sum}");
    sum.failed == 0
}

pub(crate) fn under_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// Both streams of a failed command, without cargo's progress and the tests that passed.
fn shown(output: &Output) -> String {
    let text = [&output.stderr, &output.stdout].map(|stream| String::from_utf8_lossy(stream).into_owned()).concat();
    let lines = text.lines().filter(|line| !is_chatter(line));
    lines.fold(String::new(), |sum, line| sum + line + "\n")
}

fn is_chatter(line: &str) -> bool {
    const BEGINNINGS: [&str; 9] = [
        "   Compiling ",
        "    Checking ",
        "  Downloaded ",
        " Downloading ",
        "    Finished ",
        "     Running ",
        "   Doc-tests ",
        "running ",
        "test result: ok.",
    ];
    BEGINNINGS.iter().any(|beginning| line.starts_with(beginning))
        || (line.starts_with("test ") && line.ends_with(" ... ok"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_skipped_at_home_and_a_failure_under_ci() {
        let outcome = Outcome::NotRun("no such tool".into());
        assert_eq!(outcome.counts(false), Counts::ONE_SKIPPED);
        assert_eq!(outcome.counts(true), Counts::ONE_FAILED);
        assert_eq!(outcome.report("x", 0.0), "x: not run: no such tool");
    }

    #[test]
    fn a_lane_that_is_not_built_never_passes_and_never_fails() {
        assert_eq!(Outcome::NotBuilt("later".into()).counts(true), Counts::ONE_SKIPPED);
    }

    #[test]
    fn a_command_that_fails_beside_passing_tests_is_a_failure() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test result: ok. 2 passed; 0 failed'; echo broken >&2; exit 1"]);
        let outcome = Outcome::of_tests(&mut command, Counts::of_cargo_test);
        let Outcome::Failed(counts, output) = outcome else { panic!("{outcome:?}") };
        assert_eq!(counts, Counts { passed: 2, failed: 1, skipped: 0 });
        assert!(output.contains("broken"));
    }

    #[test]
    fn to_have_run_no_test_is_a_failure() {
        let outcome = Outcome::of_tests(&mut Command::new("true"), Counts::of_cargo_test);
        assert!(matches!(outcome, Outcome::Failed(Counts::ONE_FAILED, _)), "{outcome:?}");
        assert_eq!(Outcome::of_command(&mut Command::new("true")), Outcome::Done(Counts::ONE_PASSED));
    }

    #[test]
    fn to_have_left_every_test_out_is_a_failure() {
        let mut command = Command::new("echo");
        command.arg("test result: ok. 0 passed; 0 failed; 3 ignored");
        let outcome = Outcome::of_tests(&mut command, Counts::of_cargo_test);
        let Outcome::Failed(counts, output) = outcome else { panic!("{outcome:?}") };
        assert_eq!(counts, Counts { passed: 0, failed: 1, skipped: 3 });
        assert!(output.contains("no test passed"), "{output}");
    }

    #[test]
    fn a_program_that_says_so_was_not_run() {
        let shown = |code: i32| Outcome::of_shown(Command::new("sh").args(["-c", &format!("exit {code}")]));
        assert!(matches!(shown(NOT_RUN), Outcome::NotRun(_)));
        assert!(matches!(shown(1), Outcome::Failed(Counts::ONE_FAILED, _)));
        assert_eq!(shown(0), Outcome::Done(Counts::ONE_PASSED));
    }

    #[test]
    fn a_failure_is_shown_without_the_tests_that_passed() {
        assert!(is_chatter("test a::b ... ok") && is_chatter("test result: ok. 3 passed"));
        assert!(!is_chatter("test a::b ... FAILED") && !is_chatter("test result: FAILED. 3 passed"));
    }

    #[test]
    fn a_command_that_does_not_exist_is_a_failure() {
        let outcome = Outcome::of_command(&mut Command::new("no-such-program-anywhere"));
        assert_eq!(outcome.counts(false), Counts::ONE_FAILED);
    }
}
