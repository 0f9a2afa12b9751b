//! The boxes around labels, so that the work is proportional to a label, not to the image.

use std::collections::BTreeMap;

use rayon::prelude::*;

/// First and last voxel index (x, y, z), both inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Box3 {
    pub low: [usize; 3],
    pub high: [usize; 3],
}

impl Box3 {
    /// The smallest box around both.
    pub fn union(self, other: Self) -> Self {
        Self {
            low: [0, 1, 2].map(|i| self.low[i].min(other.low[i])),
            high: [0, 1, 2].map(|i| self.high[i].max(other.high[i])),
        }
    }

    /// Voxels along (x, y, z).
    pub fn size(self) -> [usize; 3] {
        [0, 1, 2].map(|i| self.high[i] + 1 - self.low[i])
    }
}

type Boxes = BTreeMap<i32, Box3>;

/// The box of every label of a map `[D, H, W]` of `size` (x, y, z), background included.
pub(super) fn boxes(labels: &[i32], [nx, ny, _]: [usize; 3]) -> Boxes {
    let plane = |(z, plane): (usize, &[i32])| {
        let mut boxes = Boxes::new();
        for (y, row) in plane.chunks(nx).enumerate() {
            let mut x = 0;
            // Labels come in runs: one look-up per run.
            for run in row.chunk_by(|a, b| a == b) {
                let end = x + run.len();
                merge(&mut boxes, run[0], Box3 { low: [x, y, z], high: [end - 1, y, z] });
                x = end;
            }
        }
        boxes
    };
    let planes = labels.par_chunks(nx * ny).enumerate().map(plane);
    planes.reduce(Boxes::new, |mut all, some| {
        some.into_iter().for_each(|(label, part)| merge(&mut all, label, part));
        all
    })
}

fn merge(boxes: &mut Boxes, label: i32, part: Box3) {
    boxes.entry(label).and_modify(|known| *known = known.union(part)).or_insert(part);
}
