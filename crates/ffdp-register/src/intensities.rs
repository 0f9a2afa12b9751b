//! Intensities as a registration compares them: the range that becomes 0 to 1, and how an image goes on beyond its mask.

use burn::tensor::Tensor;

use super::histogram::Matching;
use ffdp_burn::ops::{GaussianOptions, gaussian};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Counted, Statistics, rescaling, statistics};

/// What must be known of all of a channel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    /// The intensities that become 0 and 1.
    pub range: [f32; 2],
    /// What the result is mapped by, where histograms are matched.
    pub matching: Option<Matching>,
    /// The mean of what becomes of those inside the mask; 0 without one.
    pub mean: f32,
}

impl Scale {
    /// What becomes of an intensity.
    pub fn value(&self) -> impl Fn(f32) -> f32 + Sync + use<> {
        let rescale = rescaling(self.range);
        let matching = self.matching.clone();
        move |v| match &matching {
            None => rescale(v),
            Some(matching) => matching.value(rescale(v)),
        }
    }
}

/// Standard deviation in voxels with which an image goes on beyond its mask: as far as the coarsest
/// usual level and the interpolation look.
const BEYOND_MASK_VOXELS: f64 = 2.0;
/// Part of the smoothed mask below which the mean of the image takes over.
const FAINT: f64 = 1e-3;

/// The intensities that become 0 and 1: percentiles of those that count. An image whose percentiles coincide though it is
/// not constant (a small object on a wide flat background) is scaled by its extremes instead. Takes two sweeps.
///
/// # Errors
/// [`Error::NonFinite`], [`Error::Invalid`] for a constant image, and those of reading.
pub(super) fn intensity_range(
    name: &str,
    counted: &mut Counted,
    percentiles: [f64; 2],
) -> Result<[f32; 2]> {
    let is_masked = counted.mask.is_some();
    let found: Statistics<2> = statistics(name, counted, percentiles)?;
    let Statistics { extremes: [min, max], percentiles: [from, to] } = found;
    if min == max {
        let (place, fix) = match is_masked {
            false => ("", "it holds nothing to align: check that it is the file you meant"),
            true => (
                " inside its mask",
                "there is nothing to align: check that image and mask belong together",
            ),
        };
        return Err(Error::invalid(
            format!("{name} must not be constant{place}"),
            format_args!("{min} in every voxel{place}"),
            fix,
        ));
    }
    Ok(if from < to { [from, to] } else { [min, max] })
}

fn inside(mask: &Tensor<5>) -> Tensor<5> {
    mask.clone().greater_elem(0.0).float()
}

/// How an image goes on beyond its mask.
pub(super) fn beyond_mask() -> GaussianOptions {
    GaussianOptions::isotropic(BEYOND_MASK_VOXELS)
}

/// The image, beyond its mask replaced by what lies inside, smoothed: so that neither a level nor a
/// sample between voxels sees what must not be looked at, nor an edge that is none. `mean` is that inside.
pub(super) fn continued(image: Tensor<5>, mask: &Tensor<5>, mean: Tensor<5>) -> Tensor<5> {
    let inside = inside(mask);
    let seen = image * inside.clone();
    let smooth = beyond_mask();
    let near = gaussian(seen.clone(), &smooth) + mean.mul_scalar(FAINT);
    let outside = near / gaussian(inside.clone(), &smooth).add_scalar(FAINT);
    seen + outside * inside.neg().add_scalar(1.0)
}
