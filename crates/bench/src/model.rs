//! Cells on a device that is not here: what its profile says, in virtual time.
//!
//! The same threads do the same accesses in the same order; what each has to wait for is computed from the core's model of a device
//! ([`pmem::DeviceClock`]): latency of a write-back or of a store past the cache, bandwidth, which loads and stores share,
//! combining in granules, a queue of writes, which is full in the beginning. The CPU itself takes no time. The same seed gives the
//! same figures on every machine, and every one is [`report::Provenance::Modelled`].
//!
//! Durable joins are no part of this: they run in real time, by one thread that builds, and wait at each write-back and fence as
//! long as the device would have them ([`pmem::Modelled`]). Their figures depend on the machine too, and are marked alike.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use pmem::{DeviceClock, DeviceProfile};
use report::Interval;
use serde::{Deserialize, Serialize};

use crate::code::{Access, Fence};
use crate::crew::Done;
use crate::error::{Error, Result};
use crate::pattern::{Pattern, Walk};
use crate::stream::Kind;

/// How long devices are simulated, and how many steps of each thread, at least: a large block lasts longer than small ones of
/// which there are thousands meanwhile.
const HORIZON_NS: f64 = 2_000_000.0;
const LEAST_STEPS: usize = 16;
/// Steps of all threads after which it ends all the same, as soon as each has one that counts: as many as a device of 130 GB/s is
/// asked for lines meanwhile. A profile may say that something takes no time, and a block may last as long as millions of others.
const MOST_STEPS: usize = 1 << 22;

/// A profile as a file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileFile {
    /// `remanent-device-1`.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Latency of a load from random places, in nanoseconds.
    pub random_read_ns: Option<f64>,
    /// From a store of 64 bytes to the end of the fence after its write-back.
    pub flush_persist_ns: Option<f64>,
    /// The same for 64 bytes past the cache.
    pub nt_persist_ns: Option<f64>,
    /// 10^9 bytes a second, when all threads load.
    pub read_gb_s: Option<f64>,
    /// 10^9 bytes a second, when all threads store past the cache.
    pub write_gb_s: Option<f64>,
    /// Bytes that it writes at once; where that is not known the model takes a line, the least that a CPU writes.
    pub granule_bytes: Option<u64>,
    /// Bytes that it takes before a writer has to wait; where that is not known the model takes none.
    pub write_queue_bytes: Option<u64>,
    /// Who measured it, and how.
    pub source: String,
    /// The 95 % interval of a figure, where it is known.
    #[serde(default)]
    pub intervals: BTreeMap<String, Interval>,
}

const LINE_BYTES: u64 = 64;
/// What a device takes before a writer has to wait is a buffer, and no second medium.
const MOST_QUEUE_BYTES: u64 = 64 << 20;

/// The form of a profile's file.
pub const SCHEMA: &str = "remanent-device-1";

/// The profile of a name, or in a file.
///
/// # Errors
/// What was expected.
pub fn profile(name: &str) -> std::result::Result<&'static DeviceProfile, String> {
    if let Some(profile) = DeviceProfile::named(name) {
        return Ok(profile);
    }
    let names: Vec<&str> = pmem::PROFILES.iter().map(|profile| profile.name).collect();
    if !name.contains(['/', '.']) {
        return Err(format!("'{name}' is no file and none of: {}", names.join(", ")));
    }
    // Profiles of files are read once and live as long as the process, as those that are shipped.
    static READ: OnceLock<Mutex<Vec<(String, &'static DeviceProfile)>>> = OnceLock::new();
    let mut read = READ.get_or_init(Mutex::default).lock().expect("nothing panics here");
    if let Some((_, profile)) = read.iter().find(|(known, _)| known == name) {
        return Ok(profile);
    }
    let text = std::fs::read_to_string(Path::new(name)).map_err(|error| format!("{name}: {error}"))?;
    let file: ProfileFile = serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))?;
    let profile: &'static DeviceProfile = Box::leak(Box::new(file.check().map_err(|what| format!("{name}: {what}"))?));
    read.push((name.to_owned(), profile));
    Ok(profile)
}

