//! What is compared. Another method is another variant: it gives a map from the fixed to the moving
//! image, and `registration.rs` does the rest.

use std::fmt;

use clap::ValueEnum;
use ffdp_register::{
    GreedySettings, LevelSettings, Preset, Settings, Stage, SvfSettings, SynSettings,
};

/// A way to register a pair whose images are aligned up to a deformation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// As the headers place the images.
    Identity,
    /// Moments, rigid, affine, down to 2 mm.
    Affine,
    /// Greedy LNCC.
    Greedy,
    /// Symmetric normalisation with LNCC.
    Syn,
    /// Stationary velocity with LNCC.
    Svf,
    /// The greedy warp of the coarsest resolution, on all finer ones.
    Upsampled,
    /// The network of --model, which sees the whole image at the resolution of its training.
    Network,
    /// The same at the image's own resolution, in patches as large as the images of its training.
    Patches,
}

/// Voxel sizes (mm) and iterations of the levels (FFDP paper, K.2). A resolution ends with its own
/// level.
const SCHEDULE: [(f64, usize); 5] = [(4.0, 200), (2.0, 200), (1.0, 200), (0.5, 100), (0.25, 25)];
/// Levels of the schedule are left out unless they are coarser than the image by this factor.
const COARSER: f64 = 1.4;
/// Levels are at most this much coarser than the image; a setting beyond is refused.
const LARGEST_SHRINK: f64 = 64.0;
/// Linear settings count their levels, which begin with 8, in voxels of about this size.
const LINEAR_UNIT_MM: f64 = 1.0;

impl Method {
    /// The settings of the engine at a spacing; `None` where it does nothing.
    pub fn settings(self, spacing_mm: f64) -> Option<Settings> {
        let stage = match self {
            Self::Identity | Self::Network | Self::Patches => return None,
            Self::Affine => return Some(affine(spacing_mm)),
            Self::Greedy | Self::Upsampled => {
                Stage::Greedy(GreedySettings { levels: levels(spacing_mm), ..Default::default() })
            }
            Self::Syn => {
                Stage::Syn(SynSettings { levels: levels(spacing_mm), ..Default::default() })
            }
            Self::Svf => {
                Stage::Svf(SvfSettings { levels: levels(spacing_mm), ..Default::default() })
            }
        };
        Some(Settings { stages: vec![stage], ..Settings::default() })
    }

    /// Whether it needs a trained network.
    pub fn is_learnt(self) -> bool {
        matches!(self, Self::Network | Self::Patches)
    }

    /// Whether the result is a deformation, which can fold.
    pub fn deforms(self) -> bool {
        !matches!(self, Self::Identity | Self::Affine)
    }
}

/// As tables name it.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Identity => "identity",
            Self::Affine => "affine",
            Self::Greedy => "greedy",
            Self::Syn => "SyN",
            Self::Svf => "SVF",
            Self::Upsampled => "greedy, upsampled",
            Self::Network => "network",
            Self::Patches => "network, patches",
        })
    }
}

/// The levels of the schedule that are coarser than the image, and the image's own.
fn levels(spacing_mm: f64) -> Vec<LevelSettings> {
    let level = |&(mm, iterations): &(f64, usize)| {
        let shrink = mm / spacing_mm;
        let coarser = (COARSER..=LARGEST_SHRINK).contains(&shrink);
        coarser.then_some(LevelSettings { shrink, iterations })
    };
    let distance = |mm: f64| (mm / spacing_mm).ln().abs();
    let nearest = SCHEDULE.iter().min_by(|a, b| distance(a.0).total_cmp(&distance(b.0)));
    let own = nearest.map(|&(_, iterations)| LevelSettings { shrink: 1.0, iterations });
    SCHEDULE.iter().filter_map(level).chain(own).collect()
}

/// The linear stages of the default preset, on levels of the same size in mm at any resolution.
fn affine(spacing_mm: f64) -> Settings {
    let finer = (LINEAR_UNIT_MM / spacing_mm).clamp(1.0, LARGEST_SHRINK / 8.0);
    let mut settings = Settings::preset(Preset::Default);
    settings.stages.retain(Stage::is_linear);
    for stage in &mut settings.stages {
        if let Stage::Moments(moments) = stage {
            moments.shrink *= finer;
        }
        stage.levels_mut().iter_mut().for_each(|level| level.shrink *= finer);
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::register::shortened;

    #[test]
    fn levels_are_those_of_the_paper_down_to_the_image() {
        let of = |spacing_mm| -> Vec<(f64, usize)> {
            levels(spacing_mm).iter().map(|l| (l.shrink * spacing_mm, l.iterations)).collect()
        };
        assert_eq!(of(1.0), SCHEDULE[..3]);
        assert_eq!(of(0.5), SCHEDULE[..4]);
        assert_eq!(of(0.25), SCHEDULE);
        assert_eq!(of(1.2), [(4.0, 200), (2.0, 200), (1.2, 200)]);
        assert_eq!(of(6.0), [(6.0, 200)]);
    }

    #[test]
    fn settings_are_valid_at_any_resolution() {
        for method in Method::value_variants() {
            for spacing_mm in [0.01, 0.25, 0.9, 1.0, 3.0] {
                if let Some(settings) = method.settings(spacing_mm) {
                    for settings in [shortened(&settings), settings] {
                        let valid = settings.validate();
                        valid.unwrap_or_else(|e| panic!("{method} {spacing_mm}: {e}"));
                    }
                }
            }
        }
    }
}
