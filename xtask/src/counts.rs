//! How many tests ran: read from the summary lines of the test runners and summed up.

use std::fmt;
use std::ops::AddAssign;

/// Tests that passed, failed and were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Counts {
    pub(crate) const ONE_PASSED: Counts = Counts { passed: 1, failed: 0, skipped: 0 };
    pub(crate) const ONE_FAILED: Counts = Counts { passed: 0, failed: 1, skipped: 0 };
    pub(crate) const ONE_SKIPPED: Counts = Counts { passed: 0, failed: 0, skipped: 1 };

    pub(crate) fn total(self) -> u64 {
        self.passed + self.failed + self.skipped
    }

    /// Sums up the summary lines of `cargo test`, one for each test program.
    pub(crate) fn of_cargo_test(output: &str) -> Counts {
        let mut sum = Counts::default();
        for line in output.lines().filter_map(|line| line.trim_start().strip_prefix("test result: ")) {
            sum += Counts::of_words(line);
        }
        sum
    }

    /// Reads the closing line of pytest; an error in a fixture or at collection is a failure.
    pub(crate) fn of_pytest(output: &str) -> Counts {
        let closing = output.lines().rev().find(|line| line.contains(" in ") && Counts::of_words(line).total() > 0);
        closing.map(Counts::of_words).unwrap_or_default()
    }

    /// Reads pairs of a number and a word, whatever stands between them.
    fn of_words(line: &str) -> Counts {
        let mut counts = Counts::default();
        let words: Vec<&str> = line.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed" | "xfailed" => counts.passed += number,
                "failed" | "error" | "errors" | "xpassed" => counts.failed += number,
                "ignored" | "skipped" => counts.skipped += number,
                _ => {}
            }
        }
        counts
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The form of a run's last line.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64, skipped: u64) -> Counts {
        Counts { passed, failed, skipped }
    }

    #[test]
    fn cargo_summaries_of_all_programs_add_up() {
        let output = "running 3 tests\ntest a ... ok\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
            test prints_42_passed ... ok\n\
            test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.01s\n";
        assert_eq!(Counts::of_cargo_test(output), counts(5, 1, 1));
    }

    #[test]
    fn pytest_errors_are_failures_and_only_the_closing_line_counts() {
        let output = "7 passed in total, says a test\n\
            ==== 1 failed, 12 passed, 2 skipped, 1 xfailed, 3 errors in 0.52s ====\n";
        assert_eq!(Counts::of_pytest(output), counts(13, 4, 2));
        assert_eq!(Counts::of_pytest("5 passed in 0.02s\n"), counts(5, 0, 0));
        assert_eq!(Counts::of_pytest("no tests ran in 0.01s\n"), counts(0, 0, 0));
    }

    #[test]
    fn the_last_line_names_skipped_tests_only_when_there_are_some() {
        assert_eq!(counts(3, 0, 0).to_string(), "3 passed, 0 failed");
        assert_eq!(counts(3, 1, 2).to_string(), "3 passed, 1 failed, 2 skipped");
    }
}
