//! What voxels get that an image does not reach.

use ffdp_image::error::{Error, Result};

/// Weights of a sum are rounded: this near to 1 a voxel lies inside.
const INSIDE: f32 = 1.0 - 1e-5;

/// The label that a background stands for, where it is one.
pub(super) fn label_of(background: f32) -> Option<i32> {
    let is_label = background.fract() == 0.0 && background.abs() < i32::MAX as f32;
    is_label.then_some(background as i32)
}

/// [`label_of`] where there must be one.
pub(super) fn label_or_refusal(background: f32) -> Result<i32> {
    label_of(background).ok_or_else(|| {
        let what = "the background of labels must be a label";
        Error::invalid(what, background, "give an integer, or another interpolation")
    })
}

/// Adds the background to values that were sampled with zeros outside; `inside` says how much of the image is in each, as
/// the same sampler reads ones.
pub(super) fn fill(values: &mut [f32], inside: &[f32], background: f32) {
    let pairs = values.iter_mut().zip(inside);
    for (value, inside) in pairs.filter(|(_, inside)| **inside < INSIDE) {
        *value += (1.0 - inside) * background;
    }
}

/// Sets labels of which nothing of the image is in the voxel.
pub(super) fn fill_labels(values: &mut [i32], inside: &[f32], background: i32) {
    let pairs = values.iter_mut().zip(inside);
    pairs.filter(|(_, inside)| **inside == 0.0).for_each(|(value, _)| *value = background);
}
