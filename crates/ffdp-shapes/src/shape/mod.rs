//! Point clouds, curves and triangle meshes: what they are, and what can be measured of them.
//!
//! One type holds all three: points, and cells that join them. `measure.rs` has lengths, areas and volumes,
//! `tree.rs` finds the nearest part of a surface, `distance.rs` and `crossings.rs` use it.

mod coarsen;
mod components;
mod crossings;
mod distance;
mod measure;
mod spacing;
mod sphere;
#[cfg(test)]
mod tests;
mod tree;

pub use crossings::self_intersections;
pub use distance::{SurfaceDistance, surface_distance};
pub use spacing::{Spacing, WidthAdvice, spacing, width_advice};
pub use tree::{NearestPoint, ShapeTree};

use ffdp_image::image::{Affine, Physical};
use ffdp_image::{Error, Result};

/// A point of physical space, RAS mm.
pub type Position = [f64; 3];

/// Points of physical space, and how they are joined.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Positions in RAS mm.
    pub points: Vec<Position>,
    /// What joins them.
    pub cells: Cells,
}

/// What joins the points of a shape: indices into them.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cells {
    /// Nothing: a cloud.
    #[default]
    None,
    /// Curves, piece by piece.
    Edges(Vec<[u32; 2]>),
    /// Surfaces; seen from outside, the corners of a triangle run counterclockwise.
    Triangles(Vec<[u32; 3]>),
}

impl Cells {
    /// Number of cells.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Edges(cells) => cells.len(),
            Self::Triangles(cells) => cells.len(),
        }
    }

    /// Whether nothing is joined.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The indices of all cells, one after the other, and how many a cell has.
    pub fn indices(&self) -> (&[u32], usize) {
        match self {
            Self::None => (&[], 1),
            Self::Edges(cells) => (cells.as_flattened(), 2),
            Self::Triangles(cells) => (cells.as_flattened(), 3),
        }
    }
}

impl Shape {
    /// A shape of points and what joins them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no points, for a coordinate that is not finite and for an index beyond the points.
    pub fn new(points: Vec<Position>, cells: Cells) -> Result<Self> {
        if points.is_empty() {
            return Err(Error::invalid("a shape must have points", 0, "check the file"));
        }
        if let Some(i) = points.iter().position(|p| !p.iter().all(|v| v.is_finite())) {
            let what = format!("the coordinates of a shape must be finite (point {i})");
            return Err(Error::invalid(what, points[i], "repair the file"));
        }
        let (indices, corners) = cells.indices();
        if let Some(i) = indices.iter().position(|&index| index as usize >= points.len()) {
            let count = points.len();
            let what = format!("cell {} must join points 0..{count}", i / corners);
            return Err(Error::invalid(what, indices[i], "the file is damaged; write it again"));
        }
        Ok(Self { points, cells })
    }

    /// A cloud of points.
    ///
    /// # Errors
    /// As [`Shape::new`].
    pub fn cloud(points: Vec<Position>) -> Result<Self> {
        Self::new(points, Cells::None)
    }

    /// A curve through points in their order; `closed` joins the last to the first.
    ///
    /// # Errors
    /// As [`Shape::new`].
    pub fn curve(points: Vec<Position>, closed: bool) -> Result<Self> {
        let count = points.len() as u32;
        let mut edges: Vec<[u32; 2]> = (1..count).map(|i| [i - 1, i]).collect();
        if closed && count > 2 {
            edges.push([count - 1, 0]);
        }
        Self::new(points, Cells::Edges(edges))
    }

    /// A triangle mesh.
    ///
    /// # Errors
    /// As [`Shape::new`].
    pub fn mesh(points: Vec<Position>, triangles: Vec<[u32; 3]>) -> Result<Self> {
        Self::new(points, Cells::Triangles(triangles))
    }

    /// The triangles; none for clouds and curves.
    pub fn triangles(&self) -> &[[u32; 3]] {
        match &self.cells {
            Cells::Triangles(triangles) => triangles,
            _ => &[],
        }
    }

    /// The corners of a cell.
    pub(crate) fn corners<const N: usize>(&self, cell: &[u32; N]) -> [Position; N] {
        cell.map(|i| self.points[i as usize])
    }

    /// The same cells on other points.
    ///
    /// # Errors
    /// [`Error::Shape`] when there is not one for each, and as [`Shape::new`].
    pub fn with_points(&self, points: Vec<Position>) -> Result<Self> {
        if points.len() != self.points.len() {
            let (expected, got) = (vec![self.points.len(), 3], vec![points.len(), 3]);
            return Err(Error::Shape { what: "points of a shape".into(), expected, got });
        }
        Self::new(points, self.cells.clone())
    }

    /// The shape moved by an affine map; triangles keep their outside where the map mirrors.
    pub fn transformed(&self, map: &Affine<Physical, Physical>) -> Self {
        let points = self.points.iter().map(|&p| map.apply(p)).collect();
        let mut cells = self.cells.clone();
        if let (Cells::Triangles(triangles), true) = (&mut cells, map.determinant() < 0.0) {
            triangles.iter_mut().for_each(|t| t.swap(1, 2));
        }
        Self { points, cells }
    }

    /// Lowest and highest corner of the box around all points.
    pub fn bounds(&self) -> [Position; 2] {
        let mut bounds = [[f64::INFINITY; 3], [f64::NEG_INFINITY; 3]];
        for p in &self.points {
            for c in 0..3 {
                bounds[0][c] = bounds[0][c].min(p[c]);
                bounds[1][c] = bounds[1][c].max(p[c]);
            }
        }
        bounds
    }

    /// Length of the diagonal of that box, in mm.
    pub fn diameter(&self) -> f64 {
        let [low, high] = self.bounds();
        norm(sub(high, low))
    }

    /// Several shapes of one kind as one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for none, and for shapes of several kinds.
    pub fn joined(shapes: &[&Self]) -> Result<Self> {
        let Some(first) = shapes.first() else {
            return Err(Error::invalid("something must be joined", 0, "pass a shape"));
        };
        let mut all = Self { points: Vec::new(), cells: first.cells.clone() };
        match &mut all.cells {
            Cells::None => {}
            Cells::Edges(cells) => cells.clear(),
            Cells::Triangles(cells) => cells.clear(),
        }
        for shape in shapes {
            let from = all.points.len() as u32;
            match (&mut all.cells, &shape.cells) {
                (Cells::None, Cells::None) => {}
                (Cells::Edges(into), Cells::Edges(cells)) => {
                    into.extend(cells.iter().map(|cell| cell.map(|i| i + from)));
                }
                (Cells::Triangles(into), Cells::Triangles(cells)) => {
                    into.extend(cells.iter().map(|cell| cell.map(|i| i + from)));
                }
                _ => {
                    let what = "shapes that are joined must be of one kind";
                    let fix = "join clouds with clouds, curves with curves, meshes with meshes";
                    return Err(Error::invalid(what, "several", fix));
                }
            }
            all.points.extend(&shape.points);
        }
        Ok(all)
    }
}

pub(crate) fn add(a: Position, b: Position) -> Position {
    std::array::from_fn(|i| a[i] + b[i])
}

pub(crate) fn sub(a: Position, b: Position) -> Position {
    std::array::from_fn(|i| a[i] - b[i])
}

pub(crate) fn scaled(a: Position, by: f64) -> Position {
    a.map(|v| v * by)
}

pub(crate) fn dot(a: Position, b: Position) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

pub(crate) fn cross(a: Position, b: Position) -> Position {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

pub(crate) fn norm(a: Position) -> f64 {
    dot(a, a).sqrt()
}
