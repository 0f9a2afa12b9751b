//! Where a run can be continued: what it has found after each level.

use super::report::{LevelReport, StageReport};
use ffdp_burn::image::{Affine, Physical};
use ffdp_burn::transform::Displacement;

/// What a run has reached; with the same problem, settings and device, [`resume`](super::resume)
/// goes on from here to the same bits.
///
/// Stages that have ended are known by what they found. Of the stage under way, the levels that have
/// ended are known by what the next level starts from; where a stage keeps nothing of this kind, it
/// starts anew.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Reports of the stages that have ended.
    pub stages: Vec<StageReport>,
    /// The affine map they found, in RAS mm.
    pub affine: Affine<Physical, Physical>,
    /// The deformation they found, on the grid of the fixed image.
    pub warp: Option<Displacement>,
    /// Reports of the levels that have ended in the stage under way.
    pub levels: Vec<LevelReport>,
    /// What its next level starts from.
    pub carried: Carried,
}

/// What a stage hands from one level to the next, by its own order and meaning.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// Fields on the grid of the level that has ended: displacements, velocities.
    pub fields: Vec<Displacement>,
}

impl Checkpoint {
    /// Nothing was done yet.
    pub(super) fn start(initial: Affine<Physical, Physical>) -> Self {
        Self {
            stages: Vec::new(),
            affine: initial,
            warp: None,
            levels: Vec::new(),
            carried: Carried::default(),
        }
    }
}
