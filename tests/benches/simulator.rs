//! How many crash images a second the simulator recovers from, and how many it judges, on one core.
//!
//! ```text
//! cargo bench -p remanent-tests --bench simulator
//! ```
//!
//! An image that differs from all before it is recovered from. One that was met before is looked up by its hash, and the
//! state that was recovered then is compared with those that are allowed now; it is pruned. Both are judged.

use std::io::{self, Write};
use std::time::Instant;

use crash::{Campaign, Policy, Protocol};
use pmem::Granularity;
use remanent_tests::pool::PoolSteps;
use remanent_tests::register::Register;
use report::{Provenance, Record, Samples};

/// Rounds of the register, whose campaign takes milliseconds, and of the pool.
const REGISTER_ROUNDS: usize = 41;
const POOL_ROUNDS: usize = 7;

fn main() -> io::Result<()> {
    // `cargo test` calls a benchmark too when all targets are asked for, without this.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let out = &mut io::stdout().lock();
    let register = Register { writes: 16, forgetful: false };
    for granularity in [Granularity::CacheLine, Granularity::Page] {
        measure(out, ("register", &register), granularity, &Policy::default(), REGISTER_ROUNDS)?;
        let policy = Policy { nested_every: 4096, random: 4, pairs: 4, lazy: 8192..8256, ..Policy::default() };
        measure(out, ("pool", &PoolSteps::everything()), granularity, &policy, POOL_ROUNDS)?;
    }
    Ok(())
}

/// Runs one campaign again and again, the first time to warm up.
fn measure(
    out: &mut impl Write,
    (name, protocol): (&str, &impl Protocol),
    granularity: Granularity,
    policy: &Policy,
    rounds: usize,
) -> io::Result<()> {
    let (mut recovered, mut judged) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let begin = Instant::now();
        let report = Campaign::new(protocol, granularity, policy.clone()).run();
        let elapsed_s = begin.elapsed().as_secs_f64();
        assert!(report.is_clean(), "{name}, {granularity:?}: {report}");
        if round == 0 {
            writeln!(out, "# {name}, {}: {report}", granularity.as_str())?;
        } else {
            recovered.push(report.images as f64 / elapsed_s);
            judged.push((report.images + report.pruned) as f64 / elapsed_s);
        }
    }
    for (what, values) in [("recovered", recovered), ("judged", judged)] {
        let samples = Samples::new(values).expect("a campaign takes some time");
        let name = format!("{name}, {}, {what}", granularity.as_str());
        // The simulator's own speed, so a measurement of what it speaks of.
        writeln!(out, "{}", Record::new(&name, "images/s", Provenance::Measured, &samples))?;
    }
    Ok(())
}
