//! What commands for groups of images share: flags, how a run begins, goes on and ends.

use std::path::{Path, PathBuf};

use clap::Args;
use ffdp_register::{Placement, Settings};
use serde::Serialize;
use serde_json::json;

use super::folder::FolderArguments;
use super::input::Reading;
use super::print::PrintArguments;
use crate::disk::Forecast;
use crate::failure::{Failure, Result};
use crate::hash::sha256_of;
use crate::interrupt::of_command;
use crate::journal::Opening;
use crate::json::to_json;
use crate::manifest::{Claim, Identity, place};
use crate::memory::{Plan, Sizes};
use crate::mesh::MeshArguments;
use crate::names::arguments;
use crate::output::{self, OutputFolder, Records};
use crate::printer::{print_to_stdout, summarise};
use crate::report::measures::RunMeasures;
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

/// The files of a run.
pub struct RunFiles {
    pub folder: PathBuf,
    pub log: PathBuf,
    pub settings: PathBuf,
    /// What the run goes on from.
    pub state: PathBuf,
    /// Those that are tried before the work.
    pub tried: Vec<PathBuf>,
    /// All that may be written, the log and the settings among them.
    pub all: Vec<PathBuf>,
}

/// A run of a command.
pub struct GroupRun<'a> {
    /// The command, what it makes, and what it writes.
    pub command: &'static str,
    pub product: &'static str,
    pub results: &'static str,
    /// What one of its images is called, and several; and how many there are.
    pub images: [&'static str; 2],
    pub count: usize,
    pub registration: &'a Settings,
}

/// What a run takes, and the sizes that were counted with.
pub struct Planned {
    pub plan: Plan,
    pub sizes: Sizes,
    pub disk: Forecast,
}

/// Ends a run. The log of one that failed has the reason; the results of another are complete, and are shown.
pub fn finish<M: RunMeasures>(
    mut output: OutputFolder,
    measured: Result<M>,
    print: &PrintArguments,
    folder: &Path,
) -> Result<M> {
    let measured = measured.inspect_err(|failure| output.failed(failure))?;
    output.journal().event("end", measured.end());
    output.complete()?;
    print.printer().note(&format!("results are in {}", folder.display()));
    match print.json {
        true => print_to_stdout(&measured.json()?),
        false => summarise(print.quiet, || measured.summary()),
    }?;
    Ok(measured)
}

impl GroupArguments {
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

    /// Demands memory for a run, that its files can be written, and disk space for them.
    pub fn check(
        &self,
        run: &GroupRun,
        Planned { plan, disk, .. }: &Planned,
        claim: &Claim,
        files: &RunFiles,
    ) -> Result<()> {
        plan.check_memory()?;
        let tried: Vec<&Path> = files.tried.iter().map(PathBuf::as_path).collect();
        output::prepare(&files.folder, &tried)?;
        let printer = self.print.printer();
        disk.check(run.results, claim.result_folder(self.folder.ignore_disk), printer)?;
        printer.note(&format!("{} {}; {}", run.count, run.images[1], plan.in_short()));
        Ok(())
    }

    /// The folder with its settings and its log, where the run goes on if it is to and can; and where registrations run
    /// at the same time.
    pub fn begin(
        &self,
        run: &GroupRun,
        sizes: &Sizes,
        claim: Claim,
        files: RunFiles,
    ) -> Result<(OutputFolder, Vec<Placement>)> {
        let GroupRun { command, product, images: [image, _], registration, .. } = run;
        let each = self.mesh.each().into_iter();
        let each = each.map(|mesh| Ok(Placement::DeviceMesh(mesh.open(registration, sizes)?)));
        let placements = each.collect::<Result<Vec<Placement>>>()?;
        let printer = self.print.printer();
        let resumed = self.folder.resume && files.state.exists();
        if self.folder.resume && !resumed {
            printer.note("there is no state to go on from: starting anew");
        }
        let (opening, kept) = match resumed {
            true => (Opening::Continued, vec![files.log.clone(), files.state]),
            false => (Opening::Anew, Vec::new()),
        };
        let version = env!("CARGO_PKG_VERSION");
        let toml = to_toml(registration)?;
        let text = format!(
            "# How the images of {product} by ffdp {version} were registered.\n# ffdp {command} --settings with this file does it again.\n\n{toml}"
        );
        let RunFiles { log, settings, all: files, .. } = files;
        let records = Records { log, opening, settings, text, kept, files };
        let mut output = OutputFolder::new(claim, records, printer)?;
        output.journal().event(
            "start",
            json!({"ffdp_version": version, "device": self.mesh.to_string(),
                   "command": arguments(), "resumed": resumed}),
        );
        of_command(&format!(
            "interrupted: the same command with --resume goes on from the last {image} that was registered"
        ));
        Ok((output, placements))
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
