//! The archive that the kernel unpacks as its first root: cpio in the "newc" form, as the kernel's
//! Documentation/driver-api/early-userspace/buffer-format.rst describes it.

use std::fs;
use std::path::Path;

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive that is being made, in memory.
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// With the two devices that the first process needs before it has mounted anything.
    pub(super) fn new() -> Archive {
        let mut archive = Archive { bytes: Vec::new(), entries: 0 };
        archive.folder("dev");
        archive.entry("dev/console", CHARACTER_DEVICE, (5, 1), &[]);
        archive.entry("dev/null", CHARACTER_DEVICE, (1, 3), &[]);
        archive
    }

    pub(super) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER, (0, 0), &[]);
    }

    /// A copy of a file, which can be executed.
    pub(super) fn file(&mut self, name: &str, from: &Path) -> Result<(), String> {
        let content = fs::read(from).map_err(|error| format!("{} cannot be read: {error}", from.display()))?;
        self.entry(name, PROGRAM, (0, 0), &content);
        Ok(())
    }

    pub(super) fn link(&mut self, name: &str, to: &str) {
        self.entry(name, LINK, (0, 0), to.as_bytes());
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, (major, minor): (u32, u32), content: &[u8]) {
        self.entries += 1;
        let (links, name_len, content_len) = (1, name.len() as u32 + 1, content.len() as u32);
        // inode, mode, uid, gid, links, mtime, length, device, number of a device file, length of the name, checksum
        let fields = [self.entries, mode, 0, 0, links, 0, content_len, 0, 0, major, minor, name_len, 0]
            .map(|f| format!("{f:08x}"));
        self.bytes.extend(b"070701");
        self.bytes.extend(fields.concat().bytes());
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    /// Names end, and contents begin and end, at multiples of four.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_contents_are_where_the_form_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "hello").unwrap();
        let start = Archive::new().bytes.len();
        let mut archive = Archive::new();
        archive.file("init", &path).unwrap();
        let bytes = archive.finish();
        let header = &bytes[start..];
        assert_eq!(&header[..14], b"07070100000004");
        assert_eq!(&header[54..62], b"00000005", "the length of the content");
        assert_eq!(&header[110..115], b"init\0");
        assert_eq!(&header[116..124], b"hello\0\0\0");
        assert!(header[124..].starts_with(b"070701") && bytes.len().is_multiple_of(4));
        assert!(bytes.windows(11).any(|window| window == b"TRAILER!!!\0"));
    }
}
