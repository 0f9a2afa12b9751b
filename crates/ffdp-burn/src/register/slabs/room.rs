//! Where the shards of a level are computed, and where they rest.

use burn::tensor::Device;

use crate::error::Result;
use crate::image::Geometry;
use crate::ops::DeformOptions;
use crate::parallel::{Axis, DeviceMemory, GreedyProblem, Layout, Mesh, plan_offloaded};
use crate::register::deformable::SHARED_VOXELS;
use crate::register::shards::LARGEST_PART;

/// What a registration of slabs may take.
#[derive(Clone, Debug)]
pub enum Room {
    /// One shard for each place of a mesh; all stay there.
    Mesh(Mesh),
    /// One device with so many bytes, as many shards as they ask for. Those that do not fit rest in host memory,
    /// and come to the device in turn.
    Device {
        /// The device.
        device: Device,
        /// Its memory, in bytes.
        bytes: u64,
    },
}

/// Part of a device's memory that the planner gives away: it counts buffers, and pools hand out
/// pages that these do not fill.
const GIVEN: [u64; 2] = [5, 8];

/// The cuts of a level.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub fixed: Layout,
    pub moving: Layout,
    /// Where the shards of the fixed side are computed, and where they rest.
    pub work: Mesh,
    pub rest: Mesh,
    /// The same of the moving image.
    pub moving_work: Mesh,
    pub moving_rest: Mesh,
}

impl Room {
    /// Where everything is that is not cut.
    pub(super) fn home(&self) -> &Device {
        match self {
            Self::Mesh(mesh) => mesh.device(0),
            Self::Device { device, .. } => device,
        }
    }

    /// All of its devices.
    pub(super) fn devices(&self) -> &[Device] {
        match self {
            Self::Mesh(mesh) => mesh.devices(),
            Self::Device { device, .. } => std::slice::from_ref(device),
        }
    }

    /// The same without autodiff.
    pub(super) fn inner(&self) -> Self {
        match self {
            Self::Mesh(mesh) => Self::Mesh(mesh.inner()),
            Self::Device { device, bytes } => {
                Self::Device { device: device.clone().inner(), bytes: *bytes }
            }
        }
    }

    /// Where a level with these grids goes.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge) when the device cannot hold one shard at work.
    pub(super) fn places(&self, grids: [&Geometry; 2], options: &DeformOptions) -> Result<Places> {
        let [fixed, moving] = grids.map(Geometry::dims);
        let whole = |home: &Device| {
            let one = Mesh::one(home);
            Ok(Places {
                fixed: Layout::balanced(fixed, Axis::Z, 1)?,
                moving: Layout::balanced(moving, Axis::Z, 1)?,
                work: one.clone(),
                rest: one.clone(),
                moving_work: one.clone(),
                moving_rest: one,
            })
        };
        match self {
            Self::Mesh(mesh) if mesh.count() == 1 => whole(self.home()),
            Self::Mesh(mesh) if mesh.has_several_devices() && grids[0].len() < SHARED_VOXELS => {
                whole(self.home())
            }
            Self::Mesh(mesh) => {
                // What all shards of one device see needs no cuts.
                let one = Mesh::one(self.home());
                let moving_mesh = if mesh.has_several_devices() { mesh } else { &one };
                let layouts = (mesh.layout(fixed, Axis::Z)?, moving_mesh.layout(moving, Axis::Z)?);
                let work = mesh.first(layouts.0.count());
                let moving_work = moving_mesh.first(layouts.1.count());
                let (rest, moving_rest) = (work.clone(), moving_work.clone());
                let (fixed, moving) = layouts;
                Ok(Places { fixed, moving, work, rest, moving_work, moving_rest })
            }
            Self::Device { device, bytes } => {
                let problem = GreedyProblem { fixed, moving, axis: Axis::Z, options: *options };
                let given = bytes / GIVEN[1] * GIVEN[0];
                let largest_buffer = bytes / LARGEST_PART;
                let plan = plan_offloaded(&problem, DeviceMemory { bytes: given, largest_buffer })?;
                let shards = plan.layout.count();
                if shards == 1 {
                    return whole(device);
                }
                let rest = |count: usize| {
                    let resident = (plan.resident * count).div_ceil(shards);
                    let host = Device::flex();
                    let place = |k| if k < resident { device.clone() } else { host.clone() };
                    Mesh::of((0..count).map(place).collect())
                };
                let work = |count: usize| Mesh::of(vec![device.clone(); count]);
                let fits = 4 * grids[1].len() as u64 <= largest_buffer;
                let pieces = if plan.resident == shards && fits { 1 } else { shards };
                let pieces = pieces.min(moving[0]);
                Ok(Places {
                    moving: Layout::balanced(moving, Axis::Z, pieces)?,
                    fixed: plan.layout,
                    work: work(shards),
                    rest: rest(shards),
                    moving_work: work(pieces),
                    moving_rest: rest(pieces),
                })
            }
        }
    }
}
