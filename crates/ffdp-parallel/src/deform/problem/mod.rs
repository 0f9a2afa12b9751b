//! What a field shows and in which direction it should change: the loss of all shards, and its gradient shard by shard.

mod slopes;
mod sums;

use burn::Tensor;

use self::sums::GlobalSums;
use super::block::{Around, Block, Pieces};
use super::compare::Comparison;
use super::descend::Carried;
use super::flow::{Flow, Squarings};
use super::homes::Homes;
use super::landmarks::LandmarkTerm;
use super::penalty::{Cost, LOOKS};
use super::seam::smooth_own;
use super::view::{Grid, View};
use super::{ShardedImages, Team};
use crate::exchange::WaitForSums;
use crate::hosts::Holders;
use crate::ring::{BlockSampler, IndexMap, Keep};
use crate::sharded::Sharded;
use ffdp_burn::losses::Pair;
use ffdp_burn::ops::DeformOptions;
use ffdp_image::error::Result;

/// One pair of images, cut, and what is done with them.
pub(super) struct Problem {
    pub grid: Grid,
    pub options: DeformOptions,
    pub(super) comparison: Comparison,
    pub moving: View,
    fixed: Fixed,
    /// Of a velocity.
    squarings: Option<Squarings>,
    pub(super) cost: Cost,
    landmarks: Option<LandmarkTerm>,
    /// `count d loss / d sums` of a mean, on the device of every shard.
    pub(super) mean_slopes: Vec<Tensor<1>>,
    /// How many values counted when the images were seen last, where that had to be known first.
    pub(super) counted: Option<Tensor<1>>,
    /// Evaluations that may meet kernels for the first time, of each kind.
    unknown: [usize; 2],
}

/// Kinds of evaluations, which have kernels of their own.
const VALUE_ALONE: usize = 0;
const WITH_GRADIENT: usize = 1;

/// Evaluations after views were planned in which kernels may be met for the first time: those of moments that have seen
/// nothing, and of others.
const UNKNOWN_EVALUATIONS: usize = 2;

/// The fixed image.
pub(super) enum Fixed {
    /// As it is cut, with what blocks need of other ranks; they are put together when they are compared.
    Shards(Sharded),
    /// On the block of every shard, which takes the shard's place.
    Blocks(Vec<Tensor<5>>),
    /// Displaced as well.
    Shown(Box<View>),
}

impl Fixed {
    /// An image that is displaced as well.
    fn shown(fixed: Sharded, keep: Keep, holders: Holders) -> Self {
        let map = IndexMap::identity().without_flat_axes(fixed.layout().size());
        Self::Shown(Box::new(View::new(fixed, map, keep, holders)))
    }

    /// An image that stays where it is.
    fn of(fixed: &Sharded, keep: Keep, grid: &Grid) -> Result<Self> {
        let around = grid.holders.surround(fixed, grid.width)?;
        Ok(match keep {
            Keep::Nothing => Self::Shards(around),
            Keep::Planes => {
                let block = |k| around.window(grid.block(k).all, grid.homes.device(k));
                Self::Blocks((0..grid.layout.count()).map(block).collect())
            }
        })
    }
}

/// An image on a block, as pieces of a displacement show it.
pub(super) struct Side {
    /// With the planes of the image that are sampled, if they come in one piece.
    pub sampler: BlockSampler,
    pub pieces: Pieces,
}

/// What a shard brings to where its gradient is computed.
pub(super) struct Visit {
    pub block: Block,
    pub moving: Side,
    pub fixed: FixedVisit,
    /// Those that the gradients change.
    pub carried: Vec<Carried>,
}

pub(super) enum FixedVisit {
    Block(Box<Tensor<5>>),
    Shown(Box<Side>),
}

impl Visit {
    /// The images that are displaced, the moving one last.
    fn sides(&self) -> Vec<&Side> {
        match &self.fixed {
            FixedVisit::Block(_) => vec![&self.moving],
            FixedVisit::Shown(fixed) => vec![fixed, &self.moving],
        }
    }

