//! The flags of `ffdp fuse`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ffdp_groups::fusion::{FusionMethod, FusionSettings, JointSettings};
use ffdp_train::user_flags::{UserFlags, WithoutEffect};

use crate::commands::group::GroupArguments;
use crate::failure::Result;
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

The list of --atlases, files relative to its folder:
  image,labels,name
  atlas-01_T1w.nii.gz,atlas-01_dseg.nii.gz,atlas-01
  atlas-02_T1w.nii.gz,atlas-02_dseg.nii.gz,atlas-02

An atlas that cannot be read or registered is reported and left out.

Exit code: 0 done, 1 an error in the input or the request, 2 a defect or a failure of the device, 3 with --strict: an \
atlas was left out.";

/// `ffdp fuse`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = HELP)]
pub struct FuseArguments {
    #[command(flatten)]
    given: UserFlags,
    /// The image that is to get labels.
    #[arg(short, long, value_name = "FILE")]
    pub fixed: PathBuf,
    /// The atlases: a list (CSV). Its first line names the columns image, labels and, as needed, name.
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

    /// How they are read and computed.
    #[command(flatten)]
    pub run: GroupArguments,
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
        self.run.reading.nan_policy.check_without_weights("fuse")?;
        self.given.refuse(&[WithoutEffect {
            flags: &["alpha", "exponent", "patch_radius", "search_radius"],
            when: self.method == MethodChoice::Majority,
            because: "it is a part of joint label fusion, and --method is majority",
            fix: "use --method joint",
        }])?;
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
