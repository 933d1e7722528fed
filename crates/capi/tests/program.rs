//! The C interface from C: programs in `tests/c` that go through all of it, and through what must not kill a process.

use std::path::{Path, PathBuf};
use std::process::Command;

// The library is built before this test, in all its forms.
use remanent as _;

fn folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// Where cargo puts what it builds: this test too.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}{told}", output.status);
}

/// Compiles a program against the shared library and runs it in a folder of its own.
fn passes(name: &str) {
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join(name);
    let mut compile = Command::new("cc");
    compile
        .args(["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-D_GNU_SOURCE", "-g", "-pthread", "-o"])
        .arg(&program);
    compile.arg(folder().join(format!("tests/c/{name}.c"))).arg("-I").arg(folder().join("include"));
    link(&mut compile, &built());
    run(&mut compile);
    run(Command::new(&program).arg(scratch.path()));
}

fn link(compile: &mut Command, built: &Path) {
    let library = built.join("libremanent.so");
    assert!(library.exists(), "{} was not built", library.display());
    compile.arg(library).arg(format!("-Wl,-rpath,{}", built.display()));
}

#[test]
fn a_program_writes_and_reads_every_kind_of_value() {
    passes("values");
}

#[test]
fn a_program_manages_pools() {
    passes("pools");
}

#[test]
fn bad_input_is_an_error_and_nothing_dies() {
    passes("mistakes");
}

#[test]
fn the_example_in_the_book_compiles() {
    let page = std::fs::read_to_string(folder().join("../../docs/src/c.md")).unwrap();
    let example = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("example.c");
    std::fs::write(&source, example).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror", "-I"]);
    run(compile.arg(folder().join("include")).arg(&source));
}

#[test]
fn the_header_is_good_cplusplus_too() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("include.c");
    std::fs::write(&source, "#include \"remanent.h\"\nint main(void) { return (int)remanent_abi_version() - 1; }\n")
        .unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-x", "c++", "-std=c++11", "-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror", "-I"]);
    compile.arg(folder().join("include")).arg(&source);
    // A machine without a C++ compiler has nothing that the header could be bad for.
    let has_compiler = Command::new("c++").arg("--version").output().is_ok();
    if has_compiler {
        run(&mut compile);
    }
}
