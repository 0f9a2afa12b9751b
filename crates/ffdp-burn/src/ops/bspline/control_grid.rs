//! Where the control points lie, seen from the output grid.

use burn::Tensor;

use super::Lattice;
use super::taps::{Axis, Beyond, Map, ON_BORDER};

/// A control grid along the axes of an output grid. All members in the order (x, y, z).
///
/// An axis with a single control point does not vary: the field is constant along it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlGrid {
    /// Distance between control points, in voxels of the output grid; any positive number.
    pub spacing_voxels: [f64; 3],
    /// Where the first control point lies, in voxels of the output grid; usually one spacing before
    /// its first voxel.
    pub origin_voxels: [f64; 3],
    /// What lies beyond; fades by default. It makes no difference where a grid covers its output.
    pub beyond: Beyond,
}

impl ControlGrid {
    /// The grid of this spacing for an output of extent `size` (D, H, W), with its extent (d, h, w): all
    /// four control points of every voxel exist. The first cell begins at the first voxel, the last one
    /// ends at the last voxel or beyond it. An axis of one voxel gets one control point.
    ///
    /// # Panics
    /// If the spacing is not positive and finite.
    pub fn covering(size: [usize; 3], spacing_voxels: [f64; 3]) -> (Self, [usize; 3]) {
        let origin_voxels = spacing_voxels.map(|spacing| -spacing);
        let grid = Self { spacing_voxels, origin_voxels, beyond: Beyond::default() };
        grid.check();
        let controls = |axis: usize| {
            let last = size[2 - axis] - 1;
            let cells = (last as f64 / spacing_voxels[axis] - ON_BORDER).ceil().max(1.0);
            if last == 0 { 1 } else { cells as usize + 3 }
        };
        (grid, [2, 1, 0].map(controls))
    }

    pub(crate) fn check(&self) {
        let Self { spacing_voxels, origin_voxels, .. } = self;
        assert!(
            spacing_voxels.iter().all(|s| s.is_finite() && *s > 0.0)
                && origin_voxels.iter().all(|o| o.is_finite()),
            "bspline: the spacing must be positive and the origin finite, got {spacing_voxels:?} \
             and {origin_voxels:?}"
        );
    }

    /// The tables from `controls` (d, h, w) to the `size` (D, H, W) voxels from `start` on; one map an axis
    /// (x, y, z).
    pub(crate) fn lattice(
        &self,
        controls: [usize; 3],
        start: [usize; 3],
        size: [usize; 3],
        maps: [Map; 3],
    ) -> Lattice {
        let axis = |axis: usize| Axis {
            controls: controls[2 - axis],
            len: size[2 - axis],
            origin: self.origin_voxels[axis] - start[2 - axis] as f64,
            step: 1.0,
            spacing: self.spacing_voxels[axis],
            map: maps[axis],
            beyond: self.beyond,
        };
        Lattice { axes: [0, 1, 2].map(axis) }
    }
}

/// What a unit of the coefficients, and the distance between control points, measure in mm: (x, y, z).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Millimetres {
    /// A unit of each component of the coefficients.
    pub unit: [f64; 3],
    /// From one control point to the next along each axis.
    pub spacing: [f64; 3],
}

impl Millimetres {
    /// Of coefficients `[N, 3, d, h, w]` in voxels of the output grid, whose voxels measure `voxel_mm`.
    ///
    /// # Panics
    /// If there are not 3 components, an axis has 2 or 3 control points, which have no complete cell, or a length is
    /// not positive.
    pub(crate) fn of(
        op: &str,
        coefficients: &Tensor<5>,
        grid: &ControlGrid,
        voxel_mm: [f64; 3],
    ) -> Self {
        let dims = coefficients.dims();
        assert!(
            dims[1] == 3 && dims[2..].iter().all(|n| *n == 1 || *n > 3),
            "{op}: the coefficients must be [N, 3, d, h, w] with 1 or more than 3 control points along \
             every axis, got {dims:?}"
        );
        let spacing = [0, 1, 2].map(|a| grid.spacing_voxels[a] * voxel_mm[a]);
        assert!(
            spacing.iter().chain(&voxel_mm).all(|s| s.is_finite() && *s > 0.0),
            "{op}: spacings must be positive, got {spacing:?} mm"
        );
        Self { unit: voxel_mm, spacing }
    }
}
