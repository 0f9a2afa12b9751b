//! `--device`, `--devices`, `--shards`, `--device-memory`: where a registration runs, and in how many parts.

use std::fmt;

use clap::Args;
use ffdp_parallel::DeviceMesh;
use ffdp_register::{Placement, Settings, memory::shards_needed};

use crate::device::DeviceChoice;
use crate::failure::{Failure, Result};
use crate::hosts::Hosts;
use crate::memory::{Plan, Sizes};

/// The flags.
#[derive(Clone, Debug, Args)]
pub struct MeshArguments {
    /// Device to compute on. It must be compiled in. Of several processes on one host, the first has
    /// this GPU and the others the next ones, in turn.
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value = DeviceChoice::AUTO)]
    device: DeviceChoice,
    /// Several devices that share the work, as cuda:0,cuda:1. They share the large levels of deformable stages; the first
    /// also does all that is not cut. With --pairs each has pairs of its own.
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "device")]
    devices: Vec<DeviceChoice>,
    /// Parts into which the images are cut [default: one for each device]. Deformable stages cut them (of several
    /// processes: each its share of them); parts of one device follow each other: less memory, a little slower.
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
    /// Memory of each device, GB. Deformable stages are cut into as many parts as it asks for.
    #[arg(long, value_name = "GB", conflicts_with = "shards")]
    device_memory: Option<f64>,
}

impl MeshArguments {
    /// The device that holds what is not cut.
    pub fn first(&self) -> DeviceChoice {
        self.all()[0]
    }

    /// Whether the images may be cut, so that the device need not hold all at once.
    pub fn cuts(&self) -> bool {
        self.device_memory.is_some()
            || self.has_several_devices()
            || self.shards.is_some_and(|shards| shards > 1)
    }

    /// Whether there is more than one device.
    pub fn has_several_devices(&self) -> bool {
        self.all().len() > 1
    }

    /// Every device for itself, as often as it is named: where each has pairs of its own.
    pub fn each(&self) -> Vec<Self> {
        let alone = |&device| Self { device, devices: Vec::new(), ..self.clone() };
        self.all().iter().map(alone).collect()
    }

    /// Where one of several processes of a host computes, of which so many come before it: each that was given one
    /// GPU has the next. Several devices are those of every process.
    fn of_process(&self, before: usize) -> Self {
        Self { device: self.device.of_process(before), ..self.clone() }
    }

    fn all(&self) -> &[DeviceChoice] {
        match &self.devices[..] {
            [] => std::slice::from_ref(&self.device),
            several => several,
        }
    }

    /// Where a registration of slabs runs.
    ///
    /// # Errors
    /// As [`MeshArguments::open`]; a limit of memory for several processes.
    pub fn placement(
        &self,
        settings: &Settings,
        sizes: &Sizes,
        hosts: &Hosts,
    ) -> Result<Placement> {
        if let Some(ranks) = hosts.ranks() {
            if self.device_memory.is_some() {
                return Err(Failure::user(
                    "--device-memory is for one process: of several, each keeps its shards",
                    "leave it out, or start more processes",
                ));
            }
            let here = self.of_process(ranks.before_on_host());
            return Ok(Placement::Ranks {
                mesh: here.open(settings, sizes)?,
                ranks: ranks.clone(),
            });
        }
        match (self.all(), self.device_memory) {
            ([one], Some(gb)) => {
                let device = one.open_short_of_memory()?;
                Ok(Placement::Device { device, bytes: bytes(gb)? })
            }
            _ => Ok(Placement::DeviceMesh(self.open(settings, sizes)?)),
        }
    }

    /// Opens the devices and counts the shards.
    ///
    /// # Errors
    /// When a device does not open or is named twice, no number of shards is possible, or several devices have no room
    /// for a level.
    pub fn open(&self, settings: &Settings, sizes: &Sizes) -> Result<DeviceMesh> {
        let all = self.all();
        if let Some((_, again)) =
            all.iter().enumerate().find(|(k, device)| all[..*k].contains(device))
        {
            return Err(Failure::user(
                format!("--devices must name each device once, got {again} twice"),
                "give --shards to cut the images into several parts on one device",
            ));
        }
        let shards = match (self.shards, self.device_memory) {
            (Some(shards), _) => shards,
            (None, Some(gb)) => {
                let (grids, content) = ([&sizes.fixed, &sizes.moving], sizes.content);
                shards_needed(settings, grids, content, all.len(), bytes(gb)?)?
            }
            (None, None) => all.len(),
        };
        let devices = all.iter().map(|device| device.open()).collect::<Result<Vec<_>>>()?;
        let mesh = DeviceMesh::new(&devices, shards)?;
        // After they were connected, which takes memory as well.
        let free = all.iter().filter_map(|device| device.free_memory_bytes()).min();
        if let Some(free) = free.filter(|_| all.len() > 1) {
            Plan::check_mesh(settings, sizes, &mesh, free)?;
        }
        Ok(mesh)
    }
}

fn bytes(gb: f64) -> Result<u64> {
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
        let names: Vec<String> = self.all().iter().map(DeviceChoice::to_string).collect();
        f.write_str(&names.join(","))?;
        match (self.shards, self.device_memory) {
            (Some(shards), _) => write!(f, " in {shards} shards"),
            (None, Some(gb)) => write!(f, " of {gb} GB"),
            (None, None) => Ok(()),
        }
    }
}
