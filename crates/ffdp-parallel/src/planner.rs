//! How many shards a deformable level needs, from the bytes that its buffers take.
//!
//! A device holds the *state* of all of its shards at all times, and the *work* of one shard, because
//! shards go through an iteration one after the other. Bytes per voxel in f32, for one channel:
//! ```text
//! state    fixed 4, moving 4, displacement 12, moments 24 (bf16: 12)
//! kept     unless all shards are on one device: of the fixed blocks what is around the shards, 4, and
//!          the parts of the moving image 4 (its shards are released where the parts hold all of them,
//!          `View::release`; that is not known before, so both are counted)
//! work     a parcel of the moving image 4 (`ring/route.rs` says how many planes), and the larger of
//!          the moved image in pieces and joined 8, the fixed block 4, a gradient 4
//!          that gradient 4, the one to the field 12, smoothed 12
//!          the displacement composed 12 and smoothed 12
//! ```
//! More shards on a device make only the work smaller, and the largest single buffer; the state
//! shrinks with more devices, or, on one device, by shards that rest in host memory ([`plan_offloaded`]).
//! The buffers are those of `deform/`: whoever changes one changes the
//! other. What an operation allocates within itself, and what a memory pool keeps, comes on top.

use std::sync::Arc;

use super::deform::WINDOWS;
use super::layout::{Axis, Layout};
use super::ring::thickest_parcel_of_block;
use ffdp_burn::losses::SimilarityLoss;
use ffdp_burn::ops::{
    DeformMethod, DeformOptions, GaussianOptions, MomentStorage, Optimizer, Penalties,
};
use ffdp_image::error::{Error, Result};

/// Bytes of an intensity in f32.
pub const VALUE: u64 = 4;
/// Bytes of a displacement in f32.
pub const VECTOR: u64 = 3 * VALUE;

/// The buffers of a method that improves fields, for a voxel of a level; those of images follow from their channels.
#[derive(Clone, Copy, Debug)]
pub struct FieldBuffers {
    /// Displacements or velocities that are improved.
    pub fields: u64,
    /// Bytes of the optimiser's state of each.
    pub state_bytes: u64,
    /// Further fields of each that an iteration keeps: what was squared, and the gradient on its way back.
    pub squared: u64,
}

impl FieldBuffers {
    /// Of the iterations of [`ops::deform`](ffdp_burn::ops::deform()): both moments of each field, or a direction.
    pub fn of_iterations(method: DeformMethod, optimizer: Optimizer) -> Self {
        let state_bytes = match optimizer.adam().map(|adam| adam.storage) {
            Some(MomentStorage::Full) => 2 * VECTOR,
            Some(MomentStorage::Bf16) | None => VECTOR,
        };
        let squared = method.squarings().map_or(0, |(squarings, _)| squarings as u64 + 2);
        Self { fields: method.fields() as u64, state_bytes, squared }
    }

    /// The same with an optimiser of a [`ShardedObjective`](super::deform::ShardedObjective) that keeps so many steps:
    /// those with what they changed; where the search is and a trial, their gradients, the direction.
    pub fn searching(self, steps: usize) -> Self {
        Self { state_bytes: (2 * steps as u64 + 5) * VECTOR, ..self }
    }
}

/// A deformable level as the planner sees it: no batch, f32.
#[derive(Clone, Copy, Debug)]
pub struct DeformProblem {
    /// Extent (D, H, W) of the fixed image.
    pub fixed: [usize; 3],
    /// Extent (D, H, W) of the moving image.
    pub moving: [usize; 3],
    /// Channels of each image.
    pub channels: usize,
    /// Whether the fixed and the moving image have a mask.
    pub masked: [bool; 2],
    /// The axis of the cuts.
    pub axis: Axis,
    /// Planes on either side that the gradient of the loss looks at.
    pub measure_halo: usize,
    /// Planes on either side that the wider of the two smoothings looks at.
    pub smoothing_halo: usize,
    /// What the method keeps.
    pub buffers: FieldBuffers,
}

