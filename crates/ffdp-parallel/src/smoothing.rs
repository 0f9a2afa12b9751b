//! Gaussian smoothing and Jacobians of sharded volumes: what looks a few planes to either side.

use burn::Tensor;

use super::overlap::sum_of_blocks;
use super::sharded::Sharded;
use ffdp_burn::ops::regularity::{Roughness, roughness};
use ffdp_burn::ops::{self, GaussianOptions};

/// [`ops::gaussian`](ffdp_burn::ops::gaussian()) of a sharded image or field. The halo is the kernel's
/// radius, and the weights are renormalised at the border of the volume only, so that no seam
/// shows. Differentiable.
///
/// # Panics
/// As the serial operation.
pub fn gaussian(x: &Sharded, options: &GaussianOptions) -> Sharded {
    let radius = options.radius(x.layout().axis().component());
    x.through_halo(radius, |block| ops::gaussian(block, options))
}

/// Central differences look at one voxel on either side.
const DIFFERENCE: usize = 1;

/// [`ops::jacobian`](ffdp_burn::ops::jacobian()) of a sharded displacement. Differentiable.
///
/// # Panics
/// As the serial operation.
pub fn jacobian(displacement: &Sharded) -> Sharded {
    displacement.through_halo(DIFFERENCE, ops::jacobian)
}

/// [`ops::jacobian_penalty`](ffdp_burn::ops::jacobian_penalty()) of a sharded displacement, `[1]` on the
/// device of the first shard. Differentiable.
///
/// # Panics
/// As the serial operation.
pub fn jacobian_penalty(displacement: &Sharded, margin: f64) -> Tensor<1> {
    mean_of_blocks(displacement, |block| ops::jacobian_penalty(block, margin))
}

/// [`ops::total_variation`](ffdp_burn::ops::total_variation()) of a sharded displacement, `[1]` on the
/// device of the first shard. Differentiable.
///
/// # Panics
/// As the serial operation.
pub fn total_variation(displacement: &Sharded, epsilon: f64) -> Tensor<1> {
    mean_of_blocks(displacement, |block| ops::total_variation(block, epsilon))
}

/// [`ops::diffusion`](ffdp_burn::ops::diffusion()) of a sharded displacement, `[1]` on the device of the first
/// shard. Differentiable.
///
/// # Panics
/// As the serial operation.
pub fn diffusion(displacement: &Sharded) -> Tensor<1> {
    roughness_of(displacement, ops::diffusion, Roughness::DiffusionOf)
}

/// [`ops::bending_energy`](ffdp_burn::ops::bending_energy()) likewise. Differentiable.
///
/// # Panics
/// As the serial operation.
pub fn bending_energy(displacement: &Sharded) -> Tensor<1> {
    roughness_of(displacement, ops::bending_energy, Roughness::BendingOf)
}

/// In one piece by the operation for it, else the sum of the parts that blocks have in that of a volume of a size.
fn roughness_of(
    displacement: &Sharded,
    of_whole: fn(Tensor<5>) -> Tensor<1>,
    part_of: fn([usize; 3]) -> Roughness,
) -> Tensor<1> {
    if let [whole] = displacement.shards() {
        return of_whole(whole.clone());
    }
    let of_volume = part_of(displacement.layout().size());
    sum_of_blocks([displacement], DIFFERENCE, |[block]| roughness(block, of_volume))
}

/// A mean over the voxels, each of which looks one voxel around, from means of blocks.
fn mean_of_blocks(field: &Sharded, mean: impl Fn(Tensor<5>) -> Tensor<1>) -> Tensor<1> {
    if field.layout().count() == 1 {
        return mean(field.shards()[0].clone());
    }
    let voxels = |field: &Tensor<5>| -> f64 {
        let [batch, _, d, h, w] = field.dims();
        (batch * d * h * w) as f64
    };
    let sum = |[block]: [Tensor<5>; 1]| {
        let count = voxels(&block);
        mean(block).mul_scalar(count)
    };
    let whole = (field.dims()[0] * field.layout().voxels()) as f64;
    sum_of_blocks([field], DIFFERENCE, sum).mul_scalar(1.0 / whole)
}
