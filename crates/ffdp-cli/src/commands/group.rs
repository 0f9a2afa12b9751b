//! What commands for groups of images share: flags, the right to the output folder, and how a run goes on.

use std::path::{Path, PathBuf};

use clap::Args;
use ffdp_register::{Placement, Settings};
use serde::Serialize;
use serde_json::json;

use super::folder::FolderArguments;
use super::input::Reading;
use super::print::PrintArguments;
use crate::failure::{Failure, Result};
use crate::hash::sha256_of;
use crate::journal::Opening;
use crate::json::to_json;
use crate::manifest::{Claim, Identity, place};
use crate::memory::Sizes;
use crate::mesh::MeshArguments;
use crate::names::arguments;
use crate::output::{OutputFolder, Records};
use crate::printer::Printer;
use crate::settings::to_toml;

/// How a group is read and computed, and what is done with a folder that is not empty.
#[derive(Clone, Debug, Args)]
pub struct GroupArguments {
    #[command(flatten)]
    pub reading: Reading,
    /// Where to compute. Each of several --devices registers images of its own.
    #[command(flatten)]
    pub mesh: MeshArguments,
    /// Exit with 3 when an image was left out. The results of the others are written.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    pub folder: FolderArguments,
    #[command(flatten)]
    pub print: PrintArguments,
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
        ];
        let all = own.into_iter().chain(self.reading.identity()).chain(names.iter().cloned());
        Ok(all.filter_map(|(name, value)| Some((name, value?))).collect())
    }

    /// The folder with its settings and its log, where the run goes on if it is to and can.
    pub fn open(
        &self,
        run: &GroupRun,
        claim: Claim,
        files: RunFiles,
        printer: Printer,
    ) -> Result<OutputFolder> {
        let resumed = self.folder.resume && files.state.exists();
        if self.folder.resume && !resumed {
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
