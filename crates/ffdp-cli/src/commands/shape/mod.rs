//! `ffdp shape`: surfaces, curves and point clouds.

mod atlas;
mod convert;
mod distance;
mod input;
mod method;
mod register;

use clap::{Args, Subcommand};

use crate::failure::Result;

/// `ffdp shape`.
#[derive(Debug, Args)]
pub struct ShapeArguments {
    #[command(subcommand)]
    command: ShapeCommand,
}

#[derive(Debug, Subcommand)]
enum ShapeCommand {
    /// Deform a shape onto another.
    Register(register::RegisterShapes),
    /// Compute the mean shape of a cohort, and deform it onto every member.
    Atlas(atlas::AtlasArguments),
    /// Measure how far two shapes lie apart.
    Distance(distance::DistanceArguments),
    /// Convert between formats, and make surfaces of labels.
    Convert(convert::ConvertArguments),
}

/// Does what is asked for.
pub fn run(request: &ShapeArguments) -> Result<()> {
    match &request.command {
        ShapeCommand::Register(request) => register::run(request),
        ShapeCommand::Atlas(request) => atlas::run(request),
        ShapeCommand::Distance(request) => distance::run(request),
        ShapeCommand::Convert(request) => convert::run(request),
    }
}
