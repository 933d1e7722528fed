//! Threads that work at the same time, each on a CPU of its own.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::Builder;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::clock::monotonic_ns;
use crate::error::{Error, Result};

/// The CPUs that this process may use, in order.
pub fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let found: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    if found.is_empty() { vec![0] } else { found }
}

/// Those of a NUMA node; of node 0 all, where the system knows of no nodes.
///
/// # Errors
/// `Unavailable` when there is no such node, or the process may use none of its CPUs.
pub fn cpus_of_node(node: usize) -> Result<Vec<usize>> {
    let list = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"));
    let own = match list {
        Ok(list) => cpus().into_iter().filter(|cpu| is_listed(&list, *cpu)).collect(),
        Err(_) if node == 0 => cpus(),
        Err(_) => Vec::new(),
    };
    if own.is_empty() { Err(Error::unavailable(format!("there is no CPU of NUMA node {node}"))) } else { Ok(own) }
}

/// Whether a list such as `0-3,8` has it.
fn is_listed(list: &str, cpu: usize) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<usize>(), last.parse::<usize>()), (Ok(first), Ok(last)) if (first..=last).contains(&cpu))
    })
}

/// Keeps the calling thread on a CPU.
///
/// # Errors
/// `Unavailable` when the process may not use it.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| Error::unavailable(format!("CPU {cpu}: {error}")))
}

/// Keeps the calling thread on the first of its CPUs until the value is dropped: what one thread measures must not move from
/// cache to cache.
///
/// # Errors
/// As [`pin`].
pub fn alone() -> Result<Alone> {
    let before = sched_getaffinity(None).ok();
    pin(cpus()[0])?;
    Ok(Alone { before, watched: Some(Watched::new()) })
}

/// A thread that stays on one CPU.
#[derive(Debug)]
#[must_use]
pub struct Alone {
    before: Option<CpuSet>,
    watched: Option<Watched>,
}

/// How often threads that were to stay on their CPU came to another; nothing where the kernel does not say. Who changes what a process
/// may use, as cpuset(7) can, moves them all the same.
pub fn migrations() -> Option<u64> {
    migrations_of_thread().map(|_| MIGRATIONS.load(Ordering::Relaxed))
}

static MIGRATIONS: AtomicU64 = AtomicU64::new(0);

/// How often this thread came to another CPU, of a kernel that tells (its documentation, scheduler/sched-debug).
fn migrations_of_thread() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/sched").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("se.nr_migrations"))?;
    line.trim_start_matches([' ', ':']).trim().parse().ok()
}

/// Counts the migrations of this thread as long as it lives: that to the CPU on which it is to stay comes before, and what it does
/// when it is let go after.
#[derive(Debug)]
struct Watched {
    before: Option<u64>,
}

impl Watched {
    fn new() -> Watched {
        Watched { before: migrations_of_thread() }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let (Some(before), Some(now)) = (self.before, migrations_of_thread()) {
            MIGRATIONS.fetch_add(now - before, Ordering::Relaxed);
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        drop(self.watched.take());
        // What the thread had before it may have again.
        let _ = self.before.map(|before| sched_setaffinity(None, &before));
    }
}

/// Whether each of so many threads has a CPU to itself. Where some wait for theirs, how long a turn of theirs takes says nothing of
/// what it does.
pub fn has_cpu_each(threads: usize) -> bool {
    threads <= cpus().len()
}

/// What a thread did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// Units of work.
    pub work: u64,
    /// In so many nanoseconds.
    pub ns: u64,
}

impl Done {
    /// Units of work in a second.
    pub fn per_second(&self) -> f64 {
        self.work as f64 / self.ns.max(1) as f64 * 1e9
    }
}

/// Has each worker do turns for so long, and counts those in a window in which all of them work: it opens after a fifth of
/// the time has been spent warming up, and a worker whose window has closed goes on until all windows have. Worker k runs on
/// the k-th CPU, again from the first on when there are more workers. A worker's turn returns what it did.
///
/// A worker that has a CPU to itself counts whole turns, one at least, by its own clock. Where workers share CPUs one that waits
/// for its CPU does not see the window open, so all have the same window, and count the turns that end in it; it is long enough
/// for each to have its CPU several times, as far as that takes no more than a second. One that never had it has done nothing.
///
/// # Errors
/// `Unavailable` when a CPU or a thread cannot be had.
pub fn work_together<W>(workers: Vec<W>, for_time: Duration) -> Result<Vec<Done>>
where
    W: FnMut() -> u64 + Send,
{
    work_together_on(&cpus(), workers, for_time)
}

