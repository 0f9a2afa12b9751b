//! Operations that look a few planes to either side, on shards that stay where they are.
//!
//! A shard goes through the operation alone; what that gives within its reach of a seam is wrong, and
//! is replaced by what a strip around the seam gives. Strips are small, so that nothing of the size of
//! a shard is copied for a halo. What lies beyond a seam between two devices is exchanged for all seams
//! at once.

use burn::Tensor;

use super::block::{Neighbours, Pieces, assign};
use crate::device_mesh::DeviceMesh;
use crate::exchange::Swap;
use crate::layout::Axis;
use crate::sharded::{join, narrow};
use ffdp_burn::ops::{GaussianOptions, gaussian};
use ffdp_image::error::Result;

/// The seams between two devices, by the shard below each.
pub(super) fn far_seams(mesh: &DeviceMesh) -> Vec<usize> {
    (1..mesh.count()).filter(|k| mesh.device(k - 1) != mesh.device(*k)).map(|k| k - 1).collect()
}

/// Planes next to seams between two devices, on their way to the other.
pub(super) struct Crossing {
    volumes: usize,
    shards: usize,
    seams: Vec<usize>,
    swap: Swap,
}

impl Crossing {
    /// Sends of each of these volumes, given by their shards, the `width` planes on either side of each seam; the shards
    /// have as many.
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) where some were not computed.
    pub fn send(
        volumes: &[Vec<Tensor<5>>],
        seams: Vec<usize>,
        axis: Axis,
        width: usize,
    ) -> Result<Self> {
        let ends = |shards: &Vec<Tensor<5>>, k: usize| {
            let [below, above] = [k, k + 1].map(|k| shards[k].clone());
            let planes = below.dims()[axis.dim()];
            [narrow(below, axis.dim(), planes - width..planes), narrow(above, axis.dim(), 0..width)]
        };
        let of_volume = |shards| seams.iter().map(move |k| ends(shards, *k));
        let swap = Swap::begin(volumes.iter().flat_map(of_volume).collect())?;
        Ok(Self { volumes: volumes.len(), shards: volumes[0].len(), seams, swap })
    }

    /// Of every volume what came, for every shard.
    pub fn receive(self) -> Vec<Vec<Neighbours>> {
        let mut came = vec![vec![[const { None }; 2]; self.shards]; self.volumes];
        let mut pairs = self.swap.finish().into_iter();
        for neighbours in &mut came {
            for (&k, [above, below]) in self.seams.iter().zip(pairs.by_ref()) {
                neighbours[k][1] = Some(above);
                neighbours[k + 1][0] = Some(below);
            }
        }
        came
    }
}

/// Of what shards have for planes around them, what is for those beyond seams between two devices, on the device that
/// has these.
///
/// # Errors
/// [`Error::Device`](ffdp_image::Error::Device) where some was not computed.
pub(super) fn cross_back(mut margins: Vec<Neighbours>, seams: &[usize]) -> Result<Vec<Neighbours>> {
    let mut ends = |k: usize| {
        let [above, below] = [margins[k][1].take(), margins[k + 1][0].take()];
        [above, below].map(|end| end.expect("shards look beyond their seams"))
    };
    let swap = Swap::begin(seams.iter().map(|k| ends(*k)).collect())?;
    for (&k, [below, above]) in seams.iter().zip(swap.finish()) {
        margins[k][1] = Some(above);
        margins[k + 1][0] = Some(below);
    }
    Ok(margins)
}

/// The own planes smoothed by a kernel of `radius` planes; the neighbouring pieces have as many, or
/// what there is.
pub(super) fn smooth_own(
    pieces: Pieces,
    axis: Axis,
    options: &GaussianOptions,
    radius: usize,
) -> Tensor<5> {
    let Pieces { below, own, above } = pieces;
    let dim = axis.dim();
    let planes = own.dims()[dim];
    if planes < 2 * radius {
        let low = below.as_ref().map_or(0, |below| below.dims()[dim]);
        let all = join([below, Some(own), above].into_iter().flatten().collect(), dim);
        return narrow(gaussian(all, options), dim, low..low + planes);
    }
    // Of the strips, the planes next to the seam.
    let low = below.map(|below| {
        let first = below.dims()[dim];
        let strip = join(vec![below, narrow(own.clone(), dim, 0..2 * radius)], dim);
        narrow(gaussian(strip, options), dim, first..first + radius)
    });
    let high = above.map(|above| {
        let strip = join(vec![narrow(own.clone(), dim, planes - 2 * radius..planes), above], dim);
        narrow(gaussian(strip, options), dim, radius..2 * radius)
    });
    with_ends(gaussian(own, options), axis, radius, [low, high])
}

/// With other values in its first and its last `width` planes.
pub(super) fn with_ends(
    x: Tensor<5>,
    axis: Axis,
    width: usize,
    [first, last]: [Option<Tensor<5>>; 2],
) -> Tensor<5> {
    let planes = x.dims()[axis.dim()];
    let ends = [(0..width, first), (planes - width..planes, last)];
    ends.into_iter().fold(x, |x, (planes, end)| match end {
        Some(end) => assign(x, axis, planes, end),
        None => x,
    })
}
