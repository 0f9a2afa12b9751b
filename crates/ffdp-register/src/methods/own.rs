//! Methods that are no built-in ones: what they must say, and what they are given.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{Device, Tensor};

use crate::context::{Estimate, Run, StageResult};
use crate::fields::Fields;
use crate::level::{Solver, level_start, run_level};
use crate::level_memory::{LINEAR_CPU_BYTES, LevelProblem};
use crate::methods::StageMethod;
use crate::models::Deformed;
use crate::pair::LevelPair;
use crate::places::Places;
use crate::problem::Content;
use crate::report::StageReport;
use crate::report::{LevelReport, Stop};
use crate::settings::{ConvergenceSettings, LevelSettings, Similarity};
use ffdp_burn::transform::Displacement;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical, Voxel};
use ffdp_kit::TensorPlace;
use ffdp_parallel::{Sharded, deform::Landmarks, planner::VALUE};

/// A way to find a transform that a program brings along, as a stage of a registration:
/// [`Stage::own`](crate::Stage::own).
///
/// It has its images in one piece on one device. What it finds is kept if it improves the alignment of the images, by
/// [`Method::similarity`], than the affine map alone.
pub trait Method: Debug + Send + Sync {
    /// Its name, as reports have it.
    fn name(&self) -> &'static str;

    /// The levels, coarse to fine.
    fn levels(&self) -> &[LevelSettings];

    /// What its result is judged by, on the last level.
    fn similarity(&self) -> &Similarity;

    /// Finds the transform.
    ///
    /// # Errors
    /// Those of the images and of the device.
    fn find(&self, stage: &mut StageRun) -> Result<MethodResult>;

    /// # Errors
    /// [`Error::Invalid`] naming the first setting that has no meaning.
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// Whether it moves the image as a whole: such stages come before deformable ones. No by default.
    fn is_linear(&self) -> bool {
        false
    }

    /// Bytes of host memory that a voxel of a level takes on the CPU, images apart, for the plan that is made before a
    /// run. As much as a displacement with two moments, its gradient and a step, unless said otherwise.
    fn host_bytes_per_voxel(&self) -> u64 {
        57
    }

    /// Bytes of a device that a level takes at its peak, the images on its grids included: what the host takes on the
    /// CPU, unless said otherwise.
    fn device_bytes(&self, grids: [&Geometry; 2], content: Content) -> u64 {
        let channels = content.with_masks();
        let values = |i: usize| channels[i] as u64 * grids[i].len() as u64;
        VALUE * (values(0) + values(1)) + self.host_bytes_per_voxel() * grids[0].len() as u64
    }

    /// Why it cannot work with what it is given; `None` if it can. By default it refuses images in parts.
    fn refuses(&self, given: &StageInputs) -> Option<String> {
        given.parts.then(|| "it has its images in one piece on one device".into())
    }
}

/// The inputs of a stage, as far as a method may have to refuse them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageInputs {
    /// Channels of each image.
    pub channels: usize,
    /// Whether the fixed and the moving image have a mask.
    pub masked: [bool; 2],
    /// Whether the images are cut: in shards, slab by slab, or over processes.
    pub parts: bool,
    /// Whether some of the parts rest in host memory, as a device has no room for them.
    pub at_rest: bool,
    /// Whether several processes share them.
    pub processes: bool,
}

/// The transform that a [`Method`] has found.
#[derive(Clone, Debug)]
pub struct MethodResult {
    /// From points of the fixed to points of the moving image, RAS mm; applied after the displacement.
    pub affine: Affine<Physical, Physical>,
    /// `w` on the grid of any level; `None` without.
    pub displacement: Option<Displacement>,
}

/// A method as a stage. Equal to itself alone.
#[derive(Clone, Debug)]
pub struct OwnMethod(pub Arc<dyn Method>);

impl PartialEq for OwnMethod {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A stage under way: what was found before it, the images of its levels, and who watches.
pub struct StageRun<'r, 'a> {
    run: &'r mut Run<'a>,
    found: Estimate,
    name: &'static str,
    levels: Vec<LevelReport>,
}

/// Two images on a level, scaled to [0, 1].
pub struct LevelImages {
    /// `[1, C, D, H, W]`.
    pub fixed: Tensor<5>,
    /// `[1, C, Di, Hi, Wi]`.
    pub moving: Tensor<5>,
    /// Weights in 0..1 of the fixed and of the moving image, `[1, 1, ..]`.
    pub masks: [Option<Tensor<5>>; 2],
    pair: LevelPair,
}

impl LevelImages {
    /// The grids of the fixed and of the moving image.
    pub fn grids(&self) -> &[Geometry; 2] {
        &self.pair.grids
    }

    /// From voxels of the fixed to those of the moving image; `affine` is in RAS mm.
    pub fn index_map(&self, affine: &Affine<Physical, Physical>) -> Affine<Voxel, Voxel> {
        self.pair.index_map(affine)
    }

    /// The labels that drive the registration, if there are any, 1 where each is, `[1, K, D, H, W]` and
    /// `[1, K, Di, Hi, Wi]`, and what their overlap weighs.
    pub fn driving_labels(&self) -> Option<([Tensor<5>; 2], f64)> {
        self.pair.driving_labels()
    }

    /// The landmarks that drive the registration, if there are any, as a part of a loss that usually gains `gain`.
    pub fn landmarks(&self, affine: &Affine<Physical, Physical>, gain: f64) -> Option<Landmarks> {
        self.pair.landmarks_for(affine, gain)
    }