/// What a device offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes that the run may take.
    pub bytes: u64,
    /// Bytes of the largest single buffer; CubeCL's pools allow a quarter of a GPU's memory.
    pub largest_buffer: u64,
}

/// How a problem is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The cuts of the fixed side.
    pub layout: Layout,
    /// Bytes that the fullest device needs, by the model of this file.
    pub device_bytes: u64,
    /// Bytes of the largest single buffer.
    pub largest_buffer: u64,
}

/// The fewest shards with which a problem fits onto `devices` devices: a multiple of their number.
///
/// # Errors
/// [`Error::TooLarge`] when it fits with no number of shards, with the bytes of the best;
/// [`Error::Invalid`] when there is no device, or fewer planes than devices.
pub fn plan(problem: &DeformProblem, devices: usize, memory: DeviceMemory) -> Result<Plan> {
    let mut best = problem.cut(devices, devices)?;
    for shards in (1..).map(|each| each * devices) {
        // More shards than planes: no cut is left to try.
        let Ok(plan) = problem.cut(devices, shards) else { break };
        if plan.device_bytes <= memory.bytes && plan.largest_buffer <= memory.largest_buffer {
            return Ok(plan);
        }
        if plan.device_bytes < best.device_bytes {
            best = plan;
        }
    }
    Err(Error::TooLarge {
        what: format!(
            "a deformable level of {:?} (z, y, x) voxels on {devices} devices",
            problem.fixed
        ),
        needed_bytes: best.device_bytes,
        available_bytes: memory.bytes,
        fix: "use more devices, store the moments in bf16, or end at a coarser level".into(),
    })
}

/// Of a GPU's memory, what the driver, the libraries and small buffers take.
const OTHER_MEMORY: u64 = 4_000_000_000;
/// Of the rest, the part that buffers may take: they do not fill pages to the end. With 93 % (135.8 GB of 146.1) an H200
/// finished; with 99 % (80.3 of 81.0) on each of two H100s an allocation failed on one, and the other waited.
const FILLED: [u64; 2] = [95, 100];
/// Pages into which the rest is divided: CubeCL's pools allow a buffer a quarter of the memory, and the buffers of a level that goes whole
/// are smaller than a sixth. Six of 24.4 GB fill an H200, where pools that choose pages by themselves end for want of memory.
const PAGES: u64 = 6;

/// The pages that the pools of a GPU should be made of, so that `needed` bytes of buffers fit into `free` ones; `None` where the pools may choose,
/// because there is room for pages that nothing fills.
///
/// # Errors
/// [`Error::TooLarge`] when they do not fit whatever the pages are.
pub fn page_bytes(needed: u64, free: u64) -> Result<Option<u64>> {
    let room = free.saturating_sub(OTHER_MEMORY);
    let filled = room / FILLED[1] * FILLED[0];
    if needed > filled {
        let [free, remaining] = [free, free - filled].map(|bytes| bytes as f64 / 1e9);
        return Err(Error::TooLarge {
            what: format!(
                "a registration in shards that stay on their devices (of {free:.1} GB that are free on each, \
                 {remaining:.1} GB are kept for the driver, for other libraries and for what pages of memory lose)"
            ),
            needed_bytes: needed,
            available_bytes: filled,
            fix: "use more devices or shards, store the moments in bf16, or let shards rest in host memory"
                .into(),
        });
    }
    Ok((needed > free / 2).then_some(room / PAGES))
}

/// How a problem is cut on one device that does not hold all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadPlan {
    /// The cuts of the fixed side.
    pub layout: Layout,
    /// The first so many shards stay on the device; the others rest in host memory.
    pub resident: usize,
    /// Whether all of the moving image stays on the device as well.
    pub moving_stays: bool,
    /// Bytes that the device needs, and the host, by the model of this file.
    pub device_bytes: u64,
    /// Bytes of the host.
    pub host_bytes: u64,
}

