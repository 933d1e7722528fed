//! The first copy into a pool that was just made, and into one that was pre-faulted; pre-faulting with one thread and
//! with two.

use std::io::Write;
use std::time::Instant;

use remanent_pmem::{
    Backing, Granularity, Layout, Mapped, Offset, PartOptions, Pending, Pool, Stripe, Touch, default_copy_threads,
};
use remanent_report::compare;

use crate::scratch::Scratch;
use crate::{Result, print};

const LAYOUT: Layout = Layout { name: "bench", version: 1 };
const PAYLOAD_BYTES: usize = 256 << 20;
const ROUNDS: usize = 9;

pub(crate) fn run(scratch: &Scratch, out: &mut dyn Write) -> Result {
    let place = Place { scratch, payload: vec![0x5A; PAYLOAD_BYTES] };
    let backing = place.with_new_pool(|pool| pool.info().backing)?;
    print::place(out, &scratch.file("new pool")?, &backing)?;
    let provenance = print::provenance(&backing);
    let touch = touch(&backing);
    let first_copy = compare(
        ROUNDS,
        || place.measure(|pool| first_copy_ms(pool, &place.payload)),
        || {
            place.measure(|pool| {
                prefault_ms(pool, touch, default_copy_threads().get());
                first_copy_ms(pool, &place.payload)
            })
        },
    );
    let names = ["first copy of 256 MiB, untouched", "first copy, pre-faulted"];
    print::comparison(out, names, "ms", provenance, &first_copy.ok_or("a round failed")?)?;
    let threads = compare(
        ROUNDS,
        || place.measure(|pool| prefault_ms(pool, touch, 1)),
        || place.measure(|pool| prefault_ms(pool, touch, 2)),
    );
    let names = ["pre-fault 256 MiB, 1 thread", "pre-fault 256 MiB, 2 threads"];
    print::comparison(out, names, "ms", provenance, &threads.ok_or("a round failed")?)?;
    Ok(())
}

/// As the store does: where stores become durable by pages they are only read, for else all would be written back.
fn touch(backing: &Backing) -> Touch {
    if backing.granularity == Granularity::Page { Touch::Load } else { Touch::Store }
}

struct Place<'a> {
    scratch: &'a Scratch,
    payload: Vec<u8>,
}

impl Place<'_> {
    /// Something with a pool that nobody has touched.
    fn with_new_pool<T>(&self, action: impl FnOnce(&Pool<Mapped>) -> T) -> std::result::Result<T, String> {
        let told = |error: &dyn std::fmt::Display| error.to_string();
        let path = self.scratch.file("new pool").map_err(|error| told(&error))?;
        let options = PartOptions::single(PAYLOAD_BYTES as u64 + (16 << 20));
        let pool = Pool::create(Mapped::new(), &path, LAYOUT, &options).map_err(|error| told(&error))?;
        let done = action(&pool);
        pool.close().map_err(|error| told(&error))?;
        std::fs::remove_file(&path).map_err(|error| told(&error))?;
        Ok(done)
    }

    /// A measurement on such a pool; one that fails counts as none, which `compare` refuses.
    fn measure(&self, action: impl FnOnce(&Pool<Mapped>) -> f64) -> f64 {
        self.with_new_pool(action).unwrap_or_else(|error| {
            let _ = writeln!(std::io::stderr(), "peers-core: {error}");
            f64::NAN
        })
    }
}

/// Copies the payload as the products do, until it is durable.
fn first_copy_ms(pool: &Pool<Mapped>, payload: &[u8]) -> f64 {
    let begin = Instant::now();
    let mut pending = Pending::new();
    let copied = pool.reserve(payload.len() as u64).and_then(|space| {
        let (start, threads) = (space.extent().offset, default_copy_threads());
        // A product asks for the pages first: one that is lost is an error then, and no signal.
        pool.set().prefault(start, payload.len() as u64, Touch::Store, threads.get())?.join()?;
        // SAFETY: a slice is readable.
        unsafe { pool.set().copy_parallel(&mut pending, start, payload.as_ptr(), payload.len(), threads, None) };
        pool.set().fence(&mut pending)
    });
    copied.map_or(f64::NAN, |()| begin.elapsed().as_secs_f64() * 1e3)
}

fn prefault_ms(pool: &Pool<Mapped>, touch: Touch, threads: usize) -> f64 {
    let begin = Instant::now();
    let start = Offset::new(0, Stripe::HEAD_BYTES);
    let done = pool.set().prefault(start, PAYLOAD_BYTES as u64, touch, threads).and_then(|prefault| prefault.join());
    done.map_or(f64::NAN, |()| begin.elapsed().as_secs_f64() * 1e3)
}