    /// Both images; `shown` is the moving one as its own planes show it, where that is known.
    fn pair(&self, comparison: &Comparison, shown: Option<Tensor<5>>) -> Pair {
        let show = |side: &Side, own| side.pieces.show(&self.block, &side.sampler, own);
        let moved = show(&self.moving, shown);
        let stays = match &self.fixed {
            FixedVisit::Block(fixed) => Tensor::clone(fixed),
            FixedVisit::Shown(fixed) => show(fixed, None),
        };
        comparison.pair([moved, stays], None)
    }
}

/// The displacements that show the images, as shards see them.
pub(super) struct Sight {
    /// That of the moving image last.
    pub displaced: Vec<Sharded>,
    /// With what is around them.
    pub around: Vec<Around>,
    /// The moving image as each shard's own planes show it, where that is known.
    pub shown: Vec<Option<Tensor<5>>>,
}

/// What the comparison of a block has come to.
struct Judged {
    row: Vec<Tensor<1>>,
    /// To the moved and to the fixed image.
    gradients: [Option<Tensor<5>>; 2],
    weights: Option<Tensor<5>>,
}

/// The flow of a velocity, and the gradient to its displacement where it is asked for.
struct FlowGradient<'a> {
    velocity: &'a Sharded,
    flow: Flow,
    to_u: Option<Sharded>,
}

/// Where gradients go, and what is carried along to be changed by them.
pub(super) struct GradientReceiver<'a> {
    /// Of every field what it carries for each of its shards; none of them where nothing is carried.
    pub carried: Vec<Vec<Carried>>,
    /// Called for each shard in turn, and for each field of it.
    pub take: &'a mut dyn FnMut(Gradient),
}

/// What a gradient goes to.
pub(super) struct Gradient {
    pub shard: usize,
    /// Which of the fields it changes.
    pub field: usize,
    /// On the shard's own planes, smoothed.
    pub values: Tensor<5>,
    pub carried: Carried,
}

impl Problem {
    pub fn new(
        images: ShardedImages,
        comparison: Comparison,
        options: &DeformOptions,
        homes: &Homes,
        team: Team,
    ) -> Result<Self> {
        let ShardedImages { fixed, moving, affine, landmarks, .. } = images;
        let (layout, mesh) = (fixed.layout().clone(), &homes.mesh);
        check_places(&fixed, homes);
        let map = IndexMap::read(Some(&affine), options.displacement_scale)?
            .without_flat_axes(layout.size());
        // Many shards on one device mean that memory is short. Several devices would wait for what they
        // do not keep.
        let keep = match mesh.is_virtual() && !mesh.has_several_devices() {
            true => Keep::Nothing,
            false => Keep::Planes,
        };
        let squarings = options.method.squarings();
        let squarings =
            squarings.map(|(squarings, accumulation)| Squarings::new(squarings, accumulation));
        let fields = options.method.fields();
        let cost = Cost { penalties: options.penalties, size: layout.size(), fields };
        let looks = if cost.is_none() { 0 } else { LOOKS };
        let radius = options.smooth_gradient.radius(layout.axis().component());
        let grid = Grid {
            homes: homes.clone(),
            holders: team.fixed.clone(),
            width: comparison.reach().max(looks) + radius,
            step_voxels: options.step_voxels,
            layout: layout.clone(),
        };
        let landmarks = landmarks
            .map(|landmarks| LandmarkTerm::new(landmarks, &grid, moving.shards()[0].dtype()));
        let fixed = match options.method.displaces_fixed() {
            true => Fixed::shown(fixed, keep, team.fixed),
            false => Fixed::of(&fixed, keep, &grid)?,
        };
        let moving = View::new(moving, map, keep, team.moving);
        Ok(Self {
            mean_slopes: comparison.mean_slopes(mesh, moving.dtype),
            counted: None,
            unknown: [0; 2],
            grid,
            options: *options,
            comparison,
            moving,
            fixed,
            squarings,
            cost,
            landmarks,
        })
    }

