//! How rough a displacement is: diffusion, bending energy, total variation, each with its gradient.
//!
//! With `d_a u = u(p + e_a) - u(p)` the forward difference along axis `a`, per component `c`:
//! ```text
//! diffusion         1/3 sum_a mean (d_a u_c)^2
//! bending energy    sum_a mean (d_a d_-a u_c)^2 + 2 sum_(a < b) mean (d_a d_b u_c)^2
//! total variation   mean_p sqrt(sum_(a, c) (d_a u_c)^2 + eps^2) - eps
//! ```
//! Second differences are `u(p + e_a) - 2 u(p) + u(p - e_a)` along an axis and those of a cell of four
//! voxels across two. The means of the first two go over the components and over the voxels where the
//! difference exists; an axis that is too short contributes nothing. Total variation counts a
//! difference beyond the border as 0.
//!
//! Lengths are voxels of the field's own grid. All are 0 for translations, the bending energy also
//! for affine fields.
//!
//! The gradient is computed in the backward pass, from the field: nothing is kept between the passes
//! but the field itself, and no atomics are needed.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::Shape;

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Which roughness.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Roughness {
    /// First differences, squared.
    Diffusion,
    /// Second differences, squared (Rueckert et al. 1999).
    Bending,
    /// What a part adds to [`Roughness::Diffusion`] of a whole of this size (D, H, W).
    DiffusionOf([usize; 3]),
    /// What a part adds to [`Roughness::Bending`] of a whole of this size (D, H, W).
    BendingOf([usize; 3]),
    /// First differences, by their length over all axes and components.
    TotalVariation {
        /// `eps` in voxels: below it the energy is a square, above it a length.
        epsilon: f64,
    },
}

/// What the squares (the length, for total variation) of the differences are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weights {
    /// Along x, y, z.
    along: [f64; 3],
    /// Across (x, y), (x, z), (y, z).
    across: [f64; 3],
}

impl Roughness {
    /// The weights that make means of the sums over a field `[N, 3, D, H, W]`.
    fn weights(self, shape: &Shape) -> Weights {
        let size = [shape[4], shape[3], shape[2]];
        let values = 3 * shape[0];
        // One over the number of differences that need `less` voxels fewer along each axis.
        let mean = |less: [usize; 3]| {
            let left = [0, 1, 2].map(|a| size[a].saturating_sub(less[a]));
            let count = values * left.iter().product::<usize>();
            if count == 0 { 0.0 } else { 1.0 / count as f64 }
        };
        let of = |[d, h, w]: [usize; 3]| Shape::from([shape[0], 3, d, h, w]);
        match self {
            Self::DiffusionOf(size) => Self::Diffusion.weights(&of(size)),
            Self::BendingOf(size) => Self::Bending.weights(&of(size)),
            Self::Diffusion => {
                let along = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map(|less| mean(less) / 3.0);
                Weights { along, across: [0.0; 3] }
            }
            Self::Bending => Weights {
                along: [[2, 0, 0], [0, 2, 0], [0, 0, 2]].map(mean),
                across: [[1, 1, 0], [1, 0, 1], [0, 1, 1]].map(|less| 2.0 * mean(less)),
            },
            Self::TotalVariation { .. } => {
                Weights { along: [3.0 * mean([0; 3]); 3], across: [0.0; 3] }
            }
        }
    }
}

/// Backend operations of the roughness of a field `[N, 3, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait RegularityOps: Backend {
    /// The roughness, `[1]`.
    #[fusion(dtype = field, shape = { let _ = field; burn::tensor::Shape::from([1]) })]
    fn roughness_3d(field: FloatTensor<Self>, roughness: Roughness) -> FloatTensor<Self>;

    /// Its gradient times `grad` `[1]`.
    #[fusion(dtype = field, shape = field)]
    fn roughness_3d_backward(
        field: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        roughness: Roughness,
    ) -> FloatTensor<Self>;
}

/// Diffusion: mean of the squared forward differences, averaged over the three axes (TransMorph's
/// and VoxelMorph's `Grad3d`, l2). In voxels^2 per voxel^2; 0 for translations. Differentiable (first
/// order).
///
/// # Shapes
/// displacement `[N, 3, D, H, W]`; result `[1]`.
///
/// # Panics
/// If the displacement has not 3 components.
pub fn diffusion(displacement: Tensor<5>) -> Tensor<1> {
    roughness(displacement, Roughness::Diffusion)
}

/// Bending energy: mean of the squared second derivatives, summed over the nine pairs of axes
/// (Rueckert et al. 1999). In voxels^2 per voxel^4; 0 for affine fields. Differentiable (first order).
///
/// # Shapes
/// displacement `[N, 3, D, H, W]`; result `[1]`.
///
/// # Panics
/// If the displacement has not 3 components.
pub fn bending_energy(displacement: Tensor<5>) -> Tensor<1> {
    roughness(displacement, Roughness::Bending)
}

/// Differences in voxels above which the total variation of a registration counts lengths.
pub const SMALL_DIFFERENCE: f64 = 1e-3;

/// Total variation: mean length of the differences of all components, so that a field may slide along
/// a surface at the price of the step alone. In voxels per voxel; 0 for translations. Differentiable
/// (first order) for a positive `epsilon`, the difference in voxels at which the length begins;
/// [`SMALL_DIFFERENCE`] suits registration.
///
/// # Shapes
/// displacement `[N, 3, D, H, W]`; result `[1]`.
///
/// # Panics
/// If the displacement has not 3 components or epsilon is not positive and finite.
pub fn total_variation(displacement: Tensor<5>, epsilon: f64) -> Tensor<1> {
    assert!(
        epsilon > 0.0 && epsilon.is_finite(),
        "total_variation: epsilon must be positive and finite, got {epsilon}"
    );
    roughness(displacement, Roughness::TotalVariation { epsilon })
}

/// One of the energies of a displacement `[N, 3, D, H, W]` in voxels, `[1]`: those of [`diffusion`],
/// [`bending_energy`] and [`total_variation`] by their name.
pub fn roughness(displacement: Tensor<5>, roughness: Roughness) -> Tensor<1> {
    let dims = displacement.dims();
    assert!(dims[1] == 3, "regularity: the displacement must be [N, 3, D, H, W], got {dims:?}");
    let field = displacement.into_dispatch();
    Tensor::from_dispatch(<Dispatch as RegularityOps>::roughness_3d(field, roughness))
}
