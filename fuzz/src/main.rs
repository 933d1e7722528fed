//! The deep fuzz lane: libFuzzer over the parsers and openers, for as long as the budget says.
//!
//! ```text
//! cd fuzz && cargo run --release --bin deep_fuzz [-- TARGET [FILE ...]]
//! ```
//! Without a target each gets its share of the budget, in a process of its own, because the driver ends the process.
//! With files it only runs those, which replays a failure.

mod join;
mod object;
mod opener;
mod plan;

// Linked for its driver; it offers no function for it.
use libfuzzer_sys as _;
use std::ffi::{CString, c_char, c_int};
use std::process::{Command, exit};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

unsafe extern "C" {
    /// The driver of libFuzzer (FuzzerInterface.h): runs the callback until its options say stop.
    fn LLVMFuzzerRunDriver(
        argc: *mut c_int,
        argv: *mut *mut *mut c_char,
        callback: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;

    /// atexit(3).
    fn atexit(handler: extern "C" fn()) -> c_int;
}

/// What is fuzzed.
struct Target {
    name: &'static str,
    run: fn(&[u8]),
    /// Longest input.
    max_len: u32,
    /// Percent of the budget.
    share: u64,
}

const TARGETS: [Target; 4] = [
    Target { name: "opener", run: opener::run, max_len: 256, share: 80 },
    Target { name: "object", run: object::run, max_len: 1024, share: 10 },
    Target { name: "join", run: join::run, max_len: 1024, share: 5 },
    Target { name: "plan", run: plan::run, max_len: 2048, share: 5 },
];

static RUNS: AtomicU64 = AtomicU64::new(0);
static TARGET: OnceLock<&Target> = OnceLock::new();

extern "C" fn one(data: *const u8, len: usize) -> c_int {
    RUNS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: libFuzzer hands out `len` readable bytes; an empty input may come with a null pointer.
    let input = if len == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(data, len) } };
    (TARGET.get().expect("it is chosen before the driver starts").run)(input);
    0
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else { exit(i32::from(!run_all())) };
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        eprintln!("no target {name:?}; there are {}", TARGETS.map(|target| target.name).join(", "));
        exit(2);
    };
    TARGET.get_or_init(|| target);
    drive(target, arguments.collect());
}

/// Every target in turn; tells whether all of them went well.
fn run_all() -> bool {
    let budget_s = number("REMANENT_DEEP_BUDGET_S", 2);
    let mut counters = Vec::new();
    let mut runs = 0;
    for target in &TARGETS {
        let share_s = (budget_s * target.share / 100).max(1);
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.arg(target.name).env("REMANENT_DEEP_BUDGET_S", share_s.to_string());
        let output = command.stderr(std::process::Stdio::inherit()).output().expect("this program can be started");
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            eprintln!("{text}\nthe target {} failed: {}", target.name, output.status);
            return false;
        }
        let own: u64 = text.lines().rev().find_map(|line| line.strip_prefix(RUNS_ARE)?.parse().ok()).unwrap_or(0);
        runs += own;
        counters.push(format!("\"{0}_runs\": {own}, \"{0}_seconds\": {share_s}", target.name));
    }
    println!("{{\"runs\": {runs}, {}}}", counters.join(", "));
    true
}

/// Does not return: the driver ends the process itself when its time is up.
fn drive(target: &Target, files: Vec<String>) {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort();
    }));
    let mut arguments = vec!["deep_fuzz".to_owned()];
    if files.is_empty() {
        let artifacts = std::env::temp_dir().join(format!("remanent-fuzz-{}-", target.name));
        let folder = std::env::current_exe().expect("this program has a path").with_file_name("fuzz-corpus");
        let corpus = folder.join(target.name);
        std::fs::create_dir_all(&corpus).expect("a folder beside the program");
        arguments.extend([
            format!("-max_total_time={}", number("REMANENT_DEEP_BUDGET_S", 2).max(1)),
            format!("-seed={}", number("REMANENT_DEEP_SEED", 1) % u64::from(u32::MAX)),
            format!("-artifact_prefix={}", artifacts.display()),
            format!("-max_len={}", target.max_len),
            "-timeout=10".into(),
            "-rss_limit_mb=4096".into(),
            "-malloc_limit_mb=64".into(),
            "-verbosity=0".into(),
            corpus.display().to_string(),
        ]);
        let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
        arguments.extend(seeds.exists().then(|| seeds.display().to_string()));
    }
    arguments.extend(files);
    let strings: Vec<CString> =
        arguments.iter().map(|text| CString::new(text.as_str()).expect("no zero byte in an argument")).collect();
    let mut pointers: Vec<*mut c_char> = strings.iter().map(|text| text.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    let (mut count, mut vector) = (strings.len() as c_int, pointers.as_mut_ptr());
    // SAFETY: `print_runs` is a function for the whole life of the process.
    let registered = unsafe { atexit(print_runs) };
    assert_eq!(registered, 0, "a handler can be registered");
    // SAFETY: both arrays live until the end of the call, and the last pointer is null, as a C program's argv has it.
    let status = unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut vector, one) };
    exit(status);
}

/// What a target's process says at its end.
const RUNS_ARE: &str = "runs: ";

extern "C" fn print_runs() {
    println!("{RUNS_ARE}{}", RUNS.load(Ordering::Relaxed));
}
