//! What is compared: the engine's deformations, and ways of other kinds. Each gives a map from the fixed to the moving
//! image, and `registration.rs` does the rest.

use std::fmt;
use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use ffdp_register::methods::BaselineGreedy;
use ffdp_register::{LevelSettings, Preset, Settings, Stage};

use super::tables::REFERENCE;

/// A way to register a pair whose images are aligned up to a deformation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchMethod {
    /// As the headers place the images.
    Identity,
    /// Moments, rigid, affine, down to 2 mm.
    Affine,
    /// A deformation of the engine, by its name in settings, with its defaults: LNCC.
    Stage(&'static str),
    /// The greedy method by Burn's own operations and its autodiff.
    Baseline,
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

/// All of them, with what each is.
static ALL: LazyLock<Vec<BenchMethod>> = LazyLock::new(|| {
    let stages = Stage::built_in().into_iter().filter(|(stage, _)| !stage.is_linear());
    let stages = stages.map(|(stage, _)| BenchMethod::Stage(stage.name()));
    let before = [BenchMethod::Identity, BenchMethod::Affine].into_iter();
    let after =
        [BenchMethod::Baseline, BenchMethod::Upsampled, BenchMethod::Network, BenchMethod::Patches];
    before.chain(stages).chain(after).collect()
});

impl ValueEnum for BenchMethod {
    fn value_variants<'a>() -> &'a [Self] {
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Self::Identity => ("identity", "As the headers place the images"),
            Self::Affine => ("affine", "Moments, rigid, affine, down to 2 mm"),
            Self::Stage(name) => (*name, about(name)?),
            Self::Baseline => {
                ("baseline", "The greedy method by Burn's own operations and its autodiff")
            }
            Self::Upsampled => {
                ("upsampled", "The greedy warp of the coarsest resolution, on all finer ones")
            }
            Self::Network => (
                "network",
                "The network of --model, which sees the whole image at the resolution of its training",
            ),
            Self::Patches => (
                "patches",
                "The same at the image's own resolution, in patches as large as the images of its training",
            ),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

/// What a method of the engine does.
fn about(name: &str) -> Option<&'static str> {
    Stage::built_in().into_iter().find_map(|(stage, about)| (stage.name() == name).then_some(about))
}

/// A method of the engine with its defaults.
fn stage(name: &str) -> Option<Stage> {
    Stage::built_in().into_iter().map(|(stage, _)| stage).find(|stage| stage.name() == name)
}

impl BenchMethod {
    /// The settings of the engine at a spacing; `None` where it does nothing.
    pub fn settings(self, spacing_mm: f64) -> Option<Settings> {
        self.settings_on(spacing_mm, levels(spacing_mm))
    }

    /// The settings of shorter and longer runs, which end after a quarter and after all iterations of each level but the
    /// last, and after a quarter of the last; none of a method that has no such levels.
    pub fn shorter(self, spacing_mm: f64) -> Vec<Settings> {
        let (Self::Stage(_) | Self::Baseline) = self else { return Vec::new() };
        let whole = self.settings(spacing_mm);
        let cuts = cut(&levels(spacing_mm)).into_iter();
        let shorter = cuts.filter_map(|levels| self.settings_on(spacing_mm, levels));
        shorter.filter(|settings| Some(settings) != whole.as_ref()).collect()
    }

    fn settings_on(self, spacing_mm: f64, levels: Vec<LevelSettings>) -> Option<Settings> {
        let name = match self {
            Self::Identity | Self::Network | Self::Patches => return None,
            Self::Affine => return Some(affine(spacing_mm)),
            Self::Upsampled | Self::Baseline => REFERENCE,
            Self::Stage(name) => name,
        };
        let stage = stage(name)?.with_levels(levels);
        Some(Settings { stages: vec![stage], ..Settings::default() })
    }

    /// The settings by the operations of the method.
    pub fn by_its_operations(self, mut settings: Settings) -> Settings {
        for stage in settings.stages.iter_mut().filter(|_| self == Self::Baseline) {
            if let Stage::Greedy(greedy) = stage {
                *stage = Stage::own(BaselineGreedy(greedy.clone()));
            }
        }
        settings
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
impl fmt::Display for BenchMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Identity => "identity",
            Self::Affine => "affine",
            Self::Stage(name) => name,
            Self::Baseline => "greedy, baseline",
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

/// The first levels, the last of them with a quarter and with all of its iterations.
fn cut(levels: &[LevelSettings]) -> Vec<Vec<LevelSettings>> {
    let ended = |(at, level): (usize, &LevelSettings)| {
        let last = [level.iterations.div_ceil(4), level.iterations];
        let last = last.map(|iterations| LevelSettings { iterations, ..*level });
        last.map(|last| levels[..at].iter().copied().chain([last]).collect())
    };
    levels.iter().enumerate().flat_map(ended).collect()
}

/// The linear stages of the default preset, on levels of the same size in mm at any resolution.
fn affine(spacing_mm: f64) -> Settings {
    let finer = (LINEAR_UNIT_MM / spacing_mm).clamp(1.0, LARGEST_SHRINK / 8.0);
    let mut settings = Settings::preset(Preset::Default);
    settings.stages.retain(Stage::is_linear);
    for stage in &mut settings.stages {
        stage.coarsen(finer);
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
    fn shorter_runs_end_within_and_after_each_level() {
        let ends = |method: BenchMethod| -> Vec<Vec<usize>> {
            let stages = method.shorter(1.0).into_iter().flat_map(|settings| settings.stages);
            let levels = stages.map(|stage| match stage {
                Stage::Greedy(greedy) => greedy.levels,
                Stage::Svf(svf) => svf.levels,
                other => panic!("{other:?}"),
            });
            levels.map(|levels| levels.iter().map(|level| level.iterations).collect()).collect()
        };
        let expected = [vec![50], vec![200], vec![200, 50], vec![200, 200], vec![200, 200, 50]];
        for method in
            [BenchMethod::Stage("greedy"), BenchMethod::Stage("svf"), BenchMethod::Baseline]
        {
            assert_eq!(ends(method), expected, "{method}");
        }
        for method in [BenchMethod::Identity, BenchMethod::Affine, BenchMethod::Stage("discrete")] {
            assert!(method.shorter(1.0).is_empty(), "{method}");
        }
    }

    #[test]
    fn settings_are_valid_at_any_resolution() {
        for method in BenchMethod::value_variants() {
            for spacing_mm in [0.01, 0.25, 0.9, 1.0, 3.0] {
                if let Some(settings) = method.settings(spacing_mm) {
                    for settings in [shortened(&settings), settings] {
                        let valid = method.by_its_operations(settings).validate();
                        valid.unwrap_or_else(|e| panic!("{method} {spacing_mm}: {e}"));
                    }
                }
            }
        }
    }
}
