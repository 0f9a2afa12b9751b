//! What a registration does: from a file, from flags, or as it is by default.
//!
//! Flags change entries by their name in whatever stages have them, so that a new kind of stage
//! needs nothing here.

mod ending;
mod entries;
mod names;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ffdp_burn::ops::ParzenKernel;
use ffdp_groups::series::motion_settings;
use ffdp_image::Error;
use ffdp_image::io::read_toml;
use ffdp_register::methods::gnk::Preconditioner;
use ffdp_register::settings::{LabelTerm, MomentsCentre, MomentsOrder, OrientationSettings};
use ffdp_register::{Preset, Settings, Similarity, Stage};
use toml::{Table, Value};

use crate::failure::{Failure, Result};
use crate::words::Numbers;
use ending::end_with;
use entries::{Stages, as_value, defect, name_of};
use names::{features, metrics, transforms, word_of_others};

/// The flags that choose what is done.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArguments {
    /// Settings to start from (TOML). Every run writes its own as settings.toml in its output folder; other flags change
    /// them.
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// What the settings are for: fast, quality, multimodal, hard [default: default].
    #[arg(long, value_name = "NAME", value_enum, conflicts_with = "settings")]
    pub preset: Option<PresetChoice>,
    /// Two modalities: as --preset multimodal. With another preset, the method of multimodal on the levels of the other.
    #[arg(long, conflicts_with = "settings")]
    pub multimodal: bool,
    /// Last stage: greedy, syn, svf, ffd, gnk, affine, rigid [default: greedy]. Stages before it are kept, those after it are
    /// left out. With --preset quality the default is svf.
    #[arg(long, value_name = "NAME", value_parser = transforms())]
    pub transform: Option<String>,
    /// Begin from moments, geometry or header [default: moments]. How the linear stages begin: from the centres of mass and
    /// principal axes, from the middles of the grids, or from where the headers place the images.
    #[arg(long, alias = "center", value_name = "HOW", value_enum, conflicts_with = "aligned")]
    pub centre: Option<CentreChoice>,
    /// The images are aligned already: only the deformation is found. Moments, rigid and affine stages are left out.
    #[arg(long)]
    pub aligned: bool,
    /// Try all orientations first, for headers that say nothing. With a number those up to so many degrees from the
    /// header's [without: 180, all there are].
    #[arg(long, value_name = "DEGREES", num_args = 0..=1, default_missing_value = "180", conflicts_with = "aligned")]
    pub search: Option<f64>,
    /// Let the points of --landmarks drive, known to so many mm. The number is their standard deviation; without it they are
    /// measured only. Of two numbers the first is that of the coarsest level, the second that of the finest: 8,2.
    #[arg(long, value_name = "MM")]
    pub landmark_sigma: Option<Numbers<f64>>,
    /// Labels whose overlap drives the deformable stages. Their soft Dice is maximised, of labels that are in both
    /// --fixed-labels and --moving-labels. Each takes as much memory as an image; without, labels are measured only.
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',', allow_hyphen_values = true)]
    pub label_terms: Option<Vec<i32>>,
    /// How much the overlap of the labels of --label-terms counts, where what the similarity usually gains counts 1
    /// [default: 1].
    #[arg(long, value_name = "W")]
    pub label_weight: Option<f64>,
    /// Similarity: lncc, mse, mi, nmi, mind, ngf [default: lncc]. That of the deformable stages. Without a deformable stage that of the linear
    /// stages, which otherwise use nmi. With mi or nmi greedy, syn and svf are as stiff as with --multimodal.
    #[arg(long, value_name = "NAME", value_parser = metrics())]
    pub metric: Option<String>,
    /// For --transform discrete and --preset hard: what the search compares [default: mind]. Structure (mind), edges (ngf),
    /// or the values of the images and of --channels as they are (mse, or intensity).
    #[arg(long, value_name = "NAME", value_parser = features())]
    pub features: Option<String>,
    /// Width of the LNCC window in voxels; odd, 3 to 21 [default: 7].
    #[arg(long, value_name = "VOXELS")]
    pub window: Option<usize>,
    /// Bins of mutual information for each image's intensities, 8 to 256 [default: 32].
    #[arg(long, value_name = "N")]
    pub bins: Option<usize>,
    /// How a voxel's vote is spread over the bins of mutual information [default: bspline3].
    #[arg(long, value_name = "NAME", value_enum)]
    pub parzen: Option<ParzenChoice>,
    /// First match the histogram of the moving image to that of the fixed image; for --metric mse.
    #[arg(long)]
    pub match_histograms: bool,
    /// Iterations at most on each level of the last stage. Coarse to fine, one number for each level of the
    /// settings, or of --shrink [default: 200,100,50; fast 100,50; quality and multimodal
    /// 200,200,100,50].
    #[arg(long, value_name = "N,N,..")]
    pub iterations: Option<Numbers<usize>>,
    /// Shrink factor of each level of the last stage. Coarse to fine [default: 4,2,1; fast 4,2; quality and multimodal
    /// 8,4,2,1; linear stages by the resolution of the images].
    #[arg(long, value_name = "F,F,..")]
    pub shrink: Option<Numbers<f64>>,
    /// Give the same bits in every run on the same device. Only svf on a GPU needs this, and it is slower
    /// with it.
    #[arg(long)]
    pub deterministic: bool,
    /// Longest step of an iteration of deformable stages, in voxels of the level [default: 0.25, ffd 1].
    #[arg(long, value_name = "VOXELS")]
    pub lr: Option<f64>,
    /// Weight of the mean squared first differences of the displacement or velocity [default: in proportion to what the
    /// similarity gains, with lncc greedy 0.2, syn 3, svf 0.6; ffd 0].
    #[arg(long, value_name = "W")]
    pub diffusion: Option<f64>,
    /// For --transform ffd: distance of the control points on the last level, in mm; one number, or one for each
    /// axis x, y, z. It doubles on each level before [default: 5].
    #[arg(long, value_name = "MM,..", value_delimiter = ',')]
    pub spacing_mm: Option<Vec<f64>>,
    /// For --transform gnk: weight of the roughness of the velocity, in a box of volume (2 pi)^3. Smaller weights
    /// allow larger deformations [default: 3e-3].
    #[arg(long, value_name = "B")]
    pub beta: Option<f64>,
    /// For --transform gnk: weight of the divergence of the velocity. Larger weights keep volumes [default: 1e-4].
    #[arg(long, value_name = "B")]
    pub beta_div: Option<f64>,
    /// For --transform gnk: bounds of the determinant of the map. The smallest --beta that keeps them is searched.
    #[arg(long, value_name = "LEAST,MOST", value_delimiter = ',')]
    pub determinant: Option<Vec<f64>>,
    /// For --transform gnk: time steps of the transport [default: 4].
    #[arg(long, value_name = "N")]
    pub time_steps: Option<u32>,
    /// For --transform gnk: preconditioner of the conjugate gradients [default: inv-a].
    #[arg(long, value_enum)]
    pub preconditioner: Option<PreconditionerChoice>,
    /// Smoothing of each gradient: fluid stiffness, in voxels of the level [default: 1.5, svf 1.75].
    #[arg(long, value_name = "VOXELS")]
    pub sigma_grad: Option<f64>,
    /// Smoothing of the displacement: elastic stiffness, in voxels of the level [default: 0.5].
    #[arg(long, value_name = "VOXELS")]
    pub sigma_warp: Option<f64>,
}

