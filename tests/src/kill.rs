//! What a store goes through that is killed at any moment, and how it is compared afterwards.
//!
//! Step n of a seed is always the same set of edits, whatever happened before it. The store says itself which step it
//! has, in the object `clock`, which every step sets; so the model only replays the seed. It shares no code with the
//! store. A step that a kill interrupted is done again by the next process, with other content: every object carries
//! the number of the process that made it.

pub mod roles;

use std::collections::BTreeMap;

use fastrand::Rng;
use store::{Error, Media, Store};

/// The object that says which step the store has.
pub const CLOCK: &str = "clock";
/// Few, so that most puts replace something.
const NAMES: u64 = 24;

/// What happens to the store before the edits of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// Nothing.
    Nothing,
    /// The log is rewritten.
    Compact,
    /// The store is closed in order and opened again.
    Reopen,
    /// A part is added, if there are few.
    Grow,
    /// What nobody needs is freed.
    Gc,
    /// All objects are viewed from here on.
    Hold,
    /// All views are dropped.
    LetGo,
}

/// One step: some upkeep, then one commit.
#[derive(Clone, Debug)]
pub struct Step {
    /// What comes before the commit.
    pub upkeep: Upkeep,
    /// New contents: name and length.
    pub puts: BTreeMap<u64, usize>,
    /// Names that go.
    pub removes: Vec<u64>,
    /// Whether the payloads get checksums.
    pub is_summed: bool,
}

/// The state after some steps: for each name the step that set it and the length of its content.
#[derive(Clone, Debug)]
pub struct Model {
    seed: u64,
    steps: u64,
    names: BTreeMap<u64, (u64, usize)>,
}

impl Model {
    /// The empty store.
    pub fn new(seed: u64) -> Model {
        Model { seed, steps: 0, names: BTreeMap::new() }
    }

    /// The state after so many steps.
    pub fn after(seed: u64, steps: u64) -> Model {
        let mut model = Model::new(seed);
        model.advance_to(steps);
        model
    }

    /// How many steps it has gone.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The seed of its steps.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Goes on to a later step.
    pub fn advance_to(&mut self, steps: u64) {
        while self.steps < steps {
            self.advance();
        }
    }

    /// One step further.
    pub fn advance(&mut self) -> Step {
        self.steps += 1;
        let mut rng = Rng::with_seed(mix(&[self.seed, self.steps]));
        let upkeep = match rng.u32(..60) {
            0..=2 => Upkeep::Compact,
            3..=5 => Upkeep::Reopen,
            6 | 7 => Upkeep::Grow,
            8..=11 => Upkeep::Gc,
            12..=14 => Upkeep::Hold,
            15..=17 => Upkeep::LetGo,
            _ => Upkeep::Nothing,
        };
        let mut step = Step { upkeep, puts: BTreeMap::new(), removes: Vec::new(), is_summed: rng.bool() };
        for _ in 0..rng.u32(2..7) {
            let name = rng.u64(..NAMES);
            if step.puts.contains_key(&name) || step.removes.contains(&name) {
                continue;
            }
            if self.names.contains_key(&name) && rng.u32(..5) == 0 {
                step.removes.push(name);
            } else {
                let most_bytes = if rng.u32(..8) == 0 { 32 << 10 } else { 2 << 10 };
                step.puts.insert(name, rng.usize(..most_bytes));
            }
        }
        self.names.retain(|name, _| !step.removes.contains(name));
        self.names.extend(step.puts.iter().map(|(&name, &len)| (name, (self.steps, len))));
        step
    }

    /// The store has exactly these objects, every byte of them, and all names of one step from one process. Tells which
    /// process made each of the steps that are left.
    ///
    /// # Errors
    /// Says what differs.
    pub fn compare<M: Media>(&self, store: &Store<M>) -> Result<BTreeMap<u64, u64>, String> {
        let views = store.get_every().map_err(text)?;
        let found: Vec<&str> = views.iter().map(|view| view.name()).filter(|name| *name != CLOCK).collect();
        let expected: Vec<String> = self.names.keys().map(|&name| title(name)).collect();
        if found != expected {
            return Err(format!("after step {} the names are {found:?}, not {expected:?}", self.steps));
        }
        let mut lives = BTreeMap::new();
        let objects = views.iter().filter(|view| view.name() != CLOCK);
        for (view, (&name, &(step, len))) in objects.zip(&self.names) {
            view.verify().map_err(text)?;
            let bytes = view.to_bytes().map_err(text)?;
            let Some(stamp) = Stamp::decode(&bytes) else { return Err(format!("{} is too short", view.name())) };
            if stamp.step != step {
                return Err(format!("{} is of step {}, not of step {step}", view.name(), stamp.step));
            }
            if *lives.entry(step).or_insert(stamp.life) != stamp.life {
                return Err(format!("step {step} is torn: its names come from different processes"));
            }
            if bytes != content(self.seed, name, stamp, len) {
                return Err(format!("{} of step {step} is torn", view.name()));
            }
        }
        if let Some(clock) = stamp_of(store)? {
            lives.insert(clock.step, clock.life);
        }
        Ok(lives)
    }
}

