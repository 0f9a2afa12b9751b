//! Lengths, areas, volumes and centres.

use std::collections::HashMap;

use super::{Cells, Position, Shape, add, cross, dot, norm, scaled, sub};

impl Shape {
    /// Length of curves in mm, area of surfaces in mm^2, number of points of a cloud.
    pub fn measure(&self) -> f64 {
        self.cell_measures().iter().sum()
    }

    /// The same for every cell (for every point of a cloud: 1).
    pub fn cell_measures(&self) -> Vec<f64> {
        match &self.cells {
            Cells::None => vec![1.0; self.points.len()],
            Cells::Edges(_) | Cells::Triangles(_) => {
                self.cell_directions().into_iter().map(norm).collect()
            }
        }
    }

    /// What joins the ends of edges; normals of triangles, as long as their area. Empty for clouds.
    pub fn cell_directions(&self) -> Vec<Position> {
        match &self.cells {
            Cells::None => Vec::new(),
            Cells::Edges(cells) => {
                cells.iter().map(|cell| self.corners(cell)).map(|[a, b]| sub(b, a)).collect()
            }
            Cells::Triangles(cells) => {
                let normal = |[a, b, c]: [Position; 3]| scaled(cross(sub(b, a), sub(c, a)), 0.5);
                cells.iter().map(|cell| normal(self.corners(cell))).collect()
            }
        }
    }

    /// The centres of the cells (the points of a cloud).
    pub fn cell_centres(&self) -> Vec<Position> {
        let (indices, corners) = self.cells.indices();
        if indices.is_empty() {
            return self.points.clone();
        }
        let mean = |cell: &[u32]| {
            let sum = cell.iter().fold([0.0; 3], |sum, &i| add(sum, self.points[i as usize]));
            scaled(sum, 1.0 / corners as f64)
        };
        indices.chunks_exact(corners).map(mean).collect()
    }

    /// Volume inside a closed surface in mm^3, negative where triangles face inwards: `1/6 sum a . (b x c)`.
    /// What it is for an open one depends on the origin.
    pub fn volume(&self) -> f64 {
        // About the centre of the box: far from the origin the terms would cancel.
        let [low, high] = self.bounds();
        let origin = scaled(add(low, high), 0.5);
        let part = |cell: &[u32; 3]| {
            let [a, b, c] = self.corners(cell).map(|p| sub(p, origin));
            dot(a, cross(b, c)) / 6.0
        };
        self.triangles().iter().map(part).sum()
    }

    /// Diameter in mm of the sphere with as much volume for its area, `6 V / A`: of a long or flat body it says how thick
    /// it is. None of what is not a closed surface.
    pub fn thickness(&self) -> Option<f64> {
        let closed = !self.triangles().is_empty() && self.open_edges() == 0;
        let thickness = 6.0 * self.volume().abs() / self.measure();
        (closed && thickness > 0.0).then_some(thickness)
    }

    /// The edges that only one triangle has, or that two have in the same sense: none for a closed surface whose
    /// triangles all face one side.
    pub fn open_edges(&self) -> usize {
        let mut balance: HashMap<[u32; 2], i32> = HashMap::new();
        for &[a, b, c] in self.triangles() {
            for [from, to] in [[a, b], [b, c], [c, a]] {
                let sense = if from < to { 1 } else { -1 };
                *balance.entry([from.min(to), from.max(to)]).or_default() += sense;
            }
        }
        balance.values().filter(|&&sum| sum != 0).count()
    }

    /// Mean length of the edges of all cells in mm; 0 for clouds.
    pub fn mean_edge(&self) -> f64 {
        let (indices, corners) = self.cells.indices();
        let mut sum = 0.0;
        for cell in indices.chunks_exact(corners.max(2)) {
            for k in 0..corners {
                let [a, b] = [cell[k], cell[(k + 1) % corners]].map(|i| self.points[i as usize]);
                sum += norm(sub(b, a));
            }
        }
        if indices.is_empty() { 0.0 } else { sum / indices.len() as f64 }
    }
}
