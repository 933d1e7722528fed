//! Chains of operations, as programs have them: none begins before what it needs of those before is there. Where a load tells the
//! next one its place, that waits for the load; what is stored with a fence has left before the next begins. Without a fence
//! it is on its way then, as it is in programs that do not wait for it.

use pmem::DeviceProfile;

use crate::clock::{Clock, ticks};
use crate::code::{self, Access, Blocks, Fence, Line, STORED, Scatter, Width};
use crate::crew::{self, Done};
use crate::error::{Error, Result};
use crate::measure::{Better, Cell, Form, Key, Measure, Metric, Needs, Sample};
use crate::memory::Memory;
use crate::model::{self, Program, Touch};
use crate::pattern::{Pattern, Walk};
use crate::site::Site;
use crate::stream;
use crate::value;

/// The measurement `operations`.
#[derive(Debug)]
pub struct Operations;

/// One operation of a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// What is done with a block.
    pub access: Access,
    /// How large it is.
    pub block_bytes: usize,
    /// What waits after it.
    pub fence: Fence,
}

impl Step {
    /// Whether loads of the next operation would overtake what its fence is to wait for.
    fn is_left_to_itself(&self) -> bool {
        self.access != Access::Load && self.fence != Fence::None && !self.fence.holds_loads()
    }
}

const READ_AND_WRITE_BACK: &str = if cfg!(target_arch = "x86_64") {
    "load:64+clwb:64/sfence"
} else if cfg!(target_arch = "aarch64") {
    "load:64+dc-cvac:64/dsb"
} else {
    "load:64+store:64"
};

/// Most operations of a chain.
const MAX_STEPS: usize = 16;
/// Chains between two looks at whether the time is over.
const TURN: usize = 256;
const LINE_BYTES: usize = 64;

impl Measure for Operations {
    fn name(&self) -> &'static str {
        "operations"
    }

    fn about(&self) -> &'static str {
        "how long a chain of operations at random places takes, each of which waits for loads and for fenced stores before it"
    }

    fn keys(&self) -> &'static [Key] {
        const KEYS: [Key; 5] = [
            Key::MEMORY,
            Key::PAGES,
            Key {
                name: "chain",
                about: "operations, such as load:256+nt:64/sfence: an access, bytes, and what waits until it has left",
                form: Form::Chain,
                default: READ_AND_WRITE_BACK,
            },
            Key {
                name: "size",
                about: "bytes of the working set of all threads, of which each has a part",
                form: Form::Bytes { multiple_of: 64 },
                default: "1Gi",
            },
            Key::THREADS,
        ];
        &KEYS
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: [Metric; 3] = [
            Metric {
                name: "chain",
                unit: "ns",
                better: Better::Less,
                about: "time of a chain in a thread, where each thread has its CPU",
            },
            Metric {
                name: "chain-ticks",
                unit: "ticks",
                better: Better::Less,
                about: "the same in ticks of the counter",
            },
            Metric {
                name: "rate",
                unit: "M/s",
                better: Better::More,
                about: "million chains a second of all threads, as they came",
            },
        ];
        &METRICS
    }

    fn needs(&self, cell: &Cell) -> Result<Needs> {
        let (steps, threads) = (steps(cell.word("chain")).expect("the plan was checked"), cell.len("threads"));
        if let Some(step) = steps.iter().find(|step| !step.access.is_available(Width::widest())) {
            return Err(Error::unavailable(format!("this CPU has no {}", step.access.name())));
        }
        if let Some(step) = steps.iter().find(|step| !step.fence.is_available()) {
            return Err(Error::unavailable(format!("this CPU has no {}", step.fence.name())));
        }
        let largest = steps.iter().map(|step| step.block_bytes).max().unwrap_or(0);
        if cell.len("size") / threads < 2 * largest {
            return Err(Error::unavailable(format!(
                "{} bytes for {threads} threads in blocks of {largest}",
                cell.len("size")
            )));
        }
        let memory_bytes = cell.len("size");
        Ok(Needs {
            memory_bytes,
            threads,
            written_bytes: memory_bytes as u64,
            writes_gb_s: threads as f64,
            sample_ns: 0,
        })
    }

    fn sample(&self, cell: &Cell, site: &mut Site, seed: u64) -> Result<Sample> {
        let (steps, threads, time) =
            (steps(cell.word("chain")).expect("the plan was checked"), cell.len("threads"), site.sample_time);
        let len_bytes = cell.len("size");
        let memory = site.memory(cell)?;
        stream::fill(memory, len_bytes);
        let part_bytes = len_bytes / threads / LINE_BYTES * LINE_BYTES;
        let memory: &Memory = memory;
        let mut chains: Vec<Chain> = (0..threads)
            .map(|number| Chain::new(&steps, memory, number * part_bytes, part_bytes, seed + number as u64))
            .collect();
        let done = crew::work_together(chains.iter_mut().map(|chain| || chain.turn()).collect(), time)?;
        if chains.iter().any(|chain| chain.strayed != 0) {
            return Err(Error::Wrong { what: "a word that was loaded" });
        }
        let empty_ns = {
            let _alone = crew::alone()?;
            chains[0].empty_ns()
        };
        Ok(told(&done, empty_ns, crew::has_cpu_each(threads)))
    }

    fn model(&self, cell: &Cell, device: &'static DeviceProfile, seed: u64) -> Result<Sample> {
        let (steps, threads) = (steps(cell.word("chain")).expect("the plan was checked"), cell.len("threads"));
        let part_bytes = cell.len("size") / threads;
        let thread = |number: usize| -> Result<Program<'_>> {
            let step = |step: &Step| {
                let touch = Touch::new(device, step.access, step.fence, step.block_bytes, true)?;
                let walk = model::walk(Pattern::Random, part_bytes, step.block_bytes, seed + number as u64)?;
                Ok((touch, walk, step.block_bytes))
            };
            let mut steps = steps.iter().map(step).collect::<Result<Vec<_>>>()?;
            Ok(Box::new(move |clock, now_ns| {
                let run = |now_ns, (touch, walk, block_bytes): &mut (Touch, Walk, usize)| {
                    touch.run(clock, now_ns, (number * part_bytes + walk.next_line() * *block_bytes) as u64)
                };
                (steps.iter_mut().fold(now_ns, run), 1)
            }))
        };
        let done = model::simulate(device, (0..threads).map(thread).collect::<Result<_>>()?);
        let rate: f64 = done.iter().map(Done::per_second).sum();
        Ok(Sample { values: vec![Some(threads as f64 * 1e9 / rate), None, Some(rate / 1e6)], ..Sample::default() })
    }
}

