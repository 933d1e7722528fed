//! Devices that nobody has here: published figures, and the arithmetic of a device that has them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Published figures of a memory device. Where a source gives none the field is `None` and nothing is made up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceProfile {
    /// Short name, for the command line.
    pub name: &'static str,
    /// Latency of a load from random places.
    pub random_read_ns: Option<f64>,
    /// From the store to the end of the fence: 64 bytes stored and written back.
    pub flush_persist_ns: Option<f64>,
    /// The same for 64 bytes stored past the cache.
    pub nt_persist_ns: Option<f64>,
    /// The same for more bytes by one thread, in the order of their lengths, where that was measured.
    pub longer: &'static [LongerPersist],
    /// Bandwidth of one device when all threads read.
    pub read_gb_s: Option<f64>,
    /// Bandwidth of one device when all threads write.
    pub write_gb_s: Option<f64>,
    /// Bytes that the device writes at once; smaller writes cost as much.
    pub granule_bytes: u64,
    /// Bytes that the device takes, and that are safe, before they are written: a write and a fence wait only when
    /// there are more.
    pub write_queue_bytes: u64,
    /// Where the figures were published.
    pub source: &'static str,
}

/// How long it takes until more than a line is safe: bytes that are stored, written back or stored past the cache, and
/// fenced once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongerPersist {
    /// How many bytes; more than 64.
    pub len_bytes: u64,
    /// Stored and written back.
    pub flush_ns: f64,
    /// Stored past the cache.
    pub nt_ns: f64,
}

/// The profiles that are shipped.
pub const PROFILES: &[DeviceProfile] = &[
    DeviceProfile {
        name: "ddr4",
        random_read_ns: Some(101.5),
        flush_persist_ns: Some(57.3),
        nt_persist_ns: Some(86.9),
        longer: &[],
        read_gb_s: None,
        write_gb_s: None,
        granule_bytes: 64,
        write_queue_bytes: 0,
        source: "Izraelevitz et al., arXiv:1903.05714 (2019), data set OptaneStudy",
    },
    DeviceProfile {
        name: "optane-100-dimm",
        random_read_ns: Some(305.0),
        flush_persist_ns: Some(62.3),
        nt_persist_ns: Some(90.4),
        // Those of six would be faster than one can write.
        longer: &[],
        read_gb_s: Some(6.5),
        write_gb_s: Some(2.2),
        granule_bytes: 256,
        write_queue_bytes: 16 << 10,
        source: "Izraelevitz et al., arXiv:1903.05714 (2019); one DIMM and the 16 KiB buffer: Yang et al., FAST '20",
    },
    DeviceProfile {
        name: "optane-100-six-dimms",
        random_read_ns: Some(305.0),
        flush_persist_ns: Some(62.3),
        nt_persist_ns: Some(90.4),
        longer: &[
            LongerPersist { len_bytes: 256, flush_ns: 192.0, nt_ns: 212.0 },
            LongerPersist { len_bytes: 4096, flush_ns: 1774.0, nt_ns: 1551.0 },
        ],
        read_gb_s: Some(39.4),
        write_gb_s: Some(13.9),
        granule_bytes: 256,
        write_queue_bytes: 96 << 10,
        source: "Izraelevitz et al., arXiv:1903.05714 (2019), 256 bytes and 4 KiB from its data set OptaneStudy; the buffers of six DIMMs: Yang et al., FAST '20",
    },
    DeviceProfile {
        name: "cxl-type-3-fast",
        random_read_ns: Some(140.0),
        flush_persist_ns: None,
        nt_persist_ns: None,
        longer: &[],
        read_gb_s: Some(52.0),
        write_gb_s: Some(52.0),
        granule_bytes: 64,
        write_queue_bytes: 0,
        source: "Liu et al., Melody, ASPLOS 2025: the fast end of the measured expanders, one figure for both directions",
    },
    DeviceProfile {
        name: "cxl-type-3-slow",
        random_read_ns: Some(410.0),
        flush_persist_ns: None,
        nt_persist_ns: None,
        longer: &[],
        read_gb_s: Some(18.0),
        write_gb_s: Some(18.0),
        granule_bytes: 64,
        write_queue_bytes: 0,
        source: "Liu et al., Melody, ASPLOS 2025: the slow end of the measured expanders, one figure for both directions",
    },
];

