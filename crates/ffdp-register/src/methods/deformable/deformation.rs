//! What a level of a deformable method comes to, whatever improves it.

use std::sync::Arc;

use crate::level::Solver;
use crate::parametric::Parametric;
use ffdp_image::error::Result;
use ffdp_parallel::Sharded;

/// Fields, and what the first of them is exactly.
pub(crate) type Reached = (Vec<Sharded>, Option<Arc<dyn Parametric>>);

/// What improves the fields of a level.
pub(crate) trait Deformation: Solver {
    /// The loss of what was reached, without penalties.
    fn loss(&mut self) -> Result<f64>;

    /// The fields that were reached, and what the first of them is exactly, as a displacement.
    fn into_fields(self: Box<Self>) -> Result<Reached>;
}
