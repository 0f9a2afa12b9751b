//! Kernel products with automatic derivatives on every backend, and what they are made for: shapes and transport.
//!
//! ```
//! use burn::tensor::{Device, Distribution, Tensor};
//! use ffdp_shapes::{Kernel, kernel_product};
//!
//! let device = Device::flex().autodiff();
//! let x = Tensor::<2>::random([100, 3], Distribution::Default, &device).require_grad();
//! let b = Tensor::<2>::random([100, 3], Distribution::Default, &device);
//! let energy = (kernel_product(&Kernel::gaussian(0.2), x.clone(), x.clone(), b.clone()) * b).sum();
//! let to_x = x.grad(&energy.backward());
//! assert!(to_x.is_some());
//! ```
//!
//! # Map of the crate
//! Arrows point down only (a test of the workspace, `tests/architecture.rs`, enforces it):
//! ```text
//! lddmm                       geodesics of shapes: matching, regression, atlas; what their flow carries
//!   > attachment              landmarks, currents, varifolds, transport: how unlike two shapes are
//!     > sinkhorn              optimal transport with entropy
//! files, surface              PLY, VTK, OBJ, STL, GIfTI; surfaces of label maps
//!   > shape                   clouds, curves, meshes: areas, distances, self-intersections
//! tensors                     positions as tensors
//! normalized                  bistochastic kernels
//!   > product                 kernel products as functions of tensors
//!   > kernel                  gaussian, laplacian, cauchy, energy, sums; with directions
//!     > reduce                sums, log-sum-exp, neighbours of a formula: CPU, GPU, tape
//!       > ranges              pairs of clusters that count
//!       > formula             expressions, their derivatives, the order of evaluation
//! ```
//! Read `formula/mod.rs` first, then `reduce/mod.rs`. A sum of your own is a [`Formula`]. A further kernel is a variant
//! of [`Decay`], a further data term one of [`Attachment`](attachment::Attachment), a format a file of `files/` with its
//! lines in `mod.rs`.

pub mod attachment;
pub mod files;
pub mod formula;
mod kernel;
pub mod lddmm;
pub mod normalized;
mod product;
mod ranges;
pub mod reduce;
pub mod shape;
pub mod sinkhorn;
mod surface;
pub mod tensors;

pub use formula::Formula;
pub use kernel::{Decay, Directions, Kernel};
pub use product::{
    directed_product, kernel_product, kernel_product_of_widths, kernel_product_to_x,
};
pub use ranges::Ranges;
pub use shape::{Cells, Position, Shape, ShapeTree};
pub use surface::{SurfaceSettings, label_surfaces};
