//! The convolution on the GPU: Burn's, whose autotuner chooses among direct and matrix kernels.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;

use super::{Conv3dOps, burn_conv3d, burn_conv3d_to_weight};

impl Conv3dOps for CubeBackend {
    fn small_conv3d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        padding: [usize; 3],
    ) -> FloatTensor<Self> {
        burn_conv3d::<Self>(x, weight, padding)
    }

    fn small_conv3d_to_weight(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        padding: [usize; 3],
    ) -> FloatTensor<Self> {
        burn_conv3d_to_weight::<Self>(x, weight, grad, padding)
    }
}
