//! How much training images are changed at random.

use ffdp_image::{Error, Result};
use serde::{Deserialize, Serialize};

/// How much images are changed. Every amount is the largest one; 0 changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct Augmentation {
    /// Mirror both images of a pair along random axes of the grid
    #[cfg_attr(feature = "cli", arg(long = "augment-flips"))]
    pub flips: bool,

    /// Turn each image by up to so many degrees about every axis
    #[cfg_attr(
        feature = "cli",
        arg(long = "augment-rotation", value_name = "DEGREES", default_value_t = 0.0)
    )]
    pub rotation: f64,

    /// Stretch each image along every axis by a factor of up to exp(S)
    #[cfg_attr(
        feature = "cli",
        arg(long = "augment-scaling", value_name = "S", default_value_t = 0.0)
    )]
    pub scaling: f64,

    /// Shift each image along every axis by up to so many mm
    #[cfg_attr(
        feature = "cli",
        arg(long = "augment-shift", value_name = "MM", default_value_t = 0.0)
    )]
    pub shift: f64,

    /// Raise intensities (in 0..1) to a power between exp(-G) and exp(G)
    #[cfg_attr(
        feature = "cli",
        arg(long = "augment-gamma", value_name = "G", default_value_t = 0.0)
    )]
    pub gamma: f64,

    /// Multiply intensities by a factor between exp(-B) and exp(B)
    #[cfg_attr(
        feature = "cli",
        arg(long = "augment-brightness", value_name = "B", default_value_t = 0.0)
    )]
    pub brightness: f64,

    /// Add normal noise with a deviation of up to so much (intensities lie in 0..1)
    #[cfg_attr(
        feature = "cli",
        arg(long = "augment-noise", value_name = "SD", default_value_t = 0.0)
    )]
    pub noise: f64,
}

impl Augmentation {
    /// # Errors
    /// The first amount outside its range.
    pub fn validate(&self) -> Result<()> {
        let limits = [
            ("--augment-rotation", self.rotation, 180.0),
            ("--augment-scaling", self.scaling, 1.0),
            ("--augment-shift", self.shift, 1000.0),
            ("--augment-gamma", self.gamma, 2.0),
            ("--augment-brightness", self.brightness, 2.0),
            ("--augment-noise", self.noise, 1.0),
        ];
        for (flag, value, limit) in limits {
            if !(0.0..=limit).contains(&value) {
                let what = format!("{flag} must lie in 0..{limit}");
                return Err(Error::invalid(what, value, "use 0 to switch it off"));
            }
        }
        Ok(())
    }
}
