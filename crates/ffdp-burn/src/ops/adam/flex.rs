//! Adam's direction on the CPU, in `f64`.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, bf16};
use rayon::prelude::*;

use super::{AdamConstants, AdamOps, AdamPieces, StepRule, UpdatedMoments};
use crate::ops::Update;
use crate::ops::compose::ComposeOps;
use crate::ops::grid_sample::Accumulation;
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// Elements of one task; fixed, so that sums do not depend on the threads.
const BLOCK: usize = 1 << 16;

impl AdamConstants {
    /// `mean v` after a field `grad`, from the one before.
    fn power<T: Real>(&self, before: f64, grad: &[T]) -> f64 {
        if self.gradient_floor == 0.0 {
            return before;
        }
        let squares = |block: &[T]| block.iter().map(|g| g.wide() * g.wide()).sum();
        let sums: Vec<f64> = grad.par_chunks(BLOCK).map(squares).collect();
        let [_, b2] = self.beta;
        b2 * before + (1.0 - b2) * sums.iter().sum::<f64>() / grad.len() as f64
    }

    /// `kappa rms + eps`.
    fn floor(&self, power: f64) -> f64 {
        self.gradient_floor * (self.correction[1] * power).sqrt() + self.epsilon
    }

    /// One component of the direction.
    fn direction(&self, m: f64, v: f64, floor: f64) -> f64 {
        let [c1, c2] = self.correction;
        c1 * m / ((c2 * v).sqrt() + floor)
    }
}

/// Takes the gradient of one field into its moments.
fn update<T: Real, M: Real>(grad: &[T], mean: &mut [M], square: &mut [M], [b1, b2]: [f64; 2]) {
    let moments = mean.par_iter_mut().zip(square).with_min_len(BLOCK);
    moments.zip(grad).for_each(|((m, v), g)| {
        let g = g.wide();
        *m = M::of(b1 * m.wide() + (1.0 - b1) * g);
        *v = M::of(b2 * v.wide() + (1.0 - b2) * g * g);
    });
}

/// The length of the longest vector of a field's direction.
fn longest<M: Real>(mean: &[M], square: &[M], constants: &AdamConstants, floor: f64) -> f64 {
    let len = mean.len() / 3;
    let component = |i: usize| constants.direction(mean[i].wide(), square[i].wide(), floor);
    let squares = (0..len)
        .into_par_iter()
        .with_min_len(BLOCK)
        .map(|voxel| (0..3).map(|c| component(c * len + voxel).powi(2)).sum::<f64>());
    squares.reduce(|| 0.0, f64::max).sqrt()
}

fn take<T: Real, M: Real>(
    [grad, mean, square, power]: [&FlexTensor; 4],
    constants: &AdamConstants,
) -> UpdatedMoments<Flex> {
    let shape = grad.layout().shape().clone();
    let grad = elements::<T>(grad);
    let (mut mean, mut square) = (elements::<M>(mean).to_vec(), elements::<M>(square).to_vec());
    let batch = shape[0];
    let len = grad.len() / batch;
    let (mut powers, mut lengths) = (Vec::with_capacity(batch), Vec::with_capacity(batch));
    for (n, before) in elements::<T>(power).iter().enumerate() {
        let field = n * len..(n + 1) * len;
        let (g, m, v) = (&grad[field.clone()], &mut mean[field.clone()], &mut square[field]);
        let power = constants.power(before.wide(), g);
        update(g, m, v, constants.beta);
        lengths.push(T::of(longest(m, v, constants, constants.floor(power))));
        powers.push(T::of(power));
    }
    UpdatedMoments {
        mean: tensor(mean, shape.clone()),
        square: tensor(square, shape),
        power: tensor(powers, [batch]),
        longest: tensor(lengths, [batch]),
    }
}

/// Calls `$f` for the types of a gradient and of its moments.
macro_rules! by_dtypes {
    ($grad:expr, $moment:expr, $f:ident ( $($arg:expr),* $(,)? )) => {
        match ($grad, $moment) {
            (DType::F32, DType::F32) => $f::<f32, f32>($($arg),*),
            (DType::F32, DType::BF16) => $f::<f32, bf16>($($arg),*),
            (DType::F64, DType::F64) => $f::<f64, f64>($($arg),*),
            (DType::F64, DType::BF16) => $f::<f64, bf16>($($arg),*),
            other => panic!("adam: no gradient and moments of the types {other:?} on the CPU"),
        }
    };
}

/// See [`AdamPartOps::adam_take_3d`](super::part::AdamPartOps::adam_take_3d).
pub(super) fn take_part(
    inputs: [FlexTensor; 4],
    constants: &AdamConstants,
) -> (FlexTensor, FlexTensor, FlexTensor) {
    let inputs = inputs.map(|tensor| tensor.to_contiguous());
    let (of_grad, of_mean) = (inputs[0].dtype(), inputs[1].dtype());
    let UpdatedMoments { mean, square, power, .. } =
        by_dtypes!(of_grad, of_mean, take(inputs.each_ref(), constants));
    (mean, square, power)
}

