//! The area of the surface element in each 2x2x2 neighbourhood of voxels.
//!
//! A label's surface passes through the corners of voxels. Around a corner lie eight voxel centres,
//! the vertices of a cube, each inside the label or outside: 256 codes. The surface cuts every cube
//! edge with one end inside at its middle (marching cubes; Lorensen and Cline 1987), and its part
//! in this cube is
//! ```text
//! for each connected group of the rarer kind of vertices: the closed polygon through the cuts
//! around it, split into triangles
//! ```
//! Groups connect along cube edges, so that vertices that only share a face's diagonal stay apart.
//! A polygon of five or six cuts is bent, and its area depends on the split: taken is the split of
//! largest area in the unit cube, which keeps the parts flat that are parallel to a face. These
//! choices give the areas of DeepMind's `surface-distance`, for all codes and spacings: a test
//! compares them.

/// Bit of the vertex (x, y, z), each 0 or 1, in a code.
pub(super) fn bit(vertex: [usize; 3]) -> usize {
    4 * vertex[0] + vertex[1] + 2 * vertex[2]
}

/// Area of the surface in a cell of `spacing`, for every code.
pub(super) fn surfel_areas(spacing: [f64; 3]) -> [f64; 256] {
    std::array::from_fn(|code| {
        let code = code as u8;
        let rarer = if code.count_ones() > 4 { !code } else { code };
        groups(rarer).into_iter().map(|group| polygon_area(&boundary(group), spacing)).sum()
    })
}

fn vertices() -> impl Iterator<Item = [usize; 3]> {
    (0..8).map(|v| [v & 1, v >> 1 & 1, v >> 2 & 1])
}

fn contains(code: u8, vertex: [usize; 3]) -> bool {
    code >> bit(vertex) & 1 == 1
}

/// The other end of the cube edge along an axis.
fn across(mut vertex: [usize; 3], axis: usize) -> [usize; 3] {
    vertex[axis] ^= 1;
    vertex
}

/// The sets of vertices of `code` that are connected along cube edges.
fn groups(code: u8) -> Vec<u8> {
    let mut left = code;
    let mut groups = Vec::new();
    while left != 0 {
        let mut group = 1 << left.trailing_zeros();
        loop {
            let touches = |v: [usize; 3]| (0..3).any(|axis| contains(group, across(v, axis)));
            let more = vertices().filter(|&v| contains(left & !group, v) && touches(v));
            let grown = more.fold(group, |grown, v| grown | 1 << bit(v));
            if grown == group {
                break;
            }
            group = grown;
        }
        groups.push(group);
        left &= !group;
    }
    groups
}

/// A cut cube edge: from a vertex inside along an axis.
#[derive(Clone, Copy, PartialEq)]
struct Cut {
    inside: [usize; 3],
    axis: usize,
}

impl Cut {
    fn middle(self) -> [f64; 3] {
        let mut point = self.inside.map(|v| v as f64);
        point[self.axis] = 0.5;
        point
    }

    /// Whether both lie in one face of the cube; in no face are there more than two of a group.
    fn shares_a_face(self, other: Self) -> bool {
        (0..3).any(|axis| {
            let in_face = axis != self.axis && axis != other.axis;
            in_face && self.inside[axis] == other.inside[axis]
        })
    }
}

/// The cuts around a group in the order of the polygon; empty without any.
fn boundary(group: u8) -> Vec<[f64; 3]> {
    let inside = vertices().filter(|&v| contains(group, v));
    let edges = inside.flat_map(|inside| (0..3).map(move |axis| Cut { inside, axis }));
    let mut left: Vec<Cut> =
        edges.filter(|cut| !contains(group, across(cut.inside, cut.axis))).collect();
    let mut polygon: Vec<Cut> = left.pop().into_iter().collect();
    while let Some(&last) = polygon.last() {
        let Some(next) = left.iter().position(|&cut| last.shares_a_face(cut)) else { break };
        polygon.push(left.swap_remove(next));
    }
    polygon.into_iter().map(Cut::middle).collect()
}

/// Area of a closed polygon, stretched by `spacing` after it was split in the unit cube.
fn polygon_area(polygon: &[[f64; 3]], spacing: [f64; 3]) -> f64 {
    if polygon.len() < 3 {
        return 0.0;
    }
    let area = |split: &[[usize; 3]], scale: [f64; 3]| -> f64 {
        split.iter().map(|corners| triangle_area(corners.map(|c| polygon[c]), scale)).sum()
    };
    let splits = triangulations(0, polygon.len() - 1);
    let largest = splits.iter().max_by(|a, b| area(a, [1.0; 3]).total_cmp(&area(b, [1.0; 3])));
    largest.map_or(0.0, |split| area(split, spacing))
}

/// All splits into triangles of the polygon with the vertices `first..=last`.
fn triangulations(first: usize, last: usize) -> Vec<Vec<[usize; 3]>> {
    if last - first < 2 {
        return vec![Vec::new()];
    }
    let mut splits = Vec::new();
    for apex in first + 1..last {
        for left in triangulations(first, apex) {
            for right in triangulations(apex, last) {
                splits.push([&left[..], &right[..], &[[first, apex, last]]].concat());
            }
        }
    }
    splits
}

fn triangle_area([a, b, c]: [[f64; 3]; 3], scale: [f64; 3]) -> f64 {
    let side = |from: [f64; 3], to: [f64; 3]| [0, 1, 2].map(|i| scale[i] * (to[i] - from[i]));
    let (u, v) = (side(a, b), side(a, c));
    let normal = [0, 1, 2].map(|i| {
        let (j, k) = ((i + 1) % 3, (i + 2) % 3);
        u[j] * v[k] - u[k] * v[j]
    });
    0.5 * normal.iter().map(|n| n * n).sum::<f64>().sqrt()
}
