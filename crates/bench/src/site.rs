//! Where cells are measured: the memory that they share, and how long a sample takes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::measure::Cell;
use crate::memory::{Memory, Pages, Place};

/// Memory of each place and page size, which cells take turns to use.
#[derive(Debug)]
pub struct Site {
    memories: BTreeMap<(Place, Pages), Memory>,
    /// How long a sample is that takes as long as it is given.
    pub sample_time: Duration,
}

impl Site {
    /// Maps as much of each place as the most demanding cell needs.
    ///
    /// # Errors
    /// `Memory` when there is not so much.
    pub fn new<'c>(cells: impl IntoIterator<Item = &'c Cell>, sample_time: Duration) -> Result<Site> {
        let mut needed: BTreeMap<(Place, Pages), usize> = BTreeMap::new();
        for cell in cells {
            let memory_bytes = cell.measure().needs(cell)?.memory_bytes;
            if memory_bytes > 0 {
                let most = needed.entry(cell.place()).or_default();
                *most = memory_bytes.max(*most);
            }
        }
        let mut memories = BTreeMap::new();
        for ((place, pages), len_bytes) in needed {
            let memory = Memory::new(&place, pages, len_bytes)?;
            memories.insert((place, pages), memory);
        }
        Ok(Site { memories, sample_time })
    }

    /// The memory of a cell's place.
    ///
    /// # Errors
    /// `Memory` when the cell is none of those that the site was made for.
    pub fn memory(&mut self, cell: &Cell) -> Result<&mut Memory> {
        let place = cell.place();
        self.memories.get_mut(&place).ok_or_else(|| Error::memory(format!("nothing is mapped at {place:?}")))
    }

    /// All of it, for the record.
    pub fn memories(&self) -> impl Iterator<Item = (&Place, Pages, &Memory)> {
        self.memories.iter().map(|((place, pages), memory)| (place, *pages, memory))
    }
}
