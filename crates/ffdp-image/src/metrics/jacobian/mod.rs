//! Jacobian determinant of `phi(p) = p + u(p)`: volume change and folds.

mod sides;
#[cfg(test)]
mod tests;

use rayon::prelude::*;
use serde::Serialize;

use super::percentile::percentiles_of;
use crate::Result;
use sides::{Field, OneSided, is_fold};

/// Voxels that the deviation of ln det J leaves out at either end of an axis, as Learn2Reg does.
const CROP: usize = 2;

/// How a derivative is taken at a voxel; at the border, the one-sided one that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// `u(p + 1) - u(p)`.
    Forward,
    /// `u(p) - u(p - 1)`.
    Backward,
    /// `(u(p + 1) - u(p - 1)) / 2`.
    Central,
}

/// Distribution of det J over the voxels of a field.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct JacobianDistribution {
    /// Smallest determinant.
    pub min: f64,
    /// First percentile.
    pub p1: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest determinant.
    pub max: f64,
    /// Voxels with det J <= 0 or NaN.
    pub folds: u64,
    /// `folds` over the number of voxels.
    pub fold_fraction: f64,
}

/// Folds and volume change of a displacement field.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct JacobianReport {
    /// Forward differences along all axes.
    pub forward: JacobianDistribution,
    /// Backward differences along all axes.
    pub backward: JacobianDistribution,
    /// Central differences; blind to folds of one voxel (checkerboards).
    pub central: JacobianDistribution,
    /// Voxels that fold in at least one of: central, or any of the eight mixtures of forward and
    /// backward differences per axis. These are the true folds: a voxel that is not counted
    /// keeps its orientation in each of the eight corners around it.
    pub true_folds: u64,
    /// `true_folds` over the number of voxels.
    pub true_fold_fraction: f64,
    /// Standard deviation of ln det J (central, two voxels cropped per side where the grid has
    /// more than four, determinants below 1e-9 taken as 1e-9). 0 is volume-preserving up to a
    /// constant.
    pub sd_log: f64,
    /// The same as Learn2Reg's evaluation prints it: of ln(det J + 3), the sum clipped to
    /// 1e-9..1e9.
    pub sd_log_learn2reg: f64,
}

/// What of a [`JacobianReport`] is compared between methods.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Regularity {
    /// As [`JacobianReport::true_folds`].
    pub true_folds: u64,
    /// As [`JacobianReport::true_fold_fraction`].
    pub true_fold_fraction: f64,
    /// As [`JacobianReport::sd_log`].
    pub sd_log: f64,
}

/// det J at every voxel of a displacement `[3, D, H, W]` on a grid of `size` (x, y, z).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the field is not of that size.
pub fn jacobian_determinants(
    displacement: &[f32],
    size: [usize; 3],
    difference: Difference,
) -> Result<Vec<f32>> {
    let field = Field::new(displacement, size)?;
    Ok(determinants(&field, difference))
}

/// det J at single voxels, by their place in memory: central differences, as [`jacobian_determinants`] has them.
///
/// # Errors
/// As there.
pub fn determinant_of(
    displacement: &[f32],
    size: [usize; 3],
) -> Result<impl Fn(usize) -> f32 + Sync> {
    let field = Field::new(displacement, size)?;
    Ok(move |voxel| field.determinant(voxel, Difference::Central))
}

/// The report of a displacement `[3, D, H, W]` (voxels) on a grid of `size` (x, y, z). Memory: 4
/// bytes per voxel beside the field.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the field is not of that size.
pub fn jacobian(displacement: &[f32], size: [usize; 3]) -> Result<JacobianReport> {
    let field = Field::new(displacement, size)?;
    let one_sided = |difference| distribution(&determinants(&field, difference));
    let (forward, backward) = (one_sided(Difference::Forward), one_sided(Difference::Backward));
    let (central, Regularity { true_folds, true_fold_fraction, sd_log }) = central(&field, size);
    let sd_log_learn2reg = inner_deviation(&central, size, |det| (det + 3.0).clamp(1e-9, 1e9).ln());
    Ok(JacobianReport {
        forward,
        backward,
        central: distribution(&central),
        true_folds,
        true_fold_fraction,
        sd_log,
        sd_log_learn2reg,
    })
}

/// Folds and spread alone, in one pass over the displacement and without the percentiles of
/// [`jacobian()`]. Arguments and memory as there.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the field is not of that size.
pub fn regularity(displacement: &[f32], size: [usize; 3]) -> Result<Regularity> {
    Ok(central(&Field::new(displacement, size)?, size).1)
}

fn determinants(field: &Field, difference: Difference) -> Vec<f32> {
    let row = |sides: &mut OneSided, values: &mut [f32]| {
        sides.determinants(difference, values);
        0
    };
    field.map(row).0
}

/// det J by central differences, and what is read from it.
fn central(field: &Field, size: [usize; 3]) -> (Vec<f32>, Regularity) {
    let (central, true_folds) = field.map(|sides, central| {
        sides.determinants(Difference::Central, central);
        sides.folds(central)
    });
    let sd_log = inner_deviation(&central, size, |det| det.max(1e-9).ln());
    let true_fold_fraction = true_folds as f64 / field.len() as f64;
    (central, Regularity { true_folds, true_fold_fraction, sd_log })
}

fn distribution(determinants: &[f32]) -> JacobianDistribution {
    let count = determinants.len();
    let folds = determinants.par_iter().filter(|&&det| is_fold(det)).count() as u64;
    let [min, p1, p50, p99, max] = percentiles_of(determinants, [0.0, 1.0, 50.0, 99.0, 100.0]);
    JacobianDistribution {
        min,
        p1,
        p50,
        p99,
        max,
        folds,
        fold_fraction: folds as f64 / count as f64,
    }
}

/// Standard deviation (of the population) of `f(det)` over the voxels inside of [`CROP`]; an axis
/// too short for that is not cropped.
fn inner_deviation(determinants: &[f32], size: [usize; 3], f: impl Fn(f64) -> f64 + Sync) -> f64 {
    let [x, y, z] = size.map(|n| if n > 2 * CROP { CROP..n - CROP } else { 0..n });
    let count = (x.len() * y.len() * z.len()) as f64;
    // Plane by plane, added in order: the same bits on any number of threads.
    let sum = |term: &(dyn Fn(f64) -> f64 + Sync)| -> f64 {
        let plane = |z: usize| -> f64 {
            let rows = y.clone().map(|y| &determinants[(z * size[1] + y) * size[0]..][x.clone()]);
            rows.flatten().map(|&det| term(f(f64::from(det)))).sum()
        };
        z.clone().into_par_iter().map(plane).collect::<Vec<f64>>().into_iter().sum()
    };
    let mean = sum(&|v| v) / count;
    (sum(&|v| (v - mean).powi(2)) / count).sqrt()
}
