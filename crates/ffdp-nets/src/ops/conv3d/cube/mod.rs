//! The convolution on the GPU; which kernel computes it.
//!
//! Burn 0.22 unrolls large convolutions into matrices: slow at few channels, minutes of autotuning,
//! and a failure at 80 -> 16 channels of 160x192x224 voxels. Nothing here is tuned, and no size
//! fails: `direct.rs` is exact and runs anywhere, `tensor_cores` rounds to TF32 and needs them.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Conv3dOps, burn_conv3d, burn_conv3d_to_weight};
use crate::ops::precision::Precision;
use ffdp_kit::launch::{Extent, assert_f32, extent, size};

mod direct;
mod tensor_cores;

/// Largest kernel of the direct path; larger ones are Burn's.
const LARGEST: usize = 5;

/// The sizes of a convolution.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct Problem {
    pub input: Extent,
    pub output: Extent,
    pub padding: Extent,
    pub channels: u32,
    pub outputs: u32,
}

#[cube]
pub(super) fn len(size: &Extent) -> usize {
    size.d as usize * size.h as usize * size.w as usize
}

pub(super) fn problem(
    x: &CubeTensor,
    output: &CubeTensor,
    outputs: usize,
    padding: [usize; 3],
) -> ProblemLaunch {
    let channels = x.meta.shape()[1] as u32;
    let sizes = (extent(size(x)), extent(size(output)), extent(padding));
    ProblemLaunch::new(sizes.0, sizes.1, sizes.2, channels, outputs as u32)
}

/// Who computes a convolution.
enum Kernel {
    TensorCores,
    Direct,
    Burn,
}

fn kernel(x: &CubeTensor, weight: &CubeTensor, precision: Precision) -> Kernel {
    match weight.meta.shape()[2] {
        3 if precision == Precision::TensorFloat && tensor_cores::apply(x) => Kernel::TensorCores,
        k if k <= LARGEST => Kernel::Direct,
        _ => Kernel::Burn,
    }
}

impl Conv3dOps for CubeBackend {
    fn small_conv3d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        padding: [usize; 3],
        precision: Precision,
    ) -> FloatTensor<Self> {
        assert_f32("conv3d", &[&x, &weight]);
        match kernel(&x, &weight, precision) {
            Kernel::TensorCores => tensor_cores::forward(x, weight, padding),
            Kernel::Direct => direct::forward(x, weight, padding),
            Kernel::Burn => burn_conv3d::<Self>(x, weight, padding),
        }
    }

    fn small_conv3d_to_weight(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        padding: [usize; 3],
        precision: Precision,
    ) -> FloatTensor<Self> {
        assert_f32("conv3d", &[&x, &grad]);
        match kernel(&x, &weight, precision) {
            Kernel::TensorCores => tensor_cores::to_weight(x, weight, grad, padding),
            Kernel::Direct => direct::to_weight(x, weight, grad, padding),
            Kernel::Burn => burn_conv3d_to_weight::<Self>(x, weight, grad, padding),
        }
    }
}