/// What chains took, of which an empty one takes so long. That is not subtracted, for it runs beside waits.
fn told(done: &[Done], empty_ns: f64, has_cpu_each: bool) -> Sample {
    let rate: f64 = done.iter().map(Done::per_second).sum();
    let whole_ns = done.len() as f64 * 1e9 / rate;
    // Among more threads than CPUs it is the time for which a thread waits for its CPU, for the most part.
    let ns = Some(whole_ns).filter(|ns| has_cpu_each && ns.is_finite());
    Sample {
        values: vec![ns, ns.map(|ns| ns * Clock::get().ticks_per_ns), Some(rate / 1e6)],
        overhead: Some((empty_ns / whole_ns).min(1.0)),
        ..Sample::default()
    }
}

/// The operations of a chain.
///
/// # Errors
/// What was expected.
pub(crate) fn steps(text: &str) -> std::result::Result<Vec<Step>, String> {
    let steps = text.split('+').map(str::trim).map(step).collect::<std::result::Result<Vec<_>, _>>()?;
    if steps.len() > MAX_STEPS { Err(format!("more than {MAX_STEPS} operations")) } else { Ok(steps) }
}

fn step(text: &str) -> std::result::Result<Step, String> {
    let expected = || format!("'{text}' is no operation: expected one such as load:256 or nt:64/sfence");
    let (operation, fence) = text.split_once('/').unwrap_or((text, "none"));
    let (access, bytes) = operation.split_once(':').ok_or_else(expected)?;
    let is_one = |form: Form, name: &str| match form {
        Form::Instruction { known, .. } if known.contains(&name) => Ok(()),
        _ => Err(format!("'{name}' is none of: {}", form.expected())),
    };
    is_one(Access::FORM, access)?;
    is_one(Fence::FORM, fence)?;
    match value::number(bytes)? {
        bytes if bytes > 0 && bytes.is_multiple_of(LINE_BYTES as u64) && bytes <= 1 << 20 => {
            Ok(Step { access: Access::named(access), block_bytes: bytes as usize, fence: Fence::named(fence) })
        }
        bytes => Err(format!("{bytes} is no multiple of {LINE_BYTES} up to 1 MiB")),
    }
}