/// The same on these CPUs.
///
/// # Errors
/// As [`work_together`].
pub fn work_together_on<W>(cpus: &[usize], workers: Vec<W>, for_time: Duration) -> Result<Vec<Done>>
where
    W: FnMut() -> u64 + Send,
{
    let window = Window::new(workers.len() > cpus.len());
    work_in(&window, cpus, workers, for_time)
}

/// The same with one window for all, also where each worker has a CPU to itself: for workers that wait for one another, of which
/// one may have no turn for long, while the others have its share. When the window has closed none begins another turn.
///
/// # Errors
/// As [`work_together`].
pub fn work_in_one_window<W>(workers: Vec<W>, for_time: Duration) -> Result<Vec<Done>>
where
    W: FnMut() -> u64 + Send,
{
    work_in(&Window::new(true), &cpus(), workers, for_time)
}

fn work_in<W>(window: &Window, cpus: &[usize], workers: Vec<W>, for_time: Duration) -> Result<Vec<Done>>
where
    W: FnMut() -> u64 + Send,
{
    let count = workers.len();
    let for_time = window_time(count, cpus.len(), for_time);
    let workers = workers.into_iter().map(|turn| || window.work(count, turn)).collect();
    let mut changed_ns = [0; 2];
    let done = together(
        cpus,
        workers,
        |_| Builder::new(),
        || {
            for ((phase, time), changed_ns) in
                [(OPEN, for_time / 5), (CLOSED, for_time)].into_iter().zip(&mut changed_ns)
            {
                std::thread::sleep(time);
                window.phase.store(phase, Ordering::Relaxed);
                *changed_ns = monotonic_ns();
            }
        },
    )?;
    let common_ns = changed_ns[1] - changed_ns[0];
    let ended = |done: Done| if window.is_shared { Done { ns: common_ns, ..done } } else { done };
    Ok(done.into_iter().map(ended).collect())
}

/// How long the scheduler leaves a CPU to a thread that others wait for, about, and how often each is to have it.
const TURN_AT_CPU: Duration = Duration::from_millis(4);
const TURNS_AT_CPU: u32 = 4;
const MOST_SHARED: Duration = Duration::from_secs(1);

/// The window of workers that share CPUs is as long as each needs to have its turns.
pub(crate) fn window_time(workers: usize, cpus: usize, for_time: Duration) -> Duration {
    match workers.div_ceil(cpus) as u32 {
        0 | 1 => for_time,
        at_a_cpu => for_time.max((TURN_AT_CPU * TURNS_AT_CPU * at_a_cpu).min(MOST_SHARED)),
    }
}

/// Has a thread on a CPU for each worker; all start together, and `beside` is done meanwhile. What each returned.
fn together<T, W>(
    cpus: &[usize],
    workers: Vec<W>,
    builder: impl Fn(usize) -> Builder,
    beside: impl FnOnce(),
) -> Result<Vec<T>>
where
    T: Send,
    W: FnOnce() -> T + Send,
{
    let (start, count) = (Start::default(), workers.len());
    std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(count);
        for (number, work) in workers.into_iter().enumerate() {
            let (start, cpu) = (&start, cpus[number % cpus.len()]);
            let body = move || {
                let pinned = pin(cpu);
                let watched = pinned.is_ok().then(Watched::new);
                start.wait().then(|| {
                    // Also when it is elsewhere: the others wait for it.
                    let result = work();
                    drop(watched);
                    pinned.map(|()| result)
                })
            };
            match builder(number).spawn_scoped(scope, body) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    start.call_off();
                    return Err(Error::unavailable(format!("thread {} of {count}: {error}", number + 1)));
                }
            }
        }
        start.open(count);
        beside();
        let joined = handles.into_iter().map(|handle| match handle.join() {
            Ok(result) => result.expect("it has started"),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    })
}

/// Where workers wait until all are there, or until one cannot be had.
#[derive(Default)]
struct Start {
    /// How many are there, and whether they are to begin.
    state: Mutex<(usize, Option<bool>)>,
    arrived: Condvar,
    decided: Condvar,
}

