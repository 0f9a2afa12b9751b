//! Keyword arguments as the flags of the command line: `label_weight=2` is `--label-weight=2`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Parser;
use clap::error::ErrorKind;
use ffdp_cli::{
    DeviceChoice, Failure, InterpolationChoice, Reading, SettingsArguments, in_any_case,
};
use ffdp_image::Error;
use ffdp_train::TrainArguments;
use ffdp_train::predict::CheckpointChoice;
use ffdp_train::settings::Align;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use tempfile::NamedTempFile;

use crate::errors::{Refusal, Result};
use crate::json::to_toml;

/// Where to compute.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Computing {
    #[arg(long, default_value = DeviceChoice::AUTO)]
    pub device: DeviceChoice,
}

/// Of `register`.
#[derive(Debug, Parser)]
#[command(name = "register")]
pub struct RegisterFlags {
    #[command(flatten)]
    pub settings: SettingsArguments,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub computing: Computing,
    /// The labels whose overlap is measured.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    pub labels: Option<Vec<i32>>,
    /// Intensity where the moving image does not reach.
    #[arg(long, allow_hyphen_values = true)]
    pub background: Option<f32>,
    #[arg(long)]
    pub labels_as_images: bool,
    #[arg(long)]
    pub no_inverse: bool,
}

/// Of `apply`.
#[derive(Debug, Parser)]
#[command(name = "apply")]
pub struct ApplyFlags {
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub computing: Computing,
    #[arg(long, value_enum, default_value_t = InterpolationChoice::Linear)]
    pub interpolation: InterpolationChoice,
    #[arg(long, default_value_t = 0.0, allow_hyphen_values = true)]
    pub background: f32,
    #[arg(long)]
    pub inverse: bool,
}

/// Of `train`.
#[derive(Debug, Parser)]
#[command(name = "train")]
pub struct TrainFlags {
    #[command(flatten)]
    pub arguments: TrainArguments,
    #[command(flatten)]
    pub computing: Computing,
}

/// Of `predict`.
#[derive(Debug, Parser)]
#[command(name = "predict")]
pub struct PredictFlags {
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub computing: Computing,
    #[arg(long, default_value_t = CheckpointChoice::Best)]
    pub checkpoint: CheckpointChoice,
    #[arg(long)]
    pub refine: Option<usize>,
    #[arg(long)]
    pub size: Option<String>,
    #[arg(long, value_enum)]
    pub align: Option<Align>,
}

/// Flags that were read, and the file that they may name.
pub struct Read<F> {
    pub flags: F,
    /// Settings that were given as a dictionary; the file lives as long as this.
    settings: Option<NamedTempFile>,
}

impl<F> Read<F> {
    /// A failure that names the argument, and not a file that nobody knows.
    pub fn named(&self, error: impl Into<Failure> + Into<Refusal>) -> Refusal {
        let Some(file) = &self.settings else { return error.into() };
        let failure: Failure = error.into();
        let message = failure.to_string().replace(&*file.path().to_string_lossy(), "settings");
        Failure::user(message, failure.help_text().unwrap_or_default()).into()
    }
}

/// Reads keyword arguments.
///
/// # Errors
/// `TypeError` for a name that is no flag, else what the command line says.
pub fn read<F: Parser>(arguments: Option<&Bound<PyDict>>) -> Result<Read<F>> {
    DeviceChoice::of_environment()?;
    let mut command = in_any_case(F::command().disable_help_flag(true));
    let name = command.get_name().to_string();
    let (mut words, mut file) = (vec![OsString::from(&name)], None);
    for (key, value) in arguments.into_iter().flat_map(|given| given.iter()) {
        let key: String = key.extract()?;
        let value = match value.cast::<PyDict>() {
            Ok(settings) if key == "settings" => {
                file = Some(temporary(&to_toml(settings)?)?);
                file.iter().map(|file| file.path().into()).next()
            }
            _ => word(&key, &value)?,
        };
        let flag = format!("--{}", key.replace('_', "-"));
        words.extend(value.map(|value| match value.is_empty() {
            true => OsString::from(&flag),
            false => [OsString::from(format!("{flag}=")), value].into_iter().collect(),
        }));
    }
    let found =
        command.try_get_matches_from_mut(words).and_then(|found| F::from_arg_matches(&found));
    let flags = found.map_err(|error| refused(&name, error.format(&mut command)))?;
    Ok(Read { flags, settings: file })
}

/// A value as a word of the command line: nothing for `None` and `False`, an empty one for `True`, numbers with commas
/// between for a list.
fn word(key: &str, value: &Bound<PyAny>) -> Result<Option<OsString>> {
    if value.is_none() {
        return Ok(None);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(flag.is_true().then(OsString::new));
    }
    if let Ok(path) = value.extract::<PathBuf>() {
        return match path.as_os_str().is_empty() {
            true => {
                Err(Error::invalid(format!("{key} must not be empty"), "", "leave it out").into())
            }
            false => Ok(Some(path.into_os_string())),
        };
    }
    let text = |value: &Bound<PyAny>| -> PyResult<String> {
        // A scalar of NumPy is shown with its type.
        let scalar = value.hasattr("item")?.then(|| value.call_method0("item")).transpose()?;
        Ok(scalar.as_ref().unwrap_or(value).str()?.to_string())
    };
    let is_list = value.hasattr("__len__")? && value.hasattr("__getitem__")?;
    let texts = match is_list {
        true => value.try_iter()?.map(|entry| text(&entry?)).collect::<PyResult<Vec<_>>>()?,
        false => vec![text(value)?],
    };
    Ok(Some(texts.join(",").into()))
}

fn temporary(text: &str) -> Result<NamedTempFile> {
    let made = || {
        let mut file = tempfile::Builder::new().prefix("settings").suffix(".toml").tempfile()?;
        file.write_all(text.as_bytes())?;
        Ok(file)
    };
    Ok(made().map_err(|reason| Error::io(&std::env::temp_dir(), "write to", reason))?)
}

/// What clap says, without the usage of a command that nobody typed.
fn refused(function: &str, error: clap::Error) -> Refusal {
    let text = error.to_string();
    let text = text.split("\n\nUsage:").next().unwrap_or(&text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text).trim_end();
    let text = text.strip_prefix("error: ").unwrap_or(text);
    if error.kind() == ErrorKind::UnknownArgument {
        let message = format!("{function}() got a keyword argument that it does not have: {text}");
        return PyErr::new::<PyTypeError, _>(message).into();
    }
    let (message, tip) = text.split_once("\n\n").unwrap_or((text, ""));
    let tip = tip.trim().strip_prefix("tip: ").map(str::to_string);
    let help =
        tip.unwrap_or_else(|| format!("help(ffdp.{function}) has the values of its arguments"));
    Failure::user(message.trim(), help).into()
}
