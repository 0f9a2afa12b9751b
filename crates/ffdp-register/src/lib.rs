//! The engine: multi-resolution registration of two volumes, in stages.
//!
//! [`Register`] takes a fixed and a moving image, each on its own grid, and finds the
//! [`Composite`](ffdp_burn::transform::Composite) transform that carries the moving image onto the fixed one. Start
//! reading at `register.rs`: a run is a list of stages (`stages.rs`), a stage a list of levels (`level.rs`), a level the
//! iterations of a solver (`methods/`), and what deforms is a model (`models.rs`); `side.rs` makes the levels' images,
//! `settings/` holds every number that can be chosen, `result/` is what comes of it.
//!
//! ```
//! use ffdp_image::synth::{PhantomSettings, pair};
//! use ffdp_register::{GreedySettings, LevelSettings, Register, Settings, Stage};
//!
//! let pair = pair(&PhantomSettings::with_size([24, 24, 24]), 7)?;
//! let greedy = GreedySettings {
//!     levels: vec![LevelSettings { shrink: 2.0, iterations: 20 }],
//!     ..GreedySettings::default()
//! };
//! let settings = Settings { stages: vec![Stage::Greedy(greedy)], ..Settings::default() };
//! let result = Register::new(&pair.fixed.image, &pair.moving.image).settings(&settings).run()?;
//! assert!(result.loss_after < result.loss_before);
//! # Ok::<(), ffdp_image::Error>(())
//! ```

mod checkpoint;
mod checks;
mod context;
mod convergence;
mod coverage;
mod fields;
mod file_warp;
mod histogram;
mod intensities;
mod landmarks;
mod level;
mod methods;
mod models;
mod observer;
mod pair;
mod parametric;
mod places;
mod problem;
mod processes;
mod pyramid;
mod register;
mod report;
mod requirements;
mod result;
mod schedule;
mod settings;
mod shards;
mod shared;
mod side;
mod stages;
mod start;
mod verdict;

#[cfg(test)]
mod tests;

pub use checkpoint::{Checkpoint, SavedField};
pub use checks::MINIMUM_OVERLAP_PERCENT;
pub use coverage::{background, ends_inside};
pub use file_warp::{FILE_WARP_VOXELS, FileInterpolation, FileWarp, LastPiece, NonFiniteVoxels};
pub use level::Solver;
pub use methods::*;
pub use observer::{Observer, Silent};
pub use parametric::Parametric;
pub use places::{LevelMemory, Placement};
pub use problem::{Content, Problem, Source};
pub use pyramid::{
    LevelImage, MINIMUM_AXIS_VOXELS, finest_spacing_mm, level_geometry, level_image,
    level_smoothing,
};
pub use register::Register;
pub use report::{
    LevelReport, LevelStart, NewtonStep, Outcome, Progress, StageReport, Stop, Undone,
};
pub use result::{Folding, Registration, Shown, Warp};
pub use schedule::{Preset, Settings, matrix};
pub use settings::*;
pub use shards::shards_needed;
pub use shared::SharedImage;
pub use verdict::{Assessment, Evidence, MOST_INVERSE_ERROR_VOXELS, Verdict};