impl ProfileFile {
    fn check(self) -> std::result::Result<DeviceProfile, String> {
        let figures = [self.random_read_ns, self.flush_persist_ns, self.nt_persist_ns, self.read_gb_s, self.write_gb_s];
        if self.schema != SCHEMA {
            return Err(format!("expected a profile of the form {SCHEMA}, found '{}'", self.schema));
        }
        if figures.iter().flatten().any(|figure| !figure.is_finite() || *figure <= 0.0) {
            return Err("a figure is not above 0".into());
        }
        let granule_bytes = self.granule_bytes.unwrap_or(LINE_BYTES);
        let write_queue_bytes = self.write_queue_bytes.unwrap_or(0);
        if !granule_bytes.is_power_of_two() || granule_bytes > 1 << 20 {
            return Err(format!("a granule of {granule_bytes} bytes is no power of two up to 1 MiB"));
        }
        if write_queue_bytes > MOST_QUEUE_BYTES {
            return Err(format!("a queue of {write_queue_bytes} bytes is longer than 64 MiB"));
        }
        let assumed = [
            self.granule_bytes.is_none().then_some("; its granule is not known, and taken for a line"),
            self.write_queue_bytes.is_none().then_some("; its buffers are not known, and left out"),
        ];
        let source = assumed.into_iter().flatten().fold(self.source, |source, text| source + text);
        Ok(DeviceProfile {
            name: self.name.leak(),
            random_read_ns: self.random_read_ns,
            flush_persist_ns: self.flush_persist_ns,
            nt_persist_ns: self.nt_persist_ns,
            longer: &[],
            read_gb_s: self.read_gb_s,
            write_gb_s: self.write_gb_s,
            granule_bytes,
            write_queue_bytes,
            source: source.leak(),
        })
    }
}

/// One access to a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Touch {
    access: Access,
    fence: Fence,
    len_bytes: u64,
    /// Whether a load waits for its own latency, as one that nobody has foreseen.
    is_random: bool,
    random_read_ns: f64,
}

impl Touch {
    /// # Errors
    /// `Unavailable` when the device's profile cannot say how long that takes.
    pub(crate) fn new(
        device: &DeviceProfile,
        access: Access,
        fence: Fence,
        len_bytes: usize,
        is_random: bool,
    ) -> Result<Touch> {
        let missing = |what: &str| Err(Error::unavailable(format!("the profile {} has no {what}", device.name)));
        let persist_ns = match access {
            Access::Clflush | Access::Clflushopt | Access::Clwb => device.flush_persist_ns,
            Access::CleanPoC | Access::CleanPoP | Access::CleanPoDP => device.flush_persist_ns,
            _ => device.nt_persist_ns,
        };
        match access {
            Access::Load if is_random && device.random_read_ns.is_none() => return missing("latency of loads"),
            Access::Load if !is_random && device.read_gb_s.is_none() => return missing("bandwidth of loads"),
            Access::Load => {}
            Access::Store | Access::Movsq => {
                let what = format!("'{}' stays in the cache, of which a device's profile says nothing", access.name());
                return Err(Error::unavailable(what));
            }
            _ if fence == Fence::None && device.write_gb_s.is_none() => return missing("bandwidth of stores"),
            _ if fence != Fence::None && persist_ns.is_none() => {
                return missing("latency of what makes a line durable");
            }
            _ => {}
        }
        let random_read_ns = device.random_read_ns.unwrap_or(0.0);
        Ok(Touch { access, fence, len_bytes: len_bytes as u64, is_random, random_read_ns })
    }

    /// The same of so many bytes.
    pub(crate) fn of_bytes(&self, len_bytes: usize) -> Touch {
        Touch { len_bytes: len_bytes as u64, ..*self }
    }

