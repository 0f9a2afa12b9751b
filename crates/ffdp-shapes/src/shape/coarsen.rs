//! Fewer points and cells.

use std::collections::{HashMap, HashSet};

use super::{Cells, Position, Shape, add, scaled};

impl Shape {
    /// The shape with one point, the mean of them, for all points in a cube of a side in mm; cells that lose a corner
    /// vanish, and so do pairs of equal ones. 0 changes nothing. Thin parts of a surface may collapse.
    pub fn coarsened(&self, side_mm: f64) -> Self {
        if side_mm <= 0.0 {
            return self.clone();
        }
        let mut cubes: HashMap<[i64; 3], u32> = HashMap::new();
        let mut sums: Vec<(Position, f64)> = Vec::new();
        let mut merge = |&p: &Position| {
            let cube = p.map(|v| (v / side_mm).floor() as i64);
            let number = *cubes.entry(cube).or_insert_with(|| {
                sums.push(([0.0; 3], 0.0));
                sums.len() as u32 - 1
            });
            let (sum, count) = &mut sums[number as usize];
            (*sum, *count) = (add(*sum, p), *count + 1.0);
            number
        };
        let numbers: Vec<u32> = self.points.iter().map(&mut merge).collect();
        let points = sums.into_iter().map(|(sum, count)| scaled(sum, 1.0 / count)).collect();
        let cells = match &self.cells {
            Cells::None => Cells::None,
            Cells::Edges(cells) => Cells::Edges(merged(cells, &numbers)),
            Cells::Triangles(cells) => Cells::Triangles(merged(cells, &numbers)),
        };
        let coarse = Self { points, cells };
        let (indices, _) = coarse.cells.indices();
        let used: HashSet<u32> = indices.iter().copied().collect();
        if indices.is_empty() { coarse } else { coarse.keeping(|index| used.contains(&index)) }
    }

    /// The side that leaves about so many cells, by the length or area of one; 0 where there are no more.
    pub fn side_for(&self, cells: usize) -> f64 {
        let part = self.measure() / cells as f64;
        match &self.cells {
            _ if self.cells.len() <= cells => 0.0,
            Cells::Edges(_) => part,
            // Two triangles a square.
            _ => (2.0 * part).sqrt(),
        }
    }
}

/// Cells of the new points that keep all their corners. Two with the same corners are the sides of what has collapsed.
fn merged<const N: usize>(cells: &[[u32; N]], numbers: &[u32]) -> Vec<[u32; N]> {
    let renumbered = cells.iter().map(|cell| cell.map(|i| numbers[i as usize]));
    let mut kept: Vec<[u32; N]> =
        renumbered.filter(|cell| (1..N).all(|i| !cell[..i].contains(&cell[i]))).collect();
    let key = |cell: &[u32; N]| {
        let mut sorted = *cell;
        sorted.sort_unstable();
        sorted
    };
    let mut counts: HashMap<[u32; N], usize> = HashMap::new();
    kept.iter().for_each(|cell| *counts.entry(key(cell)).or_default() += 1);
    kept.retain(|cell| counts[&key(cell)] == 1);
    kept
}
