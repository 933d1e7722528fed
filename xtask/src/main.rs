//! The project's own tasks, behind `./run` and `cargo xtask`.
//!
//! `lanes` is the table of steps, `checks` the rules of the house, `deep` the lanes that add up over many runs.
//! It depends on no product crate, so that it still runs, and still says what is wrong, when one does not compile.

mod bench;
mod cache;
mod checks;
mod counts;
mod dax;
mod deep;
mod dist;
mod fix;
mod lanes;
mod python;
mod r;
mod step;
mod tidy;
mod workspace;

use std::process::ExitCode;
use std::time::Duration;

use step::Lane;
use workspace::Workspace;

const USAGE: &str = "usage: cargo xtask demo | test [--fast | --dax | --deep [NAME --budget 40m]] | fix | bench | \
                     tidy | dist";

/// Exit code of a command line that makes no sense, as in `./run help`.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let workspace = Workspace::find();
    let passed = match words.as_slice() {
        ["test"] => lanes::run(&workspace, Lane::Full),
        ["test", "--fast"] => lanes::run(&workspace, Lane::Fast),
        ["test", "--dax"] => lanes::run(&workspace, Lane::Dax),
        ["test", "--deep"] => deep::list(&workspace),
        ["test", "--deep", name] => return deep_lane(&workspace, name, deep::DEFAULT_BUDGET),
        ["test", "--deep", name, "--budget", budget] => match deep::parse_budget(budget) {
            Some(budget) => return deep_lane(&workspace, name, budget),
            None => return wrong_usage(&format!("{budget:?} is no budget; write 90s, 40m or 2h")),
        },
        ["demo"] => lanes::run(&workspace, Lane::Demo),
        ["bench"] => lanes::run(&workspace, Lane::Bench),
        ["fix"] => fix::run(&workspace),
        ["tidy"] => tidy::run(&workspace),
        ["dist"] => dist::run(&workspace),
        _ => return wrong_usage(USAGE),
    };
    exit_code(passed)
}

fn deep_lane(workspace: &Workspace, name: &str, budget: Duration) -> ExitCode {
    match deep::find(name) {
        Some(lane) => exit_code(deep::run(workspace, lane, budget)),
        None => wrong_usage(&format!("there is no deep lane {name:?}; `./run test --deep` lists them")),
    }
}

fn exit_code(passed: bool) -> ExitCode {
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn wrong_usage(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(WRONG_USAGE)
}
