//! What a level takes, from the buffers that its method declares: of a plan, a placement and a refusal.

use burn::tensor::Device;

use super::problem::Content;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::Geometry;
use ffdp_parallel::planner::{
    DeformProblem, DeviceMemory, OffloadPlan, Plan, VALUE, plan, plan_offloaded,
};
use ffdp_parallel::{Axis, Layout};

/// CubeCL's pools allow buffers of at most this part of a device's memory.
pub(super) const LARGEST_PART: u64 = 4;

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

/// Memory of a level of a stage in a [`Placement`](super::Placement), by the model of the planner.
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

/// The same on the CPU: two images, the moved one and its gradient.
pub(super) const LINEAR_CPU_BYTES: u64 = 32;

/// For each further channel and mask: of both images, and as they are compared.
const LINEAR_MORE_BYTES: u64 = 12;

fn given(bytes: u64, [part, of]: [u64; 2]) -> u64 {
    bytes / of * part
}

fn given_exactly(bytes: u64) -> u64 {
    given(bytes, GIVEN_EXACTLY).max(bytes.saturating_sub(LARGEST_REST))
}

/// A level, and what is kept for its voxels.
#[derive(Clone, Copy, Debug)]
pub(super) enum LevelProblem {
    /// Images that are compared under an affine map, in any number of parts: extents (D, H, W) of both, and their
    /// channels with their masks.
    Linear { sizes: [[usize; 3]; 2], channels: [usize; 2] },
    /// Fields that are improved.
    Fields {
        problem: DeformProblem,
        /// Voxels of the fixed image from which several devices share it.
        shared_voxels: usize,
    },
    /// Images in one piece on the first device, whatever the placement: of extents (D, H, W), with all that a method makes
    /// of them there.
    Whole { sizes: [[usize; 3]; 2], bytes: u64 },
}

/// A level on one device and, as far as that has no room, in host memory.
pub(super) struct Split {
    /// The cuts of the fixed side.
    pub layout: Layout,
    /// The first so many shards stay on the device.
    pub resident: usize,
    /// Parts of the moving image, and whether it stays there as a whole.
    pub moving_pieces: usize,
    pub moving_stays: bool,
    /// Where others come and go, what is given away.
    pub exact: Option<u64>,
    pub device_bytes: u64,
    pub host_bytes: u64,
}

impl LevelProblem {
    /// Images on these grids that are compared under an affine map.
    pub fn linear(grids: [&Geometry; 2], content: Content) -> Self {
        Self::Linear { sizes: grids.map(Geometry::dims), channels: content.with_masks() }
    }

    /// Images on these grids in one piece, with all that a method makes of them.
    pub fn whole(grids: [&Geometry; 2], bytes: u64) -> Self {
        Self::Whole { sizes: grids.map(Geometry::dims), bytes }
    }

    /// Extents (D, H, W) of the fixed and the moving image.
    pub fn sizes(&self) -> [[usize; 3]; 2] {
        match self {
            Self::Linear { sizes, .. } | Self::Whole { sizes, .. } => *sizes,
            Self::Fields { problem, .. } => [problem.fixed, problem.moving],
        }
    }

    /// Bytes that the fullest of so many devices takes.
    pub fn device_bytes(&self, devices: usize, shards: usize) -> Result<u64> {
        Ok(match self {
            Self::Linear { sizes, channels } => linear_bytes(sizes, channels) / shards as u64,
            Self::Fields { problem, .. } => problem.cut(devices, shards)?.device_bytes,
            Self::Whole { bytes, .. } => *bytes,
        })
    }

    /// The cuts for a device of so many bytes.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when it cannot hold one shard at work.
    pub fn split(&self, device: &Device, bytes: u64) -> Result<Split> {
        match self {
            Self::Linear { sizes, channels } => split_images(sizes, channels, device, bytes),
            Self::Fields { problem, .. } => split_fields(problem, bytes),
            Self::Whole { sizes, bytes: needed } => in_one_piece(*sizes, *needed, bytes),
        }
    }
}

