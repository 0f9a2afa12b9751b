//! A tree of boxes over the cells of a shape: what is near a point, what may touch a cell.

use super::{Cells, Position, Shape, add, cross, dot, norm, scaled, sub};

/// Cells in a leaf.
const LEAF: usize = 6;

/// The point of a shape that is nearest to another point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearestPoint {
    /// The point.
    pub point: Position,
    /// How far it is from the other.
    pub distance_mm: f64,
    /// The number of the cell that it lies on.
    pub cell: usize,
}

/// The cells of a shape (the points of a cloud), ordered so that near ones are found without looking at all.
#[derive(Clone, Debug)]
pub struct ShapeTree<'a> {
    shape: &'a Shape,
    /// Cells in the order of the leaves.
    order: Vec<u32>,
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    low: Position,
    high: Position,
    /// Of the leaf in `order`; of other nodes, the second child (the first is the next node).
    first: u32,
    /// Cells of a leaf; 0 for other nodes.
    count: u32,
}

impl<'a> ShapeTree<'a> {
    /// A tree over a shape; a mesh or curve without cells counts as the cloud of its points.
    pub fn new(shape: &'a Shape) -> Self {
        let count = if shape.cells.is_empty() { shape.points.len() } else { shape.cells.len() };
        let mut tree = Self { shape, order: (0..count as u32).collect(), nodes: Vec::new() };
        let centres = shape.cell_centres();
        tree.build(0, count, &centres);
        tree
    }

    fn build(&mut self, from: usize, to: usize, centres: &[Position]) {
        let mut bounds = [[f64::INFINITY; 3], [f64::NEG_INFINITY; 3]];
        for &cell in &self.order[from..to] {
            let [low, high] = self.box_of(cell);
            for c in 0..3 {
                bounds[0][c] = bounds[0][c].min(low[c]);
                bounds[1][c] = bounds[1][c].max(high[c]);
            }
        }
        let [low, high] = bounds;
        let node = self.nodes.len();
        let leaf = to - from <= LEAF;
        let count = if leaf { (to - from) as u32 } else { 0 };
        self.nodes.push(Node { low, high, first: from as u32, count });
        if leaf {
            return;
        }
        let extent = sub(high, low);
        let axis = (0..3).max_by(|&a, &b| extent[a].total_cmp(&extent[b])).expect("three axes");
        let middle = (from + to) / 2;
        let by = |a: &u32, b: &u32| {
            centres[*a as usize][axis].total_cmp(&centres[*b as usize][axis]).then(a.cmp(b))
        };
        self.order[from..to].select_nth_unstable_by(middle - from, by);
        self.build(from, middle, centres);
        self.nodes[node].first = self.nodes.len() as u32;
        self.build(middle, to, centres);
    }

    fn box_of(&self, cell: u32) -> [Position; 2] {
        let mut bounds = [[f64::INFINITY; 3], [f64::NEG_INFINITY; 3]];
        let mut grow = |p: Position| {
            for c in 0..3 {
                bounds[0][c] = bounds[0][c].min(p[c]);
                bounds[1][c] = bounds[1][c].max(p[c]);
            }
        };
        let (indices, corners) = self.shape.cells.indices();
        match indices.is_empty() {
            true => grow(self.shape.points[cell as usize]),
            false => {
                let start = cell as usize * corners;
                let cell = &indices[start..start + corners];
                cell.iter().for_each(|&i| grow(self.shape.points[i as usize]));
            }
        }
        bounds
    }

    /// The nearest point of the shape.
    pub fn nearest(&self, to: Position) -> NearestPoint {
        let mut best =
            NearestPoint { point: self.shape.points[0], distance_mm: f64::INFINITY, cell: 0 };
        let mut radius = f64::INFINITY;
        self.within(to, &mut radius, |cell, radius| {
            let point = self.nearest_on_cell(cell as u32, to);
            let distance = norm(sub(point, to));
            if distance < *radius {
                *radius = distance;
                best = NearestPoint { point, distance_mm: distance, cell };
            }
        });
        best
    }

