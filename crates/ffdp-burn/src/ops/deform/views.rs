//! The images as the field of each method shows them: the measure, and its gradient to the field.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{Shape, Slice, TensorData};

use super::DeformPlan;
use super::compare::{Compared, Comparing, Measured, Total};
use crate::ops::compose::ComposeOps;
use crate::ops::grid_sample::{Accumulation, GridSampleOps, Sampling};

/// The backends that can show images and compare them.
pub(super) trait Viewing: Comparing + GridSampleOps + ComposeOps {}
impl<B: Comparing + GridSampleOps + ComposeOps> Viewing for B {}

/// An image with its mask, and how a displacement shows it.
pub(super) struct View<B: Viewing> {
    /// `[N, C, Di, Hi, Wi]`.
    pub image: FloatTensor<B>,
    /// `[N or 1, 1, Di, Hi, Wi]`.
    pub mask: Option<FloatTensor<B>>,
    /// `[1 or N, 3, 4]`.
    pub affine: FloatTensor<B>,
    pub sampling: Sampling,
}

impl<B: Viewing> View<B> {
    fn show(&self, u: &FloatTensor<B>) -> FloatTensor<B> {
        B::grid_sample_3d(self.image.clone(), self.affine.clone(), u.clone(), self.sampling)
    }

    /// The mask as `u` shows it; beyond the image there is nothing to trust.
    fn show_mask(&self, u: &FloatTensor<B>) -> Option<FloatTensor<B>> {
        let mask = self.mask.clone()?;
        Some(B::grid_sample_3d(mask, self.affine.clone(), u.clone(), self.sampling))
    }

    /// From the gradient of what was shown to that of `u`.
    fn pull_back(
        &self,
        image: FloatTensor<B>,
        u: &FloatTensor<B>,
        to_shown: FloatTensor<B>,
    ) -> FloatTensor<B> {
        let (affine, wanted) = (self.affine.clone(), [false, false, true]);
        B::grid_sample_3d_backward(image, affine, u.clone(), to_shown, self.sampling, wanted).2
    }

    fn to_displacement(&self, u: &FloatTensor<B>, to_shown: FloatTensor<B>) -> FloatTensor<B> {
        self.pull_back(self.image.clone(), u, to_shown)
    }

    /// `h = |d shown / du|^2`, summed over the channels, `[N, 1, D, H, W]`.
    fn slope(&self, u: &FloatTensor<B>) -> FloatTensor<B> {
        let (shape, field) = (self.image.shape(), u.shape());
        let size = Shape::from([field[0], 1, field[2], field[3], field[4]]);
        let ones = B::float_full(size, 1.0.into(), &u.device(), u.dtype().into());
        let of = |channel: usize| {
            let image = match shape[1] {
                1 => self.image.clone(),
                _ => B::float_slice(self.image.clone(), &[Slice::full(), part(channel, 1)]),
            };
            let slope = self.pull_back(image, u, ones.clone());
            B::float_sum_dim(B::float_mul(slope.clone(), slope), 1)
        };
        let channels = (0..shape[1]).map(of);
        channels.reduce(B::float_add).expect("an image has a channel")
    }
}

/// `count` from `first` on, along one axis.
fn part(first: usize, count: usize) -> Slice {
    Slice::from(first..first + count)
}

/// The fixed and the moving image of a registration.
pub(super) struct Views<B: Viewing> {
    /// Shown through the identity, or through a half of SyN.
    pub fixed: View<B>,
    pub moving: View<B>,
}

/// The measure of the images under a field, and its gradients.
pub(super) struct FieldEvaluation<B: Viewing> {
    /// The measure, `[1]`.
    pub value: FloatTensor<B>,
    /// How many values count.
    pub total: Total<B>,
    /// The gradient of the measure to each field, times `total` over the number of values.
    pub gradients: Vec<FloatTensor<B>>,
    /// `h` times the weights, where it was asked for; the same for both halves.
    pub slope: Option<FloatTensor<B>>,
}

impl<B: Viewing> Views<B> {
    /// The measure of what the fields show, and its gradients: of one, or of the halves of SyN.
    pub fn evaluate(&self, fields: &[&FloatTensor<B>], plan: &DeformPlan) -> FieldEvaluation<B> {
        let method = plan.options.method;
        if method.displaces_fixed() {
            return self.evaluate_both([fields[0], fields[1]], plan);
        }
        let Some((squarings, accumulation)) = method.squarings() else {
            return self.evaluate_moving(fields[0], plan);
        };
        let flow = Flow::<B>::along(fields[0], squarings);
        let mut seen = self.evaluate_moving(&flow.displacement, plan);
        let gradient = seen.gradients.remove(0);
        seen.gradients.push(flow.backwards(gradient, accumulation));
        seen
    }

