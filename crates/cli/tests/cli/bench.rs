//! `remanent bench`.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Place, finish, start};

/// A run of a modelled device: quick, and the same on every machine.
const MODELLED: [&str; 6] = ["--memory", "model:optane-100-six-dimms", "--rounds", "5", "--budget", "1m"];

/// Runs what must fail with this exit code, and gives what it says.
#[track_caller]
fn failed(place: &Place, arguments: &[&str], exit: i32) -> String {
    let ran = place.run(arguments);
    assert_eq!((ran.exit, &*ran.stdout), (exit, ""), "{arguments:?}: {}", ran.stderr);
    ran.stderr
}

fn run(arguments: &[&'static str]) -> Vec<&'static str> {
    [&["--json", "bench", "run"][..], arguments, &MODELLED].concat()
}

#[test]
fn a_run_leaves_its_results_in_a_folder_of_its_own() {
    let place = Place::new();
    let result = place.done(&run(&["latency", "--store", "nt64", "--fence", "sfence"])).result("remanent.bench.run/1");
    assert_eq!(result["folder"], "remanent-bench-latency");
    let cell = &result["results"]["cells"][0];
    assert_eq!((&cell["status"], &cell["provenance"]), (&json!("precise"), &json!("modelled")));
    assert_eq!((&cell["metrics"][1]["metric"], &cell["metrics"][1]["median"]), (&json!("isolated"), &json!(90.4)));
    let folder = place.path("remanent-bench-latency");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let stored: Value = serde_json::from_str(&read("results.json")).unwrap();
    assert_eq!(stored, result["results"]);
    assert!(
        read("results.csv")
            .starts_with("measure,memory,pages,store,flush,fence,state,order,size,metric,unit,provenance,")
    );
    let page = read("report.html");
    assert!(
        page.contains("<title>remanent bench: latency</title>")
            && page.contains("modelled")
            && !page.contains("<script")
    );
    assert_eq!(read("journal.jsonl").lines().count(), 1 + 5);
    // The next one gets a number, and a folder that is there is refused.
    let again = place.done(&run(&["latency", "--store", "nt64", "--fence", "sfence"])).result("remanent.bench.run/1");
    assert_eq!(again["folder"], "remanent-bench-latency-2");
    assert!(
        failed(&place, &["bench", "run", "latency", "--memory", "model:ddr4", "--out", "remanent-bench-latency"], 1)
            .contains("error[already-exists]")
    );
}

#[test]
fn a_run_that_was_interrupted_goes_on() {
    let place = Place::new();
    let arguments = run(&["load", "--size", "1Mi,2Mi", "--out", "r"]);
    place.done(&arguments);
    let journal = place.path("r/journal.jsonl");
    let whole = fs::read_to_string(&journal).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    fs::write(&journal, format!("{}\n{}\n{}", lines[0], lines[1], &lines[2][..9])).unwrap();
    let resumed: Vec<&str> = run(&["load", "--size", "1Mi,2Mi", "--resume", "r"]);
    let result = place.done(&resumed).result("remanent.bench.run/1");
    assert!(
        result["results"]["cells"].as_array().unwrap().iter().all(|cell| cell["metrics"][0]["count"] == 5),
        "{result}"
    );
    assert_eq!(fs::read_to_string(&journal).unwrap().lines().count(), 1 + 10);
    let seeded = [&resumed[1..], &["--seed", "7"]].concat();
    assert!(failed(&place, &seeded, 1).contains("is of a run with the seed 1, not 7"));
    let other = run(&["load", "--size", "4Mi", "--resume", "r"]);
    assert!(failed(&place, &other[1..], 1).contains("error[not-measurable]"));
}

#[test]
fn a_plan_that_is_wrong_is_refused_with_its_line() {
    let place = Place::new();
    fs::write(place.path("p.yaml"), "cells:\n- measure: load\n  size: big\n").unwrap();
    let error = failed(&place, &["bench", "run", "p.yaml"], 2);
    assert!(error.contains("p.yaml:3:9: 'big' is no number"), "{error}");
    let error = failed(&place, &["bench", "run", "slow"], 2);
    assert!(error.contains("'slow' is no file and none of: quick, probe,"), "{error}");
    let error = failed(&place, &["bench", "run", "load", "--chains", "0"], 2);
    assert!(error.contains("--chains: 0 is not between 1 and 16"), "{error}");
    let error = failed(&place, &["bench", "run", "load", "--budget", "soon"], 2);
    assert!(error.contains("--budget: 'soon' is no time"), "{error}");
    assert_eq!(fs::read_dir(place.path(".")).unwrap().count(), 1, "nothing was made");
}

#[test]
fn a_device_is_not_written_over_unless_it_is_named() {
    let place = Place::new();
    let error = failed(&place, &["bench", "run", "load", "--memory", "/dev/dax9.9", "--size", "1Mi"], 4);
    assert!(error.contains("/dev/dax9.9 would be written over"), "{error}");
    // What cannot be measured before the prefetchers are off may be measured then.
    let cold = ["latency", "--state", "cold", "--order", "sequential", "--memory", "/dev/dax9.9", "--no-prefetchers"];
    let error = failed(&place, &[&["bench", "run"][..], &cold].concat(), 4);
    assert!(error.contains("/dev/dax9.9 would be written over"), "{error}");
    let doctor = place.done(&["--json", "bench", "doctor"]).result("remanent.bench.doctor/1");
    if doctor["machine"]["prefetchers"] != "off" {
        let known = "of its bytes 0 B would be used, and about 0 B to 0 B written, as far as is known: 1 cell cannot be measured";
        assert!(error.contains(known), "{error}");
    }
    assert!(
        failed(
            &place,
            &["bench", "run", "load", "--memory", "/dev/dax9.9", "--size", "1Mi", "--overwrite", "/dev/dax9.9"],
            1
        )
        .contains("error[not-found]")
    );
}

/// Of each device by itself: 64 bursts of 16 lines in a sample are 64 KiB.
#[test]
fn what_a_device_would_lose_is_told_in_bytes() {
    let place = Place::new();
    let burst = ["bench", "run", "burst", "--lines", "16", "--size", "1Mi", "--rounds", "5 to 10"];
    let memory = ["--memory", "/dev/dax9.8,/dev/dax9.9"];
    let bytes = "of its bytes 1 MiB would be used, and about 320 KiB to 640 KiB written;";
    let error = failed(&place, &[&burst[..], &memory].concat(), 4);
    assert_eq!(error.matches(bytes).count(), 2, "{error}");
    let error = failed(&place, &[&burst[..], &memory, &["--overwrite", "/dev/dax9.8"]].concat(), 4);
    assert!(error.matches(bytes).count() == 1 && !error.contains("/dev/dax9.8"), "{error}");
    // The plan of a calibration takes what this machine's caches make of it, as it is explained.
    let explained = place.done(&["bench", "explain", "calibrate", "--memory", "/dev/dax9.9"]).stdout;
    let row = |name: &str| explained.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
    let (used, written) = (row("memory, /dev/dax9.9 "), row("written "));
    let error = failed(&place, &["bench", "calibrate", "/dev/dax9.9"], 4);
    let bytes = format!("of its bytes {used} would be used, and {written} written");
    assert!(error.contains(&bytes) && !used.starts_with('0'), "{error}");
    let error = failed(&place, &["bench", "calibrate", "/dev/dax9.9", "--overwrite", "/dev/dax9.9"], 1);
    assert!(error.contains("error["), "{error}");
}

#[test]
fn runs_are_compared_and_a_worse_one_is_told_by_the_exit_code() {
    let place = Place::new();
    place.done(&run(&["iops", "--block", "64,4Ki", "--out", "a"]));
    assert!(place.done(&["bench", "compare", "a", "a"]).stdout.contains("0 better, 0 worse, 6 the same"));
    let slower = fs::read_to_string(place.path("a/results.json")).unwrap();
    let mut slower: Value = serde_json::from_str(&slower).unwrap();
    let metric = &mut slower["cells"][0]["metrics"][0];
    for field in ["median", "median_95", "quartiles"] {
        match &mut metric[field] {
            Value::Object(ends) => ends.values_mut().for_each(|end| *end = json!(end.as_f64().unwrap() / 2.0)),
            value => *value = json!(value.as_f64().unwrap() / 2.0),
        }
    }
    fs::write(place.path("b.json"), slower.to_string()).unwrap();
    let ran = place.run(&["bench", "compare", "a", "b.json"]);
    assert_eq!(ran.exit, 5, "{}", ran.stdout);
    assert!(ran.stdout.contains("worse  -50.0 %"), "{}", ran.stdout);
    assert_eq!(place.run(&["bench", "compare", "b.json", "a"]).exit, 0);
    assert_eq!(place.run(&["bench", "compare", "a", "b.json", "--tolerance", "60%"]).exit, 0);
    fs::write(place.path("c.json"), "{\"schema\":\"other\"}").unwrap();
    assert!(
        failed(&place, &["bench", "compare", "a", "c.json"], 2)
            .contains("expected results of the form remanent-bench-1")
    );
    place.done(&["bench", "report", "a", "--out", "page.html"]);
    place.done(&["bench", "report", "a", "--out", "page.html"]);
    assert_eq!(fs::read(place.path("page.html")).unwrap(), fs::read(place.path("a/report.html")).unwrap());
}

#[test]
fn a_file_of_somebody_else_is_not_written_over() {
    let place = Place::new();
    place.done(&run(&["iops", "--out", "a"]));
    fs::write(place.path("notes.html"), "mine").unwrap();
    let error = failed(&place, &["bench", "report", "a", "--out", "notes.html"], 2);
    assert!(error.contains("notes.html is there, and no file of a run: it is not written over"), "{error}");
    let foreign = [
        ("report.html", "mine"),
        ("results.csv", "mine"),
        ("results.json", "mine"),
        ("results.json", "{}"),
        ("results.json", "{\"schema\":\"other\"}"),
    ];
    for (name, text) in foreign {
        let ours = fs::read(place.path("a").join(name)).unwrap();
        fs::write(place.path("a").join(name), text).unwrap();
        failed(&place, &run(&["iops", "--resume", "a"])[1..], 2);
        assert_eq!(fs::read_to_string(place.path("a").join(name)).unwrap(), text);
        fs::write(place.path("a").join(name), ours).unwrap();
    }
    place.done(&run(&["iops", "--resume", "a"]));
    assert_eq!(fs::read(place.path("notes.html")).unwrap(), b"mine");
}

#[test]
fn a_signal_ends_a_run_in_order_and_says_how_it_goes_on() {
    let is_ignored = |signal: i32| {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
    };
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1), (Signal::QUIT, 3)] {
        // Programs inherit it, and a run is not ended then.
        if signal == Signal::HUP && is_ignored(number) {
            println!("not run: SIGHUP is ignored here");
            continue;
        }
        let place = Place::new();
        let mut child = start(&mut place.command(&[
            "bench",
            "run",
            "load",
            "--memory",
            "model:ddr4",
            "--size",
            "1Mi",
            "--rounds",
            "1000000",
            "--budget",
            "1h",
            "--out",
            "a run",
        ]));
        let journal = place.path("a run/journal.jsonl");
        let lines = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
        while lines() < 3 {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("{status}: {}", finish(child).stderr);
            }
            std::thread::yield_now();
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let ran = finish(child);
        assert_eq!((ran.exit, &*ran.stdout), (128 + number, ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("error[interrupted]") && ran.stderr.contains("--resume 'a run'"), "{}", ran.stderr);
        let taken = lines();
        let resume = ["bench", "run", "load", "--memory", "model:ddr4", "--size", "1Mi", "--rounds", "1000000"];
        place.done(&[&resume[..], &["--budget", "1ns", "--resume", "a run"]].concat());
        assert_eq!(lines(), taken, "the time was over");
    }
}

/// Its journal lies in a folder for temporary files.
#[test]
fn a_calibration_that_is_killed_leaves_no_profile() {
    let place = Place::new();
    let temporary = place.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut command = place.command(&["bench", "calibrate", "dram", "--out", "p.json", "--budget", "1h"]);
    let mut child = start(command.env("TMPDIR", &temporary));
    let begun =
        || fs::read_dir(&temporary).unwrap().any(|folder| folder.unwrap().path().join("journal.jsonl").exists());
    while !begun() {
        assert!(child.try_wait().unwrap().is_none(), "{}", finish(child).stderr);
        std::thread::yield_now();
    }
    let made = place.path("p.json").exists();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!made && fs::read_dir(place.root()).unwrap().count() == 1, "beside the folder for temporary files");
}

