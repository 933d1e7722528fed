//! The deep kill lane: real processes on real files, killed with SIGKILL at random moments, and what is left of their
//! pools compared with a model, every byte.
//!
//! A round is one pool, on memory or on a disk. A writer is started on it, which makes the pool when it is not there;
//! after a random number of its reports and a random spin it is killed, be it while it creates, recovers, copies,
//! commits, compacts, grows or closes. Then the pool is looked over, opened and compared, sometimes left as it is for
//! the next writer to recover, and the next writer is started. Beside all that a reader comes and goes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use fastrand::Rng;
use pmem::{ErrorCode, Severity};
use remanent_tests::deep::{Budget, print_counters};
use remanent_tests::kill::roles::Role;
use remanent_tests::kill::{Model, mix, stamp_of, text};
use store::{Mapped, OpenMode, Store};
use tempfile::TempDir;

const SIGKILL: i32 = 9;
/// Kills of one pool, when there is time for them.
const MOST_LIVES: u64 = 24;
/// However little time there is.
const FEWEST_ROUNDS: u64 = 2;
/// The same.
const FEWEST_LIVES: u64 = 4;
/// Where memory is a file system.
const SHARED_MEMORY: &str = "/dev/shm";
const HEAD_BYTES: u64 = 2 << 20;
/// Where the root cell says how long the log's segment is; see the format's page.
const SEGMENT_BYTES_AT: u64 = 4096 + 8;
/// What a writer sets aside for the next segment, as long as the catalogue is small.
const SPARE_BYTES: u64 = 64 << 10;

type Outcome<T> = Result<T, String>;

#[derive(Default)]
struct Counters {
    kills: u64,
    pools: u64,
    acknowledged: u64,
    unacknowledged: u64,
    lost_creations: u64,
    mended: u64,
    looks: u64,
    killed_readers: u64,
}

/// A process of the campaign and its pipes.
struct Process {
    child: Child,
    /// Closed to have the process end.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &Role) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_killed"));
        command.args(role.arguments()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program was built with this test");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Process { child, stdin, stdout }
    }

