//! The fused layers of networks: modules of the shape that those of `ffdp_burn::ops` have.
//!
//! `mod.rs` formula, public function and backend trait · `flex.rs` the CPU (also the oracle) · `cube.rs` the GPU ·
//! `autodiff.rs` the chain rule · `tests.rs`. Read `mean_pool/mod.rs` first. Volumes are `[N, C, D, H, W]`, tokens
//! have their channels last.

pub mod amsgrad;
pub mod conv3d;
pub mod instance_norm;
pub mod join_conv3d;
pub mod layer_norm;
pub mod linear;
pub mod mean_pool;
pub mod position_bias;
pub mod upsample;
pub mod upsample_conv3d;
pub mod window_attention;
pub mod windows;

pub(crate) mod precision;

pub use amsgrad::{AmsGradMoments, AmsGradOptions, amsgrad};
pub use conv3d::between::conv3d_between;
pub use conv3d::{conv3d, conv3d_with};
pub use instance_norm::{InstanceNormOptions, instance_norm, instance_norm_in_parts};
pub use join_conv3d::join_conv3d;
pub use layer_norm::layer_norm;
pub use linear::{Activation, linear};
pub use mean_pool::mean_pool;
pub use position_bias::position_bias;
pub use precision::Precision;
pub use upsample::{upsample_x2, upsample_x2_join};
pub use upsample_conv3d::upsample_conv3d;
pub use window_attention::window_attention;
pub use windows::{WindowCut, cut_windows, join_windows};
