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

/// The profiles that are shipped.
pub const PROFILES: &[DeviceProfile] = &[
    DeviceProfile {
        name: "ddr4",
        random_read_ns: Some(101.5),
        flush_persist_ns: Some(57.3),
        nt_persist_ns: Some(86.9),
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
        read_gb_s: Some(39.4),
        write_gb_s: Some(13.9),
        granule_bytes: 256,
        write_queue_bytes: 96 << 10,
        source: "Izraelevitz et al., arXiv:1903.05714 (2019); the buffers of six DIMMs: Yang et al., FAST '20",
    },
    DeviceProfile {
        name: "cxl-type-3-fast",
        random_read_ns: Some(140.0),
        flush_persist_ns: None,
        nt_persist_ns: None,
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
}

/// One modelled device: when it will have written what it was given. Times are nanoseconds on any one clock.
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

/// The granules in which streams have stopped, one for each: as many as threads come at a time.
#[derive(Clone, Debug, Default)]
struct Granules {
    last: [Option<u64>; 16],
    oldest: usize,
}

impl Granules {
    /// A stream goes on from one granule to another; whether the first was there.
    fn go_on(&mut self, first: u64, last: u64) -> bool {
        match self.last.iter().position(|granule| *granule == Some(first)) {
            Some(stream) => {
                self.last[stream] = Some(last);
                true
            }
            None => {
                self.last[self.oldest] = Some(last);
                self.oldest = (self.oldest + 1) % self.last.len();
                false
            }
        }
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
            open: Granules::default(),
            read: Granules::default(),
            persisted_at_ns: 0.0,
            read_at_ns: 0.0,
        }
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
            self.idle_at_ns = self.idle_at_ns.max(now_ns) + bytes as f64 / gb_s;
        }
        let persist = if past_the_cache { self.profile.nt_persist_ns } else { self.profile.flush_persist_ns };
        let persisted_ns = now_ns + persist.unwrap_or(0.0);
        self.persisted_at_ns = self.persisted_at_ns.max(persisted_ns);
        let stalled_ns = now_ns.max(self.room_at_ns());
        ModelledWrite { stalled_ns, persisted_ns: persisted_ns.max(stalled_ns) }
    }

    /// Reads these bytes of the device, but for a granule that has just been read, as soon as it has read what was asked for before; when they are there, but for what a
    /// single load takes.
    pub fn read(&mut self, now_ns: f64, offset_bytes: u64, len_bytes: u64) -> f64 {
        let granule = self.profile.granule_bytes;
        let (first, end) = (offset_bytes / granule, (offset_bytes + len_bytes).div_ceil(granule));
        let there = u64::from(self.read.go_on(first, end - 1));
        let read_ns = self.profile.read_gb_s.map_or(0.0, |gb_s| ((end - first - there) * granule) as f64 / gb_s);
        self.read_at_ns = self.read_at_ns.max(now_ns) + read_ns;
        self.read_at_ns
    }

    /// When all that is not written yet fits into the queue.
    fn room_at_ns(&self) -> f64 {
        let queue_ns = self.profile.write_gb_s.map_or(0.0, |gb_s| self.profile.write_queue_bytes as f64 / gb_s);
        self.idle_at_ns - queue_ns
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
    fn every_profile_names_its_source_and_can_be_found() {
        for profile in PROFILES {
            assert_eq!(DeviceProfile::named(profile.name), Some(profile));
            assert!(profile.source.contains("20") && profile.granule_bytes.is_power_of_two());
        }
        assert_eq!(DeviceProfile::named("imaginary"), None);
    }
}
