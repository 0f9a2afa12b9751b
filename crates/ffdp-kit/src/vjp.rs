//! The one file that knows Burn's autodiff tape.
//!
//! An op's `autodiff.rs` states only its chain rule, as a [`Vjp`] (vector-Jacobian product);
//! [`record`] puts it on the tape.

use std::fmt::Debug;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata};
use burn::tensor::DType;

/// The chain rule of an op with `N` float inputs and one float output: a vector-Jacobian product. `B` is the backend
/// below the tape. See the [crate's example](crate).
pub trait Vjp<B: Backend, const N: usize>: Send + Debug + Copy + 'static {
    /// What the forward pass keeps for the backward pass.
    type Saved: Clone + Send + Debug + 'static;

    /// The gradients of the inputs, from `grad`, that of the output.
    ///
    /// `needs[i]` is whether input `i` wants a gradient; the answer for the others is ignored.
    fn backward(
        saved: Self::Saved,
        grad: FloatTensor<B>,
        needs: [bool; N],
    ) -> [Option<FloatTensor<B>>; N];
}

/// Functions of an op's trait that the tape cannot record: called on tracked tensors, they panic with `message`.
/// A function is written as in the trait, without the names of its arguments.
///
/// ```ignore
/// impl<B: InverseOps, C: CheckpointStrategy> InverseOps for Autodiff<B, C> {
///     refuse! { "inverse: not differentiable; take the displacement off the tape (`inner`)";
///         fn inverse_3d(FloatTensor<Self>, bool) -> FloatTensor<Self>;
///     }
/// }
/// ```
#[macro_export]
macro_rules! refuse {
    ($message:expr; $(fn $name:ident($($input:ty),* $(,)?) -> $output:ty;)+) => {
        $(fn $name($(_: $input),*) -> $output { panic!("{}", $message) })+
    };
}

/// [`refuse!`] for the backward passes of an op, named in the message: Burn differentiates once.
#[macro_export]
macro_rules! refuse_second_order {
    ($op:literal; $($functions:tt)+) => {
        $crate::refuse! {
            concat!($op, ": second-order gradients are not supported"); $($functions)+
        }
    };
}

/// Adapter from [`Vjp`] to Burn's [`Backward`].
#[derive(Debug)]
struct Rule<V, const N: usize> {
    _rule: V,
    /// Of the inputs; their gradients have the same.
    dtypes: [DType; N],
}

impl<B: Backend, V: Vjp<B, N>, const N: usize> Backward<B, N> for Rule<V, N> {
    type State = V::Saved;

    fn backward(self, ops: Ops<V::Saved, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let ids: [Option<NodeId>; N] = ops.parents.map(|parent| parent.map(|node| node.id));
        let needs = ids.map(|id| id.is_some());
        let gradients = V::backward(ops.state, grad, needs);
        for ((id, gradient), dtype) in ids.into_iter().zip(gradients).zip(self.dtypes) {
            if let Some(id) = id {
                let gradient = gradient.expect("a Vjp returns every gradient that is needed");
                let gradient = match gradient.dtype() == dtype {
                    true => gradient,
                    false => B::float_cast(gradient, dtype.into()),
                };
                grads.register::<B>(id, gradient);
            }
        }
    }
}

