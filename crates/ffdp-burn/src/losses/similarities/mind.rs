//! The difference of MIND descriptors as a similarity.

use burn::Tensor;
use burn::backend::Dispatch;
use serde::{Deserialize, Serialize};

use crate::losses::{Pair, PairGradients, SimilarityLoss};
use crate::ops::mind::{CHANNELS, MindOps, bounds_of};
use crate::ops::mse::squared_difference_sum;
use crate::ops::{MindOptions, VarianceBounds, mind};
use ffdp_image::error::{Error, Result};

/// Mean squared difference of the [MIND descriptors](crate::ops::mind()) of both images, over voxels and the twelve
/// channels; of every channel of the images alone. In 0..1, 0 where the neighbourhoods have one structure.
///
/// The gradient to the moved image is that of the descriptors of the warped image. Descriptors may be warped instead of
/// images: take [`mind`](crate::ops::mind()) of both, [`warp`](crate::ops::warp) one and compare the channels by [`Mse`](super::Mse), whose
/// gradient is as exact.
///
/// Parts of an image add up to the whole with [`VarianceBounds::Fixed`] alone, the default here: the mean of the
/// variances over a part is not that over the whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mind(pub MindOptions);

impl Default for Mind {
    fn default() -> Self {
        Self(MindSettings::default().options())
    }
}

/// Every channel as an image of its own, `[N C, 1, D, H, W]`.
fn apart(image: &Tensor<5>) -> Tensor<5> {
    let [n, c, d, h, w] = image.dims();
    image.clone().reshape([n * c, 1, d, h, w])
}

impl Mind {
    /// `sum u |S_a - S_b|^2 / 12` of descriptors.
    fn difference(a: Tensor<5>, b: Tensor<5>, weights: Option<&Tensor<5>>) -> Tensor<1> {
        // A weight is the square of a factor of both.
        let sum = match weights.map(|weights| apart(weights).sqrt()) {
            None => squared_difference_sum(a, b),
            Some(root) => squared_difference_sum(a * root.clone(), b * root),
        };
        sum.mul_scalar(1.0 / CHANNELS as f64)
    }
}

impl SimilarityLoss for Mind {
    /// `sum u |S(moved) - S(fixed)|^2 / 12`.
    fn partial(&self, pair: &Pair) -> Tensor<1> {
        let describe = |image: &Tensor<5>| mind(apart(image), &self.0);
        let (moved, fixed) = (describe(&pair.moved), describe(&pair.fixed));
        Self::difference(moved, fixed, pair.weights.as_ref())
    }

    fn finish(&self, total: Tensor<1>, count: Tensor<1>) -> Tensor<1> {
        total / count
    }

    fn reach_voxels(&self) -> usize {
        self.0.reach_voxels()
    }

    fn is_mean(&self) -> bool {
        true
    }

    fn usual_gain(&self) -> f64 {
        0.03
    }

    fn gradient(&self, pair: &Pair, slope: &Tensor<1>, needs: [bool; 2]) -> PairGradients {
        self.partial_and_gradient(pair, slope, needs).1
    }

    /// `slope` is 1 everywhere.
    fn partial_and_gradient(
        &self,
        pair: &Pair,
        _slope: &Tensor<1>,
        needs: [bool; 2],
    ) -> (Tensor<1>, PairGradients) {
        let images = [&pair.moved, &pair.fixed].map(apart);
        let [moved, fixed] = images.clone().map(|image| mind(image, &self.0));
        let sum = Self::difference(moved.clone(), fixed.clone(), pair.weights.as_ref());
        let difference = (moved - fixed).mul_scalar(2.0 / CHANNELS as f64);
        let difference = match &pair.weights {
            None => difference,
            Some(weights) => difference * apart(weights),
        };
        let to_image = |image: &Tensor<5>, slope: Tensor<5>| {
            let bounds = bounds_of(image, &self.0).into_dispatch();
            let image = image.clone().into_dispatch();
            let slope = slope.into_dispatch();
            let patch = self.0.patch();
            let gradient = <Dispatch as MindOps>::mind_3d_backward(image, bounds, slope, patch);
            Tensor::<5>::from_dispatch(gradient).reshape(pair.moved.dims())
        };
        let to_moved = needs[0].then(|| to_image(&images[0], difference.clone()));
        let to_fixed = needs[1].then(|| to_image(&images[1], difference.neg()));
        (sum, [to_moved, to_fixed])
    }
}

/// Settings of the MIND descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MindSettings {
    /// A patch is a cube of twice the radius and one voxels of the level; 0 to 3. Default 1 (Siebert et al. 2021).
    pub radius: usize,
    /// How far the compared neighbours are from a voxel, in voxels of the level; 1 to 4. Default 2 (Siebert et al.
    /// 2021).
    pub dilation: usize,
    /// Where the distances of patches vary less, there is no structure, in intensity^2 of images scaled to 0..1.
    /// Default 1e-5: differences below about 0.003 are noise.
    pub floor: f64,
}

impl Default for MindSettings {
    fn default() -> Self {
        Self { radius: 1, dilation: 2, floor: 1e-5 }
    }
}

impl MindSettings {
    /// As the operation takes them.
    pub fn options(self) -> MindOptions {
        // Above, descriptors are as sensitive as the image has contrast.
        let bounds = VarianceBounds::Fixed { low: self.floor, high: 1e30 };
        MindOptions {
            radius_voxels: self.radius,
            dilation_voxels: self.dilation,
            bounds,
            ..MindOptions::default()
        }
    }

    pub(super) fn validate(self) -> Result<()> {
        if self.radius > 3 {
            let what = "the radius of MIND must be within 0..3 voxels";
            return Err(Error::invalid(what, self.radius, "1 is the usual one"));
        }
        if !(1..=4).contains(&self.dilation) {
            let what = "the dilation of MIND must be within 1..4 voxels";
            return Err(Error::invalid(what, self.dilation, "2 is the usual one"));
        }
        // NaN lies in no range.
        if !(1e-20..=1.0).contains(&self.floor) {
            let what = "the floor of MIND must be within 1e-20..1";
            return Err(Error::invalid(what, self.floor, "1e-5 is the usual one"));
        }
        Ok(())
    }
}
