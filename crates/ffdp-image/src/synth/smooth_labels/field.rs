//! One label's field: B-spline coefficients on the box around the label.

use super::kernel::{Grid, reach, smooth};

/// Voxels beyond the label's box: one to the cells where the label is a candidate, two for the
/// splines that are not zero there.
pub const MARGIN: usize = 3;

/// Coefficients of one label.
#[derive(Clone, Debug)]
pub struct Field {
    /// Voxel of the first coefficient; negative beyond the image.
    start: [isize; 3],
    grid: Grid,
}

/// First and last voxel (x, y, z) of each label.
pub fn bounds(slots: &[u16], [nx, ny, _]: [usize; 3], count: usize) -> Vec<[[usize; 3]; 2]> {
    let mut boxes = vec![[[usize::MAX; 3], [0; 3]]; count];
    for (row, line) in slots.chunks(nx).enumerate() {
        let mut x = 0;
        for run in line.chunk_by(|a, b| a == b) {
            let [low, high] = &mut boxes[usize::from(run[0])];
            let (first, last) = ([x, row % ny, row / ny], [x + run.len() - 1, row % ny, row / ny]);
            for axis in 0..3 {
                low[axis] = low[axis].min(first[axis]);
                high[axis] = high[axis].max(last[axis]);
            }
            x += run.len();
        }
    }
    boxes
}

impl Field {
    /// The smoothed indicator of a label that fills the box `[low, high]`.
    pub fn of(
        slot: u16,
        [low, high]: [[usize; 3]; 2],
        slots: &[u16],
        size: [usize; 3],
        gaussian: &[f32],
    ) -> Self {
        let reach = reach(gaussian);
        let beyond = MARGIN + reach;
        let start = low.map(|v| v as isize - beyond as isize);
        let extent = [0, 1, 2].map(|axis| high[axis] - low[axis] + 1 + 2 * beyond);
        let indicator = indicator(slot, start, extent, slots, size);
        Self { start, grid: smooth(indicator, gaussian) }.without_rim(reach)
    }

    fn without_rim(self, rim: usize) -> Self {
        let [nx, ny, _] = self.grid.size;
        let size = self.grid.size.map(|n| n - 2 * rim);
        let mut values = Vec::with_capacity(size.iter().product());
        for z in rim..rim + size[2] {
            for y in rim..rim + size[1] {
                values.extend_from_slice(&self.grid.values[(z * ny + y) * nx + rim..][..size[0]]);
            }
        }
        Self { start: self.start.map(|s| s + rim as isize), grid: Grid { size, values } }
    }

    /// The `N` coefficients from `voxel` on along x.
    pub fn line<const N: usize>(&self, voxel: [isize; 3]) -> &[f32; N] {
        let offset = self.offset(voxel);
        self.grid.values[offset..offset + N].try_into().expect("the slice has N entries")
    }

    /// Adds to the coefficient of a voxel.
    pub fn lift(&mut self, voxel: [isize; 3], by: f32) {
        let offset = self.offset(voxel);
        self.grid.values[offset] += by;
    }

    fn offset(&self, voxel: [isize; 3]) -> usize {
        let [x, y, z] = [0, 1, 2].map(|axis| (voxel[axis] - self.start[axis]) as usize);
        (z * self.grid.size[1] + y) * self.grid.size[0] + x
    }
}

/// 1 where the label is; beyond the image its border continues.
fn indicator(
    slot: u16,
    start: [isize; 3],
    extent: [usize; 3],
    slots: &[u16],
    size: [usize; 3],
) -> Grid {
    let inside = |i: usize, axis: usize| {
        (start[axis] + i as isize).clamp(0, size[axis] as isize - 1) as usize
    };
    let mut values = Vec::with_capacity(extent.iter().product());
    for z in 0..extent[2] {
        for y in 0..extent[1] {
            let line = &slots[(inside(z, 2) * size[1] + inside(y, 1)) * size[0]..][..size[0]];
            let indicate = |x| f32::from(u8::from(line[inside(x, 0)] == slot));
            values.extend((0..extent[0]).map(indicate));
        }
    }
    Grid { size: extent, values }
}
