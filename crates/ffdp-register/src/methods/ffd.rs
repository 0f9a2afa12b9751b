//! Free-form deformation: cubic B-splines on a grid of control points that grows denser from level to level.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::deformable::{Buffers, ControlSettings, FieldMethod};
use crate::checkpoint::SavedField;
use crate::models::{Displaced, Model};
use crate::parametric::{Parametric, spline_of};
use crate::settings::{
    ConvergenceSettings, Descent, LbfgsSettings, LevelSettings, MiSettings, OptimizerSettings,
    Regularization, Similarity, default_levels, in_range,
};
use ffdp_image::error::{Error, Result};
use ffdp_parallel::deform::SplinePenalties;

/// Hierarchical free-form deformation (Rueckert et al. 1999; Ikeda et al. 2014): a displacement of cubic B-splines.
/// From each level to the next the control points come to lie half as far apart, and the field stays as it is. After
/// another deformable stage the splines are added to what that has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FfdSettings {
    /// The levels, coarse to fine. Default: as those of the greedy method.
    pub levels: Vec<LevelSettings>,
    /// What is maximised. Default: normalised mutual information, for images of any modality.
    pub similarity: Similarity,
    /// Distance of the control points on the last level along (x, y, z), in mm; twice as much on the level before, and
    /// so on. Default 5.
    pub spacing_mm: [f64; 3],
    /// How far the first step of a level moves the control point that moves most, in voxels along the finest axis of
    /// the level; the longest step is four times that long. Default 1.
    pub learning_rate_voxels: f64,
    /// How the gradient of the control points is found. Default: analytically.
    pub gradient: SplineGradient,
    /// How a gradient becomes a step. Default: L-BFGS. With `adam` all control points move about as fast. With `sgd` the steepest
    /// descent of Ikeda et al.: steps of `learning_rate_voxels`, halved where the loss would rise, until a tenth of that does
    /// not help.
    pub optimizer: OptimizerSettings,
    /// Penalties for rough splines. Default: a weight of 5 mm^2 of the bending energy, which here is that of the
    /// splines themselves ([`bspline_bending`](ffdp_burn::ops::bspline_bending())).
    pub regularization: Regularization,
    /// Weight of the mean of `(log det J)^2` of the splines, which keeps volumes and forbids folds; see
    /// [`bspline_volume`](ffdp_burn::ops::bspline_volume()). Default 0.1.
    pub volume: f64,
    /// A level ends where Euclid's norm of the gradient of its loss, penalties included, is no larger: loss per voxel along
    /// the finest axis of the level by which a coefficient moves. Ikeda et al. take 1e-3, of the loss `2 - NMI` without
    /// penalties. Default 0: no such end.
    pub gradient_tolerance: f64,
    /// When a level ends before its iterations are spent.
    pub convergence: ConvergenceSettings,
}

/// How the gradient of control points is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplineGradient {
    /// By the chain rule, from smooth votes where information is compared.
    #[default]
    Analytic,
    /// As Ikeda et al. (2014) have it, to compare with: every control point is displaced by a voxel of the level, up and
    /// down along each axis, and the voxels of its support are counted anew, with whole votes. `mi` and `nmi` only, without
    /// masks and channels, on one device. Takes some hundred times as long.
    FiniteDifferences,
}

impl Default for FfdSettings {
    fn default() -> Self {
        Self {
            levels: default_levels(),
            similarity: Similarity::Nmi(MiSettings::default()),
            spacing_mm: [5.0; 3],
            learning_rate_voxels: 1.0,
            gradient: SplineGradient::Analytic,
            optimizer: OptimizerSettings::Lbfgs(LbfgsSettings::default()),
            regularization: Regularization { bending: 5.0, ..Regularization::default() },
            volume: 0.1,
            gradient_tolerance: 0.0,
            convergence: ConvergenceSettings::default(),
        }
    }
}

/// Control points farther apart are taken for typing errors.
const LARGEST_SPACING_MM: f64 = 1e3;
const LARGEST_WEIGHT: f64 = 1e6;
/// No loss changes faster: larger norms are typing errors.
const LARGEST_GRADIENT: f64 = 1e6;
/// Far enough for many voxels of a support to change their bins, which is all that differences see.
const DIFFERENCE_VOXELS: f64 = 1.0;

impl FieldMethod for FfdSettings {
    fn descent(&self) -> Descent<'_> {
        Descent {
            learning_rate_voxels: self.learning_rate_voxels,
            optimizer: self.optimizer,
            regularization: self.regularization,
            // The splines are smooth.
            ..Descent::quiet(&self.levels, &self.similarity, &self.convergence)
        }
    }

    fn validate(&self) -> Result<()> {
        self.descent().validate()?;
        for spacing in self.spacing_mm {
            let range = [f64::MIN_POSITIVE, LARGEST_SPACING_MM];
            in_range("spacing_mm (of control points)", spacing, range, "5 is a usual one")?;
        }
        let weights = [0.0, LARGEST_WEIGHT];
        in_range("the weight of the volume", self.volume, weights, "0 is off, 0.1 is usual")?;
        let norms = [0.0, LARGEST_GRADIENT];
        in_range(
            "gradient_tolerance",
            self.gradient_tolerance,
            norms,
            "0 is off, 1e-3 the paper's",
        )?;
        if self.optimizer.needs_slope() {
            let what = "the slope of the image is that of voxels, not of control points";
            return Err(Error::invalid(what, self.optimizer, "use lbfgs, sgd or adam"));
        }
        let information = self.similarity.loss().measure().and_then(|m| m.information());
        if self.gradient == SplineGradient::FiniteDifferences && information.is_none() {
            let what = "gradient = \"finite_differences\" is of mutual information";
            return Err(Error::invalid(what, &self.similarity, "use nmi or mi"));
        }
        Ok(())
    }

    fn settings_mut(&mut self) -> (&mut Vec<LevelSettings>, Option<&mut OptimizerSettings>) {
        (&mut self.levels, Some(&mut self.optimizer))
    }

    fn buffers(&self) -> Buffers {
        // No more: the peak of 91x109x91 voxels is 150 to 160 MB, that of the results. Steps that a search keeps are
        // those of control points, which are few: a field and its gradient are all that there is of voxels.
        Buffers::of_iterations(self, 60)
    }

    fn model(&self) -> Arc<dyn Model> {
        Arc::new(Displaced)
    }

    fn restore(&self, saved: &SavedField) -> Result<Arc<dyn Parametric>> {
        spline_of(saved)
    }

    fn control_points(&self) -> Option<ControlSettings> {
        let penalties =
            SplinePenalties { bending: self.regularization.bending, volume: self.volume };
        let differences = match self.gradient {
            SplineGradient::Analytic => None,
            SplineGradient::FiniteDifferences => Some(DIFFERENCE_VOXELS),
        };
        let Self { spacing_mm, gradient_tolerance, .. } = *self;
        Some(ControlSettings { spacing_mm, penalties, differences, gradient_tolerance })
    }
}
