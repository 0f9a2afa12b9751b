//! Connected parts.

use super::{Cells, Shape};

impl Shape {
    /// The largest connected part of a surface or curve, by number of cells; clouds stay as they are.
    pub fn largest_component(&self) -> Self {
        let (indices, corners) = self.cells.indices();
        if indices.is_empty() {
            return self.clone();
        }
        let mut parent: Vec<u32> = (0..self.points.len() as u32).collect();
        for cell in indices.chunks_exact(corners) {
            for pair in cell.windows(2) {
                let [a, b] = [root(&mut parent, pair[0]), root(&mut parent, pair[1])];
                parent[a.max(b) as usize] = a.min(b);
            }
        }
        let mut count = vec![0_usize; self.points.len()];
        for cell in indices.chunks_exact(corners) {
            count[root(&mut parent, cell[0]) as usize] += 1;
        }
        // The first of several of one size.
        let largest = (0..count.len()).max_by_key(|&i| (count[i], usize::MAX - i));
        let largest = largest.expect("a shape has points") as u32;
        let roots: Vec<u32> = (0..parent.len() as u32).map(|i| root(&mut parent, i)).collect();
        self.keeping(|index| roots[index as usize] == largest)
    }

    /// The points that `keep` wants, and the cells that lose none of theirs.
    pub(crate) fn keeping(&self, keep: impl Fn(u32) -> bool) -> Self {
        let mut number = vec![u32::MAX; self.points.len()];
        let mut points = Vec::new();
        for (index, &point) in self.points.iter().enumerate() {
            if keep(index as u32) {
                number[index] = points.len() as u32;
                points.push(point);
            }
        }
        fn kept<const N: usize>(cells: &[[u32; N]], number: &[u32]) -> Vec<[u32; N]> {
            let renumbered = cells.iter().map(|cell| cell.map(|i| number[i as usize]));
            renumbered.filter(|cell| !cell.contains(&u32::MAX)).collect()
        }
        let cells = match &self.cells {
            Cells::None => Cells::None,
            Cells::Edges(cells) => Cells::Edges(kept(cells, &number)),
            Cells::Triangles(cells) => Cells::Triangles(kept(cells, &number)),
        };
        Self { points, cells }
    }
}

/// The smallest index that is known to be connected, with shorter ways for the next time.
fn root(parent: &mut [u32], mut index: u32) -> u32 {
    while parent[index as usize] != index {
        let above = parent[parent[index as usize] as usize];
        parent[index as usize] = above;
        index = above;
    }
    index
}
