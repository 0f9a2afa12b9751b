//! The maps that velocities and halves stand for, on shards.

use burn::Tensor;

use super::flow::Squarings;
use super::homes::Homes;
use super::view::Grid;
use crate::collective::reduce;
use crate::device_mesh::DeviceMesh;
use crate::exchange::{Reduction, WaitForSums};
use crate::hosts::Holders;
use crate::numbers::read_together;
use crate::ring::DisplacementBounds;
use crate::sharded::Sharded;
use ffdp_burn::ops::{Accumulation, compose, inverse, longest_squared};
use ffdp_image::error::Result;

/// Planes beyond the longest displacement that its inverse and a composition look at: the next voxel, and rounding.
const MORE: f64 = 2.0;

/// How the exponential of a velocity is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpOptions {
    /// How often a small step is composed with itself.
    pub squarings: usize,
    /// How gradients are added up.
    pub accumulation: Accumulation,
}

/// The displacement of the flow along a stationary velocity, `exp(v) - id`, and of the flow back, `exp(-v) - id`;
/// computed on `mesh`, each rests where the velocity does. Other ranks do the same with their parts.
///
/// # Errors
/// [`Error::Device`](ffdp_image::Error::Device) when bounds cannot be read, and
/// [`Error::LostRank`](ffdp_image::Error::LostRank).
pub fn flow_of_velocity(
    velocity: &Sharded,
    exp: ExpOptions,
    mesh: &DeviceMesh,
    holders: &Holders,
) -> Result<[Sharded; 2]> {
    let grid = grid_of(velocity, mesh, holders);
    let back = grid.through(velocity, 0, Tensor::neg)?;
    Ok([flow(&grid, velocity, exp)?, flow(&grid, &back, exp)?])
}

/// The displacement that two halves make together, `u_2` after the inverse of `u_1`, and its inverse: `u_1` leads from
/// the middle to the fixed image, `u_2` to the moving one (Avants et al. 2008). Places as in [`flow_of_velocity`].
///
/// # Errors
/// As [`flow_of_velocity`].
pub fn map_of_halves(
    [u1, u2]: [&Sharded; 2],
    mesh: &DeviceMesh,
    holders: &Holders,
) -> Result<[Sharded; 2]> {
    let grid = grid_of(u1, mesh, holders);
    let back = |half: &Sharded| {
        let width = reach(&grid, half)?;
        grid.through(half, width, |half| inverse(half, None))
    };
    Ok([after(&grid, u2, &back(u1)?)?, after(&grid, u1, &back(u2)?)?])
}

/// Rounds of [`velocity`] at most, and the rest in voxels at which it ends: a tenth of what a voxel shows.
const ROUNDS: usize = 20;
const REST_VOXELS: f64 = 0.01;

/// A velocity whose flow is about the displacement `w`: its logarithm (Bossa et al. 2007).
///
/// ```text
/// v <- w;    v <- v + r,  r = exp(-v) o (id + w) - id      until r is small, or grows
/// ```
/// Places as in [`flow_of_velocity`]; `exp` says how its flow is computed. Where no velocity leads,
/// `r` stays: the best is given, with the length of its longest vector, in voxels.
///
/// # Errors
/// As [`flow_of_velocity`].
pub fn velocity(
    w: &Sharded,
    exp: ExpOptions,
    mesh: &DeviceMesh,
    holders: &Holders,
) -> Result<(Sharded, f64)> {
    let grid = grid_of(w, mesh, holders);
    let mut v = w.clone();
    let mut best: Option<(Sharded, f64)> = None;
    for _ in 0..ROUNDS {
        let back = grid.through(&v, 0, Tensor::neg)?;
        let rest = after(&grid, &flow(&grid, &back, exp)?, w)?;
        let long = longest(holders, &rest)?;
        if best.as_ref().is_some_and(|(_, least)| long >= *least) {
            break;
        }
        best = Some((v.clone(), long));
        if long <= REST_VOXELS {
            break;
        }
        v = v.zip_map(&rest, Tensor::add);
    }
    Ok(best.expect("there is a round"))
}

/// Shards with nothing around them.
pub(super) fn grid_of(field: &Sharded, mesh: &DeviceMesh, holders: &Holders) -> Grid {
    Grid {
        layout: field.layout().clone(),
        homes: Homes::new(mesh, field.mesh()),
        holders: holders.clone(),
        width: 0,
        step_voxels: [0.0; 3],
    }
}

/// The displacement of the flow along a velocity.
fn flow(
    grid: &Grid,
    velocity: &Sharded,
    ExpOptions { squarings, accumulation }: ExpOptions,
) -> Result<Sharded> {
    // Whatever is met for the first time.
    let _waiting = WaitForSums::when(true);
    let mut squarings = Squarings::new(squarings, accumulation);
    squarings.plan(grid, velocity)?;
    Ok(squarings.along(grid, velocity)?.displacement)
}

/// The displacement of `(id + outer) o (id + inner)`.
fn after(grid: &Grid, outer: &Sharded, inner: &Sharded) -> Result<Sharded> {
    if grid.is_whole() {
        return Ok(outer.clone().zip_map(inner, compose));
    }
    let width = reach(grid, inner)?;
    let both = outer.clone().zip_map(inner, |a, b| Tensor::cat(vec![a, b], 1));
    let both = grid.through(&both, width, |both| {
        let [outer, inner] = [0, 3].map(|first| both.clone().narrow(1, first, 3));
        let composed = compose(outer, inner.clone());
        // The extents that came, and as many channels.
        Tensor::cat(vec![composed, inner], 1)
    })?;
    Ok(both.map(|both| both.narrow(1, 0, 3)))
}

/// The length of the longest vector of all shards and ranks, in voxels.
pub(super) fn longest(holders: &Holders, field: &Sharded) -> Result<f64> {
    let of = |x: &Tensor<5>| longest_squared(x.clone());
    let longest = reduce(field.shards().iter().map(of), Reduction::Max);
    let longest = holders.combine(longest, Reduction::Max)?;
    Ok(read_together("the length of a field", vec![longest])?[0].sqrt())
}

/// Planes on either side that a displacement reaches, over all shards and ranks.
fn reach(grid: &Grid, field: &Sharded) -> Result<usize> {
    if grid.is_whole() {
        return Ok(0);
    }
    let bounds = DisplacementBounds::read(field)?.into_iter();
    let bounds = bounds.reduce(DisplacementBounds::union).expect("there is a shard");
    let [low, high] = grid.holders.union(bounds)?.0[grid.layout.axis().component()];
    Ok((low.abs().max(high.abs()) + MORE).ceil() as usize)
}
