//! Threads that work at the same time, each on a CPU of its own.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Has each worker do turns until the time is over: all start together, none stops while another has a turn to begin. Worker
/// k runs on the k-th CPU, again from the first on when there are more workers. A worker's turn returns what it did.
///
/// # Errors
/// `Unavailable` when a thread cannot be had.
pub fn work_together<W>(workers: Vec<W>, for_time: Duration) -> Result<Vec<Done>>
where
    W: FnMut() -> u64 + Send,
{
    let cpus = cpus();
    let (start, is_over) = (Barrier::new(workers.len() + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let handles: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(number, mut turn)| {
                let (start, is_over, cpu) = (&start, &is_over, cpus[number % cpus.len()]);
                scope.spawn(move || {
                    let pinned = pin(cpu);
                    start.wait();
                    let began = monotonic_ns();
                    let mut done = Done::default();
                    while !is_over.load(Ordering::Relaxed) {
                        done.work += turn();
                    }
                    done.ns = monotonic_ns() - began;
                    pinned.map(|()| done)
                })
            })
            .collect();
        start.wait();
        std::thread::sleep(for_time);
        is_over.store(true, Ordering::Relaxed);
        handles.into_iter().map(|handle| handle.join().expect("a worker does not panic")).collect()
    })
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
    let cpus = cpus();
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

    #[test]
    fn workers_start_together_and_tell_what_they_did() {
        let turns = [1u64, 10];
        let workers: Vec<_> = turns.iter().map(|&work| move || work).collect();
        let done = work_together(workers, Duration::from_millis(1)).unwrap();
        assert_eq!(done.len(), 2);
        for (done, work) in done.iter().zip(turns) {
            assert!(done.work.is_multiple_of(work) && done.ns >= 1_000_000, "{done:?}");
            assert!(done.per_second() >= 0.0);
        }
        assert!(work_together(Vec::<fn() -> u64>::new(), Duration::ZERO).unwrap().is_empty());
        assert!(pin(CpuSet::MAX_CPU - 1).is_err());
    }

    #[test]
    fn work_that_is_done_once_is_returned_in_order() {
        let once = once_together((0..5).map(|number| move || number * 10).collect()).unwrap();
        assert_eq!(once.results, [0, 10, 20, 30, 40]);
        let none = once_together(Vec::<fn() -> u64>::new()).unwrap();
        assert_eq!((none.results.len(), none.ns), (0, 0));
    }
}
