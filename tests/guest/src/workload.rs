//! What a pool goes through under power cuts, and how it is compared afterwards.
//!
//! Step n of a seed is always the same set of edits, whatever happened before it: several names change at once, some
//! are removed, and now and then the log is rewritten, the pool is closed and opened again, or it grows. The pool
//! says itself which step it has, in the description of the name `clock`, which every step sets; so the model only
//! replays the seed. It shares no code with the pool.

use std::collections::BTreeMap;
use std::path::Path;

use fastrand::Rng;
use pmem::{Error, Layout, Media, OpenMode, PartOptions, Pending, Pool, RedoBatch, RegionSpec, Touch};

const LAYOUT: Layout = Layout { name: "powercut", version: 1 };
const FILE_BYTES: u64 = 16 << 20;
const GROWTH_BYTES: u64 = 8 << 20;
const MOST_PARTS: usize = 4;
const CLOCK: &str = "clock";
const CLOCK_KIND: u32 = 2;
const CONTENT_KIND: u32 = 1;
/// So many that new space is taken for a long time: what a mapping without MAP_SYNC loses are pages touched just now.
const NAMES: u64 = 1000;

/// A step's edits: the length of the new content, or none for a name that is removed.
type Edits = BTreeMap<u64, Option<usize>>;

/// What happens to the pool before a step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Upkeep {
    Nothing,
    Compact,
    Reopen,
    Grow,
}

/// The state after some steps: for each name the step that set it and the length of its content.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    seed: u64,
    pub(crate) steps: u64,
    names: BTreeMap<u64, (u64, usize)>,
}

impl Model {
    pub(crate) fn new(seed: u64) -> Model {
        Model { seed, steps: 0, names: BTreeMap::new() }
    }

    pub(crate) fn after(seed: u64, steps: u64) -> Model {
        let mut model = Model::new(seed);
        while model.steps < steps {
            model.advance();
        }
        model
    }

    /// One step further.
    fn advance(&mut self) -> (Upkeep, Edits) {
        self.steps += 1;
        let mut rng = Rng::with_seed(mix(self.seed, self.steps, u64::MAX, 0));
        let upkeep = match rng.u32(..200) {
            0..=5 => Upkeep::Compact,
            6..=7 => Upkeep::Reopen,
            8 => Upkeep::Grow,
            _ => Upkeep::Nothing,
        };
        let mut edits = Edits::new();
        for _ in 0..rng.u32(2..7) {
            let name = rng.u64(..NAMES);
            let is_removal = self.names.contains_key(&name) && rng.u32(..6) == 0;
            let most_bytes = if rng.u32(..8) == 0 { 64 << 10 } else { 4 << 10 };
            edits.insert(name, (!is_removal).then(|| rng.usize(1..most_bytes)));
        }
        for (&name, &len) in &edits {
            match len {
                Some(len) => _ = self.names.insert(name, (self.steps, len)),
                None => _ = self.names.remove(&name),
            }
        }
        (upkeep, edits)
    }
}

/// Who set a name: the description of every name.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Meta {
    step: u64,
    /// A step that a cut interrupted is done again by the next boot, with other content.
    boot: u64,
    len_bytes: u64,
}

impl Meta {
    fn encode(self) -> Vec<u8> {
        [self.step, self.boot, self.len_bytes].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Option<Meta> {
        let (words, rest) = bytes.as_chunks::<8>();
        let &[step, boot, len_bytes] = words else { return None };
        let word = |bytes: [u8; 8]| u64::from_le_bytes(bytes);
        rest.is_empty().then(|| Meta { step: word(step), boot: word(boot), len_bytes: word(len_bytes) })
    }
}

/// A pool that goes through the steps.
pub(crate) struct Run<M: Media> {
    media: M,
    boot: u64,
    model: Model,
    /// There but for the moment between closing and opening.
    pool: Option<Pool<M>>,
}

impl<M: Media> Run<M> {
    /// Makes the pool in the first boot and opens it in later ones; then every byte is compared.
    pub(crate) fn start(media: M, path: &Path, seed: u64, boot: u64) -> Result<Run<M>, String> {
        let pool = match boot {
            0 => Pool::create(media.clone(), path, LAYOUT, &PartOptions::single(FILE_BYTES)),
            _ => Pool::open(media.clone(), path, Some(LAYOUT), OpenMode::Writer),
        };
        let pool = pool.map_err(|error| format!("the pool cannot be had: {error}"))?;
        let model = Model::after(seed, steps_of(&pool)?);
        compare(&pool, &model)?;
        Ok(Run { media, boot, model, pool: Some(pool) })
    }

    pub(crate) fn steps(&self) -> u64 {
        self.model.steps
    }

    fn pool(&self) -> &Pool<M> {
        self.pool.as_ref().expect("the pool could be opened again")
    }

    /// Does the next step. When this returns, the step is acknowledged.
    pub(crate) fn step(&mut self) -> Result<(), Error> {
        let (upkeep, edits) = self.model.advance();
        match upkeep {
            Upkeep::Nothing => {}
            Upkeep::Compact => self.pool().compact()?,
            Upkeep::Grow if self.pool().info().parts.len() < MOST_PARTS => {
                self.pool().grow(None, &PartOptions::single(GROWTH_BYTES))?;
            }
            Upkeep::Grow => {}
            Upkeep::Reopen => self.reopen()?,
        }
        let mut batch = RedoBatch::new();
        let clock = Meta { step: self.model.steps, boot: self.boot, len_bytes: 0 };
        batch.put(CLOCK, RegionSpec { kind: CLOCK_KIND, meta: clock.encode(), ..RegionSpec::default() });
        for (name, len) in edits {
            match len {
                Some(len) => _ = batch.put(&text(name), self.filled(name, len)?),
                None => _ = batch.remove(&text(name)),
            }
        }
        self.pool().commit(batch).map(drop)
    }

