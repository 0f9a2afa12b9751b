//! The normalisation of a volume in parts: moments and sums of a part, between which those of all parts
//! are put together.
//!
//! ```text
//! forward     mean, v of every part   ->  m, 1 / sqrt(v + eps) of the whole   ->  y of every part
//! backward    sum h, sum h n of parts ->  mean h, mean h n of the whole       ->  dL/dx of every part
//! ```
//! Letters as in [`instance_norm`](super). Both arrows in the middle are a few numbers a channel, which
//! travel between the devices of the parts along the tape; in the place of the gradient of the moments
//! the two sums come back. What a part keeps is its `y`, as the whole does.

use std::any::Any;
use std::sync::{Arc, Mutex};

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, TensorMetadata, backend_extension};
use burn::tensor::Shape;

use super::InstanceNormOptions;
use ffdp_kit::vjp::{Vjp, record};

/// Backend operations on a part `[N, C, D, H, W]`; pairs of numbers of its channels `[2, N C]`. They know no
/// tape: that is [`InstanceNormTapeOps`].
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Fusion: cfg(feature = "cube"))]
pub trait InstanceNormPartOps: Backend {
    /// Means and biased variances.
    #[fusion(dtype = x, shape = pairs(x))]
    fn instance_moments_3d(x: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Means and scales `[2, N C]` of a volume, from the moments of its parts `[K, 2, N C]` and their shares of its
    /// voxels `[K]`: `m = sum_k share_k m_k`, `v = sum_k share_k (v_k + (m_k - m)^2)`.
    #[fusion(dtype = moments, shape = { let _ = shares; scaling(moments) })]
    fn instance_scaling_3d(
        moments: FloatTensor<Self>,
        shares: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self>;

    /// The result, from means and scales.
    #[fusion(dtype = x, shape = { let _ = scaling; x.clone() })]
    fn instance_apply_3d(
        x: FloatTensor<Self>,
        scaling: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> FloatTensor<Self>;

    /// The sums of `h` and of `h n`, from the result and its gradient.
    #[fusion(dtype = y, shape = { let _ = grad; pairs(y) })]
    fn instance_sums_3d(
        y: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> FloatTensor<Self>;

    /// The gradient of `x`; `means` are those of `h` and of `h n`.
    #[fusion(dtype = y, shape = y)]
    fn instance_finish_3d(
        y: FloatTensor<Self>,
        scaling: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        means: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> FloatTensor<Self>;
}

#[cfg(feature = "cube")] // asked for by fusion
fn pairs(x: &Shape) -> Shape {
    Shape::from([2, x[0] * x[1]])
}

#[cfg(feature = "cube")]
fn scaling(moments: &Shape) -> Shape {
    Shape::from([moments[1], moments[2]])
}

/// The tape's side of it.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait InstanceNormTapeOps: Backend {
    /// The moments of a part, whose gradient is made of the sums of the whole and of what `link` holds.
    #[fusion(dtype = x, shape = pairs(x))]
    fn instance_part_moments(x: FloatTensor<Self>, link: Link) -> FloatTensor<Self>;

    /// [`InstanceNormPartOps::instance_scaling_3d`].
    #[fusion(dtype = moments, shape = { let _ = shares; scaling(moments) })]
    fn instance_scaling(
        moments: FloatTensor<Self>,
        shares: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self>;

    /// The result of a part; its backward pass gives the sums to `scaling` and its gradient to `link`.
    #[fusion(dtype = x, shape = { let _ = scaling; x.clone() })]
    fn instance_part_apply(
        x: FloatTensor<Self>,
        scaling: FloatTensor<Self>,
        link: Link,
    ) -> FloatTensor<Self>;
}

/// What the first and the last step of a part share on the tape. It is filled by the last, and emptied by
/// the first, which comes after it in the backward pass.
#[derive(Clone, Debug)]
pub struct Link {
    options: InstanceNormOptions,
    /// One over the voxels of the whole.
    share: f64,
    held: Arc<Mutex<Option<Box<dyn Any + Send>>>>,
}

/// In the backward pass: the result of a part, the scaling, and the gradient of the result.
type Held<B> = [FloatTensor<B>; 3];

/// [`instance_norm`](super::instance_norm()) of a volume in `parts`, each on any device, with the moments
/// of the whole. `of_all` makes of a tensor `[1, 2, N C]` of every part one of all, `[K, 2, N C]`, for the device
/// of every part, differentiably. Differentiable (first order); the backward pass needs a gradient of every part.
///
/// # Shapes
/// parts `[N, C, D_k, H_k, W_k]`; results the same.
///
/// # Panics
/// If samples or channels of the parts differ, or as the whole.
pub fn instance_norm_in_parts(
    parts: Vec<Tensor<5>>,
    options: &InstanceNormOptions,
    of_all: impl FnOnce(Vec<Tensor<3>>) -> Vec<Tensor<3>>,
) -> Vec<Tensor<5>> {
    parts.iter().for_each(|part| options.assert_sound(part));
    let [n, c, ..] = parts[0].dims();
    assert!(
        parts.iter().all(|part| part.dims()[..2] == [n, c]),
        "instance_norm: parts of different samples or channels"
    );
    let voxels: Vec<f64> = parts.iter().map(|part| voxels(part) as f64).collect();
    let all: f64 = voxels.iter().sum();
    let link = || Link { options: *options, share: 1.0 / all, held: Arc::default() };
    let links: Vec<Link> = parts.iter().map(|_| link()).collect();
    let moments = parts.iter().zip(&links).map(|(part, link)| {
        let x = part.clone().into_dispatch();
        let moments = <Dispatch as InstanceNormTapeOps>::instance_part_moments(x, link.clone());
        Tensor::<2>::from_dispatch(moments).unsqueeze()
    });
    let moments = of_all(moments.collect());
    let shares: Vec<f64> = voxels.iter().map(|voxels| voxels / all).collect();
    let apply = |((part, link), moments): ((Tensor<5>, Link), Tensor<3>)| {
        let shares = Tensor::<1>::from_data(shares.as_slice(), (&part.device(), part.dtype()));
        let (moments, shares) = (moments.into_dispatch(), shares.into_dispatch());
        let scaling =
            <Dispatch as InstanceNormTapeOps>::instance_scaling(moments, shares, options.epsilon);
        // The tape leads through the moments alone.
        let x = part.detach().into_dispatch();
        Tensor::from_dispatch(<Dispatch as InstanceNormTapeOps>::instance_part_apply(
            x, scaling, link,
        ))
    };
    parts.into_iter().zip(links).zip(moments).map(apply).collect()
}

fn voxels(part: &Tensor<5>) -> usize {
    part.dims()[2..].iter().product()
}

/// Off the tape.
macro_rules! without_tape {
    ($backend:ty) => {
        impl InstanceNormTapeOps for $backend {
            fn instance_part_moments(x: FloatTensor<Self>, _: Link) -> FloatTensor<Self> {
                Self::instance_moments_3d(x)
            }

            fn instance_scaling(
                moments: FloatTensor<Self>,
                shares: FloatTensor<Self>,
                epsilon: f64,
            ) -> FloatTensor<Self> {
                Self::instance_scaling_3d(moments, shares, epsilon)
            }

            fn instance_part_apply(
                x: FloatTensor<Self>,
                scaling: FloatTensor<Self>,
                link: Link,
            ) -> FloatTensor<Self> {
                Self::instance_apply_3d(x, scaling, link.options)
            }
        }
    };
}

without_tape!(burn::backend::Flex);
#[cfg(feature = "cube")]
without_tape!(burn_cubecl::CubeBackend);

#[derive(Clone, Copy, Debug)]
struct MomentsVjp;

impl<B: InstanceNormPartOps> Vjp<B, 1> for MomentsVjp {
    type Saved = Link;

    fn backward(link: Link, sums: FloatTensor<B>, _: [bool; 1]) -> [Option<FloatTensor<B>>; 1] {
        let held = link.held.lock().expect("no holder panics").take();
        let held = held.expect("the backward pass reaches every part of a normalised volume, once");
        let held: Box<Held<B>> = held.downcast().expect("a part stays on its backend");
        let [y, scaling, grad] = *held;
        let means = B::float_mul_scalar(sums, link.share.into());
        [Some(B::instance_finish_3d(y, scaling, grad, means, link.options))]
    }
}

#[derive(Clone, Copy, Debug)]
struct ScalingVjp;

impl<B: InstanceNormPartOps> Vjp<B, 1> for ScalingVjp {
    /// The shape of the moments.
    type Saved = Shape;

    fn backward(shape: Shape, sums: FloatTensor<B>, _: [bool; 1]) -> [Option<FloatTensor<B>>; 1] {
        let one = Shape::from([1, shape[1], shape[2]]);
        // To every part the sums of the whole.
        [Some(B::float_expand(B::float_reshape(sums, one), shape))]
    }
}

#[derive(Clone, Copy, Debug)]
struct ApplyVjp;

impl<B: InstanceNormPartOps> Vjp<B, 2> for ApplyVjp {
    type Saved = Option<(FloatTensor<B>, FloatTensor<B>, Link)>;

    fn backward(
        saved: Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let sums = saved.map(|(y, scaling, link)| {
            let sums = B::instance_sums_3d(y.clone(), grad.clone(), link.options);
            let held: Held<B> = [y, scaling, grad];
            *link.held.lock().expect("no holder panics") = Some(Box::new(held));
            sums
        });
        [None, sums]
    }
}

impl<B: InstanceNormPartOps, C: CheckpointStrategy> InstanceNormTapeOps for Autodiff<B, C> {
    fn instance_part_moments(x: FloatTensor<Self>, link: Link) -> FloatTensor<Self> {
        record::<B, C, _, 1>(MomentsVjp, [x], |[x], _| (B::instance_moments_3d(x), link))
    }

    fn instance_scaling(
        moments: FloatTensor<Self>,
        shares: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let shares = shares.into_primitive();
        record::<B, C, _, 1>(ScalingVjp, [moments], |[moments], _| {
            let shape = moments.shape();
            (B::instance_scaling_3d(moments, shares, epsilon), shape)
        })
    }

    fn instance_part_apply(
        x: FloatTensor<Self>,
        scaling: FloatTensor<Self>,
        link: Link,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 2>(ApplyVjp, [x, scaling], |[x, scaling], [_, wanted]| {
            let y = B::instance_apply_3d(x, scaling.clone(), link.options);
            (y.clone(), wanted.then_some((y, scaling, link)))
        })
    }
}
