//! What a synthetic subject is sampled with: grid, contrast, artefacts, shape variation.

use serde::{Deserialize, Serialize};

use super::head::HEAD_MM;
use super::modality::Modality;
use super::warp::WarpSettings;
use crate::image::Geometry;
use crate::{Error, Result};

/// Settings of a synthetic subject; the same seed and settings give the same bits on any number
/// of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PhantomSettings {
    /// Voxels along (x, y, z). Default: 64 each, a size that a CPU registers in seconds.
    pub size: [usize; 3],
    /// Voxel size along (x, y, z), mm. Default: the isotropic spacing at which the whole head
    /// (156 x 200 x 168 mm) just fits the grid.
    pub spacing_mm: Option<[f64; 3]>,
    /// Contrast of the image, and of a pair's moving image. Default: T1-weighted MRI.
    pub modality: Modality,
    /// Contrast of a pair's fixed image; the same as the moving one by default.
    pub fixed_modality: Option<Modality>,
    /// Factor on the per-label standard deviations of the tissue texture. Default 1.
    pub texture: f64,
    /// Sigma of the smoothing of the intensities, voxels. Default 0.75, as Algorithm 6 of the paper.
    pub smoothing_voxels: f64,
    /// Standard deviation of the scanner's noise in the brain, intensities being in 0..1.
    /// Default 0.012, about 1.5 % of white matter.
    pub noise: f64,
    /// Amplitude of the smooth multiplicative bias field. Default 0.04 (rms of 4 %).
    pub bias: f64,
    /// How subjects differ in shape.
    pub warp: WarpSettings,
}

impl Default for PhantomSettings {
    fn default() -> Self {
        Self {
            size: [64; 3],
            spacing_mm: None,
            modality: Modality::T1,
            fixed_modality: None,
            texture: 1.0,
            smoothing_voxels: 0.75,
            noise: 0.012,
            bias: 0.04,
            warp: WarpSettings::default(),
        }
    }
}

impl PhantomSettings {
    /// The default settings on a grid of `size` voxels along (x, y, z).
    pub fn with_size(size: [usize; 3]) -> Self {
        Self { size, ..Self::default() }
    }

    /// # Errors
    /// The first setting that has no meaning, with its value.
    pub fn validate(&self) -> Result<()> {
        self.warp.validate()?;
        for (name, value, highest) in [
            ("texture", self.texture, 20.0),
            ("smoothing_voxels", self.smoothing_voxels, 10.0),
            ("noise", self.noise, 1.0),
            ("bias", self.bias, 0.3),
        ] {
            if !(0.0..=highest).contains(&value) {
                return Err(Error::invalid(
                    format!("phantom: {name} must lie in 0..{highest}"),
                    value,
                    "use 0 to switch it off",
                ));
            }
        }
        self.geometry().map(|_| ())
    }

    /// The grid: axes along RAS+, the head's box in its centre.
    ///
    /// # Errors
    /// A size or spacing that [`Geometry::new`] rejects.
    pub fn geometry(&self) -> Result<Geometry> {
        let extent = [0, 1, 2].map(|axis| HEAD_MM[1][axis] - HEAD_MM[0][axis]);
        let fit = (0..3).map(|axis| extent[axis] / self.size[axis].max(1) as f64);
        let spacing_mm = self.spacing_mm.unwrap_or([fit.fold(0.0, f64::max); 3]);
        let origin = [0, 1, 2].map(|axis| {
            let centre = 0.5 * (HEAD_MM[0][axis] + HEAD_MM[1][axis]);
            centre - 0.5 * (self.size[axis].max(1) - 1) as f64 * spacing_mm[axis]
        });
        Geometry::new(self.size, spacing_mm)?.with_origin(origin)
    }
}