    /// When an access to the first device ends that begins now.
    pub(crate) fn run(&self, devices: &mut [DeviceClock], now_ns: f64, offset_bytes: u64) -> f64 {
        self.run_on(&mut devices[0], now_ns, offset_bytes)
    }

    /// The same of a certain device.
    pub(crate) fn run_on(&self, clock: &mut DeviceClock, now_ns: f64, offset_bytes: u64) -> f64 {
        if self.access == Access::Load {
            let there_ns = clock.read(now_ns, offset_bytes, self.len_bytes);
            return if self.is_random { there_ns.max(now_ns + self.random_read_ns) } else { there_ns };
        }
        let is_past_the_cache = matches!(self.access, Access::NonTemporal | Access::Movnti | Access::Movdir64b);
        let written = clock.write(now_ns, offset_bytes, self.len_bytes, is_past_the_cache);
        if self.fence == Fence::None { written.stalled_ns } else { written.stalled_ns.max(written.persisted_ns) }
    }
}

/// What a thread of a simulation does: from a time to the time at which it goes on, and the work that it has done.
pub(crate) type Program<'p> = Box<dyn FnMut(&mut [DeviceClock], f64) -> (f64, u64) + 'p>;

/// Runs threads at one device; what each did.
pub(crate) fn simulate(device: &'static DeviceProfile, threads: Vec<Program<'_>>) -> Vec<Done> {
    simulate_on(vec![DeviceClock::busy(device)], threads)
}

/// The same at several devices.
pub(crate) fn simulate_on(mut devices: Vec<DeviceClock>, mut threads: Vec<Program<'_>>) -> Vec<Done> {
    let mut now_ns = vec![0.0f64; threads.len()];
    let mut began_ns = now_ns.clone();
    let mut done = vec![Done::default(); threads.len()];
    let mut steps = vec![0; threads.len()];
    while let Some(next) = next_thread(&now_ns, &steps) {
        let (end_ns, work) = threads[next](&mut devices, now_ns[next]);
        // Whatever a profile says, time goes on.
        now_ns[next] = end_ns.max(now_ns[next] + 0.01);
        // The first step waits for fewer others than those that follow.
        match steps[next] {
            0 => began_ns[next] = now_ns[next],
            _ => done[next].work += work,
        }
        steps[next] += 1;
    }
    let times = now_ns.into_iter().zip(began_ns);
    done.into_iter()
        .zip(times)
        .map(|(done, (end_ns, began_ns))| Done { ns: (end_ns - began_ns) as u64, ..done })
        .collect()
}

/// The thread that goes on, while there is time: the one whose time is the earliest, of several the first.
fn next_thread(now_ns: &[f64], steps: &[usize]) -> Option<usize> {
    let threads = 0..now_ns.len();
    let is_long = steps.iter().sum::<usize>() >= MOST_STEPS;
    let is_left = is_long || threads.clone().any(|one| now_ns[one] < HORIZON_NS || steps[one] <= LEAST_STEPS);
    let may_go_on = |one: &usize| is_left && (!is_long || steps[*one] < 2);
    threads.filter(may_go_on).min_by(|&a, &b| now_ns[a].total_cmp(&now_ns[b]))
}

/// The order of a part's blocks.
///
/// # Errors
/// `Unavailable` when it has none, or they cannot be in that order.
pub(crate) fn walk(pattern: Pattern, len_bytes: usize, block_bytes: usize, seed: u64) -> Result<Walk> {
    pattern.check(block_bytes)?;
    match len_bytes / block_bytes {
        0 => Err(Error::unavailable(format!("a thread has {len_bytes} bytes for blocks of {block_bytes}"))),
        blocks => Ok(Walk::new(pattern.of_blocks(block_bytes), blocks, seed)),
    }
}