    /// Whether the loss has terms besides the dissimilarity.
    fn has_costs(&self) -> bool {
        !self.cost.is_none() || self.landmarks.is_some()
    }

    /// Planes on either side that the smoothing of the gradient looks at.
    fn radius(&self) -> usize {
        self.options.smooth_gradient.radius(self.grid.layout.axis().component())
    }

    /// Waits for the sums of the next iteration, if kernels may be met for the first time in it; it was planned.
    pub fn waiting(&self) -> WaitForSums {
        WaitForSums::when(self.unknown[WITH_GRADIENT] > 0)
    }

    /// The parts of each shard in the loss, for [`Problem::losses`]; each on its shard's device. With a `receiver`, the
    /// gradient of each shard to each field goes there, and with it what is carried along to be changed.
    pub fn evaluate(
        &mut self,
        fields: &[Sharded],
        receiver: Option<GradientReceiver>,
    ) -> Result<Vec<Tensor<1>>> {
        self.plan(fields)?;
        let kind = if receiver.is_some() { WITH_GRADIENT } else { VALUE_ALONE };
        let _waiting = WaitForSums::when(self.unknown[kind] > 0);
        self.unknown[kind] = self.unknown[kind].saturating_sub(1);
        self.begin();
        let flow = match &self.squarings {
            Some(squarings) => Some(squarings.along(&self.grid, &fields[0])?),
            None => None,
        };
        let displaced = match &flow {
            Some(flow) => vec![flow.displacement.clone()],
            None => fields.to_vec(),
        };
        let mut sight = self.look(displaced)?;
        let pull = match &mut self.landmarks {
            Some(landmarks) => Some(landmarks.pull(&sight.displaced, &self.grid)?),
            None => None,
        };
        let sums = GlobalSums { pull, ..self.global_pass(&sight, fields)? };
        let counted = sums.counts.as_ref().map(|counts| counts[0].clone());
        let rows = match flow {
            None => self.shards(&mut sight, &sums, receiver),
            Some(flow) => {
                let mut to_u = Vec::new();
                let mut keep = |gradient: Gradient| {
                    to_u.push(self.grid.homes.put_away(gradient.shard, gradient.values));
                    self.grid.homes.settle(gradient.shard);
                };
                // What a velocity carries is changed later.
                let keeper = GradientReceiver { carried: Vec::new(), take: &mut keep };
                let mut rows = self.shards(&mut sight, &sums, receiver.is_some().then_some(keeper));
                let to_u = receiver.is_some().then(|| Sharded::new(to_u, self.grid.layout.clone()));
                let flow = FlowGradient { velocity: &fields[0], flow, to_u };
                self.to_velocity(flow, &sums, &mut rows, receiver)?;
                rows
            }
        };
        self.counted = counted;
        Ok(rows.into_iter().map(|row| Tensor::cat(row, 0)).collect())
    }

    /// What the views must have at hand to be seen through these fields, and how a velocity is squared. Does nothing
    /// where that is known.
    pub fn plan(&mut self, fields: &[Sharded]) -> Result<()> {
        let moved = fields.last().expect("there is a field");
        let mut unknown = self.moving.plan(&self.grid, moved)?;
        if let Fixed::Shown(view) = &mut self.fixed {
            unknown |= view.plan(&self.grid, &fields[0])?;
        }
        let mut evaluations = if unknown { UNKNOWN_EVALUATIONS } else { 0 };
        if let Some(squarings) = &mut self.squarings
            && squarings.plan(&self.grid, &fields[0])?
        {
            evaluations = evaluations.max(1);
        }
        self.unknown = self.unknown.map(|left| left.max(evaluations));
        Ok(())
    }

