//! `remanent pool`: makes, examines, checks, grows and removes pools.

use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use pmem::{Error, Layout, Mapped, Offset, OpenMode, PartOptions, Pool, PoolInfo, Removal, Touch};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Report, complain};
use crate::progress::Progress;
use crate::units::{self, Size};

mod check;
mod payloads;
mod show;

const GROUP_HELP: &str = "\
Examples:
  remanent pool create /mnt/pmem0/a --size 1GiB
  remanent pool ls /mnt/pmem0/a --prefix run7/
  remanent pool check /mnt/pmem0/a";

const CREATE_HELP: &str = "\
The file is allocated in full, so that no later write can meet a full disk; nothing that exists is replaced. Sizes are \
rounded up to 4 KiB. A pool belongs to the product that is named by its layout: `store` holds named objects, as the \
Python package keeps them; `raw` is for programs that use the core itself.

Examples:
  remanent pool create /mnt/pmem0/a --size 1GiB
  remanent pool create /mnt/pmem0/a --size 64GiB --stripe /mnt/pmem1/a --chunk 16MiB
  remanent pool create /dev/shm/a --size 1.5GiB --prefault
  remanent pool create /mnt/pmem0/a --size 1GiB --layout raw --layout-version 3";

const INFO_HELP: &str = "\
Reads beside a writer without disturbing it.

Examples:
  remanent pool info /mnt/pmem0/a
  remanent --json pool info /mnt/pmem0/a | jq .result.free_bytes";

const LS_HELP: &str = "\
Names come in their order, all from one generation, with the product's number for their kind, their bytes, their \
number of extents and the generation in which they were committed.

Examples:
  remanent pool ls /mnt/pmem0/a
  remanent pool ls /mnt/pmem0/a --prefix run7/";

const CHECK_HELP: &str = "\
Looks at both copies of every superblock and of the root cell, replays the log, compares all extents, reads every byte \
in use, and looks for what interrupted work has left beside the pool. In a pool of the layout `store` every object that \
has a checksum is compared with it. It never changes anything, and may run beside a writer. A finding is one of:
  note        worth knowing; nothing is wrong
  repairable  something is wrong and nothing is lost
  damage      something is lost, or the pool cannot be opened; the exit code is 3

Examples:
  remanent pool check /mnt/pmem0/a
  remanent --json pool check /mnt/pmem0/a | jq .result.findings";

const GROW_HELP: &str = "\
The pool gets a further file, of any size; readers go on meanwhile. Without --at it lies beside the first one, with .1, \
.2, ... after its name. Files that are named by a path elsewhere are found there again, so they must stay there.

Examples:
  remanent pool grow /mnt/pmem0/a --size 1GiB
  remanent pool grow /mnt/pmem0/a --size 1GiB --at /mnt/pmem1/a.more";

const RM_HELP: &str = "\
All files of the pool are removed, after a question, and no other file. A pool that a writer has open is left alone.

Examples:
  remanent pool rm /mnt/pmem0/a
  remanent pool rm /mnt/pmem0/a --yes";

const COMPACT_HELP: &str = "\
The log of names becomes one checkpoint, which makes the next open as fast as it can be, and what no reader needs any \
more is given back. Data does not move.

Examples:
  remanent pool compact /mnt/pmem0/a";

/// The commands of the group.
#[derive(Subcommand)]
#[command(after_long_help = GROUP_HELP)]
pub(crate) enum Group {
    /// Makes a pool
    #[command(after_long_help = CREATE_HELP)]
    Create(CreateArguments),
    /// Says what a pool is, how full it is and how durable
    #[command(after_long_help = INFO_HELP)]
    Info(PathArguments),
    /// Lists the names in a pool
    #[command(after_long_help = LS_HELP)]
    Ls(LsArguments),
    /// Looks for damage and changes nothing
    #[command(after_long_help = CHECK_HELP)]
    Check(PathArguments),
    /// Adds a file to a pool
    #[command(after_long_help = GROW_HELP)]
    Grow(GrowArguments),
    /// Removes all files of a pool
    #[command(after_long_help = RM_HELP)]
    Rm(RmArguments),
    /// Rewrites the log of names as one checkpoint
    #[command(after_long_help = COMPACT_HELP)]
    Compact(PathArguments),
}

/// A pool and nothing else.
#[derive(Args)]
pub(crate) struct PathArguments {
    /// The pool's first file
    path: PathBuf,
}

/// How a part is laid out.
#[derive(Args)]
struct PartArguments {
    /// Bytes of each file: 4096, 512KiB, 1.5GiB, 1GB, 1G
    #[arg(long, allow_hyphen_values = true, value_parser = Size::parse)]
    size: Size,

