//! `ffdp plan`: what a registration would need, before it starts.

use std::fmt::Debug;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use ffdp_image::image::Geometry;
use ffdp_register::Content;

use crate::device::DeviceChoice;
use crate::disk::{Forecast, Written};
use crate::failure::{Failure, Result};
use crate::memory::{Held, Plan, Sizes};
use crate::settings::SettingsArguments;
use crate::words::Numbers;

/// `ffdp plan`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("sizes").required(true).args(["fixed", "size"])))]
pub struct PlanArguments {
    /// Image that stays. Only its header is read.
    #[arg(short, long, value_name = "FILE", requires = "moving")]
    pub fixed: Option<PathBuf>,
    /// Image that is deformed. Only its header is read.
    #[arg(short, long, value_name = "FILE", requires = "fixed")]
    pub moving: Option<PathBuf>,
    /// Size of both images in voxels, in place of files. One number, or X,Y,Z (also 512x512x400).
    #[arg(long, value_name = "X,Y,Z", conflicts_with_all = ["fixed", "moving"])]
    pub size: Option<Numbers<usize>>,
    /// With --size: their voxels in mm. One number, or X,Y,Z [default: 1]; the levels of a registration follow from it.
    #[arg(long, value_name = "MM,..", requires = "size", conflicts_with = "fixed")]
    pub spacing: Option<Numbers<f64>>,
    /// With labels that are warped and compared.
    #[arg(long)]
    pub labels: bool,
    /// With so many further channels of both images.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub channels: usize,
    /// What is done.
    #[command(flatten)]
    pub settings: SettingsArguments,
    /// Where it would be computed.
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value = DeviceChoice::AUTO)]
    pub device: DeviceChoice,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl PlanArguments {
    /// Two images of the size that is asked for.
    fn asked(&self) -> Result<Sizes> {
        let size = self.size.as_deref().expect("demanded where there are no files");
        let spacing = self.spacing.as_deref().unwrap_or(&[1.0]);
        let grid = Geometry::new(each_axis("--size", size)?, each_axis("--spacing", spacing)?)?;
        Ok(Sizes::of_grids([grid.clone(), grid], self.labels))
    }
}

/// One number for every axis, or three.
fn each_axis<T: Copy + Debug>(flag: &str, numbers: &[T]) -> Result<[T; 3]> {
    match *numbers {
        [all] => Ok([all; 3]),
        [x, y, z] => Ok([x, y, z]),
        _ => Err(Failure::user(
            format!("{flag} must be one number, or three, got {numbers:?}"),
            format!("for example {flag} 512,512,400"),
        )),
    }
}

/// Prints the plan.
pub fn run(request: &PlanArguments) -> Result<()> {
    let settings = request.settings.resolve()?;
    let driving = settings.label_term.as_ref().map_or(0, |term| term.labels.len());
    let channels = 1 + request.channels + driving;
    let content = Content { channels, labels: driving, ..Content::PLAIN };
    let sizes = match (&request.fixed, &request.moving) {
        (Some(fixed), Some(moving)) => Sizes::of_files(fixed, moving, request.labels)?,
        _ => request.asked()?,
    };
    let (sizes, device) = (Sizes { content, ..sizes }, request.device);
    let written = Written::all(&settings, request.labels);
    let disk = Forecast::of_registration(sizes.fixed.len() as u64, written);
    Plan::new(&settings, &sizes, Held::Whole, device, disk)?.asking(device).print(request.json)
}
