//! Training of registration networks: TransMorph or VoxelMorph learns to register pairs of images.
//!
//! Arrows point down only (a test in `tests/architecture.rs` enforces it):
//! ```text
//! report                     the page of a run
//!   > train, evaluate        Burn's Learner on a model; the closing table
//! predict, import            images to transforms; weights from PyTorch
//!   > team                   several devices, several pairs a step
//!   > model > objective      what a step is; what is minimised
//!   > run                    a run that is about to start or to continue
//!   > checkpoint, input      what is saved and which epoch is best; what a network expects of images
//!   > pictures               slices, warped grids and learning curves as PNG
//!   > journal, metrics, progress, schedule, optimizer
//!   > data                   images, pairs, their order, augmentation, prefetching
//!       > arguments > settings, user_flags, folder, stderr
//! ```
//! A term of the loss is a field of [`settings::Settings`] and its lines in `objective.rs`; a similarity is one of
//! `ffdp-burn`, a network one of `ffdp-nets`. A random change of the training images is a field of
//! [`settings::Augmentation`] and its lines in `data/augment.rs`.
//!
//! `ffdp train` and `cargo run --example transmorph` are two entrances to the same modules. A run lives in
//! a folder ([`RunFolder`]) which holds everything that is needed to continue it or to predict with
//! it: settings, network, checkpoints, journal, pictures.
//!
//! | feature | what it brings |
//! |---|---|
//! | `cli` | `arguments`: settings as flags of a command line; `user_flags`: flags that have no effect |
//! | `report` | `pictures` and `report`: PNG files and the page of a run |
//! | `tui` | Burn's dashboard on a terminal; without it lines of text |
//!
//! [`TrainingRun::begin`] and [`carry_out`] need none of them.

#[cfg(feature = "cli")]
mod arguments;
mod checkpoint;
pub mod data;
pub mod evaluate;
mod folder;
pub mod import;
pub mod input;
mod journal;
mod metrics;
pub mod model;
pub mod objective;
mod optimizer;
#[cfg(feature = "report")]
pub mod pictures;
pub mod predict;
mod progress;
#[cfg(feature = "report")]
pub mod report;
mod run;
pub mod schedule;
pub mod settings;
mod stderr;
pub mod team;
#[cfg(test)]
mod tests;
mod train;
#[cfg(feature = "cli")]
pub mod user_flags;

#[cfg(feature = "cli")]
pub use arguments::{Recipe, TrainArguments};
pub use folder::RunFolder;
pub use optimizer::AmsGrad;
pub use run::{Ending, TrainingRun};
pub use train::{Trained, train};

use data::Dataset;
use evaluate::Evaluation;
use ffdp_image::Result;
use team::Team;

/// What a run found.
#[derive(Debug)]
pub struct Finished {
    /// The network, as it was after the best epoch, and what the training took.
    pub trained: Trained,
    /// Its figures on held-out pairs.
    pub evaluation: Evaluation,
}

/// Trains and evaluates as the arguments say.
///
/// # Errors
/// Arguments without meaning, files that cannot be read or written, failures of the device.
#[cfg(feature = "cli")]
pub fn run(arguments: &TrainArguments, team: &Team) -> Result<Finished> {
    carry_out(&TrainingRun::open(arguments)?, team)
}

/// Trains and evaluates a run that is about to start or to continue.
///
/// # Errors
/// Files that cannot be read or written, failures of the devices, and devices that cannot train so.
pub fn carry_out(run: &TrainingRun, team: &Team) -> Result<Finished> {
    team.check(&run.settings)?;
    let dataset = Dataset::open(&run.settings)?;
    run.prepare()?;
    stderr::say(&dataset.summary());
    let trained = train(run, &dataset, team)?;
    let inference = team.inference(trained.model.clone())?;
    let evaluation = evaluate::evaluate(run, &dataset, &inference)?;
    #[cfg(feature = "report")]
    {
        pictures::curves::draw(&run.folder, run.settings.loss.name(), evaluation.mean_dice())?;
        report::write(run, &trained, &evaluation)?;
    }
    Ok(Finished { trained, evaluation })
}
