//! Where the results of a registration go.

use std::fs;
use std::path::{Path, PathBuf};

use ffdp_burn::Error;
use ffdp_burn::io::check_writable;

use crate::checkpoint::Place;
use crate::failure::Outcome;
use crate::leftovers::remove_leftovers;

/// The files in the output folder.
pub struct Files {
    pub folder: PathBuf,
    pub warped: PathBuf,
    pub affine: PathBuf,
    pub warp: PathBuf,
    pub inverse: PathBuf,
    pub labels: PathBuf,
    pub report: PathBuf,
    pub metrics: PathBuf,
    pub settings: PathBuf,
    pub log: PathBuf,
    pub checkpoint: Place,
}

impl Files {
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
            warped: folder.join("warped.nii.gz"),
            affine: folder.join("affine.txt"),
            warp: folder.join("warp.nii.gz"),
            inverse: folder.join("inverse_warp.nii.gz"),
            labels: folder.join("warped_labels.nii.gz"),
            report: folder.join("report.html"),
            metrics: folder.join("metrics.json"),
            settings: folder.join("settings.toml"),
            log: folder.join("log.jsonl"),
            checkpoint: Place::in_folder(folder),
        }
    }

    /// Every file that a run may write.
    pub fn all(&self) -> [&Path; 9] {
        [
            &self.warped,
            &self.affine,
            &self.warp,
            &self.inverse,
            &self.labels,
            &self.report,
            &self.metrics,
            &self.settings,
            &self.log,
        ]
    }

    /// Makes the folder and tries whether every file can be written, before the work. Removes what
    /// a killed run has left half-written.
    pub fn prepare(&self) -> Outcome<()> {
        fs::create_dir_all(&self.folder)
            .map_err(|source| Error::io(&self.folder, "create the output folder", source))?;
        self.all().into_iter().for_each(remove_leftovers);
        self.all().into_iter().try_for_each(|file| Ok(check_writable(file)?))
    }
}
