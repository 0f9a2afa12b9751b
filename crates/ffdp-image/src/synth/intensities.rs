//! Synthetic intensities: per-label statistics, smoothing, bias field and noise.
//!
//! Algorithm 6 of the FFDP paper draws each voxel from its label's normal distribution, leaves
//! the background at zero and smooths by 0.75 voxel; a multiplicative bias field and the
//! scanner's noise follow here. Another modality is another table of means and nothing else.

use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;

use super::head::HEAD_MM;
use super::intensity_table::IntensityTable;
use super::phantom::PhantomSettings;
use super::random::{Stream, generator};
use super::spline::{Lattice, SplineField};
use super::texture::{Smoother, texture};
use crate::Result;
use crate::image::{LabelMap, Volume};

/// An image of a label map, intensities in 0..1, in the modality of the settings.
///
/// Labels that are no [`Structure`](super::Structure) have the intensities of background.
///
/// # Errors
/// Settings that do not validate.
pub fn sample_intensities(
    labels: &LabelMap,
    settings: &PhantomSettings,
    seed: u64,
) -> Result<Volume> {
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
