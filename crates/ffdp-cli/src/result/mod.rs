//! What a registration has found and what it is worth: the command writes it, the Python package returns it. `held.rs` reads
//! it back from the device, `measures.rs` is what `metrics.json` has of it.

mod folds;
mod held;
mod measures;

pub use folds::Folds;
pub use held::{HeldResult, PairVolumes, ResultRequest};
pub use measures::{Measured, ResultMeasures};
