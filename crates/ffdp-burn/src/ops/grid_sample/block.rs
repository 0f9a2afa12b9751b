//! Samples with room around them: a volume that is sampled in pieces is one tensor from the start, its largest
//! piece is written where it belongs, and the gradient of a piece is read where it lies.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
use burn::tensor::Shape;

use super::Sampling;

/// Shapes as in [`GridSampleOps`](super::GridSampleOps), but for the output,
/// `[N, C, low + D + high, H, W]`. Not differentiable.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait GridSampleBlockOps: Backend {
    /// `y(p) = I(A p + t + S u(p))` on all planes but the `[low, high]` first and last ones, whose values mean
    /// nothing. `p` begins with 0 where the displacement does.
    #[fusion(dtype = displacement, shape = sampling.block_shape(image, *margins))]
    fn grid_sample_3d_block(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        sampling: Sampling,
        margins: [usize; 2],
    ) -> FloatTensor<Self>;

    /// The gradient of the displacement from that of such an output, of which the `[low, high]` first and last planes
    /// are not read.
    #[fusion(
        dtype = displacement,
        shape = {
            let _ = (image, affine, grad);
            displacement.clone()
        }
    )]
    fn grid_sample_3d_block_to_displacement(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        sampling: Sampling,
        margins: [usize; 2],
    ) -> FloatTensor<Self>;
}

impl Sampling {
    pub(super) fn block_shape(&self, image: &Shape, [low, high]: [usize; 2]) -> Shape {
        let [d, h, w] = self.size;
        Shape::from([image[0], image[1], low + d + high, h, w])
    }
}
