//! Pools across fork(2): what a child may do, and which locks it holds.
//!
//! One test, because a child inherits every file that is open in the process.
#![allow(unsafe_code)] // fork(2) has no safe form

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::path::{Path, PathBuf};

use remanent_pmem::{
    Error, ErrorCode, Layout, MIN_FILE_BYTES, Mapped, OpenMode, PartOptions, Pool, RedoBatch, Region, RegionSpec,
};
use tempfile::TempDir;

const LAYOUT: Layout = Layout { name: "fork", version: 1 };
const LEN_BYTES: usize = 1 << 20;

fn open(path: &Path) -> Result<Pool<Mapped>, Error> {
    Pool::open(Mapped::new(), path, Some(LAYOUT), OpenMode::Writer)
}

fn is_busy(path: &Path) -> bool {
    open(path).is_err_and(|error| error.code() == ErrorCode::PoolBusy)
}

fn put(pool: &Pool<Mapped>, byte: u8) {
    let reservation = pool.reserve(LEN_BYTES as u64).expect("there is room");
    let at = reservation.extent().offset;
    pool.set().store_bytes(at, &vec![byte; LEN_BYTES]);
    pool.set().persist(at, LEN_BYTES as u64).expect("no fault is injected");
    let mut batch = RedoBatch::new();
    batch.put("a", RegionSpec { kind: 1, add: vec![reservation], ..RegionSpec::default() });
    pool.commit(batch).expect("there is room");
}

fn content(region: &Region<Mapped>) -> Vec<u8> {
    let mut bytes = vec![0; LEN_BYTES];
    region.load_bytes(0, 0, &mut bytes);
    bytes
}

/// A folder with a pool whose name `a` is full of ones.
fn new_pool() -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a temporary folder");
    let path = dir.path().join("pool");
    let options = PartOptions::single(2 * MIN_FILE_BYTES);
    let pool = Pool::create(Mapped::new(), &path, LAYOUT, &options).expect("a new pool");
    put(&pool, 1);
    pool.close().expect("it can be marked clean");
    (dir, path)
}

/// Runs something in a child, which ends with it.
fn fork(run: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: no other thread of this process works meanwhile but the test harness's, which waits; and the child ends
    // by _exit(2).
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let good = run();
        // SAFETY: ends the child without running anything else.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    child
}

