//! Tools of the test suites: seeded tensors, finite differences, comparison, devices.
//!
//! The order of trust is finite differences (f64) > CPU (f64) > CPU (f32) > GPU.

mod compare;
mod devices;
mod fields;
mod gradcheck;
mod tensors;

pub use compare::{assert_close, max_relative_error};
pub use devices::{gpu_devices, several_gpus, skipped};
pub use fields::{FIELD_SHAPES, field, value_and_gradient};
pub use gradcheck::{Gradcheck, gradcheck};
pub use tensors::{normal, tensor, to_f64, uniform};
