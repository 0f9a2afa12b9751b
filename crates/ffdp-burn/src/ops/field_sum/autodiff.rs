//! The chain rule of sums: every value of a part gets its gradient.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, TensorMetadata};
use burn::tensor::Shape;

use super::FieldSumOps;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct PartSumsVjp;

impl<B: FieldSumOps> Vjp<B, 1> for PartSumsVjp {
    type Saved = Shape;

    fn backward(shape: Shape, grad: FloatTensor<B>, _: [bool; 1]) -> [Option<FloatTensor<B>>; 1] {
        let parts = grad.shape().num_elements();
        let column = B::float_reshape(grad, Shape::from([parts, 1]));
        let len = shape.num_elements() / parts;
        let rows = B::float_expand(column, Shape::from([parts, len]));
        [Some(B::float_reshape(rows, shape))]
    }
}

impl<B: FieldSumOps, C: CheckpointStrategy> FieldSumOps for Autodiff<B, C> {
    fn part_sums(x: FloatTensor<Self>, parts: usize) -> FloatTensor<Self> {
        record::<B, C, _, 1>(PartSumsVjp, [x], |[x], _| {
            let shape = x.shape();
            (B::part_sums(x, parts), shape)
        })
    }
}
