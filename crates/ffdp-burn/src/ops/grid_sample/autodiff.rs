//! The chain rule of the grid sampler: inputs are saved, everything else is recomputed.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::block::GridSampleBlockOps;
use super::{GridSampleOps, Sampling};
use ffdp_kit::vjp::{Vjp, record};
use ffdp_kit::{refuse, refuse_second_order};

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

    refuse_second_order! { "grid_sample";
        fn grid_sample_3d_backward(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, Sampling,
            [bool; 3],
        ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
    }
}

impl<B: GridSampleBlockOps, C: CheckpointStrategy> GridSampleBlockOps for Autodiff<B, C> {
    refuse! { "grid_sample: samples with room around them are not differentiable";
        fn grid_sample_3d_block(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, Sampling, [usize; 2],
        ) -> FloatTensor<Self>;
    }

    refuse! { "grid_sample: a gradient is not differentiable";
        fn grid_sample_3d_block_to_displacement(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, Sampling,
            [usize; 2],
        ) -> FloatTensor<Self>;
    }
}
