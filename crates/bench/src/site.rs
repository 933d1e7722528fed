//! Where cells are measured: the memory that they share, and how long a sample takes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use report::Provenance;

use crate::code;
use crate::error::{Error, Result};
use crate::join::{Input, Relations};
use crate::measure::Cell;
use crate::memory::{self, Memory, Pages, Place};
use crate::run::Described;

/// Memory of each place and page size, which cells take turns to use.
#[derive(Debug)]
pub struct Site {
    memories: BTreeMap<(Place, Pages), Memory>,
    /// The relations that were joined last: making them takes longer than joining them.
    relations: Option<Rc<Relations>>,
    /// How long a sample is that takes as long as it is given.
    pub sample_time: Duration,
}

impl Site {
    /// Maps as much of each place as the most demanding cell needs.
    ///
    /// # Errors
    /// `NoRoom` or `Memory` when there is not so much.
    pub fn new<'c>(cells: impl IntoIterator<Item = &'c Cell>, sample_time: Duration) -> Result<Site> {
        let (site, refused) = Site::for_those_that_fit(cells, sample_time);
        refused.into_iter().flatten().next().map_or(Ok(site), Err)
    }

    /// Maps as much of each place as the most demanding of those cells needs that there is room for, and says why the others
    /// have none.
    pub fn for_those_that_fit<'c>(
        cells: impl IntoIterator<Item = &'c Cell>,
        sample_time: Duration,
    ) -> (Site, Vec<Option<Error>>) {
        let mut refused: Vec<Option<Error>> = Vec::new();
        let mut needed: BTreeMap<(Place, Pages), Vec<(usize, usize)>> = BTreeMap::new();
        for (number, cell) in cells.into_iter().enumerate() {
            let needs = cell.needs();
            if let Ok(memory_bytes @ 1..) = needs.as_ref().map(|needs| needs.memory_bytes) {
                needed.entry(cell.place()).or_default().push((memory_bytes, number));
            }
            refused.push(needs.err());
        }
        let mut memories: BTreeMap<(Place, Pages), Memory> = BTreeMap::new();
        for ((place, pages), mut sizes) in needed {
            // The most demanding first: once there is as much as one needs, there is for all that come after it.
            sizes.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
            for (memory_bytes, number) in sizes {
                match Memory::new(&place, pages, memory_bytes) {
                    Ok(memory) => {
                        memories.insert((place, pages), memory);
                        break;
                    }
                    Err(error) => refused[number] = Some(error),
                }
            }
        }
        (Site { memories, relations: None, sample_time }, refused)
    }

    /// The memory of a cell's place.
    ///
    /// # Errors
    /// `Memory` when the cell is none of those that the site was made for.
    pub fn memory(&mut self, cell: &Cell) -> Result<&mut Memory> {
        let place = cell.place();
        self.memories.get_mut(&place).ok_or_else(|| Error::memory(format!("nothing is mapped at {place:?}")))
    }

    /// Relations of this input.
    ///
    /// # Errors
    /// `Memory` when there is not so much.
    pub fn relations(&mut self, input: &Input) -> Result<Rc<Relations>> {
        if let Some(known) = self.relations.as_ref().filter(|known| known.input() == input) {
            return Ok(known.clone());
        }
        // Two large ones need not fit.
        self.relations = None;
        let made = Rc::new(input.make()?);
        self.relations = Some(made.clone());
        Ok(made)
    }

    /// Takes a cell's working set out of all caches, so that the next cell finds nothing of it.
    ///
    /// # Errors
    /// As [`Site::memory`].
    pub fn flush(&mut self, cell: &Cell) -> Result<()> {
        if cell.device().is_some() {
            return Ok(());
        }
        let len_bytes = cell.needs()?.memory_bytes;
        if len_bytes > 0 {
            code::evict(self.memory(cell)?, len_bytes);
        }
        Ok(())
    }

    /// What a cell's memory really is; nothing when it uses none.
    pub fn describe(&mut self, cell: &Cell) -> Option<Described> {
        if cell.needs().ok()?.memory_bytes == 0 {
            return described_place(cell);
        }
        let memory = self.memory(cell).ok()?;
        let provenance = memory.backing().map_or(Provenance::Measured, provenance_of);
        let text = memory.backing().map_or_else(|| "main memory".to_owned(), |backing| backing.reason.clone());
        Some(Described { text, provenance, page_bytes: Some(memory.page_bytes()) })
    }
}

/// What a place is that a cell uses by itself.
fn described_place(cell: &Cell) -> Option<Described> {
    match cell.memory()? {
        Place::Dram | Place::Node(_) => {
            Some(Described { text: "main memory".into(), provenance: Provenance::Measured, page_bytes: None })
        }
        Place::Modelled(..) => {
            let text = format!("modelled: {}", cell.device()?.source);
            Some(Described { text, provenance: Provenance::Modelled, page_bytes: None })
        }
        Place::Striped(folders, _) => described_paths(&folders),
        Place::Folder(path) | Place::Device(path) => described_paths(&[path]),
    }
}

fn described_paths(paths: &[PathBuf]) -> Option<Described> {
    let probe = |path: &PathBuf| Some(pmem::Mapped::new().probe(path).ok()?.backing);
    let found = paths.iter().map(probe).collect::<Option<Vec<_>>>()?;
    let backing = memory::weakest(found.iter())?;
    let provenance = provenance_of(&backing);
    Some(Described { text: backing.reason, provenance, page_bytes: None })
}

fn provenance_of(backing: &pmem::Backing) -> Provenance {
    match backing.provenance {
        pmem::Provenance::Measured => Provenance::Measured,
        pmem::Provenance::Emulated => Provenance::Emulated,
        pmem::Provenance::Modelled => Provenance::Modelled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn a_cell_that_is_too_large_leaves_the_others_their_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = Plan::built_in("load").unwrap();
        plan.set("memory", &format!("dram,{}", folder.path().display())).unwrap();
        plan.set("size", "4Ki,32Ti,1Mi").unwrap();
        let cells = plan.cells().unwrap();
        let (mut site, refused) = Site::for_those_that_fit(&cells, Duration::ZERO);
        for (cell, refused) in cells.iter().zip(&refused) {
            assert_eq!(matches!(refused, Some(Error::NoRoom { .. })), cell.number("size") == 32 << 40, "{cell}");
            assert_eq!(site.memory(cell).unwrap().len_bytes(), 1 << 20);
        }
        assert!(matches!(Site::new(&cells, Duration::ZERO), Err(Error::NoRoom { .. })));
        let described = site.describe(&cells[0]).unwrap();
        assert_eq!((described.text.as_str(), described.provenance), ("main memory", Provenance::Measured));
        assert!(site.describe(cells.last().unwrap()).unwrap().page_bytes.is_some());
        assert!(Site::new([], Duration::ZERO).unwrap().memory(&cells[0]).is_err());
    }

    #[test]
    fn relations_are_made_once_for_each_input() {
        let mut site = Site::new([], Duration::ZERO).unwrap();
        let first = site.relations(&Input::narrow(100, 1)).unwrap();
        assert!(Rc::ptr_eq(&first, &site.relations(&Input::narrow(100, 1)).unwrap()));
        assert!(!Rc::ptr_eq(&first, &site.relations(&Input::narrow(100, 2)).unwrap()));
    }
}
