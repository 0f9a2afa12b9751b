//! What the volumes of a series are brought onto, and how.

use std::fmt;
use std::str::FromStr;

use ffdp_register::{
    Settings, Similarity, Stage, methods::GreedySettings, settings::LinearSettings,
};

/// The image of a series that its volumes are brought onto.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reference {
    /// The mean of the volumes: a first pass brings them onto the middle one, a second one onto their mean. The default:
    /// the noise of a single volume would be in every result.
    #[default]
    Mean,
    /// The volume in the middle, or the next to it that can be used: the one from which the others are least far.
    Middle,
    /// The first volume.
    First,
    /// The volume with this number, from 0.
    Volume(usize),
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "mean" => Ok(Self::Mean),
            "middle" => Ok(Self::Middle),
            "first" => Ok(Self::First),
            other => other.parse().map(Self::Volume).map_err(|_| {
                format!("a reference is mean, middle, first or the number of a volume from 0, got {text:?}")
            }),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mean => f.write_str("mean"),
            Self::Middle => f.write_str("middle"),
            Self::First => f.write_str("first"),
            Self::Volume(k) => write!(f, "{k}"),
        }
    }
}

/// Voxels along the longest axis with which the last level is fine enough: those of an echo-planar image of high
/// resolution. Of smaller volumes the last level has nearly all voxels.
const FINE_VOXELS: usize = 128;

/// How a series is registered to itself: rigid, by the squared difference, for its volumes have one contrast. An affine
/// stage and a deformation follow for those who want more; what comes after the stage that is wanted is left out.
pub fn motion_settings(last: &str) -> Settings {
    let linear = LinearSettings {
        similarity: Similarity::Mse,
        fine_voxels: FINE_VOXELS,
        ..LinearSettings::default()
    };
    let mut stages = vec![Stage::Rigid(linear.clone()), Stage::Affine(linear)];
    stages.push(Stage::Greedy(GreedySettings::default()));
    if let Some(at) = stages.iter().position(|stage| stage.name() == last) {
        stages.truncate(at + 1);
    }
    Settings { stages, ..Settings::default() }
}
