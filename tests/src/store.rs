//! The store under crashes: several objects at once, replacement, removal, reclaim, restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, RangeInclusive};
use std::path::Path;
use std::sync::Mutex;

use crash::{Protocol, Sim};
use pmem::{MIN_FILE_BYTES, Media, OpenMode, PartOptions};
use store::{
    Array, Buffer, Checksums, DType, Descriptor, DirectView, Element, Error, Flags, Node, Object, ObjectKind,
    ObjectView, Order, PersistOptions, Store,
};

use crate::probe::{self, PROBE, candidates, is_probed, probed, unprobed};

/// One step of a workload.
#[derive(Clone, Debug)]
pub enum Step {
    /// Persists objects, all at once: name, first number and how many.
    Persist(Vec<(&'static str, u32, usize)>),
    /// Removes one and persists another at once.
    Replace(&'static str, (&'static str, u32, usize)),
    /// Gives some numbers of an object a new value: name, the first one's place, and as in [`Step::Persist`]. What the
    /// object has not is left out.
    Change(&'static str, usize, u32, usize),
    /// The same, while somebody else takes a view of the object, so that what changed cannot go home.
    ChangeBesideALook(&'static str, usize, u32, usize),
    /// Makes an object in the pool to begin with, as in [`Step::Persist`]; it has numbers.
    Draft(&'static str, u32, usize),
    /// Changes numbers of an array where they lie, when all views are gone, as in [`Step::Change`], and persists that. Until
    /// then old and new ones may be mixed, and the array says so.
    InPlace(&'static str, usize, u32, usize),
    /// Changes more of it, and is done with it.
    LeaveInPlace(&'static str, usize, u32, usize),
    /// Removes a name.
    Remove(&'static str),
    /// Gives an object a name that nothing has.
    Rename(&'static str, &'static str),
    /// Gives an object a name that another one has.
    RenameOver(&'static str, &'static str),
    /// Frees what nobody needs.
    Gc,
    /// Holds a view of a name from here on, so that its extent must stay.
    View(&'static str),
    /// Lets all views go.
    DropViews,
    /// Closes the store in order and opens it again.
    Reopen,
    /// Drops everything without closing, as `kill -9` does, and opens it again.
    Kill,
}

/// A workload over one store. The model is a map from names to numbers.
pub struct StoreSteps {
    /// Operation 1 is the creation; step i is operation i + 2.
    pub steps: Vec<Step>,
}

type Model = BTreeMap<String, Vec<u32>>;

/// What has this name is a value of several parts, others are arrays.
const VALUE: &str = "v";

fn path() -> &'static Path {
    Path::new("/pools/store")
}

fn numbers(first: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|index| first.wrapping_mul(0x9e37_79b9).rotate_left(index % 32) ^ index).collect()
}

fn open(sim: &Sim, mode: OpenMode) -> Result<Store<Sim>, Error> {
    Store::open(sim.clone(), path(), mode)
}

fn summed() -> PersistOptions<'static> {
    PersistOptions { checksums: Checksums::Crc32c, ..PersistOptions::default() }
}

/// A writer and the views that it gave out, with what they showed at first.
struct Life {
    store: Store<Sim>,
    views: Vec<(ObjectView<Sim>, Vec<u32>)>,
    /// An array that is changed in place.
    in_place: Option<DirectView>,
}

impl StoreSteps {
    /// Everything a store does, in one short life.
    pub fn everything() -> StoreSteps {
        StoreSteps {
            steps: vec![
                Step::Persist(vec![("a", 1, 70), ("b", 2, 80)]),
                Step::Change("b", 14, 11, 4),
                Step::View("a"),
                Step::Change("a", 0, 12, 1),
                Step::Persist(vec![("a", 3, 20), ("c", 4, 0), (VALUE, 17, 90)]),
                Step::Change(VALUE, 44, 18, 3),
                Step::Gc,
                Step::Rename("b", "f"),
                Step::Remove("f"),
                Step::Kill,
                Step::Persist(vec![("d", 5, 93), ("b", 6, 7)]),
                Step::ChangeBesideALook("d", 30, 13, 9),
                Step::Change("d", 2, 14, 1),
                Step::View("b"),
                Step::Replace("b", ("a", 7, 50)),
                Step::Reopen,
                Step::DropViews,
                Step::Gc,
                Step::Persist(vec![("b", 8, 20), ("a", 9, 80), ("e", 10, 1)]),
                Step::ChangeBesideALook("a", 15, 15, 3),
                Step::RenameOver("a", "b"),
                Step::DropViews,
                Step::Gc,
                Step::ChangeBesideALook("b", 3, 16, 2),
                Step::Kill,
                Step::Gc,
                Step::Remove("d"),
            ],
        }
    }

    /// What is made in the pool and changed there.
    pub fn direct() -> StoreSteps {
        StoreSteps {
            steps: vec![
                Step::Persist(vec![("d", 1, 60)]),
                Step::Draft("d", 2, 60),
                Step::InPlace("d", 7, 3, 30),
                Step::Persist(vec![("g", 4, 5)]),
                Step::LeaveInPlace("d", 22, 5, 40),
                Step::InPlace("d", 3, 6, 6),
                Step::Kill,
                Step::Change("d", 9, 7, 3),
                Step::Remove("g"),
            ],
        }
    }

    /// A random life.
    pub fn random(seed: u64, steps: usize) -> StoreSteps {
        const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut live: Vec<&'static str> = Vec::new();
        let mut next = 0;
        let steps = (0..steps)
            .map(|_| match rng.u32(..20) {
                0 => Step::Kill,
                1 => Step::Reopen,
                2 | 3 => Step::Gc,
                4 => Step::DropViews,
                5 | 6 if !live.is_empty() => Step::View(live[rng.usize(..live.len())]),
                7 | 8 if !live.is_empty() => Step::Remove(live.swap_remove(rng.usize(..live.len()))),
                9 | 12..=15 if !live.is_empty() => {
                    next += 1;
                    let (name, at, len) = (live[rng.usize(..live.len())], rng.usize(..100), rng.usize(1..20));
                    match rng.u32(..5) {
                        0 => Step::ChangeBesideALook(name, at, next, len),
                        1 => Step::InPlace(name, at, next, len),
                        2 => Step::Draft(name, next, len),
                        _ => Step::Change(name, at, next, len),
                    }
                }
                10 | 11 if live.len() > 1 => {
                    rng.shuffle(&mut live);
                    let old = live.pop().expect("there are two");
                    match NAMES.into_iter().find(|name| !live.contains(name) && *name != old) {
                        Some(new) if rng.bool() => {
                            live.push(new);
                            Step::Rename(old, new)
                        }
                        _ => Step::RenameOver(old, live[0]),
                    }
                }
                _ => {
                    let mut names = NAMES;
                    rng.shuffle(&mut names);
                    let puts = names[..rng.usize(1..4)].iter().map(|&name| {
                        next += 1;
                        (name, next, rng.usize(..100))
                    });
                    let puts: Vec<_> = puts.collect();
                    live.extend(puts.iter().map(|put| put.0));
                    live.sort_unstable();
                    live.dedup();
                    Step::Persist(puts)
                }
            })
            .flat_map(|step| match step {
                Step::InPlace(name, at, first, len) => {
                    let leave = Step::LeaveInPlace(name, at + len / 2, first.wrapping_add(1 << 20), len);
                    match first % 4 {
                        0 => vec![step, Step::Kill],
                        1 => vec![step, Step::Reopen],
                        2 => vec![step, Step::Persist(vec![("g", first, len)]), leave],
                        _ => vec![step, leave],
                    }
                }
                step => vec![step],
            })
            .collect();
        StoreSteps { steps }
    }

    /// The model after so many operations; operation 1 is the creation.
    fn model(&self, operations: usize) -> Model {
        let mut model = Model::new();
        for step in self.steps.iter().take(unprobed(operations).saturating_sub(1)) {
            match step {
                Step::Persist(puts) => {
                    model.extend(puts.iter().map(|&(name, first, len)| (name.to_owned(), numbers(first, len))));
                }
                Step::Replace(gone, (name, first, len)) => {
                    model.remove(*gone);
                    model.insert((*name).to_owned(), numbers(*first, *len));
                }
                Step::Draft(name, first, len) => drop(model.insert((*name).to_owned(), numbers(*first, *len))),
                Step::Change(name, at, first, len)
                | Step::ChangeBesideALook(name, at, first, len)
                | Step::InPlace(name, at, first, len)
                | Step::LeaveInPlace(name, at, first, len) => {
                    let all = model.get_mut(*name).expect("what is changed is there");
                    let changed = all.iter_mut().skip(*at).zip(numbers(*first, *len));
                    changed.for_each(|(number, new)| *number = new);
                }
                Step::Remove(name) => drop(model.remove(*name)),
                Step::Rename(old, new) | Step::RenameOver(old, new) => {
                    let moved = model.remove(*old).expect("what is renamed is there");
                    model.insert((*new).to_owned(), moved);
                }
                Step::Gc | Step::View(_) | Step::DropViews | Step::Reopen | Step::Kill => {}
            }
        }
        model
    }

    fn perform(sim: &Sim, mut life: Life, step: &Step) -> Result<Life, Error> {
        match step {
            Step::Persist(puts) => persist(&life.store, None, puts)?,
            Step::Replace(gone, put) => persist(&life.store, Some(gone), &[*put])?,
            Step::Change(name, at, first, len) => change(&life.store, name, *at, &numbers(*first, *len), &|| ())?,
            Step::ChangeBesideALook(name, at, first, len) => {
                let late = Mutex::new(None);
                let look = || {
                    let mut late = late.lock().expect("nobody panics with it");
                    late.get_or_insert_with(|| life.store.get(name));
                };
                change(&life.store, name, *at, &numbers(*first, *len), &look)?;
                if let Some(view) = late.into_inner().expect("nobody panics with it") {
                    let view = view?;
                    let shown = numbers_of(&view)?;
                    life.views.push((view, shown));
                }
            }
            Step::Draft(name, first, len) => draft(&life.store, name, &numbers(*first, *len))?,
            Step::InPlace(name, at, first, len) => {
                life.views.clear();
                life.in_place = in_place(&life.store, name)?;
                if let Some(view) = &life.in_place {
                    store_numbers(&life.store, view, *at, &numbers(*first, *len));
                    persist_direct(&life.store, name, view)?;
                }
            }
            Step::LeaveInPlace(_, at, first, len) => {
                if let Some(view) = life.in_place.take() {
                    store_numbers(&life.store, &view, *at, &numbers(*first, *len));
                }
                life.store.gc()?;
            }
            Step::Remove(name) => drop(life.store.remove(name)?),
            Step::Rename(old, new) => drop(life.store.rename(old, new)?),
            Step::RenameOver(old, new) => drop(life.store.rename_over(old, new)?),
            Step::Gc => drop(life.store.gc()?),
            Step::View(name) => {
                let view = life.store.get(name)?;
                let shown = numbers_of(&view)?;
                life.views.push((view, shown));
            }
            Step::DropViews => life.views.clear(),
            Step::Reopen => {
                life.in_place = None;
                life.store.close()?;
                life.store = open(sim, OpenMode::Writer)?;
            }
            Step::Kill => {
                sim.kill();
                drop(life);
                life = Life { store: open(sim, OpenMode::Writer)?, views: Vec::new(), in_place: None };
            }
        }
        for (view, shown) in &life.views {
            assert_eq!(&numbers_of(view)?, shown, "a view of {:?} changed", view.name());
        }
        Ok(life)
    }

    /// How many operations explain what the store holds, and whether an array says that it was being changed in place.
    fn explain(&self, store: &Store<Sim>, allowed: &RangeInclusive<usize>) -> Result<(usize, bool), String> {
        let text = |e: Error| format!("{e} [{}]", e.code().name());
        let (mut found, mut mixed) = (Model::new(), BTreeSet::new());
        for view in store.get_every().map_err(text)? {
            view.verify().map_err(text)?;
            let flags = view.descriptor().flags();
            if flags.contains(Flags::IN_PLACE) || flags.contains(Flags::INTERRUPTED) {
                mixed.insert(view.name().to_owned());
            }
            found.insert(view.name().to_owned(), numbers_of(&view).map_err(text)?);
        }
        let probe = found.remove(PROBE);
        if probe.as_ref().is_some_and(|probe| *probe != numbers(1, 5)) {
            return Err(format!("the probe holds {probe:?}"));
        }
        // Several operations may leave the same contents; the newest allowed one is as good as any.
        let names: Vec<String> = found.keys().cloned().collect();
        let fits = |&operations: &usize| self.fits(operations, &found, &mixed);
        let mut fitting = candidates(allowed, probe.is_some()).filter(fits);
        let unknown = || format!("the names {names:?}, probe {}, fit no allowed state", probe.is_some());
        Ok((fitting.next().ok_or_else(unknown)?, !mixed.is_empty()))
    }

    /// Whether these are the contents after so many operations. An array that was being changed in place may have what the
    /// next operation gives it, number by number.
    fn fits(&self, operations: usize, found: &Model, mixed: &BTreeSet<String>) -> bool {
        let (model, next) = (self.model(operations), self.model(operations + 1));
        let fits = |(name, numbers): (&String, &Vec<u32>)| {
            let Some(old) = model.get(name).filter(|old| old.len() == numbers.len()) else { return false };
            let new = next.get(name).filter(|new| mixed.contains(name) && new.len() == old.len()).unwrap_or(old);
            numbers.iter().zip(old).zip(new).all(|((number, old), new)| number == old || number == new)
        };
        model.len() == found.len() && found.iter().all(fits)
    }
}

/// Makes an array in the pool, and persists it there.
fn draft(store: &Store<Sim>, name: &str, numbers: &[u32]) -> Result<(), Error> {
    let draft = store.draft_within(4 * numbers.len() as u64)?;
    store_numbers(store, &draft, 0, numbers);
    persist_direct(store, name, &draft)
}

/// An array to be changed where it lies, if it has numbers.
fn in_place(store: &Store<Sim>, name: &str) -> Result<Option<DirectView>, Error> {
    let is_empty = store.get(name)?.descriptor().payload_bytes() == 0;
    if is_empty { Ok(None) } else { store.in_place_within(name).map(Some) }
}

/// Stores numbers where they lie, as far as there is room.
fn store_numbers(store: &Store<Sim>, view: &DirectView, at: usize, numbers: &[u32]) {
    let has = (view.len_bytes() / 4).saturating_sub(at);
    let bytes: Vec<u8> = numbers.iter().take(has).flat_map(|number| number.to_le_bytes()).collect();
    if !bytes.is_empty() {
        store.pool().set().store_bytes(view.extent().offset.plus(4 * at as u64), &bytes);
    }
}

fn persist_direct(store: &Store<Sim>, name: &str, view: &DirectView) -> Result<(), Error> {
    let numbers = view.len_bytes() as u64 / 4;
    let descriptor = Descriptor::array(u32::dtype(), &[numbers], Order::RowMajor)?;
    store.persist(&[(name, Object::from_source(descriptor, view.into())?)], &summed()).map(drop)
}

fn persist(store: &Store<Sim>, gone: Option<&str>, puts: &[(&str, u32, usize)]) -> Result<(), Error> {
    let arrays: Vec<Vec<u32>> = puts.iter().map(|&(_, first, len)| numbers(first, len)).collect();
    let bytes: Vec<Vec<u8>> = arrays.iter().map(|array| array.iter().flat_map(|n| n.to_le_bytes()).collect()).collect();
    let mut transaction = store.transaction();
    if let Some(gone) = gone {
        transaction.remove(gone);
    }
    for (((name, _, len), array), bytes) in puts.iter().zip(&arrays).zip(&bytes) {
        transaction.put(name, if *name == VALUE { value(bytes)? } else { Object::array(array, &[*len as u64])? });
    }
    transaction.commit(&summed()).map(drop)
}

/// Numbers in two buffers, and a tree that is too long for the catalogue.
fn value(bytes: &[u8]) -> Result<Object<'_>, Error> {
    let (first, second) = bytes.split_at(first_bytes(bytes.len()));
    let array = |buffer, len: usize| {
        let shape = vec![len as u64];
        Node::Array(Array { dtype: DType::U8, shape, order: Order::RowMajor, buffer: Buffer(buffer) })
    };
    let long = Node::Text("remanence ".repeat(1700));
    let tree = Node::List(vec![array(0, first.len()), long, array(1, second.len())]);
    Object::value(tree, vec![first.into(), second.into()])
}

/// How many bytes of a value's numbers lie in its first buffer.
fn first_bytes(len_bytes: usize) -> usize {
    len_bytes / 2 / 4 * 4
}

/// The numbers of an array or a value.
fn numbers_of(view: &ObjectView<Sim>) -> Result<Vec<u32>, Error> {
    if view.descriptor().kind() != ObjectKind::Value {
        return view.to_vec();
    }
    let value = view.value()?;
    let bytes = [value.to_bytes(Buffer(0))?, value.to_bytes(Buffer(1))?].concat();
    Ok(bytes.chunks(4).map(|number| u32::from_le_bytes(number.try_into().expect("4 bytes"))).collect())
}

/// Changes numbers of an object, as far as it has them; `look` is called while they are copied.
fn change(store: &Store<Sim>, name: &str, at: usize, numbers: &[u32], look: &(dyn Fn() + Sync)) -> Result<(), Error> {
    let (has, is_value) = {
        let view = store.get(name)?;
        (view.descriptor().payload_bytes() as usize / 4, view.descriptor().kind() == ObjectKind::Value)
    };
    let bytes: Vec<u8> = numbers.iter().take(has.saturating_sub(at)).flat_map(|number| number.to_le_bytes()).collect();
    let tell = |_| {
        look();
        ControlFlow::Continue(())
    };
    let mut transaction = store.transaction();
    let at = 4 * at.min(has);
    let split = if is_value { first_bytes(4 * has) } else { 4 * has };
    let (first, second) = bytes.split_at(split.saturating_sub(at).min(bytes.len()));
    transaction.change(name, Buffer(0), at.min(split) as u64, first.into());
    if !second.is_empty() {
        transaction.change(name, Buffer(1), at.saturating_sub(split) as u64, second.into());
    }
    // By some put together in memory first, and by others not.
    let gather_bytes = if at.is_multiple_of(8) { 0 } else { summed().gather_bytes };
    transaction.commit(&PersistOptions { progress: Some(&tell), gather_bytes, ..summed() }).map(drop)
}

/// After gc nothing is neither free nor used. What is left is the log: a segment and a spare of 64 KiB each.
fn check_space(store: &Store<Sim>) -> Result<(), String> {
    let text = |e: Error| e.to_string();
    store.gc().map_err(text)?;
    let used_bytes: u64 = store.ls().map_err(text)?.iter().map(|object| object.extent_bytes).sum();
    let info = store.info();
    let left = info.total_bytes - (2 << 20) - info.free_bytes - info.retired_bytes - used_bytes;
    if left != 128 << 10 || info.retired_bytes != 0 {
        return Err(format!("{left} bytes are neither free nor used, {} are retired", info.retired_bytes));
    }
    Ok(())
}

impl Protocol for StoreSteps {
    fn workload(&self, sim: &Sim) {
        let options = PartOptions::single(MIN_FILE_BYTES);
        sim.started(1);
        let store = Store::create(sim.clone(), path(), &options).expect("a new store");
        let mut life = Life { store, views: Vec::new(), in_place: None };
        sim.acknowledged(1);
        for (operation, step) in (2..).zip(&self.steps) {
            sim.started(operation);
            life = Self::perform(sim, life, step).unwrap_or_else(|e| panic!("{step:?}: {e}"));
            sim.acknowledged(operation);
        }
        life.store.close().expect("no fault is injected");
    }

    fn recover(&self, sim: &Sim, allowed: RangeInclusive<usize>) -> Result<usize, String> {
        let text = |e: Error| format!("{e} [{}]", e.code().name());
        if *allowed.start() == 0 && !sim.exists(path()).map_err(|e| e.to_string())? {
            return Ok(0);
        }
        let reader = open(sim, OpenMode::Reader).map_err(text)?;
        let (seen, may_change) = self.explain(&reader, &allowed)?;
        // Nobody is promised what an array has that was being changed: not before the next writer has made it durable.
        if !may_change {
            sim.observed(seen);
        }
        drop(reader);
        let store = open(sim, OpenMode::Writer).map_err(text)?;
        let (state, _) = self.explain(&store, &allowed)?;
        sim.observed(state);
        if !may_change && seen != state && self.model(seen) != self.model(state) {
            return Err(format!("a reader saw state {seen}, the writer after it {state}"));
        }
        check_space(&store)?;
        // Recovered again, after a kill: the same. Then it is written to, and opened once more.
        sim.kill();
        drop(store);
        let store = open(sim, OpenMode::Writer).map_err(text)?;
        self.explain(&store, &(state..=state))?;
        let next = probed(state);
        sim.started(next);
        persist(&store, None, &[(PROBE, 1, 5)]).map_err(text)?;
        sim.acknowledged(next);
        store.close().map_err(text)?;
        let store = open(sim, OpenMode::Writer).map_err(text)?;
        self.explain(&store, &(next..=next))?;
        Ok(state)
    }

    fn same(&self, a: usize, b: usize) -> bool {
        a > 0 && b > 0 && is_probed(a) == is_probed(b) && self.model(a) == self.model(b)
    }

    fn allows(&self, allowed: &RangeInclusive<usize>, state: usize) -> bool {
        probe::allows(allowed, state, |a, b| self.same(a, b))
    }
}
