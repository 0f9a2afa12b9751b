//! The difference of MIND descriptors as a similarity.

use burn::Tensor;
use burn::tensor::{DType, Device};
use serde::{Deserialize, Serialize};

use crate::losses::similarity::scaled_features;
use crate::losses::{Pair, PairGradients, SimilarityLoss};
use crate::ops::mind::{CHANNELS, mind, mind_difference, mind_difference_with_gradient};
use crate::ops::{MindOptions, MindStorage, VarianceBounds};
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

impl SimilarityLoss for Mind {
    /// `sum u |S(moved) - S(fixed)|^2 / 12`.
    fn partial(&self, pair: &Pair) -> Tensor<1> {
        let weights = pair.weights.as_ref().map(apart);
        mind_difference(apart(&pair.moved), apart(&pair.fixed), weights, &self.0)
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

    /// The descriptors of each channel, in full: they are there once for a search.
    fn features(&self, image: &Tensor<5>, weight: f64) -> Option<Tensor<5>> {
        let [n, c, d, h, w] = image.dims();
        let options = MindOptions { storage: MindStorage::Full, ..self.0 };
        let all = mind(apart(image), &options).reshape([n, CHANNELS * c, d, h, w]);
        Some(scaled_features(all, weight / (CHANNELS * c) as f64))
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
        let (moved, fixed) = (apart(&pair.moved), apart(&pair.fixed));
        let weights = pair.weights.as_ref().map(apart);
        let (sum, gradients) = mind_difference_with_gradient(moved, fixed, weights, &self.0, needs);
        let joined = |gradient: Tensor<5>| gradient.reshape(pair.moved.dims());
        (sum, gradients.map(|gradient| gradient.map(joined)))
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
    /// How a GPU stores the descriptors of one image while it compares them with those of the other; a CPU stores none.
    /// Default `full`; `f16` and `bf16` halve them (48 bytes a voxel and channel become 24) where the device has them.
    pub storage: MindStorage,
}

impl Default for MindSettings {
    fn default() -> Self {
        Self { radius: 1, dilation: 2, floor: 1e-5, storage: MindStorage::Full }
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
            storage: self.storage,
        }
    }

    pub(super) fn check_on(self, device: &Device) -> Result<()> {
        let dtype = self.storage.dtype(DType::F32);
        if dtype == DType::F32 || device.supports_dtype(dtype) {
            return Ok(());
        }
        let what = format!("descriptors in {dtype:?} need a device that has the type");
        Err(Error::invalid(what, device, "use storage = \"full\", or another device"))
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