#[test]
fn a_size_that_nothing_has_is_refused_and_leaves_nothing() {
    let place = Place::new();
    let error = failed(&place, &["bench", "run", "bandwidth", "--size", "18446744073709551552", "--out", "a"], 2);
    assert!(error.contains("--size: 18446744073709551552 bytes are more than 64 TiB"), "{error}");
    let error = failed(&place, &["bench", "run", "bandwidth", "--size", "32Ti", "--out", "a"], 1);
    assert!(error.contains("error[no-memory]: dram has room for ") && error.contains("33554432 MiB"), "{error}");
    let error = failed(&place, &["bench", "run", "fault", "--memory", "./none", "--out", "a"], 1);
    assert!(error.contains("none"), "{error}");
    assert_eq!(fs::read_dir(place.path(".")).unwrap().count(), 0, "nothing is left");
}

#[test]
fn plans_measurements_and_the_machine_are_told() {
    let place = Place::new();
    let list = place.done(&["--json", "bench", "list"]).result("remanent.bench.list/1");
    let names = |of: &str| {
        list[of].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(names("plans").contains(&"quick".into()) && names("measurements").contains(&"join".into()), "{list}");
    let text = place.done(&["bench", "list", "bandwidth"]).stdout;
    assert!(text.contains("\n  threads ") && text.contains("[default: 1]"), "{text}");
    assert!(failed(&place, &["bench", "list", "speed"], 2).contains("'speed' is none of: "));
    let explained =
        place.done(&["--json", "bench", "explain", "quick", "--size", "1Mi"]).result("remanent.bench.explain/1");
    assert!(
        explained["cells"].as_array().unwrap().len() > 10 && explained["memory_bytes"]["dram"] == 1 << 20,
        "{explained}"
    );
    let text =
        place.done(&["bench", "explain", "join", "--method", "durable-block", "--memory", "./", "--r", "1Mi"]).stdout;
    // Rows of R have 24 bytes and those of S 80, and a table has entries of 32 and heads of 8.
    assert!(text.contains("memory, dram ") && text.contains("344 MiB"), "{text}");
    assert!(text.contains("memory, ./ ") && !text.contains("about 0 B"), "{text}");
    let doctor = place.done(&["--json", "bench", "doctor"]).result("remanent.bench.doctor/1");
    assert!(doctor["machine"]["ticks_per_ns"].as_f64().unwrap() > 0.0 && doctor["doubts"].is_array(), "{doctor}");
}

/// Calibrating a modelled device gives the profile that it was modelled by.
#[test]
fn a_profile_is_made_and_modelled() {
    let place = Place::new();
    let calibrated = place.done(&["--json", "bench", "calibrate", "model:optane-100-dimm", "--out", "p.json"]);
    let profile = &calibrated.result("remanent.bench.calibrate/1")["profile"];
    assert_eq!((&profile["schema"], &profile["name"]), (&json!("remanent-device-1"), &json!("p")));
    let near = |field: &str, expected: f64| {
        let found = profile[field].as_f64().unwrap();
        assert!((found / expected - 1.0).abs() < 0.02, "{field}: {found} instead of {expected}");
    };
    near("random_read_ns", 305.0);
    near("flush_persist_ns", 62.3);
    near("nt_persist_ns", 90.4);
    near("read_gb_s", 6.5);
    near("write_gb_s", 2.2);
    near("granule_bytes", 256.0);
    near("write_queue_bytes", 16_384.0);
    assert!(profile["source"].as_str().unwrap().starts_with("modelled "), "{profile}");
    let stored: Value = serde_json::from_str(&fs::read_to_string(place.path("p.json")).unwrap()).unwrap();
    assert_eq!(&stored, profile);
    assert!(failed(&place, &["bench", "calibrate", "dram", "--out", "p.json"], 1).contains("error[already-exists]"));
    let run = place.done(&[
        "--json",
        "bench",
        "run",
        "latency",
        "--memory",
        "model:./p.json",
        "--store",
        "nt64",
        "--fence",
        "sfence",
    ]);
    let isolated = &run.result("remanent.bench.run/1")["results"]["cells"][0]["metrics"][1]["median"];
    assert_eq!(isolated, &profile["nt_persist_ns"]);
}
