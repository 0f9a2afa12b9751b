//! What is registered: two images, what of them counts, and where the search starts.

use ffdp_image::image::{Affine, Physical, Volume};

/// Two images, each on its own grid, and what is known about them.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// The image that stays. One plane (a size of 1 along z) where the moving image is one too: then
    /// nothing moves along z.
    pub fixed: &'a Volume,
    /// The image that is brought onto it.
    pub moving: &'a Volume,
    /// Further channels, fixed and moving, each on the grid of the image above: other contrasts of the
    /// same anatomy. All channels count the same.
    pub more_channels: &'a [[&'a Volume; 2]],
    /// How much each voxel of the fixed image counts, in 0..1, on its grid; without, all count. What
    /// lies at 0 is never looked at, also not for the scaling of intensities.
    pub fixed_mask: Option<&'a Volume>,
    /// The same for the moving image.
    pub moving_mask: Option<&'a Volume>,
    /// Where the moving image lies to begin with: from points of the fixed to points of the moving
    /// image, RAS mm. The identity trusts the headers.
    pub initial: Affine<Physical, Physical>,
}

impl<'a> Problem<'a> {
    /// Two images as their headers place them.
    pub fn new(fixed: &'a Volume, moving: &'a Volume) -> Self {
        Self {
            fixed,
            moving,
            more_channels: &[],
            fixed_mask: None,
            moving_mask: None,
            initial: Affine::identity(),
        }
    }
}
