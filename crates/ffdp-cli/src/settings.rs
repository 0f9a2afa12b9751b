//! What a registration does: from a file, from flags, or as it is by default.
//!
//! Flags change entries by their name in whatever stages have them, so that a new kind of stage
//! needs nothing here.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ffdp_groups::series::motion_settings;
use ffdp_image::io::read_toml;
use ffdp_register::gnk::{DeterminantBounds, Preconditioner};
use ffdp_register::{LinearSettings, OrientationSettings, Preset, Settings, Similarity, Stage};
use serde::Serialize;
use toml::{Table, Value};

use crate::failure::{Failure, Result};
use crate::words::{Numbers, Other, Words};

/// The flags that choose what is done.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArguments {
    /// Settings to start from (TOML, as settings.toml in the output folder of a run); the flags
    /// below change them.
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Settings to start from, by what they are for [default: default].
    #[arg(long, value_enum, conflicts_with = "settings")]
    pub preset: Option<PresetChoice>,
    /// Two modalities: as --preset multimodal; with another preset that, on the levels of the other.
    #[arg(long, conflicts_with = "settings")]
    pub multimodal: bool,
    /// The last stage [default: greedy; quality svf]. Stages before it are kept, those after it are left out.
    #[arg(long, value_parser = transforms())]
    pub transform: Option<String>,
    /// The images are aligned already, up to a deformation: no moments, rigid and affine stages.
    #[arg(long)]
    pub aligned: bool,
    /// Before all, search orientations up to this many degrees from the header's, for images whose headers say nothing
    /// [without a number: 180, all there are].
    #[arg(long, value_name = "DEGREES", num_args = 0..=1, default_missing_value = "180", conflicts_with = "aligned")]
    pub search: Option<f64>,
    /// Let the points of --landmarks drive the registration, known to so many mm (standard deviation); without, they are
    /// measured only.
    #[arg(long, value_name = "MM")]
    pub landmark_sigma: Option<f64>,
    /// Similarity of the deformable stages [default: lncc]; without a deformable stage that of the linear
    /// stages, which otherwise use nmi. With mi or nmi greedy, syn and svf are as stiff as with --multimodal.
    #[arg(long, value_parser = metrics())]
    pub metric: Option<String>,
    /// Width of the LNCC window in voxels; odd, 3 to 21 [default: 7].
    #[arg(long, value_name = "VOXELS")]
    pub window: Option<usize>,
    /// First match the histogram of the moving image to that of the fixed image; for --metric mse.
    #[arg(long)]
    pub match_histograms: bool,
    /// Iterations at most on each level of the last stage, coarse to fine: one number for each level of the
    /// settings, or of --shrink [default: 200,100,50; fast 100,50; quality and multimodal
    /// 200,200,100,50].
    #[arg(long, value_name = "N,N,..")]
    pub iterations: Option<Numbers<usize>>,
    /// Shrink factor of each level of the last stage, coarse to fine [default: 4,2,1; fast 4,2; quality and multimodal
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
    /// For --transform gnk: preconditioner of the conjugate gradients [default: 2l-inv-h0].
    #[arg(long, value_enum)]
    pub preconditioner: Option<PreconditionerChoice>,
    /// Smoothing of each gradient: fluid stiffness, in voxels of the level [default: 1.5, svf 1.75].
    #[arg(long, value_name = "VOXELS")]
    pub sigma_grad: Option<f64>,
    /// Smoothing of the displacement: elastic stiffness, in voxels of the level [default: 0.5].
    #[arg(long, value_name = "VOXELS")]
    pub sigma_warp: Option<f64>,
}