/// The cuts with which the most of a problem stays on one device, whatever its size; what does not, rests
/// in host memory, and each of its shards comes to the device when it is its turn. Shards are at least as
/// thick as what is recomputed around them, where the problem allows it.
///
/// A shard looks at as much of the moving image as turned and displaced planes reach, which is many times its own part:
/// one degree alone is 28 planes across 1600 voxels, where a shard has some 20. So that image stays on the device as a
/// whole where one buffer may hold it.
///
/// # Errors
/// [`Error::TooLarge`] when not even one shard at work fits, with the bytes of the best.
pub fn plan_offloaded(problem: &DeformProblem, memory: DeviceMemory) -> Result<OffloadPlan> {
    if let Ok(Plan { layout, device_bytes, .. }) = plan(problem, 1, memory) {
        let (resident, moving_stays) = (layout.count(), false);
        return Ok(OffloadPlan { layout, resident, moving_stays, device_bytes, host_bytes: 0 });
    }
    let moving_bytes = problem.moving_bytes();
    if moving_bytes <= memory.largest_buffer && 2 * moving_bytes <= memory.bytes {
        let remaining = DeviceMemory { bytes: memory.bytes - moving_bytes, ..memory };
        if let Ok(plan) = fullest(problem, remaining, true) {
            return Ok(OffloadPlan { device_bytes: plan.device_bytes + moving_bytes, ..plan });
        }
    }
    fullest(problem, memory, false)
}

/// The cuts with which the most of a problem stays on one device next to the moving image, or with that.
fn fullest(
    problem: &DeformProblem,
    memory: DeviceMemory,
    moving_stays: bool,
) -> Result<OffloadPlan> {
    let extent = problem.fixed[problem.axis.dim() - 2];
    let around = 2 * (problem.measure_halo + problem.smoothing_halo);
    let mut best: Option<OffloadPlan> = None;
    let mut least = u64::MAX;
    for shards in 2..=extent {
        let layout = Layout::balanced(problem.fixed, problem.axis, shards)?;
        // Thin shards only if there is no other way.
        if best.is_some() && layout.thickest() < around {
            break;
        }
        let bytes = Bytes { moving_stays, ..Bytes::new(problem, &layout, 1) };
        least = least.min(bytes.visit());
        let room = memory.bytes.checked_sub(bytes.visit());
        let Some(room) = room.filter(|_| bytes.field_block() <= memory.largest_buffer) else {
            continue;
        };
        let resident = ((room / bytes.resting()) as usize).min(shards);
        let fuller = |best: &OffloadPlan| resident * best.layout.count() > best.resident * shards;
        if best.as_ref().is_none_or(fuller) {
            let [here, there] = [resident, shards - resident].map(|n| n as u64 * bytes.resting());
            let device_bytes = here + bytes.visit();
            let host_bytes = there;
            best = Some(OffloadPlan { layout, resident, moving_stays, device_bytes, host_bytes });
        }
    }
    best.ok_or_else(|| Error::TooLarge {
        what: format!("one shard of a registration of {:?} (z, y, x) voxels", problem.fixed),
        needed_bytes: least,
        available_bytes: memory.bytes,
        fix: "use a device with more memory, store the moments in bf16, or end at a coarser level"
            .into(),
    })
}

impl DeformProblem {
    /// Two images of this extent (D, H, W) of one channel without masks, compared by what the options measure.
    pub fn plain(sizes: [[usize; 3]; 2], axis: Axis, options: DeformOptions) -> Self {
        let similarity: Arc<dyn SimilarityLoss> = options.measure.into();
        Self::new(sizes, axis, similarity.reach_voxels(), &options)
    }

