//! Corresponding points that draw a discrete search: of the energy
//!
//! ```text
//! mean of the costs over control points + k sum over pairs of |u(x) - t|^2        t = y - x, a pair (x, y)
//! ```
//! each control point has the part `a |d - t|^2` of every pair near it, `a` its weight where the field is linear between
//! control points. That is a displacement towards which it is drawn, as `theta` draws it to those around, and both are
//! one: `theta |d - v|^2 + a |d - t|^2` is `(theta + a) |d - (theta v + a t) / (theta + a)|^2` and what no `d` changes.

use burn::Tensor;
use burn::tensor::TensorData;

use super::DiscreteOptions;
use crate::ops::inverse;

/// Corresponding points of two images, and how much they count.
#[derive(Clone, Debug, PartialEq)]
pub struct PointPairs {
    /// Points of the fixed image, (x, y, z) in its voxels. What lies outside draws the nearest control points.
    pub fixed: Vec<[f64; 3]>,
    /// Where they are in the moving image, one to one.
    pub moving: Vec<[f64; 3]>,
    /// `k`: the cost of a pair that is one voxel off, in the unit of the features' squared differences, whose costs are
    /// their mean over the image.
    pub precision: f64,
}

impl PointPairs {
    pub(super) fn check(&self) {
        let Self { fixed, moving, precision } = self;
        let (a, b) = (fixed.len(), moving.len());
        assert!(a == b, "discrete: {a} points of the fixed image belong to {b} of the moving one");
        let all = fixed.iter().chain(moving).flatten();
        assert!(all.clone().all(|x| x.is_finite()), "discrete: coordinates must be finite");
        assert!(
            *precision >= 0.0 && precision.is_finite(),
            "discrete: the precision of points must not be negative, got {precision}"
        );
    }

    /// From the moving to the fixed image.
    pub(super) fn swapped(&self) -> Self {
        let Self { fixed, moving, precision } = self;
        Self { fixed: moving.clone(), moving: fixed.clone(), precision: *precision }
    }

    /// The pairs once the moving image is seen through a displacement `[1, 3, D, H, W]` in voxels.
    pub fn seen_through(&self, displacement: Tensor<5>) -> Self {
        if self.moving.is_empty() {
            return self.clone();
        }
        // What is found is a constant.
        let displacement = displacement.inner();
        let count = self.moving.len();
        let values = (0..3).flat_map(|c| self.moving.iter().map(move |point| point[c])).collect();
        let data = TensorData::new::<f64, _>(values, [1, 3, 1, 1, count]);
        let like = (&displacement.device(), displacement.dtype());
        let there = Tensor::<5>::from_data(data, like);
        let there = there.clone() + inverse(displacement, Some(there));
        let values: Vec<f64> = there.into_data().iter::<f64>().collect();
        let moving = (0..count).map(|i| [0, 1, 2].map(|c| values[c * count + i])).collect();
        Self { moving, ..self.clone() }
    }

    /// What they are on control points for features like these, `[1, C, d, h, w]`, whose costs count `counted` in all.
    pub(super) fn drawing(
        &self,
        fixed: &Tensor<5>,
        counted: Tensor<5>,
        options: &DiscreteOptions,
    ) -> Drawing {
        let [n, _, d, h, w] = fixed.dims();
        assert!(n == 1, "discrete: points belong to one pair of images, got a batch of {n}");
        let (size, points) = ([w, h, d], d * h * w);
        let (spacing, step) = (options.spacing_voxels as f64, options.step_voxels as f64);
        // Weights, and their sums with the three components of the targets, in steps.
        let mut values = vec![0.0; 4 * points];
        for (from, to) in self.fixed.iter().zip(&self.moving) {
            let target = [0, 1, 2].map(|c| (to[c] - from[c]) / step);
            let place: [f64; 3] = std::array::from_fn(|c| {
                ((from[c] - 0.5 * (spacing - 1.0)) / spacing).clamp(0.0, (size[c] - 1) as f64)
            });
            for corner in 0..8 {
                let at = [0, 1, 2].map(|c| place[c].floor() as usize + (corner >> c & 1));
                let part = |c: usize| 1.0 - (place[c] - at[c] as f64).abs();
                let weight = step * step * self.precision * part(0) * part(1) * part(2);
                // Beyond the last point the weight is zero.
                if (0..3).any(|c| at[c] >= size[c]) {
                    continue;
                }
                let point = (at[2] * h + at[1]) * w + at[0];
                values[point] += weight;
                (0..3).for_each(|c| values[(c + 1) * points + point] += weight * target[c]);
            }
        }
        let data = TensorData::new(values, [1, 4, d, h, w]);
        let all = Tensor::<5>::from_data(data, (&fixed.device(), fixed.dtype())) * counted;
        Drawing { weight: all.clone().narrow(1, 0, 1), target: all.narrow(1, 1, 3) }
    }
}

/// What draws each control point.
pub(super) struct Drawing {
    /// The sum of `a` of the pairs, `[1, 1, d, h, w]`, where a displacement of one step costs so much. In the smoothing,
    /// where every point counts one, a point counts so much more: one is how strongly it is drawn to those around in the
    /// last pass.
    pub weight: Tensor<5>,
    /// Of `a t`, `[1, 3, d, h, w]`.
    target: Tensor<5>,
}

/// Where nothing draws a point, it is drawn with no weight to zero.
const LEAST_WEIGHT: f64 = 1e-30;

impl Drawing {
    /// The displacement and the weight that `near` `[1, 3, d, h, w]` with the weight `theta` becomes, `[1, 4, d, h, w]`.
    pub fn with(&self, near: Tensor<5>, theta: f64) -> Tensor<5> {
        let weight = self.weight.clone().add_scalar(theta);
        let to = near.mul_scalar(theta) + self.target.clone();
        Tensor::cat(vec![to / weight.clone().clamp_min(LEAST_WEIGHT), weight], 1)
    }
}