    /// An evaluation of those that were planned for begins.
    fn begin(&mut self) {
        self.moving.begin();
        if let Fixed::Shown(view) = &mut self.fixed {
            view.begin();
        }
        if let Some(squarings) = &mut self.squarings {
            squarings.begin();
        }
    }

    /// Sends what blocks need of the displacements; meanwhile shards that are alone on their device show themselves.
    fn look(&self, displaced: Vec<Sharded>) -> Result<Sight> {
        let (grid, homes) = (&self.grid, &self.grid.homes);
        let sent = grid.send(&displaced, grid.width)?;
        let is_alone = !homes.mesh.is_virtual();
        let last = displaced.last().expect("there is a field");
        let own_moved = |k: usize| {
            let field = homes.bring(k, last.shards()[k].clone());
            grid.block(k).show_own(&field, &self.moving.samplers[k].at_hand())
        };
        let shown = (0..grid.layout.count()).map(|k| is_alone.then(|| own_moved(k))).collect();
        let around = grid.around(&displaced, grid.width, sent)?;
        Ok(Sight { displaced, around, shown })
    }

    /// The part of every shard in the loss, shard by shard; a `receiver` gets the gradients to the displacements. Those
    /// to fields that are displacements are what it gets in the end; to what a velocity became they are neither
    /// smoothed nor carry anything.
    fn shards(
        &self,
        sight: &mut Sight,
        sums: &GlobalSums,
        receiver: Option<GradientReceiver>,
    ) -> Vec<Vec<Tensor<1>>> {
        let (mut carried, mut take) = match receiver {
            Some(GradientReceiver { carried, take }) => (carried, Some(take)),
            None => (Vec::new(), None),
        };
        let mut rows = Vec::with_capacity(self.grid.layout.count());
        let homes = &self.grid.homes;
        let is_field = self.squarings.is_none();
        let mut shown = std::mem::take(&mut sight.shown);
        let sight = &*sight;
        let bring = |k: usize| {
            let carried = carried.iter_mut().map(|of| of[k].take());
            let carried = carried.map(|of| of.map(|values| values.map(|v| homes.bring(k, v))));
            let carried = carried.collect();
            self.visit(k, self.grid.width, sight, carried)
        };
        for (k, visit) in homes.in_turn(bring) {
            let judged = self.judge(k, &visit, shown[k].take(), sums, take.is_some());
            let Judged { row, gradients, weights } = judged;
            rows.push(row);
            let Some(take) = take.as_mut() else { continue };
            let inner = visit.block.within(if is_field { self.radius() } else { 0 });
            let mut to_fields = self.to_displacements(&visit, &inner, gradients);
            to_fields = with_pull(to_fields, &inner, k, sums);
            if is_field {
                to_fields = self.with_costs(to_fields, &visit, &inner, sums.counts_of(k));
                to_fields = self.over_slopes(to_fields, &visit, &inner, sums.slope_of(k), weights);
            }
            let carried = visit.carried;
            drop((visit.moving, visit.fixed));
            homes.settle(k);
            let carried = carried.into_iter().chain(std::iter::repeat_with(|| None));
            for ((field, gradient), carried) in to_fields.into_iter().enumerate().zip(carried) {
                let values = if is_field { self.smoothed(gradient) } else { gradient.own };
                take(Gradient { shard: k, field, values, carried });
            }
        }
        rows
    }

