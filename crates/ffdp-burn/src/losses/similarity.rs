//! Dissimilarity of a moved and a fixed image, in the form that shards can share.

use std::fmt::Debug;

use burn::Tensor;

use crate::ops::lncc::lncc_sum;
use crate::ops::mse::squared_difference_sum;
use crate::ops::{GradientMode, LnccOptions};

/// A similarity loss of two images of one grid; smaller is more alike.
///
/// ```text
/// loss = finish(sum over parts of partial(part), number of voxels)
/// ```
/// Differentiable in both images (first order).
pub trait Similarity: Debug + Send + Sync {
    /// The sums that add up over the parts of an image, `[K]`.
    ///
    /// Shapes: moved, fixed `[N, C, D, H, W]`.
    ///
    /// # Panics
    /// If the shapes differ.
    fn partial(&self, moved: Tensor<5>, fixed: Tensor<5>) -> Tensor<1>;

    /// How far a voxel's term of the partial sums looks along each axis, in voxels; 0 by default.
    fn reach_voxels(&self) -> usize {
        0
    }

    /// The loss `[1]` of added-up partial sums over `count` voxels (channels and batch counted).
    fn finish(&self, total: Tensor<1>, count: usize) -> Tensor<1>;

    /// The loss of whole images, `[1]`.
    ///
    /// # Panics
    /// As [`Similarity::partial`].
    fn loss(&self, moved: Tensor<5>, fixed: Tensor<5>) -> Tensor<1> {
        let count = moved.shape().num_elements();
        self.finish(self.partial(moved, fixed), count)
    }
}

/// Local normalised cross-correlation, `1 - mean(n)`; see [`lncc`](crate::ops::lncc()). In 0..1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lncc(pub LnccOptions);

impl Lncc {
    /// TransMorph's training loss: window 9, exact gradient.
    pub fn transmorph() -> Self {
        Self(LnccOptions { window: 9, gradient: GradientMode::Exact, ..LnccOptions::default() })
    }
}

impl Similarity for Lncc {
    fn partial(&self, moved: Tensor<5>, fixed: Tensor<5>) -> Tensor<1> {
        lncc_sum(moved, fixed, &self.0)
    }

    fn reach_voxels(&self) -> usize {
        self.0.window / 2
    }

    fn finish(&self, total: Tensor<1>, count: usize) -> Tensor<1> {
        // Multiplied, not divided: Burn differentiates a scalar product in full precision.
        total.mul_scalar(1.0 / count as f64).neg().add_scalar(1.0)
    }
}

/// Mean squared difference; see [`mse`](crate::ops::mse()). In intensity^2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mse;

impl Similarity for Mse {
    fn partial(&self, moved: Tensor<5>, fixed: Tensor<5>) -> Tensor<1> {
        squared_difference_sum(moved, fixed)
    }

    fn finish(&self, total: Tensor<1>, count: usize) -> Tensor<1> {
        total.mul_scalar(1.0 / count as f64)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;
    use crate::ops::{lncc, mse};

    /// f32 sums of a few hundred terms of order 1, taken in another order.
    const F32_ROUNDING: f64 = 1e-5;

    fn image(seed: u32) -> Tensor<5> {
        let values: Vec<f32> =
            (0..6 * 5 * 8u32).map(|i| ((i * 7919 + seed * 104_729) % 97) as f32 / 97.0).collect();
        Tensor::from_data(TensorData::new(values, [1, 1, 6, 5, 8]), &Device::flex())
    }

    fn scalar(x: Tensor<1>) -> f64 {
        x.into_scalar::<f64>()
    }

    #[test]
    fn a_loss_is_that_of_its_operation() {
        let (a, b) = (image(1), image(2));
        let options = LnccOptions { window: 5, ..LnccOptions::default() };
        let cases: [(&dyn Similarity, f64); 2] = [
            (&Lncc(options), scalar(lncc(a.clone(), b.clone(), &options))),
            (&Mse, scalar(mse(a.clone(), b.clone()))),
        ];
        for (similarity, expected) in cases {
            let got = scalar(similarity.loss(a.clone(), b.clone()));
            assert!((got - expected).abs() < F32_ROUNDING, "{similarity:?}: {got} {expected}");
            assert!(scalar(similarity.loss(a.clone(), a.clone())) < got, "{similarity:?}");
        }
    }

    #[test]
    fn partial_sums_of_batches_add_up() {
        // A batch is two volumes; windows do not reach from one into the other.
        let (a, b) = (image(1), image(2));
        for similarity in [&Lncc::transmorph() as &dyn Similarity, &Mse] {
            let apart =
                similarity.partial(a.clone(), b.clone()) + similarity.partial(b.clone(), a.clone());
            let moved = Tensor::cat(vec![a.clone(), b.clone()], 0);
            let fixed = Tensor::cat(vec![b.clone(), a.clone()], 0);
            let apart = scalar(similarity.finish(apart, 480));
            let whole = scalar(similarity.loss(moved, fixed));
            assert!((apart - whole).abs() < F32_ROUNDING, "{similarity:?}: {apart} {whole}");
        }
    }
}
