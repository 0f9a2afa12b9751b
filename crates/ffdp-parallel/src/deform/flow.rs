//! The flow along a stationary velocity, by squarings of displacements that are cut, and the way back.
//!
//! ```text
//! u_0 = v / 2^k,   u_{i+1} = u_i o u_i                          u = u_k = exp(v) - id
//! dL/du_i = adjoint of one squaring of dL/du_{i+1},   dL/dv = dL/du_0 / 2^k
//! ```
//! A shard with as many planes around it as the displacements of several squarings are long together is squared so often
//! as a whole is; what that says of planes around it is added to their owners on the way back. So shards exchange
//! planes once for a group of squarings, which are as many as make the windows a little larger than the shards: an
//! exchange for each squaring would also copy every shard into its window each time. What shards exchange travels before
//! the first of them is squared, there and back, so that devices square at the same time. All `u_i` are kept in between,
//! where shards rest.

use std::ops::Range;

use burn::Tensor;
use burn::backend::Dispatch;
use burn::tensor::Device;

use super::block::{Neighbours, Pieces};
use super::seam::cross_back;
use super::view::{BOUNDS_INTERVAL, Grid};
use crate::device_mesh::{DeviceMesh, ShardPlaces};
use crate::layout::Layout;
use crate::ring::DisplacementBounds;
use crate::sharded::Sharded;
use ffdp_burn::ops::compose::ComposeOps;
use ffdp_burn::ops::grid_sample::Accumulation;
use ffdp_image::error::Result;

/// What positions of some thousand voxels lose to rounding, in voxels.
const ROUNDING: f64 = 1e-3;

/// Planes on either side of a shard that a group of squarings may look at, as a part of its own: its windows are a
/// quarter larger than the shards at most. A squaring that looks further is a group of its own.
const AROUND: usize = 8;

/// How much larger than shards the windows of a group are, but for a squaring that looks further than that.
pub const WINDOWS: [u64; 2] = [AROUND as u64 + 2, AROUND as u64];

/// How a velocity is squared, and how far it reaches.
pub(super) struct Squarings {
    pub count: usize,
    accumulation: Accumulation,
    bounds: DisplacementBounds,
    /// For how many iterations more the velocity does not leave these.
    good_for: usize,
    /// As planned.
    groups: Vec<Group>,
    /// Planes that groups have looked at so far.
    known_widths: Vec<usize>,
}

/// Squarings between which nothing is exchanged.
#[derive(Clone, Debug, PartialEq)]
struct Group {
    /// Of all.
    squarings: Range<usize>,
    /// Planes on either side that they look at.
    width: usize,
}

/// What was squared, and what became of it.
pub(super) struct Flow {
    groups: Vec<Squared>,
    /// `exp(v) - id`.
    pub displacement: Sharded,
}

/// A group of squarings that was done.
struct Squared {
    group: Group,
    /// Of every shard what was squared, in order, on its planes and those around it.
    fields: Vec<Vec<Tensor<5>>>,
    /// How the planes were cut of which the windows were made, and where they are.
    around: (Layout, DeviceMesh),
}

impl Squarings {
    pub fn new(count: usize, accumulation: Accumulation) -> Self {
        let bounds = DisplacementBounds::NONE;
        let (groups, known_widths) = (Vec::new(), Vec::new());
        Self { count, accumulation, bounds, good_for: 0, groups, known_widths }
    }

    /// The part of the velocity that is not squared.
    fn first_part(&self) -> f64 {
        1.0 / (1u64 << self.count) as f64
    }

    /// Reads how far the velocity reaches, if that is not known any more, and forms groups. Whether one looks at as many
    /// planes for the first time: their number is compiled into kernels.
    pub fn plan(&mut self, grid: &Grid, velocity: &Sharded) -> Result<bool> {
        if self.good_for > 0 {
            return Ok(false);
        }
        self.good_for = match grid.step_voxels {
            // How far the velocity may have changed is not known.
            [0.0, 0.0, 0.0] => 1,
            _ => BOUNDS_INTERVAL,
        };
        if !grid.is_whole() {
            let bounds = DisplacementBounds::read(velocity)?.into_iter();
            let bounds = bounds.reduce(DisplacementBounds::union).expect("there is a shard");
            let bounds = grid.holders.union(bounds)?;
            self.bounds = bounds.grown(grid.longest(self.good_for));
        }
        self.groups = self.groups(grid);
        let widths = self.groups.iter().map(|group| group.width);
        let new: Vec<usize> = widths.filter(|width| !self.known_widths.contains(width)).collect();
        self.known_widths.extend(&new);
        Ok(!new.is_empty())
    }

