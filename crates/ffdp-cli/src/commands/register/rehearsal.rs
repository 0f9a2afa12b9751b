//! A registration of made-up images while the real ones are read: so that kernels are compiled meanwhile.
//!
//! A GPU's kernels are compiled when they are first launched, which takes longer than everything else that a
//! registration of small images does. Which ones there are depends on the sizes and the settings, not on the
//! intensities: the made-up images have the grids of the real ones, and everything is done that will be done
//! on the device, with few iterations. Where kernels are kept on disk (`persistence`), a run whose like was here before
//! finds its own there, sooner than it could rehearse: then there is none.

use std::fs;
use std::path::PathBuf;

use ffdp_burn::image::{Affine, Geometry, LabelMap, Volume};
use ffdp_parallel::DeviceMesh;
use ffdp_register::{Problem, Settings, Silent, register_on};
use rayon::prelude::*;

use super::args::RegisterArguments;
use super::inputs::Inputs;
use super::results::Results;
use crate::device::DeviceChoice;
use crate::failure::Outcome;
use crate::hash::sha256_of;
use crate::memory::Sizes;

/// Iterations of a level: the second one starts from what the first has left, and their losses are
/// joined.
const ITERATIONS: usize = 2;
/// Voxels of both images up to which a rehearsal pays: beyond, its work on the host is no longer small
/// beside the compilation.
const MOST_VOXELS: usize = 64 << 20;

/// Does once what the registration of images with these grids will do on the device. Its result means
/// nothing; nor does its failure, which the registration itself will report.
pub fn rehearse(
    request: &RegisterArguments,
    settings: &Settings,
    sizes: &Sizes,
    mesh: &DeviceMesh,
) {
    if sizes.fixed.len() + sizes.moving.len() > MOST_VOXELS {
        return;
    }
    let note = note_of(request, settings);
    if note.as_ref().is_some_and(|note| note.exists()) {
        return;
    }
    if let (Ok(()), Some(note)) = (rehearsed(request, settings, sizes, mesh), note) {
        // Without it the next run rehearses again.
        let _ = note.parent().map(fs::create_dir_all);
        let _ = fs::write(note, "");
    }
}

/// The file that says that kernels for such a run are kept: of this build of the program, on this device. What depends
/// on sizes is compiled when it is met. `None` where nothing is kept.
fn note_of(request: &RegisterArguments, settings: &Settings) -> Option<PathBuf> {
    if cfg!(not(feature = "persistence")) || request.mesh.first() == DeviceChoice::Wgpu {
        // Of wgpu the driver compiles, and keeps, or does not.
        return None;
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let program = std::env::current_exe().and_then(fs::metadata).ok()?;
    let build = (program.len(), program.modified().ok()?);
    let sides = [&request.fixed_labels, &request.moving_labels];
    let given = (request.masked(), sides.map(Option::is_some), request.no_inverse);
    let run = format!("{build:?} {} {settings:?} {given:?}", request.mesh);
    Some(cache.join("ffdp/rehearsed").join(sha256_of(&run)))
}

fn rehearsed(
    request: &RegisterArguments,
    settings: &Settings,
    sizes: &Sizes,
    mesh: &DeviceMesh,
) -> Outcome<()> {
    let inputs = Inputs::made_up(request, sizes)?;
    let problem = Problem {
        fixed_mask: inputs.fixed_mask.as_ref(),
        moving_mask: inputs.moving_mask.as_ref(),
        ..Problem::new(&inputs.fixed, &inputs.moving)
    };
    let result = register_on(mesh, &problem, &shortened(settings), &mut Silent)?;
    Results::of(request, &inputs, result, mesh.device(0)).map(|_| ())
}

/// The same with few iterations a level.
pub fn shortened(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    for stage in &mut settings.stages {
        stage.shorten(ITERATIONS);
    }
    settings
}

impl Inputs {
    /// Blobs on the grids of a request, with labels and masks where it has them.
    fn made_up(request: &RegisterArguments, sizes: &Sizes) -> Outcome<Self> {
        let [fixed, moving] = [blob(&sizes.fixed, 0.5)?, blob(&sizes.moving, 0.52)?];
        let labels = |image: &Volume, wanted: bool| {
            let inside = |&value: &f32| i32::from(value > 0.5);
            let labels = || {
                LabelMap::new(image.data.par_iter().map(inside).collect(), image.geometry.clone())
            };
            wanted.then(labels).transpose()
        };
        let weights = |image: &Volume, wanted: bool| {
            let ones = || Volume::new(vec![1.0; image.data.len()], image.geometry.clone());
            wanted.then(ones).transpose()
        };
        Ok(Self {
            fixed_labels: labels(&fixed, request.fixed_labels.is_some())?,
            moving_labels: labels(&moving, request.moving_labels.is_some())?,
            fixed_mask: weights(&fixed, request.fixed_mask.is_some())?,
            moving_mask: weights(&moving, request.moving_mask.is_some())?,
            label_ids: None,
            initial: Affine::identity(),
            landmarks: None,
            hashes: Default::default(),
            mask_hashes: Default::default(),
            warnings: Vec::new(),
            fixed,
            moving,
        })
    }
}

/// `max(0, 1 - r^2)`, the radius a part of each axis.
fn blob(grid: &Geometry, radius: f32) -> Outcome<Volume> {
    let value = |offset: usize| {
        let index = grid.index_of(offset);
        let part = |i: usize| (index[i] as f32 + 0.5) / grid.size[i] as f32 - 0.5;
        let square = |i: usize| if grid.size[i] > 1 { (part(i) / radius).powi(2) } else { 0.0 };
        (1.0 - (0..3).map(square).sum::<f32>()).max(0.0)
    };
    let data = (0..grid.len()).into_par_iter().map(value).collect();
    Ok(Volume::new(data, grid.clone())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_have_an_inside_and_an_outside_on_volumes_and_planes() {
        for size in [[16, 20, 9], [24, 16, 1]] {
            let grid = Geometry::new(size, [1.0; 3]).expect("valid");
            let image = blob(&grid, 0.5).expect("fits");
            let (low, high) = image.min_max().expect("finite");
            assert!(low == 0.0 && high > 0.9 && high <= 1.0, "{size:?}: {low}..{high}");
        }
    }
}