/// What the conjugate gradients of a Gauss-Newton step begin from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PreconditionerChoice {
    /// Inverse of the regularisation.
    #[value(name = "inv-a")]
    InvA,
    /// Inverse of the Hessian at a velocity of zero.
    #[value(name = "inv-h0")]
    InvH0,
    /// The same on a grid of half the size.
    #[value(name = "2l-inv-h0")]
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
        if let Some(degrees) = self.search {
            search(&mut settings.stages, degrees)?;
        }
        settings.landmark_sigma_mm = self.landmark_sigma.or(settings.landmark_sigma_mm);
        settings.match_histograms |= self.match_histograms;
        let mut table = Table::try_from(&settings).map_err(defect)?;
        let mut stages = Stages::of(&mut table);
        if let Some(metric) = &self.metric {
            stages.set_metric(metric)?;
        }
        if let Some(window) = self.window {
            stages.set_window(window)?;
        }
        if let Some(spacing) = &self.spacing_mm {
            stages.set_spacing(spacing)?;
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
        let settings: Settings = table.try_into().map_err(defect)?;
        settings.validate()?;
        Ok(settings)
    }
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

/// What a registration may end with: all methods that work on levels.
fn transforms() -> Words {
    let ends =
        Stage::built_in().into_iter().filter(|(stage, _)| !matches!(stage, Stage::Moments(_)));
    Words::new(ends.map(|(stage, about)| (stage.name(), about)), &OTHER_TRANSFORMS)
}

/// What ANTs and elastix call transforms, in lower case.
const OTHER_TRANSFORMS: [Other; 14] = [
    Other::same("bspline", "ffd"),
    Other::same("b-spline", "ffd"),
    Other::same("bsplinetransform", "ffd"),
    Other::same("eulertransform", "rigid"),
    Other::same("similaritytransform", "similarity"),
    Other::same("affinetransform", "affine"),
    Other::near("translation", "rigid"),
    Other::near("translationtransform", "rigid"),
    Other::near("bsplinesyn", "syn"),
    Other::near("exponential", "svf"),
    Other::near("timevaryingvelocityfield", "svf"),
    Other::near("gaussiandisplacementfield", "greedy"),
    Other::near("demons", "greedy"),
    Other::near("claire", "gnk"),
];

/// What may be maximised.
fn metrics() -> Words {
    let all = Similarity::built_in().map(|(similarity, about)| (similarity.name(), about));
    Words::new(all, &OTHER_METRICS)
}

/// What ANTs and elastix call measures, in lower case. ANTs' CC is that of a window.
const OTHER_METRICS: [Other; 12] = [
    Other::same("cc", "lncc"),
    Other::same("meansquares", "mse"),
    Other::same("advancedmeansquares", "mse"),
    Other::same("ssd", "mse"),
    Other::same("mattes", "mi"),
    Other::same("advancedmattesmutualinformation", "mi"),
    Other::same("normalizedmutualinformation", "nmi"),
    Other::near("ncc", "lncc"),
    Other::near("gc", "lncc"),
    Other::near("globalcorrelation", "lncc"),
    Other::near("advancednormalizedcorrelation", "lncc"),
    Other::near("demons", "mse"),
];

/// Whether the built-in stage with this name moves the image as a whole.
fn is_linear(name: &str) -> bool {
    Stage::built_in().iter().any(|(stage, _)| stage.name() == name && stage.is_linear())
}

/// Whether there is more than an affine map.
pub fn deforms(settings: &Settings) -> bool {
    settings.stages.iter().any(|stage| !stage.is_linear())
}

/// What a deformation takes over from the one in whose place it comes: what the preset is about.
const TAKEN_OVER: [&str; 2] = ["similarity", "levels"];
/// The same where it is not as the other has it by default.
const TAKEN_OVER_IF_SET: [&str; 2] = ["regularization", "sigma_gradient_voxels"];

