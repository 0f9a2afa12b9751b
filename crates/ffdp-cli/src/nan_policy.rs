//! `--nan-policy`.

use clap::ValueEnum;
use ffdp_image::Error;

use crate::failure::Result;

/// What to do about voxels that are not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NanPolicy {
    /// Refuse the image.
    Error,
    /// Set them to zero.
    Zero,
    /// Set them to zero, and ignore them in a registration.
    Mask,
}

impl NanPolicy {
    /// # Errors
    /// For voxels that are to be ignored by a command that gives none a weight.
    pub fn check_without_weights(self, command: &str) -> Result<()> {
        if self != Self::Mask {
            return Ok(());
        }
        let because = format!("ffdp {command} gives voxels no weights, all count");
        let fix = "set such voxels to zero: --nan-policy zero";
        Err(Error::without_effect("--nan-policy mask", because, fix).into())
    }
}