    /// The next report; none at the end.
    fn line(&mut self) -> Outcome<Option<String>> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).map_err(|error| error.to_string())?;
        // The last line of a killed process may be cut.
        let Some(line) = line.strip_suffix('\n') else { return Ok(None) };
        match line.strip_prefix("fail ") {
            Some(reason) => Err(format!("a process says: {reason}")),
            None => Ok(Some(line.to_owned())),
        }
    }

    fn expect(&mut self, word: &str) -> Outcome<u64> {
        let line = self.line()?.ok_or_else(|| format!("a process ended before it said {word:?}"))?;
        match line.strip_prefix(word) {
            Some(number) => Ok(number.trim().parse().unwrap_or(0)),
            None => Err(format!("{line:?} was said and {word:?} expected")),
        }
    }

    fn ask(&mut self, what: &str) -> Outcome<()> {
        let pipe = self.stdin.as_mut().ok_or("the process was told to end")?;
        writeln!(pipe, "{what}").map_err(|error| error.to_string())
    }

    /// Kills it, if it has not failed before, and hands out what it had still said.
    fn kill(mut self) -> Outcome<Vec<String>> {
        let text = |error: std::io::Error| error.to_string();
        self.child.kill().map_err(text)?;
        let status = self.child.wait().map_err(text)?;
        let mut said = Vec::new();
        while let Some(line) = self.line()? {
            said.push(line);
        }
        match status.signal() {
            Some(SIGKILL) => Ok(said),
            _ => Err(format!("a process ended by itself: {status}")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Of a campaign that has failed; nothing more can be done about it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One pool, and what is known of it.
struct Round<'a> {
    folder: TempDir,
    stripe: bool,
    seed: u64,
    life: u64,
    /// The state that was seen last.
    known: Model,
    /// The newest step that a reader was shown.
    shown: u64,
    /// Which process made which step.
    makers: BTreeMap<u64, u64>,
    /// Whether the pool was there when it was last looked for.
    exists: bool,
    reader: Option<Process>,
    counters: &'a mut Counters,
}

/// What a writer has said until it was killed.
#[derive(Default)]
struct Said {
    is_open: bool,
    started: u64,
    acknowledged: u64,
}

impl Said {
    fn note(&mut self, line: &str) {
        let number = line.split_once(' ').and_then(|(_, number)| number.parse().ok());
        match (line.split_once(' ').map_or(line, |(word, _)| word), number) {
            ("open", Some(step)) => (self.is_open, self.started, self.acknowledged) = (true, step, step),
            ("start", Some(step)) => self.started = step,
            ("ack", Some(step)) => self.acknowledged = step,
            _ => {}
        }
    }
}

impl Round<'_> {
    fn path(&self) -> PathBuf {
        self.folder.path().join("pool")
    }

    fn role(&self, mode: OpenMode) -> Role {
        let stripe = self.stripe.then(|| self.folder.path().join("member"));
        Role { mode, path: self.path(), stripe, seed: self.seed, life: self.life }
    }

    fn run(&mut self, budget: &Budget, rng: &mut Rng) -> Outcome<()> {
        while self.life < FEWEST_LIVES || self.life < MOST_LIVES && budget.is_left() {
            self.life += 1;
            if self.exists && self.reader.is_none() && rng.u32(..3) == 0 {
                self.start_reader()?;
            }
            let said = self.live_and_die(rng)?;
            self.counters.kills += 1;
            if !self.find(&said)? {
                if self.stripe {
                    // The members that were made keep their names: whoever chose them must remove them.
                    return Ok(());
                }
                continue;
            }
            self.look_over(Severity::Repairable)?;
            self.reader_goes_on(rng)?;
            match rng.u32(..4) {
                0 => self.read(&said)?,
                1 => {
                    self.read(&said)?;
                    self.recover(&said)?;
                }
                _ => self.recover(&said)?,
            }
        }
        self.let_reader_go(rng)?;
        Ok(())
    }

    /// Starts a writer and kills it. The moment follows from the seed: so many reports, then so many turns.
    fn live_and_die(&mut self, rng: &mut Rng) -> Outcome<Said> {
        let mut said = Said::default();
        let mut writer = Process::start(&self.role(OpenMode::Writer));
        // One of sixteen is killed at rest, when the lock can be tried without taking it from a process that reopens.
        let most_lines = 2 << rng.u32(..6);
        let lines = if rng.u32(..16) == 0 { u64::MAX } else { rng.u64(..most_lines) };
        let reader_comes = rng.u64(..120);
        for number in 0..lines {
            if number >= reader_comes && said.is_open && self.reader.is_none() {
                self.start_reader()?;
            }
            let line = writer.line()?.ok_or("a writer ended by itself")?;
            if line == "resting" {
                self.is_busy()?;
                break;
            }
            said.note(&line);
        }
        let magnitude = rng.u32(1..18);
        for _ in 0..rng.u64(..1 << magnitude) {
            std::hint::spin_loop();
        }
        writer.kill()?.iter().for_each(|line| said.note(line));
        Ok(said)
    }

    fn is_busy(&self) -> Outcome<()> {
        match Store::open(Mapped::new(), &self.path(), OpenMode::Writer) {
            Err(error) if error.code() == ErrorCode::PoolBusy => Ok(()),
            Err(error) => Err(format!("a second writer is told {}", text(error))),
            Ok(_) => Err("a second writer was let in".to_owned()),
        }
    }

    /// Whether the pool is there. Once it was, or its writer had it open, it must be.
    fn find(&mut self, said: &Said) -> Outcome<bool> {
        let exists = self.path().exists();
        if !exists && (self.exists || said.is_open) {
            return Err("the pool is gone".to_owned());
        }
        self.exists = exists;
        self.counters.lost_creations += u64::from(!exists);
        Ok(exists)
    }

    /// A check finds nothing worse than this.
    fn look_over(&mut self, allowed: Severity) -> Outcome<()> {
        let report = pmem::check(&Mapped::new(), &self.path(), |_| ()).map_err(|error| error.to_string())?;
        if report.has_writer {
            return Err("the writer's lock did not fall with it".to_owned());
        }
        if report.worst().is_some_and(|worst| worst > allowed) {
            return Err(format!("a check finds {:?}", report.findings));
        }
        self.counters.mended += u64::from(report.worst() == Some(Severity::Repairable));
        Ok(())
    }

    /// A reader sees an allowed state; the pool is left for the next process to recover.
    fn read(&mut self, said: &Said) -> Outcome<()> {
        let store = Store::open(Mapped::new(), &self.path(), OpenMode::Reader).map_err(text)?;
        self.explain(&store, said)
    }

    /// A writer recovers an allowed state, its space adds up, and it leaves a clean pool.
    fn recover(&mut self, said: &Said) -> Outcome<()> {
        let store = Store::open(Mapped::new(), &self.path(), OpenMode::Writer).map_err(text)?;
        self.explain(&store, said)?;
        store.gc().map_err(text)?;
        if self.reader.is_none() {
            self.space_adds_up(&store)?;
        }
        store.close().map_err(text)?;
        self.look_over(Severity::Note)
    }

    /// Without readers nothing is kept for them, and every byte is free, an object's or the log's.
    fn space_adds_up(&self, store: &Store) -> Outcome<()> {
        let mut segment_bytes = [0; 8];
        let first = File::open(self.path()).map_err(|error| error.to_string())?;
        first.read_exact_at(&mut segment_bytes, SEGMENT_BYTES_AT).map_err(|error| error.to_string())?;
        let log_bytes = u64::from_le_bytes(segment_bytes) + SPARE_BYTES;
        let objects_bytes: u64 = store.ls().map_err(text)?.iter().map(|object| object.extent_bytes).sum();
        let info = store.info();
        let known_bytes = HEAD_BYTES * info.parts.len() as u64 + info.free_bytes + objects_bytes + log_bytes;
        if info.retired_bytes != 0 || known_bytes != info.total_bytes {
            let (total_bytes, retired_bytes) = (info.total_bytes, info.retired_bytes);
            return Err(format!("{known_bytes} of {total_bytes} bytes are known, {retired_bytes} wait for nobody"));
        }
        Ok(())
    }

    /// What is found lies between what was acknowledged and what was started, and is not older than what was seen.
    fn explain(&mut self, store: &Store, said: &Said) -> Outcome<()> {
        let found = stamp_of(store)?.map_or(0, |stamp| stamp.step);
        let oldest = said.acknowledged.max(self.known.steps()).max(self.shown);
        let newest = said.started.max(self.known.steps());
        if !(oldest..=newest).contains(&found) {
            return Err(format!("step {found} is found, and {oldest} to {newest} are allowed"));
        }
        self.counters.acknowledged += said.acknowledged.saturating_sub(self.known.steps());
        self.counters.unacknowledged += u64::from(found > oldest);
        for step in self.known.steps() + 1..=found {
            self.makers.insert(step, self.life);
        }
        self.known.advance_to(found);
        for (step, life) in self.known.compare(store)? {
            if self.makers.get(&step) != Some(&life) {
                return Err(format!("step {step} is of process {life}, not of {:?}", self.makers.get(&step)));
            }
        }
        Ok(())
    }

    fn start_reader(&mut self) -> Outcome<()> {
        let mut reader = Process::start(&self.role(OpenMode::Reader));
        let step = reader.expect("holding")?;
        self.reader = Some(reader);
        self.show(step)
    }

    fn show(&mut self, step: u64) -> Outcome<()> {
        let seen = self.shown.max(self.known.steps());
        if step < seen {
            return Err(format!("a reader is shown step {step} after step {seen} was seen"));
        }
        self.shown = step;
        Ok(())
    }

    /// The reader's bytes are what they were; sometimes it moves on, sometimes it goes.
    fn reader_goes_on(&mut self, rng: &mut Rng) -> Outcome<()> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let question = if rng.u32(..3) == 0 { "refresh" } else { "look" };
        reader.ask(question)?;
        let step = if question == "refresh" { Some(reader.expect("holding")?) } else { None };
        reader.expect("same")?;
        step.map_or(Ok(()), |step| self.show(step))?;
        self.counters.looks += 1;
        if rng.u32(..3) == 0 { self.let_reader_go(rng) } else { Ok(()) }
    }

    /// By a kill, or in order.
    fn let_reader_go(&mut self, rng: &mut Rng) -> Outcome<()> {
        let Some(mut reader) = self.reader.take() else { return Ok(()) };
        if rng.bool() {
            self.counters.killed_readers += 1;
            return reader.kill().map(drop);
        }
        reader.ask("look")?;
        reader.expect("same")?;
        reader.stdin = None;
        let status = reader.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("a reader ended with {status}")) }
    }
}

