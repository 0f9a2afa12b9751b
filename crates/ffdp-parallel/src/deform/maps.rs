//! What map the fields of a method mean, on shards: see [`Method`].

use burn::Tensor;

use super::flow::Squarings;
use super::homes::Homes;
use super::view::Grid;
use crate::device_mesh::DeviceMesh;
use crate::hosts::Holders;
use crate::ring::DisplacementBounds;
use crate::sharded::Sharded;
use ffdp_burn::error::Result;
use ffdp_burn::ops::{Method, compose, inverse};

/// Planes beyond the longest displacement that its inverse and a composition look at: the next voxel, and rounding.
const MORE: f64 = 2.0;

/// The displacement `w` that `fields` mean, computed on `mesh`, and where the method gives it that of the inverse map;
/// each rests where the fields do. Other ranks do the same with their parts.
///
/// # Errors
/// [`Error::Device`](ffdp_burn::Error::Device) when bounds cannot be read, and
/// [`Error::LostRank`](ffdp_burn::Error::LostRank).
pub fn maps(
    method: Method,
    fields: &[Sharded],
    mesh: &DeviceMesh,
    holders: &Holders,
) -> Result<(Sharded, Option<Sharded>)> {
    let first = &fields[0];
    let grid = Grid {
        layout: first.layout().clone(),
        homes: Homes::new(mesh, first.mesh()),
        holders: holders.clone(),
        width: 0,
        step_voxels: [0.0; 3],
    };
    match method {
        Method::Greedy => Ok((first.clone(), None)),
        Method::Svf { squarings, accumulation } => {
            let flow = |velocity: &Sharded| {
                let flow = Squarings::new(squarings, accumulation).along(&grid, velocity)?;
                Ok::<_, ffdp_burn::Error>(flow.displacement)
            };
            let back = grid.through(first, 0, Tensor::neg)?;
            Ok((flow(first)?, Some(flow(&back)?)))
        }
        Method::Syn => {
            let [u1, u2] = [&fields[0], &fields[1]];
            let back = |half: &Sharded| {
                let width = reach(&grid, half)?;
                grid.through(half, width, |half| inverse(half, None))
            };
            let after = |outer: &Sharded, inner: &Sharded| {
                let width = reach(&grid, inner)?;
                let both = outer.clone().zip_map(inner, |a, b| Tensor::cat(vec![a, b], 1));
                let both = grid.through(&both, width, |both| {
                    let [outer, inner] = [0, 3].map(|first| both.clone().narrow(1, first, 3));
                    let composed = compose(outer, inner.clone());
                    // The extents that came, and as many channels.
                    Tensor::cat(vec![composed, inner], 1)
                })?;
                Ok::<_, ffdp_burn::Error>(both.map(|both| both.narrow(1, 0, 3)))
            };
            Ok((after(u2, &back(u1)?)?, Some(after(u1, &back(u2)?)?)))
        }
    }
}

/// Planes on either side that a displacement reaches, over all shards and ranks.
fn reach(grid: &Grid, field: &Sharded) -> Result<usize> {
    if grid.layout.count() == 1 && !grid.holders.are_several() {
        return Ok(0);
    }
    let bounds = DisplacementBounds::read(field)?.into_iter();
    let bounds = bounds.reduce(DisplacementBounds::union).expect("there is a shard");
    let [low, high] = grid.holders.union(bounds)?.0[grid.layout.axis().component()];
    Ok((low.abs().max(high.abs()) + MORE).ceil() as usize)
}
