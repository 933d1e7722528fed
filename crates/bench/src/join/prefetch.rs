//! Rows that are visited one after the other while the lines that later ones need are on their way.
//!
//! Chen, Ailamaki, Gibbons and Mowry, *Improving hash join performance through prefetching*, 2004, section 4 (group
//! prefetching) and section 5 (software-pipelined prefetching).

use super::lines::read_on;

/// How lines are asked for ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prefetch {
    /// Not by the program.
    None,
    /// So many rows together: each step of all of them before the next step of any.
    Group(usize),
    /// Each step of a row so many rows before its next step.
    Ahead(usize),
}

/// What is done with each row.
pub(super) trait Visit<T> {
    /// Steps before the visit, each of which asks for a line that the next one reads.
    const STEPS: usize;

    /// Does step `step` of a row.
    fn ahead(&mut self, step: usize, row: &T);

    /// Visits a row; rows come in order.
    fn visit(&mut self, row: &T);
}

/// Visits all rows.
#[inline(always)]
pub(super) fn each<T, V: Visit<T>>(rows: &[T], prefetch: Prefetch, visit: &mut V) {
    match prefetch {
        Prefetch::None => rows.iter().for_each(|row| visit.visit(row)),
        Prefetch::Group(size) => {
            for group in rows.chunks(size.max(1)) {
                for step in 0..V::STEPS {
                    group.iter().for_each(|row| visit.ahead(step, row));
                }
                group.iter().for_each(|row| visit.visit(row));
            }
        }
        Prefetch::Ahead(distance) => pipelined(rows, distance, visit),
    }
}

#[inline(always)]
fn pipelined<T, V: Visit<T>>(rows: &[T], distance: usize, visit: &mut V) {
    let before = |step| (V::STEPS - step) * distance;
    for step in 0..V::STEPS {
        rows.iter().take(before(step)).for_each(|row| visit.ahead(step, row));
    }
    let (full, rest) = rows.split_at(rows.len().saturating_sub(before(0)));
    for (at, row) in full.iter().enumerate() {
        read_on(&rows[at + before(0)]);
        for step in 0..V::STEPS {
            visit.ahead(step, &rows[at + before(step)]);
        }
        visit.visit(row);
    }
    // What is in sight of the end has no step left that somebody would profit from, but for the later steps of the last rows.
    for (at, row) in rest.iter().enumerate() {
        for step in 1..V::STEPS {
            if let Some(row) = rest.get(at + before(step)) {
                visit.ahead(step, row);
            }
        }
        visit.visit(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes which steps each row has had before it was visited.
    struct Steps {
        steps: Vec<Vec<usize>>,
        visited: Vec<usize>,
    }

    impl Visit<usize> for Steps {
        const STEPS: usize = 2;

        fn ahead(&mut self, step: usize, row: &usize) {
            self.steps[*row].push(step);
        }

        fn visit(&mut self, row: &usize) {
            self.visited.push(*row);
        }
    }

    #[test]
    fn every_row_has_its_steps_in_order_and_is_visited_once() {
        for count in [0, 1, 5, 16, 33] {
            let rows: Vec<usize> = (0..count).collect();
            for size in [1, 3, 16, 100] {
                for prefetch in [Prefetch::None, Prefetch::Group(size), Prefetch::Ahead(size)] {
                    let mut steps = Steps { steps: vec![Vec::new(); count], visited: Vec::new() };
                    each(&rows, prefetch, &mut steps);
                    assert_eq!(steps.visited, rows, "{prefetch:?}");
                    let expected: &[usize] = if prefetch == Prefetch::None { &[] } else { &[0, 1] };
                    assert!(steps.steps.iter().all(|steps| steps == expected), "{prefetch:?}: {:?}", steps.steps);
                }
            }
        }
    }
}
