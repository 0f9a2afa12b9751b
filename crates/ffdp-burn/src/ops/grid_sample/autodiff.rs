//! The chain rule of the grid sampler: inputs are saved, everything else is recomputed.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::block::GridSampleBlockOps;
use super::{GridSampleOps, Sampling};
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct GridSampleVjp;

impl<B: GridSampleOps> Vjp<B, 3> for GridSampleVjp {
    type Saved = ([FloatTensor<B>; 3], Sampling);

    fn backward(
        ([image, affine, displacement], sampling): Self::Saved,
        grad: FloatTensor<B>,
        needs: [bool; 3],
    ) -> [Option<FloatTensor<B>>; 3] {
        let (image, affine, displacement) =
            B::grid_sample_3d_backward(image, affine, displacement, grad, sampling, needs);
        [Some(image), Some(affine), Some(displacement)]
    }
}

impl<B: GridSampleOps, C: CheckpointStrategy> GridSampleOps for Autodiff<B, C> {
    fn grid_sample_3d(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        sampling: Sampling,
    ) -> FloatTensor<Self> {
        let inputs = [image, affine, displacement];
        record::<B, C, _, 3>(GridSampleVjp, inputs, |[image, affine, displacement], _| {
            let saved = ([image.clone(), affine.clone(), displacement.clone()], sampling);
            (B::grid_sample_3d(image, affine, displacement, sampling), saved)
        })
    }

    fn grid_sample_3d_backward(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: Sampling,
        _: [bool; 3],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        panic!("grid_sample: second-order gradients are not supported")
    }
}

impl<B: GridSampleBlockOps, C: CheckpointStrategy> GridSampleBlockOps for Autodiff<B, C> {
    fn grid_sample_3d_block(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: Sampling,
        _: [usize; 2],
    ) -> FloatTensor<Self> {
        panic!("grid_sample: samples with room around them are not differentiable")
    }

    fn grid_sample_3d_block_to_displacement(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: Sampling,
        _: [usize; 2],
    ) -> FloatTensor<Self> {
        panic!("grid_sample: a gradient is not differentiable")
    }
}