    /// An evaluation of those that were planned for begins.
    pub fn begin(&mut self) {
        self.good_for = self.good_for.saturating_sub(1);
    }

    /// Planes on either side that squaring `i` looks at: those between which it interpolates.
    fn width(&self, grid: &Grid, i: usize) -> usize {
        let [low, high] = self.bounds.0[grid.layout.axis().component()];
        let longest = low.abs().max(high.abs()) * self.first_part() * (1u64 << i) as f64;
        (longest + ROUNDING).floor() as usize + 1
    }

    /// All squarings. All ranks have the same groups.
    fn groups(&self, grid: &Grid) -> Vec<Group> {
        if grid.is_whole() {
            return vec![Group { squarings: 0..self.count, width: 0 }];
        }
        let most = grid.thinnest() / AROUND;
        let mut groups: Vec<Group> = Vec::new();
        for i in 0..self.count {
            let width = self.width(grid, i);
            match groups.last_mut() {
                Some(group) if group.width + width <= most => {
                    group.squarings.end = i + 1;
                    group.width += width;
                }
                _ => groups.push(Group { squarings: i..i + 1, width }),
            }
        }
        groups
    }

    /// The flow for unit time along a velocity that was planned for.
    pub fn along(&self, grid: &Grid, velocity: &Sharded) -> Result<Flow> {
        assert!(!self.groups.is_empty(), "flow: a velocity is squared as it was planned");
        let part = self.first_part();
        let mut displacement = grid.through(velocity, 0, |v| v.mul_scalar(part))?;
        let mut groups = Vec::new();
        for group in &self.groups {
            let around = grid.surround(&displacement, group.width)?;
            let cut = (around.volume.layout().clone(), around.volume.mesh());
            let mut fields = vec![Vec::with_capacity(group.squarings.len()); grid.layout.count()];
            let mut square = |k: usize, field: Tensor<5>| {
                fields[k].push(grid.homes.put_away(k, field.clone()));
                let field = field.into_dispatch();
                let squared = <Dispatch as ComposeOps>::square_3d(field, self.accumulation);
                Tensor::from_dispatch(squared)
            };
            displacement = grid.through_around(&around, |k, field| {
                group.squarings.clone().fold(field, |field, _| square(k, field))
            });
            groups.push(Squared { group: group.clone(), fields, around: cut });
        }
        Ok(Flow { groups, displacement })
    }

    /// From the gradient of the displacement to that of the velocity.
    pub fn backwards(&self, grid: &Grid, flow: Flow, gradient: Sharded) -> Result<Sharded> {
        let back = |gradient, group| self.back(grid, group, gradient);
        let gradient = flow.groups.into_iter().rev().try_fold(gradient, back)?;
        let part = self.first_part();
        grid.through(&gradient, 0, |g| g.mul_scalar(part))
    }

    /// The adjoint of a group: what the own planes of each shard owe to the planes of its window, added up.
    fn back(&self, grid: &Grid, squared: Squared, gradient: Sharded) -> Result<Sharded> {
        let Squared { group: Group { width, .. }, fields, around: (layout, places) } = squared;
        let (mut own, mut margins) = (Vec::new(), Vec::<Neighbours>::new());
        for (k, fields) in fields.into_iter().enumerate() {
            let block = grid.block(k).within(width);
            let there = grid.homes.bring(k, gradient.shards()[k].clone());
            let back = |gradient: Tensor<5>, field: Tensor<5>| {
                Tensor::from_dispatch(<Dispatch as ComposeOps>::square_3d_backward(
                    grid.homes.bring(k, field).into_dispatch(),
                    gradient.into_dispatch(),
                    self.accumulation,
                ))
            };
            let there = fields.into_iter().rev().fold(block.padded(there), back);
            let Pieces { below, own: there, above } = Pieces::of(&there, &block);
            let away = |piece: Tensor<5>| grid.homes.put_away(k, piece);
            own.push(away(there));
            margins.push([below.map(away), above.map(away)]);
            grid.homes.settle(k);
        }
        let margins = cross_back(margins, &grid.crossed(width))?;
        let mut sum = surrounded(own, &grid.layout, ShardPlaces { layout: &layout, mesh: &places });
        for (k, [below, above]) in margins.into_iter().enumerate() {
            let [start, _, end] = grid.block(k).within(width).pieces();
            for (planes, values) in [start, end].into_iter().zip([below, above]) {
                sum = values.into_iter().fold(sum, |sum, v| sum.add_window(planes.clone(), &v));
            }
        }
        let planes = grid.holders.around(width, grid.layout.extent());
        grid.holders.give_back(sum, &planes, &grid.layout)
    }
}

