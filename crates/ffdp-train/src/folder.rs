//! The folder of a run: where everything is.

use std::fs;
use std::path::{Path, PathBuf};

use ffdp_image::{Error, Result};

/// The files of a run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    root: PathBuf,
}

impl RunFolder {
    /// The run in `root`, which need not exist yet.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The recipe, as given and as it is repeated.
    pub fn settings(&self) -> PathBuf {
        self.root.join("settings.toml")
    }

    /// The network's configuration (`NetworkConfig`).
    pub fn network(&self) -> PathBuf {
        self.root.join("network.json")
    }

    /// How images are prepared for the network.
    pub fn input(&self) -> PathBuf {
        self.root.join("input.json")
    }

    /// One JSON object for every step and epoch.
    pub fn journal(&self) -> PathBuf {
        self.root.join("metrics.jsonl")
    }

    /// The figures of the evaluated pairs.
    pub fn evaluation(&self) -> PathBuf {
        self.root.join("evaluation.json")
    }

    /// Figures, curves and pictures on one page.
    pub fn report(&self) -> PathBuf {
        self.root.join("report.html")
    }

    /// Weights, moments, schedules.
    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoint")
    }

    /// PNG files.
    pub fn pictures(&self) -> PathBuf {
        self.root.join("pictures")
    }

    /// Makes the folders.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn create(&self) -> Result<()> {
        let pictures = self.pictures();
        fs::create_dir_all(&pictures).map_err(|error| Error::io(&pictures, "create", error))
    }
}
