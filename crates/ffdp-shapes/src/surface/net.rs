//! Vertices in cells that see several labels, and quadrilaterals between voxels of different labels.

use ffdp_image::image::LabelMap;

use super::SurfaceSettings;
use crate::shape::{Position, add, scaled};

pub(super) struct Net {
    /// In voxels.
    pub vertices: Vec<Position>,
    pub quads: Vec<Quad>,
    /// Centres of the cells that the vertices must not leave.
    centres: Vec<Position>,
    /// Vertices in neighbouring cells that a border joins.
    neighbours: Vec<[u32; 6]>,
}

/// The border between two voxels; seen from the second label, the corners run counterclockwise.
pub(super) struct Quad {
    pub corners: [u32; 4],
    pub labels: [i32; 2],
}

const NONE: u32 = u32::MAX;

/// How much farther back than forth: waves longer than some ten voxels stay as they are.
const BACK: f64 = 1.06;

/// The part of a label map that holds the wanted labels, with background around it.
struct Part {
    data: Vec<i32>,
    size: [usize; 3],
    /// Of the first element, in voxels of the map.
    start: [f64; 3],
}

impl Part {
    fn new(map: &LabelMap, ids: &[i32]) -> Option<Self> {
        let [nx, ny, nz] = map.geometry.size;
        let (mut low, mut high) = ([usize::MAX; 3], [0; 3]);
        for (offset, label) in map.data.iter().enumerate() {
            if ids.contains(label) {
                let index = map.geometry.index_of(offset);
                (0..3).for_each(|c| low[c] = low[c].min(index[c]));
                (0..3).for_each(|c| high[c] = high[c].max(index[c]));
            }
        }
        if low[0] == usize::MAX {
            return None;
        }
        let size: [usize; 3] = std::array::from_fn(|c| high[c] - low[c] + 3);
        let start = low.map(|v| v as f64 - 1.0);
        let mut data = Vec::with_capacity(size.iter().product());
        let in_map = |v: usize, low: usize, n: usize| (v + low).checked_sub(1).filter(|&v| v < n);
        for z in 0..size[2] {
            for y in 0..size[1] {
                for x in 0..size[0] {
                    let at = (in_map(x, low[0], nx), in_map(y, low[1], ny), in_map(z, low[2], nz));
                    let label = match at {
                        (Some(x), Some(y), Some(z)) => map.data[(z * ny + y) * nx + x],
                        _ => 0,
                    };
                    data.push(if ids.contains(&label) { label } else { 0 });
                }
            }
        }
        Some(Self { data, size, start })
    }

    fn offset(&self, [x, y, z]: [usize; 3]) -> usize {
        (z * self.size[1] + y) * self.size[0] + x
    }

    fn label(&self, at: [usize; 3]) -> i32 {
        self.data[self.offset(at)]
    }

    /// All elements of a box that starts at 0.
    fn all(size: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
        let [nx, ny, nz] = size;
        (0..nz).flat_map(move |z| (0..ny).flat_map(move |y| (0..nx).map(move |x| [x, y, z])))
    }
}

impl Net {
    /// `None` where no voxel has one of the labels.
    pub fn new(map: &LabelMap, ids: &[i32]) -> Option<Self> {
        let part = Part::new(map, ids)?;
        let mut net = Self { vertices: vec![], quads: vec![], centres: vec![], neighbours: vec![] };
        let cells = net.place_vertices(&part);
        net.join(&part, &cells);
        net.part_voxels(&part, &cells);
        Some(net)
    }

