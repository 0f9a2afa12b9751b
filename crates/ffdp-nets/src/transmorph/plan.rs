//! What the blocks of a stage have in common.

use crate::ops::Precision;

/// Shape of one stage.
pub(super) struct StagePlan<'a> {
    pub channels: usize,
    pub heads: usize,
    pub window: [usize; 3],
    /// Probability of dropping each block; its length is the depth.
    pub drop_path: &'a [f64],
    pub merges: bool,
    pub precision: Precision,
}
