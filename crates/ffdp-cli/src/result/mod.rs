//! What a registration has found and what it is worth: the command writes it, the Python package returns it. `held.rs` reads
//! it back from the device, `measuring.rs` measures it, `files.rs` writes what
//! is shown then, `measures.rs` is what `metrics.json` has of it,
//! `prediction.rs` is all of that of a network.

mod files;
mod folds;
mod held;
mod jacobian;
mod measures;
mod measuring;
mod prediction;

pub use files::{ResultFiles, When};
pub use folds::Folds;
pub use held::{HeldResult, PairVolumes, ResultRequest};
pub use measures::{Measured, ResultMeasures};
pub use measuring::ResultPlanes;
pub use prediction::{PredictInputs, Prediction, PredictionMeasures, shows_all};
