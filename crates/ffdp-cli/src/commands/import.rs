//! `ffdp import`: weights that were trained in PyTorch, for `ffdp predict`.

use std::path::PathBuf;

use clap::Args;
use ffdp_image::Error;
use ffdp_train::import::import;
use ffdp_train::input::{GridCompat, InputGrid};
use ffdp_train::settings::Settings;
use ffdp_train::settings::{Align, ResolutionArg, VariantArg, parse_size};

use crate::failure::Result;
use crate::printer::say;

const HELP: &str = "\
The weights are TransMorph's, by the names of the published model, as a safetensors file; \
scripts/safetensors_of.py makes one of a .pth file.

PyTorch counts axes as the arrays had them in training, the first varying slowest; --size and --axes are \
given in that order. --axes names the anatomical direction in which the index of each grows.

Exit code: 0 done, 1 an error in the input or the request, 2 a defect.";

/// `ffdp import`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct ImportArguments {
    /// Weights (safetensors)
    #[arg(long, value_name = "FILE")]
    pub weights: PathBuf,
    /// Size of the network
    #[arg(long, value_enum)]
    pub variant: VariantArg,
    /// Grid on which it predicts
    #[arg(long, value_enum)]
    pub resolution: ResolutionArg,
    /// Size of its images in voxels, in the order of its arrays
    #[arg(long, value_name = "DxHxW")]
    pub size: String,
    /// Anatomical directions of its arrays' axes, for example LIA
    #[arg(long, value_name = "CODES")]
    pub axes: String,
    /// How its warp was sampled
    #[arg(long, value_enum, default_value_t = GridCompat::Published)]
    pub compat: GridCompat,
    /// The network predicts a velocity (7 squarings)
    #[arg(long)]
    pub integrate: bool,
    /// How it lays the moving image onto the fixed one
    #[arg(long, value_enum, default_value_t = Align::Headers)]
    pub align: Align,
    /// Folder that ffdp predict takes as --model
    #[arg(short, long, alias = "out", value_name = "DIR")]
    pub output: PathBuf,
}

/// Reads the weights and writes the folder.
pub fn run(request: &ImportArguments) -> Result<()> {
    let mut size = parse_size(&request.size)?;
    size.reverse();
    let ImportArguments { variant, resolution, integrate, align, compat, .. } = *request;
    let settings = Settings { variant, resolution, integrate, align, ..Settings::default() };
    let axes = request.axes.to_uppercase().chars().rev().collect();
    let input = InputGrid { axes, size: Some(size), compat };
    input.check().map_err(|_| {
        let what = "--axes must name one direction of each pair L/R, P/A and I/S";
        Error::invalid(what, &request.axes, "for example LIA")
    })?;
    import(&request.weights, &settings, &input, &request.output)?;
    say(&format!("the model is in {}", request.output.display()));
    Ok(())
}
