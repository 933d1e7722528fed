//! `remanent doctor`.

use std::fs;

use pmem::ErrorCode;

use crate::harness::{Place, finish, start};

#[test]
fn the_machine_is_described_without_a_path() {
    let place = Place::new();
    let text = place.done(&["doctor"]).stdout;
    for field in ["machine", "kernel features", "hypervisor", "flush", "copy kernels", "pages", "NUMA nodes"] {
        assert!(text.lines().any(|line| line.starts_with(field)), "{field} is not in\n{text}");
    }
    let machine = &place.done(&["--json", "doctor"]).result("remanent.doctor/1")["machine"];
    assert!(machine["copy_plan"]["kernel"].is_string() && machine["kernel_features"]["ofd_locks"] == true, "{machine}");
    assert!(machine["copy_kernels"].as_array().unwrap().contains(&machine["copy_plan"]["kernel"]), "{machine}");
}

#[test]
fn a_directory_is_left_as_it_was() {
    let place = Place::new();
    fs::create_dir(place.path("pools")).unwrap();
    let before = place.snapshot();
    let doctor = place.done(&["--json", "doctor", "pools"]).result("remanent.doctor/1");
    let path = &doctor["paths"][0];
    assert_eq!((&path["path"], &path["is_directory"]), (&"pools".into(), &true.into()));
    assert!(!path["reason"].as_str().unwrap().is_empty() && path["durability"].is_string(), "{path}");
    let text = place.done(&["doctor", "pools"]).stdout;
    assert!(text.contains("\nMAP_SYNC     ") && text.contains("\nbecause      "), "{text}");
    assert_eq!(place.snapshot(), before);
}

#[test]
fn a_pool_promises_what_its_directory_does() {
    let place = Place::new();
    place.pool_with_names("a");
    let before = place.snapshot();
    let doctor = place.done(&["--json", "doctor", ".", "a"]).result("remanent.doctor/1");
    let [directory, pool] = &doctor["paths"].as_array().unwrap()[..] else { panic!("{doctor}") };
    for field in ["durability", "granularity", "filesystem", "map_sync", "reason"] {
        assert_eq!(directory[field], pool[field], "{field}");
    }
    let info = place.done(&["--json", "pool", "info", "a"]).result("remanent.pool.info/1");
    assert_eq!(info["durability"], pool["durability"]);
    assert_eq!(place.snapshot(), before);
}

#[test]
fn a_copy_choice_that_is_not_available_is_said() {
    let place = Place::new();
    let ran = finish(start(place.command(&["doctor"]).env("REMANENT_COPY", "nonsense")));
    assert!(ran.stdout.contains("  - REMANENT_COPY is ignored: choose one of "), "{}", ran.stdout);
    let ran = finish(start(place.command(&["doctor"]).env("REMANENT_COPY", "clwb")));
    assert!(ran.stdout.contains("by REMANENT_COPY\n"), "{}", ran.stdout);
}

/// One path that is wrong does not hide what is known of the others.
#[test]
fn what_cannot_be_looked_at_is_told_beside_the_rest() {
    let place = Place::new();
    std::os::unix::fs::symlink("nowhere", place.path("link")).unwrap();
    let paths = [("missing", ErrorCode::NotFound), ("link", ErrorCode::Symlink), ("/dev/null", ErrorCode::NotAFile)];
    let before = place.snapshot();
    let ran = place.run(&["doctor", ".", "missing", "link", "/dev/null"]);
    assert_eq!((ran.exit, &*ran.stderr), (1, ""));
    assert!(ran.stdout.contains("\nmachine ") || ran.stdout.starts_with("machine "), "{}", ran.stdout);
    assert!(ran.stdout.contains("\nMAP_SYNC     "), "{}", ran.stdout);
    for (path, code) in paths {
        let told = format!("\npath   {path}\nerror  {}: ", code.name());
        assert!(ran.stdout.contains(&told), "{told:?} is not in\n{}", ran.stdout);
    }
    let ran = place.run(&["--json", "doctor", ".", "missing", "link", "/dev/null"]);
    assert_eq!(ran.exit, 1);
    let doctor = ran.result("remanent.doctor/1");
    assert!(doctor["paths"][0]["durability"].is_string() && doctor["paths"][0]["error"].is_null(), "{doctor}");
    for (index, (path, code)) in paths.into_iter().enumerate() {
        let told = &doctor["paths"][index + 1];
        assert_eq!((&told["path"], &told["error"]["code"]), (&path.into(), &code.name().into()), "{told}");
    }
    assert_eq!(place.snapshot(), before);
}
