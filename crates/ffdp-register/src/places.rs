//! Where the shards of a level are computed, and where they rest.

use std::sync::Arc;

use burn::tensor::Device;

use super::level_memory::{LevelMemory, LevelProblem, Split};
use ffdp_image::error::{Error, Result};
use ffdp_image::io::available_memory_bytes;
use ffdp_parallel::{Axis, DeviceMesh, Layout, deform::Team, hosts::Ranks};

/// Voxels from which several devices share a level. Less is done sooner by one: an iteration of greedy on 256x256x704
/// voxels takes two H200 5.1 ms, and one 4.5 (`benchmarks/iterations-on-two-gpus-h200.json`).
pub(super) const SHARED_VOXELS: usize = 64 << 20;

/// Where the shards of a registration are computed and kept: devices, and host memory.
#[derive(Clone, Debug)]
pub enum Placement {
    /// One shard for each place of a mesh; all stay there.
    DeviceMesh(DeviceMesh),
    /// One device with so many bytes, as many shards as they ask for. Those that do not fit rest in host memory,
    /// and come to the device in turn. Faster after [`order_allocations`](ffdp_parallel::memory::order_allocations).
    Device {
        /// The device.
        device: Device,
        /// Its memory, in bytes.
        bytes: u64,
    },
    /// The devices of this process, one among several that do the same at the same time; each may have others, and as
    /// many shards as it likes.
    Ranks {
        /// One shard of a shared level for each place.
        mesh: DeviceMesh,
        /// The processes.
        ranks: Arc<dyn Ranks>,
    },
}

impl From<&Device> for Placement {
    fn from(device: &Device) -> Self {
        Self::DeviceMesh(DeviceMesh::one(device))
    }
}

impl From<&DeviceMesh> for Placement {
    fn from(mesh: &DeviceMesh) -> Self {
        Self::DeviceMesh(mesh.clone())
    }
}

impl From<&Placement> for Placement {
    fn from(placement: &Placement) -> Self {
        placement.clone()
    }
}

/// The cuts of an image, where its shards are computed, and where they rest.
#[derive(Clone, Debug)]
pub(super) struct ImagePlaces {
    pub layout: Layout,
    pub work: DeviceMesh,
    pub rest: DeviceMesh,
}

impl ImagePlaces {
    /// Of shards that stay where they are computed.
    pub fn staying(layout: Layout, mesh: &DeviceMesh) -> Self {
        Self { layout, work: mesh.clone(), rest: mesh.clone() }
    }

    /// In one piece, of extents (D, H, W).
    pub fn whole(size: [usize; 3], mesh: &DeviceMesh) -> Result<Self> {
        Ok(Self::staying(Layout::balanced(size, Axis::Z, 1)?, mesh))
    }
}

/// The cuts of a level.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Of all that lies on the grid of the fixed image.
    pub fixed: ImagePlaces,
    pub moving: ImagePlaces,
    /// Where memory is so short that buffers are allocated one by one: how many bytes of it these are planned to take.
    pub exact: Option<u64>,
    /// Who else has a part of them.
    pub team: Team,
}

impl Places {
    /// In one piece on one device, volumes of these sizes (D, H, W).
    pub fn whole(home: &Device, [fixed, moving]: [[usize; 3]; 2]) -> Result<Self> {
        let one = DeviceMesh::one(home);
        let (fixed, moving) = (ImagePlaces::whole(fixed, &one)?, ImagePlaces::whole(moving, &one)?);
        Ok(Self { fixed, moving, exact: None, team: Team::ALONE })
    }

    /// Whether each image is in one piece.
    pub fn are_whole(&self) -> bool {
        let pieces = [&self.fixed, &self.moving].map(|image| image.layout.count());
        pieces == [1, 1] && !self.team.fixed.are_several()
    }
}

impl LevelProblem {
    /// Voxels of the fixed image from which several devices share it.
    fn shared_voxels(&self) -> usize {
        match self {
            Self::Fields { shared_voxels, .. } => *shared_voxels,
            Self::Linear { .. } | Self::Whole { .. } => SHARED_VOXELS,
        }
    }
}

impl Placement {
    /// Where everything is that is not cut.
    pub(super) fn home(&self) -> &Device {
        match self {
            Self::DeviceMesh(mesh) | Self::Ranks { mesh, .. } => mesh.device(0),
            Self::Device { device, .. } => device,
        }
    }

    /// All of its devices.
    pub(super) fn devices(&self) -> &[Device] {
        match self {
            Self::DeviceMesh(mesh) | Self::Ranks { mesh, .. } => mesh.devices(),
            Self::Device { device, .. } => std::slice::from_ref(device),
        }
    }

    /// The same without autodiff.
    pub(super) fn inner(&self) -> Self {
        match self {
            Self::DeviceMesh(mesh) => Self::DeviceMesh(mesh.inner()),
            Self::Device { device, bytes } => {
                Self::Device { device: device.clone().inner(), bytes: *bytes }
            }
            Self::Ranks { mesh, ranks } => Self::Ranks { mesh: mesh.inner(), ranks: ranks.clone() },
        }
    }

