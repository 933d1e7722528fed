//! What the cells of a run say about a memory when they are held together: the granule in which it writes, whether CLWB keeps
//! a line, how much its buffers take.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::results::{CellResult, Results, Status};
use crate::value::{Value, short_bytes};

/// Something that was found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The memory.
    pub memory: String,
    /// Of what it is.
    pub what: String,
    /// What was found, with its unit.
    pub found: String,
    /// The same as a number, where it is one.
    pub value: Option<f64>,
    /// From which figures.
    pub because: String,
}

/// Everything that the cells can tell, of each memory.
pub fn findings(results: &Results) -> Vec<Finding> {
    let mut memories: Vec<String> = Vec::new();
    for cell in results.cells.iter().filter(|cell| !cell.metrics.is_empty()) {
        if let Some(memory) =
            cell.cell.keys.get("memory").map(ToString::to_string).filter(|memory| !memories.contains(memory))
        {
            memories.push(memory);
        }
    }
    let of = |memory: &String| {
        let cells: Vec<&CellResult> = results
            .cells
            .iter()
            .filter(|cell| cell.cell.keys.get("memory").is_some_and(|value| value.to_string() == *memory))
            .collect();
        [keeps_lines(memory, &cells), granule(memory, &cells), buffer(memory, &cells)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    };
    memories.iter().flat_map(of).collect()
}

/// A metric's median over a key, of the precise cells with these words.
fn curve(cells: &[&CellResult], measure: &str, words: &[(&str, &str)], over: &str, metric: &str) -> BTreeMap<u64, f64> {
    let is_one = |cell: &&&CellResult| {
        let has = |(key, word): &(&str, &str)| cell.cell.keys.get(*key).is_some_and(|value| value.to_string() == *word);
        cell.cell.measure == measure && words.iter().all(has)
    };
    // Of what is not precise nothing is concluded.
    let point = |cell: &&CellResult| match cell.cell.keys.get(over) {
        Some(Value::Number(number)) if cell.status == Status::Precise => Some((*number, cell.found(metric)?.median)),
        _ => None,
    };
    cells.iter().filter(is_one).filter_map(point).collect()
}

/// Whether a line that CLWB has written back is still in the cache: a load of it then takes less than half of what it takes
/// after CLFLUSHOPT. The manual leaves it open (Intel SDM volume 2, CLWB). On 64-bit Arm the same of DC CVAC and DC CIVAC.
fn keeps_lines(memory: &str, cells: &[&CellResult]) -> Option<Finding> {
    let after = |flush: &str| {
        let is_one = |cell: &&&CellResult| {
            cell.cell.measure == "reload" && cell.cell.keys.get("flush").is_some_and(|value| value.to_string() == flush)
        };
        Some(cells.iter().find(is_one)?.found("latency")?.median)
    };
    let first = |flushes: &[&str]| flushes.iter().find_map(|flush| Some((flush.to_uppercase(), after(flush)?)));
    let kept = after("none")?;
    let (write_back, written_back) = first(&["clwb", "dc-cvac"])?;
    let (evict, gone) = first(&["clflushopt", "clflush", "dc-civac"])?;
    let is_kept = written_back < (kept + gone) / 2.0;
    Some(Finding {
        memory: memory.to_owned(),
        what: format!("{write_back} keeps the line"),
        found: if is_kept { "yes" } else { "no" }.into(),
        value: None,
        because: format!(
            "a load takes {kept:.1} ns of a line that is in the cache, {written_back:.1} after {write_back}, {gone:.1} after {evict}"
        ),
    })
}

/// The bytes that a memory writes at once: the smallest block at random places whose bandwidth is nine tenths of the best. More
/// is claimed only if single lines reach less than half of that.
fn granule(memory: &str, cells: &[&CellResult]) -> Option<Finding> {
    let words = [("access", "nt"), ("order", "random"), ("fence", "none"), ("threads", "1")];
    let by_block = curve(cells, "bandwidth", &words, "block", "bandwidth");
    let best = by_block.values().copied().fold(0.0, f64::max);
    let (&line, &of_line) = by_block.first_key_value().filter(|(block, _)| **block == 64)?;
    if by_block.len() < 3 || best <= 0.0 {
        return None;
    }
    let (&knee, _) = by_block.iter().find(|(_, bandwidth)| **bandwidth >= 0.9 * best)?;
    let granule = if of_line < best / 2.0 { knee } else { line };
    Some(Finding {
        memory: memory.to_owned(),
        what: "granule of writes".into(),
        found: format!("{} bytes", short_bytes(granule)),
        value: Some(granule as f64),
        because: format!(
            "blocks of 64 bytes at random places reach {of_line:.2} GB/s, of {} bytes {best:.2} GB/s at most",
            short_bytes(knee)
        ),
    })
}

/// What buffers take on the way: the largest burst of which a line costs less than half of what it costs in the longest one,
/// when the time of an empty fence is left out. Nothing when there is no such knee.
fn buffer(memory: &str, cells: &[&CellResult]) -> Option<Finding> {
    let by_lines = curve(cells, "burst", &[("access", "nt")], "lines", "burst");
    let (&longest, &of_longest) = by_lines.last_key_value()?;
    let (&shortest, &of_shortest) = by_lines.first_key_value()?;
    if by_lines.len() < 4 || longest < 8 * shortest {
        return None;
    }
    // What each further line costs, from one length to the next.
    let (&before_longest, &of_before) = by_lines.iter().rev().nth(1)?;
    let steady = (of_longest - of_before) / (longest - before_longest) as f64;
    let is_buffered = |lines: u64, time: f64| (time - of_shortest) / (lines - shortest).max(1) as f64 <= steady / 2.0;
    let held = by_lines.iter().skip(1).take_while(|(lines, time)| is_buffered(**lines, **time)).last();
    let bytes = held.map_or(0, |(lines, _)| 64 * lines);
    Some(Finding {
        memory: memory.to_owned(),
        what: "buffered bytes".into(),
        found: if bytes > 0 { format!("about {} bytes", short_bytes(bytes)) } else { "no knee".into() },
        value: Some(bytes as f64),
        because: format!("a further line costs {steady:.2} ns in long bursts"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffered(times: impl Fn(u64) -> f64) -> Option<f64> {
        let mut plan = crate::plan::Plan::built_in("burst").unwrap();
        plan.set("access", "nt").unwrap();
        let cells = plan.cells().unwrap();
        let results: Vec<CellResult> = cells
            .into_iter()
            .map(|cell| CellResult::for_test(&[("burst", times(cell.number("lines")))], cell))
            .collect();
        buffer("dram", &results.iter().collect::<Vec<_>>()).unwrap().value
    }

    #[test]
    fn a_knee_is_found_where_it_is_and_nowhere_else() {
        // 16 KiB are taken at 1 ns a line, and every further line takes 20.
        assert_eq!(
            buffered(|lines| 100.0 + lines.min(256) as f64 + 20.0 * lines.saturating_sub(256) as f64),
            Some(256.0 * 64.0)
        );
        assert_eq!(buffered(|lines| 100.0 + 10.0 * lines as f64), Some(0.0));
    }

    #[test]
    fn a_granule_is_claimed_only_if_lines_are_much_slower() {
        let found = |small: f64, large: f64| {
            let mut plan = crate::plan::Plan::built_in("bandwidth").unwrap();
            for (key, text) in [("access", "nt"), ("order", "random"), ("block", "64,128,256,512,1Ki")] {
                plan.set(key, text).unwrap();
            }
            let of = |block: u64| if block < 256 { small * block as f64 / 64.0 } else { large };
            let cells = plan.cells().unwrap().into_iter();
            let results: Vec<CellResult> =
                cells.map(|cell| CellResult::for_test(&[("bandwidth", of(cell.number("block")))], cell)).collect();
            granule("dram", &results.iter().collect::<Vec<_>>()).unwrap().value
        };
        assert_eq!(found(3.0, 12.0), Some(256.0));
        assert_eq!(found(10.0, 12.0), Some(64.0));
    }

    #[test]
    fn clwb_is_judged_between_its_neighbours() {
        if crate::code::Flush::evicting().is_none() {
            println!("not run: this CPU writes no line back");
            return;
        }
        let found = |clwb: f64| {
            let cells = crate::plan::Plan::built_in("reload").unwrap().cells().unwrap().into_iter();
            let latency = |flush: &str| match flush {
                "none" => 1.5,
                "clwb" | "dc-cvac" => clwb,
                _ => 120.0,
            };
            let results: Vec<CellResult> = cells
                .map(|cell| CellResult::for_test(&[("latency", latency(cell.word("flush")))], cell.clone()))
                .collect();
            keeps_lines("dram", &results.iter().collect::<Vec<_>>()).unwrap().found
        };
        assert_eq!([found(11.0), found(118.0)], ["yes", "no"]);
    }
}
