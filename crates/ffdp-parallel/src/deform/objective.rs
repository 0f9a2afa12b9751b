//! The loss of a pair as a function of numbers that an optimiser searches, whatever the method and the optimiser.
//!
//! ```text
//! field = start + D S w          g_w = S^T D g_field
//! ```
//! `w` what is searched, a field for each of the method's, in voxels along the finest axis · `S` a Gaussian, which
//! makes every step a smooth one · `D` voxels of each axis in a voxel along the finest · `start` where a level begins.

use std::sync::Arc;

use burn::Tensor;
use burn::backend::Dispatch;
use burn::tensor::TensorData;
use ffdp_burn::error::{Error, Result};
use ffdp_burn::losses::Similarity;
use ffdp_burn::ops::gaussian::{Direction, GaussianOps};
use ffdp_burn::ops::{DeformOptions, GaussianOptions};
use ffdp_optim::{Objective, Point, Space};

use super::compare::Comparison;
use super::homes::Homes;
use super::maps::longest;
use super::problem::{Gradient, Problem};
use super::{ShardedImages, Team};
use crate::collective::reduce;
use crate::device_mesh::DeviceMesh;
use crate::exchange::Reduction;
use crate::hosts::Holders;
use crate::sharded::Sharded;
use crate::transfer::to_device;

/// Fields as one vector of a [`Space`]; of several ranks, each has its planes.
#[derive(Clone, Debug)]
pub struct FieldVector {
    /// `[N, 3, D, H, W]` each.
    pub fields: Vec<Sharded>,
    holders: Holders,
}

impl FieldVector {
    fn shards(&self) -> impl Iterator<Item = &Tensor<5>> {
        self.fields.iter().flat_map(Sharded::shards)
    }

    /// Shard by shard of each field.
    fn map(&self, mut each: impl FnMut(usize, usize, &Tensor<5>) -> Tensor<5>) -> Self {
        let fields = self.fields.iter().enumerate().map(|(i, field)| {
            let shards = field.shards().iter().enumerate();
            Sharded::new(shards.map(|(k, x)| each(i, k, x)).collect(), field.layout().clone())
        });
        Self { fields: fields.collect(), holders: self.holders.clone() }
    }
}

impl Space for FieldVector {
    fn dots(pairs: &[[&Self; 2]]) -> Result<Vec<f64>> {
        let holders = &pairs.first().expect("something is asked for")[0].holders;
        // Every shard's for all pairs, where it rests.
        let shards = pairs[0][0].shards().count();
        let mut rows = vec![Vec::with_capacity(pairs.len()); shards];
        for [a, b] in pairs {
            for (row, (a, b)) in rows.iter_mut().zip(a.shards().zip(b.shards())) {
                row.push(long_sum(a.clone() * b.clone()));
            }
        }
        let rows = rows.into_iter().map(|row| Tensor::cat(row, 0));
        let total = holders.combine(reduce(rows, Reduction::Sum), Reduction::Sum)?;
        let read = total.try_into_vec_as::<f64>();
        read.map_err(|reason| Error::device("reading inner products", reason))
    }

    fn combine(terms: &[(f64, &Self)]) -> Self {
        terms[0].1.map(|i, k, _| {
            let term = |(a, x): &(f64, &Self)| {
                let x = x.fields[i].shards()[k].clone();
                if *a == 1.0 { x } else { x.mul_scalar(*a) }
            };
            let sum = terms.iter().filter(|(a, _)| *a != 0.0).map(term).reduce(Tensor::add);
            sum.unwrap_or_else(|| terms[0].1.fields[i].shards()[k].zeros_like())
        })
    }
}

/// The loss of a pair (with penalties), see the head of this file.
pub struct ShardedObjective {
    problem: Problem,
    start: FieldVector,
    smoothing: GaussianOptions,
    /// `D`.
    scale: [f64; 3],
}

impl ShardedObjective {
    /// Of fields that begin at `start`, computed on `mesh`. `options` say method and penalties; `smoothing` is that of
    /// `S`; `scale` the voxels along (x, y, z) in a unit of `w`.
    ///
    /// # Errors
    /// As [`ShardedDeform::in_team`](super::ShardedDeform::in_team).
    ///
    /// # Panics
    /// As [`ShardedDeform::in_team`](super::ShardedDeform::in_team).
    pub fn in_team(
        images: ShardedImages,
        start: Vec<Sharded>,
        (similarity, options): (Arc<dyn Similarity>, &DeformOptions),
        (smoothing, scale): (GaussianOptions, [f64; 3]),
        mesh: &DeviceMesh,
        team: Team,
    ) -> Result<Self> {
        start.iter().for_each(|field| images.fixed.check_layout(field));
        super::check_places(&start[0], mesh);
        let homes = Homes::new(mesh, start[0].mesh());
        let comparison = Comparison { similarity, masked: images.masked };
        // Steps of any length, and gradients as they are.
        let options = DeformOptions {
            step_voxels: [0.0; 3],
            smooth_gradient: GaussianOptions::isotropic(0.0),
            ..*options
        };
        let start = FieldVector { fields: start, holders: team.fixed.clone() };
        let problem = Problem::new(images, comparison, &options, &homes, team)?;
        Ok(Self { problem, start, smoothing, scale })
    }