    /// What a level takes.
    ///
    /// # Errors
    /// As [`Placement::places`].
    pub(super) fn takes(&self, problem: &LevelProblem) -> Result<LevelMemory> {
        if let Self::Device { device, bytes } = self {
            let Split { layout, resident, device_bytes, host_bytes, .. } =
                problem.split(device, *bytes)?;
            let shards = layout.count();
            let at_rest = shards - resident;
            return Ok(LevelMemory { shards, at_rest, device_bytes, host_bytes });
        }
        let shards = self.places(problem)?.fixed.layout.count();
        let places = self.devices();
        let is_new = |k: &usize| !places[..*k].contains(&places[*k]);
        let devices = (0..places.len()).filter(is_new).count().min(shards);
        let device_bytes = problem.device_bytes(devices, shards)?;
        Ok(LevelMemory { shards, at_rest: 0, device_bytes, host_bytes: 0 })
    }

    /// Demands that a level whose fixed image has `size` (x, y, z) has room, on the device and in host memory; other
    /// placements hold what they are given.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub(super) fn check_level(&self, size: [usize; 3], problem: &LevelProblem) -> Result<()> {
        let Self::Device { device, bytes } = self else { return Ok(()) };
        let needed_bytes = problem.split(device, *bytes)?.host_bytes;
        match available_memory_bytes() {
            Some(available_bytes) if needed_bytes > available_bytes => Err(Error::TooLarge {
                what: format!(
                    "in host memory, what a device of {:.1} GB has no room for of a level of {:?} voxels",
                    *bytes as f64 / 1e9,
                    size
                ),
                needed_bytes,
                available_bytes,
                fix: "use more devices or several processes, store the moments in bf16, or end at a coarser level"
                    .into(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether some of a level rests in host memory.
    ///
    /// # Errors
    /// As [`Placement::places`].
    pub(super) fn is_too_small_for(&self, problem: &LevelProblem) -> Result<bool> {
        let Self::Device { device, bytes } = self else { return Ok(false) };
        Ok(problem.split(device, *bytes)?.exact.is_some())
    }

    /// Where a level goes that is not shared with other processes: cut where devices share it, or where one would not
    /// hold it; what has no room then rests in host memory.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the device cannot hold one shard at work.
    pub(super) fn places(&self, problem: &LevelProblem) -> Result<Places> {
        let sizes = problem.sizes();
        match self {
            _ if matches!(problem, LevelProblem::Whole { .. }) => Places::whole(self.home(), sizes),
            Self::DeviceMesh(mesh) | Self::Ranks { mesh, .. } => {
                let is_cut = match (mesh.has_several_devices(), problem) {
                    (true, _) => sizes[0].into_iter().product::<usize>() >= problem.shared_voxels(),
                    // Parts that follow each other on one device save memory of fields, not of images.
                    (false, LevelProblem::Fields { .. }) => mesh.count() > 1,
                    (false, LevelProblem::Linear { .. } | LevelProblem::Whole { .. }) => false,
                };
                if is_cut { on_mesh(mesh, sizes) } else { Places::whole(self.home(), sizes) }
            }
            Self::Device { device, bytes } => {
                on_device(device, sizes, problem.split(device, *bytes)?)
            }
        }
    }
}

/// A level on one device, and in host memory.
fn on_device(device: &Device, sizes: [[usize; 3]; 2], split: Split) -> Result<Places> {
    let Split { layout, resident, moving_pieces, moving_stays, exact, .. } = split;
    let shards = layout.count();
    if [shards, resident, moving_pieces] == [1; 3] {
        return Places::whole(device, sizes);
    }
    let rest = |count: usize| {
        let resident = (resident * count) / shards;
        let host = Device::flex();
        let place = |k| if k < resident { device.clone() } else { host.clone() };
        DeviceMesh::of((0..count).map(place).collect())
    };
    let work = |count: usize| DeviceMesh::of(vec![device.clone(); count]);
    let fixed = ImagePlaces { layout, work: work(shards), rest: rest(shards) };
    let moving = ImagePlaces {
        layout: Layout::balanced(sizes[1], Axis::Z, moving_pieces)?,
        work: work(moving_pieces),
        rest: if moving_stays { work(1) } else { rest(moving_pieces) },
    };
    Ok(Places { fixed, moving, exact, team: Team::ALONE })
}

/// One shard for each place of a mesh, as far as there are planes.
fn on_mesh(mesh: &DeviceMesh, [fixed, moving]: [[usize; 3]; 2]) -> Result<Places> {
    // What all shards of one device see needs no cuts.
    let one = DeviceMesh::one(mesh.device(0));
    let moving_mesh = if mesh.has_several_devices() { mesh } else { &one };
    let image = |size: [usize; 3], mesh: &DeviceMesh| {
        let layout = mesh.layout(size, Axis::Z)?;
        let shards = layout.count();
        Ok(ImagePlaces::staying(layout, &mesh.first(shards)))
    };
    let (fixed, moving) = (image(fixed, mesh)?, image(moving, moving_mesh)?);
    Ok(Places { fixed, moving, exact: None, team: Team::ALONE })
}

#[cfg(test)]
mod tests {
    use super::SHARED_VOXELS;
    use crate::methods::deformable::FieldMethod;
    use crate::methods::{FfdSettings, GnkSettings, GreedySettings, SvfSettings, SynSettings};

    #[test]
    fn devices_share_svf_sooner_than_others_and_gnk_no_sooner() {
        let others: [&dyn FieldMethod; 4] = [
            &GreedySettings::default(),
            &SynSettings::default(),
            &FfdSettings::default(),
            &GnkSettings::default(),
        ];
        assert!(others.into_iter().all(|other| other.shared_voxels() == SHARED_VOXELS));
        assert!(SvfSettings::default().shared_voxels() < SHARED_VOXELS);
    }
}
