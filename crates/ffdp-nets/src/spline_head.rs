//! A head that predicts control points of cubic B-splines in place of every voxel's displacement: smooth whatever the
//! network says, and by as many parameters as the engine's free-form deformation has.
//!
//! ```text
//! features ─ mean pooling, until a voxel measures `spacing` ─ convolution 3^3 ─ control points ─ B-splines ─ flow
//! ```
//! Control points lie where pooled features do, and twice more beyond every border, where they repeat the last.

use burn::tensor::Tensor;

use crate::layers::Conv3d;
use crate::ops::mean_pool;
use ffdp_burn::ops::{Beyond, ControlGrid, bspline};

/// Control points beyond a border.
const BEYOND: usize = 2;

/// Asserts that control points can lie so many voxels apart.
///
/// # Panics
/// Otherwise, naming the network.
pub(crate) fn check_spacing(network: &str, spacing: Option<usize>, finest: usize) {
    if let Some(spacing) = spacing {
        assert!(
            spacing.is_power_of_two() && (finest.max(2)..=16).contains(&spacing),
            "{network}: control points lie {}, .. or 16 voxels apart, got {spacing}",
            finest.max(2)
        );
    }
}

/// The flow of images of extent `size` (D, H, W), in voxels: from features `[N, C, ..]` of which one measures `voxel`
/// voxels along each axis, by control points `spacing` voxels apart.
pub(crate) fn spline_flow(
    head: &Conv3d,
    features: Tensor<5>,
    voxel: usize,
    spacing: usize,
    size: [usize; 3],
) -> Tensor<5> {
    let halvings = (spacing / voxel).ilog2();
    let features = (0..halvings).fold(features, |features, _| mean_pool(features));
    let points = [2, 3, 4].into_iter().fold(head.forward(features), |points, axis| {
        let last = points.dims()[axis] - 1;
        let [first, last] = [0, last].map(|at| points.clone().narrow(axis, at, 1));
        let repeated = |point: &Tensor<5>| std::iter::repeat_n(point.clone(), BEYOND);
        let all = repeated(&first).chain([points]).chain(repeated(&last));
        Tensor::cat(all.collect(), axis)
    });
    // The first feature's centre, less the control points before it.
    let origin = (voxel as f64 - 1.0) / 2.0 - (BEYOND * spacing) as f64;
    let grid = ControlGrid {
        spacing_voxels: [spacing as f64; 3],
        origin_voxels: [origin; 3],
        beyond: Beyond::default(),
    };
    bspline(points, &grid, size)
}
