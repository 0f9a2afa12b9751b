//! What a registration does: from a file, from flags, or as it is by default.
//!
//! Flags change entries by their name in whatever stages have them, so that a new kind of stage
//! needs nothing here.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ffdp_burn::Error;
use ffdp_burn::register::{LnccSettings, MiSettings, Settings, Similarity, Stage};
use serde::Serialize;
use toml::{Table, Value};

use crate::failure::{Failure, Outcome};

/// The flags that choose what is done.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArguments {
    /// Settings to start from (TOML, as settings.toml in the output folder of a run); the flags
    /// below change them.
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Kind of the last stage, with its defaults: greedy, syn or svf.
    #[arg(long, value_name = "KIND")]
    pub transform: Option<String>,
    /// How alike the images are: lncc for one modality, mi for two, mse for equal intensities
    /// [default: lncc]. Of every stage.
    #[arg(long, value_enum)]
    pub metric: Option<Metric>,
    /// Width of the LNCC window in voxels; odd, 3 to 21 [default: 7]. Of every stage.
    #[arg(long, value_name = "VOXELS")]
    pub window: Option<usize>,
    /// Iterations at most on each level of the last stage, coarse to fine [default: 200,100,50].
    #[arg(long, value_name = "N,N,..", value_delimiter = ',')]
    pub iterations: Option<Vec<usize>>,
    /// Shrink factor of each level of the last stage, coarse to fine [default: 4,2,1].
    #[arg(long, value_name = "F,F,..", value_delimiter = ',')]
    pub shrink: Option<Vec<f64>>,
    /// Longest step of an iteration, in voxels of the level [default: 0.25]. Of deformable stages.
    #[arg(long, value_name = "VOXELS")]
    pub lr: Option<f64>,
    /// Smoothing of each gradient: fluid stiffness, in voxels of the level [default: 1].
    #[arg(long, value_name = "VOXELS")]
    pub sigma_grad: Option<f64>,
    /// Smoothing of the displacement: elastic stiffness, in voxels of the level [default: 0.5].
    #[arg(long, value_name = "VOXELS")]
    pub sigma_warp: Option<f64>,
}

/// What is maximised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Metric {
    /// Local normalised cross-correlation.
    Lncc,
    /// Mean squared difference.
    Mse,
    /// Mutual information.
    Mi,
}

impl SettingsArguments {
    /// The settings of the file, or the default ones, with what the flags change.
    pub fn resolve(&self) -> Outcome<Settings> {
        let mut settings = match &self.settings {
            Some(path) => read(path)?,
            None => Settings::default(),
        };
        if let (Some(kind), Some(last)) = (&self.transform, settings.stages.last_mut())
            && kind != last.name()
        {
            *last = default_stage(kind)?;
        }
        let mut table = Table::try_from(&settings).map_err(defect)?;
        let mut stages = Stages::of(&mut table);
        if let Some(metric) = self.metric {
            stages.set_metric(metric)?;
        }
        if let Some(window) = self.window {
            stages.set_window(window)?;
        }
        stages.set("--lr", "learning_rate_voxels", self.lr)?;
        stages.set("--sigma-grad", "sigma_gradient_voxels", self.sigma_grad)?;
        stages.set("--sigma-warp", "sigma_warp_voxels", self.sigma_warp)?;
        if self.shrink.is_some() || self.iterations.is_some() {
            stages.set_levels(self.shrink.as_deref(), self.iterations.as_deref())?;
        }
        let settings: Settings = table.try_into().map_err(defect)?;
        settings.validate()?;
        Ok(settings)
    }
}

/// The stage of a kind with its defaults.
fn default_stage(kind: &str) -> Outcome<Stage> {
    let table = Table::from_iter([("transform".to_string(), Value::String(kind.to_string()))]);
    table.try_into().map_err(|error: toml::de::Error| {
        let message = format!("--transform {kind}: {}", error.message());
        Failure::user(message, "name one of these kinds")
    })
}

/// The settings as a file that [`SettingsArguments::settings`] can be given.
pub fn to_toml(settings: &Settings) -> Outcome<String> {
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

fn read(path: &Path) -> Outcome<Settings> {
    let text = fs::read_to_string(path).map_err(|source| Error::io(path, "read", source))?;
    let settings: Settings = toml::from_str(&text).map_err(|error| {
        let line = line_of(&text, &error);
        let message = format!("{}, line {line}: {}", path.display(), error.message());
        let help = "entries have the names of settings.toml, which every run writes";
        Failure::user(message, help)
    })?;
    settings.validate().map_err(|error| Failure::from(error).about(path))?;
    Ok(settings)
}

/// The line that is at fault, from 1. An unknown entry of a stage is reported for the whole stage:
/// its line is looked for.
fn line_of(text: &str, error: &toml::de::Error) -> usize {
    let start = error.span().map_or(0, |span| span.start);
    let from = text[..start].matches('\n').count();
    let unknown = error.message().strip_prefix("unknown field `");
    let is_key = |line: &str| {
        let name = unknown.and_then(|rest| rest.split('`').next());
        name.is_some_and(|name| {
            line.trim_start().starts_with(name) || line.contains(&format!(".{name}"))
        })
    };
    let found = text.lines().skip(from).position(is_key);
    1 + found.map_or(from, |further| from + further)
}

/// The stages of settings, as tables.
struct Stages<'a>(Vec<&'a mut Table>);

