//! Where the shards of a level are computed, and where they rest.

use std::sync::Arc;

use burn::tensor::Device;

use ffdp_image::error::{Error, Result};
use ffdp_image::image::Geometry;
use ffdp_image::io::available_memory_bytes;
use ffdp_parallel::{
    Axis, DeviceMesh, Layout,
    deform::Team,
    hosts::Ranks,
    planner::{DeformProblem, DeviceMemory, OffloadPlan, Plan, plan, plan_offloaded},
};

/// Voxels from which several devices share a level. Less is done sooner by one: a level of 256x256x512
/// voxels took 4.6 ms an iteration on two H200s, and 3.5 on one.
pub(super) const SHARED_VOXELS: usize = 64 << 20;

/// CubeCL's pools allow buffers of at most this part of a device's memory.
pub(super) const LARGEST_PART: u64 = 4;

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

/// Part of a device's memory that the planner gives away where all shards stay: it counts buffers, and pools
/// hand out pages that these do not fill.
const GIVEN: [u64; 2] = [5, 8];

/// The same where shards come and go, and each buffer is an allocation of its own: the rest is for what is small and not
/// counted, for what an operation allocates within itself, and for what was freed and waits for the driver, which is
/// more the busier the machine (`tests/offload.rs`: of 48 MB planned 10 to 20 beyond them).
const GIVEN_EXACTLY: [u64; 2] = [2, 3];

/// That rest is no larger than this: it does not grow with the memory (of 4 GB 0.5 to 1.3 were taken beyond what
/// was planned, of 63 GB nothing).
const LARGEST_REST: u64 = 10_000_000_000;

/// Host memory for a byte that rests there, and for all that is read and sent meanwhile.
const ON_HOST: [u64; 2] = [11, 10];

/// Memory of a level of a stage in a [`Placement`], by the model of the planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelMemory {
    /// Parts into which it is cut; of several processes, those of this one.
    pub shards: usize,
    /// Those that rest in host memory.
    pub at_rest: usize,
    /// Bytes of the fullest device.
    pub device_bytes: u64,
    /// Bytes of host memory for what rests there.
    pub host_bytes: u64,
}

/// Bytes a voxel of both images that a linear stage has at work: the images, the moved one, how much each voxel
/// counts, the gradient, the part of the moving image that travels, and what is made of ones to weigh it.
const LINEAR_BYTES: u64 = 20;

/// For each further channel and mask: of both images, and as they are compared.
const LINEAR_MORE_BYTES: u64 = 12;

/// Bytes of a device that a linear stage has at work; `channels` are those of each image, with its mask.
pub(super) fn linear_bytes(grids: [&Geometry; 2], channels: [usize; 2]) -> u64 {
    let of = |i: usize| {
        let more = LINEAR_MORE_BYTES * (channels[i] as u64 - 1);
        (LINEAR_BYTES + more) * grids[i].len() as u64
    };
    of(0) + of(1)
}

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
    /// Whether the moving image stays there as a whole.
    moving_stays: bool,
    /// Where others come and go, what is given away.
    exact: Option<u64>,
    device_bytes: u64,
    host_bytes: u64,
}

/// The cuts of a level for a device of so many bytes.
///
/// # Errors
/// [`Error::TooLarge`] when the device cannot hold one shard at work.
fn split(problem: &DeformProblem, bytes: u64) -> Result<Split> {
    let memory = |bytes: u64, of: u64| DeviceMemory { bytes, largest_buffer: of / LARGEST_PART };
    if let Ok(plan) = plan(problem, 1, memory(given(bytes, GIVEN), bytes)) {
        let Plan { layout, device_bytes, .. } = plan;
        let moving_stays = problem.moving_bytes() <= bytes / LARGEST_PART;
        let (resident, exact, host_bytes) = (layout.count(), None, 0);
        return Ok(Split { layout, resident, moving_stays, exact, device_bytes, host_bytes });
    }
    let planned = given_exactly(bytes);
    let plan = plan_offloaded(problem, memory(planned, bytes))?;
    let host_bytes = plan.host_bytes / ON_HOST[1] * ON_HOST[0];
    let OffloadPlan { layout, resident, moving_stays, device_bytes, .. } = plan;
    let exact = Some(planned);
    Ok(Split { layout, resident, moving_stays, exact, device_bytes, host_bytes })
}

