//! `ffdp shape convert`: formats, and surfaces of labels.

use std::path::PathBuf;

use clap::Args;
use ffdp_image::Error;
use ffdp_image::io::{check_not_an_input, check_writable};
use ffdp_shapes::files::write_shape;

use super::input::{SHAPE_HELP, ShapeInput};
use crate::failure::Result;
use crate::printer::summarise;

/// `ffdp shape convert`.
#[derive(Debug, Args)]
#[command(after_long_help = SHAPE_HELP)]
pub struct ConvertArguments {
    /// Shape: a file, or LABELMAP:LABEL.
    #[arg(short, long, value_name = "SHAPE")]
    input: ShapeInput,
    /// Result; its name says in which format (.ply, .vtk, .obj, .stl, .gii, .csv, .fcsv).
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Keep the largest connected part only.
    #[arg(long)]
    largest: bool,
    /// Do not print what was written.
    #[arg(short, long)]
    quiet: bool,
}

/// Reads and writes.
pub fn run(request: &ConvertArguments) -> Result<()> {
    let ConvertArguments { input, output, .. } = request;
    check_not_an_input(output, &[&input.path])?;
    check_writable(output)?;
    let shape = input.read()?;
    if request.largest && shape.cells.is_empty() {
        let because = "points that no cell connects have no parts";
        let fix = "give a surface or curves";
        return Err(Error::without_effect("--largest", because, fix).into());
    }
    let shape = if request.largest { shape.largest_component() } else { shape };
    write_shape(output, &shape)?;
    summarise(request.quiet, || {
        let (points, cells) = (shape.points.len(), shape.cells.len());
        let size = match shape.triangles() {
            [] => String::new(),
            _ => format!(", {:.1} mm^2, {:.1} mm^3", shape.measure(), shape.volume()),
        };
        format!("{}: {points} points, {cells} cells{size}\n", output.display())
    })
}
