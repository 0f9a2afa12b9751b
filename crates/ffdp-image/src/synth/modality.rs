//! Contrasts that are tabulated.

use serde::{Deserialize, Serialize};

use super::structure::Structure::{self, *};

/// Contrast of an image: a table of mean intensities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Modality {
    /// T1-weighted MRI: white matter bright, fluid dark.
    #[default]
    T1,
    /// T2-weighted MRI: fluid bright, white matter dark.
    T2,
    /// Computed tomography in a brain window: little contrast, white matter slightly darker.
    Ct,
}

impl Modality {
    /// Mean and standard deviation of a structure's intensity; black is 0, white 1.
    ///
    /// The values are round figures read off typical scans, not fitted to any data set.
    pub fn statistics(self, structure: Structure) -> (f64, f64) {
        let [t1, t2, ct] = means(structure);
        match self {
            Self::T1 => (t1, 0.05),
            Self::T2 => (t2, 0.05),
            Self::Ct => (ct, 0.04),
        }
    }
}

/// Mean intensities in T1, T2 and CT.
fn means(structure: Structure) -> [f64; 3] {
    match structure {
        LeftWhiteMatter | RightWhiteMatter => [0.80, 0.32, 0.44],
        LeftCortex | RightCortex => [0.53, 0.52, 0.56],
        LeftLateralVentricle | RightLateralVentricle | ThirdVentricle => [0.13, 0.95, 0.18],
        LeftThalamus | RightThalamus => [0.65, 0.44, 0.55],
        LeftCaudate | RightCaudate => [0.55, 0.49, 0.58],
        LeftPutamen | RightPutamen => [0.59, 0.46, 0.57],
        LeftPallidum | RightPallidum => [0.71, 0.25, 0.60],
        LeftHippocampus | RightHippocampus => [0.52, 0.56, 0.53],
        LeftAmygdala | RightAmygdala => [0.50, 0.57, 0.54],
        LeftCerebellarCortex | RightCerebellarCortex => [0.49, 0.50, 0.55],
        LeftCerebellarWhiteMatter | RightCerebellarWhiteMatter => [0.75, 0.36, 0.45],
        Brainstem => [0.71, 0.39, 0.47],
        CerebrospinalFluid => [0.17, 0.92, 0.20],
    }
}
