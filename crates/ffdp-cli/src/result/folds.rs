//! Volume change and folds.

use ffdp_image::metrics::{JacobianDistribution, JacobianReport};
use serde::Serialize;

/// Volume change and folds of the whole map: det J of `p + u(p)` times the determinant of the affine map.
#[derive(Debug, Serialize)]
pub struct Folds {
    /// Voxels that fold in any of the nine difference stencils.
    pub voxels: u64,
    /// The same as a part of all voxels, in percent.
    pub percent: f64,
    /// det J by central differences.
    pub jacobian_central: Distribution,
    /// det J by forward differences.
    pub jacobian_forward: Distribution,
    /// det J by backward differences.
    pub jacobian_backward: Distribution,
    /// Standard deviation of ln det J, central differences.
    pub sd_log_jacobian: f64,
}

/// Distribution of det J.
#[derive(Debug, Serialize)]
pub struct Distribution {
    pub min: f64,
    pub p1: f64,
    pub median: f64,
    pub p99: f64,
    pub max: f64,
    /// Part of the voxels with det J <= 0, in percent.
    pub folded_percent: f64,
}

impl Folds {
    /// Of a displacement, after which an affine map changes all volumes by `determinant`.
    pub fn new(report: &JacobianReport, determinant: f64) -> Self {
        let whole = |d: JacobianDistribution| Distribution {
            min: determinant * d.min,
            p1: determinant * d.p1,
            median: determinant * d.p50,
            p99: determinant * d.p99,
            max: determinant * d.max,
            folded_percent: 100.0 * d.fold_fraction,
        };
        Self {
            voxels: report.true_folds,
            percent: 100.0 * report.true_fold_fraction,
            jacobian_central: whole(report.central),
            jacobian_forward: whole(report.forward),
            jacobian_backward: whole(report.backward),
            sd_log_jacobian: report.sd_log,
        }
    }
}
