//! Planes of an image that is read, on a device, as long as the next ones are near.

use std::ops::Range;

use burn::Tensor;
use burn::tensor::Device;

use crate::layout::Axis;
use crate::sharded::{join, narrow};
use ffdp_image::error::Result;

/// Of the planes that are asked for, one part in this many is held in addition, of those before.
const SPARE: usize = 8;

/// The planes that were asked for last: those that the next ones share with them are not read again.
#[derive(Default)]
pub struct HeldPlanes(Option<(Range<usize>, Tensor<5>)>);

impl HeldPlanes {
    /// The planes of `window`, with a few more on either side: which they are, and what they hold, `[1, C, n, H, W]`.
    /// `read` gives planes as a tensor on `device`.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn hold(
        &mut self,
        window: Range<usize>,
        device: &Device,
        mut read: impl FnMut(Range<usize>) -> Result<Tensor<5>>,
    ) -> Result<(Range<usize>, Tensor<5>)> {
        let dim = Axis::Z.dim();
        let joins = |held: &Range<usize>| held.start < window.end && window.start < held.end;
        let held = self.0.take().filter(|(held, image)| joins(held) && image.device() == *device);
        let mut parts = Vec::new();
        let mut all = window.clone();
        match held {
            None => parts.push(read(window)?),
            Some((held, image)) => {
                if window.start < held.start {
                    parts.push(read(window.start..held.start)?);
                }
                let end = window.end.max(held.end);
                // A few more: the next ones may reach a little further back.
                let before = window.start.saturating_sub(window.len() / SPARE);
                all = window.start.min(held.start.max(before))..end;
                let first = all.start.max(held.start);
                parts.push(narrow(image, dim, first - held.start..held.len()));
                if held.end < window.end {
                    parts.push(read(held.end..window.end)?);
                }
            }
        }
        let image = join(parts, dim);
        self.0 = Some((all.clone(), image.clone()));
        Ok((all, image))
    }

    /// Releases all planes.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}
