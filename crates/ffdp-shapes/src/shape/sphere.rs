//! Spheres of nearly equal triangles, to try things on.

use std::collections::HashMap;

use super::{Position, Shape, add, cross, dot, norm, scaled, sub};

impl Shape {
    /// A sphere about the origin: an octahedron whose triangles are cut into four, `subdivisions` times
    /// (`8 * 4^n` triangles), its corners on the sphere.
    pub fn sphere(radius_mm: f64, subdivisions: u32) -> Self {
        let mut points: Vec<Position> = (0..6)
            .map(|i| {
                std::array::from_fn(|c| if c == i / 2 { 1.0 - 2.0 * (i % 2) as f64 } else { 0.0 })
            })
            .collect();
        let mut triangles: Vec<[u32; 3]> = (0..8_u32)
            .map(|octant| [octant & 1, 2 + (octant >> 1 & 1), 4 + (octant >> 2)])
            .map(|t| outwards(&points, t))
            .collect();
        for _ in 0..subdivisions {
            let mut middles = HashMap::new();
            let mut next = Vec::with_capacity(4 * triangles.len());
            for [a, b, c] in triangles {
                let mut middle = |i: u32, j: u32| {
                    *middles.entry([i.min(j), i.max(j)]).or_insert_with(|| {
                        let sum = add(points[i as usize], points[j as usize]);
                        points.push(scaled(sum, 1.0 / norm(sum)));
                        points.len() as u32 - 1
                    })
                };
                let [ab, bc, ca] = [middle(a, b), middle(b, c), middle(c, a)];
                next.extend([[a, ab, ca], [b, bc, ab], [c, ca, bc], [ab, bc, ca]]);
            }
            triangles = next;
        }
        let points = points.into_iter().map(|p| scaled(p, radius_mm)).collect();
        Self::mesh(points, triangles).expect("points of a sphere are finite")
    }
}

/// The triangle, its corners counterclockwise as seen from outside.
fn outwards(points: &[Position], [a, b, c]: [u32; 3]) -> [u32; 3] {
    let [p, q, r] = [a, b, c].map(|i| points[i as usize]);
    if dot(cross(sub(q, p), sub(r, p)), p) > 0.0 { [a, b, c] } else { [a, c, b] }
}
