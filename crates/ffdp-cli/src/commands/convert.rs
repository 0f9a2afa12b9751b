//! `ffdp convert`: an image or displacement in another format, or an image as the channels that describe it.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use clap::{Args, ValueEnum};
use ffdp_burn::ops::{MindOptions, mind};
use ffdp_image::image::Volume;
use ffdp_image::io::images::{
    DataType, convert, header, read_formats, unreadable_by_itk, write_volumes, written_endings,
};
use ffdp_image::io::{check_not_an_input, check_writable};

use super::input::{Reading, image};
use crate::device::DeviceChoice;
use crate::disk::Forecast;
use crate::failure::{Failure, Result};
use crate::nan_policy::NanPolicy;
use crate::printer::Printer;

/// `ffdp convert`.
#[derive(Debug, Args)]
#[command(
    override_usage = "ffdp convert [OPTIONS] <FILE> <RESULT>\n       ffdp convert [OPTIONS] -i <FILE> -o <RESULT>"
)]
pub struct ConvertArguments {
    /// Image or displacement, and the result, in place of `-i` and `-o`.
    #[arg(value_name = "FILE", num_args = 0..=2, help = "Image or displacement, and RESULT, in place of -i and -o")]
    files: Vec<PathBuf>,
    /// Image or displacement, of a format that is read.
    #[arg(short, long, value_name = "FILE", help = format!("Image or displacement: {}", read_formats()))]
    input: Option<PathBuf>,
    /// Result, of a format that is written.
    #[arg(short, long, value_name = "RESULT", help = result_help())]
    output: Option<PathBuf>,
    /// Of several volumes the only one, from 0 [default: all].
    #[arg(long, value_name = "K")]
    pub volume: Option<usize>,
    /// Write channels that describe the image, for --channels of register or other programs. A volume of the result
    /// each, float32.
    #[arg(long, value_name = "NAME", value_enum)]
    pub features: Option<FeatureChoice>,
    // No default value: finding the fastest device would start the drivers of GPUs, whatever is converted.
    /// Device to compute --features on [default: the fastest]. It must be compiled in.
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", requires = "features")]
    pub device: Option<DeviceChoice>,
}

/// What an image is described by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FeatureChoice {
    /// Structure of neighbourhoods: the twelve channels of MIND-SSC as published, radius 1 and dilation 2.
    Mind,
}

impl FeatureChoice {
    /// How many channels.
    fn channels(self) -> usize {
        match self {
            Self::Mind => mind::CHANNELS,
        }
    }

    /// The channels of an image, each on its grid.
    fn describe(self, image: &Volume, device: &Device) -> Result<Vec<Volume>> {
        let described = match self {
            Self::Mind => mind(image.to_tensor(device), &MindOptions::default()),
        };
        let channel =
            |k| Ok(Volume::from_tensor(described.clone().narrow(1, k, 1), image.geometry.clone())?);
        (0..self.channels()).map(channel).collect()
    }
}

fn result_help() -> String {
    let endings = written_endings();
    format!(
        "Result: {endings}; an OME-Zarr with its pyramid. Voxels keep their type and values; scaled ones become float32 \
         where the format holds no scale"
    )
}

impl ConvertArguments {
    /// The image and the result: by their flags, else in this order without.
    fn named(&self) -> Result<[&Path; 2]> {
        let flags = [&self.input, &self.output];
        let mut files = self.files.iter();
        let [input, output] = flags.map(|flag| flag.as_ref().or_else(|| files.next()));
        match (input, output, files.next()) {
            (Some(input), Some(output), None) => Ok([input, output]),
            _ => Err(Failure::user(
                format!("an image and its result are two files, got {}", self.count()),
                "ffdp convert IN OUT, or ffdp convert -i IN -o OUT",
            )),
        }
    }

    fn count(&self) -> usize {
        self.files.len() + [&self.input, &self.output].into_iter().flatten().count()
    }
}

/// Writes the result, a piece at a time.
pub fn run(request: &ConvertArguments) -> Result<()> {
    let [input, output] = request.named()?;
    check_not_an_input(output, &[input])?;
    check_writable(output)?;
    let from = header(input)?;
    let reading = Reading { volume: request.volume, nan_policy: NanPolicy::Error };
    reading.check_volume([input])?;
    if let Some(features) = request.features {
        return write_features(features, [input, output], reading, request.device);
    }
    let volumes = if request.volume.is_some() { 1 } else { from.volumes() };
    let bytes = from.data_type.bytes() * volumes * from.geometry.len();
    Forecast::of_file(output, bytes as u64).check_file("the result", output)?;
    let header = convert(input, output, request.volume)?;
    let printer = Printer::new(false, false);
    let shear = unreadable_by_itk(output, &header.geometry);
    header.warnings.iter().chain(&shear).for_each(|warning| printer.warning(warning));
    Ok(())
}

/// Writes the channels of the image.
fn write_features(
    features: FeatureChoice,
    [input, output]: [&Path; 2],
    reading: Reading,
    device: Option<DeviceChoice>,
) -> Result<()> {
    let printer = Printer::new(false, false);
    let image = image(input, reading, printer)?;
    let values = features.channels() * image.geometry.len();
    Forecast::of_file(output, (DataType::F32.bytes() * values) as u64)
        .check_file("the result", output)?;
    unreadable_by_itk(output, &image.geometry).iter().for_each(|warning| printer.warning(warning));
    let channels = features.describe(&image, &device.unwrap_or_else(DeviceChoice::best).open()?)?;
    Ok(write_volumes(output, &channels, 0.0)?)
}
