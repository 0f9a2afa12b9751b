//! The chain rule of the volume penalty: the derivatives are saved, their determinants recomputed.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::BsplineVolumeOps;
use crate::ops::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct VolumeVjp;

impl<B: BsplineVolumeOps> Vjp<B, 3> for VolumeVjp {
    type Saved = ([FloatTensor<B>; 3], f64);

    fn backward(
        ([x, y, z], least): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 3],
    ) -> [Option<FloatTensor<B>>; 3] {
        let (x, y, z) = B::log_volume_3d_backward(x, y, z, grad, least);
        [Some(x), Some(y), Some(z)]
    }
}

impl<B: BsplineVolumeOps, C: CheckpointStrategy> BsplineVolumeOps for Autodiff<B, C> {
    fn log_volume_3d(
        along_x: FloatTensor<Self>,
        along_y: FloatTensor<Self>,
        along_z: FloatTensor<Self>,
        least: f64,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 3>(VolumeVjp, [along_x, along_y, along_z], |[x, y, z], _| {
            let saved = ([x.clone(), y.clone(), z.clone()], least);
            (B::log_volume_3d(x, y, z, least), saved)
        })
    }

    fn log_volume_3d_backward(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        panic!("bspline_volume: second-order gradients are not supported")
    }
}
