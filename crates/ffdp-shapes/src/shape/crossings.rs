//! Triangles of one mesh that pass through each other.

use rayon::prelude::*;

use super::{Position, Shape, ShapeTree, cross, dot, norm, scaled, sub};

/// Number of pairs of triangles that pass through each other. Triangles that share a corner touch there; they count
/// where the side opposite to it pierces the other one.
pub fn self_intersections(shape: &Shape) -> usize {
    let triangles = shape.triangles();
    if triangles.is_empty() {
        return 0;
    }
    let tree = ShapeTree::new(shape);
    let count = |cell: usize| {
        let mut pairs = 0;
        tree.touching(cell as u32, |other| {
            pairs += usize::from(crosses(shape, &triangles[cell], &triangles[other as usize]));
        });
        pairs
    };
    (0..triangles.len()).into_par_iter().map(count).sum()
}

/// Whether a side of one triangle pierces the other.
fn crosses(shape: &Shape, a: &[u32; 3], b: &[u32; 3]) -> bool {
    let pierces = |a: &[u32; 3], b: &[u32; 3]| {
        let corners = shape.corners(b);
        let sides = [[a[0], a[1]], [a[1], a[2]], [a[2], a[0]]];
        let free = sides.iter().filter(|side| !side.iter().any(|i| b.contains(i)));
        free.into_iter().any(|side| pierced(&corners, &shape.corners(side)))
    };
    pierces(a, b) || pierces(b, a)
}

/// A hit so near to a border of the triangle (relative to its size) is a touch.
const BORDER: f64 = 1e-9;

/// Whether a segment passes through the inside of a triangle.
fn pierced([a, b, c]: &[Position; 3], [from, to]: &[Position; 2]) -> bool {
    let normal = cross(sub(*b, *a), sub(*c, *a));
    let size = norm(normal);
    if size == 0.0 {
        return false;
    }
    let heights = [from, to].map(|p| dot(sub(*p, *a), normal) / size);
    let margin = BORDER * size.sqrt();
    if heights.iter().any(|h| h.abs() <= margin) || heights[0] * heights[1] > 0.0 {
        return false;
    }
    let t = heights[0] / (heights[0] - heights[1]);
    let hit = super::add(*from, scaled(sub(*to, *from), t));
    let part = |p: &Position, q: &Position| dot(cross(sub(*q, *p), sub(hit, *p)), normal);
    [part(a, b), part(b, c), part(c, a)].iter().all(|part| *part > BORDER * size * size)
}
