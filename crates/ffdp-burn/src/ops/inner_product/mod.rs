//! Inner products of fields: what optimisers ask for most, dozens of them an iteration.
//!
//! ```text
//! s_k = sum_p a_p b_kp
//! ```
//! Up to `TOGETHER` products of one field in one sweep over all, without a product in memory. Composed from a tensor
//! library's operations (a product, then a sum an axis) one of them is seven launches; of small fields, such as control
//! points, it is launches that take the time.

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};

#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Products in one sweep, at most: WebGPU binds eight buffers.
pub(crate) const TOGETHER: usize = 6;

/// Backend operation of the inner products of tensors of one shape.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
#[allow(clippy::too_many_arguments)] // Burn's macro wants every tensor spelled out.
pub trait InnerProductOps: Backend {
    /// The sums of the products of `a` with the first `count` of the others, `[count]`.
    #[fusion(dtype = a, shape = { let _ = (a, b0, b1, b2, b3, b4, b5); burn::tensor::Shape::from([*count]) })]
    fn inner_products_3d(
        a: FloatTensor<Self>,
        b0: FloatTensor<Self>,
        b1: FloatTensor<Self>,
        b2: FloatTensor<Self>,
        b3: FloatTensor<Self>,
        b4: FloatTensor<Self>,
        b5: FloatTensor<Self>,
        count: usize,
    ) -> FloatTensor<Self>;
}

impl<B: InnerProductOps, C: CheckpointStrategy> InnerProductOps for Autodiff<B, C> {
    fn inner_products_3d(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: usize,
    ) -> FloatTensor<Self> {
        panic!("inner_product: not differentiable; take the fields off the tape (`inner`)")
    }
}

/// The sum of the products of all values of two fields, `[1]`. Not differentiable.
///
/// # Shapes
/// a, b `[N, C, D, H, W]`, off the tape.
///
/// # Errors of the result
/// f32 against f64: 1e-7 of the sum of the products' sizes. Reproducible bit by bit on one device.
///
/// # Panics
/// If the shapes differ, or on the tape.
pub fn inner_product(a: Tensor<5>, b: Tensor<5>) -> Tensor<1> {
    inner_products(&[[&a, &b]])
}

/// The [`inner_product`]s of all pairs, `[pairs]`. Pairs that follow each other and begin with the same tensor (the same
/// reference) are computed together.
///
/// # Panics
/// As [`inner_product`], and for no pair.
pub fn inner_products(pairs: &[[&Tensor<5>; 2]]) -> Tensor<1> {
    let runs = pairs.chunk_by(|one, next| std::ptr::eq(one[0], next[0]));
    let sums: Vec<Tensor<1>> =
        runs.flat_map(|run| run.chunks(TOGETHER)).map(products_of_one).collect();
    if sums.len() == 1 {
        sums.into_iter().next().expect("there is one")
    } else {
        Tensor::cat(sums, 0)
    }
}

/// Of pairs that begin with one tensor.
fn products_of_one(pairs: &[[&Tensor<5>; 2]]) -> Tensor<1> {
    let dims = pairs[0][0].dims();
    for [_, b] in pairs {
        let other = b.dims();
        assert!(
            dims == other,
            "inner_product: the shapes must be the same, got {dims:?} and {other:?}"
        );
    }
    // Bound beyond the last, but not read.
    let b = |k: usize| pairs[k.min(pairs.len() - 1)][1].clone().into_dispatch();
    let a = pairs[0][0].clone().into_dispatch();
    Tensor::from_dispatch(<Dispatch as InnerProductOps>::inner_products_3d(
        a,
        b(0),
        b(1),
        b(2),
        b(3),
        b(4),
        b(5),
        pairs.len(),
    ))
}
