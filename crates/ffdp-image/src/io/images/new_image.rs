//! What is said of an image before its voxels are written, whatever the format.

use super::data_type::DataType;
use super::header::{INTENT_LABEL, INTENT_VECTOR};
use crate::error::{Error, Result};
use crate::image::Geometry;

/// An image that is going to be written: voxels of `data_type`, least significant byte first, x fastest.
#[derive(Clone, Debug)]
pub(super) struct NewImage {
    pub geometry: Geometry,
    pub data_type: DataType,
    pub kind: Kind,
    /// On the grid, one after the other; three components of a displacement.
    pub volumes: usize,
    /// Their distance; 0 where unknown.
    pub time_step_seconds: f64,
    /// Slope and intercept that make real values of the stored ones.
    pub scale: [f64; 2],
}

/// What the values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Image,
    Labels,
    /// Components of vectors.
    Displacement,
    /// Of another intent of NIfTI.
    Other(i32),
}

impl Kind {
    pub fn of_intent(code: i32) -> Self {
        match code {
            0 => Self::Image,
            INTENT_LABEL => Self::Labels,
            other => Self::Other(other),
        }
    }

    pub const fn intent_code(self) -> i32 {
        match self {
            Self::Image => 0,
            Self::Labels => INTENT_LABEL,
            Self::Displacement => INTENT_VECTOR,
            Self::Other(code) => code,
        }
    }
}

impl NewImage {
    /// One volume, not scaled.
    pub fn new(geometry: &Geometry, data_type: DataType, kind: Kind) -> Self {
        let volumes = if kind == Kind::Displacement { 3 } else { 1 };
        let geometry = geometry.clone();
        Self { geometry, data_type, kind, volumes, time_step_seconds: 0.0, scale: [1.0, 0.0] }
    }

    /// Demands what formats of one volume hold.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn check_one_volume(&self, format: &str) -> Result<()> {
        let is_displacement = self.kind == Kind::Displacement;
        if self.volumes == 1 && self.scale == [1.0, 0.0] && !is_displacement {
            return Ok(());
        }
        let what =
            format!("{format} is written for one volume of values without slope and intercept");
        let value = format!("{} volumes, scale {:?}", self.volumes, self.scale);
        Err(Error::invalid(what, value, "write a .nii.gz file"))
    }

    /// Values of all volumes.
    pub fn values(&self) -> usize {
        self.geometry.len() * self.volumes
    }
}