    fn reopen(&mut self) -> Result<(), Error> {
        let path = self.pool().set().path().to_owned();
        self.pool.take().map_or(Ok(()), Pool::close)?;
        self.pool = Some(Pool::open(self.media.clone(), &path, Some(LAYOUT), OpenMode::Writer)?);
        Ok(())
    }

    /// Space with durable content for a name.
    fn filled(&self, name: u64, len: usize) -> Result<RegionSpec, Error> {
        let meta = Meta { step: self.model.steps, boot: self.boot, len_bytes: len as u64 };
        let reservation = self.pool().reserve(meta.len_bytes)?;
        let at = reservation.extent().offset;
        self.pool().set().guard(at, meta.len_bytes, Touch::Store)?;
        let mut pending = Pending::new();
        self.pool().set().nt_copy(&mut pending, at, &content(self.model.seed, name, meta));
        self.pool().set().fence(&mut pending)?;
        Ok(RegionSpec { kind: CONTENT_KIND, meta: meta.encode(), add: vec![reservation], ..RegionSpec::default() })
    }
}

fn text(name: u64) -> String {
    format!("name {name:03}")
}

/// Every argument changes every bit (the finalizer of SplitMix64).
fn mix(seed: u64, step: u64, boot: u64, name: u64) -> u64 {
    [step, boot, name].iter().fold(seed, |sum, word| {
        let mut mixed = (sum ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}

fn content(seed: u64, name: u64, meta: Meta) -> Vec<u8> {
    let mut bytes = vec![0; meta.len_bytes as usize];
    Rng::with_seed(mix(seed, meta.step, meta.boot, name)).fill(&mut bytes);
    bytes
}

/// The last step that the pool has.
fn steps_of<M: Media>(pool: &Pool<M>) -> Result<u64, String> {
    match pool.region(CLOCK) {
        Ok(region) => Meta::decode(&region.info().meta).map(|meta| meta.step).ok_or("the clock is damaged".into()),
        Err(Error::NoSuchName { .. }) => Ok(0),
        Err(error) => Err(error.to_string()),
    }
}

/// The pool has the names of the model, each whole, and all names of one step from the same boot.
fn compare<M: Media>(pool: &Pool<M>, model: &Model) -> Result<(), String> {
    let regions = pool.regions("name ").map_err(|error| error.to_string())?;
    let found: Vec<&str> = regions.iter().map(|region| region.name()).collect();
    let expected: Vec<String> = model.names.keys().map(|&name| text(name)).collect();
    if found != expected {
        return Err(format!("after step {} the names are {found:?}, not {expected:?}", model.steps));
    }
    let mut boots = BTreeMap::new();
    for (region, (&name, &(step, len))) in regions.iter().zip(&model.names) {
        let meta = Meta::decode(&region.info().meta).ok_or_else(|| format!("{}: damaged meta", region.name()))?;
        if (meta.step, meta.len_bytes) != (step, len as u64) {
            return Err(format!("{} is {meta:?}, not of step {step} with {len} bytes", region.name()));
        }
        if *boots.entry(step).or_insert(meta.boot) != meta.boot {
            return Err(format!("step {step} is torn: its names come from different boots"));
        }
        region.guard().map_err(|error| error.to_string())?;
        let mut bytes = vec![0; len];
        region.load_bytes(0, 0, &mut bytes);
        if bytes != content(model.seed, name, meta) {
            return Err(format!("{} of step {step} is torn", region.name()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmem::Heap;

    fn run(media: &Heap, boot: u64) -> Result<Run<Heap>, String> {
        Run::start(media.clone(), Path::new("/pools/p"), 7, boot)
    }

    #[test]
    fn a_pool_is_found_as_it_was_left_however_often_it_is_opened() {
        let media = Heap::new();
        for boot in 0..6 {
            let mut run = run(&media, boot).unwrap();
            assert_eq!(run.steps(), 100 * boot);
            for _ in 0..100 {
                run.step().unwrap();
            }
        }
        assert!(run(&media, 6).unwrap().pool().info().parts.len() > 1, "the pool grows within 600 steps");
    }

    #[test]
    fn another_seed_a_lost_name_and_a_changed_byte_are_noticed() {
        let media = Heap::new();
        let mut run = run(&media, 0).unwrap();
        for _ in 0..50 {
            run.step().unwrap();
        }
        compare(run.pool(), &run.model).unwrap();
        let other_seed = Model::after(8, 50);
        compare(run.pool(), &other_seed).unwrap_err();
        compare(run.pool(), &Model::after(7, 49)).unwrap_err();

        let region = run.pool().regions("name ").unwrap().pop().unwrap();
        let at = region.info().extents[0].offset;
        let mut byte = [0];
        run.pool().set().load_bytes(at, &mut byte);
        run.pool().set().store_bytes(at, &[byte[0] ^ 1]);
        assert!(compare(run.pool(), &run.model).unwrap_err().contains("torn"));
        run.pool().set().store_bytes(at, &byte);
        compare(run.pool(), &run.model).unwrap();

        let mut batch = RedoBatch::new();
        batch.remove(region.name());
        run.pool().commit(batch).unwrap();
        compare(run.pool(), &run.model).unwrap_err();
    }
}