/// Who set a name: the first bytes of every object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The step.
    pub step: u64,
    /// The number of the process.
    pub life: u64,
}

impl Stamp {
    /// Its bytes.
    pub fn encode(self) -> Vec<u8> {
        [self.step, self.life].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn decode(object: &[u8]) -> Option<Stamp> {
        let (words, _) = object.as_chunks::<8>();
        let (step, life) = (u64::from_le_bytes(*words.first()?), u64::from_le_bytes(*words.get(1)?));
        Some(Stamp { step, life })
    }
}

/// What the clock says; nothing in a new store.
///
/// # Errors
/// The clock cannot be read.
pub fn stamp_of<M: Media>(store: &Store<M>) -> Result<Option<Stamp>, String> {
    if !store.contains(CLOCK).map_err(text)? {
        return Ok(None);
    }
    let clock = store.get(CLOCK).and_then(|view| view.to_bytes()).map_err(text)?;
    Stamp::decode(&clock).map(Some).ok_or_else(|| "the clock is damaged".to_owned())
}

/// The name in the store.
pub fn title(name: u64) -> String {
    format!("name {name:02}")
}

/// The stamp, and bytes that nothing else has.
pub fn content(seed: u64, name: u64, stamp: Stamp, len: usize) -> Vec<u8> {
    let mut object = stamp.encode();
    let head = object.len();
    object.resize(head + len, 0);
    Rng::with_seed(mix(&[seed, stamp.step, stamp.life, name])).fill(&mut object[head..]);
    object
}

/// Every word changes every bit (the finalizer of SplitMix64).
pub fn mix(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| {
        let mut mixed = (sum ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}

/// An error with its code.
pub fn text(error: Error) -> String {
    format!("{error} [{}]", error.code().name())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pmem::Heap;
    use store::{Object, OpenMode, PartOptions, PersistOptions};

    use super::*;

    fn heap_store(steps: u64, life: u64) -> Store<Heap> {
        let media = Heap::new();
        let path = Path::new("/pools/p");
        drop(Store::create(media.clone(), path, &PartOptions::single(16 << 20)).unwrap());
        let store = Store::open(media, path, OpenMode::Writer).unwrap();
        let mut model = Model::new(7);
        for _ in 0..steps {
            let step = model.advance();
            roles::commit(&store, 7, Stamp { step: model.steps(), life }, &step).unwrap();
        }
        store
    }

    #[test]
    fn a_store_is_what_its_model_says() {
        let store = heap_store(60, 3);
        let lives = Model::after(7, 60).compare(&store).unwrap();
        assert!(lives.values().all(|&life| life == 3) && lives.contains_key(&60), "{lives:?}");
    }

    #[test]
    fn another_seed_a_lost_name_a_changed_byte_and_half_a_step_are_noticed() {
        let store = heap_store(50, 1);
        let model = Model::after(7, 50);
        Model::after(8, 50).compare(&store).unwrap_err();
        Model::after(7, 49).compare(&store).unwrap_err();

        let is_one_of_several = |of: u64| model.names.values().filter(|(step, _)| *step == of).count() > 1;
        let torn = model.names.iter().find(|(_, (step, len))| *len > 0 && is_one_of_several(*step));
        let (&name, &(step, len)) = torn.expect("most steps have several names");
        let last = store.pool().region(&title(name)).unwrap().info().extents[0].offset.plus(16);
        let mut byte = [0];
        store.pool().set().load_bytes(last, &mut byte);
        store.pool().set().store_bytes(last, &[byte[0] ^ 1]);
        model.compare(&store).unwrap_err();
        store.pool().set().store_bytes(last, &byte);
        model.compare(&store).unwrap();

        let other = content(7, name, Stamp { step, life: 2 }, len);
        store.persist(&[(&title(name), Object::bytes(&other))], &PersistOptions::default()).unwrap();
        assert!(model.compare(&store).unwrap_err().contains("different processes"));

        store.remove(&title(name)).unwrap();
        model.compare(&store).unwrap_err();
    }
}
