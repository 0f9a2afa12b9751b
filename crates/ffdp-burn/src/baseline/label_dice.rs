//! Soft Dice of labels by one-hot tensors.

use burn::Tensor;
use burn::tensor::{DType, Int};

use super::warp;
use crate::ops::label_dice::{Denominator, LabelDiceOptions, dice_of_sums};

/// Soft Dice of every label, `[N, K]`; see [`crate::ops::label_dice()`]. Stores a channel a label of
/// both images, the warped channels and their products.
///
/// # Shapes
/// moving `[N, 1, Di, Hi, Wi]`, fixed `[N, 1, D, H, W]`, displacement `[N, 3, D, H, W]`; result
/// `[N, K]`.
pub fn label_dice(
    moving: Tensor<5, Int>,
    fixed: Tensor<5, Int>,
    displacement: Tensor<5>,
    ids: &[i32],
    options: &LabelDiceOptions,
) -> Tensor<2> {
    let (batch, dtype) = (fixed.dims()[0], displacement.dtype());
    let a = warp(one_hot(moving, ids, dtype), displacement);
    let b = one_hot(fixed, ids, dtype);
    let sum = |x: Tensor<5>| x.reshape([batch as i32, 1, ids.len() as i32, -1]).sum_dim(3);
    let both = sum(a.clone() * b.clone());
    let moved = match options.denominator {
        Denominator::Squared => sum(a.clone() * a),
        Denominator::Plain => sum(a),
    };
    let sums: Tensor<4> = Tensor::cat(vec![both, moved, sum(b)], 1);
    dice_of_sums(sums.squeeze_dim::<3>(3), options.epsilon)
}

/// One channel a label: 1 where the label is, else 0.
fn one_hot(labels: Tensor<5, Int>, ids: &[i32], dtype: DType) -> Tensor<5> {
    let channel = |&id: &i32| labels.clone().equal_elem(id).float().cast(dtype);
    Tensor::cat(ids.iter().map(channel).collect(), 1)
}