    /// A vertex for every cell of several labels, at the mean of the middles of the edges that cross a border; returns
    /// its number for every cell.
    fn place_vertices(&mut self, part: &Part) -> Vec<u32> {
        let mut cells = vec![NONE; part.data.len()];
        for cell in Part::all(part.size.map(|n| n - 1)) {
            let label =
                |corner: usize| part.label(std::array::from_fn(|c| cell[c] + (corner >> c & 1)));
            let (mut sum, mut crossings) = ([0.0; 3], 0);
            for corner in 0..8_usize {
                for axis in (0..3).filter(|axis| corner >> axis & 1 == 0) {
                    if label(corner) != label(corner | 1 << axis) {
                        let half =
                            |c: usize| if c == axis { 0.5 } else { (corner >> c & 1) as f64 };
                        sum = add(sum, std::array::from_fn(half));
                        crossings += 1;
                    }
                }
            }
            if crossings > 0 {
                let base: Position = std::array::from_fn(|c| part.start[c] + cell[c] as f64);
                cells[part.offset(cell)] = self.vertices.len() as u32;
                self.vertices.push(add(base, scaled(sum, 1.0 / f64::from(crossings))));
                self.centres.push(add(base, [0.5; 3]));
            }
        }
        cells
    }

    /// Cells whose common face sees several labels are neighbours.
    fn join(&mut self, part: &Part, cells: &[u32]) {
        self.neighbours = vec![[NONE; 6]; self.vertices.len()];
        for cell in Part::all(part.size.map(|n| n - 1)) {
            let vertex = cells[part.offset(cell)];
            if vertex == NONE {
                continue;
            }
            for axis in 0..3 {
                let mut next = cell;
                next[axis] += 1;
                let other = cells[part.offset(next)];
                if other == NONE {
                    continue;
                }
                let face = |corner: usize| {
                    let [u, v] = [(axis + 1) % 3, (axis + 2) % 3];
                    let mut at = next;
                    at[u] += corner & 1;
                    at[v] += corner >> 1;
                    part.label(at)
                };
                if (1..4).any(|corner| face(corner) != face(0)) {
                    self.neighbours[vertex as usize][2 * axis] = other;
                    self.neighbours[other as usize][2 * axis + 1] = vertex;
                }
            }
        }
    }

    /// A quadrilateral between any two voxels that differ.
    fn part_voxels(&mut self, part: &Part, cells: &[u32]) {
        for axis in 0..3 {
            let [u, v] = [(axis + 1) % 3, (axis + 2) % 3];
            let mut size = part.size;
            size[axis] -= 1;
            for voxel in Part::all(size) {
                let mut next = voxel;
                next[axis] += 1;
                let labels = [part.label(voxel), part.label(next)];
                if labels[0] == labels[1] {
                    continue;
                }
                // The part has background around it: such voxels never lie at its border.
                let cell = |du: usize, dv: usize| {
                    let mut cell = voxel;
                    cell[u] -= du;
                    cell[v] -= dv;
                    cells[part.offset(cell)]
                };
                let corners = [cell(1, 1), cell(0, 1), cell(0, 0), cell(1, 0)];
                self.quads.push(Quad { corners, labels });
            }
        }
    }

    /// Draws the vertices towards the mean of their neighbours and back, within their cells: the second step undoes
    /// what the first did to long waves, else structures would shrink (Taubin 1995).
    pub fn smooth(&mut self, settings: &SurfaceSettings) {
        for _ in 0..settings.smoothing {
            self.draw(settings.strength);
            self.draw(-BACK * settings.strength);
        }
    }

    fn draw(&mut self, strength: f64) {
        let moved = |vertex: usize| {
            let here = self.vertices[vertex];
            let joined = self.neighbours[vertex].iter().filter(|&&n| n != NONE);
            let (sum, count) = joined.fold(([0.0; 3], 0.0), |(sum, count), &n| {
                (add(sum, self.vertices[n as usize]), count + 1.0)
            });
            if count == 0.0 {
                return here;
            }
            std::array::from_fn(|c| {
                let there = here[c] + strength * (sum[c] / count - here[c]);
                let centre = self.centres[vertex][c];
                there.clamp(centre - 0.5, centre + 0.5)
            })
        };
        self.vertices = (0..self.vertices.len()).map(moved).collect();
    }
}
