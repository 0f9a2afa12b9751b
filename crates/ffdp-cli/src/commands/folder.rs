//! The flags of commands whose output folder holds one run, which may be continued.

use clap::Args;

use crate::manifest::Existing;

/// What is done with a folder that has results, and with a disk that seems full.
#[derive(Clone, Copy, Debug, Args)]
pub struct FolderArguments {
    /// Continue an unfinished run of the same command. It goes on from the checkpoint in the output folder, and starts anew
    /// if there is none.
    #[arg(long)]
    pub resume: bool,
    /// Replace the results of another run. Its files (those that its manifest.json lists, and the names that results have)
    /// are removed when the first new file is written.
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
    /// Start even if the disk seems too small for the results.
    #[arg(long)]
    pub ignore_disk: bool,
}

impl FolderArguments {
    /// What is to happen with results that are there.
    pub fn existing(&self) -> Existing {
        match (self.overwrite, self.resume) {
            (true, _) => Existing::Overwrite,
            (_, true) => Existing::Resume,
            _ => Existing::Refuse,
        }
    }
}
