//! How grids lie to each other in space: boxes, overlap, sameness, anatomical axes.

use super::geometry::{Geometry, SAME_GRID_TOLERANCE_VOXELS};
use super::space::{Affine, Physical};
use crate::error::{Error, Result};

/// Sample points per axis when the overlap of two grids is measured.
const OVERLAP_SAMPLES: usize = 32;

impl Geometry {
    /// Low and high corner in RAS mm of the smallest upright box around all voxel centres.
    pub fn bounding_box_mm(&self) -> [[f64; 3]; 2] {
        let to_mm = self.voxel_to_mm();
        let mut bounds = [[f64::INFINITY; 3], [f64::NEG_INFINITY; 3]];
        for corner in self.corners() {
            let p = to_mm.apply(corner);
            for i in 0..3 {
                bounds[0][i] = bounds[0][i].min(p[i]);
                bounds[1][i] = bounds[1][i].max(p[i]);
            }
        }
        bounds
    }

    /// Centre of the grid in RAS mm.
    pub fn center_mm(&self) -> [f64; 3] {
        self.voxel_to_mm().apply(self.size.map(|n| (n as f64 - 1.0) / 2.0))
    }

    /// Largest distance, in voxels of this grid, between corresponding corners of two grids;
    /// infinite when their sizes differ.
    pub fn grid_distance_voxels(&self, other: &Self) -> f64 {
        if self.size != other.size {
            return f64::INFINITY;
        }
        // The difference of two affine maps is largest at a corner.
        let map = other.voxel_to_mm().then(&self.mm_to_voxel());
        let moved = |p: [f64; 3]| {
            let q = map.apply(p);
            (q[0] - p[0]).hypot(q[1] - p[1]).hypot(q[2] - p[2])
        };
        self.corners().map(moved).into_iter().fold(0.0, f64::max)
    }

    /// Whether two grids have the same size and no corner differs by more than `tol_voxels`.
    pub fn same_grid(&self, other: &Self, tol_voxels: f64) -> bool {
        self.grid_distance_voxels(other) <= tol_voxels
    }

    /// Demands that `other` be the same grid within [`SAME_GRID_TOLERANCE_VOXELS`]; `what` names
    /// it in the message.
    ///
    /// # Errors
    /// [`Error::Grid`].
    pub fn check_same_grid(&self, other: &Self, what: &str) -> Result<()> {
        let distance_voxels = self.grid_distance_voxels(other);
        if distance_voxels <= SAME_GRID_TOLERANCE_VOXELS {
            return Ok(());
        }
        Err(Error::Grid {
            what: what.to_string(),
            expected_size: self.size,
            got_size: other.size,
            distance_voxels,
            tolerance_voxels: SAME_GRID_TOLERANCE_VOXELS,
        })
    }

    /// Part of this grid, in percent, whose points lie inside `other` (voxel faces included),
    /// measured on up to 32 points an axis.
    pub fn overlap_percent(&self, other: &Self) -> f64 {
        let map = self.voxel_to_mm().then(&other.mm_to_voxel());
        let counts = self.size.map(|n| n.min(OVERLAP_SAMPLES));
        // Centres of equal cells: the voxel centres themselves on a small grid.
        let at =
            |i: usize, k: usize| (k as f64 + 0.5) * self.size[i] as f64 / counts[i] as f64 - 0.5;
        let inside =
            |q: [f64; 3]| q.iter().zip(other.size).all(|(&v, n)| v >= -0.5 && v <= n as f64 - 0.5);
        let mut hits = 0usize;
        for z in 0..counts[2] {
            for y in 0..counts[1] {
                for x in 0..counts[0] {
                    hits += usize::from(inside(map.apply([at(0, x), at(1, y), at(2, z)])));
                }
            }
        }
        100.0 * hits as f64 / counts.iter().product::<usize>() as f64
    }

    /// This (moving) grid where a map from points of a fixed image to its own puts it in the fixed image's space.
    ///
    /// # Errors
    /// [`Error::Singular`] for a map that collapses space.
    pub fn placed_by(&self, affine: &Affine<Physical, Physical>) -> Result<Self> {
        Self::from_affine(self.size, self.voxel_to_mm().then(&affine.inverse()?))
    }

    /// Part of the smaller of the two grids, by volume, that lies inside the other, in percent.
    pub fn overlap_of_smaller_percent(&self, other: &Self) -> f64 {
        let volume = |grid: &Self| grid.voxel_to_mm().determinant().abs() * grid.len() as f64;
        match volume(self) <= volume(other) {
            true => self.overlap_percent(other),
            false => other.overlap_percent(self),
        }
    }

    /// Demands that more than nothing and at least `required_percent` of the smaller of this (fixed) and the `moving`
    /// grid lie inside the other; apply an initial transform to `moving` first.
    ///
    /// # Errors
    /// [`Error::NoOverlap`] with both boxes.
    pub fn check_overlap(&self, moving: &Self, required_percent: f64) -> Result<()> {
        let overlap_percent = self.overlap_of_smaller_percent(moving);
        if overlap_percent > 0.0 && overlap_percent >= required_percent {
            return Ok(());
        }
        Err(Error::NoOverlap {
            fixed_box_mm: self.bounding_box_mm(),
            moving_box_mm: moving.bounding_box_mm(),
            overlap_percent,
            required_percent,
        })
    }

    /// Anatomical direction in which each voxel axis grows, e.g. "RAS" or "LIA": the closest
    /// anatomical axis each, every anatomical axis used once.
    pub fn axis_codes(&self) -> String {
        const CODES: [[char; 2]; 3] = [['L', 'R'], ['P', 'A'], ['I', 'S']];
        const ORDERS: [[usize; 3]; 6] =
            [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        // order[j] is the anatomical axis of voxel axis j; take the best aligned assignment.
        let alignment =
            |order: &[usize; 3]| (0..3).map(|j| self.direction[order[j]][j].abs()).sum::<f64>();
        let order = ORDERS
            .iter()
            .max_by(|a, b| alignment(a).total_cmp(&alignment(b)))
            .expect("there are six orders");
        (0..3).map(|j| CODES[order[j]][usize::from(self.direction[order[j]][j] > 0.0)]).collect()
    }

    /// The eight outermost voxel centres.
    fn corners(&self) -> [[f64; 3]; 8] {
        std::array::from_fn(|c| {
            std::array::from_fn(|i| if c >> i & 1 == 1 { self.size[i] as f64 - 1.0 } else { 0.0 })
        })
    }
}