/// How the linear stages begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CentreChoice {
    /// From the centres of mass and principal axes, or the headers where these align the images better.
    Moments,
    /// From the middles of the grids, or the headers; intensities count nothing.
    #[value(alias = "geometric")]
    Geometry,
    /// From where the headers place the images.
    #[value(alias = "headers")]
    Header,
}

/// How votes for a histogram are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ParzenChoice {
    /// Over 2 bins: the fastest, its slope jumps.
    Linear,
    /// By a cubic B-spline over 4 bins.
    #[value(name = "bspline3", alias = "bspline")]
    BSpline3,
    /// By a Gaussian of half a bin, over 4 bins; other widths by --settings.
    Gaussian,
}

impl From<ParzenChoice> for ParzenKernel {
    fn from(choice: ParzenChoice) -> Self {
        match choice {
            ParzenChoice::Linear => Self::Linear,
            ParzenChoice::BSpline3 => Self::BSpline3,
            ParzenChoice::Gaussian => Self::Gaussian { sigma_bins: 0.5 },
        }
    }
}

/// What the conjugate gradients of a Gauss-Newton step begin from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PreconditionerChoice {
    /// Inverse of the regularisation.
    #[value(name = "inv-a", alias = "inv_a")]
    InvA,
    /// Inverse of the Hessian at a velocity of zero.
    #[value(name = "inv-h0", alias = "inv_h0")]
    InvH0,
    /// The same on a grid of half the size.
    #[value(name = "2l-inv-h0", alias = "2l_inv_h0")]
    TwoLevelInvH0,
}

