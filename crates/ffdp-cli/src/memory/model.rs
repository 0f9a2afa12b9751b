//! Bytes per voxel, as measured.
//!
//! ```text
//! host(level)   = START + FULL (F + M) + the method's l + MOVING_LEVEL m
//! host(results) = START + RESULTS F + MOVING M + gzip + LABELS F
//! device(level) = FULL (F + M) on coarse levels + the method's
//! ```
//! `F`, `M` voxels of the fixed and the moving image · `l`, `m` the same on the level. What a voxel of a level takes
//! on the host, and a level on a device, the method says ([`Stage::host_bytes_per_voxel`](ffdp_register::Stage::host_bytes_per_voxel),
//! [`Stage::device_bytes`](ffdp_register::Stage::device_bytes)).
//! On the CPU the device is the host. The largest of all lines is the peak.
//!
//! On the CPU, all methods with LNCC on 80x104x88, 91x109x91 and 160x208x176 voxels: within 10 % of the process's own peak;
//! that of one greedy run was 121 MB once and 145 another time. Noise shrinks less in files: 141 to 162 MB of a greedy run
//! of `ffdp synth --spacing 2` where 132 are planned. Other similarities and masks were not measured and are counted by their tensors.

use ffdp_image::image::Geometry;

use crate::device::DeviceChoice;
use ffdp_register::Content;

/// Voxels of a problem on one level.
#[derive(Clone, Copy, Debug)]
pub struct Voxels {
    pub fixed: u64,
    pub moving: u64,
    /// Of the fixed image on the level.
    pub level: u64,
    /// Of the moving image on the level.
    pub moving_level: u64,
}

/// What the kernels of GPUs add to the program where they are compiled in, used or not: the median of 18 runs of all methods
/// at 2 mm on the CPU, whose peaks were from 15 MB below to 25 MB above plans without it.
const KERNELS: u64 = if cfg!(any(feature = "cuda", feature = "wgpu")) { 13_000_000 } else { 0 };
/// Program, threads and what they allocate for themselves, besides the images of a level, of a result, and of one
/// without a deformation.
const START: u64 = 43_000_000 + KERNELS;
const START_OF_RESULTS: u64 = 30_000_000 + KERNELS;
const START_OF_AFFINE_RESULTS: u64 = 56_000_000 + KERNELS;
/// With the driver and the compiler of a device: 0.28 to 0.45 GB with CUDA 13 on an H200.
const START_WITH_DEVICE: u64 = 350_000_000;
/// An image as it was read, scaled, and as a tensor. Measured on the CPU.
const HOST_FULL: u64 = 12;
/// The same with the tensors on another device.
const HOST_FULL_WITH_DEVICE: u64 = 8;
/// The moving image on the level, with what is sampled from it.
const HOST_MOVING_LEVEL: u64 = 32;
/// The result in all its forms (voxels, determinants, inverse, warped and unwarped images) while it is
/// measured, drawn and written, all at once. Measured as 84, and 57 of what is not deformed, when there were a copy in mm and all
/// determinants, 16 bytes: where the peak was by those alone, it is as much lower, so the middle is planned.
const HOST_RESULTS: u64 = 76;
/// The same where nothing is deformed, with the compressor of one file.
const HOST_AFFINE_RESULTS: u64 = 49;
const HOST_MOVING: u64 = 2;
/// Blocks on their way through the compressors of three files, at most, and for each voxel of small
/// ones.
const HOST_GZIP: [u64; 2] = [114_000_000, 50];
/// Labels of both images, those of the moving one before and after, and the boxes around those whose
/// surfaces are measured, in addition.
const HOST_LABELS: u64 = 18;

/// Of a run of slabs, what files and threads take in addition, the voxels that are read, computed and written at a
/// time, at least, and what each takes on its way. On the CPU, NIfTI and OME-Zarr of 320x384x448 and NIfTI of 416^3
/// voxels: from as much as the process's own peak to a fifth more.
const SLAB_START: u64 = 10_000_000;
const SLAB_VOXELS: u64 = 1 << 22;
const SLAB_PLANES: u64 = 32;
const SLAB_FIXED: u64 = 15;
const SLAB_MOVING: u64 = 15;
/// What is pinned for transfers, and the layers of files that are unpacked ahead: 0.5 to 0.8 GB of 667x800x933 voxels.
const SLAB_WITH_DEVICE: u64 = 1_000_000_000;

