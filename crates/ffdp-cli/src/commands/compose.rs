//! `ffdp compose`: a chain of transforms as one.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use clap::Args;
use ffdp_burn::transform::{Composite, Step, write_transform};
use ffdp_image::Error;
use ffdp_image::io::images::is_displacement_name;
use ffdp_image::io::{check_not_an_input, check_writable, is_composite_name};

use super::chain::{ORDER_HELP, TransformChoice, chain, grid};
use crate::device::DeviceChoice;
use crate::disk::Forecast;
use crate::failure::Result;

/// `ffdp compose`.
#[derive(Debug, Args)]
#[command(after_long_help = ORDER_HELP)]
pub struct ComposeArguments {
    /// Transform or folder of results; repeat it for a chain. The order is that of antsApplyTransforms: warp, then affine.
    #[arg(short, long, value_name = "FILE|DIR", required = true)]
    pub transform: Vec<TransformChoice>,
    /// Image whose grid a displacement gets [default: the grid of the first -t, a displacement].
    #[arg(short, long, value_name = "FILE")]
    pub reference: Option<PathBuf>,
    /// Result: one displacement (.nii, .nii.gz, .zarr), a matrix (.txt, .tfm, .mat) if all are affine, or
    /// the chain part by part (.h5, a composite of ITK and ANTs).
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Device to compute on; it must be compiled in.
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value = DeviceChoice::AUTO)]
    pub device: DeviceChoice,
}

/// Writes the whole chain as one file.
pub fn run(request: &ComposeArguments) -> Result<()> {
    let ComposeArguments { transform, reference, output, .. } = request;
    let (map, device, is_matrix) = opened(transform, reference.as_deref(), output, request.device)?;
    check_reference(reference.as_deref(), is_matrix || is_composite_name(output))?;
    if is_composite_name(output) {
        return Ok(write_transform(output, &stored(map, &device))?);
    }
    if is_matrix {
        return Ok(write_transform(output, &map)?);
    }
    let grid = grid(reference.as_deref(), map.first_grid())?;
    Forecast::of_displacement(output, grid.len()).check_file("the displacement", output)?;
    let whole = map.to_displacement(&grid, &device);
    Ok(write_transform(output, &Composite::new(vec![Step::Displacement(whole)]))?)
}

/// The map of a chain whose result is written, the device, and whether the result is a matrix.
pub fn opened(
    transform: &[TransformChoice],
    reference: Option<&Path>,
    output: &Path,
    device: DeviceChoice,
) -> Result<(Composite, Device, bool)> {
    let mut inputs: Vec<&Path> = reference.into_iter().collect();
    inputs.extend(transform.iter().flat_map(TransformChoice::paths));
    check_not_an_input(output, &inputs)?;
    check_writable(output)?;
    let device = device.open()?;
    let map = chain(transform, &device)?;
    let is_matrix = map.as_affine().is_some() && !is_image(output);
    Ok((map, device, is_matrix))
}

/// Refuses the grid of a result that has none.
pub fn check_reference(reference: Option<&Path>, has_no_grid: bool) -> Result<()> {
    match reference {
        Some(image) if has_no_grid => {
            let given = format!("--reference {}", image.display());
            let because = "the result is no displacement, and has no grid";
            let fix = "write a displacement: --output warp.nii.gz";
            Err(Error::without_effect(given, because, fix).into())
        }
        _ => Ok(()),
    }
}

/// The chain with every inverse of a displacement as a displacement, on the same grid.
fn stored(map: Composite, device: &Device) -> Composite {
    let step = |step: &Step| match step {
        Step::Inverse(field) => {
            let inverse = Composite::new(vec![step.clone()]);
            Step::Displacement(inverse.to_displacement(field.geometry(), device))
        }
        Step::InverseBspline(spline) => {
            let inverse = Composite::new(vec![step.clone()]);
            Step::Displacement(inverse.to_displacement(spline.geometry(), device))
        }
        Step::Affine(_) | Step::Displacement(_) | Step::Bspline(_) | Step::Map(_) => step.clone(),
    };
    Composite::new(map.steps().iter().map(step).collect())
}

/// Whether the name is that of a displacement field.
pub fn is_image(path: &Path) -> bool {
    is_displacement_name(path)
}
