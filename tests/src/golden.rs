//! Golden files: the bytes that a version of a format has written, as text that a diff can show.

use std::fs;
use std::path::{Path, PathBuf};

/// The version that this program writes.
const NEWEST: u32 = 1;
const PAGE_BYTES: usize = 4096;

fn file(version: u32, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../testdata/pools/v{version}/{name}.hex"))
}

/// The content of a file that this version has written.
pub fn read(version: u32, name: &str) -> Vec<u8> {
    from_text(&fs::read_to_string(file(version, name)).expect("the golden file"))
}

/// Compares what this program writes with the golden file of its version; with `REMANENT_WRITE_GOLDEN` in the
/// environment it is written first.
pub fn check(name: &str, content: &[u8]) {
    if std::env::var_os("REMANENT_WRITE_GOLDEN").is_some() {
        fs::create_dir_all(file(NEWEST, "").parent().expect("a folder")).expect("a folder of the tree");
        fs::write(file(NEWEST, name), to_text(content)).expect("a file of the tree");
    }
    let golden = read(NEWEST, name);
    assert_eq!(golden.len(), content.len());
    let pages = golden.chunks(PAGE_BYTES).zip(content.chunks(PAGE_BYTES));
    let differs = pages.into_iter().position(|(golden, content)| golden != content);
    assert_eq!(differs, None, "{name}: the first page that differs; a changed format needs a new version");
}

/// Each 16 bytes that are not all zero, with their offset, both in hexadecimal.
fn to_text(content: &[u8]) -> String {
    let mut text = format!("{:x}\n", content.len());
    for (number, row) in content.chunks(16).enumerate().filter(|(_, row)| row.iter().any(|&byte| byte != 0)) {
        let hex: String = row.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("{:x} {hex}\n", number * 16);
    }
    text
}

fn from_text(text: &str) -> Vec<u8> {
    let number = |text: &str| usize::from_str_radix(text, 16).expect("a hexadecimal number");
    let (len, rows) = text.split_once('\n').expect("a first line");
    let mut content = vec![0; number(len)];
    for row in rows.lines() {
        let (offset, hex) = row.split_once(' ').expect("an offset and bytes");
        for (i, byte) in hex.as_bytes().chunks(2).enumerate() {
            content[number(offset) + i] = number(std::str::from_utf8(byte).expect("text")) as u8;
        }
    }
    content
}
