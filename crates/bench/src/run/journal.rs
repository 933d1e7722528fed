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
use crate::run::Described;

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
    /// The program and what of the machine all samples must have in common.
    version: String,
    cpu: String,
    cpus: usize,
    kernel: String,
    huge_pages: Option<String>,
    prefetchers: String,
    /// The profiles of devices that are modelled: files may change.
    devices: Vec<String>,
    cells: Vec<Cell>,
}

impl Header {
    fn new(cells: &[Cell], enough: Enough, seed: u64, started_s: u64, machine: &Machine) -> Header {
        let mut devices: Vec<String> =
            cells.iter().filter_map(Cell::device).map(|device| format!("{device:?}")).collect();
        devices.sort_unstable();
        devices.dedup();
        Header {
            schema: SCHEMA.into(),
            seed,
            started_s,
            enough,
            version: env!("CARGO_PKG_VERSION").into(),
            cpu: machine.cpu.clone(),
            cpus: machine.cpus,
            kernel: machine.kernel.clone(),
            huge_pages: machine.huge_pages.clone(),
            prefetchers: machine.prefetchers.clone(),
            devices,
            cells: cells.to_vec(),
        }
    }

    /// In what a run that goes on with this one's samples differs, so that they would not be alike.
    fn differs(&self, now: &Header) -> Option<&'static str> {
        let differences = [
            ("another plan", self.cells != now.cells),
            ("another version of the program", self.version != now.version),
            ("another machine", (&self.cpu, self.cpus) != (&now.cpu, now.cpus)),
            ("another kernel", self.kernel != now.kernel),
            ("other huge pages", self.huge_pages != now.huge_pages),
            ("other prefetchers", self.prefetchers != now.prefetchers),
            ("another profile of a device", self.devices != now.devices),
            // It may be given more time.
            (
                "another precision, rounds or sample",
                Enough { budget_ns: now.enough.budget_ns, ..self.enough } != now.enough,
            ),
        ];
        differences.into_iter().find(|(_, differs)| *differs).map(|(what, _)| what)
    }
}

/// What came of a cell's turn.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The number of the cell.
    pub(super) cell: usize,
    /// The number of the round, from which orders and data were drawn.
    pub(super) round: u64,
    pub(super) turn: Turn,
    /// What the cell's memory really was, with its first turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<Described>,
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
        overhead: Option<f64>,
        is_disturbed: bool,
    },
    /// It cannot be true, and why.
    Refused(String),
}

const SCHEMA: &str = "remanent-bench-journal-4";

impl Turn {
    pub(super) fn of(sample: &Sample, is_disturbed: bool) -> Turn {
        let ticks = sample.ticks.iter().map(|(ticks, count)| (*ticks, *count)).collect();
        Turn::Sample { values: sample.values.clone(), ticks, overhead: sample.overhead, is_disturbed }
    }
}

/// Keeps other runs out until the file is closed (flock(2)).
fn lock(file: &File, path: &Path) -> Result<()> {
    match rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(Error::unavailable(format!("another run is writing {}", path.display())))
        }
        locked => locked.map_err(|error| Error::io(path, error.into())),
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
        lock(&journal.file, &journal.path)?;
        journal.write(&Header::new(cells, enough, seed, started_s, machine))?;
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
        lock(&file, &path)?;
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
        if header.schema != SCHEMA {
            return Err(refuse("is of another version of the program, and cannot be gone on with".into()));
        }
        if let Some(what) = header.differs(&Header::new(cells, enough, header.seed, header.started_s, machine)) {
            return Err(refuse(format!("is of a run with {what}, and cannot be gone on with")));
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
        let sample = Sample { values: vec![Some(1.5), None], ticks: [(52, 3)].into(), overhead: Some(0.25) };
        let disturbance = Disturbance { steal_ms: 5, ..Disturbance::default() };
        let provenance = report::Provenance::Measured;
        let memory = Some(Described { text: "main memory".into(), provenance, page_bytes: Some(4096) });
        let entry = |cell, turn| Entry { cell, round: 3, turn, memory: memory.clone(), elapsed_ns: 77, disturbance };
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
        let error = open(&cells, enough, None, &machine).unwrap_err().to_string();
        assert!(error.contains("another run is writing"), "{error}");
        drop(journal);
        let more_time = Enough { budget_ns: 1 << 50, ..enough };
        assert_eq!(open(&cells, more_time, None, &machine).unwrap().1, [taken, refused]);
        let others = [
            (Machine { cpus: 3, ..machine.clone() }, "another machine"),
            (Machine { kernel: "7".into(), ..machine.clone() }, "another kernel"),
            (Machine { prefetchers: "off".into(), ..machine.clone() }, "other prefetchers"),
        ];
        for (other, what) in others {
            let error = open(&cells, enough, None, &other).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
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
        OpenOptions::new().append(true).open(path_of(folder.path())).unwrap().write_all(b"{}\n").unwrap();
        let error = open(&cells, enough, None, &machine).unwrap_err().to_string();
        assert!(error.contains("journal.jsonl:4 is no line of a journal"), "{error}");
    }
}