impl DeviceProfile {
    /// The shipped profile of this name.
    pub fn named(name: &str) -> Option<&'static DeviceProfile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// From the store to the end of the fence, of so many bytes by one thread: on lines through the figures that there are, and
    /// beyond the last of them as the last two have it. Where nothing longer was measured it is that of 64 bytes, and what the
    /// bandwidth and the queue say comes on top: how quickly one thread fills a queue is then not known.
    pub fn persist_ns(&self, len_bytes: u64, past_the_cache: bool) -> Option<f64> {
        let line_ns = if past_the_cache { self.nt_persist_ns } else { self.flush_persist_ns }?;
        let length = |len_bytes: u64| len_bytes.max(LINE_BYTES) as f64;
        let figure = |longer: &LongerPersist| {
            (length(longer.len_bytes), if past_the_cache { longer.nt_ns } else { longer.flush_ns })
        };
        let Some(last) = self.longer.len().checked_sub(1) else { return Some(line_ns) };
        let upper = self.longer.iter().position(|longer| len_bytes <= longer.len_bytes).unwrap_or(last);
        let from = upper.checked_sub(1).map_or((length(0), line_ns), |lower| figure(&self.longer[lower]));
        let to = figure(&self.longer[upper]);
        Some(from.1 + (length(len_bytes) - from.0) * (to.1 - from.1) / (to.0 - from.0))
    }
}

/// Bytes of a line, of which the figures are.
const LINE_BYTES: u64 = 64;

/// One modelled device: when it will have written what it was given. Times are nanoseconds on any one clock.
///
/// Loads and stores share its medium: a granule that is read delays those that wait to be written, and a load waits for what stores
/// stall for, but not for what the queue holds.
#[derive(Clone, Debug)]
pub struct DeviceClock {
    profile: &'static DeviceProfile,
    /// When everything so far will have been written.
    idle_at_ns: f64,
    /// The granules that are open for combining, and those that have just been read.
    open: Granules,
    read: Granules,
    /// The earliest end of the next fence.
    persisted_at_ns: f64,
    /// When everything so far will have been read.
    read_at_ns: f64,
}

/// The granules in which streams have stopped, and how much more of each its device takes for what it has counted already: a granule
/// counts whole when its first bytes come, and once more when as many bytes have come as it has. Of more than there is room for the
/// least recent is given up.
///
/// All that is done with one takes the same time however many there are, for [`crate::Modelled`] does it within what it measures.
#[derive(Clone, Debug)]
struct Granules {
    granule_bytes: u64,
    /// The entry of each granule of which some is left.
    places: HashMap<u64, usize, BuildHasherDefault<Spread>>,
    /// A ring: the first entry is no granule's, the least recent comes after it and the latest before it.
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    granule: u64,
    /// 0 in an entry that is free.
    left_bytes: u64,
    older: usize,
    newer: usize,
}

/// The entry of no granule.
const ENDS: usize = 0;
/// Granules that are kept at least, of writes whatever is known of a buffer, and of reads always: one for each of as many threads as
/// come at a time. A profile that was calibrated may not know the buffer, and is of a device that combines all the same.
const STREAMS: u64 = 64;
/// Granules that are kept at most, however large a buffer is.
const MOST_GRANULES: u64 = 1024;

impl Granules {
    fn new(granule_bytes: u64, most: u64) -> Granules {
        let entries = most as usize + 1;
        let entry =
            |at| Entry { granule: 0, left_bytes: 0, older: (at + entries - 1) % entries, newer: (at + 1) % entries };
        let places = HashMap::with_capacity_and_hasher(2 * entries, BuildHasherDefault::default());
        Granules { granule_bytes, places, entries: (0..entries).map(entry).collect() }
    }