    /// The same, compared by a similarity that looks so many voxels far along each axis.
    pub fn new(
        [fixed, moving]: [[usize; 3]; 2],
        axis: Axis,
        reach_voxels: usize,
        options: &DeformOptions,
    ) -> Self {
        let roughness = if options.penalties == Penalties::default() { 0 } else { 2 };
        let radius = |options: &GaussianOptions| {
            (options.truncate * options.sigma_voxels[axis.component()]).ceil() as usize
        };
        Self {
            fixed,
            moving,
            channels: 1,
            masked: [false; 2],
            axis,
            measure_halo: (2 * reach_voxels).max(roughness),
            smoothing_halo: radius(&options.smooth_gradient).max(radius(&options.smooth_field)),
            buffers: FieldBuffers::of_iterations(options.method, options.optimizer),
        }
    }

    /// Bytes of the moving image with its mask.
    pub fn moving_bytes(&self) -> u64 {
        let values = self.channels as u64 + u64::from(self.masked[1]);
        VALUE * values * self.moving.iter().map(|n| *n as u64).product::<u64>()
    }

    /// The problem in `shards` shards, whether or not it fits.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there are more shards than planes.
    pub fn cut(&self, devices: usize, shards: usize) -> Result<Plan> {
        let layout = Layout::balanced(self.fixed, self.axis, shards)?;
        let bytes = Bytes::new(self, &layout, devices);
        let (device_bytes, largest_buffer) = (bytes.device(), bytes.field_block());
        Ok(Plan { layout, device_bytes, largest_buffer })
    }
}

/// The buffers of one layout.
struct Bytes<'a> {
    problem: &'a DeformProblem,
    /// Shards on the fullest device, and whether there is more than one in all.
    shards: u64,
    cut: bool,
    /// Whether there is more than one device.
    several: bool,
    /// Whether the moving image is counted elsewhere, as a whole.
    moving_stays: bool,
    /// Planes of the thickest shard, and of the volume.
    thickest: u64,
    extent: u64,
    /// Voxels of a plane of the fixed side, and of all of the moving image.
    plane: u64,
    moving: u64,
}

impl<'a> Bytes<'a> {
    fn new(problem: &'a DeformProblem, layout: &Layout, devices: usize) -> Self {
        let [thickest, extent, all] =
            [layout.thickest(), layout.extent(), layout.voxels()].map(|n| n as u64);
        Self {
            problem,
            shards: layout.count().div_ceil(devices) as u64,
            cut: layout.count() > 1,
            several: devices > 1,
            moving_stays: false,
            thickest,
            extent,
            plane: all / extent,
            moving: problem.moving.iter().map(|n| *n as u64).product(),
        }
    }

    /// Voxels of the fixed side on the fullest device.
    fn own(&self) -> u64 {
        (self.shards * self.thickest).min(self.extent) * self.plane
    }

    /// Voxels of the thickest shard with a halo.
    fn block(&self, halo: usize) -> u64 {
        // Of an image of one voxel smoothing reaches without end.
        let both = (halo as u64).saturating_mul(2);
        self.thickest.saturating_add(both).min(self.extent) * self.plane
    }

    /// Voxels of the moving image in that many of its thickest shards.
    fn moving_part(&self, shards: u64) -> u64 {
        if self.moving_stays {
            return 0;
        }
        (self.moving * shards * self.thickest).div_ceil(self.extent).min(self.moving)
    }

    /// Voxels of the moving image that travel together: whole planes of its own grid.
    fn parcel(&self) -> u64 {
        if self.moving_stays {
            return 0;
        }
        let extent = self.problem.moving[self.problem.axis.dim() - 2];
        let planes = [self.thickest, self.seen() / self.plane];
        let [shard, block] =
            planes.map(|planes| (planes as usize * extent).div_ceil(self.extent as usize));
        let planes = thickest_parcel_of_block(shard, block).min(extent);
        self.moving / extent as u64 * planes as u64
    }

