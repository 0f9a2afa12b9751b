//! `--nan-policy`.

use clap::ValueEnum;

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