    /// As many as a device's buffer of writes holds.
    fn of_writes(profile: &DeviceProfile) -> Granules {
        let most = (profile.write_queue_bytes / profile.granule_bytes).clamp(STREAMS, MOST_GRANULES);
        Granules::new(profile.granule_bytes, most)
    }

    /// How many granules count for so many bytes.
    fn counted(&mut self, offset_bytes: u64, len_bytes: u64) -> u64 {
        let (granule_bytes, end_bytes) = (self.granule_bytes, offset_bytes + len_bytes);
        let (first, last) = (offset_bytes / granule_bytes, end_bytes.saturating_sub(1) / granule_bytes);
        match last.saturating_sub(first) {
            0 => self.counted_of(first, len_bytes),
            between => {
                let of_first = self.counted_of(first, (first + 1) * granule_bytes - offset_bytes);
                of_first + between - 1 + self.counted_of(last, end_bytes - last * granule_bytes)
            }
        }
    }

    /// Whether a granule counts for so many of its bytes.
    fn counted_of(&mut self, granule: u64, len_bytes: u64) -> u64 {
        let known = self.places.get(&granule).copied();
        let left_bytes = known.map_or(0, |at| self.entries[at].left_bytes);
        let (counted, left_bytes) = match left_bytes.checked_sub(len_bytes) {
            Some(left_bytes) => (0, left_bytes),
            None => (1, left_bytes + self.granule_bytes - len_bytes),
        };
        match (known, left_bytes) {
            (None, 0) => {}
            (Some(at), 0) => self.give_up(at),
            (known, _) => {
                let at = known.unwrap_or_else(|| self.take_oldest(granule));
                self.entries[at].left_bytes = left_bytes;
                self.put_before(ENDS, at);
            }
        }
        counted
    }

    /// The least recent entry, which is this granule's from now on.
    fn take_oldest(&mut self, granule: u64) -> usize {
        let at = self.entries[ENDS].newer;
        self.give_up(at);
        self.entries[at].granule = granule;
        self.places.insert(granule, at);
        at
    }

    /// Frees an entry, which is then the first to be taken.
    fn give_up(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        if std::mem::take(&mut entry.left_bytes) > 0 {
            self.places.remove(&entry.granule);
        }
        let oldest = self.entries[ENDS].newer;
        if oldest != at {
            self.put_before(oldest, at);
        }
    }

    /// Moves an entry to where it is older than another one.
    fn put_before(&mut self, next: usize, at: usize) {
        let Entry { older, newer, .. } = self.entries[at];
        self.entries[older].newer = newer;
        self.entries[newer].older = older;
        let before = std::mem::replace(&mut self.entries[next].older, at);
        self.entries[before].newer = at;
        (self.entries[at].older, self.entries[at].newer) = (before, next);
    }
}

/// The hash of a granule's number, of which nobody chooses many: a product, whose upper half depends on all of it.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys are numbers");
    }

    fn write_u64(&mut self, granule: u64) {
        self.0 = granule.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// What a write has to wait for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelledWrite {
    /// Until when the writer stalls, for there is no room in the device's queue.
    pub stalled_ns: f64,
    /// When it is safe: a fence that begins before ends then.
    pub persisted_ns: f64,
}

impl DeviceClock {
    /// A device that has nothing to do.
    pub fn new(profile: &'static DeviceProfile) -> DeviceClock {
        DeviceClock {
            profile,
            idle_at_ns: 0.0,
            open: Granules::of_writes(profile),
            read: Granules::new(profile.granule_bytes, STREAMS),
            persisted_at_ns: 0.0,
            read_at_ns: 0.0,
        }
    }