    /// How alike the images are on a block, as its shard's part in the loss, and where it is asked for the gradients to
    /// what is shown.
    fn judge(
        &self,
        k: usize,
        visit: &Visit,
        shown: Option<Tensor<5>>,
        sums: &GlobalSums,
        wants_gradient: bool,
    ) -> Judged {
        let block = &visit.block;
        let pair = visit.pair(&self.comparison, shown);
        let displaces_fixed = matches!(visit.fixed, FixedVisit::Shown(_));
        let needs = [wants_gradient, wants_gradient && displaces_fixed];
        let (parts, gradients) = self.comparison.compare(block, &pair, &sums.slopes[k], needs);
        let mut row = match &sums.loss {
            None => parts,
            // Said by one of all shards.
            Some(loss) if k == 0 => vec![loss.clone()],
            Some(_) => {
                let like = (self.grid.homes.device(k), pair.moved.dtype());
                vec![Tensor::zeros([1], like)]
            }
        };
        if self.has_costs() && self.squarings.is_none() {
            let sides = visit.sides().into_iter();
            let costs = sides.map(|side| self.cost_on(k, &side.pieces, block));
            let cost = costs.reduce(Tensor::add).expect("an image is displaced");
            row.push(self.with_energy(k, cost, sums));
        }
        Judged { row, gradients, weights: pair.weights }
    }

    /// The part of shard `k` in the penalties of a field.
    fn cost_on(&self, k: usize, field: &Pieces, block: &Block) -> Tensor<1> {
        match self.cost.is_none() {
            true => Tensor::zeros([1], (self.grid.homes.device(k), field.own.dtype())),
            false => self.cost.value(field, block),
        }
    }

    /// A cost and the energy of landmarks, which all shards know: one of them says it.
    fn with_energy(&self, k: usize, cost: Tensor<1>, sums: &GlobalSums) -> Tensor<1> {
        match &sums.pull {
            Some(pull) if k == 0 => {
                let share = 1.0 / self.grid.holders.count() as f64;
                cost + pull.energy.clone().mul_scalar(share)
            }
            _ => cost,
        }
    }

    /// The gradients to the displacements from those to what they show, that of the moving image last.
    fn to_displacements(
        &self,
        visit: &Visit,
        inner: &Block,
        [to_moved, to_fixed]: [Option<Tensor<5>>; 2],
    ) -> Vec<Pieces> {
        let pull = |side: &Side, image: usize, gradient: Option<Tensor<5>>| {
            let gradient = gradient.map(|g| self.comparison.with_mask(image, g));
            let gradient = gradient.expect("it was asked for");
            side.pieces.pull_back([&visit.block, inner], &side.sampler, &gradient)
        };
        let to_moving = pull(&visit.moving, 1, to_moved);
        let FixedVisit::Shown(fixed) = &visit.fixed else { return vec![to_moving] };
        // A step that both halves share only renames the points in the middle.
        let half = |fixed: Tensor<5>, moving: Tensor<5>| (fixed - moving).mul_scalar(0.5);
        let apart = pull(fixed, 0, to_fixed).zip(to_moving, half);
        vec![apart.clone(), apart.map(Tensor::neg)]
    }

    /// The same with those of the penalties, which are weighed against the values that count.
    fn with_costs(
        &self,
        gradients: Vec<Pieces>,
        visit: &Visit,
        inner: &Block,
        counts: Option<&Tensor<1>>,
    ) -> Vec<Pieces> {
        let (false, Some(counts)) = (self.cost.is_none(), counts) else { return gradients };
        let sides = visit.sides();
        let with_cost = |(gradient, side): (Pieces, &Side)| {
            self.cost.add(gradient, &side.pieces, [&visit.block, inner], counts)
        };
        gradients.into_iter().zip(sides).map(with_cost).collect()
    }

    fn smoothed(&self, gradient: Pieces) -> Tensor<5> {
        let axis = self.grid.layout.axis();
        smooth_own(gradient, axis, &self.options.smooth_gradient, self.radius())
    }

