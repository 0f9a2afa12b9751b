//! The command line, as clap reads it.

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::apply::ApplyArguments;
use crate::commands::bench::BenchArguments;
use crate::commands::completions::CompletionsArguments;
use crate::commands::compose::ComposeArguments;
use crate::commands::convert::ConvertArguments;
use crate::commands::fuse::FuseArguments;
use crate::commands::import::ImportArguments;
use crate::commands::info::InfoArguments;
use crate::commands::invert::InvertArguments;
use crate::commands::measure::MeasureArguments;
use crate::commands::plan::PlanArguments;
use crate::commands::predict::PredictArguments;
use crate::commands::register::RegisterArguments;
use crate::commands::shape::ShapeArguments;
use crate::commands::synth::SynthArguments;
use crate::commands::template::TemplateArguments;
use crate::commands::train::TrainCommand;
use crate::help::laid_out;

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

/// The command line, its help laid out.
pub fn command() -> clap::Command {
    laid_out(Arguments::command())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// With labels for the variable, on a device that every build has.
    fn filled<'a>(words: &[&'a str]) -> Vec<&'a str> {
        let is_given = |at: usize| at > 0 && ["--device", "--devices"].contains(&words[at - 1]);
        let word = |(at, word): (usize, &&'a str)| match is_given(at) {
            true if word.contains(',') => "cpu,cpu",
            true => "cpu",
            false if *word == "$STRUCTURES" => "10,11",
            false => word,
        };
        words.iter().enumerate().map(word).collect()
    }

    #[test]
    fn every_command_of_the_measurements_is_taken() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks");
        let mut count = 0;
        for file in std::fs::read_dir(folder).expect("a folder of the repository") {
            let path = file.expect("it can be listed").path();
            if path.extension().is_none_or(|kind| kind != "json") {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a file of text");
            let found: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            for command in found["command"].as_array().into_iter().flatten() {
                let command = command.as_str().expect("a command is text");
                let words: Vec<&str> = command.split_whitespace().collect();
                if words[0] != "ffdp" {
                    continue;
                }
                count += 1;
                if let Err(reason) = Arguments::try_parse_from(filled(&words)) {
                    panic!("{}: {command}\n{reason}", path.display());
                }
            }
        }
        assert!(count > 25, "{count} commands");
    }
}