    /// The moving image through `u`, compared with the fixed one as it is.
    fn evaluate_moving(&self, u: &FloatTensor<B>, plan: &DeformPlan) -> FieldEvaluation<B> {
        let View { image: fixed, mask, .. } = &self.fixed;
        let weights = product::<B>(mask.clone(), self.moving.show_mask(u));
        let slope = plan.needs_slope().then(|| weighted::<B>(self.moving.slope(u), &weights));
        let pair = Compared::<B> { moved: self.moving.show(u), fixed: fixed.clone(), weights };
        let Measured { value, total, gradients: [to_moved, _] } =
            pair.measure(&plan.options.measure, [true, false]);
        let gradients = vec![self.moving.to_displacement(u, to_moved)];
        FieldEvaluation { value, total, gradients, slope }
    }

    /// Both images through their halves.
    ///
    /// A step that both halves share only renames the points in the middle: the map between the images
    /// stays. It is left out, or the halves would drift to where the images are alike already,
    /// stretching it, for that raises a mean over the points of the middle.
    fn evaluate_both(
        &self,
        [u1, u2]: [&FloatTensor<B>; 2],
        plan: &DeformPlan,
    ) -> FieldEvaluation<B> {
        let Self { fixed, moving } = self;
        let weights = product::<B>(fixed.show_mask(u1), moving.show_mask(u2));
        let slope = plan
            .needs_slope()
            .then(|| weighted::<B>(B::float_add(fixed.slope(u1), moving.slope(u2)), &weights));
        let pair = Compared::<B> { moved: moving.show(u2), fixed: fixed.show(u1), weights };
        let Measured { value, total, gradients: [to_moved, to_fixed] } =
            pair.measure(&plan.options.measure, [true, true]);
        let to_u1 = fixed.to_displacement(u1, to_fixed);
        let to_u2 = moving.to_displacement(u2, to_moved);
        let apart = B::float_mul_scalar(B::float_sub(to_u1, to_u2), 0.5.into());
        let gradients = vec![apart.clone(), B::float_neg(apart)];
        FieldEvaluation { value, total, gradients, slope }
    }
}

/// A voxel counts as much as both masks say.
fn product<B: Viewing>(
    a: Option<FloatTensor<B>>,
    b: Option<FloatTensor<B>>,
) -> Option<FloatTensor<B>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(B::float_mul(a, b)),
        (a, b) => a.or(b),
    }
}

fn weighted<B: Viewing>(x: FloatTensor<B>, weights: &Option<FloatTensor<B>>) -> FloatTensor<B> {
    match weights {
        None => x,
        Some(weights) => B::float_mul(x, weights.clone()),
    }
}

/// The flow along a stationary velocity, by squarings.
struct Flow<B: Viewing> {
    /// What was squared, in order.
    fields: Vec<FloatTensor<B>>,
    /// `exp(v) - id`.
    displacement: FloatTensor<B>,
}

/// The part of the flow that is not squared.
fn first_part(squarings: usize) -> f64 {
    1.0 / (1u64 << squarings) as f64
}

impl<B: Viewing> Flow<B> {
    fn along(velocity: &FloatTensor<B>, squarings: usize) -> Self {
        let scale = first_part(squarings);
        let mut displacement = B::float_mul_scalar(velocity.clone(), scale.into());
        let mut fields = Vec::with_capacity(squarings);
        for _ in 0..squarings {
            let squared = B::square_3d(displacement.clone(), Accumulation::Fast);
            fields.push(std::mem::replace(&mut displacement, squared));
        }
        Self { fields, displacement }
    }

    /// From the gradient of the displacement to that of the velocity.
    fn backwards(self, gradient: FloatTensor<B>, accumulation: Accumulation) -> FloatTensor<B> {
        let scale = first_part(self.fields.len());
        let back = |gradient, field| B::square_3d_backward(field, gradient, accumulation);
        let gradient = self.fields.into_iter().rev().fold(gradient, back);
        B::float_mul_scalar(gradient, scale.into())
    }
}

/// `[1, 3, 4]`, the map that changes nothing.
pub(super) fn identity<B: Viewing>(like: &FloatTensor<B>) -> FloatTensor<B> {
    let rows = [[[1.0f64, 0., 0., 0.], [0., 1., 0., 0.], [0., 0., 1., 0.]]];
    B::float_from_data(TensorData::from(rows).convert_dtype(like.dtype()), &like.device())
}
