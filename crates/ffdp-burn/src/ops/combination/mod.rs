//! Sums of fields, a factor each: where optimisers go.
//!
//! ```text
//! y_p = sum_k a_k x_kp
//! ```
//! Up to `TOGETHER` terms in one launch: L-BFGS adds a dozen, which term by term are two operations each.

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};

#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Terms in one launch, at most: WebGPU binds eight buffers.
const TOGETHER: usize = 6;

/// The factors of the first `count` terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    values: [f64; TOGETHER],
    count: usize,
}

/// Backend operation of a sum of tensors of one shape.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
#[allow(clippy::too_many_arguments)] // Burn's macro wants every tensor spelled out.
pub trait CombinationOps: Backend {
    /// The sum of the terms that have a factor.
    #[fusion(dtype = x0, shape = { let _ = (x1, x2, x3, x4, x5, factors); x0.clone() })]
    fn combination_3d(
        x0: FloatTensor<Self>,
        x1: FloatTensor<Self>,
        x2: FloatTensor<Self>,
        x3: FloatTensor<Self>,
        x4: FloatTensor<Self>,
        x5: FloatTensor<Self>,
        factors: Factors,
    ) -> FloatTensor<Self>;
}

impl<B: CombinationOps, C: CheckpointStrategy> CombinationOps for Autodiff<B, C> {
    fn combination_3d(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: Factors,
    ) -> FloatTensor<Self> {
        panic!("combination: not differentiable; take the fields off the tape (`inner`)")
    }
}

/// `sum_k a_k x_k`. Terms with a factor of 0 are left out, whatever they hold. Not differentiable.
///
/// # Shapes
/// terms and result `[N, C, D, H, W]`, off the tape.
///
/// # Panics
/// For no term, if the shapes differ, or on the tape.
pub fn combination(terms: &[(f64, &Tensor<5>)]) -> Tensor<5> {
    let dims = terms.first().expect("combination: there must be a term").1.dims();
    for (_, x) in terms {
        let other = x.dims();
        assert!(
            dims == other,
            "combination: the shapes must be the same, got {dims:?} and {other:?}"
        );
    }
    let some: Vec<_> = terms.iter().filter(|(a, _)| *a != 0.0).copied().collect();
    if some.is_empty() {
        return terms[0].1.zeros_like();
    }
    let (first, rest) = some.split_at(TOGETHER.min(some.len()));
    rest.chunks(TOGETHER - 1).fold(at_once(first), |sum, more| {
        let with: Vec<_> = std::iter::once((1.0, &sum)).chain(more.iter().copied()).collect();
        at_once(&with)
    })
}

/// Of at most [`TOGETHER`] terms.
fn at_once(terms: &[(f64, &Tensor<5>)]) -> Tensor<5> {
    if let [(1.0, x)] = terms {
        return Tensor::clone(x);
    }
    let factor = |k: usize| terms.get(k).map_or(0.0, |(a, _)| *a);
    let factors = Factors { values: std::array::from_fn(factor), count: terms.len() };
    // Bound beyond the last, but not read.
    let x = |k: usize| terms[k.min(terms.len() - 1)].1.clone().into_dispatch();
    let sum =
        <Dispatch as CombinationOps>::combination_3d(x(0), x(1), x(2), x(3), x(4), x(5), factors);
    Tensor::from_dispatch(sum)
}
