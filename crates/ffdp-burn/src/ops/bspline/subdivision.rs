//! The same field on a denser control grid, exactly: how a registration goes from level to level.

use burn::Tensor;

use super::control_grid::ControlGrid;
use super::taps::{Beyond, ON_BORDER};
use super::{Axis, Lattice, Map, apply};

/// The coefficients of the same field on a control grid whose knots contain those of `from`: `factors`
/// (x, y, z) times as dense, 2 to halve the spacing.
///
/// Returns the coefficients and their grid. The new grid begins one new spacing before the first cell of
/// `from` whose four control points exist and ends one after the last one; there the field stays as it is
/// (to rounding, 1e-6 of the coefficients in f32), in the same unit. Differentiable (first order).
///
/// An axis with a single control point stays as it is.
///
/// # Shapes
/// coefficients `[N, C, d, h, w]`; result `[N, C, f (d - 3) + 3, ..]`.
///
/// # Panics
/// If a factor is 0, or an axis has 2 or 3 control points, which have no complete cell.
pub fn subdivide(
    coefficients: Tensor<5>,
    from: &ControlGrid,
    factors: [usize; 3],
) -> (Tensor<5>, ControlGrid) {
    let dims = coefficients.dims();
    let controls = [dims[4], dims[3], dims[2]];
    let spacing = |a: usize| from.spacing_voxels[a] / factors[a].max(1) as f64;
    let origin = |a: usize| from.origin_voxels[a] + from.spacing_voxels[a] - spacing(a);
    let len = |a: usize| if controls[a] == 1 { 1 } else { factors[a] * (controls[a] - 3) + 3 };
    assert!(
        factors.iter().all(|f| *f > 0) && controls.iter().all(|n| *n == 1 || *n > 3),
        "subdivide: factors {factors:?} must be positive, and {controls:?} control points 1 or more \
         than 3 along every axis"
    );
    let to = ControlGrid {
        spacing_voxels: [0, 1, 2].map(spacing),
        origin_voxels: [0, 1, 2].map(origin),
        beyond: from.beyond,
    };
    let size = [2, 1, 0].map(len);
    (onto(coefficients, from, &to, size), to)
}

/// The coefficients of the field of `from` on the control grid `to` of extent `size` (d, h, w), whose knots
/// contain those of `from`. The field stays as it is wherever both grids have all four control points.
///
/// # Shapes
/// coefficients `[N, C, d, h, w]`; result `[N, C, ..size]`.
///
/// # Panics
/// If the knots of `to` do not contain those of `from`.
pub fn onto(
    coefficients: Tensor<5>,
    from: &ControlGrid,
    to: &ControlGrid,
    size: [usize; 3],
) -> Tensor<5> {
    from.check();
    to.check();
    let dims = coefficients.dims();
    let axis = |a: usize| {
        let ratio = from.spacing_voxels[a] / to.spacing_voxels[a];
        let shift = (from.origin_voxels[a] - to.origin_voxels[a]) / to.spacing_voxels[a];
        let whole = |value: f64| (value - value.round()).abs() < KNOTS;
        assert!(
            dims[4 - a] == 1 || (ratio > 0.5 && whole(ratio) && whole(shift)),
            "subdivide: the knots of {to:?} must contain those of {from:?}"
        );
        Axis {
            controls: dims[4 - a],
            len: size[2 - a],
            origin: 0.0,
            step: 1.0,
            spacing: 1.0,
            map: Map::TwoScale { factor: ratio.round() as usize, offset: shift.round() as i64 },
            beyond: Beyond::Fade,
        }
    };
    apply(coefficients, Lattice { axes: [0, 1, 2].map(axis) })
}

/// Spacings by which knots may miss each other: what positions of some thousand spacings lose to rounding.
const KNOTS: f64 = 1e3 * ON_BORDER;