impl Start {
    fn lock(&self) -> MutexGuard<'_, (usize, Option<bool>)> {
        self.state.lock().expect("nothing panics here")
    }

    /// Whether to begin.
    fn wait(&self) -> bool {
        let mut state = self.lock();
        state.0 += 1;
        self.arrived.notify_one();
        state = self.decided.wait_while(state, |(_, begins)| begins.is_none()).expect("nothing panics here");
        state.1 == Some(true)
    }

    /// When so many are there.
    fn open(&self, count: usize) {
        let mut state = self.arrived.wait_while(self.lock(), |(there, _)| *there < count).expect("nothing panics here");
        state.1 = Some(true);
        self.decided.notify_all();
    }

    fn call_off(&self) {
        self.lock().1 = Some(false);
        self.decided.notify_all();
    }
}

/// What is counted of what workers do.
struct Window {
    phase: AtomicU8,
    /// Workers whose window has closed.
    closed: AtomicUsize,
    /// Whether all have the same window.
    is_shared: bool,
}

const WARM: u8 = 0;
const OPEN: u8 = 1;
const CLOSED: u8 = 2;

/// Counts a worker whose window has closed, also when it panics: the others wait for it.
struct Leaving<'w>(&'w AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Window {
    fn new(is_shared: bool) -> Window {
        Window { phase: AtomicU8::new(WARM), closed: AtomicUsize::new(0), is_shared }
    }

    fn work(&self, workers: usize, mut turn: impl FnMut() -> u64) -> Done {
        let leaving = Leaving(&self.closed);
        let phase = || self.phase.load(Ordering::Relaxed);
        let mut done = Done::default();
        while phase() == WARM {
            let work = turn();
            // Where all have one window the turn at its end is not counted, and this one is instead.
            if self.is_shared && phase() == OPEN {
                done.work = work;
            }
        }
        let opened = monotonic_ns();
        loop {
            let work = turn();
            let is_over = phase() == CLOSED;
            if !(is_over && self.is_shared) {
                done.work += work;
            }
            if is_over {
                break;
            }
        }
        done.ns = monotonic_ns() - opened;
        drop(leaving);
        // A window that all have in common has closed for all.
        while !self.is_shared && self.closed.load(Ordering::Relaxed) < workers {
            turn();
        }
        done
    }
}

/// What workers did that each worked once.
#[derive(Clone, Debug, PartialEq)]
pub struct Once<T> {
    /// What each returned.
    pub results: Vec<T>,
    /// From when the first began to when the last was done, in nanoseconds.
    pub ns: u64,
}

/// Has each worker work once: all start together. Worker k runs on the k-th CPU, as in [`work_together`].
///
/// # Errors
/// `Unavailable` when a thread cannot be had.
pub fn once_together<T, W>(workers: Vec<W>) -> Result<Once<T>>
where
    T: Send,
    W: FnOnce() -> T + Send,
{
    once_together_on(&cpus(), workers)
}

