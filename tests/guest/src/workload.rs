//! What a store goes through under power cuts, and how it is compared afterwards.
//!
//! Step n of a seed is always the same set of edits, whatever happened before it: several names change at once, some
//! are removed, and now and then the log is rewritten, the store is closed and opened again, or it grows. The store
//! says itself which step it has, in the object `clock`, which every step sets; so the model only replays the seed. It
//! shares no code with the store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use store::{Error, Media, Object, OpenMode, PartOptions, PersistOptions, Store};

const FILE_BYTES: u64 = 16 << 20;
const GROWTH_BYTES: u64 = 8 << 20;
const MOST_PARTS: usize = 4;
const CLOCK: &str = "clock";
/// So many that new space is taken for a long time: what a mapping without MAP_SYNC loses are pages touched just now.
const NAMES: u64 = 1000;

/// A step's edits: the length of the new content, or none for a name that is removed.
type Edits = BTreeMap<u64, Option<usize>>;

/// What happens to the store before a step.
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

/// Who set a name: the first bytes of every object. A step that a cut interrupted is done again by the next boot, with
/// other content.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stamp {
    step: u64,
    boot: u64,
}

impl Stamp {
    fn encode(self) -> Vec<u8> {
        [self.step, self.boot].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn decode(object: &[u8]) -> Option<Stamp> {
        let (words, _) = object.as_chunks::<8>();
        let (step, boot) = (u64::from_le_bytes(*words.first()?), u64::from_le_bytes(*words.get(1)?));
        Some(Stamp { step, boot })
    }
}

/// A store that goes through the steps.
pub(crate) struct Run<M: Media> {
    media: M,
    path: PathBuf,
    boot: u64,
    model: Model,
    /// There but for the moment between closing and opening.
    store: Option<Store<M>>,
}

impl<M: Media> Run<M> {
    /// Makes the store in the first boot and opens it in later ones; then every byte is compared.
    pub(crate) fn start(media: M, path: &Path, seed: u64, boot: u64) -> Result<Run<M>, String> {
        let store = match boot {
            0 => Store::create(media.clone(), path, &PartOptions::single(FILE_BYTES)),
            _ => Store::open(media.clone(), path, OpenMode::Writer),
        };
        let store = store.map_err(|error| format!("the store cannot be had: {error}"))?;
        let model = Model::after(seed, steps_of(&store)?);
        compare(&store, &model)?;
        Ok(Run { media, path: path.to_owned(), boot, model, store: Some(store) })
    }

    pub(crate) fn steps(&self) -> u64 {
        self.model.steps
    }

    fn store(&self) -> &Store<M> {
        self.store.as_ref().expect("the store could be opened again")
    }

