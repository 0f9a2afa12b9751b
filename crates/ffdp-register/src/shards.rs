//! How many shards a registration needs.

use super::level_memory::LARGEST_PART;
use super::problem::Content;
use super::pyramid::{finest_spacing_mm, level_geometry};
use super::schedule::Settings;
use ffdp_image::error::Result;
use ffdp_image::image::Geometry;
use ffdp_parallel::planner::{DeviceMemory, VALUE, VECTOR, plan};

/// How many shards the deformable stages need on `devices` devices with `bytes` of memory each; at least
/// one for each device. `grids` are those of the fixed and the moving image.
///
/// # Errors
/// [`Error::TooLarge`](ffdp_image::Error::TooLarge) when no number of shards makes a stage fit.
pub fn shards_needed(
    settings: &Settings,
    grids: [&Geometry; 2],
    content: Content,
    devices: usize,
    bytes: u64,
) -> Result<usize> {
    let voxels = |grid: &Geometry| grid.len() as u64;
    let values = |i: usize| voxels(grids[i]) * content.with_masks()[i] as u64;
    // The first device holds both images and masks whole, and the field that a level begins with.
    let images = VALUE * (values(0) + values(1));
    let mut most = devices;
    for stage in &settings.stages {
        let Some(kind) = stage.fields() else { continue };
        for level in kind.descent().levels {
            let spacing_mm = level.shrink * finest_spacing_mm(grids[0]);
            let on_level =
                |i: usize| level_geometry(grids[i], spacing_mm, settings.minimum_axis_voxels);
            let [fixed, moving] = [on_level(0)?, on_level(1)?];
            let problem = kind.problem([&fixed, &moving], content);
            let free = bytes.saturating_sub(images + VECTOR * voxels(&fixed));
            let memory = DeviceMemory { bytes: free, largest_buffer: bytes / LARGEST_PART };
            most = most.max(plan(&problem, devices, memory)?.layout.count());
        }
    }
    Ok(most)
}
