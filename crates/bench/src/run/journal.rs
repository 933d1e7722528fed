//! The journal of a run: what was measured, a line for each sample, so that a run that was interrupted goes on.
//!
//! The first line says of which plan, machine and seed. A last line without an end is one that was being written, and is
//! left out.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::measure::{Cell, Sample};

/// An open journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: std::path::PathBuf,
    seed: u64,
}

/// The first line.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    schema: String,
    seed: u64,
    cpu: String,
    cpus: usize,
    cells: Vec<Cell>,
}

/// A sample.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The number of its cell.
    pub(super) cell: usize,
    values: Vec<Option<f64>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ticks: Vec<(u64, u64)>,
    overhead: f64,
    pub(super) is_disturbed: bool,
    /// Of the run, when the sample had been taken.
    pub(super) elapsed_ns: u64,
}

const SCHEMA: &str = "remanent-bench-journal-1";

impl Entry {
    pub(super) fn new(cell: usize, sample: &Sample, is_disturbed: bool, elapsed_ns: u64) -> Entry {
        let ticks = sample.ticks.iter().map(|(ticks, count)| (*ticks, *count)).collect();
        Entry { cell, values: sample.values.clone(), ticks, overhead: sample.overhead, is_disturbed, elapsed_ns }
    }

    pub(super) fn sample(&self) -> Sample {
        Sample { values: self.values.clone(), ticks: self.ticks.iter().copied().collect(), overhead: self.overhead }
    }
}

fn path_of(folder: &Path) -> std::path::PathBuf {
    folder.join("journal.jsonl")
}

impl Journal {
    /// Begins one; there must be none.
    pub(super) fn create(folder: &Path, cells: &[Cell], seed: u64, machine: &Machine) -> Result<Journal> {
        let path = path_of(folder);
        let file =
            OpenOptions::new().create_new(true).append(true).open(&path).map_err(|error| Error::io(&path, error))?;
        let mut journal = Journal { file, path, seed };
        let cells = cells.to_vec();
        journal.write(&Header { schema: SCHEMA.into(), seed, cpu: machine.cpu.clone(), cpus: machine.cpus, cells })?;
        Ok(journal)
    }

    /// Goes on with one, and tells what is in it.
    pub(super) fn open(folder: &Path, cells: &[Cell], machine: &Machine) -> Result<(Journal, Vec<Entry>)> {
        let path = path_of(folder);
        let failed = |error| Error::io(&path, error);
        let file = OpenOptions::new().read(true).append(true).open(&path).map_err(failed)?;
        let mut whole_bytes = 0;
        let mut lines = Vec::new();
        let mut reader = BufReader::new(&file);
        loop {
            let mut line = Vec::new();
            reader.read_until(b'\n', &mut line).map_err(failed)?;
            if line.last() != Some(&b'\n') {
                break;
            }
            whole_bytes += line.len() as u64;
            lines.push(line);
        }
        file.set_len(whole_bytes).map_err(failed)?;
        let damaged =
            |number: usize| Error::unavailable(format!("{}:{number} is no line of a journal", path.display()));
        let header: Header =
            lines.first().and_then(|line| serde_json::from_slice(line).ok()).ok_or_else(|| damaged(1))?;
        let is_same = header.schema == SCHEMA && header.cells == cells;
        if !is_same || (header.cpu.as_str(), header.cpus) != (machine.cpu.as_str(), machine.cpus) {
            let what =
                format!("{} is of another plan, or of another machine, and cannot be gone on with", path.display());
            return Err(Error::unavailable(what));
        }
        let entry = |(number, line): (usize, &Vec<u8>)| {
            let entry: Option<Entry> = serde_json::from_slice(line).ok();
            entry.filter(|entry| entry.cell < cells.len()).ok_or_else(|| damaged(number + 2))
        };
        let entries = lines[1..].iter().enumerate().map(entry).collect::<Result<_>>()?;
        Ok((Journal { file, path, seed: header.seed }, entries))
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn add(&mut self, entry: &Entry) -> Result<()> {
        self.write(entry)
    }

    fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(line).expect("numbers that are finite, and strings");
        text.push(b'\n');
        self.file.write_all(&text).map_err(|error| Error::io(&self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn a_journal_gives_back_what_was_written_and_no_half_line() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { cpu: "x".into(), cpus: 2, ..Machine::default() };
        let cells = Plan::built_in("load").unwrap().cells().unwrap();
        let sample = Sample { values: vec![Some(1.5), None], ticks: [(52, 3)].into(), overhead: 0.25 };
        let mut journal = Journal::create(folder.path(), &cells, 9, &machine).unwrap();
        journal.add(&Entry::new(2, &sample, true, 77)).unwrap();
        journal.file.write_all(b"{\"cell\":0,").unwrap();
        drop(journal);
        assert!(Journal::create(folder.path(), &cells, 9, &machine).is_err(), "nothing is written over");
        for _ in 0..2 {
            let (journal, entries) = Journal::open(folder.path(), &cells, &machine).unwrap();
            assert_eq!((journal.seed(), entries.len()), (9, 1));
            assert_eq!(
                (entries[0].sample(), entries[0].is_disturbed, entries[0].elapsed_ns),
                (sample.clone(), true, 77)
            );
        }
        let (mut journal, _) = Journal::open(folder.path(), &cells, &machine).unwrap();
        journal.add(&Entry::new(0, &sample, false, 78)).unwrap();
        assert_eq!(Journal::open(folder.path(), &cells, &machine).unwrap().1.len(), 2);
        let other = Machine { cpus: 3, ..machine.clone() };
        assert!(Journal::open(folder.path(), &cells, &other).is_err());
        assert!(Journal::open(folder.path(), &cells[1..], &machine).is_err());
        journal.file.write_all(b"{}\n").unwrap();
        let error = Journal::open(folder.path(), &cells, &machine).unwrap_err().to_string();
        assert!(error.contains("journal.jsonl:4 is no line of a journal"), "{error}");
    }
}
