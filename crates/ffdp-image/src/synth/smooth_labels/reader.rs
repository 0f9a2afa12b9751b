//! Asking smooth labels at a point.

use super::SmoothLabels;

/// Coefficients of one label around one voxel, 5 x 5 x 5: all that points in its cell need.
type Block = [f32; 125];

/// The labels near a voxel; 27 voxels have no more.
pub struct Candidates {
    slots: [u16; 27],
    count: usize,
}

impl Candidates {
    pub fn as_slice(&self) -> &[u16] {
        &self.slots[..self.count]
    }
}

/// The labels of a voxel and its 26 neighbours, ascending.
pub fn candidates(labels: &SmoothLabels, [x, y, z]: [usize; 3]) -> Candidates {
    let [nx, ny, nz] = labels.geometry.size;
    let around = |i: usize, count: usize| i.saturating_sub(1)..(i + 2).min(count);
    let mut near = Candidates { slots: [0; 27], count: 0 };
    for k in around(z, nz) {
        for j in around(y, ny) {
            for &slot in &labels.slots[(k * ny + j) * nx..][around(x, nx)] {
                if !near.as_slice().contains(&slot) {
                    near.slots[near.count] = slot;
                    near.count += 1;
                }
            }
        }
    }
    near.slots[..near.count].sort_unstable();
    near
}

/// Reads points one after the other; neighbours in one cell share its coefficients.
pub struct Reader<'a> {
    labels: &'a SmoothLabels,
    /// Offset of the voxel whose coefficients are loaded.
    cell: Option<usize>,
    near: Candidates,
    blocks: Vec<Block>,
}

impl<'a> Reader<'a> {
    pub fn new(labels: &'a SmoothLabels) -> Self {
        let near = Candidates { slots: [0; 27], count: 0 };
        Self { labels, cell: None, near, blocks: Vec::new() }
    }

    /// The label (its slot) at a continuous voxel index; `None` outside the image, for NaN too.
    pub fn at(&mut self, p: [f64; 3]) -> Option<u16> {
        let size = self.labels.geometry.size;
        let mut voxel = [0; 3];
        for axis in 0..3 {
            if !(-0.5..=size[axis] as f64 - 0.5).contains(&p[axis]) {
                return None;
            }
            voxel[axis] = ((p[axis] + 0.5) as usize).min(size[axis] - 1);
        }
        let cell = (voxel[2] * size[1] + voxel[1]) * size[0] + voxel[0];
        if !self.labels.mixed[cell] {
            return Some(self.labels.slots[cell]);
        }
        if self.cell != Some(cell) {
            self.load(voxel);
            self.cell = Some(cell);
        }
        Some(self.largest([0, 1, 2].map(|axis| (p[axis] - voxel[axis] as f64) as f32)))
    }

    fn load(&mut self, voxel: [usize; 3]) {
        self.near = candidates(self.labels, voxel);
        self.blocks.resize(self.near.count, [0.0; 125]);
        let [x, y, z] = voxel.map(|v| v as isize);
        for (block, &slot) in self.blocks.iter_mut().zip(self.near.as_slice()) {
            let field = &self.labels.fields[usize::from(slot)];
            for (row, line) in block.as_chunks_mut::<5>().0.iter_mut().enumerate() {
                let (j, k) = (row as isize % 5 - 2, row as isize / 5 - 2);
                *line = *field.line::<5>([x - 2, y + j, z + k]);
            }
        }
    }

    /// The label with the largest field at an offset from the loaded voxel, in -0.5..=0.5; of
    /// equals the lowest.
    fn largest(&self, offset: [f32; 3]) -> u16 {
        // Four of the five coefficients along each axis: those around the point.
        let first = offset.map(|t| usize::from(t >= 0.0));
        let [wx, wy, wz] = offset.map(|t| cubic_weights(if t < 0.0 { t + 1.0 } else { t }));
        let mut best = (f32::NEG_INFINITY, self.near.slots[0]);
        for (block, &slot) in self.blocks.iter().zip(self.near.as_slice()) {
            let mut along = [0f32; 4];
            for (k, wz) in wz.iter().enumerate() {
                for (j, wy) in wy.iter().enumerate() {
                    let start = ((first[2] + k) * 5 + first[1] + j) * 5 + first[0];
                    let w = wz * wy;
                    (0..4).for_each(|i| along[i] += w * block[start + i]);
                }
            }
            let value =
                (wx[0] * along[0] + wx[1] * along[1]) + (wx[2] * along[2] + wx[3] * along[3]);
            if value > best.0 {
                best = (value, slot);
            }
        }
        best.1
    }
}

/// Cubic B-spline weights of the four knots around a point `t` in 0..=1 after the second of them.
fn cubic_weights(t: f32) -> [f32; 4] {
    let s = 1.0 - t;
    [
        s * s * s / 6.0,
        2.0 / 3.0 - t * t * (1.0 - 0.5 * t),
        2.0 / 3.0 - s * s * (1.0 - 0.5 * s),
        t * t * t / 6.0,
    ]
}