impl From<PreconditionerChoice> for Preconditioner {
    fn from(choice: PreconditionerChoice) -> Self {
        match choice {
            PreconditionerChoice::InvA => Self::InvA,
            PreconditionerChoice::InvH0 => Self::InvH0,
            PreconditionerChoice::TwoLevelInvH0 => Self::TwoLevelInvH0,
        }
    }
}

/// What settings are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PresetChoice {
    /// A quick look: nothing at full resolution.
    Fast,
    /// Two images of one modality.
    #[default]
    Default,
    /// A stationary velocity, with one level more and finer linear results.
    Quality,
    /// Two modalities: a stiff deformation by mutual information.
    Multimodal,
    /// Far apart, or hardly alike: a discrete search by MIND descriptors, then descent by them.
    Hard,
}

impl From<PresetChoice> for Preset {
    fn from(choice: PresetChoice) -> Self {
        match choice {
            PresetChoice::Fast => Self::Fast,
            PresetChoice::Default => Self::Default,
            PresetChoice::Quality => Self::Quality,
            PresetChoice::Multimodal => Self::Multimodal,
            PresetChoice::Hard => Self::Hard,
        }
    }
}

impl SettingsArguments {
    /// The settings of the file, or the default ones, with what the flags change.
    pub fn resolve(&self) -> Result<Settings> {
        if self.multimodal && self.preset == Some(PresetChoice::Hard) {
            let because = "--preset hard compares by MIND, which suits two modalities as it is";
            let fix = "use another preset";
            return Err(Error::without_effect("--multimodal", because, fix).into());
        }
        self.resolve_from(self.preset())
    }

    /// The same of a series that is registered to itself: rigid, unless the flags say more.
    pub fn resolve_motion(&self) -> Result<Settings> {
        if self.settings.is_some() {
            return self.resolve();
        }
        let rigid = || Some("rigid".to_string());
        let arguments = Self { transform: self.transform.clone().or_else(rigid), ..self.clone() };
        match self.preset.is_some() || self.multimodal {
            true => arguments.resolve(),
            // All that a flag may end with; the flag leaves out what comes after it.
            false => arguments.resolve_from(motion_settings("greedy")),
        }
    }

