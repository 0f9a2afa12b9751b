//! What it takes to write a fused operation for Burn: a function of tensors with an implementation of its own for
//! every backend, and a hand-derived backward pass. The operations of `ffdp` are written with it;
//! `examples/custom_op` of the repository is one that is not part of it, with a GPU kernel.
//!
//! | module | what it holds | feature |
//! |---|---|---|
//! | [`vjp`] | the chain rule of an operation, and Burn's autodiff tape | |
//! | [`real`] | element types of the CPU; values out of tensors and into them | |
//! | [`half`] | images stored in half precision | |
//! | [`dense`] | new tensors without gaps | |
//! | `launch` | buffers, grids of cubes and deterministic sums of CubeCL kernels | `cube` |
//! | `march` | kernels that walk through a volume plane by plane | `cube` |
//! | `tensor_cores` | products of small matrices in TF32 | `cube` |
//! | `keep_kernels` | compiled kernels on disk | `persistence` |
//! | `testing` | finite differences, comparison, devices, seeded tensors | `testing` |
//!
//! `wgpu` and `cuda` choose GPU backends and include `cube`.
//!
//! # How to write an operation
//! One folder, five files:
//! 1. `mod.rs`: the formula, the public function, and a trait with [`#[backend_extension]`](burn::backend::backend_extension)
//!    whose functions are the forward and the backward pass on a backend's tensors. Under `fusion` the macro takes the
//!    shape and the type of a result from `#[fusion(..)]`. It looks `cfg` up in the crate that uses it: an
//!    operation's crate has a feature `cube` of its own.
//! 2. `flex.rs`: the trait for burn-flex, the CPU, written to be read. In f64 it is the oracle of all tests.
//! 3. `autodiff.rs`: the trait for `Autodiff<B>`: the chain rule as a [`Vjp`](vjp::Vjp), put on the tape by
//!    [`record`](vjp::record). Burn differentiates once, so the backward pass has none of its own.
//! 4. `cube.rs`: the trait for `CubeBackend`, which is CUDA, Vulkan, Metal and WebGPU: a kernel with `#[cube]`, and
//!    its launch.
//! 5. `tests.rs`: exact cases; the gradient against finite differences (f64, CPU); the GPU against the CPU.
//!
//! The whole of an operation for the CPU:
//! ```
//! use burn::Tensor;
//! use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
//! use burn::backend::flex::FlexTensor;
//! use burn::backend::tensor::FloatTensor;
//! use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
//! use ffdp_kit::real::{Real, by_dtype, elements, readable, tensor};
//! use ffdp_kit::vjp::{Vjp, record};
//!
//! // mod.rs: y = x / (1 + |x|),   dL/dx = g / (1 + |x|)^2
//! #[backend_extension(Flex, Autodiff)]
//! pub trait SoftSignOps: Backend {
//!     fn soft_sign(x: FloatTensor<Self>) -> FloatTensor<Self>;
//!     fn soft_sign_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self>;
//! }
//!
//! pub fn soft_sign<const D: usize>(x: Tensor<D>) -> Tensor<D> {
//!     Tensor::from_dispatch(<Dispatch as SoftSignOps>::soft_sign(x.into_dispatch()))
//! }
//!
//! // flex.rs
//! fn values<T: Real>(x: &FlexTensor) -> FlexTensor {
//!     let y = elements::<T>(x).iter().map(|x| T::of(x.wide() / (1.0 + x.wide().abs())));
//!     tensor(y.collect::<Vec<T>>(), x.layout().shape().clone())
//! }
//!
//! fn gradient<T: Real>(x: &FlexTensor, grad: &FlexTensor) -> FlexTensor {
//!     let pairs = elements::<T>(x).iter().zip(elements::<T>(grad));
//!     let to_x = pairs.map(|(x, g)| T::of(g.wide() / (1.0 + x.wide().abs()).powi(2)));
//!     tensor(to_x.collect::<Vec<T>>(), x.layout().shape().clone())
//! }
//!
//! impl SoftSignOps for Flex {
//!     fn soft_sign(x: FloatTensor<Self>) -> FloatTensor<Self> {
//!         let x = readable(x);
//!         by_dtype!("soft_sign", x.dtype(), values(&x))
//!     }
//!
//!     fn soft_sign_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
//!         let (x, grad) = (readable(x), readable(grad));
//!         by_dtype!("soft_sign", x.dtype(), gradient(&x, &grad))
//!     }
//! }
//!
//! // autodiff.rs
//! #[derive(Clone, Copy, Debug)]
//! struct SoftSignVjp;
//!
//! impl<B: SoftSignOps> Vjp<B, 1> for SoftSignVjp {
//!     type Saved = FloatTensor<B>;
//!
//!     fn backward(x: Self::Saved, grad: FloatTensor<B>, _: [bool; 1]) -> [Option<FloatTensor<B>>; 1] {
//!         [Some(B::soft_sign_backward(x, grad))]
//!     }
//! }
//!
//! impl<B: SoftSignOps, C: CheckpointStrategy> SoftSignOps for Autodiff<B, C> {
//!     fn soft_sign(x: FloatTensor<Self>) -> FloatTensor<Self> {
//!         record::<B, C, _, 1>(SoftSignVjp, [x], |[x], _| (B::soft_sign(x.clone()), x))
//!     }
//!
//!     fn soft_sign_backward(_: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
//!         panic!("soft_sign: second-order gradients are not supported")
//!     }
//! }
//!
//! # #[cfg(feature = "testing")] {
//! // tests.rs
//! use burn::tensor::{DType, Device};
//! use ffdp_kit::testing::{gradcheck, normal, tensor, to_f64};
//!
//! let device = Device::flex().autodiff();
//! let outcome = gradcheck(&["x"], &[normal(20, 1)], 1e-4, |inputs| {
//!     let x: Tensor<2> = tensor(&inputs[0], [4, 5], &device, DType::F64).require_grad();
//!     let loss = soft_sign(x.clone()).powi_scalar(2).sum();
//!     let gradients = loss.backward();
//!     let to_x = x.grad(&gradients).expect("x wants a gradient");
//!     (to_f64(loss.inner())[0], vec![to_f64(to_x)])
//! });
//! assert!(outcome[0].error < 1e-9, "{outcome:?}");
//! # }
//! ```

pub mod dense;
pub mod half;
#[cfg(feature = "persistence")]
mod kernels;
#[cfg(feature = "cube")]
pub mod launch;
#[cfg(feature = "cube")]
pub mod march;
pub mod real;
#[cfg(feature = "cube")]
pub mod tensor_cores;
#[cfg(feature = "testing")]
pub mod testing;
pub mod vjp;

pub use dense::dense_zeros;
#[cfg(feature = "persistence")]
pub use kernels::keep_kernels;