/// Leaves out what comes after the stage with this name, or puts it in the place of another deformation, of which it
/// takes the entries [`TAKEN_OVER`] that it has itself.
fn end_with(stages: &mut Vec<Stage>, name: &str) -> Result<()> {
    if let Some(at) = stages.iter().position(|stage| stage.name() == name) {
        stages.truncate(at + 1);
        return Ok(());
    }
    let mut table = Table::from_iter([("transform".to_string(), Value::from(name))]);
    // What a discrete search begins, another method goes on from.
    let follows = |stage: &Stage| !stage.is_linear() && !matches!(stage, Stage::Discrete(_));
    let deformable = stages.iter().position(follows);
    if let Some(at) = follower(stages, name) {
        // All linear maps are found with the same settings.
        let replaced = Table::try_from(&stages[at]).map_err(defect)?;
        table.extend(replaced.into_iter().filter(|(name, _)| name != "transform"));
        stages.truncate(at);
        stages.push(table.try_into().map_err(defect)?);
        return Ok(());
    }
    if is_linear(name) {
        return Err(Failure::user(
            format!("--transform {name}: the settings have no such stage"),
            "add it to the file, or leave --settings out",
        ));
    }
    if let Some(at) = deformable {
        let replaced = Table::try_from(&stages[at]).map_err(defect)?;
        let [own, usual] = [name, stages[at].name()].map(by_default);
        let (own, usual) = (own?, usual?);
        let taken = replaced.into_iter().filter(|(name, value)| {
            let is_set =
                TAKEN_OVER_IF_SET.contains(&name.as_str()) && usual.get(name) != Some(value);
            own.contains_key(name) && (is_set || TAKEN_OVER.contains(&name.as_str()))
        });
        table.extend(taken);
        stages.truncate(at);
    }
    stages.push(table.try_into().map_err(defect)?);
    Ok(())
}

/// The first stage that finds a linear map with more parameters than the one with this name, in whose place that can come.
fn follower(stages: &[Stage], name: &str) -> Option<usize> {
    let built_in = Stage::built_in();
    let rank = |name: &str| {
        built_in.iter().position(|(stage, _)| stage.name() == name && stage.is_linear())
    };
    let own = rank(name)?;
    stages.iter().position(|stage| rank(stage.name()).is_some_and(|rank| rank > own))
}

/// The settings of the built-in stage with this name; nothing where there is none.
fn by_default(name: &str) -> Result<Table> {
    let stage = Stage::built_in().into_iter().find(|(stage, _)| stage.name() == name);
    stage.map_or(Ok(Table::new()), |(stage, _)| Table::try_from(&stage).map_err(defect))
}

/// The settings as a file that [`SettingsArguments::settings`] can be given.
pub fn to_toml(settings: &Settings) -> Result<String> {
    toml::to_string_pretty(settings).map_err(defect)
}

/// The name of what a stage maximises, as a file has it; `None` where it maximises nothing.
pub fn similarity_of(stage: &Stage) -> Option<String> {
    Value::try_from(stage).ok()?.get("similarity").map(name_of)
}

/// Settings that were valid are written and read by the same derives.
fn defect(reason: impl std::fmt::Display) -> Failure {
    Failure::defect(format!("settings could not be converted: {reason}"))
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

/// The word here for one of ANTs or elastix that a file has in its place.
fn word_of_others(message: &str) -> Option<&'static str> {
    let unknown = message.split_once("unknown variant `")?.1.split('`').next()?.to_lowercase();
    OTHER_TRANSFORMS.iter().chain(&OTHER_METRICS).find_map(|other| other.meaning(&unknown))
}

/// The stages of settings, as tables.
struct Stages<'a>(Vec<&'a mut Table>);

impl<'a> Stages<'a> {
    fn of(settings: &'a mut Table) -> Self {
        let stages = settings.get_mut("stages").and_then(Value::as_array_mut);
        Self(stages.into_iter().flatten().filter_map(Value::as_table_mut).collect())
    }

    /// The similarities that a user means: those of the deformable stages, of all if there are none.
    fn similarities(&mut self) -> impl Iterator<Item = &mut Value> {
        let linear =
            |stage: &Table| stage.get("transform").and_then(Value::as_str).is_some_and(is_linear);
        let all = self.0.iter().all(|stage| linear(stage));
        let meant = self.0.iter_mut().filter(move |stage| all || !linear(stage));
        meant.filter_map(|stage| stage.get_mut("similarity"))
    }

    /// The stages that have an entry; what is wrong and the way out where none has.
    fn having(&mut self, entry: &str, wrong: &str, fix: &str) -> Result<Vec<&mut Table>> {
        let stages = self.0.iter_mut().filter(|stage| stage.contains_key(entry));
        let stages: Vec<_> = stages.map(|stage| &mut **stage).collect();
        match stages.is_empty() {
            true => Err(Failure::user(wrong, fix)),
            false => Ok(stages),
        }
    }

