//! Soft Dice of labels seen through a displacement, without one-hot tensors.
//!
//! With `w_c` the trilinear weights of the eight voxels `c` around `p + u(p)`, zeros outside:
//! ```text
//! a_k(p) = sum_c w_c [moving(c) = k]        b_k(p) = [fixed(p) = k]
//! I_k = sum_p a_k b_k        A_k = sum_p a_k^2 (or a_k)        B_k = sum_p b_k
//! dice_k = 2 I_k / (A_k + B_k + eps)
//! ```
//! Eight voxels have at most eight labels, so no voxel ever loops over all labels, and most see one
//! label only. What is stored is the table of sums, `[N, 3, K]`; the score is arithmetic on it.
//!
//! Backward, with `alpha_k = dL/dI_k` and `beta_k = dL/dA_k` from that table, everything else
//! recomputed:
//! ```text
//! dL/du(p) = sum_c grad w_c (alpha_k [fixed(p) = k] + beta_k 2 a_k(p) (or beta_k)),  k = moving(c)
//! ```
//! Each voxel owns its gradient: no atomics. Where all eight labels are equal it is zero.
//!
//! The sums are reproducible: on a GPU every cube adds whole numbers (fixed point, 18 bits after the
//! point) in shared memory, and the cubes' tables are added in a fixed order.

use std::sync::Arc;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::{Int, IntDType, Shape, Tensor};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Labels of one call, at most: their table must fit into the shared memory of every GPU.
pub const MOST_LABELS: usize = 1024;

/// The size of a label in the denominator of Dice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Denominator {
    /// `sum a^2 + sum b^2` (TransMorph; Milletari et al. 2016).
    #[default]
    Squared,
    /// `sum a + sum b`.
    Plain,
}

/// Options of [`label_dice`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelDiceOptions {
    /// The size of a label; squared by default.
    pub denominator: Denominator,
    /// `eps`, in voxels, not negative; 1e-5 by default: keeps the score of an empty label finite
    /// (it is 0).
    pub epsilon: f64,
}

impl Default for LabelDiceOptions {
    fn default() -> Self {
        Self { denominator: Denominator::Squared, epsilon: 1e-5 }
    }
}

/// The labels that count, as a backend receives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelTable {
    /// Ids in ascending order, each with its column in the table of sums.
    columns: Arc<[(i32, u32)]>,
    denominator: Denominator,
}

impl LabelTable {
    fn new(ids: &[i32], denominator: Denominator) -> Self {
        let count = ids.len();
        assert!(
            (1..=MOST_LABELS).contains(&count),
            "label_dice: between 1 and {MOST_LABELS} labels, got {count}"
        );
        let mut columns: Vec<(i32, u32)> = ids.iter().copied().zip(0u32..).collect();
        columns.sort_unstable();
        let twice = columns.windows(2).find(|pair| pair[0].0 == pair[1].0);
        assert!(twice.is_none(), "label_dice: an id is asked for twice, {twice:?}");
        Self { columns: columns.into(), denominator }
    }

    fn len(&self) -> usize {
        self.columns.len()
    }

    /// The shape of the sums for a displacement's.
    fn sums_shape(&self, displacement: &Shape) -> Shape {
        Shape::from([displacement[0], 3, self.len()])
    }
}

/// Backend operations of the label sums: displacement `[N, 3, D, H, W]`, moving `[N, 1, Di, Hi, Wi]`
/// and fixed `[N, 1, D, H, W]` 32-bit integers, sums `[N, 3, K]`: `I`, `A`, `B`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait LabelDiceOps: Backend {
    /// `I`, `A` and `B` of every label.
    #[fusion(dtype = displacement, shape = table.sums_shape(displacement))]
    fn label_sums_3d(
        displacement: FloatTensor<Self>,
        moving: IntTensor<Self>,
        fixed: IntTensor<Self>,
        table: LabelTable,
    ) -> FloatTensor<Self>;

    /// The gradient of the displacement from that of the sums.
    #[fusion(dtype = displacement, shape = displacement)]
    fn label_sums_3d_backward(
        displacement: FloatTensor<Self>,
        moving: IntTensor<Self>,
        fixed: IntTensor<Self>,
        grad: FloatTensor<Self>,
        table: LabelTable,
    ) -> FloatTensor<Self>;
}

/// Soft Dice of every label of `ids` after warping `moving` through the displacement: 1 for equal
/// shapes, 0 for disjoint ones. [`label_dice_loss`](crate::losses::label_dice_loss) is `1 - mean`.
/// Differentiable in the displacement (first order).
///
/// # Shapes
/// moving `[N, 1, Di, Hi, Wi]`, fixed `[N, 1, D, H, W]`, integers of 32 bits (others are converted) ·
/// displacement `[N, 3, D, H, W]`, from fixed to moving, in voxels · result `[N, K]`, in the order of
/// `ids`, which may be any integers.
///
/// # Panics
/// If the shapes do not fit each other, if an id is given twice, if there are none or more than
/// [`MOST_LABELS`], or if epsilon is negative.
pub fn label_dice(
    moving: Tensor<5, Int>,
    fixed: Tensor<5, Int>,
    displacement: Tensor<5>,
    ids: &[i32],
    options: &LabelDiceOptions,
) -> Tensor<2> {
    let LabelDiceOptions { denominator, epsilon } = *options;
    assert!(
        epsilon >= 0.0 && epsilon.is_finite(),
        "label_dice: epsilon must be finite and not negative, got {epsilon}"
    );
    dice_of_sums(label_sums(moving, fixed, displacement, ids, denominator), epsilon)
}

/// `2 I / (A + B + eps)`, `[N, K]`, of [`label_sums`].
pub fn dice_of_sums(sums: Tensor<3>, epsilon: f64) -> Tensor<2> {
    let row = |i: usize| sums.clone().narrow(1, i, 1).squeeze_dim::<2>(1);
    let sizes = (row(1) + row(2)).add_scalar(epsilon);
    row(0).mul_scalar(2.0) / sizes
}

/// The sums `I`, `A`, `B` of every label: the additive part of [`label_dice`], for scores that are
/// summed over shards.
///
/// # Shapes
/// As [`label_dice`]; result `[N, 3, K]`.
///
/// # Panics
/// As [`label_dice`].
pub fn label_sums(
    moving: Tensor<5, Int>,
    fixed: Tensor<5, Int>,
    displacement: Tensor<5>,
    ids: &[i32],
    denominator: Denominator,
) -> Tensor<3> {
    let (m, f, u) = (moving.dims(), fixed.dims(), displacement.dims());
    assert!(
        u[1] == 3 && f[1] == 1 && m[1] == 1 && f[0] == u[0] && m[0] == u[0] && f[2..] == u[2..],
        "label_dice: moving [N, 1, Di, Hi, Wi], fixed [N, 1, D, H, W] and displacement \
         [N, 3, D, H, W] do not fit: {m:?}, {f:?}, {u:?}"
    );
    Tensor::from_dispatch(<Dispatch as LabelDiceOps>::label_sums_3d(
        displacement.into_dispatch(),
        moving.cast(IntDType::I32).into_dispatch(),
        fixed.cast(IntDType::I32).into_dispatch(),
        LabelTable::new(ids, denominator),
    ))
}
