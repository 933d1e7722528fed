//! What machine it is, and what else it does: without that no figure means anything.

use std::fs;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::crew;
use crate::error::{Error, Result};
use crate::prefetchers;

/// A machine, as far as its figures depend on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// As the CPU calls itself.
    pub cpu: String,
    /// CPUs that the process may use.
    pub cpus: usize,
    /// NUMA nodes.
    pub nodes: usize,
    /// Instructions of the CPU that plans may name.
    pub instructions: Vec<String>,
    /// Caches of the first CPU, such as `L1d 48K`.
    pub caches: Vec<String>,
    /// Bytes of main memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Whether the CPU says that it is a virtual machine's.
    pub is_virtual: bool,
    /// What sets the CPU's frequency; nothing where the system does not say.
    pub governor: Option<String>,
    /// Whether transparent huge pages are in use.
    pub huge_pages: Option<String>,
    /// Whether the CPU's prefetchers work: `on`, `off`, `mixed` or `unknown`.
    pub prefetchers: String,
    /// Ticks of the counter in a nanosecond.
    pub ticks_per_ns: f64,
    /// The smallest step of the counter, in ticks.
    pub step_ticks: u64,
    /// Two readings of it with nothing between them, in ticks.
    pub pair_ticks: u64,
}

const INSTRUCTIONS: [&str; 11] = [
    "avx",
    "avx512f",
    "clflush",
    "clflushopt",
    "clwb",
    "movdiri",
    "movdir64b",
    "constant_tsc",
    "nonstop_tsc",
    "dcpop",
    "dcpodp",
];

impl Machine {
    /// This one.
    pub fn this() -> Machine {
        let clock = Clock::get();
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let flags = field("flags").or(field("Features")).unwrap_or_default();
        let flags: Vec<&str> = flags.split_ascii_whitespace().collect();
        let word = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        Machine {
            cpu: field("model name").or(field("CPU part")).unwrap_or_else(|| "unknown".into()),
            cpus: crew::cpus().len(),
            nodes: nodes(),
            instructions: INSTRUCTIONS.into_iter().filter(|name| flags.contains(name)).map(str::to_owned).collect(),
            caches: caches(),
            memory_bytes: memory_bytes(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            is_virtual: flags.contains(&"hypervisor"),
            governor: word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            huge_pages: word("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|text| chosen(&text)),
            prefetchers: prefetchers::state().into(),
            ticks_per_ns: clock.ticks_per_ns,
            step_ticks: clock.step_ticks,
            pair_ticks: clock.pair_ticks,
        }
    }

    /// Refuses a machine whose counter does not go at one speed.
    ///
    /// # Errors
    /// `Unavailable`, with the reason.
    pub fn check_clock(&self) -> Result<()> {
        let has = |name: &str| self.instructions.iter().any(|known| known == name);
        if cfg!(target_arch = "x86_64") && !(has("constant_tsc") && has("nonstop_tsc")) {
            let what = "the CPU's time-stamp counter does not go at one speed in all its states (no constant_tsc and nonstop_tsc in /proc/cpuinfo), so its ticks are no time";
            return Err(Error::unavailable(what.into()));
        }
        Ok(())
    }
}

/// The word in brackets, as in `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

fn nodes() -> usize {
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
    let entries = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count().max(1)
}

/// One cache as a CPU sees it.
#[derive(Clone, Debug, PartialEq)]
struct Cache {
    level: u32,
    /// `d` of data, `i` of instructions, or nothing.
    kind: &'static str,
    size_bytes: u64,
    /// The CPUs that share it, as the kernel lists them.
    shared_by: String,
}

impl Cache {
    fn of(cpu: usize) -> Vec<Cache> {
        let read = |index: usize, name: &str| {
            fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{name}"))
                .ok()
                .map(|text| text.trim().to_owned())
        };
        let cache = |index| {
            let kind = match read(index, "type")?.as_str() {
                "Data" => "d",
                "Instruction" => "i",
                _ => "",
            };
            let (level, size_bytes) = (read(index, "level")?.parse().ok()?, bytes_of(&read(index, "size")?)?);
            Some(Cache { level, kind, size_bytes, shared_by: read(index, "shared_cpu_list").unwrap_or_default() })
        };
        (0..8).map_while(cache).collect()
    }

    fn is_of_data(&self) -> bool {
        self.kind != "i"
    }
}

fn caches() -> Vec<String> {
    let cpu = crew::cpus().first().copied().unwrap_or(0);
    Cache::of(cpu).iter().map(|cache| format!("L{}{} {}K", cache.level, cache.kind, cache.size_bytes >> 10)).collect()
}

/// What a cache has at most where the system does not say, as in a container without /sys.
const UNTOLD_CACHE_BYTES: u64 = 128 << 20;

/// Bytes of the largest cache that a CPU has, by itself or with others.
pub(crate) fn cache_bytes() -> u64 {
    static FOUND: OnceLock<u64> = OnceLock::new();
    *FOUND.get_or_init(|| largest(&crew::cpus().into_iter().map(Cache::of).collect::<Vec<_>>()))
}

fn largest(cpus: &[Vec<Cache>]) -> u64 {
    let of_data = cpus.iter().flatten().filter(|cache| cache.is_of_data());
    of_data.map(|cache| cache.size_bytes).max().unwrap_or(UNTOLD_CACHE_BYTES)
}

/// Bytes of all last-level caches of these CPUs together: threads that work on all of them have all.
fn last_level(cpus: &[Vec<Cache>]) -> u64 {
    let last =
        |caches: &Vec<Cache>| caches.iter().filter(|cache| cache.is_of_data()).max_by_key(|cache| cache.level).cloned();
    let mut seen: Vec<Cache> = Vec::new();
    for cache in cpus.iter().filter_map(last) {
        if !seen.contains(&cache) {
            seen.push(cache);
        }
    }
    seen.iter().map(|cache| cache.size_bytes).sum()
}

/// The unit `llc` of plans: bytes of the last-level caches of the CPUs that the process may use, so that a multiple of them does
/// not fit into them. At least 128 MiB, for they may be larger than they are said to be, and at most a thirty-second of main memory,
/// for a plan takes several times as much.
pub fn last_cache_bytes() -> u64 {
    static FOUND: OnceLock<u64> = OnceLock::new();
    *FOUND.get_or_init(|| {
        cache_unit(last_level(&crew::cpus().into_iter().map(Cache::of).collect::<Vec<_>>()), memory_bytes())
    })
}

fn cache_unit(cache_bytes: u64, memory_bytes: u64) -> u64 {
    cache_bytes.min(memory_bytes / 32).max(UNTOLD_CACHE_BYTES).next_multiple_of(2 << 20)
}

/// The size of a cache, as in `2048K`.
fn bytes_of(size: &str) -> Option<u64> {
    let (digits, shift) = match size.strip_suffix('M') {
        Some(digits) => (digits, 20),
        None => (size.strip_suffix('K')?, 10),
    };
    Some(digits.parse::<u64>().ok()? << shift)
}

fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// What took CPU time away, since the machine or the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Milliseconds of all CPUs that the hypervisor gave to others.
    pub steal_ms: u64,
    /// How often a thread of this process had to give its CPU to another.
    pub switches: u64,
    /// How often one gave it up itself, to wait.
    #[serde(default)]
    pub waits: u64,
    /// How often threads that were to stay on their CPU came to another; nothing where the kernel does not say.
    #[serde(default)]
    pub migrations: Option<u64>,
}

impl Disturbance {
    /// Up to now.
    pub fn so_far() -> Disturbance {
        // The eighth number of the line, in hundredths of a second (proc_stat(5)).
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let steal = text.lines().next().and_then(|line| line.split_ascii_whitespace().nth(8)?.parse::<u64>().ok());
        let (switches, waits) = context_switches();
        Disturbance { steal_ms: 10 * steal.unwrap_or(0), switches, waits, migrations: crew::migrations() }
    }

