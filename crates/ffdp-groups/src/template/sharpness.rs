//! Sharpening, and how sharp an image is.

use burn::tensor::Device;
use ffdp_burn::ops::{GaussianOptions, gaussian};
use ffdp_image::error::Result;
use ffdp_image::image::Volume;

use super::settings::Sharpening;

/// Percentiles that become 0 and 1 before sharpness is measured: it does not depend on the unit of intensities.
const RANGE: [f64; 2] = [1.0, 99.9];

/// `T + amount (T - G T)`, nowhere darker than `T` is anywhere.
pub(super) fn sharpened(image: &Volume, settings: Sharpening, device: &Device) -> Result<Volume> {
    let Sharpening { amount, sigma_voxels } = settings;
    if amount == 0.0 {
        return Ok(image.clone());
    }
    let blurred = gaussian(image.to_tensor(device), &GaussianOptions::isotropic(sigma_voxels));
    let mut sharp = Volume::from_tensor(blurred, image.geometry.clone())?;
    let least = image.min_max().map_or(0.0, |(least, _)| least);
    for (sharp, &value) in sharp.data.iter_mut().zip(&image.data) {
        let gain = amount * (f64::from(value) - f64::from(*sharp));
        *sharp = ((f64::from(value) + gain) as f32).max(least);
    }
    Ok(sharp)
}

/// How sharp an image is: the variance of its Laplacian (the sum of the six neighbours less six times the voxel, over
/// voxels that have all of them), of intensities scaled so that the 1st percentile is 0 and the 99.9th 1.
///
/// # Errors
/// [`Error::Invalid`](ffdp_image::Error::Invalid) of an image without a finite voxel.
pub fn sharpness(image: &Volume) -> Result<f64> {
    let [low, high] = image.percentiles(RANGE)?.map(f64::from);
    let [nx, ny, nz] = image.geometry.size;
    if low >= high || [nx, ny, nz].iter().any(|n| *n < 3) {
        return Ok(0.0);
    }
    let at = |offset: usize| f64::from(image.data[offset]) / (high - low);
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
    for z in 1..nz - 1 {
        for y in 1..ny - 1 {
            for x in 1..nx - 1 {
                let here = (z * ny + y) * nx + x;
                let around = [1, nx, nx * ny].map(|step| at(here - step) + at(here + step));
                let laplacian = around.iter().sum::<f64>() - 6.0 * at(here);
                (sum, squares, count) =
                    (sum + laplacian, squares + laplacian * laplacian, count + 1.0);
            }
        }
    }
    let mean = sum / count;
    Ok(squares / count - mean * mean)
}

#[cfg(test)]
mod tests {
    use ffdp_image::image::Geometry;

    use super::*;

    fn waves(period: f64) -> Volume {
        let grid = Geometry::new([16, 12, 10], [1.0; 3]).expect("valid");
        let value = |offset: usize| {
            let [x, ..] = grid.index_of(offset);
            50.0 + 20.0 * (x as f64 * std::f64::consts::TAU / period).sin() as f32
        };
        Volume::new((0..grid.len()).map(value).collect(), grid.clone()).expect("as many")
    }

    #[test]
    fn sharpness_grows_with_edges_and_not_with_units() {
        let (fine, coarse) = (waves(4.0), waves(8.0));
        let [sharp, blurred] = [&fine, &coarse].map(|image| sharpness(image).expect("finite"));
        assert!(sharp > 4.0 * blurred, "{sharp} {blurred}");
        let mut brighter = fine.clone();
        brighter.data.iter_mut().for_each(|v| *v = 3.0 * *v + 7.0);
        let same = sharpness(&brighter).expect("finite");
        assert!((same - sharp).abs() < 1e-4 * sharp, "{same} {sharp}");
    }

    #[test]
    fn the_unsharp_mask_raises_contrast_and_keeps_the_floor() {
        let image = waves(6.0);
        let device = Device::flex();
        let settings = Sharpening { amount: 1.0, sigma_voxels: 1.0 };
        let sharp = sharpened(&image, settings, &device).expect("on the CPU");
        let (low, high) = image.min_max().expect("finite");
        let (after_low, after_high) = sharp.min_max().expect("finite");
        assert!(after_high > high && after_low >= low, "{after_low} {after_high}");
        let none = Sharpening { amount: 0.0, ..settings };
        assert_eq!(sharpened(&image, none, &device).expect("on the CPU"), image);
    }
}
