//! The loss of a pair as a function of numbers that an optimiser searches: a [`FieldModel`] says what they are, any
//! optimiser of [`ffdp_optim`] finds them. One model is here, [`SmoothSteps`]:
//!
//! ```text
//! field = start + D S w          g_w = S^T D g_field
//! ```
//! `w` what is searched, a field for each of the method's, in voxels along the finest axis · `S` a Gaussian, which
//! makes every step a smooth one · `D` voxels of each axis in a voxel along the finest · `start` where a level begins.

use burn::Tensor;
use burn::backend::Dispatch;
use burn::tensor::TensorData;
use ffdp_burn::ops::gaussian::{Direction, GaussianOps};
use ffdp_burn::ops::{DeformOptions, GaussianOptions, InnerProducts, combination, inner_products};
use ffdp_image::error::{Error, Result};
use ffdp_optim::{Objective, Point, Space};

use super::compare::Comparison;
use super::direct::DirectPair;
use super::homes::Homes;
use super::maps::{grid_of, longest};
use super::problem::{Gradient, GradientReceiver, Problem};
use super::view::Grid;
use super::{DeformCriterion, ShardedImages, Team};
use crate::collective::reduce;
use crate::device_mesh::DeviceMesh;
use crate::exchange::Reduction;
use crate::hosts::Holders;
use crate::numbers::read_together;
use crate::sharded::Sharded;

/// Fields as one vector of a [`Space`]; of several ranks, each has its planes.
#[derive(Clone, Debug)]
pub struct FieldVector {
    /// `[N, 3, D, H, W]` each.
    pub fields: Vec<Sharded>,
    holders: Holders,
}

impl FieldVector {
    /// Of fields of which each of `holders` has its planes.
    pub fn new(fields: Vec<Sharded>, holders: Holders) -> Self {
        Self { fields, holders }
    }

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
    type Error = Error;

    fn dots(pairs: &[[&Self; 2]]) -> Result<Vec<f64>> {
        let holders = &pairs.first().expect("something is asked for")[0].holders;
        // Every shard's for all pairs, where it rests.
        let mut rows = vec![Vec::with_capacity(pairs.len()); pairs[0][0].shards().count()];
        for [a, b] in pairs {
            for (row, (a, b)) in rows.iter_mut().zip(a.shards().zip(b.shards())) {
                row.push([a, b]);
            }
        }
        let products: Vec<InnerProducts> = rows.iter().map(|row| inner_products(row)).collect();
        let blocks = match &products[..] {
            [whole] if !holders.are_several() => whole.blocks.clone(),
            parts => {
                let sum = reduce(parts.iter().map(InnerProducts::joined), Reduction::Sum);
                vec![holders.combine(sum, Reduction::Sum)?]
            }
        };
        Ok(products[0].of_pairs(&read_together("inner products", blocks)?))
    }

    fn combine(terms: &[(f64, &Self)]) -> Self {
        terms[0].1.map(|i, k, _| {
            let shards = terms.iter().map(|(a, x)| (*a, &x.fields[i].shards()[k]));
            combination(&shards.collect::<Vec<_>>())
        })
    }
}

/// What an optimiser searches, and the fields of a method that it stands for: shards of a displacement, a velocity, or
/// halves, on the grid of the fixed image.
pub trait FieldModel {
    /// What is searched.
    type Parameters: Space<Error = Error> + 'static;

    /// Those that change nothing.
    fn rest(&self) -> Self::Parameters;

    /// The fields that they stand for, in voxels.
    ///
    /// # Errors
    /// [`Error::LostRank`], and those of reading.
    fn fields(&self, parameters: &Self::Parameters) -> Result<Vec<Sharded>>;

    /// The gradient to the parameters from that to the fields: the adjoint of the derivative of [`Self::fields`].
    ///
    /// # Errors
    /// As [`Self::fields`].
    fn pull_back(
        &self,
        parameters: &Self::Parameters,
        gradient: Vec<Sharded>,
    ) -> Result<Self::Parameters>;

    /// How far a step moves at most, in voxels along the finest axis.
    ///
    /// # Errors
    /// As [`Self::fields`].
    fn length(&self, step: &Self::Parameters) -> Result<f64>;

    /// What the parameters themselves cost; nothing by default.
    fn costs(&self, _: &Self::Parameters) -> Vec<Cost<Self::Parameters>> {
        Vec::new()
    }

    /// The loss of a pair `[1]` with its gradient, without the fields in memory; `None` where it takes them.
    fn evaluate_directly(
        &self,
        _: &Self::Parameters,
        _: &DirectPair,
    ) -> Option<(Tensor<1>, Self::Parameters)> {
        None
    }

    /// Voxels by which single parameters are displaced, where their gradient is to be that of finite differences.
    fn differences(&self) -> Option<f64> {
        None
    }

    /// Inner products that stay where they are computed, to be read with other numbers; `None` where they are not in one
    /// place.
    fn products(&self, _: &[[&Self::Parameters; 2]]) -> Option<InnerProducts> {
        None
    }
}

