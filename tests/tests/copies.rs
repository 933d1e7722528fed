//! Copies by several threads under the simulator: what a thread has copied is durable by its own fence.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Barrier;

use crash::Sim;
use pmem::{Granularity, Layout, PartOptions, Pending, Pool};

const LAYOUT: Layout = Layout { name: "copies", version: 1 };
/// Enough for two threads.
const LEN_BYTES: usize = 8 << 20;

thread_local! {
    static HAS_COPIED: Cell<bool> = const { Cell::new(false) };
}

#[test]
#[allow(unsafe_code)] // the copy of raw memory
fn a_fence_of_one_thread_answers_for_no_copy_of_another() {
    let sim = Sim::new(Granularity::CacheLine);
    let options = PartOptions::single(16 << 20);
    let pool = Pool::create(sim.clone(), Path::new("/pools/p"), LAYOUT, &options).expect("a new pool");
    let reservation = pool.reserve(LEN_BYTES as u64).expect("there is room");
    assert_eq!(sim.at_risk(), 0);
    let source = vec![0xA7; LEN_BYTES];
    let both = Barrier::new(2);
    // Each thread waits for the other after its first piece, so that both have copied something.
    let meet = |_| {
        if !HAS_COPIED.replace(true) {
            both.wait();
        }
        ControlFlow::Continue(())
    };
    let threads = NonZeroUsize::new(2).expect("two");
    let mut pending = Pending::new();
    // SAFETY: the source is not changed, and lives to the end.
    unsafe {
        pool.set().copy_parallel(
            &mut pending,
            reservation.extent().offset,
            source.as_ptr(),
            LEN_BYTES,
            threads,
            Some(&meet),
        );
    }
    pool.set().fence(&mut pending).expect("no fault is injected");
    assert_eq!(sim.at_risk(), 0, "lines that are not durable after the caller's fence");
}
