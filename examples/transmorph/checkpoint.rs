//! Saving a run so that it can be resumed, and finding where to resume.

use std::fs;
use std::path::{Path, PathBuf};

use burn::train::checkpoint::{Checkpoint, Checkpointer, CheckpointerError, FileCheckpointer};
use ffdp::{Error, Result};
use serde_json::Value;

use crate::args::Settings;

/// What a checkpoint is made of, one file each: weights, moments of the optimiser, schedule.
pub const PARTS: [&str; 3] = ["model", "optimizer", "schedule"];

/// Settings that a resumed run may change.
const CHANGEABLE: [&str; 5] = ["epochs", "resume", "device", "plain", "out"];

/// Burn's file checkpointer, but a file appears under its name only when it is complete.
pub struct AtomicCheckpointer {
    complete: FileCheckpointer,
    partial: FileCheckpointer,
    folder: PathBuf,
    name: &'static str,
}

impl AtomicCheckpointer {
    pub fn new(folder: &Path, name: &'static str) -> Self {
        Self {
            complete: FileCheckpointer::new(folder, name),
            partial: FileCheckpointer::new(folder, &format!("partial-{name}")),
            folder: folder.to_path_buf(),
            name,
        }
    }
}

impl<R: Checkpoint> Checkpointer<R> for AtomicCheckpointer {
    fn save(&self, epoch: usize, record: R) -> Result<(), CheckpointerError> {
        self.partial.save(epoch, record)?;
        let from = file(&self.folder, &format!("partial-{}", self.name), epoch);
        fs::rename(from, file(&self.folder, self.name, epoch)).map_err(CheckpointerError::IOError)
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        Checkpointer::<R>::delete(&self.complete, epoch)
    }

    fn restore(&self, epoch: usize) -> Result<R, CheckpointerError> {
        self.complete.restore(epoch)
    }
}

/// The folder of a run's checkpoints.
pub fn folder(settings: &Settings) -> PathBuf {
    settings.out.join("checkpoint")
}

fn file(folder: &Path, part: &str, epoch: usize) -> PathBuf {
    folder.join(format!("{part}-{epoch}.bpk"))
}

/// The epoch to resume after, 0 for a new run. Nothing is written yet.
///
/// # Errors
/// A folder that holds a run already (or none, with `--resume`), and settings that differ from
/// those of the run to resume.
pub fn resumed_epoch(settings: &Settings) -> Result<usize> {
    let path = settings_file(settings);
    if settings.resume {
        let saved = fs::read_to_string(&path).map_err(|error| Error::io(&path, "read", error))?;
        let saved: Value = serde_json::from_str(&saved).map_err(|error| {
            let what = format!("{} must be the settings of a run: {error}", path.display());
            Error::invalid(what, saved, "start a new run with another --out")
        })?;
        check_same(&saved, settings)?;
        let epoch = last_complete(&folder(settings))?;
        if epoch >= settings.epochs {
            let what = format!("--epochs must exceed the {epoch} epochs that are done");
            return Err(Error::invalid(what, settings.epochs, "ask for more epochs"));
        }
        return Ok(epoch);
    }
    if path.exists() {
        return Err(Error::invalid(
            "--out must name a folder without a run in it",
            settings.out.display().to_string(),
            "continue that run with --resume, or choose another folder",
        ));
    }
    Ok(0)
}

/// Makes the folder of a run and saves the settings in it.
///
/// # Errors
/// A folder that cannot be written.
pub fn prepare(settings: &Settings) -> Result<()> {
    let pictures = settings.out.join("pictures");
    fs::create_dir_all(&pictures).map_err(|error| Error::io(&pictures, "create", error))?;
    let path = settings_file(settings);
    let text = serde_json::to_string_pretty(settings).expect("settings are plain values");
    fs::write(&path, text).map_err(|error| Error::io(&path, "write", error))
}

fn settings_file(settings: &Settings) -> PathBuf {
    settings.out.join("settings.json")
}

fn check_same(saved: &Value, settings: &Settings) -> Result<()> {
    let given = serde_json::to_value(settings).expect("settings are plain values");
    for (name, value) in given.as_object().expect("settings are a struct") {
        let old = saved.get(name).unwrap_or(&Value::Null);
        if old != value && !CHANGEABLE.contains(&name.as_str()) {
            let flag = name.replace('_', "-");
            return Err(Error::invalid(
                format!("--resume: the run was started with --{flag} {old}"),
                value,
                "repeat the flags of the run, or start another one with another --out",
            ));
        }
    }
    Ok(())
}

/// The last epoch of which all parts were saved.
fn last_complete(folder: &Path) -> Result<usize> {
    let entries = fs::read_dir(folder).map_err(|error| Error::io(folder, "read", error))?;
    let epochs = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().to_string();
        name.strip_prefix("model-")?.strip_suffix(".bpk")?.parse::<usize>().ok()
    });
    let complete = epochs.filter(|&epoch| PARTS.iter().all(|p| file(folder, p, epoch).exists()));
    complete.max().ok_or_else(|| {
        Error::invalid(
            format!("{}: a complete checkpoint is needed to resume", folder.display()),
            "none",
            "start a new run with another --out",
        )
    })
}
