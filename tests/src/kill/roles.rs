//! The processes that are killed: a writer, and a reader beside it.
//!
//! A writer prints `creating`, `open N`, then `start N` and `ack N` for each step, then `resting`; a reader prints
//! `holding N`, then answers each line of its standard input. Both end when that ends. What goes wrong is printed
//! as `fail ...`.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;

use store::{
    Checksums, Error, Mapped, Media, Object, ObjectView, OpenMode, PartOptions, PersistOptions, Store, Stripe,
};

use super::{CLOCK, Model, Stamp, Step, Upkeep, content, stamp_of, text, title};

/// Bytes of the first part's files.
pub const FILE_BYTES: u64 = 16 << 20;
const GROWTH_BYTES: u64 = 4 << 20;
const MOST_PARTS: usize = 4;
/// Steps after which a writer rests: whoever shall kill it may be slow, and a pool is finite.
const MOST_STEPS: u64 = 150;

/// Who a process is: the arguments of the program.
#[derive(Clone, Debug)]
pub struct Role {
    /// Whether it writes.
    pub mode: OpenMode,
    /// The pool's first file.
    pub path: PathBuf,
    /// A second file, when a new pool is to be striped.
    pub stripe: Option<PathBuf>,
    /// Seed of the steps.
    pub seed: u64,
    /// The number of the process.
    pub life: u64,
}

impl Role {
    /// As arguments.
    pub fn arguments(&self) -> Vec<std::ffi::OsString> {
        let mode = if self.mode == OpenMode::Writer { "write" } else { "read" };
        let stripe = self.stripe.as_ref().map_or_else(Default::default, |path| path.clone().into_os_string());
        let path = self.path.clone().into_os_string();
        vec![mode.into(), path, stripe, self.seed.to_string().into(), self.life.to_string().into()]
    }

    fn from_arguments() -> Option<Role> {
        let mut arguments = std::env::args_os().skip(1);
        let mode = if arguments.next()? == "write" { OpenMode::Writer } else { OpenMode::Reader };
        let path = arguments.next()?.into();
        let stripe = Some(PathBuf::from(arguments.next()?)).filter(|path| !path.as_os_str().is_empty());
        let mut number = || arguments.next()?.to_str()?.parse().ok();
        Some(Role { mode, path, stripe, seed: number()?, life: number()? })
    }
}

/// The program: does what its arguments say until its standard input ends, or it is killed.
pub fn main() {
    let role = Role::from_arguments().expect("the arguments of a role");
    let result = match role.mode {
        OpenMode::Writer => write(&role),
        _ => read(&role),
    };
    if let Err(reason) = result {
        tell(&format!("fail {}", reason.replace('\n', " ")));
        std::process::exit(1);
    }
}

/// Standard output is flushed at each line.
fn tell(line: &str) {
    // Nobody listens any more: the campaign has failed, and its input is about to end.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn wait_for_the_end() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

fn write(role: &Role) -> Result<(), String> {
    let media = Mapped::new();
    let store = if media.exists(&role.path).map_err(|error| error.to_string())? {
        Store::open(media.clone(), &role.path, OpenMode::Writer)
    } else {
        tell("creating");
        let more_files = role.stripe.iter().cloned().collect();
        let options = PartOptions { file_bytes: FILE_BYTES, more_files, chunk_bytes: Stripe::HEAD_BYTES };
        Store::create(media.clone(), &role.path, &options)
    };
    let mut store = store.map_err(text)?;
    let mut model = Model::after(role.seed, stamp_of(&store)?.map_or(0, |stamp| stamp.step));
    tell(&format!("open {}", model.steps()));
    let mut held = Snapshot::default();
    for _ in 0..MOST_STEPS {
        tell(&format!("start {}", model.steps() + 1));
        let step = model.advance();
        match step.upkeep {
            Upkeep::Hold => held = Snapshot::take(&store)?,
            Upkeep::LetGo => held = Snapshot::default(),
            Upkeep::Reopen => {
                store.close().map_err(text)?;
                store = Store::open(media.clone(), &role.path, OpenMode::Writer).map_err(text)?;
            }
            upkeep => keep_up(&store, upkeep).map_err(text)?,
        }
        commit(&store, role.seed, Stamp { step: model.steps(), life: role.life }, &step).map_err(text)?;
        held.is_unchanged()?;
        tell(&format!("ack {}", model.steps()));
    }
    tell("resting");
    wait_for_the_end();
    Ok(())
}

fn keep_up<M: Media>(store: &Store<M>, upkeep: Upkeep) -> Result<(), Error> {
    match upkeep {
        Upkeep::Compact => Ok(store.pool().compact()?),
        Upkeep::Gc => store.gc().map(drop),
        Upkeep::Grow if store.info().parts.len() < MOST_PARTS => store.grow(None, &PartOptions::single(GROWTH_BYTES)),
        _ => Ok(()),
    }
}

/// Makes the edits of a step true, all at once.
///
/// # Errors
/// As [`store::Transaction::commit`].
pub fn commit<M: Media>(store: &Store<M>, seed: u64, stamp: Stamp, step: &Step) -> Result<(), Error> {
    let clock = stamp.encode();
    let contents: Vec<(String, Vec<u8>)> =
        step.puts.iter().map(|(&name, &len)| (title(name), content(seed, name, stamp, len))).collect();
    let mut transaction = store.transaction();
    transaction.put(CLOCK, Object::bytes(&clock));
    for (name, bytes) in &contents {
        transaction.put(name, Object::bytes(bytes));
    }
    for &name in &step.removes {
        transaction.remove(&title(name));
    }
    let checksums = if step.is_summed { Checksums::Crc32c } else { Checksums::Off };
    transaction.commit(&PersistOptions { checksums, ..PersistOptions::default() }).map(drop)
}

/// Views of everything, with what they showed at first.
#[derive(Default)]
struct Snapshot(BTreeMap<String, (ObjectView, Vec<u8>)>);

impl Snapshot {
    fn take(store: &Store) -> Result<Snapshot, String> {
        let views = store.get_every().map_err(text)?;
        let with_bytes = views.into_iter().map(|view| {
            let bytes = view.to_bytes().map_err(text)?;
            Ok((view.name().to_owned(), (view, bytes)))
        });
        Ok(Snapshot(with_bytes.collect::<Result<_, String>>()?))
    }

    fn is_unchanged(&self) -> Result<(), String> {
        for (name, (view, bytes)) in &self.0 {
            if view.to_bytes().map_err(text)? != *bytes {
                return Err(format!("what is viewed of {name:?} has changed"));
            }
        }
        Ok(())
    }
}

/// Looks again whenever it is told to, and moves on to the newest commit when that is asked for.
fn read(role: &Role) -> Result<(), String> {
    let store = Store::open(Mapped::new(), &role.path, OpenMode::Reader).map_err(text)?;
    let mut held = vec![look(&store, role)?];
    for line in std::io::stdin().lock().lines() {
        if line.map_err(|error| error.to_string())? == "refresh" {
            store.refresh().map_err(text)?;
            held.push(look(&store, role)?);
        }
        held.iter().try_for_each(Snapshot::is_unchanged)?;
        tell("same");
    }
    Ok(())
}

/// Everything that a reader sees is of one step.
fn look(store: &Store, role: &Role) -> Result<Snapshot, String> {
    let model = Model::after(role.seed, stamp_of(store)?.map_or(0, |stamp| stamp.step));
    model.compare(store)?;
    let snapshot = Snapshot::take(store)?;
    tell(&format!("holding {}", model.steps()));
    Ok(snapshot)
}