    /// Further files, usually on other devices, over which the data is spread chunk by chunk
    #[arg(long, value_name = "PATH", num_args = 1..)]
    stripe: Vec<PathBuf>,

    /// Bytes of a chunk, a multiple of 2 MiB
    #[arg(long, default_value = "2MiB", allow_hyphen_values = true, value_parser = Size::parse, requires = "stripe")]
    chunk: Size,

    /// Touches every page now, so that no later write pays for it
    #[arg(long)]
    prefault: bool,
}

/// What `create` is told.
#[derive(Args)]
pub(crate) struct CreateArguments {
    /// The pool's first file, which must not exist
    path: PathBuf,

    #[command(flatten)]
    part: PartArguments,

    /// The product that the pool belongs to
    #[arg(long, value_enum, default_value_t = KnownLayout::Store)]
    layout: KnownLayout,

    /// The version of a program's own format; only with `--layout raw`
    #[arg(long, value_name = "N", default_value_t = 1)]
    layout_version: u32,
}

/// The layouts that a pool can be made with. Any other name would make one that nothing opens.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KnownLayout {
    /// Named objects: what the Python package and the store open
    Store,
    /// A program that uses the core itself
    Raw,
}

impl KnownLayout {
    fn layout(self, version: u32) -> Result<Layout, Failure> {
        match self {
            KnownLayout::Raw => Ok(Layout { name: "raw", version }),
            KnownLayout::Store if version == store::LAYOUT.version => Ok(store::LAYOUT),
            KnownLayout::Store => Err(Failure::Usage(format!(
                "the layout store has version {} here; --layout-version goes with --layout raw",
                store::LAYOUT.version
            ))),
        }
    }
}

/// What `ls` is told.
#[derive(Args)]
pub(crate) struct LsArguments {
    /// The pool's first file
    path: PathBuf,

    /// Only names that begin with this
    #[arg(long, default_value = "")]
    prefix: String,
}

/// What `grow` is told.
#[derive(Args)]
pub(crate) struct GrowArguments {
    /// The pool's first file
    path: PathBuf,

    /// Where the new file goes
    #[arg(long, value_name = "PATH")]
    at: Option<PathBuf>,

    #[command(flatten)]
    part: PartArguments,
}

/// What `rm` is told.
#[derive(Args)]
pub(crate) struct RmArguments {
    /// The pool's first file
    path: PathBuf,

    /// Does not ask
    #[arg(long, short)]
    yes: bool,
}

impl Group {
    pub(crate) fn schema(&self) -> &'static str {
        match self {
            Group::Create(_) => "remanent.pool.create/1",
            Group::Info(_) => "remanent.pool.info/1",
            Group::Ls(_) => "remanent.pool.ls/1",
            Group::Check(_) => "remanent.pool.check/1",
            Group::Grow(_) => "remanent.pool.grow/1",
            Group::Rm(_) => "remanent.pool.rm/1",
            Group::Compact(_) => "remanent.pool.compact/1",
        }
    }
}

pub(crate) fn run(group: Group, progress: Progress, json: bool) -> Result<Report, Failure> {
    match group {
        Group::Create(arguments) => create(arguments, progress),
        Group::Info(arguments) => info(&arguments.path),
        Group::Ls(arguments) => ls(&arguments),
        Group::Check(arguments) => check::run(&arguments.path, progress),
        Group::Grow(arguments) => grow(&arguments, progress),
        Group::Rm(arguments) => rm(&arguments, json),
        Group::Compact(arguments) => compact(&arguments.path),
    }
}

fn open(path: &Path, mode: OpenMode) -> pmem::Result<Pool<Mapped>> {
    Pool::open(Mapped::new(), path, None, mode)
}

/// Closes a pool in order and says what it is then.
fn close(pool: Pool<Mapped>) -> pmem::Result<PoolInfo> {
    let path = pool.set().path().to_owned();
    pool.close()?;
    Ok(open(&path, OpenMode::Inspect)?.info())
}

impl PartArguments {
    fn options(&self) -> PartOptions {
        PartOptions { file_bytes: self.size.in_pages(), more_files: self.stripe.clone(), chunk_bytes: self.chunk.0 }
    }

