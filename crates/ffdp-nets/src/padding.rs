//! Pairs of images of any size for networks that halve it several times.

use burn::tensor::Tensor;

use crate::layers::append_zeros;

/// Both images `[N, 1, D, H, W]` as two channels, zeros appended until every extent is a multiple of
/// `multiple`.
///
/// # Panics
/// If the shapes differ, have more than one channel or an empty extent; `network` is named.
pub(super) fn padded_pair(
    network: &str,
    moving: Tensor<5>,
    fixed: Tensor<5>,
    multiple: usize,
) -> Tensor<5> {
    let [_, c, d, h, w] = moving.dims();
    assert!(
        moving.dims() == fixed.dims() && c == 1 && d * h * w > 0,
        "{network}: moving and fixed must both be [N, 1, D, H, W], got {:?} and {:?}",
        moving.dims(),
        fixed.dims()
    );
    let images = Tensor::cat(vec![moving, fixed], 1);
    let missing = [d, h, w].map(|extent| extent.next_multiple_of(multiple) - extent);
    append_zeros(images, [0, 0, missing[0], missing[1], missing[2]])
}

/// A flow without the voxels that were appended to images of `dims`.
pub(super) fn cropped(flow: Tensor<5>, [n, _, d, h, w]: [usize; 5]) -> Tensor<5> {
    if flow.dims()[2..] == [d, h, w] {
        return flow;
    }
    flow.slice([0..n, 0..3, 0..d, 0..h, 0..w])
}
