//! The files of a simulated machine, with an undo journal, so that an image is a few patches and not a copy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::volatile::mix;

/// Number of a file, for its whole life.
pub(crate) type FileId = usize;

/// Contents and names.
#[derive(Default)]
pub(crate) struct Disk {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, FileId>,
    undo: Vec<Undo>,
    /// Old bytes of [`Undo::Bytes`], one after the other.
    old_bytes: Vec<u8>,
    /// Contents of files that were undone. They are all zero, because every store to them was undone before; but for
    /// what was stored through an address, which [`Disk::forget`] is for.
    zeroed: Vec<Vec<u8>>,
}

struct Content {
    bytes: Vec<u8>,
    /// What the file system says; a file whose length is not durable yet may come back empty.
    len_bytes: u64,
}

enum Undo {
    Bytes { file: FileId, offset: usize, len: usize },
    Name { path: PathBuf, old: Option<FileId> },
    Len { file: FileId, old: u64 },
    NewFile,
}

/// A point to return to.
#[derive(Clone, Copy)]
pub(crate) struct Mark(usize);

impl Disk {
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.undo.len())
    }

    /// Undoes everything since `mark`.
    pub(crate) fn rollback(&mut self, mark: Mark) {
        while self.undo.len() > mark.0 {
            match self.undo.pop().expect("the journal is longer than the mark") {
                Undo::Bytes { file, offset, len } => {
                    let at = self.old_bytes.len() - len;
                    self.files[file].bytes[offset..offset + len].copy_from_slice(&self.old_bytes[at..]);
                    self.old_bytes.truncate(at);
                }
                Undo::Name { path, old: Some(file) } => drop(self.names.insert(path, file)),
                Undo::Name { path, old: None } => drop(self.names.remove(&path)),
                Undo::Len { file, old } => self.files[file].len_bytes = old,
                Undo::NewFile => self.zeroed.extend(self.files.pop().map(|file| file.bytes)),
            }
        }
    }

    /// Undoes everything, and what no call has stored as well.
    pub(crate) fn forget(&mut self) {
        self.rollback(Mark(0));
        self.zeroed.clear();
    }

    pub(crate) fn new_file(&mut self, len_bytes: u64) -> FileId {
        let zeroed = self.zeroed.iter().position(|bytes| bytes.len() as u64 == len_bytes);
        let bytes = zeroed.map_or_else(|| vec![0; len_bytes as usize], |at| self.zeroed.swap_remove(at));
        self.files.push(Content { bytes, len_bytes });
        self.undo.push(Undo::NewFile);
        self.files.len() - 1
    }

    pub(crate) fn file_count(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn bind(&mut self, path: &Path, file: Option<FileId>) {
        let old = match file {
            Some(file) => self.names.insert(path.to_owned(), file),
            None => self.names.remove(path),
        };
        self.undo.push(Undo::Name { path: path.to_owned(), old });
    }

    pub(crate) fn lookup(&self, path: &Path) -> Option<FileId> {
        self.names.get(path).copied()
    }

    pub(crate) fn len_bytes(&self, file: FileId) -> u64 {
        self.files[file].len_bytes
    }

    pub(crate) fn set_len(&mut self, file: FileId, len_bytes: u64) {
        let old = std::mem::replace(&mut self.files[file].len_bytes, len_bytes);
        self.undo.push(Undo::Len { file, old });
    }

    /// Hash of all names and lengths.
    pub(crate) fn names_hash(&self) -> u64 {
        let mut hash = 0;
        for (path, &file) in &self.names {
            hash = path.as_os_str().as_encoded_bytes().iter().fold(hash, |h, &b| mix(h, u64::from(b)));
            hash = mix(mix(hash, file as u64), self.files[file].len_bytes);
        }
        hash
    }

    /// Length of the content, whatever the file system says.
    pub(crate) fn allocated_bytes(&self, file: FileId) -> u64 {
        self.files[file].bytes.len() as u64
    }

    pub(crate) fn read(&self, file: FileId, offset_bytes: u64, into: &mut [u8]) {
        let at = offset_bytes as usize;
        into.copy_from_slice(&self.files[file].bytes[at..at + into.len()]);
    }

    pub(crate) fn write(&mut self, file: FileId, offset_bytes: u64, from: &[u8]) {
        let offset = offset_bytes as usize;
        let target = &mut self.files[file].bytes[offset..offset + from.len()];
        self.old_bytes.extend_from_slice(target);
        target.copy_from_slice(from);
        self.undo.push(Undo::Bytes { file, offset, len: from.len() });
    }

    pub(crate) fn content(&self, file: FileId) -> &[u8] {
        &self.files[file].bytes
    }

    pub(crate) fn base(&mut self, file: FileId) -> *mut u8 {
        self.files[file].bytes.as_mut_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollback_restores_bytes_names_and_lengths_in_reverse_order() {
        let mut disk = Disk::default();
        let file = disk.new_file(64);
        disk.bind(Path::new("a"), Some(file));
        disk.write(file, 0, b"before");
        let mark = disk.mark();
        disk.write(file, 2, b"xx");
        disk.write(file, 0, b"yyyy");
        disk.set_len(file, 0);
        disk.bind(Path::new("a"), None);
        let other = disk.new_file(8);
        disk.bind(Path::new("b"), Some(other));
        disk.rollback(mark);
        assert_eq!(&disk.content(file)[..6], b"before");
        assert_eq!((disk.lookup(Path::new("a")), disk.lookup(Path::new("b"))), (Some(file), None));
        assert_eq!((disk.len_bytes(file), disk.file_count()), (64, 1));
    }
}