    /// The loss of `moving(A (x + w(x)))` against `fixed(x)`, `w` `[1, 3, D, H, W]` in voxels of the level. Waits for
    /// the device.
    ///
    /// # Errors
    /// [`Error::Device`] when it cannot be read.
    pub fn loss(
        &self,
        similarity: &Similarity,
        affine: &Affine<Physical, Physical>,
        displacement: Option<Tensor<5>>,
    ) -> Result<f64> {
        self.pair.loss(&similarity.loss(), affine, displacement.map(Sharded::whole))
    }
}

impl StageRun<'_, '_> {
    /// The affine map that was found before, in RAS mm.
    pub fn affine(&self) -> Affine<Physical, Physical> {
        self.found.affine
    }

    /// The displacement that was found before, on the grid of the level that found it.
    ///
    /// # Errors
    /// Those of the device.
    pub fn displacement(&self) -> Result<Option<Displacement>> {
        let Some(deformed) = &self.found.deformed else { return Ok(None) };
        Ok(Some(deformed.maps()?.0.gathered()?.remove(0)))
    }

    /// Where the images are.
    pub fn device(&self) -> Device {
        self.run.placement.home().clone()
    }

    /// The images on a level.
    ///
    /// # Errors
    /// Those of the device.
    pub fn images(&mut self, level: &LevelSettings) -> Result<LevelImages> {
        let grids = self.run.level_grids(level)?;
        let places =
            Places::whole(self.run.placement.home(), grids.each_ref().map(Geometry::dims))?;
        let pair = self.run.pair(grids, places)?;
        let [(fixed, fixed_mask), (moving, moving_mask)] = pair.whole();
        Ok(LevelImages { fixed, moving, masks: [fixed_mask, moving_mask], pair })
    }

    /// Iterations of level `index` of `levels` until they no longer help, the observer ends them or all are done; says
    /// why they ended.
    ///
    /// # Errors
    /// Those of the solver, and [`Error::Device`] for a loss that is no number.
    pub fn iterate(
        &mut self,
        levels: &[LevelSettings],
        index: usize,
        images: &LevelImages,
        solver: &mut dyn Solver,
        convergence: &ConvergenceSettings,
    ) -> Result<Stop> {
        let level = level_start(self.name, index, levels, images.grids()[0].size);
        let interval = self.run.loss_interval;
        let report = run_level(&level, solver, convergence, interval, &mut *self.run.observer)?;
        let stop = report.stop;
        self.levels.push(report);
        Ok(stop)
    }
}

impl StageMethod for OwnMethod {
    fn levels(&self) -> &[LevelSettings] {
        self.0.levels()
    }

    fn similarity(&self) -> &Similarity {
        self.0.similarity()
    }

    /// That is not known.
    fn compares_intensities(&self) -> bool {
        false
    }

    fn is_linear(&self) -> bool {
        self.0.is_linear()
    }

    fn validate(&self) -> Result<()> {
        self.0.validate()
    }

    fn problem(&self, grids: [&Geometry; 2], content: Content) -> LevelProblem {
        LevelProblem::whole(grids, self.0.device_bytes(grids, content))
    }

    fn host_bytes_per_voxel(&self) -> u64 {
        if self.is_linear() { LINEAR_CPU_BYTES } else { self.0.host_bytes_per_voxel() }
    }

    fn refuses(&self, given: &StageInputs) -> Option<String> {
        self.0.refuses(given)
    }

    fn run(&self, name: &'static str, run: &mut Run, found: Estimate) -> Result<StageResult> {
        find(run, name, self, found, |stage| self.0.find(stage))
    }
}

/// A stage whose transform is found on the first device, by what has its images in one piece.
pub(super) fn find(
    run: &mut Run,
    name: &'static str,
    method: &dyn StageMethod,
    found: Estimate,
    by: impl Fn(&mut StageRun) -> Result<MethodResult>,
) -> Result<StageResult> {
    let start = Instant::now();
    let before = found.clone();
    let mut stage = StageRun { run, found, name, levels: Vec::new() };
    let MethodResult { affine, displacement } = by(&mut stage)?;
    let Some(last) = method.levels().last() else {
        let what = "a method needs at least one level";
        return Err(Error::invalid(what, name, "let it name the levels it works on"));
    };
    let images = stage.images(last)?;
    let levels = stage.levels;
    let grid = &images.grids()[0];
    let on_level = displacement.as_ref().map(|w| w.resampled(grid).field().clone());
    let similarity = method.similarity();
    let loss_after = images.loss(similarity, &affine, on_level)?;
    let loss_without = images.loss(similarity, &before.affine, None)?;
    let given = run.start.deformation.as_ref().map(|given| {
        let [_, _, d, _, _] = images.fixed.dims();
        given.planes(grid, 0..d, &TensorPlace::of(&images.fixed))
    });
    let loss_before = images.loss(similarity, &run.start.affine, given.transpose()?)?;
    let fields = displacement.map(Fields::whole);
    let seconds = start.elapsed().as_secs_f64();
    let (undone, margin) = (None, None);
    Ok(StageResult {
        found: Estimate { affine, deformed: fields.map(Deformed::displacement) },
        report: StageReport { transform: name, levels, loss_after, undone, margin, seconds },
        loss_without,
        loss_before,
    })
}
