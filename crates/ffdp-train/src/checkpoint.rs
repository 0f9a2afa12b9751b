//! Saving a run so that it can be resumed, and finding where to resume.

use std::fs;
use std::path::{Path, PathBuf};

use burn::train::checkpoint::{Checkpoint, Checkpointer, CheckpointerError, FileCheckpointer};
use ffdp_burn::{Error, Result};

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
        fs::rename(from, file(&self.folder, self.name, epoch)).map_err(CheckpointerError::IOError)
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

/// The last epoch of which all parts were saved.
///
/// # Errors
/// None in the folder.
pub fn last_complete(folder: &Path) -> Result<usize> {
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