    /// Sets an entry in every stage that has it.
    fn set(&mut self, flag: &str, entry: &str, value: Option<Value>) -> Result<()> {
        let Some(value) = value else { return Ok(()) };
        let wrong = format!("{flag} {value} is given, but no stage has {entry}");
        for stage in self.having(entry, &wrong, "leave it out, or add a deformable stage")? {
            stage.insert(entry.to_string(), value.clone());
        }
        Ok(())
    }

    /// Bounds of the determinant, of the stages whose deformation knows them.
    fn set_determinant(&mut self, given: &[f64]) -> Result<()> {
        let &[least, most] = given else {
            let what =
                format!("--determinant {given:?} must be two numbers, the least and the most");
            return Err(Failure::user(what, "for example --determinant 0.25,4"));
        };
        let bounds = as_value(&DeterminantBounds { least, most })?;
        // An entry that is not set is none of the file's: that of the weight stands for it.
        let wrong = "--determinant is given, but no stage keeps its determinants within bounds";
        for stage in self.having("beta", wrong, "leave it out, or use --transform gnk")? {
            stage.insert("determinant".to_string(), bounds.clone());
        }
        Ok(())
    }

    /// Places control points, of stages that have them.
    fn set_spacing(&mut self, given: &[f64]) -> Result<()> {
        let spacing: [f64; 3] = match given {
            [all] => [*all; 3],
            _ => given.try_into().map_err(|_| {
                let what = format!("--spacing-mm {given:?} must be one number, or three: x, y, z");
                Failure::user(what, "for example --spacing-mm 5")
            })?,
        };
        let spacing = as_value(&spacing)?;
        let wrong = "--spacing-mm is given, but no stage has control points";
        for stage in self.having("spacing_mm", wrong, "leave it out, or use --transform ffd")? {
            stage.insert("spacing_mm".to_string(), spacing.clone());
        }
        Ok(())
    }

    /// Asks every stage that has the choice for the same result every time.
    fn set_deterministic(&mut self) {
        let choices = self.0.iter_mut().filter_map(|stage| stage.get_mut("deterministic"));
        choices.for_each(|choice| *choice = Value::Boolean(true));
    }

    /// A stage that has the metric already keeps its settings.
    fn set_metric(&mut self, metric: &str) -> Result<()> {
        let named = Similarity::named(metric).expect("the parser knows the names");
        let value = as_value(&named)?;
        for similarity in self.similarities() {
            if similarity.get(metric).is_none() {
                *similarity = value.clone();
            }
        }
        Ok(())
    }

    fn set_window(&mut self, window: usize) -> Result<()> {
        let mut similarities = self.similarities().peekable();
        let metric = similarities.peek().map(|similarity| name_of(similarity));
        let mut windows = similarities.filter_map(window_of).peekable();
        if windows.peek().is_none() {
            let metric = metric.unwrap_or_default();
            return Err(Failure::user(
                format!("--window {window} is given, but the metric {metric} has no window"),
                "leave it out, or use --metric lncc",
            ));
        }
        let window = as_value(&window)?;
        windows.for_each(|own| *own = window.clone());
        Ok(())
    }

    /// New levels for the last stage; what is not given stays as it was.
    fn set_levels(&mut self, shrinks: Option<&[f64]>, iterations: Option<&[usize]>) -> Result<()> {
        let levels = self.0.last_mut().and_then(|stage| stage.get_mut("levels")?.as_array_mut());
        let Some(levels) = levels else {
            return Err(Failure::user(
                "--shrink or --iterations is given, but the last stage has no levels",
                "leave it out, or add a stage with levels",
            ));
        };
        let given = [shrinks.is_some(), iterations.is_some()];
        let column = |name: &str| -> Vec<Value> {
            levels.iter().filter_map(|level| level.get(name).cloned()).collect()
        };
        let shrinks: Vec<Value> = match shrinks {
            Some(shrinks) => shrinks.iter().copied().map(Value::Float).collect(),
            None => column("shrink"),
        };
        let iterations: Vec<Value> = match iterations {
            Some(iterations) => iterations.iter().map(as_value).collect::<Result<_>>()?,
            None => usual_iterations(column("iterations"), shrinks.len()),
        };
        if shrinks.len() != iterations.len() {
            return Err(refused_levels(given, &shrinks, &iterations));
        }
        let level = |(shrink, iterations)| {
            Value::Table(Table::from_iter([
                ("shrink".to_string(), shrink),
                ("iterations".to_string(), iterations),
            ]))
        };
        *levels = shrinks.into_iter().zip(iterations).map(level).collect();
        Ok(())
    }
}

