//! From a gradient to the next field.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{Shape, TensorData};

use super::compare::Total;
use super::options::NO_LENGTH;
use super::views::FieldEvaluation;
use super::{DeformOptions, DeformPlan, FieldState, Measure, Penalties, Update};
use crate::ops::adam::{AdamConstants, AdamOptions, AdamPieces, StepRule, UpdatedMoments};
use crate::ops::gaussian::{Direction, GaussianOps, GaussianOptions};
use crate::ops::grid_sample::Accumulation;
use crate::ops::regularity::{RegularityOps, Roughness, SMALL_DIFFERENCE};

use super::views::Viewing;

/// The backends that can step.
pub(super) trait Descending: Viewing + GaussianOps + AdamPieces + RegularityOps {}
impl<B: Viewing + GaussianOps + AdamPieces + RegularityOps> Descending for B {}

/// The smoothed tensor.
fn smooth<B: GaussianOps>(x: FloatTensor<B>, options: &GaussianOptions) -> FloatTensor<B> {
    match options.sigma_voxels {
        [0.0, 0.0, 0.0] => x,
        _ => B::gaussian_3d(x, *options, Direction::Forward),
    }
}

/// The states of all fields after one more gradient of each, the `seen + 1`st; also the value with its penalties, `[1]`.
pub(super) fn descend<B: Descending>(
    seen: FieldEvaluation<B>,
    states: Vec<FieldState<B>>,
    plan: &DeformPlan,
    count: i32,
) -> (FloatTensor<B>, Vec<FieldState<B>>) {
    let options = &plan.options;
    let FieldEvaluation { mut value, total, gradients, slope } = seen;
    let share = 1.0 / states.len() as f64;
    let mut next = Vec::with_capacity(states.len());
    for (state, gradient) in states.into_iter().zip(gradients) {
        let cost = Cost { share, total: &total, plan };
        let (worse, gradient) = cost.with(value, gradient, &state.field);
        value = worse;
        let gradient = match (options.optimizer.slope_damping(), &slope) {
            (Some(damping), Some(slope)) => over_slope::<B>(gradient, slope.clone(), damping),
            _ => gradient,
        };
        let gradient = smooth::<B>(gradient, &options.smooth_gradient);
        let state = match options.optimizer.adam() {
            Some(adam) => by_adam::<B>(gradient, state, options, &adam, count),
            None => {
                let longest = longest::<B>(&gradient);
                let field = stepped::<B>(state.field, gradient, longest, options);
                FieldState { field, ..state }
            }
        };
        next.push(FieldState { field: smooth::<B>(state.field, &options.smooth_field), ..state });
    }
    (value, next)
}

/// A step along Adam's direction, which is not stored.
fn by_adam<B: Descending>(
    gradient: FloatTensor<B>,
    state: FieldState<B>,
    options: &DeformOptions,
    adam: &AdamOptions,
    count: i32,
) -> FieldState<B> {
    let constants = AdamConstants::new(adam, count);
    let FieldState { field, mean, square, power } = state;
    let taken = B::take_gradient(gradient, mean, square, power, constants);
    let step = StepRule { rate: options.rate(), update: options.update };
    let field = B::stepped(field, &taken, constants, step);
    let UpdatedMoments { mean, square, power, .. } = taken;
    FieldState { field, mean, square, power }
}

impl DeformOptions {
    /// The step along (x, y, z) for a direction of length 1, with the sign that improves the measure.
    fn rate(&self) -> [f64; 3] {
        self.step_voxels.map(|step| self.measure.sign() * step)
    }
}

/// The field after the step `rate direction / longest`; `longest` `[N]`.
fn stepped<B: Descending>(
    field: FloatTensor<B>,
    direction: FloatTensor<B>,
    longest: FloatTensor<B>,
    options: &DeformOptions,
) -> FloatTensor<B> {
    let shortest = options.optimizer.shortest(options.measure == Measure::SquaredDifference);
    let longest = B::float_clamp_min(longest, shortest.into());
    let batch = field.shape()[0];
    let longest = B::float_reshape(longest, Shape::from([batch, 1, 1, 1, 1]));
    let rate = TensorData::new(options.rate().to_vec(), [1, 3, 1, 1, 1]);
    let rate = B::float_from_data(rate.convert_dtype(field.dtype()), &field.device());
    let step = B::float_mul(direction, B::float_div(rate, longest));
    match options.update {
        Update::Compositive => B::compose_3d(field, step, Accumulation::Fast),
        Update::Additive => B::float_add(field, step),
    }
}

/// The length of the longest vector of each field, `[N]`.
fn longest<B: Descending>(field: &FloatTensor<B>) -> FloatTensor<B> {
    let shape = field.shape();
    let (batch, planes) = (shape[0], shape[0] * shape[2]);
    let squares = B::float_sum_dim(B::float_mul(field.clone(), field.clone()), 1);
    let rows = B::float_reshape(squares, Shape::from([planes, shape[3] * shape[4]]));
    let of_planes = B::float_reshape(B::float_max_dim(rows, 1), Shape::from([batch, shape[2]]));
    B::float_reshape(B::float_sqrt(B::float_max_dim(of_planes, 1)), Shape::from([batch]))
}

/// `g / 2 (h + damping mean h)`: the gradient of squares is twice the residual times the slope.
fn over_slope<B: Descending>(
    gradient: FloatTensor<B>,
    slope: FloatTensor<B>,
    damping: f64,
) -> FloatTensor<B> {
    let shape = slope.shape();
    let voxels = (shape[2] * shape[3] * shape[4]) as f64;
    let sum = B::part_sums(slope.clone(), shape[0]);
    let sum = B::float_reshape(sum, Shape::from([shape[0], 1, 1, 1, 1]));
    let part = B::float_mul_scalar(sum, (damping / voxels).into());
    let floor = B::float_add_scalar(part, NO_LENGTH.into());
    let divisor = B::float_mul_scalar(B::float_add(slope, floor), 2.0.into());
    B::float_div(gradient, divisor)
}

impl Penalties {
    /// Those that count, with their weights.
    pub fn terms(&self) -> impl Iterator<Item = (f64, Roughness)> {
        let epsilon = SMALL_DIFFERENCE;
        [
            (self.diffusion, Roughness::Diffusion),
            (self.bending, Roughness::Bending),
            (self.total_variation, Roughness::TotalVariation { epsilon }),
        ]
        .into_iter()
        .filter(|(weight, _)| *weight > 0.0)
    }
}

/// What the roughness of a field costs.
struct Cost<'a, B: Descending> {
    /// Of the field in the mean over all fields.
    share: f64,
    total: &'a Total<B>,
    plan: &'a DeformPlan,
}

impl<B: Descending> Cost<'_, B> {
    /// The value and the gradient, worse by it.
    fn with(
        &self,
        value: FloatTensor<B>,
        gradient: FloatTensor<B>,
        field: &FloatTensor<B>,
    ) -> (FloatTensor<B>, FloatTensor<B>) {
        let Self { share, total, plan } = self;
        let worse = -plan.options.measure.sign() * share;
        plan.options.penalties.terms().fold((value, gradient), |(value, gradient), term| {
            let (weight, kind) = term;
            let cost = B::roughness_3d(field.clone(), kind);
            let per_value = plan.values as f64 * weight * worse;
            let value = B::float_add(value, B::float_mul_scalar(cost, per_value.into()));
            let scale = B::float_mul_scalar(total.tensor(field), (weight * worse).into());
            let to_field = B::roughness_3d_backward(field.clone(), scale, kind);
            (value, B::float_add(gradient, to_field))
        })
    }
}
