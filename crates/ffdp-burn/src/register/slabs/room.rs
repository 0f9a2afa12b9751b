//! Where the shards of a level are computed, and where they rest.

use std::sync::Arc;

use burn::tensor::Device;

use crate::error::{Error, Result};
use crate::image::Geometry;
use crate::io::available_memory_bytes;
use crate::ops::DeformOptions;
use crate::parallel::{
    Axis, DeviceMemory, GreedyProblem, Layout, Mesh, Ranks, Team, plan, plan_offloaded,
};
use crate::register::deformable::SHARED_VOXELS;
use crate::register::shards::LARGEST_PART;

/// What a registration of slabs may take.
#[derive(Clone, Debug)]
pub enum Room {
    /// One shard for each place of a mesh; all stay there.
    Mesh(Mesh),
    /// One device with so many bytes, as many shards as they ask for. Those that do not fit rest in host memory,
    /// and come to the device in turn. Faster after [`order_allocations`](crate::parallel::order_allocations).
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
        mesh: Mesh,
        /// The processes.
        ranks: Arc<dyn Ranks>,
    },
}

/// Part of a device's memory that the planner gives away where all shards stay: it counts buffers, and pools
/// hand out pages that these do not fill.
const GIVEN: [u64; 2] = [5, 8];

/// The same where shards come and go, and each buffer is an allocation of its own: the rest is for what is
/// small and not counted, and for what an operation allocates within itself.
const GIVEN_EXACTLY: [u64; 2] = [3, 4];

/// That rest is no larger than this: it does not grow with the memory (of 4 GB 0.5 to 1.3 were taken beyond what
/// was planned, of 63 GB nothing).
const LARGEST_REST: u64 = 10_000_000_000;

/// Host memory for a byte that rests there, and for all that is read and sent beside.
const ON_HOST: [u64; 2] = [11, 10];

/// Bytes a voxel of both images that a linear stage has at work: the images, the moved one, how much each voxel
/// counts, the gradient, the part of the moving image that travels, and what is made of ones to weigh it.
const LINEAR_BYTES: u64 = 20;

/// The same with masks: these, the moved one, and their product.
const LINEAR_MASKED_BYTES: u64 = 32;

fn given(bytes: u64, [part, of]: [u64; 2]) -> u64 {
    bytes / of * part
}

fn given_exactly(bytes: u64) -> u64 {
    given(bytes, GIVEN_EXACTLY).max(bytes.saturating_sub(LARGEST_REST))
}

/// A level on one device and, as far as that has no room, in host memory.
struct Split {
    layout: Layout,
    /// The first so many shards stay on the device.
    resident: usize,
    /// Where others come and go, what is given away.
    exact: Option<u64>,
    host_bytes: u64,
}

/// The cuts of a level for a device of so many bytes.
///
/// # Errors
/// [`Error::TooLarge`] when the device cannot hold one shard at work.
fn split(problem: &GreedyProblem, bytes: u64) -> Result<Split> {
    let memory = |bytes: u64, of: u64| DeviceMemory { bytes, largest_buffer: of / LARGEST_PART };
    if let Ok(plan) = plan(problem, 1, memory(given(bytes, GIVEN), bytes)) {
        let resident = plan.layout.count();
        return Ok(Split { layout: plan.layout, resident, exact: None, host_bytes: 0 });
    }
    let planned = given_exactly(bytes);
    let plan = plan_offloaded(problem, memory(planned, bytes))?;
    let host_bytes = plan.host_bytes / ON_HOST[1] * ON_HOST[0];
    Ok(Split { layout: plan.layout, resident: plan.resident, exact: Some(planned), host_bytes })
}

/// The cuts of a level.
#[derive(Clone, Debug)]
pub(in crate::register) struct Places {
    pub fixed: Layout,
    pub moving: Layout,
    /// Where the shards of the fixed side are computed, and where they rest.
    pub work: Mesh,
    pub rest: Mesh,
    /// The same of the moving image.
    pub moving_work: Mesh,
    pub moving_rest: Mesh,
    /// Where memory is so short that buffers are allocated one by one: how many bytes of it these are planned to take.
    pub exact: Option<u64>,
    /// Who else has a part of them.
    pub team: Team,
}

impl Room {
    /// Where everything is that is not cut.
    pub(super) fn home(&self) -> &Device {
        match self {
            Self::Mesh(mesh) | Self::Ranks { mesh, .. } => mesh.device(0),
            Self::Device { device, .. } => device,
        }
    }

    /// All of its devices.
    pub(super) fn devices(&self) -> &[Device] {
        match self {
            Self::Mesh(mesh) | Self::Ranks { mesh, .. } => mesh.devices(),
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
            Self::Ranks { mesh, ranks } => Self::Ranks { mesh: mesh.inner(), ranks: ranks.clone() },
        }
    }