    /// A device whose queue is full, as one is that has been written to for a while: else what its queue takes in the beginning would
    /// pass for bandwidth.
    pub fn busy(profile: &'static DeviceProfile) -> DeviceClock {
        let mut clock = DeviceClock::new(profile);
        clock.idle_at_ns = clock.queue_ns();
        clock
    }

    /// Takes a write of these bytes of the device. Writes that go on in an open granule are combined with it. A device takes no
    /// more than it writes, once its queue is full.
    pub fn write(&mut self, now_ns: f64, offset_bytes: u64, len_bytes: u64, past_the_cache: bool) -> ModelledWrite {
        if len_bytes == 0 {
            return ModelledWrite { stalled_ns: now_ns, persisted_ns: now_ns };
        }
        let granules = self.open.counted(offset_bytes, len_bytes);
        if let Some(gb_s) = self.profile.write_gb_s {
            let bytes = granules * self.profile.granule_bytes;
            self.idle_at_ns = self.idle_at_ns.max(self.read_at_ns).max(now_ns) + bytes as f64 / gb_s;
        }
        let persisted_ns = now_ns + self.profile.persist_ns(len_bytes, past_the_cache).unwrap_or(0.0);
        self.persisted_at_ns = self.persisted_at_ns.max(persisted_ns);
        let stalled_ns = now_ns.max(self.room_at_ns());
        ModelledWrite { stalled_ns, persisted_ns: persisted_ns.max(stalled_ns) }
    }

    /// Reads these bytes of the device, but for the rest of a granule that has just been read, as soon as it has read what was asked
    /// for before and has room for writes; when they are there, but for what a single load takes.
    pub fn read(&mut self, now_ns: f64, offset_bytes: u64, len_bytes: u64) -> f64 {
        let bytes = self.read.counted(offset_bytes, len_bytes) * self.profile.granule_bytes;
        let read_ns = self.profile.read_gb_s.map_or(0.0, |gb_s| bytes as f64 / gb_s);
        let begin_ns = self.read_at_ns.max(now_ns).max(self.room_at_ns());
        if self.idle_at_ns > begin_ns {
            self.idle_at_ns += read_ns;
        }
        self.read_at_ns = begin_ns + read_ns;
        self.read_at_ns
    }

    fn queue_ns(&self) -> f64 {
        self.profile.write_gb_s.map_or(0.0, |gb_s| self.profile.write_queue_bytes as f64 / gb_s)
    }

    /// When all that is not written yet fits into the queue.
    fn room_at_ns(&self) -> f64 {
        self.idle_at_ns - self.queue_ns()
    }

