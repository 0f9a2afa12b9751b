//! Inner products of fields: what optimisers ask for most, dozens of them an iteration.
//!
//! ```text
//! s_k = sum_p a_p b_kp
//! ```
//! Up to three fields with up to four others in one sweep over all, without a product in memory. Composed from a tensor
//! library's operations (a product, then a sum an axis) one product is seven launches; of small fields, such as control
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

/// Fields on either side of the products of a sweep, at most: WebGPU binds eight buffers.
pub(crate) const LEFTS: usize = 3;
pub(crate) const RIGHTS: usize = 4;

/// Backend operation of the inner products of tensors of one shape.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
#[allow(clippy::too_many_arguments)] // Burn's macro wants every tensor spelled out.
pub trait InnerProductOps: Backend {
    /// The sums of the products of each of the first `counts[0]` of a0.. with each of the first `counts[1]` of b0..,
    /// `[counts[0] * counts[1]]`, the latter fastest.
    #[fusion(dtype = a0, shape = { let _ = (a0, a1, a2, b0, b1, b2, b3); burn::tensor::Shape::from([counts[0] * counts[1]]) })]
    fn inner_products_3d(
        a0: FloatTensor<Self>,
        a1: FloatTensor<Self>,
        a2: FloatTensor<Self>,
        b0: FloatTensor<Self>,
        b1: FloatTensor<Self>,
        b2: FloatTensor<Self>,
        b3: FloatTensor<Self>,
        counts: [usize; 2],
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
        _: [usize; 2],
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
    inner_products(&[[&a, &b]]).joined()
}

/// The [`inner_product`]s of pairs, where they were computed: blocks of several each, to be read together.
#[derive(Clone, Debug)]
pub struct InnerProducts {
    /// Sums, some of which nobody asked for; each as [`inner_product`] has it.
    pub blocks: Vec<Tensor<1>>,
    /// Where in the blocks, one after the other, the products of the pairs are.
    places: Vec<usize>,
}

impl InnerProducts {
    /// All blocks in one tensor.
    pub fn joined(&self) -> Tensor<1> {
        match &self.blocks[..] {
            [one] => one.clone(),
            several => Tensor::cat(several.to_vec(), 0),
        }
    }

    /// The products of the pairs, from the values of all blocks, one after the other.
    ///
    /// # Panics
    /// For fewer values than the blocks have.
    pub fn of_pairs(&self, values: &[f64]) -> Vec<f64> {
        self.places.iter().map(|place| values[*place]).collect()
    }
}

/// The [`inner_product`]s of all pairs. Each sweep takes three of the tensors that pairs begin with and four of those
/// that these end with; a tensor is known by its reference.
///
/// # Panics
/// As [`inner_product`], and for no pair.
pub fn inner_products(pairs: &[[&Tensor<5>; 2]]) -> InnerProducts {
    let dims = pairs.first().expect("inner_product: there must be a pair")[0].dims();
    for other in pairs.iter().flatten().map(|field| field.dims()) {
        assert!(
            dims == other,
            "inner_product: the shapes must be the same, got {dims:?} and {other:?}"
        );
    }
    let mut products = InnerProducts { blocks: Vec::new(), places: vec![0; pairs.len()] };
    let mut before = 0;
    let all_lefts = distinct(pairs.iter().map(|pair| pair[0]));
    for lefts in all_lefts.chunks(LEFTS) {
        let of_these = pairs.iter().filter(|pair| place(lefts, pair[0]).is_some());
        for rights in distinct(of_these.map(|pair| pair[1])).chunks(RIGHTS) {
            for (to, [a, b]) in products.places.iter_mut().zip(pairs) {
                if let (Some(a), Some(b)) = (place(lefts, a), place(rights, b)) {
                    *to = before + a * rights.len() + b;
                }
            }
            products.blocks.push(block(lefts, rights));
            before += lefts.len() * rights.len();
        }
    }
    products
}

fn place(among: &[&Tensor<5>], field: &Tensor<5>) -> Option<usize> {
    among.iter().position(|other| std::ptr::eq(*other, field))
}

fn distinct<'a>(fields: impl Iterator<Item = &'a Tensor<5>>) -> Vec<&'a Tensor<5>> {
    let mut distinct = Vec::new();
    for field in fields {
        if place(&distinct, field).is_none() {
            distinct.push(field);
        }
    }
    distinct
}

fn block(lefts: &[&Tensor<5>], rights: &[&Tensor<5>]) -> Tensor<1> {
    // Bound beyond the last, but not read.
    let of = |fields: &[&Tensor<5>], k: usize| {
        Tensor::clone(fields[k.min(fields.len() - 1)]).into_dispatch()
    };
    let (a, b) = (|k| of(lefts, k), |k| of(rights, k));
    let counts = [lefts.len(), rights.len()];
    Tensor::from_dispatch(<Dispatch as InnerProductOps>::inner_products_3d(
        a(0),
        a(1),
        a(2),
        b(0),
        b(1),
        b(2),
        b(3),
        counts,
    ))
}
