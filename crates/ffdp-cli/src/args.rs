//! The command line, as clap reads it.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::commands::apply::ApplyArguments;
use crate::commands::compose::ComposeArguments;
use crate::commands::invert::InvertArguments;
use crate::device::DeviceChoice;

/// Registration of 3-D images: finds the deformation that carries one image onto another.
#[derive(Debug, Parser)]
#[command(name = "ffdp", version, about, propagate_version = true, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Deform a moving image onto a fixed image.
    Register(RegisterArguments),
    /// Warp images, label maps or landmarks by transforms (ffdp, ANTs, ITK, FSL).
    Apply(ApplyArguments),
    /// Make one transform of several.
    Compose(ComposeArguments),
    /// Invert a transform and measure the error of the inverse.
    Invert(InvertArguments),
    /// Explain a NIfTI file: grid, orientation, voxel type, values, what is unusual about it.
    Info(InfoArguments),
}

const REGISTER_HELP: &str = "\
There is no rigid or affine stage yet. The images are placed by their headers (spacing, orientation \
and origin may differ), and the deformation reaches a few voxels of the coarsest level. If the \
images are not aligned in physical space already, align them rigidly or affinely with another tool \
first; images that hardly overlap are refused.

Written to the output folder:
  warped.nii.gz         the moving image on the fixed grid, in its own intensities
  warp.nii.gz           the displacement, for ITK and ANTs: LPS mm, 5-D, intent 1007
  warped_labels.nii.gz  the moving labels on the fixed grid (with --moving-labels)
  report.png            slices before and after, differences, the deformed grid
  metrics.json          similarity, folds, Dice, times, settings

Exit code: 0 done, 1 the input or request cannot be worked with, 2 a defect or the device failed.";

/// `ffdp register`.
#[derive(Debug, Args)]
#[command(after_long_help = REGISTER_HELP)]
pub struct RegisterArguments {
    /// Image that stays (NIfTI, 3-D).
    #[arg(short, long, value_name = "FILE")]
    pub fixed: PathBuf,
    /// Image that is deformed (NIfTI, 3-D); any grid that overlaps the fixed one in space.
    #[arg(short, long, value_name = "FILE")]
    pub moving: PathBuf,
    /// Folder for the results; made if it does not exist.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// Labels on the fixed grid: with --moving-labels, Dice before and after is computed.
    #[arg(long, value_name = "FILE", requires = "moving_labels")]
    pub fixed_labels: Option<PathBuf>,
    /// Labels on the moving grid; warped with the nearest label.
    #[arg(long, value_name = "FILE")]
    pub moving_labels: Option<PathBuf>,

    /// How alike the images are: lncc for one modality, mi for two, mse for equal intensities.
    #[arg(long, value_enum, default_value_t = Metric::Lncc)]
    pub metric: Metric,
    /// Width of the LNCC window in voxels; odd, 3 to 21 [default: 7].
    #[arg(long, value_name = "VOXELS")]
    pub window: Option<usize>,
    /// Iterations at most on each level, coarse to fine [default: 200,100,50].
    #[arg(long, value_name = "N,N,..", value_delimiter = ',')]
    pub iterations: Option<Vec<usize>>,
    /// Shrink factor of each level, coarse to fine [default: 4,2,1].
    #[arg(long, value_name = "F,F,..", value_delimiter = ',')]
    pub shrink: Option<Vec<f64>>,
    /// Longest step of an iteration, in voxels of the level [default: 0.25].
    #[arg(long, value_name = "VOXELS")]
    pub lr: Option<f64>,
    /// Smoothing of each gradient: fluid stiffness, in voxels of the level [default: 1].
    #[arg(long, value_name = "VOXELS")]
    pub sigma_grad: Option<f64>,
    /// Smoothing of the displacement: elastic stiffness, in voxels of the level [default: 0.5].
    #[arg(long, value_name = "VOXELS")]
    pub sigma_warp: Option<f64>,

    /// Of an image file with several volumes, the one to use, from 0.
    #[arg(long, value_name = "K")]
    pub volume: Option<usize>,
    /// What to do about NaN and infinite voxels.
    #[arg(long, value_enum, default_value_t = NanPolicy::Error)]
    pub nan_policy: NanPolicy,

    /// Where to compute; only what was compiled in is accepted.
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value_t = DeviceChoice::best())]
    pub device: DeviceChoice,
    /// Print metrics.json to stdout instead of a summary.
    #[arg(long)]
    pub json: bool,
    /// Say nothing but errors.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more: every loss that is read, the settings.
    #[arg(short, long, action = ArgAction::SetTrue)]
    pub verbose: bool,
}

/// What is maximised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Metric {
    /// Local normalised cross-correlation.
    Lncc,
    /// Mean squared difference.
    Mse,
    /// Mutual information.
    Mi,
}

/// What to do about voxels that are not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NanPolicy {
    /// Refuse the image.
    Error,
    /// Set them to zero.
    Zero,
}

/// `ffdp info`.
#[derive(Debug, Args)]
pub struct InfoArguments {
    /// NIfTI file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Of a file with several volumes, the one whose values are described, from 0.
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub volume: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
