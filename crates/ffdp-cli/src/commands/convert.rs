//! `ffdp convert`: an image or displacement in another format.

use std::path::PathBuf;

use clap::Args;
use ffdp_image::io::images::{convert, header, read_formats, unreadable_by_itk, written_endings};
use ffdp_image::io::{check_not_an_input, check_writable};

use crate::disk::Forecast;
use crate::failure::Result;
use crate::printer::Printer;

/// `ffdp convert`.
#[derive(Debug, Args)]
pub struct ConvertArguments {
    /// Image or displacement, of a format that is read.
    #[arg(value_name = "FILE", help = format!("Image or displacement: {}", read_formats()))]
    pub input: PathBuf,
    /// Result, of a format that is written.
    #[arg(value_name = "RESULT", help = result_help())]
    pub output: PathBuf,
    /// Of several volumes the only one, from 0 [default: all].
    #[arg(long, value_name = "K")]
    pub volume: Option<usize>,
}

fn result_help() -> String {
    let endings = written_endings();
    format!(
        "Result: {endings}; an OME-Zarr with its pyramid. Voxels keep their type and values; scaled ones become float32 \
         where the format holds no scale"
    )
}

/// Writes the result, a piece at a time.
pub fn run(request: &ConvertArguments) -> Result<()> {
    check_not_an_input(&request.output, &[&request.input])?;
    check_writable(&request.output)?;
    let from = header(&request.input)?;
    let volumes = if request.volume.is_some() { 1 } else { from.volumes() };
    let bytes = from.data_type.bytes() * volumes * from.geometry.len();
    Forecast::of_file(&request.output, bytes as u64).check_file("the result", &request.output)?;
    let header = convert(&request.input, &request.output, request.volume)?;
    let printer = Printer::new(false, false);
    let shear = unreadable_by_itk(&request.output, &header.geometry);
    header.warnings.iter().chain(&shear).for_each(|warning| printer.warning(warning));
    Ok(())
}
