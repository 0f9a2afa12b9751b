//! `--device`, `--shards`, `--device-memory`: where a registration runs, and in how many parts.
//!
//! One device only: the library drives several ([`Mesh`]), but a run over two GPUs gave a wrong field, and
//! what was changed since has not run on two.

use std::fmt;

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
    /// Parts into which greedy stages cut the images, one after the other on the device: less memory, a
    /// little slower [default: 1]
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
    /// Memory of the device, GB: greedy stages are cut into as many parts as it asks for.
    #[arg(long, value_name = "GB", conflicts_with = "shards")]
    device_memory: Option<f64>,
}

impl MeshArguments {
    /// The device that holds what is not cut.
    pub fn first(&self) -> DeviceChoice {
        self.device
    }

    /// Whether the images may be cut, so that the device need not hold all at once.
    pub fn cuts(&self) -> bool {
        self.device_memory.is_some() || self.shards.is_some_and(|shards| shards > 1)
    }

    /// Opens the device and counts the shards.
    ///
    /// # Errors
    /// When the device does not open, or no number of shards is possible.
    pub fn open(&self, settings: &Settings, grids: [&Geometry; 2]) -> Outcome<Mesh> {
        let shards = match (self.shards, self.device_memory) {
            (Some(shards), _) => shards,
            (None, Some(gb)) => shards_needed(settings, grids, 1, bytes(gb)?)?,
            (None, None) => 1,
        };
        Ok(Mesh::new(&[self.device.open()?], shards)?)
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
        write!(f, "{}", self.device)?;
        match (self.shards, self.device_memory) {
            (Some(shards), _) => write!(f, " in {shards} shards"),
            (None, Some(gb)) => write!(f, " of {gb} GB"),
            (None, None) => Ok(()),
        }
    }
}
