//! The iterations, once for every backend.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Flex, TensorMetadata};
use burn::tensor::Shape;
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;

use super::descend::{Descending, descend};
use super::views::{View, Views, identity};
use super::{DeformOps, DeformPlan, FieldStates};

/// An image with its rows one after the other in memory: one copy for all iterations, where a kernel that is
/// given padded rows makes one each time.
fn dense<B: Backend>(image: FloatTensor<B>) -> FloatTensor<B> {
    let shape = image.shape();
    let line = B::float_reshape(image, Shape::from([shape.num_elements()]));
    B::float_reshape(line, shape)
}

/// All iterations of a plan: the measures before each of them, and the state after the last.
fn iterate<B: Descending>(
    views: &Views<B>,
    states: FieldStates<B>,
    plan: &DeformPlan,
) -> (FloatTensor<B>, FieldStates<B>) {
    let mut values = Vec::with_capacity(plan.iterations);
    let mut states = states.into_vec();
    for count in (plan.seen + 1..).take(plan.iterations) {
        let fields: Vec<_> = states.iter().map(|state| &state.field).collect();
        let seen = views.evaluate(&fields, plan);
        let (value, next) = descend::<B>(seen, states, plan, count);
        values.push(value);
        states = next;
    }
    (B::float_cat(values, 0), FieldStates::new(states))
}

/// The same lines for each backend: the trait cannot have a default body, because Burn's own
/// backends do not know our operations.
macro_rules! implement {
    ($backend:ty) => {
        impl DeformOps for $backend {
            fn deform_3d(
                fixed: FloatTensor<Self>,
                moving: FloatTensor<Self>,
                affine: FloatTensor<Self>,
                fixed_mask: FloatTensor<Self>,
                moving_mask: FloatTensor<Self>,
                states: FieldStates<Self>,
                plan: DeformPlan,
            ) -> (FloatTensor<Self>, FieldStates<Self>) {
                let [fixed_sampling, moving_sampling] = plan.sampling;
                let [fixed_mask, moving_mask] =
                    [plan.masked[0].then_some(fixed_mask), plan.masked[1].then_some(moving_mask)]
                        .map(|mask| mask.map(dense::<Self>));
                let fixed = View {
                    affine: identity::<Self>(&affine),
                    image: dense::<Self>(fixed),
                    mask: fixed_mask,
                    sampling: fixed_sampling,
                };
                let moving = View {
                    image: dense::<Self>(moving),
                    mask: moving_mask,
                    affine,
                    sampling: moving_sampling,
                };
                iterate::<Self>(&Views { fixed, moving }, states, &plan)
            }
        }
    };
}

implement!(Flex);
#[cfg(feature = "cube")]
implement!(CubeBackend);