/// One thread's chains.
struct Chain {
    links: Vec<Link>,
    width: Width,
    line: Line,
    /// Bits of loaded words that are not those of what lies there.
    strayed: u64,
}

/// An operation with its way over its blocks.
struct Link {
    step: Step,
    scatter: Scatter,
    next: u64,
}

// SAFETY: addresses of memory that outlives the threads, of which each has a part of its own.
unsafe impl Send for Chain {}

impl Chain {
    fn new(steps: &[Step], memory: &Memory, from_bytes: usize, part_bytes: usize, seed: u64) -> Chain {
        let start = memory.base().wrapping_add(from_bytes);
        let link = |(number, step): (usize, &Step)| {
            let (blocks, seed) = (part_bytes / step.block_bytes, seed ^ (number as u64) << 32);
            Link { step: *step, scatter: Scatter::new(start, step.block_bytes, blocks, seed), next: 0 }
        };
        let links = steps.iter().enumerate().map(link).collect();
        Chain { links, width: Width::widest(), line: Line([0; 8]), strayed: 0 }
    }

    fn turn(&mut self) -> u64 {
        self.run::<false>();
        TURN as u64
    }

    /// `EMPTY`, everything but the accesses and what waits for them.
    fn run<const EMPTY: bool>(&mut self) {
        let Chain { links, width, line, strayed } = self;
        for _ in 0..TURN {
            for Link { step, scatter, next } in links.iter_mut() {
                // The compiler and the CPU cannot know that what was loaded adds nothing to the place.
                let number = (*next ^ *strayed).min(scatter.blocks() - 1);
                *next = if *next + 1 < scatter.blocks() { *next + 1 } else { 0 };
                let lines = if EMPTY { 0 } else { step.block_bytes / LINE_BYTES };
                let fence = if EMPTY { Fence::None } else { step.fence };
                *line = if step.access == Access::Load { Line([0; 8]) } else { Line([STORED; 8]) };
                let block = [scatter.address(number)];
                // SAFETY: the block lies in this thread's part; `needs` asked whether the CPU has the instructions.
                unsafe { code::blocks(step.access, *width, fence, Blocks::List(&block), lines, line) };
                if step.access == Access::Load {
                    *strayed |= line.0[0] ^ STORED.wrapping_mul(lines as u64);
                } else if !EMPTY && step.is_left_to_itself() {
                    code::wait();
                }
            }
        }
    }

