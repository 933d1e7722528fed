//! `remanent bench`: measures memory and what databases do on it.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bench::measure::{self, Form, Key};
use bench::model::ProfileFile;
use bench::plan::{self, Plan};
use bench::prefetchers::Off;
use bench::results::{self, Results};
use bench::run::{self, Beginning};
use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches, Subcommand};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::interrupt::{self, Second};
use crate::output::Report;
use crate::progress::Progress;
use files::{can_be_made, page_is_ours, results_are_ours, write, write_new};

mod files;
mod show;

const GROUP_HELP: &str = "\
Examples:
  remanent bench run quick
  remanent bench run quick --memory dram,/mnt/pmem0
  remanent bench explain nvm-micro
  remanent bench compare before after";

const RUN_HELP: &str = "\
PLAN is the name of a plan that comes with the program, that of a measurement, or a YAML file; `remanent bench list` has all \
names. Every key of a measurement is an option too, and takes values, ranges and `all`, separated by commas; it is set in all \
measurements of the plan that have it.

The folder gets results.json, results.csv, report.html and journal.jsonl, from which --resume goes on with a run that was \
interrupted: after Ctrl-C, SIGTERM, SIGHUP or SIGQUIT it says how. Nothing else is written, but files in the folders that the plan or --memory names, which lose \
their names as soon as they are open, or, of durable joins, allocated. A cell that cannot be measured, or for which there is no room, is skipped, with its reason. A device is written over only when --overwrite names it.

Examples:
  remanent bench run quick
  remanent bench run latency --store mov8,nt64 --flush all --fence sfence --memory /mnt/pmem0
  remanent bench run bandwidth --access all --threads 1:*2:cpus --size 1Gi --budget 5m
  remanent bench run plans/mine.yaml --out mine --seed 7
  remanent bench run quick --resume remanent-bench-quick";

const LIST_HELP: &str = "\
Examples:
  remanent bench list
  remanent bench list bandwidth";

const EXPLAIN_HELP: &str = "\
Examples:
  remanent bench explain quick
  remanent bench explain bandwidth --threads 1:*2:64";

const COMPARE_HELP: &str = "\
A metric of a cell is better or worse when the intervals of its medians are apart and the medians differ by more than the tolerance, \
of metrics that are not the cell's first by more than twice that, and of single times by more than a step of the clock: of `isolated` of latency, \
`burst` and `line` of burst, and `hand-off` of locks, in nanoseconds and in ticks, where they are not modelled. What became too short for the clock is \
taken for less than three steps of it. The intervals are so wide that \
all of them hold together with about 95 %. The exit code is 5 when one is worse, or cannot be measured any more.

Examples:
  remanent bench compare before/results.json after/results.json
  remanent bench compare before after --tolerance 5%";

const REPORT_HELP: &str = "\
Examples:
  remanent bench report remanent-bench-quick
  remanent bench report remanent-bench-quick --out /tmp/quick.html";

const CALIBRATE_HELP: &str = "\
The profile is JSON: latencies in nanoseconds, bandwidths in 10^9 bytes a second, each with its 95 % interval, the granule of \
writes and what buffers take, and where it comes from.

Examples:
  remanent bench calibrate dram --out dram.json
  remanent bench calibrate /mnt/pmem0 --out pmem0.json --budget 10m
  remanent bench run iops --memory model:./pmem0.json";

const DOCTOR_HELP: &str = "\
Examples:
  remanent bench doctor
  remanent --json bench doctor";

/// The commands of the group.
#[derive(Subcommand)]
#[command(after_long_help = GROUP_HELP)]
pub(crate) enum Group {
    /// Measures what a plan says
    #[command(after_long_help = RUN_HELP)]
    Run(RunArguments),
    /// Lists plans, measurements and their keys
    #[command(after_long_help = LIST_HELP)]
    List(ListArguments),
    /// Says what a plan would measure, write and take, and measures nothing
    #[command(after_long_help = EXPLAIN_HELP)]
    Explain(ExplainArguments),
    /// Says what this machine can measure, and what makes its figures doubtful
    #[command(after_long_help = DOCTOR_HELP)]
    Doctor,
    /// Measures a memory and writes a device's profile, which `model:` takes
    #[command(after_long_help = CALIBRATE_HELP)]
    Calibrate(CalibrateArguments),
    /// Holds two runs against one another
    #[command(after_long_help = COMPARE_HELP)]
    Compare(CompareArguments),
    /// Makes the page of a run anew
    #[command(after_long_help = REPORT_HELP)]
    Report(ReportArguments),
}

