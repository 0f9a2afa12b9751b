//! The control points of a level, and what they begin with.

use burn::Tensor;

use ffdp_burn::ops::{Beyond, ControlGrid, subdivide};
use ffdp_burn::transform::BsplineTransform;
use ffdp_image::error::Result;
use ffdp_image::image::Geometry;
use ffdp_kit::TensorPlace;
use ffdp_parallel::deform::SplinePenalties;

/// Control points as a method wants them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlSettings {
    /// On the last level, along (x, y, z).
    pub spacing_mm: [f64; 3],
    pub penalties: SplinePenalties,
    /// Voxels by which control points are displaced, where their gradient is that of differences.
    pub differences: Option<f64>,
    /// The norm of a gradient that ends a level; 0 for none.
    pub gradient_tolerance: f64,
}

/// Where the control points of a level lie: an extent (d, h, w) along the axes of the level's fixed grid.
#[derive(Clone, Debug)]
pub(super) struct Control {
    pub grid: ControlGrid,
    pub extent: [usize; 3],
    pub penalties: SplinePenalties,
    pub differences: Option<f64>,
    pub gradient_tolerance: f64,
}

/// Voxels by which grids may miss each other: what positions of some hundred voxels lose to rounding.
const SAME: f64 = 1e-6;

impl ControlSettings {
    /// Those of level `index` of `count`. The cells cover the voxels of the `full` grid to their edges, so that they
    /// cover those of every level; of the first level they are as many as it takes, of each other one twice as many
    /// an axis as of the one before.
    pub(super) fn on(
        &self,
        full: &Geometry,
        level: &Geometry,
        [index, count]: [usize; 2],
    ) -> Control {
        let coarsest = 2f64.powi(count as i32 - 1);
        let halvings = 2f64.powi(index as i32);
        let is_plane = |a: usize| full.size[a] == 1;
        let spacing = [0, 1, 2].map(|a| self.spacing_mm[a] * coarsest / halvings);
        let first = |a: usize| match is_plane(a) {
            // In the middle of the cell that a control point which is repeated has.
            true => -1.5 * spacing[a] / full.spacing_mm[a],
            false => -0.5 - spacing[a] / full.spacing_mm[a],
        };
        let points = |a: usize| {
            let length = full.size[a] as f64 * full.spacing_mm[a];
            let cells = (length / (self.spacing_mm[a] * coarsest)).ceil().max(1.0) * halvings;
            if is_plane(a) { 1 } else { cells as usize + 3 }
        };
        let origin_mm = full.voxel_to_mm().apply([0, 1, 2].map(first));
        let grid = ControlGrid {
            spacing_voxels: [0, 1, 2].map(|a| spacing[a] / level.spacing_mm[a]),
            origin_voxels: level.mm_to_voxel().apply(origin_mm),
            beyond: Beyond::default(),
        };
        let Self { penalties, differences, gradient_tolerance, .. } = *self;
        let extent = [2, 1, 0].map(points);
        Control { grid, extent, penalties, differences, gradient_tolerance }
    }
}

impl Control {
    /// At rest.
    pub fn zero_coefficients(&self, like: &TensorPlace) -> Tensor<5> {
        let [d, h, w] = self.extent;
        Tensor::zeros([1, 3, d, h, w], like)
    }

    /// Whether these are the control points of `spline`, where their knots are among each other.
    pub fn has(&self, spline: &BsplineTransform) -> bool {
        // An axis that does not vary is repeated in a transform.
        self.extent.map(|n| if n == 1 { 4 } else { n }) == spline.geometry().dims()
    }

    /// The same field as that of `spline`, by these control points: coefficients in voxels of `level`. `None` where
    /// their knots are not among these.
    pub fn same_field(
        &self,
        spline: &BsplineTransform,
        level: &Geometry,
        like: &TensorPlace,
    ) -> Result<Option<Tensor<5>>> {
        let (mut coefficients, from) = spline.control_grid(level, like)?;
        let mut factors = [1; 3];
        for (axis, whole) in factors.iter_mut().enumerate() {
            if self.extent[2 - axis] == 1 {
                coefficients = coefficients.narrow(4 - axis, 0, 1);
                continue;
            }
            let factor = from.spacing_voxels[axis] / self.grid.spacing_voxels[axis];
            if (factor - factor.round()).abs() > SAME || factor.round() < 1.0 {
                return Ok(None);
            }
            *whole = factor.round() as usize;
        }
        let (finer, to) = subdivide(coefficients, &from, factors);
        let moved = |a: usize| (to.origin_voxels[a] - self.grid.origin_voxels[a]).abs() > SAME;
        let moves = (0..3).any(|a| self.extent[2 - a] > 1 && moved(a));
        let [_, _, d, h, w] = finer.dims();
        Ok((!moves && [d, h, w] == self.extent).then_some(finer))
    }

    /// Coefficients in voxels of `level` as a transform, in what f32 holds of mm: files keep no more.
    pub fn transform(&self, coefficients: Tensor<5>, level: &Geometry) -> Result<BsplineTransform> {
        let spline = BsplineTransform::from_control_grid(coefficients, &self.grid, level)?;
        let kept = spline.coefficients().iter().map(|mm| f64::from(*mm as f32));
        BsplineTransform::new(kept.collect(), spline.geometry().clone())
    }
}
