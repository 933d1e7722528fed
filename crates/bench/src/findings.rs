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
    memories.iter().flat_map(|memory| Seen::new(results, memory).findings()).collect()
}

/// A metric's medians, each with what a key is set to.
type Points = Vec<(Value, f64)>;

/// What a run has found of a memory.
struct Seen<'r> {
    memory: &'r str,
    cells: Vec<&'r CellResult>,
    precision: f64,
}

impl<'r> Seen<'r> {
    fn new(results: &'r Results, memory: &'r str) -> Seen<'r> {
        let is_of_it =
            |cell: &&CellResult| cell.cell.keys.get("memory").is_some_and(|value| value.to_string() == memory);
        let cells = results.cells.iter().filter(is_of_it).collect();
        Seen { memory, cells, precision: results.enough.precision }
    }

    fn findings(&self) -> Vec<Finding> {
        [self.keeps_lines(), self.granule(), self.buffer()].into_iter().flatten().collect()
    }

    /// A metric's median over a key, of the cells with these words in which it is precise. Cells that differ in more than that key do
    /// not go together: of several sets the one with the most cells is taken.
    fn curve(&self, measure: &str, words: &[(&str, &str)], over: &str, metric: &str) -> Points {
        let is_one = |cell: &&&CellResult| {
            let has =
                |(key, word): &(&str, &str)| cell.cell.keys.get(*key).is_some_and(|value| value.to_string() == *word);
            cell.cell.measure == measure && words.iter().all(has)
        };
        let mut sets: Vec<(BTreeMap<&str, &Value>, Points)> = Vec::new();
        for cell in self.cells.iter().filter(is_one) {
            // Of what is not precise nothing is concluded.
            let found = cell.found(metric).filter(|found| found.is_precise(self.precision));
            let (Some(found), Status::Precise, Some(at)) = (found, cell.status, cell.cell.keys.get(over)) else {
                continue;
            };
            let others = cell.cell.without(&[over]);
            match sets.iter_mut().find(|(known, _)| *known == others) {
                Some((_, points)) => points.push((at.clone(), found.median)),
                None => sets.push((others, vec![(at.clone(), found.median)])),
            }
        }
        let most = sets.iter().map(|(_, points)| points.len()).max().unwrap_or(0);
        sets.into_iter().map(|(_, points)| points).find(|points| points.len() == most).unwrap_or_default()
    }

    /// Whether a line that CLWB has written back is still in the cache: a load of it then takes less than the middle between a line
    /// that is there and one that CLFLUSHOPT has taken away. The manual leaves it open (Intel SDM volume 2, CLWB). On 64-bit Arm
    /// the same of DC CVAC and DC CIVAC.
    fn keeps_lines(&self) -> Option<Finding> {
        let latencies = self.curve("reload", &[], "flush", "latency");
        let after = |flush: &str| latencies.iter().find(|(of, _)| *of == Value::from(flush)).map(|(_, ns)| *ns);
        let first = |flushes: &[&str]| flushes.iter().find_map(|flush| Some((flush.to_uppercase(), after(flush)?)));
        let kept = after("none")?;
        let (write_back, written_back) = first(&["clwb", "dc-cvac"])?;
        let (evict, gone) = first(&["clflushopt", "clflush", "dc-civac"])?;
        let is_kept = written_back < (kept + gone) / 2.0;
        Some(Finding {
            memory: self.memory.to_owned(),
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
    fn granule(&self) -> Option<Finding> {
        let words = [("access", "nt"), ("order", "random"), ("fence", "none"), ("threads", "1")];
        let by_block = numbered(self.curve("bandwidth", &words, "block", "bandwidth"));
        let (&best_block, &best) = by_block.iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let (&line, &of_line) = by_block.first_key_value().filter(|(block, _)| **block == 64)?;
        if by_block.len() < 3 || best <= 0.0 {
            return None;
        }
        let (&knee, &of_knee) = by_block.iter().find(|(_, bandwidth)| **bandwidth >= 0.9 * best)?;
        let granule = if of_line < best / 2.0 { knee } else { line };
        Some(Finding {
            memory: self.memory.to_owned(),
            what: "granule of writes".into(),
            found: format!("{} bytes", short_bytes(granule)),
            value: Some(granule as f64),
            because: format!(
                "blocks of 64 bytes at random places reach {of_line:.2} GB/s, of {} bytes {of_knee:.2} GB/s, and of {} bytes \
                 {best:.2} GB/s, the most",
                short_bytes(knee),
                short_bytes(best_block)
            ),
        })
    }

    /// What buffers take on the way: where two straight lines meet that fit the times of bursts best, one of stores that are taken and
    /// one of stores that wait for room. Bursts twice as long as one another do not tell more than three binary digits of it.
    /// Nothing is said of few bursts, and there is no knee where a further line costs less than twice as much behind it.
    fn buffer(&self) -> Option<Finding> {
        let by_lines: Vec<(f64, f64)> = numbered(self.curve("burst", &[("access", "nt")], "lines", "burst"))
            .into_iter()
            .map(|(lines, time)| (lines as f64, time))
            .collect();
        let [(shortest, _), (second, _), .., (last_but_one, _), (longest, of_longest)] = by_lines[..] else {
            return None;
        };
        if longest < 8.0 * shortest {
            return None;
        }
        // Beyond the last but one there would be no line to see.
        let knees = std::iter::successors(Some(second), |knee| Some(knee * 2f64.powf(1.0 / 32.0)));
        let fits = knees.take_while(|knee| *knee <= last_but_one).filter_map(|knee| Bent::fit(&by_lines, knee));
        let bent = fits.min_by(|a, b| a.misfit.total_cmp(&b.misfit))?;
        // Of a time that hardly grows nothing is to be seen.
        let is_felt = (bent.steady - bent.taken) * (longest - bent.knee) > of_longest / 10.0;
        // Buffers may also be larger than the longest burst: without a knee nothing is known of them.
        let bytes = (bent.steady >= 2.0 * bent.taken && is_felt).then(|| 64.0 * round(bent.knee));
        Some(Finding {
            memory: self.memory.to_owned(),
            what: "buffered bytes".into(),
            found: bytes.map_or("no knee".into(), |bytes| format!("about {} bytes", short_bytes(bytes as u64))),
            value: bytes,
            because: format!(
                "a further line costs {:.2} ns in long bursts, {:.2} in short ones",
                bent.steady, bent.taken
            ),
        })
    }
}

/// The points whose key is a number.
fn numbered(points: Points) -> BTreeMap<u64, f64> {
    let number = |(key, value)| if let Value::Number(number) = key { Some((number, value)) } else { None };
    points.into_iter().filter_map(number).collect()
}

/// Two lines that meet.
struct Bent {
    knee: f64,
    /// What a further line costs before and behind the knee.
    taken: f64,
    steady: f64,
    /// The sum of the squares of the differences, in parts of the times.
    misfit: f64,
}

impl Bent {
    /// The least squares with this knee, of differences in parts of the times; nothing where they determine nothing.
    fn fit(points: &[(f64, f64)], knee: f64) -> Option<Bent> {
        let terms = |x: f64| [1.0, x.min(knee), (x - knee).max(0.0)];
        // The normal equations, with what they must give in the last column.
        let mut rows = [[0.0; 4]; 3];
        for (x, y) in points.iter().filter(|(_, y)| *y > 0.0) {
            let terms = terms(*x).map(|term| term / y);
            for (row, of_row) in rows.iter_mut().zip(terms) {
                terms.iter().zip(row.iter_mut()).for_each(|(of_column, sum)| *sum += of_row * of_column);
                row[3] += of_row;
            }
        }
        for step in 0..3 {
            let pivot = rows[step][step];
            if pivot.abs() < 1e-12 {
                return None;
            }
            let pivot_row = rows[step].map(|value| value / pivot);
            for (number, row) in rows.iter_mut().enumerate() {
                let factor = row[step];
                match number == step {
                    true => *row = pivot_row,
                    false => row.iter_mut().zip(pivot_row).for_each(|(value, above)| *value -= factor * above),
                }
            }
        }
        let [start, taken, steady] = rows.map(|row| row[3]);
        let fitted =
            |x: f64| terms(x).iter().zip([start, taken, steady]).map(|(term, factor)| term * factor).sum::<f64>();
        let misfit = points.iter().filter(|(_, y)| *y > 0.0).map(|(x, y)| (fitted(*x) / y - 1.0).powi(2)).sum();
        Some(Bent { knee, taken: taken.max(0.0), steady, misfit })
    }
}

/// A number of lines with three binary digits.
fn round(lines: f64) -> f64 {
    let step = 2f64.powf(lines.log2().floor() - 2.0);
    (lines / step).round() * step
}

#[cfg(test)]
mod tests {
    use report::Interval;

    use super::*;

    fn seen(cells: &[CellResult]) -> Seen<'_> {
        Seen { memory: "dram", cells: cells.iter().collect(), precision: 0.02 }
    }

    /// Small and large pages, of which only one set is whole.
    #[test]
    fn cells_that_differ_in_more_than_a_key_make_no_curve_together() {
        let mut plan = crate::plan::Plan::built_in("burst").unwrap();
        plan.set("pages", "4Ki,2Mi").unwrap();
        plan.set("lines", "1,2,4").unwrap();
        let cells =
            plan.cells().unwrap().into_iter().filter(|cell| cell.word("pages") == "2Mi" || cell.number("lines") == 1);
        let time = |cell: &crate::measure::Cell| if cell.word("pages") == "2Mi" { 5.0 } else { 900.0 };
        let mut results: Vec<CellResult> =
            cells.map(|cell| CellResult::for_test(&[("burst", time(&cell))], cell)).collect();
        let curve = |results: &[CellResult]| numbered(seen(results).curve("burst", &[], "lines", "burst"));
        assert_eq!(curve(&results), [(1, 5.0), (2, 5.0), (4, 5.0)].into());
        let last = results.last_mut().unwrap();
        last.metrics[0].median_95 = Interval { low: 1.0, high: 9.0 };
        assert_eq!(curve(&results).len(), 2, "a point that is not precise is none, whatever the cell's status");
    }

    fn buffered(times: impl Fn(u64) -> f64) -> Option<f64> {
        let mut plan = crate::plan::Plan::built_in("burst").unwrap();
        plan.set("access", "nt").unwrap();
        let cells = plan.cells().unwrap();
        let results: Vec<CellResult> = cells
            .into_iter()
            .map(|cell| CellResult::for_test(&[("burst", times(cell.number("lines")))], cell))
            .collect();
        seen(&results).buffer().unwrap().value
    }

    #[test]
    fn a_knee_is_found_where_it_is_and_nowhere_else() {
        // So many lines are taken at 1 ns each, and every further one takes 20.
        let knee = |at: u64| {
            buffered(move |lines| 100.0 + lines.min(at) as f64 + 20.0 * lines.saturating_sub(at) as f64)
                .map(|bytes| bytes / 64.0)
        };
        for lines in [16, 48, 256, 384, 1024, 1536] {
            assert_eq!(knee(lines), Some(lines as f64));
        }
        assert_eq!(buffered(|lines| 100.0 + 10.0 * lines as f64), None);
        assert_eq!(buffered(|_| 100.0), None);
        // A per cent of noise does not move it.
        let noisy = |lines: u64| {
            let sign = if lines.ilog2().is_multiple_of(2) { 1.01 } else { 0.99 };
            sign * (100.0 + lines.min(256) as f64 + 20.0 * lines.saturating_sub(256) as f64)
        };
        assert_eq!(buffered(noisy), Some(256.0 * 64.0));
    }

    #[test]
    fn a_granule_is_claimed_only_if_lines_are_much_slower() {
        let granule = |small: f64, large: f64| {
            let mut plan = crate::plan::Plan::built_in("bandwidth").unwrap();
            for (key, text) in [("access", "nt"), ("order", "random"), ("block", "64,128,256,512,1Ki")] {
                plan.set(key, text).unwrap();
            }
            // A little more with every larger block.
            let of = |block: u64| match block {
                ..256 => small * block as f64 / 64.0,
                _ => large + block as f64 / 1024.0,
            };
            let cells = plan.cells().unwrap().into_iter();
            let results: Vec<CellResult> =
                cells.map(|cell| CellResult::for_test(&[("bandwidth", of(cell.number("block")))], cell)).collect();
            seen(&results).granule().unwrap()
        };
        let found = granule(3.0, 12.0);
        assert_eq!(found.value, Some(256.0));
        let bandwidths =
            "of 64 bytes at random places reach 3.00 GB/s, of 256 bytes 12.25 GB/s, and of 1Ki bytes 13.00 GB/s";
        assert!(found.because.contains(bandwidths), "{}", found.because);
        assert_eq!(granule(10.0, 12.0).value, Some(64.0));
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
            let mut noisy = results.clone();
            noisy[0].status = Status::Noisy;
            assert!(seen(&noisy).keeps_lines().is_none());
            seen(&results).keeps_lines().unwrap().found
        };
        assert_eq!([found(11.0), found(118.0)], ["yes", "no"]);
    }
}
