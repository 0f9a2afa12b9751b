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

use std::ops::Range;

use burn::Tensor;

use super::collective::reduce;
use super::exchange::Reduction;
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
    // All of it travels at once.
    let wide = |planes: Range<usize>| {
        planes.start.saturating_sub(radius)..(planes.end + radius).min(layout.extent())
    };
    let seams = if radius == 0 { &[][..] } else { layout.seams() };
    let strips = seams.iter().map(|seam| wide(*seam..*seam));
    // A strip is at the shard below its seam.
    let windows: Vec<(usize, Range<usize>)> =
        layout.all_planes().map(wide).enumerate().chain(strips.enumerate()).collect();
    let mut looked_at = volumes.map(|volume| {
        let at = |(k, planes): &(usize, _)| (Range::clone(planes), volume.shards()[*k].device());
        volume.windows(windows.iter().map(at).collect()).into_iter()
    });
    let sums = (0..windows.len()).map(|i| {
        let part = looked_at.each_mut().map(|parts| parts.next().expect("one for each window"));
        let sum = sum(part);
        if i < layout.count() { sum } else { sum.neg() }
    });
    reduce(sums, Reduction::Sum)
}