    /// When a fence that starts now ends.
    pub fn fence(&self, now_ns: f64) -> f64 {
        now_ns.max(self.persisted_at_ns).max(self.room_at_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> DeviceClock {
        DeviceClock::new(DeviceProfile::named("optane-100-dimm").unwrap())
    }

    #[test]
    fn a_single_line_ends_after_the_published_latency() {
        let mut clock = clock();
        clock.write(1000.0, 0, 64, false);
        assert_eq!(clock.fence(1010.0), 1062.3);
        clock.write(2000.0, 4096, 64, true);
        assert_eq!(clock.fence(2500.0), 2500.0, "the fence comes after it is durable");
    }

    #[test]
    fn much_data_is_written_at_the_published_bandwidth_and_small_writes_cost_a_granule() {
        let mut large = clock();
        let stalled_ns = large.write(0.0, 0, 22 << 20, true).stalled_ns;
        let large_ns = large.fence(0.0);
        let expected_ns = ((22 << 20) - (16 << 10)) as f64 / 2.2;
        assert!((large_ns - expected_ns).abs() < 1.0, "{large_ns} against {expected_ns}");
        assert_eq!(stalled_ns, large_ns, "what is not in the queue is written already");
        assert_eq!(clock().write(7.0, 0, 16 << 10, true).stalled_ns, 7.0, "the queue takes it");
        let (mut scattered, mut combined) = (clock(), clock());
        for i in 0..100_000 {
            scattered.write(0.0, i * 4096, 64, true);
            combined.write(0.0, i * 64, 64, true);
        }
        let ratio = scattered.idle_at_ns / combined.idle_at_ns;
        assert!((ratio - 4.0).abs() < 0.01, "64 bytes of every 256: {ratio}");
    }

    #[test]
    fn reads_go_at_the_published_bandwidth_and_small_ones_take_a_granule() {
        let mut clock = clock();
        let done = (0..1000).map(|block| clock.read(0.0, 4096 * block, 64)).fold(0.0, f64::max);
        assert!((done - 256_000.0 / 6.5).abs() < 1.0, "{done}");
        assert!(clock.read(1e6, 0, 4096) - 1e6 - 4096.0 / 6.5 < 1e-6, "the device had nothing to do");
    }

    #[test]
    fn longer_writes_take_what_was_published_and_what_lies_between() {
        let six = DeviceProfile::named("optane-100-six-dimms").unwrap();
        for (len_bytes, flush_ns, nt_ns) in
            [(1, 62.3, 90.4), (64, 62.3, 90.4), (256, 192.0, 212.0), (4096, 1774.0, 1551.0)]
        {
            let near = |got: Option<f64>, ns: f64| assert!((got.unwrap() - ns).abs() < 1e-9, "{len_bytes}: {got:?}");
            near(six.persist_ns(len_bytes, false), flush_ns);
            near(six.persist_ns(len_bytes, true), nt_ns);
        }
        let between = six.persist_ns(160, true).unwrap();
        assert!((between - (90.4 + 212.0) / 2.0).abs() < 1e-9, "{between}");
        let beyond = six.persist_ns(8192, true).unwrap();
        assert!((beyond - (1551.0 + 4096.0 * (1551.0 - 212.0) / 3840.0)).abs() < 1e-9, "{beyond}");
        let one = DeviceProfile::named("optane-100-dimm").unwrap();
        assert_eq!(one.persist_ns(4096, true), Some(90.4), "nothing longer was measured");
        assert_eq!(DeviceProfile::named("cxl-type-3-fast").unwrap().persist_ns(64, true), None);
        let mut clock = DeviceClock::new(six);
        clock.write(0.0, 0, 4096, true);
        assert_eq!(clock.fence(0.0), 1551.0);
    }

    /// What is read in a second and what is written cannot both be what the medium gives alone.
    #[test]
    fn loads_and_stores_share_the_medium() {
        let mut clock = DeviceClock::busy(DeviceProfile::named("optane-100-dimm").unwrap());
        let (mut reader_ns, mut writer_ns, mut read, mut written) = (0.0, 0.0, 0u64, 0u64);
        while f64::min(reader_ns, writer_ns) < 1e6 {
            if reader_ns < writer_ns {
                reader_ns = clock.read(reader_ns, 4096 * read, 4096);
                read += 1;
            } else {
                writer_ns = clock.write(writer_ns, 4096 * written, 4096, true).stalled_ns;
                written += 1;
            }
        }
        let share = (4096 * read) as f64 / 1e6 / 6.5 + (4096 * written) as f64 / 1e6 / 2.2;
        assert!((share - 1.0).abs() < 0.02, "{read} blocks read and {written} written are {share} of its time");
        assert!(read > 0 && written > 0);
    }

    #[test]
    fn as_many_granules_are_open_as_the_buffer_holds_and_the_least_recent_is_given_up() {
        let profile = DeviceProfile::named("optane-100-dimm").unwrap();
        // Streams of 64 bytes that take turns.
        let written_ns = |streams: u64| {
            let mut clock = DeviceClock::new(profile);
            for step in 0..64 {
                (0..streams).for_each(|stream| _ = clock.write(0.0, (stream << 20) + step * 64, 64, true));
            }
            clock.idle_at_ns / (streams * 64 * 64) as f64 * 2.2
        };
        assert!((written_ns(64) - 1.0).abs() < 0.01, "{}", written_ns(64));
        assert!((written_ns(65) - 4.0).abs() < 0.01, "{}", written_ns(65));
        let mut granules = Granules::new(256, 2);
        let mut is_there = |granule: u64| granules.counted(256 * granule, 64) == 0;
        assert!(!is_there(1) && !is_there(2) && is_there(1));
        assert!(!is_there(3) && is_there(1) && !is_there(2));
    }

    /// Else what comes again and again costs nothing.
    #[test]
    fn no_more_bytes_go_through_than_are_counted() {
        let mut granules = Granules::new(256, 4);
        assert_eq!((0..8).map(|_| granules.counted(512, 64)).collect::<Vec<_>>(), [1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!([granules.counted(0, 192), granules.counted(0, 192), granules.counted(0, 128)], [1, 1, 0]);
        assert_eq!([granules.counted(1024, 256), granules.counted(1024, 256)], [1, 1], "nothing is left of it");
        assert_eq!([granules.counted(2048 + 64, 512), granules.counted(2048 + 576, 192)], [3, 0], "a stream goes on");
        assert_eq!(granules.counted(1 << 20, 0), 0);
    }

    proptest::proptest! {
        /// The same as a list that is searched.
        #[test]
        fn the_least_recent_granule_is_given_up_whatever_comes(
            most in 1u64..20,
            writes in proptest::collection::vec((0u64..40, 1u64..=4), 0..500),
        ) {
            let (mut granules, mut list) = (Granules::new(256, most), Vec::<(u64, u64)>::new());
            for (granule, lines) in writes {
                let known = list.iter().position(|(known, _)| *known == granule).map(|at| list.remove(at).1);
                let (counted, left) = match known.unwrap_or(0) {
                    left if left >= 64 * lines => (0, left - 64 * lines),
                    left => (1, left + 256 - 64 * lines),
                };
                if left > 0 {
                    list.push((granule, left));
                }
                if list.len() as u64 > most {
                    list.remove(0);
                }
                proptest::prop_assert_eq!(granules.counted(256 * granule, 64 * lines), counted);
                proptest::prop_assert_eq!(granules.places.len(), list.len());
            }
        }
    }

    /// A calibrated profile knows of no buffer where one thread could not fill it.
    #[test]
    fn a_device_without_a_known_buffer_combines_several_streams_too() {
        let known = DeviceProfile::named("optane-100-six-dimms").unwrap();
        let unknown: &'static DeviceProfile = Box::leak(Box::new(DeviceProfile { write_queue_bytes: 0, ..*known }));
        for threads in [2u64, 16] {
            let ns = |profile| {
                let mut clock = DeviceClock::busy(profile);
                for step in 0..1000 {
                    (0..threads).for_each(|thread| _ = clock.write(0.0, (thread << 20) + 64 * step, 64, true));
                }
                let written_ns = clock.idle_at_ns - clock.queue_ns();
                (0..1000).for_each(|step| {
                    (0..threads).for_each(|thread| _ = clock.read(0.0, (thread << 20) + 64 * step, 64));
                });
                (written_ns, clock.read_at_ns - written_ns)
            };
            let (of_known, of_unknown) = (ns(known), ns(unknown));
            assert!((of_known.0 - of_unknown.0).abs() < 1e-3 && (of_known.1 - of_unknown.1).abs() < 1e-3, "{threads}");
            let bytes = (threads * 64_000) as f64;
            assert!((of_unknown.0 * 13.9 / bytes - 1.0).abs() < 0.01, "{of_unknown:?}");
            assert!((of_unknown.1 * 39.4 / bytes - 1.0).abs() < 0.01, "{of_unknown:?}");
        }
    }

    #[test]
    fn every_profile_names_its_source_and_can_be_found() {
        for profile in PROFILES {
            assert_eq!(DeviceProfile::named(profile.name), Some(profile));
            assert!(profile.source.contains("20") && profile.granule_bytes.is_power_of_two());
        }
        assert_eq!(DeviceProfile::named("imaginary"), None);
    }
}
