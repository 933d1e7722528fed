//! Threads that work at the same time, each on a CPU of its own.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
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
/// for its CPU does not see the window open, so all have the same window, and count the turns that end in it.
///
/// # Errors
/// `Unavailable` when a CPU cannot be had.
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
    let count = workers.len();
    let window = Window {
        start: Barrier::new(count + 1),
        phase: AtomicU8::new(WARM),
        closed: AtomicUsize::new(0),
        is_shared: count > cpus.len(),
    };
    std::thread::scope(|scope| {
        let handles: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(number, turn)| {
                let (window, cpu) = (&window, cpus[number % cpus.len()]);
                scope.spawn(move || {
                    let pinned = pin(cpu);
                    let done = window.work(count, turn);
                    pinned.map(|()| done)
                })
            })
            .collect();
        window.start.wait();
        let mut changed_ns = [0; 2];
        for ((phase, time), changed_ns) in [(OPEN, for_time / 5), (CLOSED, for_time)].into_iter().zip(&mut changed_ns) {
            std::thread::sleep(time);
            window.phase.store(phase, Ordering::Relaxed);
            *changed_ns = monotonic_ns();
        }
        let common_ns = changed_ns[1] - changed_ns[0];
        let ended = |done: Done| if window.is_shared { Done { ns: common_ns, ..done } } else { done };
        let joined = handles.into_iter().map(|handle| handle.join().expect("a worker does not panic").map(ended));
        joined.collect()
    })
}

/// What is counted of what workers do.
struct Window {
    start: Barrier,
    phase: AtomicU8,
    /// Workers whose window has closed.
    closed: AtomicUsize,
    /// Whether workers share CPUs.
    is_shared: bool,
}

const WARM: u8 = 0;
const OPEN: u8 = 1;
const CLOSED: u8 = 2;

impl Window {
    fn work(&self, workers: usize, mut turn: impl FnMut() -> u64) -> Done {
        self.start.wait();
        while self.phase.load(Ordering::Relaxed) == WARM {
            turn();
        }
        let opened = monotonic_ns();
        let mut done = Done::default();
        loop {
            let work = turn();
            let is_over = self.phase.load(Ordering::Relaxed) == CLOSED;
            if !(is_over && self.is_shared) {
                done.work += work;
            }
            if is_over {
                break;
            }
        }
        done.ns = monotonic_ns() - opened;
        self.closed.fetch_add(1, Ordering::Relaxed);
        while self.closed.load(Ordering::Relaxed) < workers {
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
    let start = Barrier::new(workers.len());
    let times = std::thread::scope(|scope| {
        let handles: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(number, work)| {
                let (start, cpu) = (&start, cpus[number % cpus.len()]);
                scope.spawn(move || {
                    let pinned = pin(cpu);
                    start.wait();
                    let began = monotonic_ns();
                    let result = work();
                    let ended = monotonic_ns();
                    pinned.map(|()| (result, began, ended))
                })
            })
            .collect();
        let joined = handles.into_iter().map(|handle| handle.join().expect("a worker does not panic"));
        joined.collect::<Result<Vec<_>>>()
    })?;
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
    fn work_that_is_done_once_is_returned_in_order() {
        let once = once_together((0..5).map(|number| move || number * 10).collect()).unwrap();
        assert_eq!(once.results, [0, 10, 20, 30, 40]);
        let none = once_together(Vec::<fn() -> u64>::new()).unwrap();
        assert_eq!((none.results.len(), none.ns), (0, 0));
    }
}