/// What to measure, and until when.
#[derive(Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    what: PlanArguments,
    /// Folder for the results; it must not exist [default: remanent-bench-NAME]
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Goes on with the run in this folder
    #[arg(long, value_name = "FOLDER")]
    resume: Option<PathBuf>,
    /// What orders and data are drawn from [default: 1, or that of the run that is resumed]
    #[arg(long)]
    seed: Option<u64>,
    /// Writes every sample into results.json too
    #[arg(long)]
    raw: bool,
    /// Switches the CPU's prefetchers off for the run, which takes root
    #[arg(long)]
    no_prefetchers: bool,
    /// A device whose content may be lost; can be given more than once
    #[arg(long, value_name = "DEVICE")]
    overwrite: Vec<String>,
}

/// A plan, and what is set over in it.
#[derive(Args)]
pub(crate) struct PlanArguments {
    /// A plan's name, a measurement's name, or a YAML file
    plan: String,
    /// The run ends when this time is over, such as 90s, 5m or 1h
    #[arg(long, value_name = "TIME")]
    budget: Option<String>,
    /// A cell is precise when half the 95 % interval of its median is this part of it, such as 2%
    #[arg(long, value_name = "PART")]
    precision: Option<String>,
    /// Samples of a cell, such as '5 to 100'
    #[arg(long, value_name = "ROUNDS")]
    rounds: Option<String>,
    /// The time of a sample that takes as long as it is given, such as 20ms
    #[arg(long, value_name = "TIME")]
    sample: Option<String>,
    #[command(flatten)]
    keys: Keys,
}