/// A term of the loss that is one of the parameters alone.
#[derive(Clone, Debug)]
pub struct Cost<P> {
    /// By which value and gradient are multiplied.
    pub weight: f64,
    /// `[1]`.
    pub value: Tensor<1>,
    /// Of the value, to the parameters.
    pub gradient: P,
}

/// Sums of smooth steps, see the head of this file.
pub struct SmoothSteps {
    grid: Grid,
    start: FieldVector,
    smoothing: GaussianOptions,
    /// `D`.
    scale: [f64; 3],
}

impl SmoothSteps {
    /// Of fields that begin at `start` and are computed on `mesh`; of several ranks, each has its planes. `smoothing` is
    /// that of `S`, `scale` the voxels along (x, y, z) in a unit of `w`.
    ///
    /// # Panics
    /// For no field, or if `mesh` has another number of places than there are shards.
    pub fn new(
        start: Vec<Sharded>,
        smoothing: GaussianOptions,
        scale: [f64; 3],
        mesh: &DeviceMesh,
        holders: &Holders,
    ) -> Self {
        super::check_places(&start[0], mesh);
        let grid = grid_of(&start[0], mesh, holders);
        Self {
            grid,
            start: FieldVector { fields: start, holders: holders.clone() },
            smoothing,
            scale,
        }
    }

    fn smoothed(&self, w: &FieldVector, direction: Direction) -> Result<FieldVector> {
        let radius = self.smoothing.radius(self.grid.layout.axis().component());
        if self.smoothing.sigma_voxels == [0.0; 3] {
            return Ok(w.clone());
        }
        // Of its adjoint also the weights are those of the whole volume.
        let width = if direction == Direction::Forward { radius } else { 2 * radius };
        let smooth = |x: Tensor<5>| {
            Tensor::from_dispatch(<Dispatch as GaussianOps>::gaussian_3d(
                x.into_dispatch(),
                self.smoothing,
                direction,
            ))
        };
        let fields = w.fields.iter().map(|field| self.grid.through(field, width, smooth));
        Ok(FieldVector { fields: fields.collect::<Result<_>>()?, holders: w.holders.clone() })
    }

    fn scaled(&self, w: &FieldVector) -> FieldVector {
        w.map(|_, _, field| scaled(field, self.scale))
    }
}

impl FieldModel for SmoothSteps {
    type Parameters = FieldVector;

    fn rest(&self) -> FieldVector {
        self.start.map(|_, _, field| field.zeros_like())
    }

    fn fields(&self, w: &FieldVector) -> Result<Vec<Sharded>> {
        let moved = self.smoothed(&self.scaled(w), Direction::Forward)?;
        Ok(FieldVector::combine(&[(1.0, &self.start), (1.0, &moved)]).fields)
    }

    fn pull_back(&self, _: &FieldVector, gradient: Vec<Sharded>) -> Result<FieldVector> {
        let gradient = FieldVector { fields: gradient, holders: self.start.holders.clone() };
        self.smoothed(&self.scaled(&gradient), Direction::Adjoint)
    }

    fn length(&self, step: &FieldVector) -> Result<f64> {
        let moved = self.smoothed(step, Direction::Forward)?;
        let mut each = moved.fields.iter().map(|field| longest(&moved.holders, field));
        each.try_fold(0.0, |most: f64, one| Ok(most.max(one?)))
    }
}

/// The loss of a pair, with penalties, as a function of the parameters of a model.
pub struct ShardedObjective<M> {
    problem: Problem,
    model: M,
    /// The images as [`FieldModel::evaluate_directly`] takes them, where they are of that kind.
    pub(super) direct: Option<DirectPair>,
}

/// What an evaluation leaves on the device: the loss, the count by which `gradient` is too large (1 if there is none),
/// and what the parameters cost.
struct Evaluated<P> {
    loss: Tensor<1>,
    count: Option<Tensor<1>>,
    gradient: P,
    costs: Vec<Cost<P>>,
}

impl<M: FieldModel> ShardedObjective<M> {
    /// Of a model whose fields rest where those at [`FieldModel::rest`] do, computed on `mesh`. `options` say method and
    /// penalties.
    ///
    /// # Errors
    /// As [`ShardedDeform::in_team`](super::ShardedDeform::in_team).
    ///
    /// # Panics
    /// As [`ShardedDeform::in_team`](super::ShardedDeform::in_team).
    pub fn in_team(
        images: ShardedImages,
        model: M,
        DeformCriterion { similarity, options }: DeformCriterion,
        mesh: &DeviceMesh,
        team: Team,
    ) -> Result<Self> {
        let start = model.fields(&model.rest())?;
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
        let differences = model.differences();
        let direct = DirectPair::of(&images, &comparison, &options, mesh, &team, differences);
        if differences.is_some() && direct.is_none() {
            let what = "finite differences need mutual information of two whole images of one channel on one device, without masks, \
                        landmarks and labels";
            let help = "use gradient = \"analytic\", which works with everything";
            return Err(Error::invalid(what, "other images, or another similarity", help));
        }
        let problem = Problem::new(images, comparison, &options, &homes, team)?;
        Ok(Self { problem, model, direct })
    }

