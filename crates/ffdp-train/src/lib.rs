//! Training of registration networks: TransMorph learns to register pairs of images.
//!
//! ```text
//! run              a run from its arguments to its tables; read it first
//!   > train, evaluate, predict        Burn's Learner; the closing table; images to transforms
//!   > import                          weights from PyTorch
//!     > model > objective             what a step is; what is minimised
//!     > checkpoint, schedule, journal, metrics, progress
//!     > pictures                      slices, warped grids and learning curves as PNG
//!     > data                          images, pairs, their order, augmentation, prefetching
//!       > folder, arguments > settings
//! ```
//! `ffdp train` and `cargo run --example transmorph` are two doors to the same rooms. A run lives in
//! a folder ([`RunFolder`]) which holds everything that is needed to continue it or to predict with
//! it: settings, network, checkpoints, journal, pictures.

pub mod arguments;
pub mod checkpoint;
pub mod data;
pub mod evaluate;
pub mod folder;
pub mod import;
pub mod journal;
mod metrics;
pub mod model;
pub mod objective;
pub mod pictures;
pub mod predict;
mod progress;
pub mod run;
pub mod schedule;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod train;

pub use arguments::{Recipe, TrainArguments};
pub use data::Dataset;
pub use evaluate::{Evaluation, evaluate};
pub use folder::RunFolder;
pub use predict::{CheckpointChoice, Predictor};
pub use run::{Finished, Run, run};
pub use settings::Settings;
pub use train::{Trained, train};
