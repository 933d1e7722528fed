//! Devices that nobody has here: published figures, and the arithmetic of a device that has them.

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

/// The granules in which streams have stopped, the latest last: as many as the device's buffer holds, one at least.
#[derive(Clone, Debug)]
struct Granules {
    last: Vec<u64>,
    most: usize,
}

/// Granules that are kept at most, however large a buffer is.
const MOST_GRANULES: u64 = 1024;

impl Granules {
    fn of(profile: &DeviceProfile) -> Granules {
        let most = (profile.write_queue_bytes / profile.granule_bytes).clamp(1, MOST_GRANULES) as usize;
        Granules { last: Vec::with_capacity(most), most }
    }

    /// A stream goes on from one granule to another; whether the first was there.
    fn go_on(&mut self, first: u64, last: u64) -> bool {
        // Most streams have been here a moment ago.
        let found = self.last.iter().rposition(|granule| *granule == first);
        match found {
            Some(at) => {
                self.last.remove(at);
            }
            None if self.last.len() == self.most => {
                self.last.remove(0);
            }
            None => {}
        }
        self.last.push(last);
        found.is_some()
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
            open: Granules::of(profile),
            read: Granules::of(profile),
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
        let granule = self.profile.granule_bytes;
        let (first, last) = (offset_bytes / granule, (offset_bytes + len_bytes - 1) / granule);
        let combined = u64::from(self.open.go_on(first, last));
        if let Some(gb_s) = self.profile.write_gb_s {
            let bytes = (last - first + 1 - combined) * granule;
            self.idle_at_ns = self.idle_at_ns.max(self.read_at_ns).max(now_ns) + bytes as f64 / gb_s;
        }
        let persisted_ns = now_ns + self.profile.persist_ns(len_bytes, past_the_cache).unwrap_or(0.0);
        self.persisted_at_ns = self.persisted_at_ns.max(persisted_ns);
        let stalled_ns = now_ns.max(self.room_at_ns());
        ModelledWrite { stalled_ns, persisted_ns: persisted_ns.max(stalled_ns) }
    }

    /// Reads these bytes of the device, but for a granule that has just been read, as soon as it has read what was asked for before
    /// and has room for writes; when they are there, but for what a single load takes.
    pub fn read(&mut self, now_ns: f64, offset_bytes: u64, len_bytes: u64) -> f64 {
        let granule = self.profile.granule_bytes;
        let (first, end) = (offset_bytes / granule, (offset_bytes + len_bytes).div_ceil(granule));
        let there = u64::from(self.read.go_on(first, end - 1));
        let read_ns = self.profile.read_gb_s.map_or(0.0, |gb_s| ((end - first - there) * granule) as f64 / gb_s);
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
        let mut granules = Granules { last: Vec::new(), most: 2 };
        assert!(!granules.go_on(1, 1) && !granules.go_on(2, 2) && granules.go_on(1, 1));
        assert!(!granules.go_on(3, 3) && granules.go_on(1, 1) && !granules.go_on(2, 2));
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