    /// From the gradient to what a velocity became to that of the velocity, which may be rough.
    fn to_velocity(
        &self,
        FlowGradient { velocity, flow, to_u }: FlowGradient,
        sums: &GlobalSums,
        rows: &mut [Vec<Tensor<1>>],
        receiver: Option<GradientReceiver>,
    ) -> Result<()> {
        let (grid, homes) = (&self.grid, &self.grid.homes);
        let (costs, has_costs) = (!self.cost.is_none(), self.has_costs());
        let around = costs.then(|| grid.surround(velocity, grid.width)).transpose()?;
        let field_on = |k: usize, block: &Block| {
            let around = around.as_ref().expect("it was surrounded for its cost");
            around.pieces(k, block, homes.device(k))
        };
        for (k, row) in rows.iter_mut().enumerate().filter(|_| has_costs) {
            let block = grid.block(k);
            let cost = match costs {
                true => self.cost.value(&field_on(k, &block), &block),
                false => row[0].zeros_like(),
            };
            row.push(self.with_energy(k, cost, sums));
            homes.settle(k);
        }
        let (Some(to_u), Some(receiver)) = (to_u, receiver) else { return Ok(()) };
        let GradientReceiver { mut carried, take } = receiver;
        let squarings = self.squarings.as_ref().expect("a flow was made by them");
        let gradient = squarings.backwards(grid, flow, to_u)?;
        let gradient = grid.surround(&gradient, self.radius())?;
        for k in 0..grid.layout.count() {
            let block = grid.block(k);
            let inner = block.within(self.radius());
            let mut pieces = gradient.pieces(k, &inner, homes.device(k));
            if let (true, Some(counts)) = (costs, &sums.counts) {
                pieces = self.cost.add(pieces, &field_on(k, &block), [&block, &inner], &counts[k]);
            }
            let carried = carried.first_mut().and_then(|of| of[k].take());
            let carried = carried.map(|values| values.map(|v| homes.bring(k, v)));
            take(Gradient { shard: k, field: 0, values: self.smoothed(pieces), carried });
            homes.settle(k);
        }
        Ok(())
    }

    /// What shard `k` brings, with so many planes around it.
    pub(super) fn visit(
        &self,
        k: usize,
        width: usize,
        sight: &Sight,
        carried: Vec<Carried>,
    ) -> Visit {
        let (block, homes) = (self.grid.block(k).within(width), &self.grid.homes);
        let side = |view: &View, around: &Around| {
            let pieces = around.pieces(k, &block, homes.device(k));
            Side { sampler: view.samplers[k].at_hand(), pieces }
        };
        let around = &sight.around;
        let moving = side(&self.moving, around.last().expect("there is a field"));
        let fixed = match &self.fixed {
            Fixed::Shards(fixed) => {
                FixedVisit::Block(Box::new(fixed.window(block.all.clone(), homes.device(k))))
            }
            Fixed::Blocks(blocks) => {
                FixedVisit::Block(Box::new(self.grid.block(k).narrow(&blocks[k], &block.all)))
            }
            Fixed::Shown(view) => FixedVisit::Shown(Box::new(side(view, &around[0]))),
        };
        Visit { block, moving, fixed, carried }
    }
}

/// The gradients to the displacements, that of the moving image last, with the pull of landmarks.
fn with_pull(gradients: Vec<Pieces>, inner: &Block, k: usize, sums: &GlobalSums) -> Vec<Pieces> {
    let (Some(pull), Some(counts)) = (&sums.pull, sums.counts_of(k)) else { return gradients };
    let last = gradients.len() - 1;
    let pulled = gradients.into_iter().enumerate().map(|(field, gradient)| {
        let scale = if field == last { counts.clone() } else { counts.clone().neg() };
        pull.add(gradient, inner, k, &scale)
    });
    pulled.collect()
}

/// That the shards can be computed where the homes say.
fn check_places(fixed: &Sharded, homes: &Homes) {
    let mesh = &homes.mesh;
    crate::deform::check_places(fixed, mesh);
    assert!(
        !mesh.has_several_devices() || fixed.mesh().devices() == mesh.devices(),
        "deform: shards on several devices must lie on them, got {:?} for {:?}",
        fixed.mesh().devices(),
        mesh.devices()
    );
}