/// See [`AdamPartOps::adam_longest_3d`](super::part::AdamPartOps::adam_longest_3d).
pub(super) fn longest_of_part(inputs: [FlexTensor; 3], constants: &AdamConstants) -> FlexTensor {
    let inputs = inputs.map(|tensor| tensor.to_contiguous());
    let (of_power, of_mean) = (inputs[2].dtype(), inputs[0].dtype());
    by_dtypes!(of_power, of_mean, longest_of(inputs.each_ref(), constants))
}

/// See [`AdamPartOps::adam_power_3d`](super::part::AdamPartOps::adam_power_3d).
pub(super) fn power_of_part(inputs: [FlexTensor; 2], constants: &AdamConstants) -> FlexTensor {
    let inputs = inputs.map(|tensor| tensor.to_contiguous());
    let dtype = inputs[0].dtype();
    by_dtype!("adam", dtype, power_of(inputs.each_ref(), constants))
}

/// `mean v` of each field of a batch after a gradient.
fn power_of<T: Real>([grad, power]: [&FlexTensor; 2], constants: &AdamConstants) -> FlexTensor {
    let batch = grad.layout().shape()[0];
    let grad = elements::<T>(grad);
    let fields = grad.chunks(grad.len() / batch).zip(elements::<T>(power));
    let powers = fields.map(|(grad, before)| T::of(constants.power(before.wide(), grad)));
    tensor(powers.collect::<Vec<T>>(), [batch])
}

/// See [`AdamPartOps::adam_advance_3d`](super::part::AdamPartOps::adam_advance_3d).
pub(super) fn advance_part(
    [grad, mean, square, power]: [FlexTensor; 4],
    constants: &AdamConstants,
) -> (FlexTensor, FlexTensor, FlexTensor) {
    let (mean, square, _) = take_part([grad, mean, square, power.clone()], constants);
    let longest = longest_of_part([mean.clone(), square.clone(), power], constants);
    (mean, square, longest)
}

/// The longest vector of each field of a batch.
fn longest_of<T: Real, M: Real>(
    [mean, square, power]: [&FlexTensor; 3],
    constants: &AdamConstants,
) -> FlexTensor {
    let batch = mean.layout().shape()[0];
    let (mean, square) = (elements::<M>(mean), elements::<M>(square));
    let len = mean.len() / batch;
    let fields = elements::<T>(power).iter().zip(mean.chunks(len).zip(square.chunks(len)));
    let lengths = fields.map(|(power, (mean, square))| {
        T::of(longest(mean, square, constants, constants.floor(power.wide())))
    });
    tensor(lengths.collect::<Vec<T>>(), [batch])
}

/// The direction, each field times `scale(n, component)`.
fn direction<T: Real, M: Real>(
    taken: &UpdatedMoments<Flex>,
    constants: &AdamConstants,
    scale: impl Fn(usize, usize) -> f64,
) -> FlexTensor {
    let shape = taken.mean.layout().shape().clone();
    let (mean, square) = (elements::<M>(&taken.mean), elements::<M>(&taken.square));
    let len = mean.len() / shape[0] / 3;
    let mut direction = vec![T::default(); mean.len()];
    for (i, component) in direction.chunks_mut(len).enumerate() {
        let floor = constants.floor(elements::<T>(&taken.power)[i / 3].wide());
        let scale = scale(i / 3, i % 3);
        let moments = mean[i * len..].par_iter().zip(&square[i * len..]);
        component.par_iter_mut().with_min_len(BLOCK).zip(moments).for_each(|(d, (m, v))| {
            *d = T::of(scale * constants.direction(m.wide(), v.wide(), floor));
        });
    }
    tensor(direction, shape)
}

fn step<T: Real, M: Real>(
    taken: &UpdatedMoments<Flex>,
    constants: &AdamConstants,
    rate: [f64; 3],
) -> FlexTensor {
    let lengths = elements::<T>(&taken.longest);
    direction::<T, M>(taken, constants, |n, c| rate[c] / lengths[n].wide().max(1.0))
}

impl AdamPieces for Flex {
    fn take_gradient(
        grad: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        power: FloatTensor<Self>,
        constants: AdamConstants,
    ) -> UpdatedMoments<Self> {
        let inputs = [grad, mean, square, power].map(|tensor| tensor.to_contiguous());
        let (of_grad, of_mean) = (inputs[0].dtype(), inputs[1].dtype());
        by_dtypes!(of_grad, of_mean, take(inputs.each_ref(), &constants))
    }

    fn stepped(
        field: FloatTensor<Self>,
        taken: &UpdatedMoments<Self>,
        constants: AdamConstants,
        StepRule { rate, update }: StepRule,
    ) -> FloatTensor<Self> {
        let (of_field, of_mean) = (field.dtype(), taken.mean.dtype());
        let step = by_dtypes!(of_field, of_mean, step(taken, &constants, rate));
        match update {
            Update::Compositive => Self::compose_3d(field, step, Accumulation::Fast),
            Update::Additive => Self::float_add(field, step),
        }
    }
}

impl AdamOps for Flex {
    fn adam_3d(
        grad: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        power: FloatTensor<Self>,
        constants: AdamConstants,
    ) -> (
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
    ) {
        let (of_grad, of_mean) = (grad.dtype(), mean.dtype());
        let taken = Self::take_gradient(grad, mean, square, power, constants);
        let direction = by_dtypes!(of_grad, of_mean, direction(&taken, &constants, |_, _| 1.0));
        (direction, taken.longest, taken.mean, taken.square, taken.power)
    }
}
