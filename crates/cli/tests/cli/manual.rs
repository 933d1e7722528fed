//! Help, completions and manual pages.

use std::fs;

use crate::harness::Place;

const COMMANDS: [&[&str]; 19] = [
    &["pool", "create"],
    &["pool", "info"],
    &["pool", "ls"],
    &["pool", "check"],
    &["pool", "grow"],
    &["pool", "rm"],
    &["pool", "compact"],
    &["pool"],
    &["bench", "run"],
    &["bench", "list"],
    &["bench", "explain"],
    &["bench", "doctor"],
    &["bench", "calibrate"],
    &["bench", "compare"],
    &["bench", "report"],
    &["bench"],
    &["doctor"],
    &["completions"],
    &["man"],
];

#[test]
fn help_of_every_command_has_examples() {
    let place = Place::new();
    for command in COMMANDS {
        let mut arguments = command.to_vec();
        arguments.push("--help");
        let help = place.done(&arguments).stdout;
        assert!(help.contains(&format!("Examples:\n  remanent {}", command.join(" "))), "{help}");
        assert!(help.contains("--json"), "{help}");
    }
    let help = place.done(&["--help"]).stdout;
    assert!(help.contains("Exit codes:\n  0  done") && help.contains("REMANENT_ASSUME_PERSISTENT"), "{help}");
}

#[test]
fn completions_know_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.done(&["completions", shell]).stdout;
        for word in ["create", "compact", "doctor", "layout-version", "prefault"] {
            assert!(script.contains(word), "{word} is not in the completions for {shell}");
        }
    }
    let script = place.done(&["completions", "bash", "--json"]).result("remanent.completions/1");
    assert_eq!(script["shell"], "bash");
    assert_eq!(place.run(&["completions", "tcsh"]).exit, 2);
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let place = Place::new();
    let page = place.done(&["man"]).stdout;
    assert!(page.contains(".TH remanent 1") && page.contains("Exit codes"), "{page}");
    fs::create_dir(place.path("man1")).unwrap();
    place.done(&["man", "man1"]);
    for command in COMMANDS {
        let name = format!("man1/remanent-{}.1", command.join("-"));
        let page = fs::read_to_string(place.path(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(page.contains("Examples:"), "{page}");
    }
    assert_eq!(fs::read_dir(place.path("man1")).unwrap().count(), COMMANDS.len() + 1);
}
