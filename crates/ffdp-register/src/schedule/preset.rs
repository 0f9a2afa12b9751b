//! Complete settings by the name of what they are for.

use serde::{Deserialize, Serialize};

use super::{Settings, Stage};
use crate::methods::{DiscreteSettings, GreedySettings, SvfSettings};
use crate::settings::{
    AdamSettings, LevelSettings, LinearSettings, MiSettings, MindSettings, MomentsSettings,
    OptimizerSettings, Regularization, Similarity,
};

/// What a registration is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// A look: nothing at full resolution, where most of the time goes.
    Fast,
    /// Two images of one modality.
    #[default]
    Default,
    /// A stationary velocity with a coarser level more for what lies far off, and linear results at twice the resolution:
    /// the highest mean Dice of all methods on 20 pairs of brains, 0.006 % of the voxels folded. (Twice the
    /// iterations of `default` lowered it.)
    Quality,
    /// Images of different modalities: deformed by mutual information, stiffly. The same tissue is not
    /// equally bright everywhere, so that a field that is free to do so makes the images share more
    /// other than the truth does; a bending energy of 400 mm^2 forbids most of it and leaves known warps free
    /// (docs/evaluation.md). Steps in proportion to the gradient (`gradient_floor` 3) converge where those of
    /// equal length made the stiff cost grow. The linear stages compare by normalised mutual information in
    /// every preset.
    Multimodal,
    /// Images that lie far apart or hardly look alike: a discrete search of large displacements first, then descent by
    /// the descriptors (MIND) that it compares. A bending energy of 40 mm^2 keeps what the search has found
    /// (docs/registration.md).
    Hard,
}

impl Preset {
    fn linear(self) -> LinearSettings {
        let linear = LinearSettings::default();
        match self {
            Self::Fast => LinearSettings { fine_voxels: 80, ..linear },
            Self::Quality => LinearSettings { fine_voxels: 320, ..linear },
            Self::Default | Self::Multimodal | Self::Hard => linear,
        }
    }

    /// The last stage.
    fn deformation(self) -> Stage {
        let levels = |list: &[(f64, usize)]| -> Vec<LevelSettings> {
            list.iter().map(|&(shrink, iterations)| LevelSettings { shrink, iterations }).collect()
        };
        // As measured, before there was another penalty.
        let alone =
            |bending| Regularization { diffusion: Some(0.0), bending, ..Regularization::default() };
        let greedy = GreedySettings::default();
        Stage::Greedy(match self {
            Self::Default => greedy,
            Self::Fast => GreedySettings { levels: levels(&[(4.0, 100), (2.0, 50)]), ..greedy },
            Self::Quality => {
                return Stage::Svf(SvfSettings {
                    levels: levels(&[(8.0, 200), (4.0, 200), (2.0, 100), (1.0, 50)]),
                    ..SvfSettings::default()
                });
            }
            Self::Multimodal => GreedySettings {
                optimizer: OptimizerSettings::Adam(AdamSettings {
                    gradient_floor: 3.0,
                    ..AdamSettings::default()
                }),
                similarity: Similarity::Mi(MiSettings::default()),
                sigma_gradient_voxels: 2.0,
                regularization: alone(400.0),
                levels: levels(&[(8.0, 200), (4.0, 200), (2.0, 100), (1.0, 50)]),
                ..greedy
            },
            Self::Hard => GreedySettings {
                sigma_gradient_voxels: 1.0,
                similarity: Similarity::Mind(MindSettings::default()),
                regularization: alone(40.0),
                levels: levels(&[(4.0, 100), (2.0, 100), (1.0, 50)]),
                ..greedy
            },
        })
    }
}

impl Settings {
    /// The settings of a preset. All begin with moments, rigid, affine.
    pub fn preset(preset: Preset) -> Self {
        let linear = preset.linear();
        let mut stages = vec![
            Stage::Moments(MomentsSettings::default()),
            Stage::Rigid(linear.clone()),
            Stage::Affine(linear),
        ];
        if preset == Preset::Hard {
            stages.push(Stage::Discrete(DiscreteSettings::default()));
        }
        stages.push(preset.deformation());
        Self {
            stages,
            intensity_percentiles: [1.0, 99.9],
            match_histograms: false,
            landmark_sigma_mm: None,
            landmark_sigma_first_mm: None,
            label_term: None,
            loss_interval: 10,
            minimum_axis_voxels: 16,
        }
    }
}
