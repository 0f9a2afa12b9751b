//! What commands for groups of images share: flags, the right to the output folder, and how a run goes on.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use ffdp_register::{Placement, Settings};
use serde::Serialize;
use serde_json::json;

use super::input::Reading;
use crate::failure::{Failure, Result};
use crate::hash::sha256_of;
use crate::journal::Opening;
use crate::json::to_json;
use crate::manifest::{Claim, Existing, Identity, place};
use crate::memory::Sizes;
use crate::mesh::MeshArguments;
use crate::names::arguments;
use crate::nan_policy::NanPolicy;
use crate::output::{OutputFolder, Records};
use crate::printer::Printer;
use crate::settings::to_toml;

/// How a group is read and computed, and what is done with a folder that is not empty.
#[derive(Clone, Debug, Args)]
pub struct GroupArguments {
    /// Of image files with several volumes, the one to use, from 0.
    #[arg(long, value_name = "K")]
    volume: Option<usize>,
    /// How NaN and infinite voxels are handled.
    #[arg(long, value_enum, default_value_t = NanPolicy::Error)]
    nan_policy: NanPolicy,

    /// Where to compute. Each of several --devices registers images of its own.
    #[command(flatten)]
    pub mesh: MeshArguments,
    /// Exit with 3 when an image was left out. The results of the others are written.
    #[arg(long)]
    strict: bool,
    /// Continue an unfinished run of the same command. It is that in the output folder; it starts anew if there is none.
    #[arg(long)]
    resume: bool,
    /// Replace the results of another run. Its files (those that its manifest.json lists) are removed when the first new
    /// file is written.
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    /// Start even if the disk seems too small for the results.
    #[arg(long)]
    pub ignore_disk: bool,
    /// Print the predicted memory and disk space only.
    #[arg(long)]
    pub plan: bool,
    /// Print metrics.json (or the plan) instead of a summary.
    #[arg(long)]
    pub json: bool,
    /// Print errors only, and what --json asks for.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print more.
    #[arg(short, long, action = ArgAction::SetTrue)]
    verbose: bool,
}

/// The files of a run that are no results of it.
pub struct RunFiles<'a> {
    pub log: &'a Path,
    pub settings: &'a Path,
    /// What the run goes on from.
    pub state: &'a Path,
    /// All files that may be written, the first two among them.
    pub all: Vec<PathBuf>,
}

/// A run of a command.
pub struct GroupRun<'a> {
    /// The command, and what it makes.
    pub command: &'static str,
    pub product: &'static str,
    pub registration: &'a Settings,
}

impl GroupArguments {
    pub fn printer(&self) -> Printer {
        Printer::new(self.quiet, self.verbose)
    }

    pub fn reading(&self) -> Reading {
        Reading { volume: self.volume, nan_policy: self.nan_policy }
    }

    /// Where registrations of such images run at the same time.
    pub fn placements(&self, settings: &Settings, sizes: &Sizes) -> Result<Vec<Placement>> {
        let each = self.mesh.each().into_iter();
        each.map(|mesh| Ok(Placement::DeviceMesh(mesh.open(settings, sizes)?))).collect()
    }

    /// What decides the results: settings, images in an order that decides nothing, what else the command `names`.
    pub fn identity(
        &self,
        settings: &impl Serialize,
        mut images: Vec<String>,
        names: &[(&'static str, Option<String>)],
    ) -> Result<Identity> {
        images.sort();
        let own = [
            ("images", Some(sha256_of(&images.join("\n")))),
            ("settings", Some(sha256_of(&to_json(settings)?))),
            ("volume", self.volume.map(|volume| volume.to_string())),
            ("nan_policy", Some(format!("{:?}", self.nan_policy))),
        ];
        let all = own.into_iter().chain(names.iter().cloned());
        Ok(all.filter_map(|(name, value)| Some((name, value?))).collect())
    }

    /// What is to happen with a folder that has results.
    pub fn existing(&self) -> Existing {
        match (self.overwrite, self.resume) {
            (true, _) => Existing::Overwrite,
            (_, true) => Existing::Resume,
            _ => Existing::Refuse,
        }
    }

    /// The folder with its settings and its log, where the run goes on if it is to and can.
    pub fn open(
        &self,
        run: &GroupRun,
        claim: Claim,
        files: RunFiles,
        printer: Printer,
    ) -> Result<OutputFolder> {
        let resumed = self.resume && files.state.exists();
        if self.resume && !resumed {
            printer.note("there is no state to go on from: starting anew");
        }
        let (opening, kept) = match resumed {
            true => (Opening::Continued, [files.log, files.state].map(Path::to_path_buf).into()),
            false => (Opening::Anew, Vec::new()),
        };
        let version = env!("CARGO_PKG_VERSION");
        let GroupRun { command, product, registration } = run;
        let toml = to_toml(registration)?;
        let text = format!(
            "# How the images of {product} by ffdp {version} were registered.\n# ffdp {command} --settings with this file does it again.\n\n{toml}"
        );
        let (log, settings) = (files.log.to_path_buf(), files.settings.to_path_buf());
        let records = Records { log, opening, settings, text, kept, files: files.all };
        let mut output = OutputFolder::new(claim, records, printer)?;
        output.journal().event(
            "start",
            json!({"ffdp_version": version, "device": self.mesh.to_string(),
                   "command": arguments(), "resumed": resumed}),
        );
        Ok(output)
    }

    /// With --strict, images that were left out are a failure of the command; `kept` says what there is of the others.
    pub fn strictly(&self, left_out: usize, of: usize, kept: &str, folder: &Path) -> Result<()> {
        if left_out == 0 || !self.strict {
            return Ok(());
        }
        Err(Failure::result(
            format!("{left_out} of {of} images were left out"),
            format!("{kept} are in {}", folder.display()),
        ))
    }
}

/// Images as an identity names them.
pub fn places<'a>(files: impl Iterator<Item = &'a Path>) -> Vec<String> {
    files.map(place).collect()
}
