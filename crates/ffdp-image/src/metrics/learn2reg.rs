//! The measures of the Learn2Reg challenge, computed as its evaluation computes them.
//!
//! | measure | as Learn2Reg has it, other than this crate's own |
//! |---|---|
//! | warped labels | nearest, background outside of the outer voxel *centres* |
//! | Dice | NaN only where the fixed or the moving image lacks the label; 0 where the warp lost it |
//! | HD95 | in voxels, whatever the spacing; infinite where the warp lost the label |
//! | SDlogJ | of ln(det J + 3), central differences, two voxels cropped per side |
//! | TRE | displacement by cubic spline interpolation at the fixed landmarks; spacing of the moving image |
//! | foldings | its own count is always 0 (it tests after adding 3); the true folds are given |
//!
//! Source: `evaluation/` of github.com/MDL-UzL/L2R (evaluation version 2.0); Hering et al. 2023.

use serde::Serialize;

use super::dice::dice_of;
use super::jacobian::jacobian;
use super::label_warp::nearest_labels;
use super::surface::{DistanceUnit, surface_distances};
use super::tre::{ErrorStatistics, tre};
use crate::Result;
use crate::image::CubicSpline;
use crate::image::LabelMap;

/// A registered pair, all on one grid.
#[derive(Clone, Copy, Debug)]
pub struct Learn2RegCase<'a> {
    /// Labels of the fixed image.
    pub fixed: &'a LabelMap,
    /// Labels of the moving image, not warped.
    pub moving: &'a LabelMap,
    /// `[3, D, H, W]`, components (x, y, z), in voxels.
    pub displacement: &'a [f32],
    /// The labels that count.
    pub ids: &'a [i32],
    /// Corresponding points, if there are any.
    pub landmarks: Option<VoxelLandmarks<'a>>,
}

/// Corresponding points as continuous voxel indices (x, y, z).
#[derive(Clone, Copy, Debug)]
pub struct VoxelLandmarks<'a> {
    /// In the fixed image.
    pub fixed: &'a [[f64; 3]],
    /// In the moving image.
    pub moving: &'a [[f64; 3]],
    /// Spacing of the moving image along (x, y, z).
    pub spacing_mm: [f64; 3],
}

/// One label of a [`Learn2RegReport`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Learn2RegLabel {
    /// The label id.
    pub id: i32,
    /// NaN where the fixed or the moving image lacks the label.
    pub dice: f64,
    /// 95 % Hausdorff distance in voxels; NaN as `dice`, infinite where the warp lost the label.
    pub hd95_voxels: f64,
}

/// What Learn2Reg's evaluation reports about a pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Learn2RegReport {
    /// In the order asked for.
    pub labels: Vec<Learn2RegLabel>,
    /// Mean of the Dice that are not NaN.
    pub mean_dice: f64,
    /// Mean of the HD95 that are not NaN.
    pub mean_hd95_voxels: f64,
    /// Standard deviation of ln(det J + 3).
    pub sd_log_jacobian: f64,
    /// Voxels that fold: [`JacobianReport::true_folds`](super::JacobianReport::true_folds).
    pub true_folds: u64,
    /// With landmarks: the distances in mm.
    pub tre_mm: Option<ErrorStatistics>,
}

/// The Learn2Reg measures of a registered pair.
///
/// # Errors
/// [`Error::Grid`](crate::Error::Grid) when the label maps are on different grids,
/// [`Error::Shape`](crate::Error::Shape) when the displacement or the landmarks do not fit.
pub fn learn2reg(case: &Learn2RegCase) -> Result<Learn2RegReport> {
    let Learn2RegCase { fixed, moving, displacement, ids, landmarks } = *case;
    let inside = |p: f64, size: usize| p >= 0.0 && p <= (size - 1) as f64;
    let moved = nearest_labels(moving, displacement, inside)?;
    let surfaces = surface_distances(fixed, &moved, ids, DistanceUnit::Voxels)?;
    let present = moving.ids();
    let dice = dice_of(&fixed.data, &moved.data, ids)?.counting_lost(&present);
    let label = |(dice, surface): (&super::LabelDice, &super::LabelSurface)| {
        let lost = !dice.dice.is_nan() && dice.moved_voxels == 0;
        let hd95_voxels = if lost { f64::INFINITY } else { surface.hd95 };
        Learn2RegLabel { id: dice.id, dice: dice.dice, hd95_voxels }
    };
    let labels: Vec<Learn2RegLabel> = dice.labels.iter().zip(&surfaces).map(label).collect();
    let report = jacobian(displacement, fixed.geometry.size)?;
    let tre_mm = landmarks
        .map(|points| spline_tre(&points, displacement, fixed.geometry.size))
        .transpose()?;
    Ok(Learn2RegReport {
        mean_dice: nan_mean(labels.iter().map(|label| label.dice)),
        mean_hd95_voxels: nan_mean(labels.iter().map(|label| label.hd95_voxels)),
        labels,
        sd_log_jacobian: report.sd_log_learn2reg,
        true_folds: report.true_folds,
        tre_mm,
    })
}

fn spline_tre(
    points: &VoxelLandmarks,
    displacement: &[f32],
    size: [usize; 3],
) -> Result<ErrorStatistics> {
    let count = displacement.len() / 3;
    let component = |c: usize| CubicSpline::through(&displacement[c * count..][..count], size);
    let u = [component(0), component(1), component(2)];
    let to_mm = |p: [f64; 3]| [0, 1, 2].map(|i| p[i] * points.spacing_mm[i]);
    let moved = |p: &[f64; 3]| to_mm([0, 1, 2].map(|i| p[i] + u[i].at(*p)));
    let moved: Vec<[f64; 3]> = points.fixed.iter().map(moved).collect();
    let moving: Vec<[f64; 3]> = points.moving.iter().map(|&p| to_mm(p)).collect();
    Ok(tre(&moved, &moving, |p| p)?.after)
}

fn nan_mean(values: impl Iterator<Item = f64>) -> f64 {
    let present: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
    present.iter().sum::<f64>() / present.len() as f64
}