    /// What came since an earlier reading.
    pub fn since(&self, earlier: &Disturbance) -> Disturbance {
        Disturbance {
            steal_ms: self.steal_ms.saturating_sub(earlier.steal_ms),
            switches: self.switches.saturating_sub(earlier.switches),
            waits: self.waits.saturating_sub(earlier.waits),
            migrations: self.migrations.zip(earlier.migrations).map(|(now, before)| now.saturating_sub(before)),
        }
    }

    /// This and what came at another time.
    pub fn and(&self, other: &Disturbance) -> Disturbance {
        Disturbance {
            steal_ms: self.steal_ms + other.steal_ms,
            switches: self.switches + other.switches,
            waits: self.waits + other.waits,
            migrations: self.migrations.zip(other.migrations).map(|(one, another)| one + another),
        }
    }
}

/// Involuntary and voluntary context switches of the process (getrusage(2)).
fn context_switches() -> (u64, u64) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes a structure of its own, and zeros are one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    (usage.ru_nivcsw as u64, usage.ru_nvcsw as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_told() {
        let machine = Machine::this();
        assert!(machine.cpus > 0 && machine.nodes > 0 && machine.memory_bytes > 1 << 20 && !machine.kernel.is_empty());
        let without = Machine { instructions: Vec::new(), ..machine };
        assert_eq!(without.check_clock().is_err(), cfg!(target_arch = "x86_64"));
        assert_eq!(chosen("always [madvise] never"), Some("madvise".into()));
        assert_eq!(chosen("always"), None);
    }

    #[test]
    fn the_unit_of_caches_is_neither_small_nor_most_of_the_memory() {
        assert_eq!((bytes_of("491520K"), bytes_of("2M"), bytes_of("2")), (Some(480 << 20), Some(2 << 20), None));
        assert_eq!(cache_unit(480 << 20, 24 << 30), 480 << 20);
        assert_eq!(cache_unit(45 << 20, 1 << 40), 128 << 20);
        assert_eq!(cache_unit(1 << 30, 8 << 30), 256 << 20);
        assert_eq!(cache_unit(0, 0), 128 << 20);
        assert!(last_cache_bytes() >= 128 << 20);
    }

    #[test]
    fn caches_that_cpus_share_are_counted_once() {
        let cache =
            |level, kind, size_bytes, shared_by: &str| Cache { level, kind, size_bytes, shared_by: shared_by.into() };
        let cpu = |l2: &str, l3: &str| {
            vec![cache(1, "i", 1 << 30, l2), cache(2, "", 1 << 20, l2), cache(3, "", 32 << 20, l3)]
        };
        let cpus = [cpu("0", "0-1"), cpu("1", "0-1"), cpu("2", "2-3")];
        assert_eq!((last_level(&cpus), largest(&cpus)), (64 << 20, 32 << 20));
        assert_eq!((last_level(&[]), largest(&[Vec::new()])), (0, UNTOLD_CACHE_BYTES), "nobody says");
    }

    #[test]
    fn disturbances_only_grow() {
        let before = Disturbance::so_far();
        let after = Disturbance::so_far();
        assert_eq!(after.since(&before).steal_ms, after.steal_ms - before.steal_ms);
        let some = Disturbance { steal_ms: 3, switches: 4, waits: 5, migrations: Some(6) };
        assert_eq!(some.and(&some).since(&some), some);
        assert_eq!(some.and(&Disturbance::default()).migrations, None, "what is unknown stays so");
        assert_eq!(some.since(&some.and(&some)), Disturbance { migrations: Some(0), ..Disturbance::default() });
    }
}
