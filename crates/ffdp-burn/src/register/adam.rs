//! The step: Adam's direction of the displacement's gradient, its length bounded.

use burn::tensor::Tensor;

use crate::image::Geometry;
use crate::ops::{AdamOptions, AdamStep, Interpolation, Moments, Padding, adam};
use crate::transform::resample;

/// Running moments of a gradient `[1, 3, D, H, W]`.
pub(super) struct Adam {
    options: AdamOptions,
    moments: Moments,
}

impl Adam {
    /// Moments that have seen nothing; `floor` is [`AdamOptions::gradient_floor`].
    pub fn new(floor: f64) -> Self {
        let options = AdamOptions { gradient_floor: floor, ..AdamOptions::default() };
        Self { options, moments: Moments::default() }
    }

    /// The moments on the grid of the next level; see [`Moments::carried`].
    pub fn resampled(self, from: &Geometry, to: &Geometry) -> Self {
        let carry = |moment| resample(moment, from, to, Interpolation::Linear, Padding::Border);
        Self { moments: self.moments.carried(carry), ..self }
    }

    /// The direction after `gradient`, divided by its longest vector if that is longer than 1, times
    /// `rate` `[1, 3, 1, 1, 1]` along x, y, z. The length stays on the device.
    pub fn step(&mut self, gradient: Tensor<5>, rate: &Tensor<5>) -> Tensor<5> {
        let AdamStep { direction, longest } = adam(gradient, &mut self.moments, &self.options);
        let length = longest.clamp_min(1.0).reshape([1, 1, 1, 1, 1]);
        direction.mul(rate.clone().div(length))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;
    use crate::testing::{assert_close, tensor, to_f64};

    /// Rounding of a few f32 operations.
    const F32_ROUNDING: f64 = 1e-6;

    fn field(values: &[f64]) -> Tensor<5> {
        tensor(values, [1, 3, 1, 2, values.len() / 6], &Device::flex(), DType::F32)
    }

    fn rate(xyz: [f64; 3]) -> Tensor<5> {
        tensor(&xyz, [1, 3, 1, 1, 1], &Device::flex(), DType::F32)
    }

    #[test]
    fn first_step_is_the_sign_with_its_longest_vector_of_length_one() {
        let gradient = field(&[2.0, -1e-3, 0.0, 5.0, -3.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        let step = to_f64(Adam::new(0.0).step(gradient, &rate([1.0, 10.0, 1.0])));
        // Voxel 0 has signs (1, -1, 0), voxel 1 (-1, 0, 0), voxel 3 (1, 1, 0): length sqrt 2.
        let r = 0.5f64.sqrt();
        let expected = [r, -r, 0.0, r, -10.0 * r, 0.0, 0.0, 10.0 * r, 0.0, 0.0, 0.0, 0.0];
        assert_close("signs", &step, &expected, F32_ROUNDING);
    }

    #[test]
    fn weak_gradients_make_short_steps_and_strong_ones_full_ones() {
        let gradient = field(&[1.0, 1e-3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let step = to_f64(Adam::new(0.3).step(gradient, &rate([1.0; 3])));
        // rms = 1 / sqrt 12 = 0.2887; shorter than 1, so not divided.
        assert!((step[0] - 1.0 / (1.0 + 0.3 * 0.2887)).abs() < 1e-4, "{step:?}");
        assert!((step[1] - 1e-3 / (1e-3 + 0.3 * 0.2887)).abs() < 1e-4, "{step:?}");
    }
}
