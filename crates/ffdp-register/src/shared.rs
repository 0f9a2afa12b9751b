//! An image that several registrations share: what each of them makes of it alone is made once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::{Device, Tensor};

use super::coverage::Unknown;
use super::intensities::{Scale, intensity_range};
use ffdp_image::error::Result;
use ffdp_image::image::{Counted, Geometry, Volume};

/// The fixed image of many registrations, as of the volumes of a series. Given in place of a volume
/// ([`Source`](super::Source)), its range of intensities and its levels are made by the first registration that asks for
/// them, and kept for the others, in parallel or later. The results are those of the volume itself, to the bit.
///
/// With a mask, with padding or with more channels nothing is kept: then it is a volume like any other.
///
/// ```
/// use ffdp_register::{Preset, Register, Settings, shared::SharedImage};
/// # use ffdp_image::synth::{PhantomSettings, pair};
/// # let pair = pair(&PhantomSettings::with_size([24; 3]), 7)?;
/// # let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
/// let mut settings = Settings::preset(Preset::Fast);
/// settings.stages.truncate(2);
/// let shared = SharedImage::new(fixed);
/// for moving in [moving, fixed] {
///     let found = Register::new(&shared, moving).settings(&settings).run()?;
///     assert!(found.warp.is_none());
/// }
/// # Ok::<(), ffdp_image::Error>(())
/// ```
pub struct SharedImage<'a> {
    volume: &'a Volume,
    made: Mutex<Made>,
}

/// What was made of it so far.
#[derive(Default)]
struct Made {
    unknown: Option<Unknown>,
    /// By the percentiles that were asked for.
    ranges: Vec<([f64; 2], [f32; 2])>,
    tensors: Vec<OnGrid>,
}

/// The image, scaled, on one grid.
struct OnGrid {
    scale: Scale,
    device: Device,
    grid: Geometry,
    tensor: Tensor<5>,
}

impl<'a> SharedImage<'a> {
    /// Nothing is made yet.
    pub fn new(volume: &'a Volume) -> Self {
        Self { volume, made: Mutex::default() }
    }

    /// The image.
    pub fn volume(&self) -> &'a Volume {
        self.volume
    }

    // Held for look-ups alone: what is made in parallel twice is the same.
    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn unknown(&self) -> Result<Unknown> {
        if let Some(known) = self.made().unknown {
            return Ok(known);
        }
        let found = Unknown::of(&mut { self.volume })?;
        self.made().unknown = Some(found);
        Ok(found)
    }

    /// The intensities that become 0 and 1; `name` is that of the image in messages.
    pub(super) fn range(&self, name: &str, percentiles: [f64; 2]) -> Result<[f32; 2]> {
        let known = self.made().ranges.iter().find(|(of, _)| *of == percentiles).copied();
        if let Some((_, range)) = known {
            return Ok(range);
        }
        let mut all = Counted { image: &mut { self.volume }, mask: None, above: None };
        let range = intensity_range(name, &mut all, percentiles)?;
        self.made().ranges.push((percentiles, range));
        Ok(range)
    }

    /// The image on a grid and a device, made where it is not there.
    pub(super) fn on_grid(
        &self,
        scale: &Scale,
        device: &Device,
        grid: &Geometry,
        make: impl FnOnce() -> Result<Tensor<5>>,
    ) -> Result<Tensor<5>> {
        let is_asked_for =
            |of: &&OnGrid| of.grid == *grid && of.scale == *scale && of.device == *device;
        let known = self.made().tensors.iter().find(is_asked_for).map(|of| of.tensor.clone());
        if let Some(tensor) = known {
            return Ok(tensor);
        }
        let tensor = make()?;
        let (scale, device, grid) = (scale.clone(), device.clone(), grid.clone());
        self.made().tensors.push(OnGrid { scale, device, grid, tensor: tensor.clone() });
        Ok(tensor)
    }
}