/// The same on these CPUs.
///
/// # Errors
/// As [`once_together`].
pub fn once_together_on<T, W>(cpus: &[usize], workers: Vec<W>) -> Result<Once<T>>
where
    T: Send,
    W: FnOnce() -> T + Send,
{
    let timed = |work: W| {
        move || {
            let began = monotonic_ns();
            let result = work();
            (result, began, monotonic_ns())
        }
    };
    let times = together(cpus, workers.into_iter().map(timed).collect(), |_| Builder::new(), || {})?;
    let began = times.iter().map(|(_, began, _)| *began).min().unwrap_or(0);
    let ended = times.iter().map(|(_, _, ended)| *ended).max().unwrap_or(0);
    Ok(Once { results: times.into_iter().map(|(result, ..)| result).collect(), ns: ended - began })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What several workers do on one CPU is no more than what it can do.
    #[test]
    fn workers_that_share_cpus_do_not_count_the_same_time_twice() {
        let one = cpus()[..1].to_vec();
        let spin = || {
            let start = monotonic_ns();
            while monotonic_ns() - start < 20_000 {}
            20
        };
        let done = work_together_on(&one, vec![spin; 8], Duration::from_millis(40)).unwrap();
        assert!(done.iter().all(|each| each.ns == done[0].ns), "{done:?}");
        // A turn that its worker was taken off its CPU in still lasts 20 us of the clock; no more of them fit into the window.
        let microseconds: u64 = done.iter().map(|done| done.work).sum();
        assert!(microseconds * 1000 <= done[0].ns * 2, "{done:?}");
    }

    #[test]
    fn workers_start_together_and_tell_what_they_did() {
        let turns = [1u64, 10];
        let workers: Vec<_> = turns.iter().map(|&work| move || work).collect();
        let done = work_together(workers, Duration::from_millis(1)).unwrap();
        assert_eq!(done.len(), 2);
        for (done, work) in done.iter().zip(turns) {
            assert!(done.work > 0 && done.work.is_multiple_of(work) && done.ns > 0, "{done:?}");
            assert!(done.per_second() > 0.0);
        }
        assert!(work_together(Vec::<fn() -> u64>::new(), Duration::ZERO).unwrap().is_empty());
        assert!(pin(CpuSet::MAX_CPU - 1).is_err());
        assert!(is_listed("0-3,8\n", 8) && is_listed("0-3,8", 2) && !is_listed("0-3,8", 4) && !is_listed("", 0));
        assert!(!cpus_of_node(0).unwrap().is_empty() && cpus_of_node(1000).is_err());
    }

    #[test]
    fn a_thread_that_cannot_be_had_calls_the_others_off() {
        // No machine has a stack of so many bytes for the third one.
        let builder = |number| if number == 2 { Builder::new().stack_size(1 << 60) } else { Builder::new() };
        let workers: Vec<_> = (0..4).map(|_| || panic!("nobody is to begin")).collect();
        let failed = together::<(), _>(&cpus(), workers, builder, || panic!("nobody is to begin"));
        assert!(failed.unwrap_err().to_string().contains("thread 3 of 4"));
    }

    #[test]
    fn a_worker_that_panics_leaves_nobody_waiting() {
        let turn = |number: usize| move || if number == 0 { panic!("on purpose") } else { 1 };
        let workers: Vec<_> = (0..3).map(turn).collect();
        let panicked = std::panic::catch_unwind(|| work_together(workers, Duration::from_millis(1)));
        assert!(panicked.is_err());
    }

    #[test]
    fn workers_that_share_cpus_have_a_window_of_several_turns_each() {
        let time = Duration::from_millis(20);
        assert_eq!(window_time(2, 2, time), time);
        assert_eq!(window_time(0, 2, time), time);
        assert_eq!(window_time(16, 2, time), Duration::from_millis(8 * 4 * 4));
        assert_eq!(window_time(1024, 2, time), MOST_SHARED);
        assert_eq!(window_time(4, 2, Duration::from_secs(5)), Duration::from_secs(5));
    }

    /// The turn in which the window opens is counted, that in which it closes is not.
    #[test]
    fn turns_that_end_in_a_shared_window_are_counted() {
        let window = Window::new(true);
        let mut turns = 0;
        // Nor does it go on for others, whose window has closed too.
        let done = window.work(2, || {
            turns += 1;
            assert!(turns < 100, "it goes on");
            match turns {
                3 => window.phase.store(OPEN, Ordering::Relaxed),
                7 => window.phase.store(CLOSED, Ordering::Relaxed),
                _ => {}
            }
            1
        });
        assert_eq!((done.work, turns), (4, 7));
    }

    #[test]
    fn workers_in_one_window_are_counted_over_the_same_time() {
        let done = work_in_one_window(vec![|| 1; 2], Duration::from_millis(2)).unwrap();
        assert!(done[0].ns == done[1].ns && done[0].ns >= 2_000_000, "{done:?}");
    }

    #[test]
    fn a_thread_is_alone_until_it_is_dropped() {
        let before = cpus();
        let alone = alone().unwrap();
        assert_eq!(cpus(), before[..1]);
        assert!(has_cpu_each(1) && !has_cpu_each(2));
        drop(alone);
        assert_eq!(cpus(), before);
    }

    #[test]
    fn only_migrations_of_threads_that_are_to_stay_are_counted() {
        let (Some(before), [first, .., last]) = (migrations(), &cpus()[..]) else {
            println!("not run: the kernel tells no migrations, or there is one CPU");
            return;
        };
        let all = sched_getaffinity(None).unwrap();
        // It comes from another CPU, to which it may go back.
        pin(*last).unwrap();
        sched_setaffinity(None, &all).unwrap();
        let moved = alone().unwrap();
        assert_eq!(cpus(), [*first]);
        drop(moved);
        assert_eq!(migrations(), Some(before), "those of the program itself are none");
        let moved = alone().unwrap();
        // No other test moves a thread that is to stay.
        pin(*last).unwrap();
        drop(moved);
        assert_eq!(migrations(), Some(before + 1));
    }

    #[test]
    fn work_that_is_done_once_is_returned_in_order() {
        let once = once_together((0..5).map(|number| move || number * 10).collect()).unwrap();
        assert_eq!(once.results, [0, 10, 20, 30, 40]);
        let none = once_together(Vec::<fn() -> u64>::new()).unwrap();
        assert_eq!((none.results.len(), none.ns), (0, 0));
    }
}
