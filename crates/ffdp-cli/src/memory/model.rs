//! Bytes per voxel, as measured.
//!
//! ```text
//! host(level)   = START + FULL (F + M) + LEVEL l + MOVING_LEVEL m
//! host(results) = START + RESULTS F + MOVING M + gzip + LABELS F
//! device(level) = FULL (F + M) + LEVEL l
//! ```
//! `F`, `M` voxels of the fixed and the moving image · `l`, `m` the same on the level. On the
//! CPU the device is the host. The largest of all lines is the peak.
//!
//! The numbers of greedy LNCC on the CPU fit the runs that they were taken from within 2 %, those of the
//! results within 6 %, with a GPU within 12 %; sizes beyond them, other
//! methods, masks and the linear stages were not measured and are counted by their tensors.

use crate::device::DeviceChoice;

/// A stage as far as memory is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Moments, rigid, affine: images only.
    Linear,
    /// A field with its gradient and moments, in full or in bf16.
    Deformable { bf16: bool },
}

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

/// Program and threads, before any image.
const START: u64 = 15_000_000;
/// With the driver and the compiler of a device: 0.28 to 0.45 GB with CUDA 13 on an H200.
const START_WITH_DEVICE: u64 = 350_000_000;
/// An image as it was read, scaled, and as a tensor. As all numbers of the host, measured for greedy
/// with LNCC on the CPU: pairs of 64^3 to 160^3 voxels and one of 160x192x224.
const HOST_FULL: u64 = 12;
/// The same with the tensors on another device.
const HOST_FULL_WITH_DEVICE: u64 = 8;
/// Field, moments, gradient, step and the comparison of a greedy level on the CPU.
const HOST_LEVEL: u64 = 57;
/// The moving image on the level, with what is sampled from it.
const HOST_MOVING_LEVEL: u64 = 32;
/// Two images, the moved one and its gradient on the CPU.
const HOST_LINEAR: u64 = 32;
/// The result in all its forms (voxels, mm, determinants, inverse, warped and unwarped images) while it is
/// measured, drawn and written, all at once.
const HOST_RESULTS: u64 = 84;
const HOST_MOVING: u64 = 2;
/// Blocks on their way through the compressors of three files, at most, and for each voxel of small
/// ones.
const HOST_GZIP: [u64; 2] = [114_000_000, 36];
/// Labels of both images, those of the moving one before and after, and the boxes around those whose
/// surfaces are measured, in addition.
const HOST_LABELS: u64 = 18;

/// A tensor of each image.
const DEVICE_FULL: u64 = 4;
/// 9.7 GB beyond 1.1 GB of images at 512^3 on an H200 (docs/performance.md), 6.4 GB with moments in
/// bf16.
const DEVICE_LEVEL: u64 = 73;
const DEVICE_LEVEL_BF16: u64 = 48;
const DEVICE_LINEAR: u64 = 24;

/// Bytes of host memory at the peak of a level.
pub fn host_bytes(voxels: Voxels, kind: Kind, device: DeviceChoice) -> u64 {
    let Voxels { fixed, moving, level, moving_level } = voxels;
    if device != DeviceChoice::Cpu {
        return START_WITH_DEVICE + HOST_FULL_WITH_DEVICE * (fixed + moving);
    }
    let per_voxel = match kind {
        Kind::Linear => HOST_LINEAR,
        Kind::Deformable { .. } => HOST_LEVEL,
    };
    START + HOST_FULL * (fixed + moving) + per_voxel * level + HOST_MOVING_LEVEL * moving_level
}

/// Bytes of the memory of a device that is not the CPU, at the peak of a level.
pub fn device_bytes(voxels: Voxels, kind: Kind) -> u64 {
    let Voxels { fixed, moving, level, .. } = voxels;
    let per_voxel = match kind {
        Kind::Linear => DEVICE_LINEAR,
        Kind::Deformable { bf16: false } => DEVICE_LEVEL,
        Kind::Deformable { bf16: true } => DEVICE_LEVEL_BF16,
    };
    DEVICE_FULL * (fixed + moving) + per_voxel * level
}

/// Bytes of host memory while the result is measured and written.
pub fn results_bytes(voxels: Voxels, labels: bool, device: DeviceChoice) -> u64 {
    let Voxels { fixed, moving, .. } = voxels;
    let start = if device == DeviceChoice::Cpu { START } else { START_WITH_DEVICE };
    let gzip = HOST_GZIP[0].min(HOST_GZIP[1] * fixed);
    let labels = if labels { HOST_LABELS * fixed } else { 0 };
    start + HOST_RESULTS * fixed + HOST_MOVING * moving + gzip + labels
}
