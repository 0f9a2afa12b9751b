//! A sum over voxels that look around themselves, without counting any voxel twice.
//!
//! ```text
//! F(whole) = sum_k F(shard k with a halo of h) - sum_s F(planes s - h .. s + h)      s the seams
//! ```
//! for `F(x) = sum_p f(neighbourhood of p)`, `h` at least the radius of the neighbourhood. At its
//! edges a block is cut, and what `f` gives there is wrong; but next to the seam `s` the block below
//! ends at `s + h`, and so does the strip around the seam; the block above starts at `s - h`, and so
//! does the strip. Each wrong term thus occurs twice, with opposite signs, and so does each right one
//! that two blocks share. What remains is every voxel once. This holds for its gradient as well and for
//! shards thinner than `h`, and it needs no mask in any kernel; the price is `4 h` planes a seam.

use burn::Tensor;

use super::collective::reduce;
use super::exchange::Reduction;
use super::halo::Beyond;
use super::sharded::Sharded;

/// The sum `F` over volumes that are cut alike, `[K]` on the device of the first shard.
/// `sum` is `F` of a block of each, with the rule of the true border at the block's edges.
///
/// Differentiable.
///
/// # Panics
/// If the layouts differ.
pub(super) fn sum_of_blocks<const V: usize>(
    volumes: [&Sharded; V],
    radius: usize,
    sum: impl Fn([Tensor<5>; V]) -> Tensor<1>,
) -> Tensor<1> {
    let layout = volumes[0].layout();
    volumes.iter().for_each(|volume| volumes[0].check_layout(volume));
    let haloed = volumes.map(|volume| volume.with_halo(radius, Beyond::Nothing));
    let blocks = (0..layout.count()).map(|k| sum(haloed.each_ref().map(|h| h.blocks()[k].clone())));
    let strips = strips(volumes, radius).map(|strip| sum(strip).neg());
    reduce(blocks.chain(strips), Reduction::Sum)
}

/// The strips of `radius` planes on either side of every seam, on the device below it.
pub(super) fn strips<const V: usize>(
    volumes: [&Sharded; V],
    radius: usize,
) -> impl Iterator<Item = [Tensor<5>; V]> {
    let layout = volumes[0].layout();
    let seams = if radius == 0 { &[][..] } else { layout.seams() };
    seams.iter().enumerate().map(move |(k, seam)| {
        let device = volumes[0].shards()[k].device();
        let planes = seam.saturating_sub(radius)..(seam + radius).min(layout.extent());
        volumes.map(|volume| volume.window(planes.clone(), &device))
    })
}