/// An option for every key of every measurement.
pub(crate) struct Keys(Vec<(&'static str, String)>);

/// What to list.
#[derive(Args)]
pub(crate) struct ListArguments {
    /// A measurement, of which all keys are told
    measurement: Option<String>,
}

/// What to explain.
#[derive(Args)]
pub(crate) struct ExplainArguments {
    #[command(flatten)]
    what: PlanArguments,
}

/// A memory, and where its profile goes.
#[derive(Args)]
pub(crate) struct CalibrateArguments {
    /// dram, a folder, or a device
    memory: String,
    /// The file to write; it must not exist
    #[arg(long, value_name = "FILE", default_value = "profile.json")]
    out: PathBuf,
    /// The measurements end when this time is over
    #[arg(long, value_name = "TIME")]
    budget: Option<String>,
    /// A device whose content may be lost
    #[arg(long, value_name = "DEVICE")]
    overwrite: Vec<String>,
}

/// Two runs.
#[derive(Args)]
pub(crate) struct CompareArguments {
    /// The folder or results.json of the first run
    before: PathBuf,
    /// The folder or results.json of the second run
    after: PathBuf,
    /// Differences that are none, in parts of the first run's median
    #[arg(long, default_value = "2%", value_name = "PART")]
    tolerance: String,
}

/// A run, and where its page goes.
#[derive(Args)]
pub(crate) struct ReportArguments {
    /// The folder or results.json of a run
    run: PathBuf,
    /// The file to write [default: report.html beside the results]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The exit code when something became worse.
pub(crate) const REGRESSED: u8 = 5;

impl Group {
    /// The name in the JSON envelope.
    pub(crate) fn schema(&self) -> &'static str {
        match self {
            Group::Run(_) => "remanent.bench.run/1",
            Group::List(_) => "remanent.bench.list/1",
            Group::Explain(_) => "remanent.bench.explain/1",
            Group::Doctor => "remanent.bench.doctor/1",
            Group::Calibrate(_) => "remanent.bench.calibrate/1",
            Group::Compare(_) => "remanent.bench.compare/1",
            Group::Report(_) => "remanent.bench.report/1",
        }
    }
}

/// Runs a command of the group.
pub(crate) fn run(group: Group, progress: Progress) -> Result<Report, Failure> {
    match group {
        Group::Run(arguments) => measure(&arguments, progress),
        Group::List(arguments) => list(&arguments),
        Group::Explain(arguments) => Ok(show::explained(&arguments.what.plan()?)?),
        Group::Doctor => Ok(show::doctor()),
        Group::Calibrate(arguments) => calibrate(&arguments, progress),
        Group::Compare(arguments) => compare(&arguments),
        Group::Report(arguments) => report(&arguments),
    }
}

impl Keys {
    /// Each name once; the help is that of the first measurement that has it.
    fn all() -> Vec<(&'static Key, Vec<&'static str>)> {
        let mut all: Vec<(&'static Key, Vec<&'static str>)> = Vec::new();
        for (measure, key) in
            measure::ALL.iter().flat_map(|measure| measure.keys().iter().map(move |key| (measure, key)))
        {
            match all.iter_mut().find(|(known, _)| known.name == key.name) {
                Some((_, measures)) => measures.push(measure.name()),
                None => all.push((key, vec![measure.name()])),
            }
        }
        all
    }
}

impl Args for Keys {
    fn augment_args(command: clap::Command) -> clap::Command {
        Keys::all().into_iter().fold(command, |command, (key, measures)| {
            let words = match &key.form {
                form @ (Form::Choice(_) | Form::Instruction { .. }) => format!(": {}", form.expected()),
                _ => String::new(),
            };
            let help = format!("{}{words} ({})", key.about, measures.join(", "));
            let values = match &key.form {
                Form::Choice(_) | Form::Instruction { .. } => "WORDS",
                Form::Bytes { .. } => "BYTES",
                Form::Count { .. } => "NUMBERS",
                Form::Real { .. } => "REALS",
                Form::Order => "ORDERS",
                Form::Place => "PLACES",
                Form::Chain => "CHAINS",
            };
            command.arg(
                Arg::new(key.name)
                    .long(key.name)
                    .value_name(values)
                    .help(help)
                    .help_heading("Keys of measurements")
                    .action(ArgAction::Set),
            )
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Keys::augment_args(command)
    }
}

impl FromArgMatches for Keys {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Keys, clap::Error> {
        let given = |(key, _): (&'static Key, _)| Some((key.name, matches.get_one::<String>(key.name)?.clone()));
        Ok(Keys(Keys::all().into_iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Keys::from_arg_matches(matches)?;
        Ok(())
    }
}

impl PlanArguments {
    /// The plan that is meant, with what is set over.
    fn plan(&self) -> Result<Plan, Failure> {
        let mut plan = match Plan::built_in(&self.plan) {
            Some(plan) => plan,
            None => Plan::parse(&self.plan, &self.read()?)?,
        };
        let enough = &self.enough();
        for (name, text) in enough.iter().filter_map(|(name, text)| Some((name, text.as_ref()?))) {
            plan.enough.set(name, text)?;
        }
        for (name, texts) in &self.keys.0 {
            plan.set(name, texts)?;
        }
        Ok(plan)
    }

    fn enough(&self) -> [(&'static str, &Option<String>); 4] {
        [("budget", &self.budget), ("precision", &self.precision), ("rounds", &self.rounds), ("sample", &self.sample)]
    }

    fn read(&self) -> Result<String, Failure> {
        let path = Path::new(&self.plan);
        fs::read_to_string(path).map_err(|error| {
            let names: Vec<&str> = plan::BUILT_IN
                .iter()
                .map(|(name, _)| *name)
                .chain(measure::ALL.iter().map(|measure| measure.name()))
                .collect();
            let is_name = error.kind() == std::io::ErrorKind::NotFound && !self.plan.contains(['/', '.']);
            match is_name {
                true => Failure::Usage(format!("'{}' is no file and none of: {}", self.plan, names.join(", "))),
                false => Failure::io("read", path, error),
            }
        })
    }
}

fn measure(arguments: &RunArguments, progress: Progress) -> Result<Report, Failure> {
    let plan = arguments.what.plan()?;
    show::confirm_devices(&plan, &arguments.overwrite)?;
    interrupt::watch(if arguments.no_prefetchers { Second::Waits } else { Second::Ends });
    // They are on again when this goes.
    let _off = if arguments.no_prefetchers { Some(Off::switch()?) } else { None };
    let (folder, beginning) = match &arguments.resume {
        Some(folder) => (folder.clone(), Beginning::Resumed { seed: arguments.seed }),
        None => {
            let seed = arguments.seed.unwrap_or(1);
            (new_folder(arguments.out.as_deref(), &plan.name)?, Beginning::New { seed })
        }
    };
    results_are_ours(&folder)?;
    let results = run_plan(&plan, &folder, beginning, arguments.raw, progress)
        .map_err(|failure| give_up(failure, &folder, beginning, &arguments.what.plan))?;
    write(
        &folder.join("results.json"),
        &(serde_json::to_string_pretty(&results).expect("finite numbers and strings") + "\n"),
    )?;
    write(&folder.join("results.csv"), &results::csv(&results))?;
    write(&folder.join("report.html"), &bench::page::html(&results))?;
    Ok(show::measured(&results, &folder))
}

/// Leaves no folder of a run that has measured nothing, and says how one that was interrupted goes on.
fn give_up(failure: Failure, folder: &Path, beginning: Beginning, plan: &str) -> Failure {
    let journal = folder.join("journal.jsonl");
    let has_samples = fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() > 1);
    if matches!(beginning, Beginning::New { .. }) && !has_samples {
        // What is in the way of that is not what went wrong.
        let _ = fs::remove_file(&journal);
        let _ = fs::remove_dir(folder);
    }
    match (failure, interrupt::signal()) {
        (Failure::Measurement(bench::Error::Interrupted), Some(signal)) => {
            let how = match has_samples {
                true => format!(
                    "; the same command with --resume {0} goes on with it, in place of any --out",
                    quoted(folder)
                ),
                false => ", and had measured nothing".into(),
            };
            Failure::Interrupted(signal, format!("the run of {plan} was interrupted{how}"))
        }
        (failure, _) => failure,
    }
}

/// A path as a shell reads it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

fn run_plan(
    plan: &Plan,
    folder: &Path,
    beginning: Beginning,
    raw: bool,
    progress: Progress,
) -> Result<Results, Failure> {
    let bar = progress.share(format!("{}: preparing", plan.name));
    let results = run::run(plan, folder, beginning, raw, |now| {
        let whole = now.elapsed.as_secs_f64() + now.left.as_secs_f64();
        bar.set_position((1000.0 * now.elapsed.as_secs_f64() / whole.max(1e-9)) as u64);
        bar.set_message(format!(
            "{} of {} cells, {} s left: {}",
            now.finished,
            now.cells,
            now.left.as_secs(),
            now.cell
        ));
        if interrupt::signal().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    Ok(results?)
}

fn calibrate(arguments: &CalibrateArguments, progress: Progress) -> Result<Report, Failure> {
    let mut plan = Plan::built_in("calibrate").expect("it comes with the program");
    plan.set("memory", &arguments.memory)?;
    if let Some(budget) = &arguments.budget {
        plan.enough.set("budget", budget)?;
    }
    show::confirm_devices(&plan, &arguments.overwrite)?;
    interrupt::watch(Second::Ends);
    can_be_made(&arguments.out)?;
    let (profile, results) = calibrated(&plan, arguments, progress)?;
    let text = serde_json::to_string_pretty(&profile).expect("finite numbers and strings") + "\n";
    write_new(&arguments.out, &text)?;
    Ok(show::calibrated(&profile, &results, &arguments.out))
}

fn calibrated(
    plan: &Plan,
    arguments: &CalibrateArguments,
    progress: Progress,
) -> Result<(ProfileFile, Results), Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::io("create", &std::env::temp_dir(), error))?;
    let results =
        run_plan(plan, folder.path(), Beginning::New { seed: 1 }, false, progress).map_err(|failure| {
            match (failure, interrupt::signal()) {
                (Failure::Measurement(bench::Error::Interrupted), Some(signal)) => {
                    Failure::Interrupted(signal, "the calibration was interrupted, and no profile written".into())
                }
                (failure, _) => failure,
            }
        })?;
    let name = arguments.out.file_stem().map_or("profile".into(), |stem| stem.to_string_lossy().into_owned());
    Ok((bench::calibrate::profile(&results, &name)?, results))
}

/// A folder that is made; a given one must not exist, and the default one gets a number.
fn new_folder(given: Option<&Path>, name: &str) -> Result<PathBuf, Failure> {
    let make = |folder: PathBuf| fs::create_dir(&folder).map_err(|error| (folder.clone(), error)).map(|()| folder);
    let failed = |(folder, error): (PathBuf, std::io::Error)| Failure::io("create", &folder, error);
    if let Some(folder) = given {
        return make(folder.to_owned()).map_err(failed);
    }
    let folder = |number: u32| match number {
        1 => PathBuf::from(format!("remanent-bench-{name}")),
        _ => PathBuf::from(format!("remanent-bench-{name}-{number}")),
    };
    let mut number = 1;
    loop {
        match make(folder(number)) {
            Err((_, error)) if error.kind() == std::io::ErrorKind::AlreadyExists && number < 10_000 => number += 1,
            made => return made.map_err(failed),
        }
    }
}

fn list(arguments: &ListArguments) -> Result<Report, Failure> {
    let Some(name) = &arguments.measurement else { return Ok(show::listed()) };
    let known: BTreeSet<&str> = measure::ALL.iter().map(|measure| measure.name()).collect();
    match measure::named(name) {
        Some(measure) => Ok(show::keys_of(measure)),
        None => {
            Err(Failure::Usage(format!("'{name}' is none of: {}", known.into_iter().collect::<Vec<_>>().join(", "))))
        }
    }
}

/// The results of a run, by its folder or file.
fn read(path: &Path) -> Result<Results, Failure> {
    let path = if path.is_dir() { path.join("results.json") } else { path.to_owned() };
    let text = fs::read_to_string(&path).map_err(|error| Failure::io("read", &path, error))?;
    let refuse = |what: String| Failure::Usage(format!("{}: {what}", path.display()));
    let value: Value = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    if value["schema"] != results::SCHEMA {
        return Err(refuse(format!("expected results of the form {}, found {}", results::SCHEMA, value["schema"])));
    }
    let results: Results = serde_json::from_value(value).map_err(|error| refuse(error.to_string()))?;
    results.understood().map_err(refuse)
}

fn compare(arguments: &CompareArguments) -> Result<Report, Failure> {
    let tolerance =
        bench::value::real(&arguments.tolerance).map_err(|what| Failure::Usage(format!("--tolerance: {what}")))?;
    if !(0.0..1.0).contains(&tolerance) {
        let what = format!("--tolerance: {} is no part of a median: expected one such as 2%", arguments.tolerance);
        return Err(Failure::Usage(what));
    }
    let comparison = bench::compare::Comparison::new(&read(&arguments.before)?, &read(&arguments.after)?, tolerance);
    if comparison.changes.is_empty() && comparison.lost.is_empty() {
        let (before, after) = (arguments.before.display(), arguments.after.display());
        let too_few = comparison.too_few.len();
        let what = format!(
            "nothing of {before} and {after} can be compared: no cell is in both, but {too_few} with too few samples"
        );
        return Err(Failure::Usage(what));
    }
    let exit = if comparison.has_regressed() { REGRESSED } else { 0 };
    Ok(Report { exit, ..show::compared(&comparison) })
}

fn report(arguments: &ReportArguments) -> Result<Report, Failure> {
    let results = read(&arguments.run)?;
    let beside = if arguments.run.is_dir() {
        arguments.run.clone()
    } else {
        arguments.run.parent().unwrap_or(Path::new("")).to_owned()
    };
    let path = arguments.out.clone().unwrap_or_else(|| beside.join("report.html"));
    page_is_ours(&path)?;
    write(&path, &bench::page::html(&results))?;
    Ok(Report::confirmation(json!({ "report": path }), format!("{}\n", path.display())))
}