    /// The settings of the file, or others where there is none, with what the flags change.
    fn resolve_from(&self, otherwise: Settings) -> Result<Settings> {
        let mut settings = match &self.settings {
            Some(path) => read(path)?,
            None => otherwise,
        };
        if let Some(transform) = &self.transform {
            end_with(&mut settings.stages, transform)?;
        }
        if self.aligned {
            settings.stages.retain(|stage| !stage.is_linear());
            if settings.stages.is_empty() {
                return Err(Failure::user(
                    "--aligned leaves out the linear stages, and there are no others",
                    "leave it out, or ask for a deformation: --transform greedy",
                ));
            }
        }
        if let Some(centre) = self.centre {
            begin_from(&mut settings.stages, centre)?;
        }
        if let Some(degrees) = self.search {
            search(&mut settings.stages, degrees)?;
        }
        if let Some(sigma) = &self.landmark_sigma {
            drive_by_landmarks(&mut settings, sigma)?;
        }
        if let Some(labels) = &self.label_terms {
            let weight = settings.label_term.take().map(|term| term.weight);
            let term = LabelTerm::of(labels.clone());
            settings.label_term = Some(LabelTerm { weight: weight.unwrap_or(term.weight), ..term });
        }
        if let Some(weight) = self.label_weight {
            let Some(term) = &mut settings.label_term else {
                return Err(Failure::user(
                    format!(
                        "--label-weight {weight} is given, and no labels drive the registration"
                    ),
                    "name them by --label-terms, or leave it out",
                ));
            };
            term.weight = weight;
        }
        settings.match_histograms |= self.match_histograms;
        let mut table = Table::try_from(&settings).map_err(defect)?;
        let mut stages = Stages::of(&mut table);
        self.change(&mut stages)?;
        let settings: Settings = table.try_into().map_err(defect)?;
        settings.validate()?;
        Ok(settings)
    }
}

impl SettingsArguments {
    /// Changes entries of stages by their names.
    fn change(&self, stages: &mut Stages) -> Result<()> {
        if let Some(metric) = &self.metric {
            stages.set_metric(metric)?;
        }
        if let Some(features) = &self.features {
            stages.set_features(features)?;
        }
        if let Some(window) = self.window {
            let flag = format!("--window {window}");
            stages.set_compared(&flag, "window", &as_value(&window)?, "lncc")?;
        }
        if let Some(bins) = self.bins {
            let flag = format!("--bins {bins}");
            stages.set_compared(&flag, "bins", &as_value(&bins)?, "mi or nmi")?;
        }
        if let Some(choice) = self.parzen {
            let name = choice.to_possible_value().expect("none is skipped");
            let flag = format!("--parzen {}", name.get_name());
            let kernel = as_value(&ParzenKernel::from(choice))?;
            stages.set_compared(&flag, "kernel", &kernel, "mi or nmi")?;
        }
        if let Some(spacing) = &self.spacing_mm {
            stages.set_spacing(spacing)?;
        }
        if let Some(weight) = self.diffusion {
            stages.set_diffusion(weight)?;
        }
        for (flag, entry, value) in [
            ("--lr", "learning_rate_voxels", self.lr),
            ("--sigma-grad", "sigma_gradient_voxels", self.sigma_grad),
            ("--sigma-warp", "sigma_warp_voxels", self.sigma_warp),
            ("--beta", "beta", self.beta),
            ("--beta-div", "beta_div", self.beta_div),
        ] {
            stages.set(flag, entry, value.map(Value::Float))?;
        }
        stages.set("--time-steps", "time_steps", self.time_steps.map(Value::from))?;
        if let Some(choice) = self.preconditioner {
            let choice = as_value(&Preconditioner::from(choice))?;
            stages.set("--preconditioner", "preconditioner", Some(choice))?;
        }
        if let Some(bounds) = &self.determinant {
            stages.set_determinant(bounds)?;
        }
        if self.deterministic {
            stages.set_deterministic();
        }
        if self.shrink.is_some() || self.iterations.is_some() {
            stages.set_levels(self.shrink.as_deref(), self.iterations.as_deref())?;
        }
        Ok(())
    }
}

/// Lets landmarks drive, by one standard deviation or by those of the coarsest and of the finest level.
fn drive_by_landmarks(settings: &mut Settings, sigma_mm: &[f64]) -> Result<()> {
    (settings.landmark_sigma_first_mm, settings.landmark_sigma_mm) = match *sigma_mm {
        [all] => (None, Some(all)),
        [first, last] => (Some(first), Some(last)),
        _ => {
            return Err(Failure::user(
                format!("--landmark-sigma has one number or two, got {}", sigma_mm.len()),
                "give that of the coarsest level and that of the finest: --landmark-sigma 8,2",
            ));
        }
    };
    Ok(())
}

