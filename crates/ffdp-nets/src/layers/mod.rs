//! Layers for volumes, shared by the networks.
//!
//! Each file is one layer with its tests. [`initializer`] draws every weight on the host, so that
//! a seed means the same network on every device.

mod append_zeros;
mod conv3d;
mod conv3d_relu;
mod drop_path;
pub mod fused;
pub mod initializer;
mod max_pool3d;

pub use append_zeros::append_zeros;
pub use conv3d::Conv3d;
pub use conv3d_relu::Conv3dRelu;
pub use drop_path::DropPath;
pub use max_pool3d::MaxPool3d;
