//! The flow along a stationary velocity, by squarings of displacements that are cut, and the way back.
//!
//! ```text
//! u_0 = v / 2^k,   u_{i+1} = u_i o u_i                          u = u_k = exp(v) - id
//! dL/du_i = adjoint of one squaring of dL/du_{i+1},   dL/dv = dL/du_0 / 2^k
//! ```
//! A shard with as many planes around it as a displacement is long is squared as a whole is; what that says
//! of planes around it is added to their owners on the way back. All `u_i` are kept in between, where shards
//! rest.

use burn::Tensor;
use burn::backend::Dispatch;

use super::view::{BOUNDS_INTERVAL, Grid};
use crate::ring::DisplacementBounds;
use crate::sharded::{Sharded, join};
use ffdp_burn::error::Result;
use ffdp_burn::ops::compose::ComposeOps;
use ffdp_burn::ops::grid_sample::Accumulation;

/// Planes beyond the longest displacement: the next voxel, and rounding.
const MORE: f64 = 2.0;

/// How a velocity is squared, and how far it reaches.
pub(super) struct Squarings {
    pub count: usize,
    accumulation: Accumulation,
    bounds: DisplacementBounds,
    /// For how many iterations more the velocity does not leave these.
    good_for: usize,
}

/// What was squared, in order, and what became of it.
pub(super) struct Flow {
    fields: Vec<Sharded>,
    /// `exp(v) - id`.
    pub displacement: Sharded,
}

impl Squarings {
    pub fn new(count: usize, accumulation: Accumulation) -> Self {
        Self { count, accumulation, bounds: DisplacementBounds::NONE, good_for: 0 }
    }

    /// The part of the velocity that is not squared.
    fn first_part(&self) -> f64 {
        1.0 / (1u64 << self.count) as f64
    }

    /// Reads how far the velocity reaches, if that is not known any more.
    fn plan(&mut self, grid: &Grid, velocity: &Sharded) -> Result<()> {
        if self.good_for == 0 && (grid.layout.count() > 1 || grid.holders.are_several()) {
            let bounds = DisplacementBounds::read(velocity)?.into_iter();
            let bounds = bounds.reduce(DisplacementBounds::union).expect("there is a shard");
            let bounds = grid.holders.union(bounds)?;
            (self.bounds, self.good_for) =
                (bounds.grown(grid.longest(BOUNDS_INTERVAL)), BOUNDS_INTERVAL);
        }
        self.good_for = self.good_for.saturating_sub(1);
        Ok(())
    }

    /// Planes on either side that squaring `i` looks at.
    fn width(&self, grid: &Grid, i: usize) -> usize {
        let [low, high] = self.bounds.0[grid.layout.axis().component()];
        let longest = low.abs().max(high.abs()) * self.first_part() * (1u64 << i) as f64;
        (longest + MORE).ceil() as usize
    }

    /// The flow for unit time.
    pub fn along(&mut self, grid: &Grid, velocity: &Sharded) -> Result<Flow> {
        self.plan(grid, velocity)?;
        let part = self.first_part();
        let mut displacement = grid.through(velocity, 0, |v| v.mul_scalar(part))?;
        let mut fields = Vec::with_capacity(self.count);
        for i in 0..self.count {
            let accumulation = self.accumulation;
            let squared = grid.through(&displacement, self.width(grid, i), |field| {
                let field = field.into_dispatch();
                Tensor::from_dispatch(<Dispatch as ComposeOps>::square_3d(field, accumulation))
            })?;
            fields.push(std::mem::replace(&mut displacement, squared));
        }
        Ok(Flow { fields, displacement })
    }

    /// From the gradient of the displacement to that of the velocity.
    pub fn backwards(&self, grid: &Grid, flow: Flow, gradient: Sharded) -> Result<Sharded> {
        let mut gradient = gradient;
        for (i, field) in flow.fields.into_iter().enumerate().rev() {
            gradient = self.back(grid, &field, &gradient, self.width(grid, i))?;
        }
        let part = self.first_part();
        grid.through(&gradient, 0, |g| g.mul_scalar(part))
    }

    /// The adjoint of one squaring.
    fn back(
        &self,
        grid: &Grid,
        field: &Sharded,
        gradient: &Sharded,
        width: usize,
    ) -> Result<Sharded> {
        let around = grid.holders.surround(field, width)?;
        let mut sum: Option<Sharded> = None;
        for k in 0..grid.layout.count() {
            let block = grid.block(k).within(width);
            let device = grid.homes.device(k);
            let own = grid.homes.bring(k, gradient.shards()[k].clone());
            let zeros = |planes: usize| {
                let mut dims = own.dims();
                dims[block.axis.dim()] = planes;
                (planes > 0).then(|| Tensor::zeros(dims, (device, own.dtype())))
            };
            let [low, high] =
                [block.own.start - block.all.start, block.all.end - block.own.end].map(zeros);
            let pieces = [low, Some(own.clone()), high].into_iter().flatten().collect();
            let to_field = <Dispatch as ComposeOps>::square_3d_backward(
                around.window(block.all.clone(), device).into_dispatch(),
                join(pieces, block.axis.dim()).into_dispatch(),
                self.accumulation,
            );
            let to_field = Tensor::from_dispatch(to_field);
            if grid.layout.count() == 1 && !grid.holders.are_several() {
                return Ok(Sharded::new(vec![to_field], grid.layout.clone()));
            }
            let before = sum.unwrap_or_else(|| around.clone().map(|shard| shard.zeros_like()));
            sum = Some(before.add_window(block.all.clone(), &to_field));
            grid.homes.settle(k);
        }
        let sum = sum.expect("there is a shard");
        let planes = grid.holders.around(width, grid.layout.extent());
        grid.holders.give_back(sum, &planes, &grid.layout)
    }
}