/// Where pools are made in turn: memory and a disk, as far as both are there. A disk takes a hundred times as long.
fn places() -> Vec<&'static Path> {
    let shared_memory = Path::new(SHARED_MEMORY);
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if TempDir::new_in(shared_memory).is_ok() {
        vec![shared_memory, disk, shared_memory, shared_memory, shared_memory, shared_memory]
    } else {
        vec![disk]
    }
}

#[test]
fn a_pool_survives_every_kill_of_its_writers_and_readers() {
    let budget = Budget::from_environment(Duration::from_secs(3));
    let mut counters = Counters::default();
    let places = places();
    let mut round = 0;
    while round < FEWEST_ROUNDS || budget.is_left() {
        let seed = mix(&[budget.seed, round]);
        let mut rng = Rng::with_seed(seed);
        let place = places[round as usize % places.len()];
        let folder = TempDir::with_prefix_in("remanent-kill-", place).expect("a folder of our own");
        let mut pool = Round {
            folder,
            stripe: rng.u32(..4) == 0,
            seed,
            life: 0,
            known: Model::new(seed),
            shown: 0,
            makers: BTreeMap::new(),
            exists: false,
            reader: None,
            counters: &mut counters,
        };
        if let Err(reason) = pool.run(&budget, &mut rng) {
            let (life, kept) = (pool.life, pool.folder.path().display().to_string());
            pool.folder.disable_cleanup(true);
            panic!(
                "{reason}\nround {round}, process {life}; REMANENT_DEEP_SEED={} plays it again; the pool is kept in {kept}",
                budget.seed
            );
        }
        counters.pools += 1;
        round += 1;
    }
    assert!(counters.kills > 0, "the budget was not enough for one kill");
    print_counters(&[
        ("kills", counters.kills),
        ("pools", counters.pools),
        ("acknowledged", counters.acknowledged),
        ("unacknowledged", counters.unacknowledged),
        ("lost_creations", counters.lost_creations),
        ("mended", counters.mended),
        ("looks", counters.looks),
        ("killed_readers", counters.killed_readers),
    ]);
}
