//! The convolution on tensor cores, factors in TF32, sums in f32: an implicit matrix product.
//!
//! ```text
//! forward     sum over (c, k):  [16 outputs x 8 inputs] of w(k)  times  [8 inputs x 8 voxels] of x(. + k)
//! to weight   sum over voxels:  [16 outputs x 8 voxels] of dL/dy  times  [8 voxels x 8 inputs] of x(. + k)
//! ```
//! A cube keeps eight channels of a tile of voxels and of its rim in shared memory. A tap of the
//! kernel is then an offset into it: nothing is unrolled in memory, and a fragment that was read for
//! one row of voxels serves three taps along y. Fragments are those of [`ffdp_kit::tensor_cores`].
//! Strides of channels in shared memory are such that the 32 lanes read 32 different banks.

use burn_cubecl::tensor::CubeTensor;

use ffdp_kit::tensor_cores::available;

mod forward;
mod to_weight;

pub(super) use forward::forward;
pub(super) use to_weight::to_weight;

/// Taps of a kernel.
const TAPS: u32 = 27;
/// Rows of a product: outputs.
const ROWS: u32 = 16;
/// Depth of a product in the forward pass, columns in the other: inputs.
const INPUTS: u32 = 8;

/// Whether the device multiplies TF32, and reaches all voxels of a channel with 31 bits.
pub(super) fn apply(x: &CubeTensor) -> bool {
    let voxels: usize = super::size(x).iter().product();
    voxels < 1 << 31 && available(&x.client)
}
