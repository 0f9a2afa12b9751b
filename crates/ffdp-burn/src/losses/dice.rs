//! Overlap of labels as a loss, for training with segmentations.

use burn::Tensor;
use burn::tensor::{DType, Device, Int, TensorData};

use crate::ops::{LabelDiceOptions, label_dice};

/// Keeps the overlap of empty labels finite; in voxels.
const EPSILON: f64 = 1e-5;

/// Soft Dice loss: one minus the mean overlap of corresponding channels (TransMorph's `DiceLoss`).
///
/// ```text
/// loss = 1 - mean_(n, k) 2 sum_p a b / (sum_p a^2 + sum_p b^2)
/// ```
/// 0 for equal memberships, 1 for disjoint ones. A channel that is empty in both images counts as
/// disjoint: pass only labels that occur. Differentiable in both. Composed of Burn's operations:
/// memory is that of a few tensors of the inputs' size.
///
/// # Shapes
/// moved, fixed `[N, K, D, H, W]`, one channel a label, values in 0..1; result `[1]`.
///
/// # Panics
/// If the shapes differ.
pub fn soft_dice(moved: Tensor<5>, fixed: Tensor<5>) -> Tensor<1> {
    let (a, b) = (moved.dims(), fixed.dims());
    assert!(a == b, "soft_dice: moved {a:?} and fixed {b:?} must have the same shape");
    let channels = a[0] * a[1];
    let rows = |tensor: Tensor<5>| tensor.reshape([channels as i32, -1]);
    let (moved, fixed) = (rows(moved), rows(fixed));
    let both = (moved.clone() * fixed.clone()).sum_dim(1);
    let sizes = (moved.clone() * moved + fixed.clone() * fixed).sum_dim(1).add_scalar(EPSILON);
    (both / sizes).mean().mul_scalar(-2.0).add_scalar(1.0)
}

/// [`soft_dice`] of label maps, the moving one seen through a displacement: without memberships, by
/// [`label_dice`](crate::ops::label_dice()). Differentiable in the displacement.
///
/// # Shapes
/// moving `[N, 1, Di, Hi, Wi]`, fixed `[N, 1, D, H, W]`, displacement `[N, 3, D, H, W]` in voxels;
/// result `[1]`.
///
/// # Panics
/// As [`label_dice`](crate::ops::label_dice()).
pub fn label_dice_loss(
    moving: Tensor<5, Int>,
    fixed: Tensor<5, Int>,
    displacement: Tensor<5>,
    ids: &[i32],
) -> Tensor<1> {
    let scores = label_dice(moving, fixed, displacement, ids, &LabelDiceOptions::default());
    scores.mean().neg().add_scalar(1.0)
}

/// One channel a label: 1 where the label is, else 0. f32 `[1, ids.len(), D, H, W]`.
///
/// `labels` are in the order of a `[D, H, W]` tensor.
///
/// # Panics
/// If there is not one label a voxel.
pub fn memberships(
    labels: &[i32],
    [d, h, w]: [usize; 3],
    ids: &[i32],
    device: &Device,
) -> Tensor<5> {
    let count = labels.len();
    assert!(count == d * h * w, "memberships: {count} labels for a size of {:?}", [d, h, w]);
    let channel = |&id: &i32| labels.iter().map(move |&label| f32::from(u8::from(label == id)));
    let values: Vec<f32> = ids.iter().flat_map(channel).collect();
    let data = TensorData::new(values, [1, ids.len(), d, h, w]);
    Tensor::from_data(data, (device, DType::F32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// f32 rounding of ratios of order 1, and EPSILON against a few voxels.
    const ROUNDING: f64 = 1e-5;

    fn loss(a: &[i32], b: &[i32], ids: &[i32]) -> f64 {
        let device = Device::flex();
        let tensor = |labels| memberships(labels, [1, 2, 4], ids, &device);
        soft_dice(tensor(a), tensor(b)).into_scalar::<f64>()
    }

    #[test]
    fn hard_labels_give_one_minus_the_mean_dice() {
        let a = [1, 1, 7, 7, 0, 0, 0, 3];
        let b = [1, 1, 1, 7, 0, 0, 3, 0];
        // Dice of 1: 4/5, of 7: 2/3, of 3: 0.
        let expected = 1.0 - (0.8 + 2.0 / 3.0) / 3.0;
        assert!((loss(&a, &b, &[1, 7, 3]) - expected).abs() < ROUNDING);
        assert!(loss(&a, &a, &[1, 7, 3]).abs() < ROUNDING);
        assert!((loss(&a, &b, &[3]) - 1.0).abs() < ROUNDING);
    }

    #[test]
    fn gradient_is_that_of_finite_differences() {
        let a: Vec<f32> = (0..16).map(|i| 0.5 + 0.4 * (i as f32).sin()).collect();
        let b: Vec<f32> = (0..16).map(|i| 0.5 + 0.4 * (i as f32 * 1.7).cos()).collect();
        let tensor = |values: &[f32], device: &Device| {
            Tensor::<5>::from_data(TensorData::new(values.to_vec(), [1, 2, 2, 2, 2]), device)
        };
        let device = Device::flex().autodiff();
        let tracked = tensor(&a, &device).require_grad();
        let grads = soft_dice(tracked.clone(), tensor(&b, &device)).backward();
        let gradient = tracked.grad(&grads).expect("moved is tracked");
        let gradient = gradient.try_into_vec_as::<f32>().expect("the CPU hands back its results");
        const STEP: f32 = 1e-2;
        // Rounding of f32 over twice the step, and the third derivative times its square.
        const TOLERANCE: f64 = 1e-4;
        for (i, got) in gradient.into_iter().enumerate() {
            let shifted = |step: f32| {
                let mut a = a.clone();
                a[i] += step;
                let (a, b) = (tensor(&a, &Device::flex()), tensor(&b, &Device::flex()));
                soft_dice(a, b).into_scalar::<f64>()
            };
            let expected = (shifted(STEP) - shifted(-STEP)) / (2.0 * f64::from(STEP));
            assert!((f64::from(got) - expected).abs() < TOLERANCE, "at {i}: {got}, {expected}");
        }
    }
}
