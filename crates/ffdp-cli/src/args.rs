//! The command line, as clap reads it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands::completions::CompletionsArguments;
use crate::commands::info::InfoArguments;
use crate::commands::measure::MeasureArguments;
use crate::commands::plan::PlanArguments;
use crate::commands::register::RegisterArguments;
use crate::commands::synth::SynthArguments;
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
    Register(Box<RegisterArguments>),
    /// Predict the memory and the disk space of a registration, without doing it.
    Plan(PlanArguments),
    /// Warp another image or label map by a displacement that `register` wrote.
    Apply(ApplyArguments),
    /// Explain a NIfTI file: grid, orientation, voxel type, values, what is unusual about it.
    Info(InfoArguments),
    /// Measure how well images, labels or a deformation agree.
    Measure(MeasureArguments),
    /// Make labelled images of any resolution, with known warps, from label maps or from nothing.
    Synth(SynthArguments),
    /// Print a completion script for a shell, to be put where the shell looks for them.
    Completions(CompletionsArguments),
    /// Print the manual page (roff): `ffdp man | man -l -`.
    Man,
}

/// What to do about voxels that are not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NanPolicy {
    /// Refuse the image.
    Error,
    /// Set them to zero.
    Zero,
    /// Set them to zero, and let them not count in a registration.
    Mask,
}

/// How a label is read between voxels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LabelChoice {
    /// That of the nearest voxel.
    Nearest,
    /// That with most weight among the eight voxels around.
    Majority,
}

/// `ffdp apply`.
#[derive(Debug, Args)]
pub struct ApplyArguments {
    /// Image or label map to warp, on the moving side (NIfTI, 3-D).
    #[arg(short, long, value_name = "FILE")]
    pub image: PathBuf,
    /// Displacement file (ITK: LPS mm, 5-D, intent 1007); its grid becomes that of the result.
    #[arg(short, long, value_name = "FILE")]
    pub transform: PathBuf,
    /// Result, ending in .nii or .nii.gz.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// The image is a label map: keep integers. `nearest` takes the nearest voxel's label,
    /// `majority` that with most weight among the eight voxels around (smoother borders; ANTs'
    /// GenericLabel).
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "nearest")]
    pub labels: Option<LabelChoice>,
    /// Of an image file with several volumes, the one to use, from 0.
    #[arg(long, value_name = "K")]
    pub volume: Option<usize>,
    /// What to do about NaN and infinite voxels.
    #[arg(long, value_enum, default_value_t = NanPolicy::Error)]
    pub nan_policy: NanPolicy,
    /// Where to compute; only what was compiled in is accepted.
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value_t = DeviceChoice::best())]
    pub device: DeviceChoice,
}