    /// Nanoseconds that a chain takes without its accesses: choosing the code of each, and finding its place.
    fn empty_ns(&mut self) -> f64 {
        let mut time = || {
            let start = ticks();
            self.run::<true>();
            (ticks() - start).saturating_sub(Clock::get().pair_ticks)
        };
        let least = (0..5).map(|_| time()).min().expect("five times");
        Clock::get().ns(least as f64) / TURN as f64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::Plan;

    #[test]
    fn chains_are_read_and_refused() {
        let read = steps("load:256+nt:64/sfence + clwb:1Ki").unwrap();
        assert_eq!(read.len(), 3);
        assert_eq!(read[1], Step { access: Access::NonTemporal, block_bytes: 64, fence: Fence::Sfence });
        for text in [
            "",
            "load",
            "load:",
            "load:63",
            "load:0",
            "load:2Mi",
            "jump:64",
            "load:64/wait",
            "load:64+",
            &"load:64+".repeat(17),
        ] {
            assert!(steps(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_chain_loads_and_stores_what_lies_there() {
        let mut plan = Plan::built_in("operations").unwrap();
        for (key, text) in [
            ("size", "1Mi"),
            ("threads", "1,2"),
            ("chain", "load:64+clwb:64/sfence,load:64+dc-cvac:64/dsb,load:256+nt:512"),
        ] {
            plan.set(key, text).unwrap();
        }
        for cell in plan.cells().unwrap() {
            if let Err(error) = Operations.needs(&cell) {
                println!("not run: {cell}: {error}");
                continue;
            }
            let mut site = Site::new([&cell], Duration::from_millis(1)).unwrap();
            let sample = Operations.sample(&cell, &mut site, 1).unwrap();
            assert!(sample.values[0].is_none_or(|ns| ns > 0.0) && sample.values[2].unwrap() > 0.0, "{sample:?}");
            let memory = site.memory(&cell).unwrap();
            assert!((0..1 << 20).step_by(8).all(|at| memory.word(at) == STORED), "{cell}");
        }
    }

    #[test]
    fn a_chain_has_no_time_of_its_own_where_threads_wait_for_cpus() {
        let done = [Done { work: 1000, ns: 1_000_000 }; 4];
        let each = told(&done, 10.0, true);
        let near = |got: Option<f64>, expected: f64| (got.unwrap() / expected - 1.0).abs() < 1e-9;
        assert!(near(each.values[0], 1000.0) && near(each.values[2], 4.0) && near(each.overhead, 0.01));
        let shared = told(&done, 10.0, false);
        assert_eq!(shared.values[..2], [None, None]);
        assert!(near(shared.values[2], 4.0));
        assert_eq!(told(&[Done::default()], 10.0, true).values[0], None, "it never had its turn");
    }

    /// SFENCE lets later loads pass, and without a fence nothing is waited for.
    #[test]
    fn what_is_fenced_has_left_before_the_next_operation() {
        let is_waited_for = |access, fence| Step { access, block_bytes: 64, fence }.is_left_to_itself();
        assert!(is_waited_for(Access::NonTemporal, Fence::Sfence) && is_waited_for(Access::Store, Fence::Dmb));
        assert!(!is_waited_for(Access::NonTemporal, Fence::Mfence) && !is_waited_for(Access::Store, Fence::Dsb));
        assert!(!is_waited_for(Access::Store, Fence::None) && !is_waited_for(Access::Load, Fence::Sfence));
    }

    #[test]
    fn every_block_of_a_part_is_met_whatever_their_number() {
        let memory = Memory::new(&crate::memory::Place::Dram, crate::memory::Pages::Small, 64 * 1000).unwrap();
        let mut chain = Chain::new(&steps("store:64").unwrap(), &memory, 64, 64 * 700, 1);
        (0..700usize.div_ceil(TURN)).for_each(|_| _ = chain.turn());
        let stored = |line: usize| memory.word(64 * line) == STORED;
        assert!((1..=700).all(stored) && !stored(0) && !(701..1000).any(stored));
    }

    #[test]
    fn an_empty_chain_accesses_nothing() {
        let mut memory = Memory::new(&crate::memory::Place::Dram, crate::memory::Pages::Small, 4096).unwrap();
        stream::fill(&mut memory, 4096);
        let mut chain = Chain::new(&steps("load:64+store:64").unwrap(), &memory, 0, 4096, 1);
        // SAFETY: the memory, which only this thread has.
        unsafe { memory.base().write_bytes(0, 4096) };
        assert!(chain.empty_ns() > 0.0);
        assert!(chain.strayed == 0 && (0..4096).step_by(8).all(|at| memory.word(at) == 0));
    }

    /// Lines are equal and of an even number, so that a sum by exclusive or is that of none.
    #[test]
    fn lines_of_a_block_that_are_not_loaded_are_noticed() {
        let memory = Memory::new(&crate::memory::Place::Dram, crate::memory::Pages::Small, 4096).unwrap();
        let mut chain = Chain::new(&steps("load:256").unwrap(), &memory, 0, 4096, 1);
        chain.turn();
        assert_ne!(chain.strayed, 0, "what lies there is 0");
    }

    #[test]
    fn a_word_that_is_not_what_it_must_be_is_noticed() {
        let mut memory = Memory::new(&crate::memory::Place::Dram, crate::memory::Pages::Small, 4096).unwrap();
        stream::fill(&mut memory, 4096);
        let mut chain = Chain::new(&steps("load:64").unwrap(), &memory, 0, 4096, 1);
        chain.turn();
        assert_eq!(chain.strayed, 0);
        // SAFETY: the first word of the memory, which only this thread has.
        unsafe { memory.base().cast::<u64>().write(1) };
        chain.turn();
        assert_eq!(chain.strayed, STORED ^ 1);
    }
}