/// Shards in the cuts of what surrounds them, with zeros on the planes of others.
fn surrounded(own: Vec<Tensor<5>>, cut: &Layout, around: ShardPlaces) -> Sharded {
    let (mut like, mut own) = (own[0].dims(), own.into_iter());
    let dtype = own.as_slice()[0].dtype();
    let held = cut.held();
    let piece = |(planes, device): (Range<usize>, &Device)| {
        if held.start <= planes.start && planes.end <= held.end {
            return own.next().expect("its own planes are cut as before");
        }
        like[cut.axis().dim()] = planes.len();
        Tensor::zeros(like, (device, dtype))
    };
    let shards = around.layout.all_planes().zip(around.mesh.devices()).map(piece).collect();
    Sharded::new(shards, around.layout.clone())
}

#[cfg(test)]
mod tests {
    use burn::tensor::DType;

    use super::super::maps::grid_of;
    use super::*;
    use crate::hosts::Holders;
    use crate::layout::Axis;
    use ffdp_kit::testing::{assert_close, normal, tensor, to_f64};

    /// The same sums in f64 in another order.
    const ROUNDED: f64 = 1e-12;

    #[test]
    fn groups_of_squarings_are_those_of_the_whole() {
        let (size, device) = ([48, 5, 6], Device::flex());
        let field = |longest: f64, seed| {
            let values = normal(3 * size.iter().product::<usize>(), seed);
            let most = values.iter().fold(0.0f64, |most, v| most.max(v.abs()));
            let values: Vec<f64> = values.iter().map(|v| longest / most * v).collect();
            tensor::<5>(&values, [1, 3, size[0], size[1], size[2]], &device, DType::F64)
        };
        // Of 24 planes three on either side; squarings of short displacements look at one.
        for (longest, expected) in [(0.9, vec![3, 3]), (5.0, vec![3, 2, 1])] {
            let (velocity, gradient) = (field(longest, 1), field(1.0, 2));
            let [whole, cut] = [1, 2].map(|shards| {
                let layout = Layout::balanced(size, Axis::Z, shards).expect("enough planes");
                let mesh = DeviceMesh::new(std::slice::from_ref(&device), shards).expect("a shard");
                let cut = |x: &Tensor<5>| Sharded::from_tensor(x.clone(), &layout, &mesh);
                let grid = grid_of(&cut(&velocity), &mesh, &Holders::ALONE);
                let mut squarings = Squarings::new(6, Accumulation::Reproducible);
                squarings.plan(&grid, &cut(&velocity)).expect("readable");
                let flow = squarings.along(&grid, &cut(&velocity)).expect("readable");
                let groups: Vec<usize> = flow.groups.iter().map(|g| g.fields[0].len()).collect();
                assert_eq!(groups, if shards == 1 { vec![6] } else { expected.clone() });
                let there = to_f64(flow.displacement.gather(&device));
                let back = squarings.backwards(&grid, flow, cut(&gradient)).expect("readable");
                [there, to_f64(back.gather(&device))]
            });
            for (what, (cut, whole)) in ["flow", "gradient"].into_iter().zip(cut.iter().zip(&whole))
            {
                assert_close(&format!("{what}, {longest} voxels"), cut, whole, ROUNDED);
            }
        }
    }

    #[test]
    fn a_velocity_whose_steps_are_not_known_is_bounded_anew_each_time() {
        let (size, device) = ([48, 5, 6], Device::flex());
        let layout = Layout::balanced(size, Axis::Z, 2).expect("enough planes");
        let mesh = DeviceMesh::new(std::slice::from_ref(&device), 2).expect("a shard");
        let field = |length: f64| {
            let whole = Tensor::full([1, 3, size[0], size[1], size[2]], length, &device);
            Sharded::from_tensor(whole, &layout, &mesh)
        };
        for (step, expected) in [([0.0; 3], [true, true]), ([0.25; 3], [true, false])] {
            let grid = Grid { step_voxels: step, ..grid_of(&field(0.0), &mesh, &Holders::ALONE) };
            let mut squarings = Squarings::new(4, Accumulation::Reproducible);
            let widens = [0.5, 40.0].map(|length| {
                let widens = squarings.plan(&grid, &field(length)).expect("readable");
                squarings.begin();
                widens
            });
            assert_eq!(widens, expected, "steps of {step:?} voxels");
        }
    }
}
