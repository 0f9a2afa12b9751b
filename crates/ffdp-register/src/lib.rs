//! The engine: multi-resolution registration of two volumes, in stages.
//!
//! [`Register`] takes a fixed and a moving image, each on its own grid, and finds the
//! [`Composite`](ffdp_burn::transform::Composite) transform that carries the moving image onto the fixed one. Start
//! reading at `register.rs`: a run is a list of stages (`stages.rs`), a stage a list of levels (`level.rs`), a level the
//! iterations of a solver (`methods/`), and what deforms is a model (`models.rs`); `side.rs` makes the levels' images,
//! `settings/` holds every number that can be chosen, `result/` is what comes of it.
//!
//! # Map of the crate
//! From the images to the result:
//! ```text
//! problem                 the images, masks and channels; where the search starts
//! shared                  an image of several registrations
//! settings > schedule     the numbers of methods; stages in order, presets, what works with what
//! register                a run from beginning to end
//! requirements, checks    what must hold before it starts
//! coverage, histogram     masks of what an image shows; histogram matching
//! intensities > side      scaling to [0, 1]; an image on any level
//! pyramid                 the grids of the levels
//! places, level_memory    device or host memory of each shard; bytes that a level takes
//! shards, processes       how many shards a run needs; ranks that share a volume
//! start                   initial transforms
//! stages > context        stages in order; what each works with and has found
//! methods                 rigid to affine, discrete, greedy, SyN, SVF, FFD, GNK; methods and models of a program
//! level > convergence     iterations of a level; when they end
//! pair                    the images of a level, and the similarity under a transform
//! landmarks, labels       further terms of the loss
//! models > fields         displacement, halves or velocity; vectors of voxels in shards
//! parametric              displacements of few parameters
//! observer > report       progress of levels and stages
//! checkpoint              where a run can be continued
//! result > verdict        warped image, transform, inverse; aligned or not
//! file_warp               files through transforms, a run of planes at a time
//! ```
//!
//! # Of your own
//! | what | implement | or add here |
//! |---|---|---|
//! | similarity | `SimilarityLoss` of `ffdp-burn` | a file and a line of its `losses/similarities/` |
//! | transform model | [`TransformModel`](methods::TransformModel) | a `Model` of fields in `models.rs` |
//! | method, a stage | [`Method`](methods::Method) | a file of `methods/`, a line in each list of its `mod.rs` |
//! | preset | [`Settings`] | a variant of [`Preset`] |
//! | progress report | [`Observer`] | |
//!
//! ```
//! use ffdp_image::synth::{PhantomSettings, pair};
//! use ffdp_register::{LevelSettings, Register, Settings, Stage, methods::GreedySettings};
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

pub mod checkpoint;
mod checks;
mod context;
mod convergence;
pub mod coverage;
mod fields;
pub mod file_warp;
mod histogram;
mod intensities;
mod labels;
mod landmarks;
mod level;
mod level_memory;
pub mod methods;
mod models;
mod observer;
mod pair;
mod parametric;
mod places;
mod problem;
mod processes;
pub mod pyramid;
mod register;
pub mod report;
mod requirements;
pub mod result;
mod schedule;
pub mod settings;
mod shards;
pub mod shared;
mod side;
mod stages;
mod start;
pub mod verdict;

#[cfg(test)]
mod tests;

pub use methods::Stage;
pub use observer::{Observer, Silent};
pub use places::Placement;
pub use problem::{Content, Problem, Source};
pub use register::Register;
pub use result::Registration;
pub use schedule::{Preset, Settings, matrix};
pub use settings::{LevelSettings, Similarity};

/// Memory of the levels of a registration.
pub mod memory {
    pub use super::level_memory::LevelMemory;
    pub use super::shards::shards_needed;
}