/// A further channel on the level: both images, what is sampled, its gradient and what both are made of. By their tensors.
const HOST_CHANNEL_LEVEL: u64 = 16;

/// A tensor of each channel and mask.
const DEVICE_FULL: u64 = 4;

/// Bytes of host memory at the peak of a level.
pub fn host_bytes(voxels: Voxels, per_voxel: u64, device: DeviceChoice) -> u64 {
    let Voxels { fixed, moving, level, moving_level } = voxels;
    if device != DeviceChoice::Cpu {
        return START_WITH_DEVICE + HOST_FULL_WITH_DEVICE * (fixed + moving);
    }
    START + HOST_FULL * (fixed + moving) + per_voxel * level + HOST_MOVING_LEVEL * moving_level
}

/// What each further channel of both images takes at the peak of a level that is held whole.
pub fn channel_bytes(voxels: Voxels, device: DeviceChoice) -> u64 {
    let full = HOST_FULL_WITH_DEVICE * (voxels.fixed + voxels.moving);
    full + if device == DeviceChoice::Cpu { channel_level_bytes(voxels) } else { 0 }
}

fn channel_level_bytes(voxels: Voxels) -> u64 {
    HOST_CHANNEL_LEVEL * (voxels.level + voxels.moving_level)
}

/// What a level in one piece takes on the CPU that is read slab by slab, with so many further channels: nothing of full
/// size.
pub fn slab_level_bytes(voxels: Voxels, per_voxel: u64, channels: u64) -> u64 {
    let images = per_voxel * voxels.level + HOST_MOVING_LEVEL * voxels.moving_level;
    images + channels * channel_level_bytes(voxels)
}

/// Bytes of host memory of a registration of slabs that holds `held` of its level there, and also what is read and
/// written at a time: results stay where they were found.
pub fn slabs_bytes(held: u64, grids: [&Geometry; 2], device: DeviceChoice) -> u64 {
    let start = match device {
        DeviceChoice::Cpu => START,
        _ => START_WITH_DEVICE + SLAB_WITH_DEVICE,
    };
    let plane = |grid: &Geometry| (grid.size[0] * grid.size[1]) as u64;
    let piece =
        |grid: &Geometry| (grid.len() as u64).min(SLAB_VOXELS.max(SLAB_PLANES * plane(grid)));
    let [fixed, moving] = grids.map(piece);
    start + SLAB_START + held + SLAB_FIXED * fixed + SLAB_MOVING * moving
}

/// Bytes of the memory of a device that is not the CPU, at the peak of a level that takes `of_level` of them. The
/// images of the finest level are those of full size.
pub fn device_bytes(voxels: Voxels, content: Content, of_level: u64) -> u64 {
    let [fixed, moving] = content.masked.map(|masked| content.channels as u64 + u64::from(masked));
    let full_side = |channels: u64, full: u64, level: u64| {
        if level < full { DEVICE_FULL * channels * full } else { 0 }
    };
    let images = full_side(fixed, voxels.fixed, voxels.level);
    images + full_side(moving, voxels.moving, voxels.moving_level) + of_level
}

/// Bytes of host memory while the result is measured and written, which has a deformation or has none.
pub fn results_bytes(voxels: Voxels, [deforms, labels]: [bool; 2], device: DeviceChoice) -> u64 {
    let Voxels { fixed, moving, .. } = voxels;
    let (start, per_voxel, gzip) = match deforms {
        true => (START_OF_RESULTS, HOST_RESULTS, HOST_GZIP[0].min(HOST_GZIP[1] * fixed)),
        false => (START_OF_AFFINE_RESULTS, HOST_AFFINE_RESULTS, 0),
    };
    let start = if device == DeviceChoice::Cpu { start } else { START_WITH_DEVICE };
    let labels = if labels { HOST_LABELS * fixed } else { 0 };
    start + per_voxel * fixed + HOST_MOVING * moving + gzip + labels
}
