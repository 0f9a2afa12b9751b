//! The methods: each a room or a file of its own, and one line in [`Stage::listed`](super::Stage).
//!
//! A method that moves the image as a whole lies in `linear/`; one that improves fields voxel by voxel says which
//! ([`FieldMethod`]) and has everything else from `deformable/`. Any other method, also of a program that
//! uses this crate, is a [`Method`]: it has the images of its levels from a [`StageRun`], iterates as it likes and says
//! what it has found.

pub(super) mod deformable;
mod greedy;
pub(super) mod linear;
mod own;
mod svf;
mod syn;

pub use greedy::GreedySettings;
pub(super) use own::find;
pub use own::{Finding, Given, LevelImages, Method, OwnMethod, StageRun};
pub use svf::SvfSettings;
pub use syn::SynSettings;

use deformable::FieldMethod;

use super::context::{Found, Run, Staged};
use super::settings::{LinearSettings, MomentsSettings};
use ffdp_burn::error::Result;

/// A linear stage: its settings, and what finds the map.
type FindLinear = fn(&mut Run, &LinearSettings, Found) -> Result<Staged>;

/// A stage as the engine runs it.
pub(super) enum Listed<'a> {
    Moments(&'a MomentsSettings),
    Linear(&'static str, &'a LinearSettings, FindLinear),
    Fields(&'a dyn FieldMethod),
    Own(&'a dyn Method),
}
