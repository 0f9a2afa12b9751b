//! `ffdp apply`: another image through a displacement that was found before.

use ffdp_burn::io::nifti::{read_displacement, read_labels, write_labels, write_volume};
use ffdp_burn::io::{check_not_an_input, check_writable};
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::Displacement;

use super::input::{Reading, image};
use crate::args::{ApplyArguments, LabelChoice};
use crate::failure::Outcome;
use crate::printer::Printer;

/// Warps an image or a label map; the result lies on the grid of the displacement.
pub fn run(request: &ApplyArguments) -> Outcome<()> {
    let ApplyArguments { image: input, transform, output, .. } = request;
    check_not_an_input(output, &[input, transform])?;
    check_writable(output)?;
    let device = request.device.open()?;
    let (values, geometry) = read_displacement(transform)?;
    let displacement = Displacement::from_vec(values, geometry, &device)?;
    if let Some(choice) = request.labels {
        let labels = read_labels(input)?;
        displacement.geometry().check_overlap(&labels.geometry, 0.0)?;
        let how = match choice {
            LabelChoice::Nearest => Interpolation::Nearest,
            LabelChoice::Majority => Interpolation::Label,
        };
        write_labels(output, &displacement.warp_labels_with(&labels, how)?)?;
    } else {
        let reading = Reading { volume: request.volume, nan_policy: request.nan_policy };
        let image = image(input, reading, Printer::new(false, false))?;
        displacement.geometry().check_overlap(&image.geometry, 0.0)?;
        write_volume(output, &displacement.warp(&image)?)?;
    }
    Ok(())
}
