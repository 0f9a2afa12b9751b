//! `--device`, `--devices`, `--shards`, `--device-memory`: where a registration runs, and in how many parts.

use std::fmt;

use burn::tensor::Device;
use clap::Args;
use ffdp_burn::image::Geometry;
use ffdp_burn::parallel::Mesh;
use ffdp_burn::register::{Settings, shards_needed};

use crate::device::DeviceChoice;
use crate::failure::{Failure, Outcome};

/// The flags.
#[derive(Clone, Debug, Args)]
pub struct MeshArguments {
    /// Where to compute; only what was compiled in is accepted.
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value_t = DeviceChoice::best())]
    device: DeviceChoice,
    /// Several devices, which share the greedy stages; linear ones run on the first.
    #[arg(long, value_name = "cuda:0,cuda:1,..", value_delimiter = ',', conflicts_with = "device")]
    devices: Option<Vec<DeviceChoice>>,
    /// Parts into which greedy stages cut the images, over all devices; more than devices save memory
    /// [one for each device]
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
    /// Memory of each device, GB: greedy stages are cut into as many parts as it asks for.
    #[arg(long, value_name = "GB", conflicts_with = "shards")]
    device_memory: Option<f64>,
}

impl MeshArguments {
    /// The device that holds what is not cut.
    pub fn first(&self) -> DeviceChoice {
        self.devices.as_ref().and_then(|devices| devices.first().copied()).unwrap_or(self.device)
    }

    fn choices(&self) -> Vec<DeviceChoice> {
        self.devices.clone().unwrap_or_else(|| vec![self.device])
    }

    /// Opens the devices and counts the shards.
    ///
    /// # Errors
    /// When a device is named twice or does not open, or no number of shards is possible.
    pub fn open(&self, settings: &Settings, grids: [&Geometry; 2]) -> Outcome<Mesh> {
        let choices = self.choices();
        let twice = choices.iter().enumerate().find(|(k, choice)| choices[..*k].contains(choice));
        if let Some((_, choice)) = twice {
            return Err(Failure::user(
                format!("--devices must name each device once, got {choice} twice"),
                "use --shards for several parts on one device",
            ));
        }
        let shards = match (self.shards, self.device_memory) {
            (Some(shards), _) => shards,
            (None, Some(gb)) => shards_needed(settings, grids, choices.len(), bytes(gb)?)?,
            (None, None) => choices.len(),
        };
        let opened: Outcome<Vec<Device>> = choices.iter().map(|choice| choice.open()).collect();
        Ok(Mesh::new(&opened?, shards)?)
    }
}

fn bytes(gb: f64) -> Outcome<u64> {
    match gb > 0.0 && gb.is_finite() {
        true => Ok((gb * 1e9) as u64),
        false => Err(Failure::user(
            format!("--device-memory must be positive, got {gb}"),
            "give what a device has, in GB",
        )),
    }
}

/// As reports and checkpoints name it: what decides the result.
impl fmt::Display for MeshArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.choices().iter().map(ToString::to_string).collect();
        f.write_str(&names.join(","))?;
        match (self.shards, self.device_memory) {
            (Some(shards), _) => write!(f, " in {shards} shards"),
            (None, Some(gb)) => write!(f, " of {gb} GB"),
            (None, None) => Ok(()),
        }
    }
}
