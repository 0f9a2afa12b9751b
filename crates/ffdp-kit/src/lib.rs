//! What it takes to write a fused operation for Burn: a function of tensors with an implementation of its own for
//! every backend, and a hand-derived backward pass. The operations of `ffdp` are written with it;
//! `examples/custom_op` of the repository is one that is not part of it, with a GPU kernel.
//!
//! | module | what it holds | feature |
//! |---|---|---|
//! | [`vjp`] | the chain rule of an operation, and Burn's autodiff tape | |
//! | [`real`] | element types of the CPU; values out of tensors and into them | |
//! | [`window`] | sums over windows of lines, and loops on the vectors of the processor | |
//! | [`exp`] | the exponential function for such loops | |
//! | [`half`] | images stored in half precision | |
//! | [`dense`] | new tensors without gaps | |
//! | [`place`] | where a tensor lies, and in which precision | |
//! | `cubes` | grids of cubes, within what every GPU offers | `cube` |
//! | `launch` | buffers and deterministic sums of CubeCL kernels | `cube` |
//! | `march` | kernels that walk through a volume plane by plane | `cube` |
//! | `wgpu_device` | the device of wgpu, on an adapter on which kernels compute what they should | `wgpu` |
//! | `tensor_cores` | products of small matrices in TF32 | `cube` |
//! | `keep_kernels` | compiled kernels on disk | `persistence` |
//! | [`rehearsal`] | other processes of a program that compile its kernels | |
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
//!    [`record`](vjp::record), or by [`record_with_gradients`](vjp::record_with_gradients) where the forward pass
//!    finishes the gradients. Burn differentiates once, so the backward pass has none of its own.
//! 4. `cube.rs`: the trait for `CubeBackend`, which is CUDA, Vulkan, Metal and WebGPU: a kernel with `#[cube]`, and
//!    its launch.
//! 5. `tests.rs`: exact cases; the gradient against finite differences (f64, CPU); the GPU against the CPU.
//!
//! `docs/own-op.md` of the repository is the whole of an operation for the CPU in one file, which the tests run.

#[cfg(feature = "wgpu")]
mod adapters;
#[cfg(feature = "cube")]
pub mod cubes;
pub mod dense;
pub mod exp;
pub mod half;
#[cfg(feature = "persistence")]
mod kernels;
#[cfg(feature = "cube")]
pub mod launch;
#[cfg(feature = "cube")]
pub mod march;
pub mod place;
pub mod real;
pub mod rehearsal;
#[cfg(feature = "cube")]
pub mod tensor_cores;
#[cfg(feature = "testing")]
pub mod testing;
pub mod vjp;
pub mod window;

#[cfg(feature = "wgpu")]
pub use adapters::{NoAdapter, wgpu_device};
pub use dense::dense_zeros;
#[cfg(feature = "persistence")]
pub use kernels::keep_kernels;
pub use place::TensorPlace;
