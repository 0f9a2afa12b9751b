//! Intensity painting: per-label statistics, smoothing, bias field and noise.
//!
//! Algorithm 6 of the FFDP paper draws each voxel from its label's normal distribution, leaves
//! the background at zero and smooths by 0.75 voxel; a multiplicative bias field and the
//! scanner's noise follow here. Another modality is another table of means and nothing else.

use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::intensity_table::IntensityTable;
use super::painting::{Smoother, texture};
use super::phantom::{HEAD_MM, PhantomSettings};
use super::random::{Stream, generator};
use super::spline::{Lattice, SplineField};
use super::structure::Structure::{self, *};
use crate::Result;
use crate::image::{LabelMap, Volume};

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

/// An image of a label map, intensities in 0..1, in the modality of the settings.
///
/// Labels that are no [`Structure`] are painted as background.
///
/// # Errors
/// Settings that do not validate.
pub fn paint(labels: &LabelMap, settings: &PhantomSettings, seed: u64) -> Result<Volume> {
    settings.validate()?;
    let [nx, ny, nz] = labels.geometry.size;
    let mut table = IntensityTable::of_phantom(settings.modality);
    table.labels.values_mut().for_each(|label| label.sd *= settings.texture);
    let smoother = Smoother::new(settings.smoothing_voxels);
    let mut data = texture(&labels.data, nx * ny, 0, &table, seed);
    smoother.in_plane(&mut data, [nx, ny]);
    let mut data = smoother.across(&data, 0, nx * ny, 0..nz, nz);
    let bias = bias_field(seed);
    let to_mm = labels.geometry.voxel_to_mm();
    data.par_chunks_mut(nx * ny).enumerate().for_each(|(z, slice)| {
        let mut random = generator(seed, Stream::Noise, z as u64);
        for (i, value) in slice.iter_mut().enumerate() {
            let inside = labels.data[z * nx * ny + i] != 0;
            if !inside && *value == 0.0 {
                continue;
            }
            let point = to_mm.apply([(i % nx) as f64, (i / nx) as f64, z as f64]);
            let gain = (settings.bias * bias.at(point)[0]).exp();
            let noise: f64 = if inside { StandardNormal.sample(&mut random) } else { 0.0 };
            *value = (f64::from(*value) * gain + settings.noise * noise).clamp(0.0, 1.0) as f32;
        }
    });
    Volume::new(data, labels.geometry.clone())
}

/// Logarithm of the bias field, unit variance; defined in mm, so any grid samples the same one.
fn bias_field(seed: u64) -> SplineField {
    const KNOT_SPACING_MM: f64 = 90.0;
    // Unit variance under cubic B-splines, see `warp.rs`.
    let amplitude = (315.0f64 / 151.0).powf(1.5);
    let lattice = Lattice::covering(HEAD_MM, KNOT_SPACING_MM, 1);
    let mut random = generator(seed, Stream::Bias, 0);
    let mut draw = || -> f64 { StandardNormal.sample(&mut random) };
    let coefficients: Vec<[f64; 3]> =
        (0..lattice.len()).map(|_| [amplitude * draw(), 0.0, 0.0]).collect();
    SplineField::new(lattice, &coefficients)
}
