//! One rank's rows, and the step.

use std::ops::Range;

use crate::geometry::Size;

/// Conductivity × time step / cell area; below 1/4, where the explicit formula is stable.
const ALPHA: f64 = 0.2;

/// Rows of the field, plus one row of each neighbour above and below.
#[derive(Clone, Debug)]
pub struct Slab {
    size: Size,
    rows: Range<usize>,
    step: u64,
    current: Vec<f64>,
    next: Vec<f64>,
}

impl Slab {
    /// Rows filled with zero, at step 0.
    pub fn new(size: Size, rows: Range<usize>) -> Slab {
        let cells = (rows.len() + 2) * size.width;
        Slab { size, rows, step: 0, current: vec![0.0; cells], next: vec![0.0; cells] }
    }

    /// The size of the field.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The rows' indices in the field.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Steps computed so far.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The rows' cells, row after row, without the neighbours' rows.
    pub fn cells(&self) -> &[f64] {
        &self.current[self.size.width..self.current.len() - self.size.width]
    }

    /// As [`Slab::cells`], mutable.
    pub fn cells_mut(&mut self) -> &mut [f64] {
        let end = self.current.len() - self.size.width;
        &mut self.current[self.size.width..end]
    }

    /// Sets the step of the cells.
    pub fn set_step(&mut self, step: u64) {
        self.step = step;
    }

    /// Takes over the rows that the other one has as well, and its step.
    pub fn copy_from(&mut self, other: &Slab) {
        let first = self.rows.start.max(other.rows.start);
        let last = self.rows.end.min(other.rows.end);
        if first < last {
            let cells =
                |rows: &Range<usize>| (first - rows.start) * other.size.width..(last - rows.start) * other.size.width;
            let (to, from) = (cells(&self.rows), cells(&other.rows));
            self.cells_mut()[to].copy_from_slice(&other.cells()[from]);
        }
        self.step = other.step;
    }

    /// The first row, which the neighbour above needs.
    pub fn top(&self) -> &[f64] {
        &self.current[self.size.width..2 * self.size.width]
    }

    /// The last row, which the neighbour below needs.
    pub fn bottom(&self) -> &[f64] {
        let end = self.current.len() - self.size.width;
        &self.current[end - self.size.width..end]
    }

    /// The row above the first, from the neighbour above.
    pub fn above_mut(&mut self) -> &mut [f64] {
        &mut self.current[..self.size.width]
    }

    /// The row below the last, from the neighbour below.
    pub fn below_mut(&mut self) -> &mut [f64] {
        let start = self.current.len() - self.size.width;
        &mut self.current[start..]
    }

    /// Computes one step; the neighbours' rows must be of the previous step. Every cell is computed by the same
    /// operations in the same order, so that the result is independent of the number of ranks.
    pub fn advance(&mut self) {
        let width = self.size.width;
        for row in self.rows.clone() {
            let middle = (row - self.rows.start + 1) * width;
            let target = &mut self.next[middle..middle + width];
            let here = &self.current[middle..middle + width];
            target.copy_from_slice(here);
            if row == 0 || row == self.size.height - 1 {
                continue;
            }
            let north = &self.current[middle - width..middle];
            let south = &self.current[middle + width..middle + 2 * width];
            for x in 1..width - 1 {
                let around = ((north[x] + south[x]) + here[x - 1]) + here[x + 1];
                target[x] = here[x] + ALPHA * (around - 4.0 * here[x]);
            }
        }
        std::mem::swap(&mut self.current, &mut self.next);
        self.step += 1;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::field::fill_initial;

    /// The textbook implementation: one array, two loops.
    pub fn reference(size: Size, steps: u64) -> Vec<f64> {
        let (w, h) = (size.width, size.height);
        let mut u = vec![0.0; w * h];
        fill_initial(size, 0, &mut u);
        for _ in 0..steps {
            let old = u.clone();
            for y in 1..h - 1 {
                for x in 1..w - 1 {
                    let at = |x: usize, y: usize| old[y * w + x];
                    let sum = at(x, y - 1) + at(x, y + 1) + at(x - 1, y) + at(x + 1, y);
                    u[y * w + x] = at(x, y) + ALPHA * (sum - 4.0 * at(x, y));
                }
            }
        }
        u
    }

    #[test]
    fn step_equals_textbook_implementation() {
        for size in [Size { width: 3, height: 3 }, Size { width: 17, height: 9 }, Size { width: 8, height: 30 }] {
            let mut slab = Slab::new(size, 0..size.height);
            fill_initial(size, 0, slab.cells_mut());
            for _ in 0..25 {
                slab.advance();
            }
            assert_eq!(slab.step(), 25);
            assert_eq!(slab.cells(), reference(size, 25));
        }
    }

    #[test]
    fn several_slabs_compute_the_same_as_one() {
        let size = Size { width: 11, height: 13 };
        for ranks in [1, 2, 3, 5, 13] {
            let mut slabs: Vec<_> = (0..ranks)
                .map(|rank| Slab::new(size, size.rows_of(holdfast_client::Rank(rank), ranks).unwrap()))
                .collect();
            for slab in &mut slabs {
                let first = slab.rows().start;
                fill_initial(size, first, slab.cells_mut());
            }
            for _ in 0..40 {
                for lower in 1..slabs.len() {
                    let (up, down) = slabs.split_at_mut(lower);
                    let (up, down) = (&mut up[lower - 1], &mut down[0]);
                    up.below_mut().copy_from_slice(down.top());
                    down.above_mut().copy_from_slice(up.bottom());
                }
                slabs.iter_mut().for_each(Slab::advance);
            }
            let all: Vec<f64> = slabs.iter().flat_map(|slab| slab.cells().to_vec()).collect();
            assert_eq!(all, reference(size, 40), "{ranks} ranks");
        }
    }

    #[test]
    fn edge_is_constant_and_values_stay_bounded() {
        let size = Size { width: 20, height: 20 };
        let (before, after) = (reference(size, 0), reference(size, 500));
        assert_eq!(before[..20], after[..20]);
        let (low, high) = before.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
        assert!(after.iter().all(|value| (low..=high).contains(value)));
        assert_ne!(before, after);
    }
}