    /// Of a voxel of the fixed and of the moving image, masks included.
    fn values(&self) -> [u64; 2] {
        let channels = self.problem.channels as u64;
        self.problem.masked.map(|is_masked| VALUE * (channels + u64::from(is_masked)))
    }

    /// Of a voxel that is compared: the moved image in pieces and joined, the fixed block, a gradient. With a mask
    /// also both images without, the product of what they count, and the gradient without.
    fn compared(&self) -> u64 {
        let [fixed, moving] = self.values();
        let apart =
            if self.problem.masked.contains(&true) { 3 * moving.min(fixed) + VALUE } else { 0 };
        // SyN shows the fixed image as well, and sends a gradient back to it.
        let shown = if self.problem.buffers.fields > 1 { 3 * fixed } else { 0 };
        3 * moving + fixed + apart + shown
    }

    /// Of all fields with their state, a voxel.
    fn state_of_fields(&self) -> u64 {
        // What is squared has planes around it.
        let [part, of] = if self.cut { WINDOWS } else { [1, 1] };
        let FieldBuffers { fields, state_bytes, squared } = self.problem.buffers;
        fields * (VECTOR + state_bytes) + (squared * VECTOR * part).div_ceil(of)
    }

    /// The state of the thickest shard.
    fn resting(&self) -> u64 {
        let [fixed, moving] = self.values();
        self.moving_part(1) * moving + self.block(0) * (fixed + self.state_of_fields())
    }

    /// What a shard at work holds whose state rests elsewhere: what it brings along comes on top of what a
    /// resident one needs, and stays until it is waited for. Meanwhile the next brings the same.
    fn visit(&self) -> u64 {
        let (seen, own) = (self.seen(), self.block(0));
        let [fixed, moving] = self.values();
        let FieldBuffers { fields, state_bytes, .. } = self.problem.buffers;
        let (parcel, moments) = (self.parcel() * moving, own * fields * state_bytes);
        let compared = own * fields * VECTOR + seen * self.compared();
        let pulled_back = own * 2 * fields * VECTOR + seen * 2 * moving;
        let next = parcel + moments + seen * (fixed + fields * VECTOR);
        // What the shard before has left goes when the next buffer is asked for.
        let left = own * fields * VECTOR + moments;
        let gradient = parcel + moments + compared.max(pulled_back) + next + left;
        // Both displacements after the step, the second smoothed, and what two shards bring.
        let step = own * 2 * VECTOR + 2 * (own * VECTOR + moments);
        gradient.max(step)
    }

    fn state(&self) -> u64 {
        let [fixed, moving] = self.values();
        let images = self.own() * fixed + self.moving_part(self.shards) * moving;
        images + self.own() * self.state_of_fields()
    }

    /// Voxels of the thickest shard with all that its gradient looks at.
    fn seen(&self) -> u64 {
        self.block(self.problem.measure_halo + self.problem.smoothing_halo)
    }

    fn kept(&self) -> u64 {
        match self.several {
            true => {
                let [fixed, moving] = self.values();
                let around = self.seen() - self.block(0);
                self.shards * (around * fixed + self.moving_part(1) * moving)
            }
            false => 0,
        }
    }

    /// The largest sum of what is at work at a time.
    fn work(&self) -> u64 {
        if !self.cut {
            // The field before and after a step, and smoothed.
            return self.own() * 3 * self.problem.buffers.fields * VECTOR;
        }
        let (seen, own) = (self.seen(), self.block(0));
        let [_, moving] = self.values();
        let compared = seen * self.compared();
        let pulled_back = seen * moving + own * 2 * self.problem.buffers.fields * VECTOR;
        let stepped = own * 2 * VECTOR;
        let parcel = if self.several { 0 } else { self.parcel() * moving };
        parcel + compared.max(pulled_back).max(stepped)
    }

    fn device(&self) -> u64 {
        self.state() + self.kept() + self.work()
    }

    fn field_block(&self) -> u64 {
        self.block(self.problem.smoothing_halo) * VECTOR
    }
}
