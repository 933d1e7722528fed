//! The deep fuzz lane: libFuzzer over the opener, for as long as the budget says.
//!
//! ```text
//! cd fuzz && cargo run --release --bin deep_fuzz [-- FILE ...]
//! ```
//! With files it only runs those, which replays a failure.

mod opener;

// Linked for its driver; it offers no function for it.
use libfuzzer_sys as _;
use std::ffi::{CString, c_char, c_int};
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

static RUNS: AtomicU64 = AtomicU64::new(0);

extern "C" fn one(data: *const u8, len: usize) -> c_int {
    RUNS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: libFuzzer hands out `len` readable bytes; an empty input may come with a null pointer.
    let input = if len == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(data, len) } };
    opener::run(input);
    0
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

fn main() {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort();
    }));
    let (budget_s, seed) = (number("REMANENT_DEEP_BUDGET_S", 2), number("REMANENT_DEEP_SEED", 1));
    let files: Vec<String> = std::env::args().skip(1).collect();
    let artifacts = std::env::temp_dir().join("remanent-fuzz-");
    let corpus = std::env::current_exe().expect("this program has a path").with_file_name("fuzz-corpus");
    std::fs::create_dir_all(&corpus).expect("a folder beside the program");
    let mut arguments = vec!["deep_fuzz".to_owned()];
    if files.is_empty() {
        arguments.extend([
            format!("-max_total_time={}", budget_s.max(1)),
            format!("-seed={}", seed % u64::from(u32::MAX)),
            format!("-artifact_prefix={}", artifacts.display()),
            "-max_len=256".into(),
            "-timeout=10".into(),
            "-rss_limit_mb=4096".into(),
            "-verbosity=0".into(),
            corpus.display().to_string(),
        ]);
    }
    arguments.extend(files);
    let strings: Vec<CString> =
        arguments.iter().map(|text| CString::new(text.as_str()).expect("no zero byte in an argument")).collect();
    let mut pointers: Vec<*mut c_char> = strings.iter().map(|text| text.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    let (mut count, mut vector) = (strings.len() as c_int, pointers.as_mut_ptr());
    // The driver ends the process itself when its time is up.
    // SAFETY: `print_counters` is a function for the whole life of the process.
    let registered = unsafe { atexit(print_counters) };
    assert_eq!(registered, 0, "a handler can be registered");
    // SAFETY: both arrays live until the end of the call, and the last pointer is null, as a C program's argv has it.
    let status = unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut vector, one) };
    std::process::exit(status);
}

extern "C" fn print_counters() {
    println!("{{\"runs\": {}}}", RUNS.load(Ordering::Relaxed));
}
