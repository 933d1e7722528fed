//! The journal of a run: what was measured, a line for each sample, so that a run that was interrupted goes on.
//!
//! The first line says of which plan, machine and seed, and since when. A last line without an end is one that was being
//! written, and is left out.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::machine::{Disturbance, Machine};
use crate::measure::{Cell, Sample};
use crate::plan::Enough;

/// An open journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: std::path::PathBuf,
    seed: u64,
    started_s: u64,
}

/// The first line.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    schema: String,
    seed: u64,
    /// In seconds since 1970.
    started_s: u64,
    enough: Enough,
    cpu: String,
    cpus: usize,
    cells: Vec<Cell>,
}

/// What came of a cell's turn.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The number of the cell.
    pub(super) cell: usize,
    pub(super) turn: Turn,
    /// Of the run, when it was over.
    pub(super) elapsed_ns: u64,
    /// Of the run, up to then.
    pub(super) disturbance: Disturbance,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Turn {
    Sample {
        values: Vec<Option<f64>>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ticks: Vec<(u64, u64)>,
        overhead: f64,
        is_disturbed: bool,
    },
    /// It cannot be true, and why.
    Refused(String),
}

const SCHEMA: &str = "remanent-bench-journal-2";

impl Turn {
    pub(super) fn of(sample: &Sample, is_disturbed: bool) -> Turn {
        let ticks = sample.ticks.iter().map(|(ticks, count)| (*ticks, *count)).collect();
        Turn::Sample { values: sample.values.clone(), ticks, overhead: sample.overhead, is_disturbed }
    }
}

fn path_of(folder: &Path) -> std::path::PathBuf {
    folder.join("journal.jsonl")
}

impl Journal {
    /// Begins one; there must be none.
    pub(super) fn create(
        folder: &Path,
        cells: &[Cell],
        enough: Enough,
        seed: u64,
        machine: &Machine,
    ) -> Result<Journal> {
        let path = path_of(folder);
        let file =
            OpenOptions::new().create_new(true).append(true).open(&path).map_err(|error| Error::io(&path, error))?;
        let started_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut journal = Journal { file, path, seed, started_s };
        let (schema, cpu, cells) = (SCHEMA.into(), machine.cpu.clone(), cells.to_vec());
        journal.write(&Header { schema, seed, started_s, enough, cpu, cpus: machine.cpus, cells })?;
        Ok(journal)
    }

    /// Goes on with one, and tells what is in it.
    pub(super) fn open(
        folder: &Path,
        cells: &[Cell],
        enough: Enough,
        seed: Option<u64>,
        machine: &Machine,
    ) -> Result<(Journal, Vec<Entry>)> {
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
        let refuse = |what: String| Error::unavailable(format!("{} {what}", path.display()));
        let damaged =
            |number: usize| Error::unavailable(format!("{}:{number} is no line of a journal", path.display()));
        let header: Header =
            lines.first().and_then(|line| serde_json::from_slice(line).ok()).ok_or_else(|| damaged(1))?;
        let is_same = header.schema == SCHEMA && header.cells == cells;
        if !is_same || (header.cpu.as_str(), header.cpus) != (machine.cpu.as_str(), machine.cpus) {
            return Err(refuse("is of another plan, or of another machine, and cannot be gone on with".into()));
        }
        // A run may be given more time, but all its samples must be alike.
        if (Enough { budget_ns: enough.budget_ns, ..header.enough }) != enough {
            return Err(refuse("is of a run with another precision, rounds or sample".into()));
        }
        if let Some(seed) = seed.filter(|seed| *seed != header.seed) {
            return Err(refuse(format!("is of a run with the seed {}, not {seed}", header.seed)));
        }
        let entry = |(number, line): (usize, &Vec<u8>)| {
            let entry: Option<Entry> = serde_json::from_slice(line).ok();
            entry.filter(|entry| entry.cell < cells.len()).ok_or_else(|| damaged(number + 2))
        };
        let entries = lines[1..].iter().enumerate().map(entry).collect::<Result<_>>()?;
        file.set_len(whole_bytes).map_err(failed)?;
        Ok((Journal { file, path, seed: header.seed, started_s: header.started_s }, entries))
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn started_s(&self) -> u64 {
        self.started_s
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
        let enough = Enough::default();
        let sample = Sample { values: vec![Some(1.5), None], ticks: [(52, 3)].into(), overhead: 0.25 };
        let disturbance = Disturbance { steal_ms: 5, ..Disturbance::default() };
        let entry = |cell, turn| Entry { cell, turn, elapsed_ns: 77, disturbance };
        let taken = entry(2, Turn::of(&sample, true));
        let refused = entry(0, Turn::Refused("it is not true".into()));
        let mut journal = Journal::create(folder.path(), &cells, enough, 9, &machine).unwrap();
        journal.add(&taken).unwrap();
        let started_s = journal.started_s();
        journal.file.write_all(b"{\"cell\":0,").unwrap();
        drop(journal);
        assert!(Journal::create(folder.path(), &cells, enough, 9, &machine).is_err(), "nothing is written over");
        let open = |cells: &[Cell], enough, seed, machine: &Machine| {
            Journal::open(folder.path(), cells, enough, seed, machine)
        };
        for seed in [None, Some(9)] {
            let (journal, entries) = open(&cells, enough, seed, &machine).unwrap();
            assert_eq!((journal.seed(), journal.started_s()), (9, started_s));
            assert_eq!(entries, [entry(2, Turn::of(&sample, true))]);
        }
        let (mut journal, _) = open(&cells, enough, None, &machine).unwrap();
        journal.add(&refused).unwrap();
        let more_time = Enough { budget_ns: 1 << 50, ..enough };
        assert_eq!(open(&cells, more_time, None, &machine).unwrap().1, [taken, refused]);
        assert!(open(&cells, enough, None, &Machine { cpus: 3, ..machine.clone() }).is_err());
        assert!(open(&cells[1..], enough, None, &machine).is_err());
        for other in [
            Enough { precision: 0.5, ..enough },
            Enough { least_rounds: 1, ..enough },
            Enough { sample_ns: 1_000_000, ..enough },
        ] {
            let error = open(&cells, other, None, &machine).unwrap_err().to_string();
            assert!(error.contains("is of a run with another precision, rounds or sample"), "{error}");
        }
        let error = open(&cells, enough, Some(1), &machine).unwrap_err().to_string();
        assert!(error.contains("is of a run with the seed 9, not 1"), "{error}");
        journal.file.write_all(b"{}\n").unwrap();
        let error = open(&cells, enough, None, &machine).unwrap_err().to_string();
        assert!(error.contains("journal.jsonl:4 is no line of a journal"), "{error}");
    }
}