/// The cuts of a level.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub fixed: Layout,
    pub moving: Layout,
    /// Where the shards of the fixed side are computed, and where they rest.
    pub work: DeviceMesh,
    pub rest: DeviceMesh,
    /// The same of the moving image.
    pub moving_work: DeviceMesh,
    pub moving_rest: DeviceMesh,
    /// Where memory is so short that buffers are allocated one by one: how many bytes of it these are planned to take.
    pub exact: Option<u64>,
    /// Who else has a part of them.
    pub team: Team,
}

impl Places {
    /// In one piece on one device, volumes of these sizes (D, H, W).
    pub fn whole(home: &Device, [fixed, moving]: [[usize; 3]; 2]) -> Result<Self> {
        let one = DeviceMesh::one(home);
        Ok(Self {
            fixed: Layout::balanced(fixed, Axis::Z, 1)?,
            moving: Layout::balanced(moving, Axis::Z, 1)?,
            work: one.clone(),
            rest: one.clone(),
            moving_work: one.clone(),
            moving_rest: one,
            exact: None,
            team: Team::ALONE,
        })
    }

    /// Whether each image is in one piece.
    pub fn are_whole(&self) -> bool {
        let pieces = [&self.fixed, &self.moving].map(Layout::count);
        pieces == [1, 1] && !self.team.fixed.are_several()
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

    /// Where a level with these grids goes in a linear stage: cut where devices share it, or where one would
    /// not hold it; its shards then rest in host memory. `channels` are those of each image, with its mask.
    ///
    /// # Errors
    /// As [`Placement::places`].
    pub(super) fn linear_places(
        &self,
        grids: [&Geometry; 2],
        channels: [usize; 2],
    ) -> Result<Places> {
        let [fixed, moving] = grids.map(Geometry::dims);
        match self {
            Self::DeviceMesh(mesh) | Self::Ranks { mesh, .. } => {
                let shares = mesh.has_several_devices() && grids[0].len() >= SHARED_VOXELS;
                let whole = || Places::whole(self.home(), [fixed, moving]);
                if shares { on_mesh(mesh, [fixed, moving]) } else { whole() }
            }
            Self::Device { device, bytes } => {
                let shards = linear_bytes(grids, channels).div_ceil(given(*bytes, GIVEN)) as usize;
                if shards <= 1 {
                    return Places::whole(device, [fixed, moving]);
                }
                let cut = |size: [usize; 3]| {
                    let count = shards.min(size[0]);
                    let work = DeviceMesh::of(vec![device.clone(); count]);
                    let rest = DeviceMesh::of(vec![Device::flex(); count]);
                    Ok::<_, Error>((Layout::balanced(size, Axis::Z, count)?, work, rest))
                };
                let ((fixed, work, rest), (moving, moving_work, moving_rest)) =
                    (cut(fixed)?, cut(moving)?);
                Ok(Places {
                    fixed,
                    moving,
                    work,
                    rest,
                    moving_work,
                    moving_rest,
                    exact: Some(given_exactly(*bytes)),
                    team: Team::ALONE,
                })
            }
        }
    }

    /// What a level takes in a linear stage, as [`Placement::linear_places`].
    ///
    /// # Errors
    /// As [`Placement::linear_places`].
    pub(super) fn takes_linear(
        &self,
        grids: [&Geometry; 2],
        channels: [usize; 2],
    ) -> Result<LevelMemory> {
        let places = self.linear_places(grids, channels)?;
        let shards = places.fixed.count();
        let rests = |k: &usize| places.rest.device(*k) != places.work.device(*k);
        let at_rest = (0..shards).filter(rests).count();
        let device_bytes = linear_bytes(grids, channels) / shards as u64;
        let images = grids.iter().zip(channels).map(|(grid, n)| 4 * (n * grid.len()) as u64);
        let host_bytes = if at_rest > 0 { images.sum() } else { 0 };
        Ok(LevelMemory { shards, at_rest, device_bytes, host_bytes })
    }

    /// What a level of a deformable stage takes.
    ///
    /// # Errors
    /// As [`Placement::places`].
    pub(super) fn takes(&self, problem: &DeformProblem) -> Result<LevelMemory> {
        if let Self::Device { bytes, .. } = self {
            let Split { layout, resident, device_bytes, host_bytes, .. } = split(problem, *bytes)?;
            let shards = layout.count();
            return Ok(LevelMemory {
                shards,
                at_rest: shards - resident,
                device_bytes,
                host_bytes,
            });
        }
        let shards = self.places(problem)?.fixed.count();
        let places = self.devices();
        let is_new = |k: &usize| !places[..*k].contains(&places[*k]);
        let devices = (0..places.len()).filter(is_new).count().min(shards);
        let device_bytes = problem.cut(devices, shards)?.device_bytes;
        Ok(LevelMemory { shards, at_rest: 0, device_bytes, host_bytes: 0 })
    }

    /// Demands that a level with these grids has room, on the device and in host memory; other placements hold what
    /// they are given.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub(super) fn check_level(&self, size: [usize; 3], problem: &DeformProblem) -> Result<()> {
        let Self::Device { bytes, .. } = self else { return Ok(()) };
        let needed_bytes = split(problem, *bytes)?.host_bytes;
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

    /// Whether some of a level with these grids rests in host memory.
    ///
    /// # Errors
    /// As [`Placement::places`].
    pub(super) fn is_too_small_for(&self, problem: &DeformProblem) -> Result<bool> {
        let Self::Device { bytes, .. } = self else { return Ok(false) };
        Ok(split(problem, *bytes)?.exact.is_some())
    }

    /// Where a level with these grids goes that is not shared with other processes.
    ///
    /// # Errors
    /// [`Error::TooLarge`](ffdp_image::Error::TooLarge) when the device cannot hold one shard at work.
    pub(super) fn places(&self, problem: &DeformProblem) -> Result<Places> {
        let &DeformProblem { fixed, moving, .. } = problem;
        let whole = |home: &Device| Places::whole(home, [fixed, moving]);
        let voxels = fixed.into_iter().product::<usize>();
        match self {
            Self::DeviceMesh(mesh) | Self::Ranks { mesh, .. } if mesh.count() == 1 => {
                whole(self.home())
            }
            Self::DeviceMesh(mesh) | Self::Ranks { mesh, .. }
                if mesh.has_several_devices() && voxels < SHARED_VOXELS =>
            {
                whole(self.home())
            }
            Self::DeviceMesh(mesh) | Self::Ranks { mesh, .. } => on_mesh(mesh, [fixed, moving]),
            Self::Device { device, bytes } => {
                let Split { layout, resident, moving_stays, exact, .. } = split(problem, *bytes)?;
                let shards = layout.count();
                if shards == 1 {
                    return whole(device);
                }
                let rest = |count: usize| {
                    let resident = (resident * count) / shards;
                    let host = Device::flex();
                    let place = |k| if k < resident { device.clone() } else { host.clone() };
                    DeviceMesh::of((0..count).map(place).collect())
                };
                let work = |count: usize| DeviceMesh::of(vec![device.clone(); count]);
                let pieces = if moving_stays { 1 } else { shards.min(moving[0]) };
                Ok(Places {
                    moving: Layout::balanced(moving, Axis::Z, pieces)?,
                    fixed: layout,
                    work: work(shards),
                    rest: rest(shards),
                    moving_work: work(pieces),
                    moving_rest: if moving_stays { work(1) } else { rest(pieces) },
                    exact,
                    team: Team::ALONE,
                })
            }
        }
    }
}

/// One shard for each place of a mesh, as far as there are planes.
fn on_mesh(mesh: &DeviceMesh, [fixed, moving]: [[usize; 3]; 2]) -> Result<Places> {
    // What all shards of one device see needs no cuts.
    let one = DeviceMesh::one(mesh.device(0));
    let moving_mesh = if mesh.has_several_devices() { mesh } else { &one };
    let (fixed, moving) = (mesh.layout(fixed, Axis::Z)?, moving_mesh.layout(moving, Axis::Z)?);
    let work = mesh.first(fixed.count());
    let moving_work = moving_mesh.first(moving.count());
    let (rest, moving_rest) = (work.clone(), moving_work.clone());
    let (exact, team) = (None, Team::ALONE);
    Ok(Places { fixed, moving, work, rest, moving_work, moving_rest, exact, team })
}