impl<'a> Stages<'a> {
    fn of(settings: &'a mut Table) -> Self {
        let stages = settings.get_mut("stages").and_then(Value::as_array_mut);
        Self(stages.into_iter().flatten().filter_map(Value::as_table_mut).collect())
    }

    /// Sets an entry in every stage that has it.
    fn set(&mut self, flag: &str, entry: &str, value: Option<f64>) -> Outcome<()> {
        let Some(value) = value else { return Ok(()) };
        let mut stages = self.0.iter_mut().filter_map(|stage| stage.get_mut(entry)).peekable();
        if stages.peek().is_none() {
            return Err(Failure::user(
                format!("{flag} {value} is given, but no stage has {entry}"),
                "leave it out, or add a deformable stage",
            ));
        }
        stages.for_each(|stage| *stage = Value::Float(value));
        Ok(())
    }

    /// A stage that has the metric already keeps its settings.
    fn set_metric(&mut self, metric: Metric) -> Outcome<()> {
        let (name, similarity) = match metric {
            Metric::Lncc => ("lncc", Similarity::Lncc(LnccSettings::default())),
            Metric::Mse => ("mse", Similarity::Mse),
            Metric::Mi => ("mi", Similarity::Mi(MiSettings::default())),
        };
        let value = as_value(&similarity)?;
        for similarity in self.0.iter_mut().filter_map(|stage| stage.get_mut("similarity")) {
            if similarity.get(name).is_none() {
                *similarity = value.clone();
            }
        }
        Ok(())
    }

    fn set_window(&mut self, window: usize) -> Outcome<()> {
        let mut similarities =
            self.0.iter_mut().filter_map(|stage| stage.get_mut("similarity")).peekable();
        let metric = similarities.peek().map(|similarity| name_of(similarity));
        let mut windows = similarities
            .filter_map(|similarity| similarity.get_mut("lncc")?.as_table_mut())
            .peekable();
        if windows.peek().is_none() {
            let metric = metric.unwrap_or_default();
            return Err(Failure::user(
                format!("--window {window} is given, but the metric {metric} has no window"),
                "leave it out, or use --metric lncc",
            ));
        }
        let window = as_value(&window)?;
        windows.for_each(|lncc| {
            lncc.insert("window".to_string(), window.clone());
        });
        Ok(())
    }

    /// New levels for the last stage; what is not given stays as it was.
    fn set_levels(&mut self, shrinks: Option<&[f64]>, iterations: Option<&[usize]>) -> Outcome<()> {
        let levels = self.0.last_mut().and_then(|stage| stage.get_mut("levels")?.as_array_mut());
        let Some(levels) = levels else {
            return Err(Failure::user(
                "--shrink or --iterations is given, but the last stage has no levels",
                "leave it out, or add a stage with levels",
            ));
        };
        let column = |name: &str| -> Vec<Value> {
            levels.iter().filter_map(|level| level.get(name).cloned()).collect()
        };
        let shrinks: Vec<Value> = match shrinks {
            Some(shrinks) => shrinks.iter().copied().map(Value::Float).collect(),
            None => column("shrink"),
        };
        let iterations: Vec<Value> = match iterations {
            Some(iterations) => iterations.iter().map(as_value).collect::<Outcome<_>>()?,
            None => column("iterations"),
        };
        if shrinks.len() != iterations.len() {
            let list = |values: &[Value]| {
                values.iter().map(Value::to_string).collect::<Vec<_>>().join(",")
            };
            return Err(Failure::user(
                format!("--shrink names {} and --iterations {}", list(&shrinks), list(&iterations)),
                "give one number per level to both, for example --shrink 4,2,1 --iterations \
                 200,100,50",
            ));
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

fn as_value(value: &impl Serialize) -> Outcome<Value> {
    Value::try_from(value).map_err(defect)
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
        let mut settings = Settings::default();
        settings.intensity_percentiles = [0.1 + 0.2, 99.0 + 1e-13];
        let text = to_toml(&settings).expect("settings are written");
        let again: Settings = toml::from_str(&text).expect("and read");
        assert_eq!(again, settings, "{text}");
    }

    #[test]
    fn flags_change_what_stages_have() {
        let arguments = SettingsArguments {
            metric: Some(Metric::Mi),
            lr: Some(0.125),
            iterations: Some(vec![3, 2, 1]),
            ..SettingsArguments::default()
        };
        let text = to_toml(&arguments.resolve().expect("valid")).expect("written");
        for line in ["bins = 32", "learning_rate_voxels = 0.125", "iterations = 3", "shrink = 4.0"]
        {
            assert!(text.contains(line), "no {line} in {text}");
        }
        assert!(!text.contains("lncc"), "{text}");
    }
}
