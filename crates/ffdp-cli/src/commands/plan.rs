//! `ffdp plan`: what a registration would need, before it starts.

use std::path::PathBuf;

use clap::Args;
use ffdp_register::Content;

use crate::device::DeviceChoice;
use crate::disk::{Forecast, Written};
use crate::failure::Result;
use crate::memory::{Held, Plan, Sizes};
use crate::settings::SettingsArguments;

/// `ffdp plan`.
#[derive(Debug, Args)]
pub struct PlanArguments {
    /// Image that stays (NIfTI, 3-D); only its header is read.
    #[arg(short, long, value_name = "FILE")]
    pub fixed: PathBuf,
    /// Image that is deformed (NIfTI, 3-D); only its header is read.
    #[arg(short, long, value_name = "FILE")]
    pub moving: PathBuf,
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
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value_t = DeviceChoice::best())]
    pub device: DeviceChoice,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Prints the plan.
pub fn run(request: &PlanArguments) -> Result<()> {
    let settings = request.settings.resolve()?;
    let driving = settings.label_term.as_ref().map_or(0, |term| term.labels.len());
    let content = Content { channels: 1 + request.channels + driving, ..Content::PLAIN };
    let sizes = Sizes::of_files(&request.fixed, &request.moving, request.labels)?;
    let (sizes, device) = (Sizes { content, ..sizes }, request.device);
    let written = Written::all(&settings, request.labels);
    let disk = Forecast::of_registration(sizes.fixed.len() as u64, written);
    Plan::new(&settings, &sizes, Held::Whole, device, disk)?.asking(device).print(request.json)
}