    /// Does the next step. When this returns, the step is acknowledged.
    pub(crate) fn step(&mut self) -> Result<(), Error> {
        let (upkeep, edits) = self.model.advance();
        match upkeep {
            Upkeep::Nothing => {}
            Upkeep::Compact => self.store().pool().compact()?,
            Upkeep::Grow if self.store().info().parts.len() < MOST_PARTS => {
                self.store().grow(None, &PartOptions::single(GROWTH_BYTES))?;
            }
            Upkeep::Grow => {}
            Upkeep::Reopen => {
                self.store.take().map_or(Ok(()), Store::close)?;
                self.store = Some(Store::open(self.media.clone(), &self.path, OpenMode::Writer)?);
            }
        }
        let stamp = Stamp { step: self.model.steps, boot: self.boot };
        let (seed, clock) = (self.model.seed, stamp.encode());
        let objects: Vec<(u64, Option<Vec<u8>>)> =
            edits.into_iter().map(|(name, len)| (name, len.map(|len| content(seed, name, stamp, len)))).collect();
        let mut transaction = self.store().transaction();
        transaction.put(CLOCK, Object::bytes(&clock));
        for (name, object) in &objects {
            match object {
                Some(bytes) => transaction.put(&text(*name), Object::bytes(bytes)),
                None => transaction.remove(&text(*name)),
            };
        }
        transaction.commit(&PersistOptions::default()).map(drop)
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

/// The stamp, and bytes that nothing else has.
fn content(seed: u64, name: u64, stamp: Stamp, len: usize) -> Vec<u8> {
    let mut object = stamp.encode();
    let head = object.len();
    object.resize(head + len, 0);
    Rng::with_seed(mix(seed, stamp.step, stamp.boot, name)).fill(&mut object[head..]);
    object
}

/// The last step that the store has.
fn steps_of<M: Media>(store: &Store<M>) -> Result<u64, String> {
    if !store.contains(CLOCK).map_err(|error| error.to_string())? {
        return Ok(0);
    }
    let clock = store.get(CLOCK).and_then(|view| view.to_bytes()).map_err(|error| error.to_string())?;
    Stamp::decode(&clock).map(|stamp| stamp.step).ok_or_else(|| "the clock is damaged".to_owned())
}

/// The store has the names of the model, each whole, and all names of one step from the same boot.
fn compare<M: Media>(store: &Store<M>, model: &Model) -> Result<(), String> {
    let views = store.get_every().map_err(|error| error.to_string())?;
    let views: Vec<_> = views.iter().filter(|view| view.name() != CLOCK).collect();
    let found: Vec<&str> = views.iter().map(|view| view.name()).collect();
    let expected: Vec<String> = model.names.keys().map(|&name| text(name)).collect();
    if found != expected {
        return Err(format!("after step {} the names are {found:?}, not {expected:?}", model.steps));
    }
    let mut boots = BTreeMap::new();
    for (view, (&name, &(step, len))) in views.iter().zip(&model.names) {
        let bytes = view.to_bytes().map_err(|error| error.to_string())?;
        let stamp = Stamp::decode(&bytes).ok_or_else(|| format!("{} is too short", view.name()))?;
        if stamp.step != step {
            return Err(format!("{} is of step {}, not of step {step}", view.name(), stamp.step));
        }
        if *boots.entry(step).or_insert(stamp.boot) != stamp.boot {
            return Err(format!("step {step} is torn: its names come from different boots"));
        }
        if bytes != content(model.seed, name, stamp, len) {
            return Err(format!("{} of step {step} is torn", view.name()));
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
    fn a_store_is_found_as_it_was_left_however_often_it_is_opened() {
        let media = Heap::new();
        for boot in 0..6 {
            let mut run = run(&media, boot).unwrap();
            assert_eq!(run.steps(), 100 * boot);
            for _ in 0..100 {
                run.step().unwrap();
            }
        }
        assert!(run(&media, 6).unwrap().store().info().parts.len() > 1, "the store grows within 600 steps");
    }

    #[test]
    fn another_seed_a_lost_name_and_a_changed_byte_are_noticed() {
        let media = Heap::new();
        let mut run = run(&media, 0).unwrap();
        for _ in 0..50 {
            run.step().unwrap();
        }
        compare(run.store(), &run.model).unwrap();
        let other_seed = Model::after(8, 50);
        compare(run.store(), &other_seed).unwrap_err();
        compare(run.store(), &Model::after(7, 49)).unwrap_err();

        let pool = run.store().pool();
        let region = pool.regions("name ").unwrap().pop().unwrap();
        let last = region.info().extents[0].offset.plus(16);
        let mut byte = [0];
        pool.set().load_bytes(last, &mut byte);
        pool.set().store_bytes(last, &[byte[0] ^ 1]);
        assert!(compare(run.store(), &run.model).unwrap_err().contains("torn"));
        pool.set().store_bytes(last, &byte);
        compare(run.store(), &run.model).unwrap();

        run.store().remove(region.name()).unwrap();
        compare(run.store(), &run.model).unwrap_err();
    }
}
