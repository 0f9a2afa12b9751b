//! The output folder of a run: what is there stays until the run has something to put in its place.

use std::fs;
use std::path::{Path, PathBuf};

use ffdp_image::Error;
use ffdp_image::io::{check_writable, write_text};

use serde_json::json;

use crate::failure::{Failure, Result};
use crate::journal::{Journal, Opening};
use crate::leftovers::remove_leftovers;
use crate::manifest::Claim;
use crate::printer::Printer;

/// Makes a folder for results, and tries whether each of these files can be written.
///
/// # Errors
/// When one cannot be.
pub fn prepare(folder: &Path, files: &[&Path]) -> Result<()> {
    fs::create_dir_all(folder)
        .map_err(|source| Error::io(folder, "create the output folder", source))?;
    files.iter().try_for_each(|file| Ok(check_writable(file)?))
}

/// What a run writes about itself before it has results: settings, log and manifest.
///
/// They are there from the start where nothing is lost by it. Where the folder holds results of an earlier run they
/// are written, and these removed, when the first checkpoint or result is: a run that is refused leaves the folder as
/// it was.
pub struct OutputFolder {
    claim: Claim,
    journal: Journal,
    records: Records,
    begun: bool,
}

/// The files about a run.
pub struct Records {
    pub log: PathBuf,
    pub opening: Opening,
    pub settings: PathBuf,
    /// The content of the settings' file.
    pub text: String,
    /// What of an earlier run this one goes on with.
    pub kept: Vec<PathBuf>,
    /// Every file that the run may write.
    pub files: Vec<PathBuf>,
}

impl OutputFolder {
    /// The folder that was claimed.
    ///
    /// # Errors
    /// When the files about the run cannot be written.
    pub fn new(claim: Claim, records: Records, printer: Printer) -> Result<Self> {
        let kept: Vec<&Path> = records.kept.iter().map(PathBuf::as_path).collect();
        let at_once = claim.removes_nothing(&kept);
        let mut folder = Self { claim, journal: Journal::new(printer), records, begun: false };
        if at_once {
            folder.begin()?;
        }
        Ok(folder)
    }

    /// The log, which has a file once the run has begun to write.
    pub fn journal(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// To be called before a result or a checkpoint is written: removes those of the earlier run. The second time it
    /// does nothing.
    ///
    /// # Errors
    /// When a file cannot be removed or written.
    pub fn begin(&mut self) -> Result<()> {
        if self.begun {
            return Ok(());
        }
        let Records { log, opening, settings, text, kept, files } = &self.records;
        files.iter().for_each(|file| remove_leftovers(file));
        let kept: Vec<&Path> = kept.iter().map(PathBuf::as_path).collect();
        self.claim.begin(&kept)?;
        write_text(settings, text)?;
        self.journal.open(log, *opening)?;
        self.begun = true;
        Ok(())
    }

    /// Says in the log why the run ended without its results.
    pub fn failed(&mut self, failure: &Failure) {
        self.journal.event("failed", json!({"reason": failure.to_string()}));
    }

    /// Says that the run is complete.
    pub fn complete(self) -> Result<()> {
        self.claim.complete()
    }
}