    /// Where a level with these grids goes in a linear stage: cut where devices share it, or where one would
    /// not hold it; its shards then rest in host memory. `None` where it stays whole on the first device.
    ///
    /// # Errors
    /// As [`Room::places`].
    pub(in crate::register) fn linear_places(
        &self,
        grids: [&Geometry; 2],
    ) -> Result<Option<Places>> {
        let [fixed, moving] = grids.map(Geometry::dims);
        match self {
            Self::Mesh(mesh) | Self::Ranks { mesh, .. } => {
                let shares = mesh.has_several_devices() && grids[0].len() >= SHARED_VOXELS;
                if shares { on_mesh(mesh, [fixed, moving]).map(Some) } else { Ok(None) }
            }
            Self::Device { device, bytes } => {
                let voxels = (grids[0].len() + grids[1].len()) as u64;
                let shards = (LINEAR_BYTES * voxels).div_ceil(given(*bytes, GIVEN)) as usize;
                if shards <= 1 {
                    return Ok(None);
                }
                let cut = |size: [usize; 3]| {
                    let count = shards.min(size[0]);
                    let work = Mesh::of(vec![device.clone(); count]);
                    let rest = Mesh::of(vec![Device::flex(); count]);
                    Ok::<_, Error>((Layout::balanced(size, Axis::Z, count)?, work, rest))
                };
                let ((fixed, work, rest), (moving, moving_work, moving_rest)) =
                    (cut(fixed)?, cut(moving)?);
                Ok(Some(Places {
                    fixed,
                    moving,
                    work,
                    rest,
                    moving_work,
                    moving_rest,
                    exact: Some(given_exactly(*bytes)),
                    team: Team::ALONE,
                }))
            }
        }
    }

    /// Demands that a linear stage has room for masked images with these grids, which it does not cut.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub(in crate::register) fn check_whole(&self, grids: [&Geometry; 2]) -> Result<()> {
        let Self::Device { bytes, .. } = self else { return Ok(()) };
        let voxels = (grids[0].len() + grids[1].len()) as u64;
        let (needed_bytes, available_bytes) = (LINEAR_MASKED_BYTES * voxels, given(*bytes, GIVEN));
        if needed_bytes <= available_bytes {
            return Ok(());
        }
        let size = grids[0].size;
        Err(Error::TooLarge {
            what: format!("a linear stage of images with masks, {size:?} voxels, which is not cut,"),
            needed_bytes,
            available_bytes,
            fix: "end linear stages at a coarser level, or start from an affine map that was found without masks"
                .into(),
        })
    }

    /// Demands that a level with these grids has room, on the device and in host memory; other rooms hold what they
    /// are given.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub(super) fn check_level(
        &self,
        (grids, masked): ([&Geometry; 2], [bool; 2]),
        options: &DeformOptions,
    ) -> Result<()> {
        let Self::Device { bytes, .. } = self else { return Ok(()) };
        let [fixed, moving] = grids.map(Geometry::dims);
        let problem = GreedyProblem { fixed, moving, masked, axis: Axis::Z, options: *options };
        let needed_bytes = split(&problem, *bytes)?.host_bytes;
        match available_memory_bytes() {
            Some(available_bytes) if needed_bytes > available_bytes => Err(Error::TooLarge {
                what: format!(
                    "in host memory, what a device of {:.1} GB has no room for of a level of {:?} voxels",
                    *bytes as f64 / 1e9,
                    grids[0].size
                ),
                needed_bytes,
                available_bytes,
                fix: "use more devices or several processes, store the moments in bf16, or end at a coarser level"
                    .into(),
            }),
            _ => Ok(()),
        }
    }

    /// Where a level with these grids goes that is not shared with other processes.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge) when the device cannot hold one shard at work.
    pub(super) fn places(
        &self,
        (grids, masked): ([&Geometry; 2], [bool; 2]),
        options: &DeformOptions,
    ) -> Result<Places> {
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
                exact: None,
                team: Team::ALONE,
            })
        };
        match self {
            Self::Mesh(mesh) | Self::Ranks { mesh, .. } if mesh.count() == 1 => whole(self.home()),
            Self::Mesh(mesh) | Self::Ranks { mesh, .. }
                if mesh.has_several_devices() && grids[0].len() < SHARED_VOXELS =>
            {
                whole(self.home())
            }
            Self::Mesh(mesh) | Self::Ranks { mesh, .. } => on_mesh(mesh, [fixed, moving]),
            Self::Device { device, bytes } => {
                let problem =
                    GreedyProblem { fixed, moving, masked, axis: Axis::Z, options: *options };
                let Split { layout, resident, exact, .. } = split(&problem, *bytes)?;
                let shards = layout.count();
                if shards == 1 {
                    return whole(device);
                }
                let rest = |count: usize| {
                    let resident = (resident * count) / shards;
                    let host = Device::flex();
                    let place = |k| if k < resident { device.clone() } else { host.clone() };
                    Mesh::of((0..count).map(place).collect())
                };
                let work = |count: usize| Mesh::of(vec![device.clone(); count]);
                let values = 1 + u64::from(masked[1]);
                let fits = 4 * values * grids[1].len() as u64 <= bytes / LARGEST_PART;
                let pieces = if resident == shards && fits { 1 } else { shards };
                let pieces = pieces.min(moving[0]);
                Ok(Places {
                    moving: Layout::balanced(moving, Axis::Z, pieces)?,
                    fixed: layout,
                    work: work(shards),
                    rest: rest(shards),
                    moving_work: work(pieces),
                    moving_rest: rest(pieces),
                    exact,
                    team: Team::ALONE,
                })
            }
        }
    }
}

/// One shard for each place of a mesh, as far as there are planes.
fn on_mesh(mesh: &Mesh, [fixed, moving]: [[usize; 3]; 2]) -> Result<Places> {
    // What all shards of one device see needs no cuts.
    let one = Mesh::one(mesh.device(0));
    let moving_mesh = if mesh.has_several_devices() { mesh } else { &one };
    let (fixed, moving) = (mesh.layout(fixed, Axis::Z)?, moving_mesh.layout(moving, Axis::Z)?);
    let work = mesh.first(fixed.count());
    let moving_work = moving_mesh.first(moving.count());
    let (rest, moving_rest) = (work.clone(), moving_work.clone());
    let (exact, team) = (None, Team::ALONE);
    Ok(Places { fixed, moving, work, rest, moving_work, moving_rest, exact, team })
}
