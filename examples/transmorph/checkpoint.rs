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
const CHANGEABLE: [&str; 4] = ["epochs", "resume", "device", "out"];

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

/// Makes the folder of a new run and saves the settings in it; or, with `--resume`, checks that
/// they are the run's own. Returns the epoch to resume after, 0 for a new run.
///
/// # Errors
/// A folder that holds a run already (or none, with `--resume`), and settings that differ.
pub fn prepare(settings: &Settings) -> Result<usize> {
    let path = settings.out.join("settings.json");
    if settings.resume {
        let saved = fs::read_to_string(&path).map_err(|error| Error::io(&path, "read", error))?;
        let saved: Value = serde_json::from_str(&saved).map_err(|error| {
            Error::invalid(format!("{}: {error}", path.display()), "", "start a new run")
        })?;
        check_same(&saved, settings)?;
        let epoch = last_complete(&folder(settings))?;
        if epoch >= settings.epochs {
            let what = format!("--epochs must exceed the {epoch} epochs that are done");
            return Err(Error::invalid(what, settings.epochs, "ask for more epochs"));
        }
        save(settings, &path)?;
        return Ok(epoch);
    }
    if path.exists() {
        return Err(Error::invalid(
            "--out must name a folder without a run in it",
            settings.out.display().to_string(),
            "continue that run with --resume, or choose another folder",
        ));
    }
    fs::create_dir_all(settings.out.join("pictures"))
        .map_err(|error| Error::io(&settings.out, "create", error))?;
    save(settings, &path)?;
    Ok(0)
}

fn save(settings: &Settings, path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(settings).expect("settings are plain values");
    fs::write(path, text).map_err(|error| Error::io(path, "write", error))
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
