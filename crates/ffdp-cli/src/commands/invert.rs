//! `ffdp invert`: the inverse of a transform, and how good it is.

use std::path::PathBuf;

use clap::Args;
use ffdp_burn::transform::{Composite, RoundTrip, Step, write_transform};
use ffdp_image::Error;

use super::chain::{ORDER_HELP, TransformChoice, grid};
use super::compose::{check_reference, opened};
use ffdp_register::verdict::MOST_INVERSE_ERROR_VOXELS;

use crate::device::DeviceChoice;
use crate::disk::Forecast;
use crate::failure::Result;
use crate::json::to_json;
use crate::printer::{Printer, print_to_stdout};

/// `ffdp invert`.
#[derive(Debug, Args)]
#[command(after_long_help = ORDER_HELP)]
pub struct InvertArguments {
    /// Transform or folder of results; repeat it for a chain. The order is that of antsApplyTransforms: warp, then affine.
    #[arg(short, long, value_name = "FILE|DIR", required = true)]
    pub transform: Vec<TransformChoice>,
    /// Image whose grid the inverse gets; for a chain with an affine part, the moving image
    /// [default: the grid of the first -t, a displacement].
    #[arg(short, long, value_name = "FILE")]
    pub reference: Option<PathBuf>,
    /// Result: a displacement (.nii, .nii.gz, .zarr), or a matrix (.txt, .tfm, .mat) if all are affine.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Print the error of the inverse as JSON.
    #[arg(long)]
    pub json: bool,
    /// Device to compute on; it must be compiled in.
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value = DeviceChoice::AUTO)]
    pub device: DeviceChoice,
}

/// Writes the inverse and prints its error.
pub fn run(request: &InvertArguments) -> Result<()> {
    let InvertArguments { transform, reference, output, .. } = request;
    let (map, device, is_matrix) = opened(transform, reference.as_deref(), output, request.device)?;
    let inverse = map.inverse()?;
    check_reference(reference.as_deref(), is_matrix)?;
    if is_matrix {
        if request.json {
            let because = "the inverse of a matrix is exact, and has no error to print";
            let fix = "write a displacement: --output inverse_warp.nii.gz";
            return Err(Error::without_effect("--json", because, fix).into());
        }
        return Ok(write_transform(output, &inverse)?);
    }
    let grid = grid(reference.as_deref(), map.first_grid())?;
    Forecast::of_displacement(output, grid.len()).check_file("the inverse", output)?;
    let stored = inverse.to_displacement(&grid, &device);
    let stored = Composite::new(vec![Step::Displacement(stored)]);
    write_transform(output, &stored)?;
    report(&map.round_trip(&stored, &grid, &device)?, request.json)
}

fn report(error: &RoundTrip, json: bool) -> Result<()> {
    if error.p95_voxels > MOST_INVERSE_ERROR_VOXELS {
        Printer::new(false, false).warning(&format!(
            "the inverse is off by more than {MOST_INVERSE_ERROR_VOXELS} voxels at over 5 % of the points: \
             the transform folds there, or the grid is too coarse or does not cover it"
        ));
    }
    if json {
        return print_to_stdout(&to_json(error)?);
    }
    let RoundTrip { mean_mm, p95_mm, max_mm, p95_voxels, max_voxels } = error;
    print_to_stdout(&format!(
        "|phi(phi^-1(x)) - x| between the voxels:\n  mean          {mean_mm:.4} mm\n  \
         95th percent  {p95_mm:.4} mm ({p95_voxels:.4} voxels)\n  \
         largest       {max_mm:.4} mm ({max_voxels:.4} voxels)\n"
    ))
}