/// Runs `forward` on the plain tensors and records `rule` for the backward pass.
///
/// `forward` is given which inputs want a gradient, and returns the output and what to save.
///
/// # Panics
/// In the backward pass, if the rule leaves a gradient out that is needed.
pub fn record<B, C, V, const N: usize>(
    rule: V,
    inputs: [FloatTensor<Autodiff<B, C>>; N],
    forward: impl FnOnce([FloatTensor<B>; N], [bool; N]) -> (FloatTensor<B>, V::Saved),
) -> FloatTensor<Autodiff<B, C>>
where
    B: Backend,
    C: CheckpointStrategy,
    V: Vjp<B, N>,
{
    let needs = inputs.each_ref().map(wants_gradient::<B, C>);
    let dtypes = inputs.each_ref().map(|input| input.dtype());
    let nodes = inputs.each_ref().map(|input| input.node());
    let (output, saved) = forward(inputs.map(|input| input.into_primitive()), needs);
    match (Rule { _rule: rule, dtypes }).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(saved, output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}

/// The product of a finished gradient with the upstream one, a number `[1]` that only the device knows.
pub type Scaled<B> = fn(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>;

/// [`Scaled`], of any backend.
pub fn scaled<B: Backend>(gradient: FloatTensor<B>, upstream: FloatTensor<B>) -> FloatTensor<B> {
    let ones = vec![1; gradient.shape().num_dims()];
    B::float_mul(gradient, B::float_reshape(upstream, ones.into()))
}

/// The chain rule of a number `[1]` whose gradients are finished in the forward pass, and saved.
#[derive(Clone, Copy, Debug)]
struct KnownGradients;

impl<B: Backend, const N: usize> Vjp<B, N> for KnownGradients {
    type Saved = ([Option<FloatTensor<B>>; N], Scaled<B>);

    fn backward(
        (gradients, scaled): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; N],
    ) -> [Option<FloatTensor<B>>; N] {
        gradients.map(|gradient| Some(scaled(gradient?, grad.clone())))
    }
}

/// [`record`] for a number `[1]` that is computed with its gradients, as fused losses and penalties are: the backward
/// pass only multiplies them by the upstream gradient, by [`scaled`] or by a kernel of the operation's own.
///
/// `forward` is given which inputs want a gradient, and returns the number and the gradients; what it returns for
/// the other inputs is dropped.
pub fn record_with_gradients<B: Backend, C: CheckpointStrategy, const N: usize>(
    inputs: [FloatTensor<Autodiff<B, C>>; N],
    scaled: Scaled<B>,
    forward: impl FnOnce([FloatTensor<B>; N], [bool; N]) -> (FloatTensor<B>, [FloatTensor<B>; N]),
) -> FloatTensor<Autodiff<B, C>> {
    record::<B, C, _, N>(KnownGradients, inputs, |inputs, needs| {
        let (number, gradients) = forward(inputs, needs);
        let mut needs = needs.into_iter();
        let needed = gradients.map(|gradient| needs.next()?.then_some(gradient));
        (number, (needed, scaled))
    })
}

/// A gradient that bypasses the tape, which gives its two ends their order alone: steps that look at parts of
/// a tensor [put](OffTape::put) theirs somewhere, and the tensor's owner, whom the tape reaches after all of them,
/// [takes](OffTape::take) their sum from there.
pub trait OffTape<B: Backend>: Send + Debug + Copy + 'static {
    /// What such a step keeps.
    type Look: Clone + Send + Debug + 'static;
    /// What the owner keeps.
    type Owned: Clone + Send + Debug + 'static;

    /// Puts away the gradient of what a step looks at.
    fn put(look: Self::Look, grad: FloatTensor<B>);

    /// The gradient of all.
    fn take(owned: Self::Owned) -> FloatTensor<B>;
}

#[derive(Debug)]
struct Put<V>(V);

impl<B: Backend, V: OffTape<B>> Backward<B, 1> for Put<V> {
    type State = V::Look;

    fn backward(self, ops: Ops<V::Look, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        V::put(ops.state, grads.consume::<B>(&ops.node));
    }
}

#[derive(Debug)]
struct Take<V>(V);

impl<B: Backend, V: OffTape<B>> Backward<B, 1> for Take<V> {
    type State = V::Owned;

    fn backward(self, ops: Ops<V::Owned, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [parent] = ops.parents;
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, V::take(ops.state));
        }
    }
}

/// `tensor` itself, as the owner of what is looked at.
pub fn record_owner<B: Backend, C: CheckpointStrategy, V: OffTape<B>>(
    rule: V,
    tensor: FloatTensor<Autodiff<B, C>>,
    owned: V::Owned,
) -> FloatTensor<Autodiff<B, C>> {
    let node = [tensor.node()];
    match Take(rule).prepare::<C>(node).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(owned, tensor.into_primitive()),
        OpsKind::UnTracked(prep) => prep.finish(tensor.into_primitive()),
    }
}

/// `part` of an owner, with its values.
pub fn record_look<B: Backend, C: CheckpointStrategy, V: OffTape<B>>(
    rule: V,
    owner: FloatTensor<Autodiff<B, C>>,
    part: FloatTensor<B>,
    look: V::Look,
) -> FloatTensor<Autodiff<B, C>> {
    match Put(rule).prepare::<C>([owner.node()]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(look, part),
        OpsKind::UnTracked(prep) => prep.finish(part),
    }
}

/// Whether the tape leads from `input` to anything that requires a gradient.
///
/// Burn keeps the node's requirement to itself but answers through the kind of preparation;
/// a preparation that is not finished leaves no trace.
fn wants_gradient<B: Backend, C: CheckpointStrategy>(input: &FloatTensor<Autodiff<B, C>>) -> bool {
    #[derive(Debug)]
    struct Probe;
    impl<B: Backend> Backward<B, 1> for Probe {
        type State = ();
        fn backward(self, _: Ops<(), 1>, _: &mut Gradients, _: &mut Checkpointer) {
            unreachable!("a probe is never put on the tape")
        }
    }
    let prepared = Backward::<B, 1>::prepare::<C>(Probe, [input.node()]);
    matches!(prepared.compute_bound().stateful(), OpsKind::Tracked(_))
}
