//! Planes through a volume, as a radiologist hangs them: front or top upwards.

use ffdp_image::image::Geometry;

/// A plane in the middle of a grid, and how it lies on a picture.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    pub name: &'static str,
    size: [usize; 3],
    /// Voxel axis to the right of the picture, and whether it runs to the left.
    across: (usize, bool),
    /// Voxel axis down the picture, and whether it runs up.
    down: (usize, bool),
    normal: usize,
}

/// The axial, coronal and sagittal plane through the middle of a grid.
pub fn middle(geometry: &Geometry) -> [Plane; 3] {
    let codes: Vec<char> = geometry.axis_codes().chars().collect();
    // The voxel axis along an anatomical direction, and whether it runs against it.
    let axis = |along: char, against: char| {
        let at = codes.iter().position(|&c| c == along || c == against);
        let at = at.expect("every anatomical axis has one voxel axis");
        (at, codes[at] == against)
    };
    let (right, front, top) = (axis('R', 'L'), axis('A', 'P'), axis('S', 'I'));
    let plane = |name, across, (down, reversed): (usize, bool), normal: (usize, bool)| Plane {
        name,
        size: geometry.size,
        across,
        down: (down, !reversed),
        normal: normal.0,
    };
    [
        plane("axial", right, front, top),
        plane("coronal", right, top, front),
        plane("sagittal", front, top, right),
    ]
}

impl Plane {
    /// Columns and rows, in voxels.
    pub fn extent(&self) -> [usize; 2] {
        [self.size[self.across.0], self.size[self.down.0]]
    }

    /// Position in memory of the voxel in a column and row.
    pub fn offset(&self, column: usize, row: usize) -> usize {
        let mut index = [0; 3];
        index[self.normal] = self.size[self.normal] / 2;
        let place = |(axis, reversed): (usize, bool), i: usize| {
            if reversed { self.size[axis] - 1 - i } else { i }
        };
        index[self.across.0] = place(self.across, column);
        index[self.down.0] = place(self.down, row);
        (index[2] * self.size[1] + index[1]) * self.size[0] + index[0]
    }

    /// The part of a displacement `[3, D, H, W]` within the plane, in columns and rows.
    pub fn in_plane(&self, displacement: &[f32], column: usize, row: usize) -> [f64; 2] {
        let count: usize = self.size.iter().product();
        let offset = self.offset(column, row);
        [self.across, self.down].map(|(axis, reversed)| {
            let u = f64::from(displacement[axis * count + offset]);
            if reversed { -u } else { u }
        })
    }
}