/// Iterations of so many levels, where those of the settings have `known`: the last of them for the finest level, and
/// before the first of them the same again. A linear stage that leaves its levels to the images has fewer the finer.
fn usual_iterations(known: Vec<Value>, count: usize) -> Vec<Value> {
    match (known.first(), known.len()) {
        (Some(first), have) => {
            let more = std::iter::repeat_n(first.clone(), count.saturating_sub(have));
            more.chain(known[have.saturating_sub(count)..].iter().cloned()).collect()
        }
        (None, _) => {
            let linear = LinearSettings::ITERATIONS;
            let of_level = |k: usize| Value::from(linear[k.min(linear.len() - 1)] as i64);
            (0..count).map(of_level).collect()
        }
    }
}

/// Lists of different lengths: with both flags, or of --iterations alone.
fn refused_levels(given: [bool; 2], shrinks: &[Value], iterations: &[Value]) -> Failure {
    // 4, as a user writes it, in place of the 4.0 of a file.
    let number = |value: &Value| match value {
        Value::Float(number) => number.to_string(),
        other => other.to_string(),
    };
    let list = |values: &[Value]| values.iter().map(number).collect::<Vec<_>>().join(",");
    let counted = |flag: &str, values: &[Value]| {
        format!("{flag} {} is for {} levels", list(values), values.len())
    };
    let (iterations, count) = (counted("--iterations", iterations), shrinks.len());
    let (message, other) = match (given[0], count) {
        (true, _) => (format!("{}, {iterations}", counted("--shrink", shrinks)), "as many to both"),
        (false, 0) => (
            format!("{iterations}; those of the last stage are chosen by the images"),
            "--shrink with as many as --iterations",
        ),
        (false, _) => (
            format!(
                "{iterations}; the last stage of the settings has {count}, with shrink factors {}",
                list(shrinks)
            ),
            "--shrink with as many as --iterations",
        ),
    };
    Failure::user(
        message,
        format!(
            "give one number per level: {count} numbers, or {other} (--shrink 4,2,1 --iterations 200,100,50)"
        ),
    )
}

fn as_value(value: &impl Serialize) -> Result<Value> {
    Value::try_from(value).map_err(defect)
}

/// The window of a similarity, if it has one: its settings are the only entry of its table.
fn window_of(similarity: &mut Value) -> Option<&mut Value> {
    similarity.as_table_mut()?.iter_mut().find_map(|(_, settings)| settings.get_mut("window"))
}