/// A thread that goes over the blocks of its part.
///
/// # Errors
/// As [`Touch::new`].
pub(crate) fn stream(
    device: &'static DeviceProfile,
    kind: &Kind,
    from_bytes: usize,
    len_bytes: usize,
    seed: u64,
) -> Result<Program<'static>> {
    let is_random = matches!(kind.pattern, Pattern::Random | Pattern::Zipf(_));
    let touch = Touch::new(device, kind.access, kind.fence, kind.block_bytes, is_random)?;
    let block_bytes = kind.block_bytes as u64;
    let mut walk = walk(kind.pattern, len_bytes, kind.block_bytes, seed)?;
    Ok(Box::new(move |clock, now_ns| {
        let offset_bytes = from_bytes as u64 + walk.next_line() as u64 * block_bytes;
        (touch.run(clock, now_ns, offset_bytes), block_bytes)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Width;

    fn optane() -> &'static DeviceProfile {
        profile("optane-100-six-dimms").unwrap()
    }

    fn gb_s(access: Access, pattern: Pattern, block_bytes: usize, threads: usize) -> f64 {
        let kind = Kind { access, width: Width::Bytes16, fence: Fence::None, block_bytes, pattern };
        let programs =
            (0..threads).map(|number| stream(optane(), &kind, number << 26, 1 << 26, number as u64).unwrap());
        simulate(optane(), programs.collect()).iter().map(Done::per_second).sum::<f64>() / 1e9
    }

    #[test]
    fn the_published_bandwidths_come_out_and_small_random_writes_cost_a_granule() {
        let near = |got: f64, expected: f64| assert!((got / expected - 1.0).abs() < 0.05, "{got} against {expected}");
        near(gb_s(Access::Load, Pattern::Sequential, 4096, 2), 39.4);
        near(gb_s(Access::NonTemporal, Pattern::Sequential, 4096, 1), 13.9);
        near(gb_s(Access::NonTemporal, Pattern::Sequential, 64, 1), 13.9);
        near(gb_s(Access::NonTemporal, Pattern::Sequential, 64, 8), 13.9);
        near(gb_s(Access::Load, Pattern::Sequential, 64, 8), 39.4);
        near(gb_s(Access::NonTemporal, Pattern::Random, 64, 4), 13.9 / 4.0);
        // A block takes longer than a half of what is simulated.
        near(gb_s(Access::NonTemporal, Pattern::Sequential, 16 << 20, 1), 13.9);
        near(gb_s(Access::NonTemporal, Pattern::Sequential, 64 << 20, 2), 13.9);
        // One load at a time waits for its latency.
        near(gb_s(Access::Load, Pattern::Random, 64, 1), 64.0 / 305.0);
    }

    /// Whatever a queue takes in the beginning.
    #[test]
    fn no_modelled_bandwidth_is_above_that_of_the_profile() {
        let long = DeviceProfile { name: "long", write_queue_bytes: 32 << 20, ..*optane() };
        let long: &'static DeviceProfile = Box::leak(Box::new(long));
        let kind = |access, block_bytes| {
            let (width, fence, pattern) = (Width::Bytes16, Fence::None, Pattern::Sequential);
            Kind { access, width, fence, block_bytes, pattern }
        };
        let gb_s = |kinds: &[Kind]| -> f64 {
            let program = |kind| stream(long, kind, 0, 1 << 26, 1).unwrap();
            simulate(long, kinds.iter().map(program).collect()).iter().map(Done::per_second).sum::<f64>() / 1e9
        };
        let (store, load) = (kind(Access::NonTemporal, 4096), kind(Access::Load, 4096));
        assert!(gb_s(&[store]) < 13.9 * 1.01, "{}", gb_s(&[store]));
        let both = gb_s(&[store, load]);
        assert!(
            both < 2.0 / (1.0 / 13.9 + 1.0 / 39.4) * 1.05,
            "as many bytes of either have the medium in turns: {both}"
        );
    }

    /// Blocks that come again while their granules are open, or have just been read.
    #[test]
    fn no_modelled_bandwidth_of_what_comes_again_is_above_that_of_the_profile() {
        for (name, load_gb_s, store_gb_s) in [("optane-100-dimm", 6.5, 2.2), ("optane-100-six-dimms", 39.4, 13.9)] {
            let device = profile(name).unwrap();
            for (access, most_gb_s) in [(Access::Load, load_gb_s), (Access::NonTemporal, store_gb_s)] {
                for (pattern, block_bytes, len_bytes) in [
                    (Pattern::Sequential, 256, 64 << 10),
                    (Pattern::Sequential, 64, 4 << 10),
                    (Pattern::SameLine, 64, 1 << 20),
                    (Pattern::SameLine, 4096, 1 << 20),
                    (Pattern::Random, 64, 16 << 10),
                    (Pattern::Zipf(1.2), 64, 1 << 20),
                ] {
                    let (width, fence) = (Width::Bytes16, Fence::None);
                    let kind = Kind { access, width, fence, block_bytes, pattern };
                    let done = simulate(device, vec![stream(device, &kind, 0, len_bytes, 1).unwrap()]);
                    let gb_s = done[0].per_second() / 1e9;
                    assert!(gb_s > 0.0 && gb_s < most_gb_s * 1.01, "{name}, {kind:?}: {gb_s} GB/s");
                }
            }
        }
    }

    /// Else a run is planned for minutes.
    #[test]
    fn a_simulation_ends_also_where_steps_take_no_time() {
        let mut steps = 0;
        let eager: Program<'_> = Box::new(|_, now_ns| {
            steps += 1;
            (now_ns, 1)
        });
        // One whose step lasts as long as a hundred million of the other's.
        let slow: Program<'_> = Box::new(|_, now_ns| (now_ns + 1e6, 1));
        let done = simulate(optane(), vec![eager, slow]);
        assert!(done.iter().all(|done| done.work > 0), "{done:?}");
        assert!(steps <= MOST_STEPS, "{steps}");
    }

    #[test]
    fn a_profile_that_cannot_say_is_told_and_files_are_checked() {
        let fast = profile("cxl-type-3-fast").unwrap();
        let refused =
            |access, fence, is_random| Touch::new(fast, access, fence, 64, is_random).unwrap_err().to_string();
        assert!(
            refused(Access::Clwb, Fence::Sfence, false)
                .contains("cxl-type-3-fast has no latency of what makes a line durable")
        );
        assert!(refused(Access::Store, Fence::None, false).contains("'store' stays in the cache"));
        assert!(profile("imaginary").unwrap_err().contains("is no file and none of: ddr4"));
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| {
            let path = folder.path().join(format!("{}.json", text.len()));
            std::fs::write(&path, text).unwrap();
            profile(path.to_str().unwrap())
        };
        let text = |schema: &str, gb_s: &str, granule: u64| {
            format!(
                r#"{{"schema":"{schema}","name":"mine","random_read_ns":100.0,"flush_persist_ns":null,"nt_persist_ns":90.5,
                "read_gb_s":10.0,"write_gb_s":{gb_s},"granule_bytes":{granule},"write_queue_bytes":0,"source":"a test"}}"#
            )
        };
        let read = write(&text(SCHEMA, "5.0", 256)).unwrap();
        let too_long = text(SCHEMA, "5.0", 64).replace("_bytes\":0", "_bytes\":67108865");
        assert!(write(&too_long).unwrap_err().contains("longer than 64 MiB"));
        assert_eq!((read.name, read.write_gb_s, read.flush_persist_ns), ("mine", Some(5.0), None));
        let unknown = text(SCHEMA, "5.0000", 256).replace("\"granule_bytes\":256", "\"granule_bytes\":null");
        let read = write(&unknown).unwrap();
        assert_eq!((read.granule_bytes, read.source), (64, "a test; its granule is not known, and taken for a line"));
        for bad in [
            text("remanent-device-9", "5.00", 256),
            text(SCHEMA, "-5.000", 256),
            text(SCHEMA, "5.0", 100_000),
            "{}".into(),
            String::new(),
        ] {
            assert!(write(&bad).is_err(), "{bad}");
        }
    }
}
