//! An image through transforms: what is asked for, what is said about it, whether there is room for it.

use std::path::Path;

use burn::tensor::Device;
use ffdp_image::Error;
use ffdp_image::image::Geometry;
use ffdp_image::io::images::unreadable_by_itk;
use ffdp_parallel::chain::PlaneChain;
use ffdp_register::file_warp::{FileInterpolation, FileWarp, NonFiniteVoxels};

use super::{ApplyArguments, InterpolationChoice, Writing};
use crate::commands::chain::SeriesChain;
use crate::disk::Forecast;
use crate::failure::Result;
use crate::nan_policy::NanPolicy;
use crate::printer::Printer;

const LABEL_ADVICE: &str =
    "looks like a label map, and is mixed as an image; use --interpolation label, or nearest";

/// Where an image is seen, and on what it is warped.
pub struct Warping<'a> {
    /// From the grid to the image.
    pub map: Map<'a>,
    /// The grid of the result.
    pub grid: &'a Geometry,
    /// Where it is computed.
    pub device: &'a Device,
}

/// Where the volumes of an image are seen.
pub enum Map<'a> {
    /// All of them alike.
    One(PlaneChain),
    /// Each by its own transform.
    Each(SeriesChain<'a>),
}

/// Warps an image onto a grid and writes it but for its last piece.
pub fn warp_image(request: &ApplyArguments, path: &Path, warping: Warping) -> Result<Writing> {
    let Warping { map, grid, device } = warping;
    let output = request.output();
    let warn = |text: &str| Printer::new(false, false).warning(text);
    let named = |warning: &str| warn(&format!("{}: {warning}", path.display()));
    let warp = FileWarp::open(path)?
        .volume(request.volume)
        .interpolation(request.interpolation.into())
        .background(request.background)
        .non_finite(match request.nan_policy {
            NanPolicy::Error => NonFiniteVoxels::Refused,
            NanPolicy::Zero | NanPolicy::Mask => NonFiniteVoxels::Zero,
        });
    warp.warnings().iter().for_each(|warning| named(warning));
    unreadable_by_itk(output, grid).iter().for_each(|warning| warn(warning));
    if warp.mixes_labels()? {
        named(LABEL_ADVICE);
    }
    Forecast::of_file(output, warp.result_bytes(grid)?).check_file("the result", output)?;
    let last = match map {
        Map::One(map) => warp.write(map, grid, device, output)?,
        Map::Each(series) => {
            let mut failure = None;
            let mut map = |volume: usize| {
                series.map(volume, request.inverse, device).map_err(|failed| {
                    let what = format!("the transform of volume {volume}");
                    let error = Error::invalid(what, &failed, "check the list");
                    failure = Some(failed);
                    error
                })
            };
            let written = warp.write_each(&mut map, grid, device, output);
            match failure {
                Some(failure) => return Err(failure),
                None => written?,
            }
        }
    };
    last.warnings.iter().for_each(|warning| warn(warning));
    Ok(Box::new(move || Ok(last.finish()?)))
}

impl From<InterpolationChoice> for FileInterpolation {
    fn from(choice: InterpolationChoice) -> Self {
        match choice {
            InterpolationChoice::Linear => Self::Linear,
            InterpolationChoice::Cubic => Self::Cubic,
            InterpolationChoice::Sinc => Self::Sinc,
            InterpolationChoice::Nearest => Self::Nearest,
            InterpolationChoice::Label => Self::Label,
        }
    }
}