/// The name of a similarity: `"mse"`, or the key of `{ lncc = { .. } }`.
fn name_of(similarity: &Value) -> String {
    let key = similarity.as_table().and_then(|table| table.keys().next());
    key.map(String::as_str).or(similarity.as_str()).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_their_file_bit_by_bit() {
        let intensity_percentiles = [0.1 + 0.2, 99.0 + 1e-13];
        let settings = Settings { intensity_percentiles, ..Settings::default() };
        let text = to_toml(&settings).expect("settings are written");
        let again: Settings = toml::from_str(&text).expect("and read");
        assert_eq!(again, settings, "{text}");
    }

    #[test]
    fn similarities_have_the_names_that_files_have() {
        for (similarity, _) in Similarity::built_in() {
            let value = as_value(&similarity).expect("it is written");
            assert_eq!(name_of(&value), similarity.name());
        }
    }

    #[test]
    fn flags_change_what_stages_have() {
        let arguments = SettingsArguments {
            metric: Some("mi".to_string()),
            lr: Some(0.125),
            iterations: Some(Numbers(vec![3, 2, 1])),
            match_histograms: true,
            ..SettingsArguments::default()
        };
        let text = to_toml(&arguments.resolve().expect("valid")).expect("written");
        for line in [
            "bins = 32",
            "learning_rate_voxels = 0.125",
            "iterations = 3",
            "shrink = 4.0",
            "match_histograms = true",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
        assert!(!text.contains("lncc"), "{text}");
    }

    #[test]
    fn levels_of_another_number_are_refused_with_the_number_that_is_meant() {
        let refused = |multimodal, shrink: &[f64], iterations: &[usize]| {
            let list = |given: bool| given.then_some(());
            let arguments = SettingsArguments {
                multimodal,
                shrink: list(!shrink.is_empty()).map(|()| Numbers(shrink.to_vec())),
                iterations: list(!iterations.is_empty()).map(|()| Numbers(iterations.to_vec())),
                ..SettingsArguments::default()
            };
            let failure = arguments.resolve().expect_err("lists of other lengths");
            format!("{failure}; {}", failure.help_text().unwrap_or_default())
        };
        for (text, words) in [
            (
                refused(true, &[], &[2, 2, 2]),
                ["--iterations 2,2,2 is for 3 levels", "has 4", "8,4,2,1", "4 numbers"],
            ),
            (
                refused(false, &[4.0, 2.0, 1.0], &[40, 30]),
                [
                    "--shrink 4,2,1 is for 3",
                    "--iterations 40,30 is for 2",
                    "one number per level",
                    "both",
                ],
            ),
        ] {
            for word in words {
                assert!(text.contains(word), "no {word:?} in {text}");
            }
        }
    }

    #[test]
    fn every_method_of_the_engine_can_be_asked_for() {
        for (stage, _) in Stage::built_in() {
            if matches!(stage, Stage::Moments(_)) {
                continue;
            }
            let transform = Some(stage.name().to_string());
            let arguments = SettingsArguments { transform, ..SettingsArguments::default() };
            let settings = arguments.resolve().unwrap_or_else(|e| panic!("{stage:?}: {e}"));
            assert_eq!(settings.stages.last().map(Stage::name), Some(stage.name()));
            assert_eq!(deforms(&settings), !stage.is_linear(), "{}", stage.name());
        }
    }

    #[test]
    fn the_last_transform_can_be_chosen() {
        let names = |arguments: SettingsArguments| -> Vec<&'static str> {
            let settings = arguments.resolve().expect("valid");
            settings.stages.iter().map(Stage::name).collect()
        };
        let default = SettingsArguments::default;
        let until = |name: &str| SettingsArguments { transform: Some(name.into()), ..default() };
        assert_eq!(names(default()), ["moments", "rigid", "affine", "greedy"]);
        assert_eq!(names(until("rigid")), ["moments", "rigid"]);
        assert_eq!(names(until("similarity")), ["moments", "rigid", "similarity"]);
        assert_eq!(names(until("syn")), ["moments", "rigid", "affine", "syn"]);
        let aligned = |name: &str| SettingsArguments { aligned: true, ..until(name) };
        assert_eq!(names(aligned("svf")), ["svf"]);
        assert!(aligned("rigid").resolve().is_err());
        let preset = Some(PresetChoice::Multimodal);
        let multimodal = SettingsArguments { preset, ..until("syn") };
        let settings = multimodal.resolve().expect("valid");
        assert_eq!(similarity_of(&settings.stages[3]).as_deref(), Some("mi"));
        // Stiff, as the preset has it, whatever deforms.
        let Stage::Syn(syn) = &settings.stages[3] else { panic!("no syn in {settings:?}") };
        assert!(syn.regularization.bending > 0.0 && syn.levels.len() == 4, "{syn:?}");
        let flag = SettingsArguments { multimodal: true, ..until("syn") };
        assert_eq!(flag.resolve().expect("valid"), settings);
    }

    #[test]
    fn every_stage_that_has_the_choice_is_made_deterministic() {
        let written = |deterministic| {
            let transform = Some("svf".into());
            let arguments =
                SettingsArguments { transform, deterministic, ..SettingsArguments::default() };
            to_toml(&arguments.resolve().expect("valid")).expect("written")
        };
        assert!(written(false).contains("deterministic = false"));
        assert!(written(true).contains("deterministic = true"));
    }
}
