//! A stripe over two devices beside one device, on devices that are modelled after published figures.

use std::io::Write;
use std::num::NonZeroUsize;
use std::time::Instant;

use remanent_pmem::{DeviceProfile, Layout, Mapped, Modelled, PartOptions, Pending, Pool, Reservation, Stripe, Touch};
use remanent_report::compare;

use crate::scratch::Scratch;
use crate::{Result, print};

const LAYOUT: Layout = Layout { name: "bench", version: 1 };
const PROFILE: &str = "optane-100-dimm";
const PAYLOAD_BYTES: usize = 256 << 20;
const ROUNDS: usize = 9;
const CHUNKS_MIB: [u64; 2] = [2, 16];

pub(crate) fn run(scratch: &Scratch, out: &mut dyn Write) -> Result {
    let profile = DeviceProfile::named(PROFILE).ok_or("no such profile")?;
    let payload = vec![0x5A; PAYLOAD_BYTES];
    let one = Target::new(scratch, profile, 1, Stripe::HEAD_BYTES)?;
    for chunk_mib in CHUNKS_MIB {
        let two = Target::new(scratch, profile, 2, chunk_mib << 20)?;
        let backing = two.pool.info().backing;
        print::place(out, &scratch.file("stripe")?, &backing)?;
        writeln!(out, "# device {PROFILE}, chunks of {chunk_mib} MiB")?;
        for threads in [1, 2] {
            let threads = NonZeroUsize::new(threads).ok_or("no threads")?;
            let copy = compare(ROUNDS, || one.copy_gb_s(&payload, threads), || two.copy_gb_s(&payload, threads));
            let names = [format!("1 device, {threads} threads"), format!("stripe over 2, {threads} threads")];
            let names = names.each_ref().map(String::as_str);
            print::comparison(out, names, "GB/s", print::provenance(&backing), &copy.ok_or("a copy failed")?)?;
        }
        two.remove(scratch)?;
    }
    one.remove(scratch)
}

/// A warm pool with room for the payload.
struct Target {
    pool: Pool<Modelled<Mapped>>,
    space: Reservation,
    members: usize,
}

impl Target {
    fn new(
        scratch: &Scratch,
        profile: &'static DeviceProfile,
        members: usize,
        chunk_bytes: u64,
    ) -> std::result::Result<Target, Box<dyn std::error::Error>> {
        let files =
            (0..members).map(|member| scratch.file(&name(members, member))).collect::<std::io::Result<Vec<_>>>()?;
        // Room for the head and for chunks that the payload fills in part only.
        let file_bytes = (PAYLOAD_BYTES / members) as u64 + (64 << 20) + Stripe::HEAD_BYTES;
        let options = PartOptions { file_bytes, more_files: files[1..].to_vec(), chunk_bytes };
        let media = Modelled::new(Mapped::new(), profile);
        let pool = Pool::create(media, &files[0], LAYOUT, &options)?;
        let space = pool.reserve(PAYLOAD_BYTES as u64)?;
        pool.set().prefault(space.extent().offset, PAYLOAD_BYTES as u64, Touch::Store, 2)?.join()?;
        Ok(Target { pool, space, members })
    }

    fn copy_gb_s(&self, payload: &[u8], threads: NonZeroUsize) -> f64 {
        let (set, start) = (self.pool.set(), self.space.extent().offset);
        let mut pending = Pending::new();
        let begin = Instant::now();
        // SAFETY: a slice is readable.
        unsafe { set.copy_parallel(&mut pending, start, payload.as_ptr(), payload.len(), threads, None) };
        let rate = |()| payload.len() as f64 / 1e9 / begin.elapsed().as_secs_f64();
        set.fence(&mut pending).map_or(f64::NAN, rate)
    }

    /// Gives the files' memory back.
    fn remove(self, scratch: &Scratch) -> Result {
        let Target { pool, space, members } = self;
        drop(space);
        pool.close()?;
        for member in 0..members {
            std::fs::remove_file(scratch.file(&name(members, member))?)?;
        }
        Ok(())
    }
}

fn name(members: usize, member: usize) -> String {
    format!("device {member} of {members}")
}