    /// Evaluates by way of the fields in memory, also where there is a shorter one.
    pub fn by_fields(self) -> Self {
        Self { direct: None, ..self }
    }

    /// What is searched.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The loss of what parameters stand for, without penalties, `[1]` on the device of the first shard.
    ///
    /// # Errors
    /// [`Error::Device`] when bounds cannot be read, [`Error::LostRank`].
    pub fn loss(&mut self, parameters: &M::Parameters) -> Result<Tensor<1>> {
        self.problem.loss(&self.model.fields(parameters)?)
    }
}

impl<M: FieldModel> ShardedObjective<M> {
    fn evaluated(&mut self, at: &M::Parameters) -> Result<Evaluated<M::Parameters>> {
        let costs = self.model.costs(at);
        let direct = self.direct.as_ref();
        if let Some((loss, gradient)) =
            direct.and_then(|pair| self.model.evaluate_directly(at, pair))
        {
            return Ok(Evaluated { loss, count: None, gradient, costs });
        }
        let fields = self.model.fields(at)?;
        let layout = fields[0].layout().clone();
        let mut gradients: Vec<Vec<Tensor<5>>> = vec![Vec::new(); fields.len()];
        let homes = self.problem.grid.homes.clone();
        // Shards come in their order.
        let mut take = |Gradient { shard, field, values, .. }: Gradient| {
            gradients[field].push(homes.put_away(shard, values));
        };
        let receiver = GradientReceiver { carried: Vec::new(), take: &mut take };
        let rows = self.problem.evaluate(&fields, Some(receiver))?;
        let [loss, count] = self.problem.loss_and_count(reduce(rows, Reduction::Sum))?;
        let gradients = gradients.into_iter().map(|shards| Sharded::new(shards, layout.clone()));
        let gradient = self.model.pull_back(at, gradients.collect())?;
        Ok(Evaluated { loss, count: Some(count), gradient, costs })
    }
}

impl<P: Space> Evaluated<P> {
    /// The point, and the slope from those along the gradient and along that of each cost.
    fn read(self, slopes: Option<InnerProducts>) -> Result<(Point<P>, f64)> {
        let Self { loss, count, gradient, costs } = self;
        let costed = 1 + costs.len();
        let mut numbers = vec![loss];
        numbers.extend(costs.iter().map(|cost| cost.value.clone()));
        numbers.extend(slopes.iter().flat_map(|slopes| slopes.blocks.clone()));
        numbers.extend(count.clone());
        let numbers = read_together("a loss", numbers)?;
        let factor = count.map_or(1.0, |_| 1.0 / numbers[numbers.len() - 1]);
        let mut terms = vec![(factor, &gradient)];
        terms.extend(costs.iter().map(|cost| (cost.weight, &cost.gradient)));
        let weighted = costs.iter().zip(&numbers[1..]).map(|(cost, value)| cost.weight * value);
        let loss = numbers[0] + weighted.sum::<f64>();
        let slopes = slopes.map_or(Vec::new(), |slopes| slopes.of_pairs(&numbers[costed..]));
        let slope = terms.iter().zip(slopes).map(|((factor, _), slope)| factor * slope).sum();
        Ok((Point { loss, gradient: Space::combine(&terms) }, slope))
    }
}

impl<M: FieldModel> Objective<M::Parameters> for ShardedObjective<M> {
    type Error = Error;

    fn failed(&self, reason: Error) -> Error {
        reason
    }

    fn evaluate(&mut self, at: &M::Parameters) -> Result<Point<M::Parameters>> {
        let evaluated = self.evaluated(at)?;
        Ok(evaluated.read(None)?.0)
    }

    fn evaluate_along(
        &mut self,
        at: &M::Parameters,
        direction: &M::Parameters,
    ) -> Result<(Point<M::Parameters>, f64)> {
        let evaluated = self.evaluated(at)?;
        let of_costs = evaluated.costs.iter().map(|cost| &cost.gradient);
        let gradients = std::iter::once(&evaluated.gradient).chain(of_costs);
        let pairs: Vec<_> = gradients.map(|gradient| [direction, gradient]).collect();
        if let Some(slopes) = self.model.products(&pairs) {
            return evaluated.read(Some(slopes));
        }
        let (there, _) = evaluated.read(None)?;
        let slope = M::Parameters::dots(&[[&there.gradient, direction]])?[0];
        Ok((there, slope))
    }

    fn length(&mut self, step: &M::Parameters) -> Result<f64> {
        self.model.length(step)
    }
}

/// Each component times its factor.
pub(super) fn scaled(field: &Tensor<5>, factors: [f64; 3]) -> Tensor<5> {
    if factors == [1.0; 3] {
        return field.clone();
    }
    let like = (&field.device(), field.dtype());
    let data = TensorData::new(factors.to_vec(), [1, 3, 1, 1, 1]);
    field.clone() * Tensor::from_data(data.convert_dtype(like.1), like)
}