    /// `w` where nothing has moved yet.
    pub fn rest(&self) -> FieldVector {
        self.start.map(|_, _, field| field.zeros_like())
    }

    /// The fields that `w` stands for.
    ///
    /// # Errors
    /// [`Error::LostRank`].
    pub fn fields(&self, w: &FieldVector) -> Result<Vec<Sharded>> {
        let moved = self.smoothed(&self.scaled(w), Direction::Forward)?;
        Ok(FieldVector::combine(&[(1.0, &self.start), (1.0, &moved)]).fields)
    }

    /// The loss of these fields without penalties, `[1]` on the device of the first shard.
    ///
    /// # Errors
    /// [`Error::Device`] when bounds cannot be read, [`Error::LostRank`].
    pub fn loss(&mut self, fields: &[Sharded]) -> Result<Tensor<1>> {
        let none = vec![vec![None; fields[0].layout().count()]; fields.len()];
        let values = self.problem.see(fields, none, None)?;
        self.problem.losses(reduce(values, Reduction::Sum), 1, false)
    }

    fn smoothed(&self, w: &FieldVector, direction: Direction) -> Result<FieldVector> {
        let grid = &self.problem.grid;
        let radius = self.smoothing.radius(grid.layout.axis().component());
        if self.smoothing.sigma_voxels == [0.0; 3] {
            return Ok(w.clone());
        }
        // Of its adjoint also the weights are those of the whole volume.
        let width = if direction == Direction::Forward { radius } else { 2 * radius };
        let smooth = |x: Tensor<5>| {
            let x = x.into_dispatch();
            Tensor::from_dispatch(<Dispatch as GaussianOps>::gaussian_3d(
                x,
                self.smoothing,
                direction,
            ))
        };
        let fields = w.fields.iter().map(|field| grid.through(field, width, smooth));
        Ok(FieldVector { fields: fields.collect::<Result<_>>()?, holders: w.holders.clone() })
    }

    fn scaled(&self, w: &FieldVector) -> FieldVector {
        w.map(|_, _, field| {
            let like = (&field.device(), field.dtype());
            let data = TensorData::new(self.scale.to_vec(), [1, 3, 1, 1, 1]);
            field.clone() * Tensor::from_data(data.convert_dtype(like.1), like)
        })
    }
}

impl Objective<FieldVector> for ShardedObjective {
    fn evaluate(&mut self, at: &FieldVector) -> Result<Point<FieldVector>> {
        let fields = self.fields(at)?;
        let count = fields[0].layout().count();
        let mut gradients: Vec<Vec<Option<Tensor<5>>>> = vec![vec![None; count]; fields.len()];
        let homes = self.problem.grid.homes.clone();
        let mut take = |Gradient { shard, field, values, .. }: Gradient| {
            gradients[field][shard] = Some(homes.put_away(shard, values));
        };
        let none = vec![vec![None; count]; fields.len()];
        let rows = self.problem.see(&fields, none, Some(&mut take))?;
        let numbers = self.problem.loss_and_count(reduce(rows, Reduction::Sum))?;
        let [loss, count] = two(numbers)?;
        let gradient = at.map(|i, k, _| gradients[i][k].take().expect("every shard gives one"));
        let gradient = self.smoothed(&self.scaled(&gradient), Direction::Adjoint)?;
        Ok(Point { loss, gradient: gradient.scaled(1.0 / count) })
    }

    /// That of the longest vector of `S w`.
    fn length(&mut self, step: &FieldVector) -> Result<f64> {
        let moved = self.smoothed(step, Direction::Forward)?;
        let mut each = moved.fields.iter().map(|field| longest(&moved.holders, field));
        each.try_fold(0.0, |most: f64, one| Ok(most.max(one?)))
    }
}

/// Two numbers, read at once.
fn two(numbers: [Tensor<1>; 2]) -> Result<[f64; 2]> {
    let device = numbers[0].device();
    let numbers = numbers.map(|number| to_device(number, &device));
    let read = Tensor::cat(numbers.to_vec(), 0).try_into_vec_as::<f64>();
    let read = read.map_err(|reason| Error::device("reading a loss", reason))?;
    Ok([read[0], read[1]])
}

/// The sum of all values, `[1]`; of rows and planes first, so that no sum is long.
fn long_sum(x: Tensor<5>) -> Tensor<1> {
    x.sum_dim(4).sum_dim(3).sum_dim(2).sum_dim(1).sum_dim(0).reshape([1])
}