    /// Touches every page of a part, if that was asked for.
    fn prefault(&self, pool: &Pool<Mapped>, part: usize, progress: Progress) -> pmem::Result<()> {
        if !self.prefault {
            return Ok(());
        }
        let len_bytes = pool.info().parts[part].len_bytes;
        let threads = pmem::default_copy_threads().get();
        let prefault = pool.set().prefault(Offset::new(part as u16, 0), len_bytes, Touch::Store, threads)?;
        progress.follow("touching pages".to_owned(), prefault)
    }
}

fn create(arguments: CreateArguments, progress: Progress) -> Result<Report, Failure> {
    let options = arguments.part.options();
    let layout = arguments.layout.layout(arguments.layout_version)?;
    let spinner = progress.spinner(format!("allocating {}", units::size(options.file_bytes)));
    let pool = Pool::create(Mapped::new(), &arguments.path, layout, &options);
    spinner.finish_and_clear();
    let pool = pool?;
    arguments.part.prefault(&pool, 0, progress)?;
    let info = close(pool)?;
    let backing = &info.backing;
    let text = format!(
        "created {}: {} in {}, {}, {}\n",
        arguments.path.display(),
        units::size(info.total_bytes),
        units::count(info.parts[0].files.len(), "file"),
        backing.filesystem,
        backing.durability.as_str(),
    );
    Ok(Report::confirmation(show::info_json(&arguments.path, &info), text))
}

fn info(path: &Path) -> Result<Report, Failure> {
    let info = open(path, OpenMode::Inspect)?.info();
    Ok(Report::answer(show::info_json(path, &info), show::info_text(path, &info)))
}

fn ls(arguments: &LsArguments) -> Result<Report, Failure> {
    let pool = open(&arguments.path, OpenMode::Inspect)?;
    let regions = pool.regions(&arguments.prefix)?;
    let result = json!({
        "path": units::path(&arguments.path),
        "generation": pool.generation(),
        "names": regions.iter().map(show::region_json).collect::<Vec<_>>(),
    });
    Ok(Report::answer(result, show::regions_text(&regions)))
}

fn grow(arguments: &GrowArguments, progress: Progress) -> Result<Report, Failure> {
    let options = arguments.part.options();
    let pool = open(&arguments.path, OpenMode::Writer)?;
    let before_bytes = pool.info().total_bytes;
    let spinner = progress.spinner(format!("allocating {}", units::size(options.file_bytes)));
    let grown = pool.grow(arguments.at.as_deref(), &options);
    spinner.finish_and_clear();
    grown?;
    let part = pool.info().parts.len() - 1;
    arguments.part.prefault(&pool, part, progress)?;
    let info = close(pool)?;
    let text = format!(
        "grew {} from {} to {}: {}\n",
        arguments.path.display(),
        units::size(before_bytes),
        units::size(info.total_bytes),
        show::files_text(&info.parts[part]),
    );
    Ok(Report::confirmation(show::info_json(&arguments.path, &info), text))
}

fn rm(arguments: &RmArguments, json: bool) -> Result<Report, Failure> {
    let removal = Removal::plan(Mapped::new(), &arguments.path)?;
    if !arguments.yes {
        confirm(&removal, json)?;
    }
    let spared: Vec<Value> = removal.spared().iter().map(spared_json).collect();
    let mut text: String = removal.spared().iter().map(|error| format!("left alone: {error}\n")).collect();
    let removed = removal.run()?;
    for file in &removed {
        text += &format!("removed {}\n", file.display());
    }
    let removed: Vec<String> = removed.iter().map(|file| units::path(file)).collect();
    Ok(Report::confirmation(json!({ "removed": removed, "left_alone": spared }), text))
}

fn spared_json(error: &Error) -> Value {
    json!({ "path": error.path().map(units::path), "error": error.code().name(), "message": error.to_string() })
}

/// Asks; nobody who is not at a terminal can answer.
fn confirm(removal: &Removal<Mapped>, json: bool) -> Result<(), Failure> {
    let stdin = std::io::stdin();
    if json || !stdin.is_terminal() {
        return Err(Failure::NotConfirmed("nothing was removed; say --yes to remove without a question".to_owned()));
    }
    for file in removal.files() {
        complain(&format!("{}\n", file.display()));
    }
    complain(&format!("Remove {} and all data in the pool? [y/N] ", units::count(removal.files().count(), "file")));
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::NotConfirmed("nothing was removed".to_owned()))
}

fn compact(path: &Path) -> Result<Report, Failure> {
    let pool = open(path, OpenMode::Writer)?;
    pool.compact()?;
    let info = close(pool)?;
    let text = format!("compacted {}: {} free\n", path.display(), units::size(info.free_bytes));
    Ok(Report::confirmation(show::info_json(path, &info), text))
}
