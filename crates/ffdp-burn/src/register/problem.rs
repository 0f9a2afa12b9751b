//! What is registered: two images, and where the search starts.

use crate::image::{Affine, Physical, Volume};

/// Two images, each on its own grid, and what is known about them.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// The image that stays.
    pub fixed: &'a Volume,
    /// The image that is brought onto it.
    pub moving: &'a Volume,
    /// Where the moving image lies to begin with: from points of the fixed to points of the moving
    /// image, RAS mm. The identity trusts the headers.
    pub initial: Affine<Physical, Physical>,
}

impl<'a> Problem<'a> {
    /// Two images as their headers place them.
    pub fn new(fixed: &'a Volume, moving: &'a Volume) -> Self {
        Self { fixed, moving, initial: Affine::identity() }
    }
}
