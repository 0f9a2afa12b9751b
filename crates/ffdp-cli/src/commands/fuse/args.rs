//! The flags of `ffdp fuse`.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use ffdp_groups::fusion::{FusionMethod, FusionSettings, JointSettings};

use crate::failure::Result;
use crate::mesh::MeshArguments;
use crate::nan_policy::NanPolicy;
use crate::settings::SettingsArguments;

const HELP: &str = "\
Each atlas is registered to the image as ffdp register does it, and its labels are brought along. Where atlases disagree, joint \
label fusion (Wang et al. 2013) weighs them by how much their intensities differ from those of the image around the voxel, and \
by how much they err together.

Written to the output folder:
  labels.nii.gz   the joined labels on the grid of the image
  metrics.json    of each atlas its loss and the Dice of its labels with the joined ones; settings, times
  settings.toml   how atlases were registered, for --settings
  log.jsonl       one JSON object per event, written as it happens
  manifest.json   the files of this run, and what determines its results
  checkpoint/     during the run: the state that --resume continues from

An atlas that cannot be read or registered is reported and left out.

Exit code: 0 done, 1 an error in the input or the request, 2 a defect or a failure of the device, 3 with --strict: an \
atlas was left out.";

/// `ffdp fuse`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = HELP)]
pub struct FuseArguments {
    /// The image that is to get labels.
    #[arg(short, long, value_name = "FILE")]
    pub fixed: PathBuf,
    /// The atlases: a list (CSV) whose first line names the columns image, labels and, as needed, name.
    #[arg(short = 'i', long = "atlases", value_name = "ATLASES.CSV")]
    pub list: PathBuf,
    /// Folder for the results; made if it does not exist.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// How labels are joined.
    #[arg(long, value_enum, default_value_t)]
    method: MethodChoice,
    /// For --method joint: what is added to the diagonal of the matrix of errors.
    #[arg(long, value_name = "A", default_value_t = JointSettings::default().alpha)]
    alpha: f64,
    /// For --method joint: exponent that makes errors of differences.
    #[arg(long, value_name = "B", default_value_t = JointSettings::default().beta)]
    exponent: f64,
    /// For --method joint: patches reach so many voxels to either side.
    #[arg(long, value_name = "VOXELS", default_value_t = JointSettings::default().patch_radius)]
    patch_radius: usize,
    /// For --method joint: the best patch of an atlas is looked for so far away.
    #[arg(long, value_name = "VOXELS", default_value_t = JointSettings::default().search_radius)]
    search_radius: usize,

    /// How atlases are registered.
    #[command(flatten)]
    pub settings: SettingsArguments,

    /// Of image files with several volumes, the one to use, from 0.
    #[arg(long, value_name = "K")]
    pub volume: Option<usize>,
    /// How NaN and infinite voxels are handled.
    #[arg(long, value_enum, default_value_t = NanPolicy::Error)]
    pub nan_policy: NanPolicy,

    /// Where to compute. Each of several --devices registers atlases of its own.
    #[command(flatten)]
    pub mesh: MeshArguments,
    /// Exit with 3 when an atlas was left out; the labels of the others are written.
    #[arg(long)]
    pub strict: bool,
    /// Continue an unfinished run with the same atlases and settings in the output folder; start anew if there is none.
    #[arg(long)]
    pub resume: bool,
    /// Remove the files of another run from the output folder (those that its manifest.json lists).
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
    /// Print the predicted memory and disk space, and join nothing.
    #[arg(long)]
    pub plan: bool,
    /// Print metrics.json (with --plan, the plan) to stdout instead of a summary.
    #[arg(long)]
    pub json: bool,
    /// Print errors only, and to stdout only what --json asks for.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print more.
    #[arg(short, long, action = ArgAction::SetTrue)]
    pub verbose: bool,
}

/// How labels are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum MethodChoice {
    /// The label that most atlases have.
    Majority,
    /// Joint label fusion: by weights.
    #[default]
    Joint,
}

impl FuseArguments {
    /// How it is done.
    pub fn resolve(&self) -> Result<FusionSettings> {
        let method = match self.method {
            MethodChoice::Majority => FusionMethod::Majority,
            MethodChoice::Joint => FusionMethod::Joint(JointSettings {
                alpha: self.alpha,
                beta: self.exponent,
                patch_radius: self.patch_radius,
                search_radius: self.search_radius,
            }),
        };
        let settings = FusionSettings { registration: self.settings.resolve()?, method };
        settings.validate()?;
        Ok(settings)
    }
}