    fn distance2_to_box(&self, node: usize, p: Position) -> f64 {
        let Node { low, high, .. } = self.nodes[node];
        (0..3).map(|c| (low[c] - p[c]).max(p[c] - high[c]).max(0.0).powi(2)).sum()
    }

    fn nearest_on_cell(&self, cell: u32, to: Position) -> Position {
        match &self.shape.cells {
            Cells::Edges(cells) if !cells.is_empty() => {
                nearest_on_segment(self.shape.corners(&cells[cell as usize]), to)
            }
            Cells::Triangles(cells) if !cells.is_empty() => {
                nearest_on_triangle(self.shape.corners(&cells[cell as usize]), to)
            }
            _ => self.shape.points[cell as usize],
        }
    }

    pub(super) fn points(&self) -> &[Position] {
        &self.shape.points
    }

    /// Calls `look` with every cell that may lie nearer than `radius`, which it may lower.
    pub(super) fn within(
        &self,
        to: Position,
        radius: &mut f64,
        mut look: impl FnMut(usize, &mut f64),
    ) {
        let mut stack = vec![0_usize];
        while let Some(node) = stack.pop() {
            if self.distance2_to_box(node, to) >= *radius * *radius {
                continue;
            }
            let Node { first, count, .. } = self.nodes[node];
            if count > 0 {
                let cells = &self.order[first as usize..(first + count) as usize];
                cells.iter().for_each(|&cell| look(cell as usize, radius));
                continue;
            }
            let mut children = [node + 1, first as usize];
            if self.distance2_to_box(children[0], to) < self.distance2_to_box(children[1], to) {
                children.swap(0, 1);
            }
            stack.extend(children); // the nearer one is looked at first
        }
    }

    /// Calls `found` with every point of a cloud nearer than a distance.
    pub(crate) fn within_distance(&self, to: Position, mm: f64, mut found: impl FnMut(usize)) {
        let mut radius = mm;
        self.within(to, &mut radius, |index, _| {
            if norm(sub(self.shape.points[index], to)) < mm {
                found(index);
            }
        });
    }

    /// Calls `found` with every later cell whose box touches that of `cell`.
    pub(super) fn touching(&self, cell: u32, mut found: impl FnMut(u32)) {
        let [low, high] = self.box_of(cell);
        let apart = |node: &Node| (0..3).any(|c| node.low[c] > high[c] || node.high[c] < low[c]);
        let mut stack = vec![0_usize];
        while let Some(index) = stack.pop() {
            let node = self.nodes[index];
            if apart(&node) {
                continue;
            }
            if node.count == 0 {
                stack.extend([index + 1, node.first as usize]);
                continue;
            }
            let cells = &self.order[node.first as usize..(node.first + node.count) as usize];
            cells.iter().filter(|&&other| other > cell).for_each(|&other| found(other));
        }
    }
}

fn nearest_on_segment([a, b]: [Position; 2], p: Position) -> Position {
    let along = sub(b, a);
    let length2 = dot(along, along);
    let t = if length2 > 0.0 { (dot(sub(p, a), along) / length2).clamp(0.0, 1.0) } else { 0.0 };
    add(a, scaled(along, t))
}

/// Inside the triangle its foot point; else the nearest of the three sides.
fn nearest_on_triangle([a, b, c]: [Position; 3], p: Position) -> Position {
    let normal = cross(sub(b, a), sub(c, a));
    let area2 = dot(normal, normal);
    // Of a triangle without area only the sides count.
    if area2 > 0.0 {
        let foot = sub(p, scaled(normal, dot(sub(p, a), normal) / area2));
        let inside = |from: Position, to: Position| {
            dot(cross(sub(to, from), sub(foot, from)), normal) >= 0.0
        };
        if inside(a, b) && inside(b, c) && inside(c, a) {
            return foot;
        }
    }
    let sides = [[a, b], [b, c], [c, a]].map(|side| nearest_on_segment(side, p));
    let distance = |q: &Position| norm(sub(*q, p));
    sides.into_iter().min_by(|x, y| distance(x).total_cmp(&distance(y))).expect("three sides")
}