/// Begins the linear stages as asked.
fn begin_from(stages: &mut Vec<Stage>, centre: CentreChoice) -> Result<()> {
    if centre == CentreChoice::Header {
        stages.retain(|stage| !matches!(stage, Stage::Moments(_)));
        return match stages.is_empty() {
            false => Ok(()),
            true => Err(Failure::user(
                "--centre header leaves out the stage moments, and there are no others",
                "leave it out, or add stages to the settings",
            )),
        };
    }
    let Some(Stage::Moments(moments)) = stages.first_mut() else {
        return Err(Failure::user(
            "--centre is part of the stage moments, and the settings have none",
            "begin the settings with moments, or leave --centre out",
        ));
    };
    (moments.centre, moments.order) = match centre {
        CentreChoice::Geometry => (MomentsCentre::Frame, MomentsOrder::First),
        _ => (MomentsCentre::Mass, moments.order),
    };
    Ok(())
}

/// Lets the first placement search orientations.
fn search(stages: &mut [Stage], up_to_degrees: f64) -> Result<()> {
    let Some(Stage::Moments(moments)) = stages.first_mut() else {
        return Err(Failure::user(
            "--search is part of the stage moments, and the settings have none",
            "begin the settings with moments, or leave --search out",
        ));
    };
    let search = moments.search.unwrap_or_default();
    moments.search = Some(OrientationSettings { up_to_degrees, ..search });
    Ok(())
}

impl SettingsArguments {
    /// The settings that flags change, where there is no file.
    fn preset(&self) -> Settings {
        let preset = self.preset.unwrap_or_default();
        // Information rewards whatever explains differences of brightness: a field of voxels has to be stiff.
        let metric = self.metric.as_deref().and_then(Similarity::named);
        let informed = metric.is_some_and(|metric| !metric.loss().compares_intensities())
            && self
                .transform
                .as_deref()
                .is_none_or(|name| ["greedy", "syn", "svf"].contains(&name));
        let chosen = Settings::preset(preset.into());
        let says_all = [PresetChoice::Multimodal, PresetChoice::Hard].contains(&preset);
        if !self.multimodal && !informed || says_all {
            return chosen;
        }
        let stiff = Settings::preset(Preset::Multimodal);
        if self.preset.is_none() && self.multimodal {
            return stiff;
        }
        let levels = |(stage, chosen): (Stage, &Stage)| match stage.is_linear() {
            true => chosen.clone(),
            false => stage.with_levels(chosen.levels().to_vec()),
        };
        let stages = stiff.stages.into_iter().zip(&chosen.stages).map(levels).collect();
        Settings { stages, ..stiff }
    }
}

/// Whether there is more than an affine map.
pub fn deforms(settings: &Settings) -> bool {
    settings.stages.iter().any(|stage| !stage.is_linear())
}

/// The settings as a file that [`SettingsArguments::settings`] can be given.
pub fn to_toml(settings: &Settings) -> Result<String> {
    toml::to_string_pretty(settings).map_err(defect)
}

/// The name of what a stage maximises, as a file has it; `None` where it maximises nothing.
pub fn similarity_of(stage: &Stage) -> Option<String> {
    Value::try_from(stage).ok()?.get("similarity").map(name_of)
}

fn read(path: &Path) -> Result<Settings> {
    let names = "entries have the names of settings.toml, which every run writes";
    let settings: Settings = read_toml(path, names).map_err(|error| {
        let meant = word_of_others(&error.to_string());
        let failure = Failure::from(error);
        match meant {
            Some(word) => failure.with_help(format!("did you mean `{word}`?")),
            None => failure,
        }
    })?;
    settings.validate().map_err(|error| Failure::from(error).about(path))?;
    Ok(settings)
}