/// Bytes that both images have at work.
fn linear_bytes(sizes: &[[usize; 3]; 2], channels: &[usize; 2]) -> u64 {
    let of = |i: usize| {
        let more = LINEAR_MORE_BYTES * (channels[i] as u64 - 1);
        (LINEAR_BYTES + more) * sizes[i].iter().product::<usize>() as u64
    };
    of(0) + of(1)
}

/// Images that stay in one piece.
fn in_one_piece([fixed, _]: [[usize; 3]; 2], needed_bytes: u64, bytes: u64) -> Result<Split> {
    let available_bytes = given(bytes, GIVEN);
    if needed_bytes > available_bytes {
        return Err(Error::TooLarge {
            what: format!("on one device, a level of {fixed:?} voxels (D, H, W) in one piece"),
            needed_bytes,
            available_bytes,
            fix: "let the stage work on a coarser level (a larger shrink), or use a device with more memory"
                .into(),
        });
    }
    Ok(Split {
        layout: Layout::balanced(fixed, Axis::Z, 1)?,
        resident: 1,
        moving_pieces: 1,
        moving_stays: true,
        exact: None,
        device_bytes: needed_bytes,
        host_bytes: 0,
    })
}

/// Images in as many parts as they need, all at rest in host memory.
fn split_images(
    sizes: &[[usize; 3]; 2],
    channels: &[usize; 2],
    device: &Device,
    bytes: u64,
) -> Result<Split> {
    let needed = linear_bytes(sizes, channels);
    let shards = needed.div_ceil(given(bytes, GIVEN)).max(1) as usize;
    let [fixed, moving_pieces] = sizes.map(|[planes, ..]| shards.min(planes));
    let layout = Layout::balanced(sizes[0], Axis::Z, fixed)?;
    let stay = shards == 1 || *device == Device::flex();
    let values = |(size, n): (&[usize; 3], &usize)| (n * size.iter().product::<usize>()) as u64;
    Ok(Split {
        resident: if stay { fixed } else { 0 },
        moving_pieces,
        moving_stays: false,
        exact: (shards > 1).then(|| given_exactly(bytes)),
        device_bytes: needed / fixed as u64,
        host_bytes: if stay {
            0
        } else {
            VALUE * sizes.iter().zip(channels).map(values).sum::<u64>()
        },
        layout,
    })
}

/// Fields in as many shards as they need, of which those rest in host memory for which there is no room.
fn split_fields(problem: &DeformProblem, bytes: u64) -> Result<Split> {
    let memory = |bytes: u64, of: u64| DeviceMemory { bytes, largest_buffer: of / LARGEST_PART };
    let pieces = |layout: &Layout, moving_stays: bool| match moving_stays {
        true => 1,
        false => layout.count().min(problem.moving[0]),
    };
    if let Ok(plan) = plan(problem, 1, memory(given(bytes, GIVEN), bytes)) {
        let Plan { layout, device_bytes, .. } = plan;
        let moving_stays = problem.moving_bytes() <= bytes / LARGEST_PART;
        return Ok(Split {
            resident: layout.count(),
            moving_pieces: pieces(&layout, moving_stays),
            moving_stays,
            exact: None,
            device_bytes,
            host_bytes: 0,
            layout,
        });
    }
    let planned = given_exactly(bytes);
    let plan = plan_offloaded(problem, memory(planned, bytes))?;
    let OffloadPlan { layout, resident, moving_stays, device_bytes, host_bytes } = plan;
    Ok(Split {
        resident,
        moving_pieces: pieces(&layout, moving_stays),
        moving_stays,
        exact: Some(planned),
        device_bytes,
        host_bytes: host_bytes / ON_HOST[1] * ON_HOST[0],
        layout,
    })
}
