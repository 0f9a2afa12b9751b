//! The step direction: Adam moments of the displacement's gradient, its length bounded.

use burn::tensor::Tensor;

use crate::image::Geometry;
use crate::ops::{Interpolation, Padding};
use crate::transform::resample;

/// Decay of the mean and of the mean square (FFDP paper; the second is faster than Adam's usual
/// 0.999, because a level has only tens of iterations).
const BETA: [f64; 2] = [0.9, 0.99];

/// Keeps the division defined where every gradient has always been zero.
const EPSILON: f64 = 1e-20;

/// Running moments of a gradient `[1, 3, D, H, W]`.
pub(super) struct Adam {
    /// `kappa`: see [`Adam::direction`].
    floor: f64,
    mean: Tensor<5>,
    square: Tensor<5>,
    /// Gradients seen on this level.
    count: i32,
}

impl Adam {
    /// Moments that have seen nothing, of the shape of `field`.
    pub fn new(field: &Tensor<5>, floor: f64) -> Self {
        Self { floor, mean: field.zeros_like(), square: field.zeros_like(), count: 0 }
    }

    /// The moments on the grid of the next level; the count starts again, so that the first
    /// gradients there weigh as much as the first ones of all.
    pub fn resampled(self, from: &Geometry, to: &Geometry) -> Self {
        let carry = |moment| resample(moment, from, to, Interpolation::Linear, Padding::Border);
        Self { mean: carry(self.mean), square: carry(self.square), count: 0, ..self }
    }

    /// The direction `m / (sqrt(v) + kappa rms)` of the bias-corrected moments after `gradient`,
    /// divided by its longest vector if that is longer than 1; `rms` is the root mean square of
    /// `sqrt(v)` over the whole field.
    ///
    /// Adam's epsilon as a part of the gradient's own size: where the images say nothing, a
    /// gradient of mere noise is not blown up to a full step.
    pub fn direction(&mut self, gradient: Tensor<5>) -> Tensor<5> {
        let [b1, b2] = BETA;
        self.count += 1;
        let square = gradient.clone().mul(gradient.clone());
        self.mean = self.mean.clone().mul_scalar(b1).add(gradient.mul_scalar(1.0 - b1));
        self.square = self.square.clone().mul_scalar(b2).add(square.mul_scalar(1.0 - b2));
        let correction = BETA.map(|beta| 1.0 / (1.0 - beta.powi(self.count)));
        let mean = self.mean.clone().mul_scalar(correction[0]);
        let square = self.square.clone().mul_scalar(correction[1]);
        let floor = square.clone().mean().sqrt().mul_scalar(self.floor).add_scalar(EPSILON);
        at_most_one_long(mean.div(square.sqrt().add(floor.reshape([1, 1, 1, 1, 1]))))
    }
}

/// The field divided by the length of its longest vector, unless that is below 1. The length stays
/// on the device.
fn at_most_one_long(field: Tensor<5>) -> Tensor<5> {
    let squares = field.clone().mul(field.clone()).sum_dim(1);
    let factor = squares.max().clamp_min(1.0).sqrt().recip();
    field.mul(factor.reshape([1, 1, 1, 1, 1]))
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;
    use crate::testing::{assert_close, normal, tensor, to_f64};

    /// Rounding of a few f32 operations.
    const F32_ROUNDING: f64 = 1e-6;
    const FLOOR: f64 = 0.3;

    fn field(values: &[f64]) -> Tensor<5> {
        tensor(values, [1, 3, 1, 2, values.len() / 6], &Device::flex(), DType::F32)
    }

    #[test]
    fn first_direction_is_the_sign_with_its_longest_vector_of_length_one() {
        let gradient = [2.0, -1e-3, 0.0, 5.0, -3.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0];
        let gradient = field(&gradient);
        let direction = to_f64(Adam::new(&gradient, 0.0).direction(gradient));
        // Voxel 0 has signs (1, -1, 0), voxel 1 (-1, 0, 0), voxel 3 (1, 1, 0): length sqrt 2.
        let r = 0.5f64.sqrt();
        let expected = [r, -r, 0.0, r, -r, 0.0, 0.0, r, 0.0, 0.0, 0.0, 0.0];
        assert_close("signs", &direction, &expected, F32_ROUNDING);
    }

    #[test]
    fn directions_follow_the_definition_over_several_steps() {
        let n = 24;
        let (mut m, mut v) = (vec![0.0; n], vec![0.0; n]);
        let mut adam = Adam::new(&field(&vec![0.0; n]), FLOOR);
        for t in 1..=4 {
            let g = normal(n, t as u64);
            let direction = to_f64(adam.direction(field(&g)));
            for i in 0..n {
                m[i] = 0.9 * m[i] + 0.1 * g[i];
                v[i] = 0.99 * v[i] + 0.01 * g[i] * g[i];
            }
            let corrected: Vec<f64> = v.iter().map(|v| v / (1.0 - 0.99f64.powi(t))).collect();
            let rms = (corrected.iter().sum::<f64>() / n as f64).sqrt();
            let mut expected: Vec<f64> = m
                .iter()
                .zip(&corrected)
                .map(|(m, v)| m / (1.0 - 0.9f64.powi(t)) / (v.sqrt() + FLOOR * rms))
                .collect();
            let length = |p: usize| (0..3).map(|c| expected[c * n / 3 + p].powi(2)).sum::<f64>();
            let longest = (0..n / 3).map(length).fold(1.0, f64::max).sqrt();
            expected.iter_mut().for_each(|d| *d /= longest);
            assert_close(&format!("step {t}"), &direction, &expected, 10.0 * F32_ROUNDING);
        }
    }

    #[test]
    fn weak_gradients_make_short_steps_and_strong_ones_full_ones() {
        let gradient = [1.0, 1e-3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let gradient = field(&gradient);
        let direction = to_f64(Adam::new(&gradient, FLOOR).direction(gradient));
        // rms = 1 / sqrt 12 = 0.2887
        assert!((direction[0] - 1.0 / (1.0 + 0.3 * 0.2887)).abs() < 1e-4, "{direction:?}");
        assert!((direction[1] - 1e-3 / (1e-3 + 0.3 * 0.2887)).abs() < 1e-4, "{direction:?}");
    }

    #[test]
    fn zero_gradients_move_nothing() {
        let zero = field(&[0.0; 12]);
        let mut adam = Adam::new(&zero, FLOOR);
        assert!(to_f64(adam.direction(zero)).iter().all(|d| *d == 0.0));
    }
}
