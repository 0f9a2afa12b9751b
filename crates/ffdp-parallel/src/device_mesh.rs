//! The devices that share a problem, in a ring.

use burn::tensor::Device;

use super::exchange::connect;
use super::layout::{Axis, Layout};
use ffdp_image::error::{Error, Result};

/// The device of every shard, in the order of the shards; neighbours hold neighbouring planes.
///
/// A device may appear several times: its shards are then *virtual*, which is how one device is
/// tested as many, and how a field is split that would not fit into one allocation. One thread
/// drives all devices; they work at the same time because a GPU's operations are enqueued.
///
/// Nothing else may use these GPUs from the same process meanwhile: a kernel that is loaded for the first time while
/// they wait for each other hangs (`exchange.rs`).
///
/// Verified: any number of shards on the CPU, on one GPU, on two H200s and on two H100s (`docs/performance.md`).
#[derive(Clone, Debug)]
pub struct DeviceMesh {
    devices: Vec<Device>,
}

/// How a grid is cut, and the device of every shard.
#[derive(Clone, Copy, Debug)]
pub struct ShardPlaces<'a> {
    /// The planes of every shard.
    pub layout: &'a Layout,
    /// As many places as there are shards.
    pub mesh: &'a DeviceMesh,
}

impl DeviceMesh {
    /// A mesh of one: the serial program.
    pub fn one(device: &Device) -> Self {
        Self { devices: vec![device.clone()] }
    }

    /// `shards` shards over the given devices, in blocks, so that most neighbours share a device.
    ///
    /// Several GPUs are connected here, which takes some of their memory: what is free afterwards is free for shards.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no device, or fewer shards than devices; [`Error::Device`] where GPUs cannot
    /// be connected.
    pub fn new(devices: &[Device], shards: usize) -> Result<Self> {
        if devices.is_empty() || shards < devices.len() {
            return Err(Error::invalid(
                format!(
                    "a mesh needs devices, and at least one shard for each of {}",
                    devices.len()
                ),
                shards,
                "use fewer devices or more shards",
            ));
        }
        connect(devices)?;
        let device = |k: usize| devices[k * devices.len() / shards].clone();
        Ok(Self { devices: (0..shards).map(device).collect() })
    }

    /// The same devices without autodiff.
    pub fn inner(&self) -> Self {
        Self { devices: self.devices.iter().map(|device| device.clone().inner()).collect() }
    }

    /// A place on each of these devices, in this order.
    pub fn of(devices: Vec<Device>) -> Self {
        Self { devices }
    }

    /// Number of shards.
    pub fn count(&self) -> usize {
        self.devices.len()
    }

    /// Whether a device holds several shards.
    pub fn is_virtual(&self) -> bool {
        let again = |(k, device)| self.devices[..k].contains(device);
        self.devices.iter().enumerate().any(again)
    }

    /// Whether there is more than one device.
    pub fn has_several_devices(&self) -> bool {
        self.devices.iter().any(|device| *device != self.devices[0])
    }

    /// The device of shard `k`.
    pub fn device(&self, k: usize) -> &Device {
        &self.devices[k]
    }

    /// The devices in the order of the shards.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The layout of a volume of `size` (D, H, W): one shard for each place of the mesh, or, where
    /// there are fewer planes than places (a coarse level), one for each plane.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a volume without planes.
    pub fn layout(&self, size: [usize; 3], axis: Axis) -> Result<Layout> {
        Layout::balanced(size, axis, self.count().min(size[axis.dim() - 2]).max(1))
    }

    /// The first `count` places: those of a layout with fewer shards than the mesh.
    ///
    /// # Panics
    /// If there are not that many.
    pub fn first(&self, count: usize) -> Self {
        let places = self.count();
        assert!((1..=places).contains(&count), "mesh: {count} shards for {places} places");
        Self { devices: self.devices[..count].to_vec() }
    }
}