fn wait(child: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: waits for a process that this one has made, or adopted.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

/// Two pipes between this process and a child. Each side closes the ends that are not its own, so that neither waits
/// for one that is gone.
struct Channel {
    /// The child's number, when it is ready.
    said: (Option<PipeReader>, Option<PipeWriter>),
    /// A byte, when it may go on.
    go: (Option<PipeReader>, Option<PipeWriter>),
}

impl Channel {
    fn new() -> Channel {
        let (said, go) = (pipe().expect("a pipe"), pipe().expect("a pipe"));
        Channel { said: (Some(said.0), Some(said.1)), go: (Some(go.0), Some(go.1)) }
    }

    /// In the child: says that it is ready, and waits.
    fn ready(&mut self) {
        (self.said.0, self.go.1) = (None, None);
        let id = std::process::id().to_le_bytes();
        self.said.1.as_mut().expect("the child's end").write_all(&id).expect("this process listens");
        self.go.0.as_mut().expect("the child's end").read_exact(&mut [0]).expect("this process goes on");
    }

    /// Waits until the child is ready; its number.
    fn child(&mut self) -> libc::pid_t {
        (self.said.1, self.go.0) = (None, None);
        let mut id = [0; 4];
        self.said.0.as_mut().expect("this side's end").read_exact(&mut id).expect("the child is there");
        u32::from_le_bytes(id) as libc::pid_t
    }

    fn go_on(&mut self) {
        self.go.1.as_mut().expect("this side's end").write_all(&[1]).expect("the child is there");
    }
}

/// What a child does with the locks that it has inherited.
#[derive(Clone, Copy, PartialEq)]
enum Child {
    Settles,
    DoesNothing,
}

/// Looks at its view, says that it is ready, waits, and looks again.
fn live(pool: &Pool<Mapped>, view: &Region<Mapped>, child: Child, channel: &mut Channel) -> bool {
    let settled = child == Child::Settles && pool.settle_in_child().is_ok_and(|own| own);
    let before = content(view);
    let refused = pool.region("a").is_err_and(|error| error.code() == ErrorCode::UsedAfterFork);
    channel.ready();
    settled == (child == Child::Settles) && refused && before == vec![1; LEN_BYTES] && content(view) == before
}

/// A writer that ends without closing its pool, as by `kill -9`, while its child goes on.
fn orphan(path: &Path, child: Child, channel: &mut Channel) -> libc::pid_t {
    fork(|| {
        let pool = open(path).expect("nobody else writes");
        let view = pool.region("a").expect("a name of the pool");
        fork(|| live(&pool, &view, child, channel));
        std::mem::forget((pool, view));
        true
    })
}

/// A child that outlives its killed parent.
fn a_child_outlives_its_parent(child: Child) {
    let (_dir, path) = new_pool();
    let mut channel = Channel::new();
    assert!(wait(orphan(&path, child, &mut channel)));
    let id = channel.child();
    if child == Child::DoesNothing {
        assert!(is_busy(&path), "the inherited lock keeps the next writer out");
        channel.go_on();
        assert!(wait(id));
        open(&path).expect("the lock fell with its last holder");
        return;
    }
    let pool = open(&path).expect("the lock fell with the parent");
    put(&pool, 2);
    put(&pool, 3);
    assert_eq!(pool.info().retired_bytes, 2 * LEN_BYTES as u64, "what the child sees is kept, and what came after");
    channel.go_on();
    assert!(wait(id), "the child's view stays as it was");
    assert_eq!(pool.reclaim().expect("no fault is injected"), 2 * LEN_BYTES as u64);
}

/// The parent goes on; its child's exchange takes nothing away from it.
fn the_parent_keeps_its_lock(child: Child) {
    let (_dir, path) = new_pool();
    let mut channel = Channel::new();
    let pool = open(&path).expect("nobody else writes");
    assert!(!pool.settle_in_child().expect("nothing is done here"), "this process opened the pool");
    let view = pool.region("a").expect("a name of the pool");
    let id = fork(|| live(&pool, &view, child, &mut channel));
    assert_eq!(channel.child(), id);
    assert!(is_busy(&path), "a copy of the descriptor was closed, the lock is the parent's");
    drop(view);
    if child == Child::Settles {
        put(&pool, 2);
        assert_eq!(pool.reclaim().expect("no fault is injected"), 0, "the child still looks at it");
    }
    channel.go_on();
    assert!(wait(id), "the child's view stays as it was");
    assert_eq!(pool.reclaim().expect("no fault is injected") > 0, child == Child::Settles);
    pool.close().expect("it can be marked clean");
    open(&path).expect("the lock is free");
}

/// Closing in order gives the lock back, whoever else has a descriptor.
fn a_closed_pool_is_free_while_a_child_lives() {
    let (_dir, path) = new_pool();
    let mut channel = Channel::new();
    let pool = open(&path).expect("nobody else writes");
    let view = pool.region("a").expect("a name of the pool");
    let id = fork(|| live(&pool, &view, Child::DoesNothing, &mut channel));
    channel.child();
    drop(view);
    pool.close().expect("it can be marked clean");
    open(&path).expect("the lock was given back");
    channel.go_on();
    assert!(wait(id));
}

#[test]
fn locks_across_a_fork() {
    // SAFETY: orphans are adopted by this process, so that it can wait for them.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    a_child_outlives_its_parent(Child::DoesNothing);
    a_child_outlives_its_parent(Child::Settles);
    the_parent_keeps_its_lock(Child::DoesNothing);
    the_parent_keeps_its_lock(Child::Settles);
    a_closed_pool_is_free_while_a_child_lives();
}
