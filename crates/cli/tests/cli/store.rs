//! `remanent pool` on pools that hold named objects.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use pmem::{Mapped, OpenMode};
use store::{Checksums, Object, PersistOptions, Store};

use crate::harness::Place;

/// Where the payload of an object begins: all its bytes have the same value.
fn payload_at(place: &Place, pool: &str, value: u8) -> u64 {
    let file = fs::read(place.path(pool)).unwrap();
    file.windows(1000).position(|window| window == [value; 1000]).expect("the object is there") as u64
}

#[test]
fn a_sound_store_says_how_many_checksums_were_compared() {
    let place = Place::new();
    place.store_with_objects("a");
    let told = place.done(&["pool", "check", "a"]).stdout;
    assert!(told.starts_with("a: sound (1 file, 3 names, ") && told.ends_with(", 2 checksums compared)\n"), "{told}");
    let report = place.done(&["--json", "pool", "check", "a"]).result("remanent.pool.check/1");
    let checksums = serde_json::json!({ "matching": 2, "without_checksum": 1, "changed_meanwhile": 0 });
    assert_eq!((&report["checksums"], &report["verdict"]), (&checksums, &"sound".into()));
    place.pool_with_names("raw");
    let report = place.done(&["--json", "pool", "check", "raw"]).result("remanent.pool.check/1");
    assert!(report["checksums"].is_null(), "{report}");
}

#[test]
fn a_changed_byte_of_an_object_is_damage() {
    let place = Place::new();
    place.store_with_objects("a");
    for value in [1, 3] {
        let at = payload_at(&place, "a", value) + 100_000;
        OpenOptions::new().write(true).open(place.path("a")).unwrap().write_all_at(b"x", at).unwrap();
    }
    let before = place.snapshot();
    let ran = place.run(&["pool", "check", "a"]);
    assert_eq!((ran.exit, &*ran.stderr), (3, ""), "{}", ran.stdout);
    assert!(ran.stdout.starts_with("damage      a: the bytes of \"a\" are not those that were persisted"));
    assert!(
        ran.stdout.contains("\na: damaged (") && ran.stdout.ends_with(", 2 checksums compared)\n"),
        "{}",
        ran.stdout
    );
    let ran = place.run(&["--json", "pool", "check", "a"]);
    assert_eq!(ran.exit, 3);
    let report = ran.result("remanent.pool.check/1");
    let [finding] = &report["findings"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!((&finding["name"], &finding["error"]), (&"a".into(), &"checksum-mismatch".into()));
    assert_eq!((&report["checksums"]["matching"], &report["verdict"]), (&1.into(), &"damaged".into()));
    assert_eq!(place.snapshot(), before, "the check changed something");
}

/// The space of what is replaced is used again at once: there is room for two versions only.
#[test]
fn a_writer_at_work_raises_no_alarm() {
    let place = Place::new();
    place.store_with_objects("a");
    let store = Store::open(Mapped::new(), &place.path("a"), OpenMode::Writer).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let options = PersistOptions { checksums: Checksums::Crc32c, ..PersistOptions::default() };
            for round in 0u32.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let bytes = vec![round as u8; 5 << 20];
                store.persist(&[("a", Object::bytes(&bytes))], &options).unwrap();
            }
        });
        let checked: Vec<_> = (0..20).map(|_| place.run(&["--json", "pool", "check", "a"])).collect();
        is_over.store(true, Ordering::Relaxed);
        for ran in checked {
            let report = ran.result("remanent.pool.check/1");
            assert_eq!((ran.exit, &report["has_writer"]), (0, &true.into()), "{report}");
            // Of the pool itself something may be seen half done, which the check says.
            let mut findings = report["findings"].as_array().unwrap().iter();
            assert!(findings.all(|finding| finding["name"].is_null() && finding["severity"] != "damage"), "{report}");
        }
    });
    store.close().unwrap();
}
