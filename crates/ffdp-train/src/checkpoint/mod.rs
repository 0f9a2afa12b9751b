//! Saving a run so that it can be resumed, and finding where to resume: each file appears whole or not
//! at all. `keep.rs` decides which epochs stay, `criterion.rs` which is the best.

mod criterion;
mod keep;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::store::ModuleRecord;
use burn::train::checkpoint::{Checkpoint, Checkpointer, CheckpointerError, FileCheckpointer};
use ffdp_image::{Error, Result};

pub use criterion::{Criterion, ranked_in};
pub use keep::{Keep, Patience, Scores};

use crate::folder::RunFolder;

/// What a checkpoint is made of, one file each: weights, moments of the optimiser, schedule.
pub const PARTS: [&str; 3] = ["model", "optimizer", "schedule"];

/// Burn's file checkpointer, but a file appears under its name only when it is complete.
pub struct AtomicCheckpointer {
    complete: FileCheckpointer,
    partial: FileCheckpointer,
    folder: PathBuf,
    name: &'static str,
}

impl AtomicCheckpointer {
    /// Of one of the [`PARTS`] in a folder.
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
        let to = file(&self.folder, self.name, epoch);
        let in_place = || File::open(&from)?.sync_all().and_then(|()| fs::rename(&from, &to));
        in_place().map_err(CheckpointerError::IOError)
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        Checkpointer::<R>::delete(&self.complete, epoch)
    }

    fn restore(&self, epoch: usize) -> Result<R, CheckpointerError> {
        self.complete.restore(epoch)
    }
}

fn file(folder: &Path, part: &str, epoch: usize) -> PathBuf {
    folder.join(format!("{part}-{epoch}.bpk"))
}

/// The epochs of which all parts were saved, ascending: those a run can be continued from. None where
/// there is no folder.
pub fn complete(folder: &Path) -> Vec<usize> {
    let with =
        |parts: &[&str], epoch: usize| parts.iter().all(|part| file(folder, part, epoch).exists());
    weights(folder).into_iter().filter(|&epoch| with(&PARTS, epoch)).collect()
}

/// The epochs whose weights were saved, ascending.
pub fn weights(folder: &Path) -> Vec<usize> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let epochs = entries.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().to_string();
        name.strip_prefix("model-")?.strip_suffix(".bpk")?.parse::<usize>().ok()
    });
    let mut epochs: Vec<usize> = epochs.collect();
    epochs.sort_unstable();
    epochs
}

/// The last epoch of which all parts were saved.
///
/// # Errors
/// None in the folder.
pub fn last_complete(folder: &Path) -> Result<usize> {
    complete(folder).last().copied().ok_or_else(|| {
        Error::invalid(
            format!("{}: a complete checkpoint is needed", folder.display()),
            "none",
            "start a new run with another --output",
        )
    })
}

/// The last epoch whose weights were saved.
///
/// # Errors
/// None in the folder.
pub fn last_weights(run: &RunFolder) -> Result<usize> {
    weights(&run.checkpoints()).last().copied().ok_or_else(|| {
        let what = format!("{}: saved weights are needed", run.checkpoints().display());
        Error::invalid(what, "none", "train for an epoch at least")
    })
}

/// The best epoch of a run whose weights were saved; the last one where nothing was measured.
///
/// # Errors
/// No weights, or a journal that cannot be read.
pub fn best_weights(run: &RunFolder) -> Result<usize> {
    if !run.journal().exists() {
        return last_weights(run);
    }
    let saved = weights(&run.checkpoints());
    let best = ranked_in(run)?.into_iter().find(|epoch| saved.contains(epoch));
    best.map_or_else(|| last_weights(run), Ok)
}

/// The file with the weights of an epoch.
pub fn weights_file(run: &RunFolder, epoch: usize) -> PathBuf {
    file(&run.checkpoints(), PARTS[0], epoch)
}

/// Saves the weights of a model as those of an epoch.
///
/// # Errors
/// A file that cannot be written.
pub fn save_weights<M: Module>(run: &RunFolder, epoch: usize, model: M) -> Result<()> {
    let checkpointer = AtomicCheckpointer::new(&run.checkpoints(), PARTS[0]);
    checkpointer.save(epoch, model.into_record()).map_err(|reason| {
        let path = weights_file(run, epoch);
        Error::io(&path, "write", std::io::Error::other(reason.to_string()))
    })
}

/// `model` with the weights of an epoch.
///
/// # Errors
/// A file that cannot be read or belongs to another network.
pub fn load_weights<M: Module>(run: &RunFolder, epoch: usize, model: M) -> Result<M> {
    let path = weights_file(run, epoch);
    let damaged = |reason: String| {
        let what = "the checkpoint must hold the weights of the network in network.json";
        Error::file(&path, what, reason, "take another checkpoint of the run")
    };
    let record = ModuleRecord::load(&path).map_err(|reason| damaged(reason.to_string()))?;
    model.try_load_record(record).map_err(|reason| damaged(reason.to_string()))
}
