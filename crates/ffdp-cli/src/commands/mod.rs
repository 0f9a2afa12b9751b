//! The commands, one file each, in one list, [`Command`]; `input.rs`, `cohort_images.rs` and `chain.rs` read what they are given; `folder.rs`
//! and `print.rs` are flags that several have.

pub mod apply;
pub mod bench;
mod chain;
mod cohort_images;
pub mod completions;
pub mod compose;
pub mod convert;
mod folder;
pub mod fuse;
mod group;
pub mod import;
pub mod info;
pub mod input;
pub mod invert;
pub mod man;
pub mod measure;
pub mod plan;
pub mod predict;
mod print;
pub mod register;
pub mod shape;
pub mod synth;
pub mod template;
pub mod train;

use clap::Subcommand;

use self::apply::ApplyArguments;
use self::bench::BenchArguments;
use self::completions::CompletionsArguments;
use self::compose::ComposeArguments;
use self::convert::ConvertArguments;
use self::fuse::FuseArguments;
use self::import::ImportArguments;
use self::info::InfoArguments;
use self::invert::InvertArguments;
use self::measure::MeasureArguments;
use self::plan::PlanArguments;
use self::predict::PredictArguments;
use self::register::RegisterArguments;
use self::shape::ShapeArguments;
use self::synth::SynthArguments;
use self::template::TemplateArguments;
use self::train::TrainCommand;
use crate::failure::Result;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Deform a moving image onto a fixed image.
    Register(Box<RegisterArguments>),
    /// Predict the memory and the disk space of a registration, without doing it.
    Plan(PlanArguments),
    /// Warp images, label maps or landmarks by transforms (ffdp, ANTs, ITK, FSL).
    Apply(ApplyArguments),
    /// Combine several transforms into one.
    Compose(ComposeArguments),
    /// Write an image in another format, as a DICOM series in NIfTI or OME-Zarr.
    Convert(ConvertArguments),
    /// Invert a transform and measure the error of the inverse.
    Invert(InvertArguments),
    /// Describe images (grid, orientation, voxel type, values, anything unusual) and transforms.
    Info(InfoArguments),
    /// Measure how well images, labels or a deformation agree.
    Measure(MeasureArguments),
    /// Compare methods of registration: accuracy, time, memory.
    Bench(BenchArguments),
    /// Surfaces, curves and point clouds: deform, average, compare, convert.
    Shape(Box<ShapeArguments>),
    /// Make labelled images of any resolution, with known warps, from label maps or procedural brains.
    Synth(SynthArguments),
    /// Make an unbiased template of a cohort: its mean shape and mean intensities.
    Template(Box<TemplateArguments>),
    /// Label an image by several labelled ones: register each to it, and join the labels.
    Fuse(Box<FuseArguments>),
    /// Train a registration network (TransMorph, VoxelMorph) on your images or on synthetic brains.
    Train(Box<TrainCommand>),
    /// Register two images with a trained network.
    Predict(Box<PredictArguments>),
    /// Import the weights of a TransMorph that was trained in PyTorch.
    Import(ImportArguments),
    /// Print a completion script for a shell, to be put where the shell looks for them.
    Completions(CompletionsArguments),
    /// Print the manual page (roff): `ffdp man | man -l -`.
    Man,
}

impl Command {
    /// Does what it asks for; `line` is the whole command line.
    pub fn run(&self, line: fn() -> clap::Command) -> Result<()> {
        match self {
            Self::Register(request) => register::run(request),
            Self::Apply(request) => apply::run(request),
            Self::Convert(request) => convert::run(request),
            Self::Compose(request) => compose::run(request),
            Self::Fuse(request) => fuse::run(request),
            Self::Invert(request) => invert::run(request),
            Self::Info(request) => info::run(request),
            Self::Measure(request) => measure::run(request),
            Self::Plan(request) => plan::run(request),
            Self::Completions(request) => completions::run(request, line()),
            Self::Man => man::run(line()),
            Self::Bench(request) => bench::run(request),
            Self::Shape(request) => shape::run(request),
            Self::Synth(request) => synth::run(request),
            Self::Template(request) => template::run(request),
            Self::Train(request) => train::run_command(request),
            Self::Import(request) => import::run(request),
            Self::Predict(request) => predict::run(request),
        }
    }
}
