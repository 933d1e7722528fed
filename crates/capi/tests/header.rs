//! The committed header is the one that the source makes, and C compilers take it.

use std::fs;
use std::path::{Path, PathBuf};

/// Asks for the header to be written; `./run fix` sets it.
const WRITE: &str = "REMANENT_WRITE_HEADER";

fn folder() -> PathBuf {
    // Asked at run time, for a target folder may be carried to another place with its programs.
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

fn generated(folder: &Path) -> String {
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    // Each file by itself: to look at the whole crate would need its metadata, and so the network.
    for file in ["error", "dtype", "store", "listing", "batch", "node", "view", "mapping"] {
        builder = builder.with_src(folder.join(format!("src/{file}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    String::from_utf8(made).unwrap()
}

#[test]
fn the_committed_header_is_what_the_source_makes() {
    let place = folder().join("include/remanent.h");
    let generated = generated(&folder());
    if std::env::var_os(WRITE).is_some() {
        fs::write(&place, &generated).unwrap();
    }
    let committed = fs::read_to_string(&place).unwrap_or_default();
    assert!(committed == generated, "include/remanent.h is stale; `./run fix` makes it anew");
}

#[test]
fn every_error_code_has_its_constant() {
    let header = generated(&folder());
    for code in store::ErrorCode::ALL {
        let line = format!("REMANENT_{} = {},", code.name().replace('-', "_").to_uppercase(), *code as i32);
        assert!(header.lines().any(|found| found.trim() == line), "the header has no {line}");
    }
    let constants = header.split("enum remanent_error").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
    assert_eq!(constants.matches(" = ").count(), store::ErrorCode::ALL.len());
}
